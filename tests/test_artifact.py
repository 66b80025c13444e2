"""Several files as one artifact: one account that counts shared contents once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from any_model import any_model
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import (
    audit,
    dynamo_like,
    entry,
    external,
    finding_ids,
    manifest_of,
    parameter,
    ramp,
    save,
    text_model,
)
from onnx import helper, numpy_helper
from samples import WHOLE

from analyzer.account.artifact import find_components, is_artifact
from analyzer.account.artifact.components import ComponentTotals, count_components
from analyzer.account.audit import audit_model, file_digests
from analyzer.account.group import group_by
from analyzer.account.group.keys import KEYS
from analyzer.account.ledger import Ledger, Role
from analyzer.cli import command
from analyzer.documents.saved import load_report
from analyzer.errors import ModelReadError, UsageError
from analyzer.formats.json import render_json, to_document
from analyzer.formats.text import render_text
from analyzer.graph import build_graph
from analyzer.manifest import save_manifest
from analyzer.model import Key
from analyzer.model.content import Array
from analyzer.model.functions import count_calls
from analyzer.reports import Inspection
from analyzer.schemas import load_schema

ZEROS = np.zeros(3, "f4")


# components of an artifact


def chain(weights: Mapping[str, Array], ops: tuple[str, ...] = (), **fields: Any) -> onnx.ModelProto:
    """Return a chain of nodes that each read one weight: vectors are added, matrices multiplied."""
    names = list(weights)
    kinds = ops or tuple("Add" if weights[name].ndim < 2 else "MatMul" for name in names)
    nodes = [
        helper.make_node(op, [f"h{i}", name], [f"h{i + 1}"])
        for i, (name, op) in enumerate(zip(names, kinds, strict=True))
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    value = helper.make_tensor_value_info("h0", 1, [2, 3])
    last = helper.make_tensor_value_info(f"h{len(nodes)}", 1, None)
    return helper.make_model(helper.make_graph(nodes, "g", [value], [last], tensors), ir_version=10, **fields)


def write(folder: Path, **protos: onnx.ModelProto | Mapping[str, Array]) -> Path:
    """Save a file for each component, without a note about their roles."""
    folder.mkdir(exist_ok=True)
    for name, proto in protos.items():
        save(folder, proto if isinstance(proto, onnx.ModelProto) else chain(proto), f"{name}.onnx")
    return folder


def note(folder: Path, **files: object) -> Path:
    """Write an `export.json` that names a file for each component."""
    components = {name: {"file": file, "metadata": {}} for name, file in files.items()}
    (folder / "export.json").write_text(json.dumps({"schema_version": 1, "components": components}))
    return folder


def join(folder: Path, **protos: onnx.ModelProto | Mapping[str, Array]) -> Ledger:
    return check(audit_model(write(folder, **protos), artifact=True))


def check(ledger: Ledger) -> Ledger:
    """Check all identities of the ledger, and return it."""
    folder = Path(ledger.model.path)
    sizes = {path: path.stat().st_size for path in ledger.model.paths}
    assert len(sizes) == len(ledger.model.files) == len({file.path for file in ledger.model.files})
    assert all((folder / file.path).stat().st_size == file.nbytes for file in ledger.model.files)
    assert sum(account.nbytes for account in ledger.accounts) == ledger.file_nbytes == sum(sizes.values())
    assert len({one.tensor.key for one in ledger.entries}) == len(ledger.entries)
    for by in KEYS:
        group_by(ledger, by)  # raises if the groups do not sum up
    document = document_of(ledger)
    assert sum(role["stored_elements"] for role in document["roles"].values()) == ledger.stored_elements
    rows = document["components"]
    for key in ("stored_elements", "stored_bytes", "stored_tensors", "duplicated_bytes"):
        assert sum(row[key] for row in rows) == document["totals"][key]
    assert sum(row["nodes"] for row in rows) == document["model"]["nodes"]
    assert max(row["parameters"] for row in rows) <= ledger.parameters
    keys = {one.tensor.key for one in ledger.entries if one.copy_of is None}
    assert {one.copy_of for one in ledger.entries if one.copy_of is not None} <= keys
    return ledger


def document_of(ledger: Ledger) -> dict[str, Any]:
    report = Inspection(ledger, group_by(ledger), file_digests(ledger.model))
    found: dict[str, Any] = json.loads(render_json(report))
    jsonschema.validate(found, load_schema("inspect"))
    assert to_document(report) == found
    return found


def copies(ledger: Ledger) -> dict[str, tuple[str, str]]:
    """Return (original, rule) of every copy, by component and name."""
    return {
        "/".join((*e.tensor.graph_path, e.tensor.name)): (
            "/".join((*e.copy_of[0], e.copy_of[1])),
            e.decided_by,
        )
        for e in ledger.entries
        if e.copy_of is not None
    }


def rows(ledger: Ledger) -> dict[str, ComponentTotals]:
    return {row.component.name: row for row in count_components(ledger)}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [os.fspath(a) if isinstance(a, Path) else str(a) for a in arguments])


# choice of files


def test_components_are_those_that_the_export_names_in_its_order(tmp_path):
    write(tmp_path, b={"w": ramp(3, 3)}, a={"w": ramp(3, 3)}, other={"w": ramp(3, 3)})

    assert find_components(note(tmp_path, second="b.onnx", first="a.onnx")) == {
        "second": "b.onnx",
        "first": "a.onnx",
    }


@pytest.mark.parametrize("content", ["{}", '{"components": {}}', None])
def test_where_nothing_is_named_all_files_in_the_folder_are_components(tmp_path, content):
    write(tmp_path, m10={"w": ramp(3, 3)}, m2={"w": ramp(3, 3)})
    write(tmp_path / "sub", deeper={"w": ramp(3, 3)})
    save(tmp_path, b"", ".hidden.onnx")
    (tmp_path / "folder.onnx").mkdir()
    if content is not None:
        (tmp_path / "export.json").write_text(content)

    assert find_components(tmp_path) == {"m2": "m2.onnx", "m10": "m10.onnx"}
    assert is_artifact(tmp_path) is (content is not None)


def test_the_folder_in_which_optimum_has_its_files_belongs_to_it(tmp_path):
    write(tmp_path, model={"w": ramp(3, 3)})
    write(tmp_path / "onnx", model={"w": ramp(3, 3)}, decoder={"w": ramp(3, 3)})

    assert find_components(tmp_path) == {
        "model": "model.onnx",
        "decoder": "onnx/decoder.onnx",
        "onnx/model": "onnx/model.onnx",
    }


def test_a_pipeline_that_has_a_folder_for_each_of_its_models_is_one_artifact(tmp_path):
    (tmp_path / "text_encoder").mkdir()
    for folder, value in (("unet", 1.0), ("vae_decoder", 2.0), ("text_encoder/onnx", 3.0)):
        write(tmp_path / folder, model={"w": ramp(3, 3, start=value), "shared.weight": ramp(5, 3, start=9.0)})
    write(tmp_path / "two", a={"w": ramp(3, 3)}, b={"w": ramp(3, 3)})
    (tmp_path / ".cache").mkdir()

    assert find_components(tmp_path) == {
        "text_encoder": "text_encoder/onnx/model.onnx",
        "two/a": "two/a.onnx",
        "two/b": "two/b.onnx",
        "unet": "unet/model.onnx",
        "vae_decoder": "vae_decoder/model.onnx",
    }
    assert check(audit_model(tmp_path, artifact=True)).model.components


def test_external_data_of_a_file_in_the_inner_folder_is_named_from_the_artifacts(tmp_path):
    proto = chain({})
    proto.graph.initializer.append(external("w", [3, 3], location="w.bin"))
    write(tmp_path / "onnx", a=proto, b=proto)
    (tmp_path / "onnx" / "w.bin").write_bytes(ramp(3, 3).tobytes())

    ledger = check(audit_model(tmp_path, artifact=True))

    assert [file.path for file in ledger.model.files] == ["onnx/a.onnx", "onnx/b.onnx", "onnx/w.bin"]


def test_an_artifact_of_one_file_is_that_file(tmp_path):
    path = save(tmp_path, chain({"fc.weight": ramp(3, 3)}))
    (tmp_path / "other.onnx").write_text("not asked for")
    note(tmp_path, whatever="model.onnx")

    ledger = audit_model(tmp_path)

    assert ledger.model == audit_model(path).model
    assert ledger.model.components == count_components(ledger) == ()
    assert ledger.entries[0].tensor.graph_path == ()
    assert document_of(ledger)["components"] == []


def test_one_file_under_two_names_is_one_component(tmp_path):
    write(tmp_path, a={"w": ramp(3, 3)}, b={"w": ramp(3, 3)})
    (tmp_path / "latest.onnx").symlink_to("a.onnx")

    assert find_components(tmp_path) == {"a": "a.onnx", "b": "b.onnx"}
    assert find_components(note(tmp_path, x="latest.onnx", y="./a.onnx", z="b.onnx")) == {
        "x": "latest.onnx",
        "z": "b.onnx",
    }
    check(audit_model(tmp_path))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("../outside.onnx", "leads outside"),
        ("/etc/passwd", "is not a relative path"),
        ("link.onnx", "leads outside"),
        ("gone.onnx", "is not there"),
        ("", "is not a relative path"),
        ("https://host/a.onnx", "is not a relative path"),
        ("folder", "is not a regular file"),
    ],
)
def test_a_component_outside_the_folder_or_not_there_is_an_error_and_not_opened(tmp_path, file, words):
    folder = write(tmp_path / "artifact", a={"w": ramp(3, 3)})
    outside = save(tmp_path, chain({"w": ramp(3, 3)}), "outside.onnx")
    (folder / "link.onnx").symlink_to(outside)
    (folder / "folder").mkdir()

    with pytest.raises(ModelReadError, match=rf"component bad: .*{words}"):
        audit_model(note(folder, a="a.onnx", bad=file))


def test_links_of_a_hub_cache_are_followed(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for name in ("encoder", "decoder"):
        save(blobs, chain({"w": ramp(3, 3)}), name)
        (snapshot / f"{name}.onnx").symlink_to(f"../../blobs/{name}")

    ledger = audit_model(snapshot, artifact=True)

    assert [file.path for file in ledger.model.files] == ["decoder.onnx", "encoder.onnx"]
    assert ledger.parameters == 9


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1]",
        '{"components": [1]}',
        '{"components": {"a": "a.onnx"}}',
        '{"components": {"a": {}}}',
        "[" * 9999,
    ],
)
def test_an_invalid_export_is_an_error(tmp_path, content):
    write(tmp_path, a={"w": ramp(3, 3)})
    (tmp_path / "export.json").write_text(content)

    with pytest.raises(ModelReadError, match=r"export\.json: "):
        audit_model(tmp_path)


@pytest.mark.child
def test_a_broken_component_is_an_error_that_names_it(tmp_path):
    write(tmp_path, good={"w": ramp(3, 3)})
    (tmp_path / "bad.onnx").write_text("<html>")

    line = [sys.executable, "-m", "analyzer", "inspect", tmp_path, "--artifact"]
    result = subprocess.run(line, capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"onnxledger: {tmp_path}/bad.onnx: [not-onnx]")
    assert "component bad" in result.stderr


def test_a_folder_without_a_model_says_so(tmp_path):
    with pytest.raises(UsageError, match=r"contains no \.onnx file"):
        audit_model(tmp_path, artifact=True)


def test_the_limit_applies_to_all_components_together(tmp_path):
    write(tmp_path, a={"w": ramp(3, 3)}, b={"w": ramp(3, 3)}, c={"w": ramp(3, 3)})

    with pytest.raises(ModelReadError, match="its components hold more than 5 nodes and tensors"):
        audit_model(tmp_path, artifact=True, max_objects=5)


def test_names_that_no_reader_takes_are_escaped(tmp_path):
    for name in (os.fsdecode(b"not-\xff.onnx"), "ü.onnx", "\x1b[2J.onnx"):
        save(tmp_path, chain({"w": ramp(3, 3)}), name)

    ledger = audit_model(tmp_path, artifact=True)
    document = document_of(ledger)

    assert {row["component"] for row in document["components"]} == {"not-\\udcff", "ü", "\x1b[2J"}
    assert "\x1b" not in render_text(Inspection(ledger, group_by(ledger)))


# an artifact as one model


def test_paths_begin_with_the_component_and_nothing_else_changes(tmp_path):
    proto = text_model("""
        g (bool c, float[1,2] x) => (float[1,2] y) {
            y = If(c) <then_branch = t () => (float[1,2] a) <float[2,2] w = {1, 2, 3, 4}> { a = MatMul(x, w) },
                       else_branch = e () => (float[1,2] b) <float[2,2] w = {5, 6, 7, 8}> { b = MatMul(x, w) }>
        }
    """)
    alone = audit(tmp_path, proto).model
    (tmp_path / "model.onnx").unlink()

    model = join(tmp_path, one=proto, two=proto).model

    assert [g.path for g in model.graphs] == [(n, *g.path) for n in ("one", "two") for g in alone.graphs]
    assert [g.parent for g in model.graphs[:2]] == [None, (("one",), 0)]
    assert all(node.graph_path == graph.path for graph in model.graphs for node in graph.nodes)
    assert model.nested_graphs == 4
    assert [(part.name, part.path) for part in model.parts] == [("one", ("one",)), ("two", ("two",))]


def test_every_entry_and_vertex_is_that_of_its_own_component(tmp_path):
    a = chain({"w": ramp(3, 3), "b": ZEROS})
    b = chain({"w": ramp(3, 3, start=50)}, ops=("Relu",))

    ledger = join(tmp_path, a=a, b=b)

    assert [(e.tensor.key, e.role, e.uses, e.read_by) for e in ledger.entries] == [
        ((("a",), "w"), Role.PARAMETER, 1, "MatMul"),
        ((("a",), "b"), Role.PARAMETER, 1, "Add"),
        ((("b",), "w"), Role.UNATTRIBUTED, 1, "Relu"),
    ]
    graph = build_graph(ledger.model)
    assert list(graph.successors(("tensor", ("b",), "w"))) == [("node", ("b",), 0)]


def test_undefined_values_of_every_component_are_found(tmp_path):
    a = helper.make_model(helper.make_graph([helper.make_node("Add", ["nope", "nope"], ["y"])], "g", [], []))

    ledger = join(tmp_path, a=a, b=a)

    (found,) = [finding for finding in ledger.findings if finding.id == "undefined-input"]
    assert found.subjects == ("a/nope", "b/nope")


def test_versions_are_each_components_own(tmp_path):
    new = chain({"w": ramp(3, 3)}, opset_imports=[helper.make_opsetid("", 18)], producer_name="pytorch")
    old = chain({"v": ramp(3, 3)}, opset_imports=[helper.make_opsetid("", 6), helper.make_opsetid("my", 1)])
    old.ir_version = 3
    old.graph.input.append(helper.make_tensor_value_info("v", 1, [3, 3]))

    ledger = join(tmp_path, new=new, old=old)

    model = ledger.model
    assert (model.ir_version, dict(model.opsets), model.producer) == (10, {"ai.onnx": 18, "my": 1}, "pytorch")
    assert {f.id: f.message for f in ledger.findings}["old-opset"].startswith("old: opset 6 is older than 7")
    assert {f.id: f.message for f in ledger.findings}["initializer-is-input"].endswith(
        "as this IR version requires"
    )
    assert "invalid-version" not in finding_ids(ledger)
    assert [(row["ir_version"], row["opsets"]) for row in document_of(ledger)["components"]] == [
        (10, {"ai.onnx": 18}),
        (3, {"ai.onnx": 6, "my": 1}),
    ]
    text = render_text(Inspection(ledger, group_by(ledger)))
    assert [line.split() for line in text.splitlines() if line.startswith(("new ", "old "))]


def test_the_producer_of_a_component_is_that_of_its_own_file(tmp_path):
    pytorch = chain({"block.table": ramp(3, 3)}, ops=("Relu",), producer_name="pytorch")
    other = chain({"block.table": ramp(3, 3)}, ops=("Relu",))

    ledger = join(tmp_path, a=other, b=pytorch)

    assert entry(ledger, "block.table", "a").decided_by == "none:no-rule"
    assert entry(ledger, "block.table", "b").decided_by == "name:state-dict"


def test_notes_of_one_component_are_no_evidence_for_another(tmp_path):
    traced = dynamo_like(chain({"val_1": ramp(3, 3)}), folded={"val_1": ["stats"]})
    traced.graph.node[0].metadata_props.add(key="pkg.torch.onnx.fx_node", value="%b_stats : [num_users=1]")
    foreign = dynamo_like(chain({"val_2": ramp(3, 3)}))
    foreign.graph.node[0].metadata_props.add(key="pkg.torch.onnx.fx_node", value="%p_stats : [num_users=1]")

    ledger = join(tmp_path, traced=traced, foreign=foreign)

    assert entry(ledger, "val_1", "traced").role is Role.BUFFER


def test_functions_of_one_name_are_two_and_called_where_they_are(tmp_path):
    def calling(*bodies: str) -> onnx.ModelProto:
        nodes = [helper.make_node("f", ["x"], ["y"], domain="my")] * 2
        inner = [helper.make_node(op, ["x"], ["y"], domain="my" if op == "g" else "") for op in bodies]
        functions = [
            helper.make_function("my", "f", ["x"], ["y"], inner, [helper.make_opsetid("", 18)]),
            helper.make_function("my", "g", ["x"], ["y"], [], [helper.make_opsetid("", 18)]),
        ]
        graph = helper.make_graph(nodes[: len(bodies)], "g", [helper.make_tensor_value_info("x", 1, [1])], [])
        return helper.make_model(graph, functions=functions)

    stranger = helper.make_model(
        helper.make_graph([helper.make_node("f", ["x"], ["y"], domain="my")], "g", [], [])
    )

    ledger = join(tmp_path, a=calling("g", "g"), b=calling("Relu"), c=stranger)

    assert [(c.function.path, c.sites, c.calls) for c in count_calls(ledger.model)] == [
        (("a", "function:my:f"), 2, 2),
        (("a", "function:my:g"), 2, 4),
        (("b", "function:my:f"), 1, 1),
        (("b", "function:my:g"), 0, 0),
    ]
    assert "duplicate-function" not in finding_ids(ledger)
    (found,) = [finding for finding in ledger.findings if finding.id == "custom-domain"]
    assert found.subjects == ("my: 1 node",)  # only the component that does not define the function


def test_a_component_without_nodes_does_not_explain_its_outputs(tmp_path):
    table = helper.make_graph([], "g", [], [helper.make_tensor_value_info("t", 1, [3])])
    table.initializer.append(numpy_helper.from_array(ramp(3), "t"))

    ledger = join(tmp_path, model={"w": ramp(3, 3)}, table=helper.make_model(table))

    assert entry(ledger, "t", "table").decided_by == "none:no-rule"
    assert "unused-initializer" not in finding_ids(ledger)


def test_depth_of_graphs_is_counted_within_a_file(tmp_path):
    inner = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [])
    for _ in range(32):
        inner = helper.make_graph([helper.make_node("If", ["x"], ["y"], then_branch=inner)], "g", [], [])

    ledger = join(tmp_path, a={"w": ramp(3, 3)}, b=helper.make_model(inner))

    assert "deep-nesting" not in finding_ids(ledger)


# contents in several files


def test_a_weight_of_one_name_in_two_files_is_one_parameter(tmp_path):
    encoder = {"shared.weight": ramp(5, 3), "encoder.0.weight": ramp(3, 3)}
    decoder = {"shared.weight": ramp(5, 3), "decoder.0.weight": ramp(3, 3, start=9)}

    ledger = join(tmp_path, a_encoder=encoder, decoder=decoder)

    assert copies(ledger) == {"decoder/shared.weight": ("a_encoder/shared.weight", "content:duplicated-file")}
    assert (ledger.parameters, ledger.stored_elements, ledger.duplicated_nbytes) == (33, 48, 60)
    assert [(r.parameters, r.duplicated_nbytes) for r in count_components(ledger)] == [(24, 0), (24, 60)]


def test_the_finding_says_how_many_bytes_stand_twice(tmp_path):
    ledger = join(tmp_path, a={"x.weight": ramp(5, 3)}, b={"x.weight": ramp(5, 3)})

    (found,) = [finding for finding in ledger.findings if finding.id == "duplicate-content"]
    assert found.message.startswith("60 bytes are in more than one file")
    assert found.subjects == ("b/x.weight = a/x.weight",)


def test_a_transposed_weight_in_another_file_is_one_too(tmp_path):
    ledger = join(tmp_path, a={"fc.weight": ramp(2, 3)}, b={"onnx::MatMul_7": ramp(2, 3).T.copy()})

    assert copies(ledger) == {"b/onnx::MatMul_7": ("a/fc.weight", "content:transposed-duplicated-file")}
    assert ledger.parameters == 6
    assert "transposed-copy" in finding_ids(ledger)


def test_the_named_one_is_the_original_whichever_file_it_is_in(tmp_path):
    ledger = join(tmp_path, a={"onnx::MatMul_7": ramp(2, 3).T.copy()}, b={"fc.weight": ramp(2, 3)})

    assert copies(ledger) == {"a/onnx::MatMul_7": ("b/fc.weight", "content:transposed-duplicated-file")}
    assert rows(ledger)["a"].parameters == rows(ledger)["b"].parameters == ledger.parameters == 6


def test_weights_without_names_are_one_by_their_content(tmp_path):
    ledger = join(tmp_path, a={"onnx::MatMul_7": ramp(3, 3)}, b={"onnx::MatMul_9": ramp(3, 3)})

    assert (ledger.parameters, ledger.duplicated_nbytes) == (9, 36)


@pytest.mark.parametrize(
    "other", [ramp(3, 3, start=2), ramp(3, 3, start=2).astype("f2"), ramp(9, 1), ramp(3, 3)[::-1].copy()]
)
@pytest.mark.parametrize("content", ["sampled", "full"])
def test_the_same_name_with_other_content_is_another_parameter(tmp_path, other, content):
    write(tmp_path, a={"fc.weight": ramp(3, 3)}, b={"fc.weight": other})

    ledger = check(audit_model(tmp_path, artifact=True, content=content))

    assert copies(ledger) == {}
    assert ledger.parameters == 18


def test_a_copy_within_a_file_that_is_also_in_another_counts_once_in_each(tmp_path):
    twice = {"wte.weight": ramp(5, 3), "onnx::MatMul_1": ramp(5, 3).T.copy()}

    ledger = join(tmp_path, a=twice, b=twice)

    assert ledger.parameters == rows(ledger)["a"].parameters == rows(ledger)["b"].parameters == 15
    assert copies(ledger)["a/onnx::MatMul_1"] == ("a/wte.weight", "content:transposed-copy")
    assert copies(ledger)["b/onnx::MatMul_1"] == ("a/wte.weight", "content:transposed-duplicated-file")
    assert ledger.duplicated_nbytes == 120


def test_two_names_of_one_weight_in_two_files_are_one_parameter(tmp_path):
    # T5's embedding: each file names it after its own module
    encoder = {"encoder.embed_tokens.weight": ramp(5, 3)}
    decoder = {"decoder.embed_tokens.weight": ramp(5, 3), "lm_head.weight": ramp(3, 5, start=7)}

    ledger = join(tmp_path, a=encoder, b=decoder)

    assert copies(ledger) == {
        "b/decoder.embed_tokens.weight": ("a/encoder.embed_tokens.weight", "content:duplicated-file")
    }


def test_two_names_that_one_file_holds_are_two_parameters_in_all_files(tmp_path):
    both = {"enc.pos.weight": ramp(5, 3), "dec.pos.weight": ramp(5, 3)}

    ledger = join(tmp_path, a={"enc.pos.weight": ramp(5, 3)}, b={"dec.pos.weight": ramp(5, 3)}, c=both)

    assert ledger.parameters == 30
    assert copies(ledger) == {
        "c/enc.pos.weight": ("a/enc.pos.weight", "content:duplicated-file"),
        "c/dec.pos.weight": ("b/dec.pos.weight", "content:duplicated-file"),
    }


def test_an_original_stands_for_one_name_of_each_file(tmp_path):
    two = {"x.weight": ramp(5, 3), "y.weight": ramp(5, 3)}

    ledger = join(tmp_path, a={"z.weight": ramp(5, 3)}, b=two)

    assert (ledger.parameters, rows(ledger)["b"].parameters) == (30, 30)


def test_equal_tensors_of_many_names_are_as_many_parameters_as_a_file_says(tmp_path):
    a = {f"a.{i}.weight": ramp(2) for i in range(300)}
    b = {f"b.{i}.weight": ramp(2) for i in range(500)}

    assert join(tmp_path, a=a, b=b).parameters == 1000


# tensors of equal elements


@pytest.mark.parametrize("value", [np.zeros(3, "f4"), np.ones(3, "f4"), np.float32([2.5]), np.float32(2.5)])
def test_one_value_under_one_name_is_one_parameter(tmp_path, value):
    weights = {"fc.weight": ramp(3, 3), "fc.bias": value, "norm.bias": value}

    ledger = join(tmp_path, a=weights, b=weights)

    assert copies(ledger)["b/fc.bias"] == ("a/fc.bias", "content:duplicated-file")
    assert ledger.parameters == rows(ledger)["a"].parameters == 9 + 2 * value.size


def test_one_value_under_two_names_or_none_is_two_parameters(tmp_path):
    ledger = join(tmp_path, a={"fc.bias": ZEROS, "val_1": ZEROS}, b={"head.bias": ZEROS, "val_1": ZEROS})

    assert copies(ledger) == {}


def test_two_values_under_one_name_are_two_parameters(tmp_path):
    ledger = join(tmp_path, a={"fc.bias": ZEROS}, b={"fc.bias": ZEROS + 1})

    assert (copies(ledger), ledger.parameters) == ({}, 6)


def test_where_a_name_means_two_tensors_the_zeros_beside_it_are_two_as_well(tmp_path):
    # layers.0 of a vision tower, and layers.0 of a language model
    vision = {"layers.0.fc.weight": ramp(3, 3), "layers.0.fc.bias": ZEROS}
    language = {"layers.0.fc.weight": ramp(3, 3, start=5), "layers.0.fc.bias": ZEROS}

    ledger = join(tmp_path, language=language, vision=vision)

    assert (copies(ledger), ledger.parameters) == ({}, 24)


def test_a_component_that_was_cast_is_of_the_same_names(tmp_path):
    half = {"fc.weight": ramp(3, 3).astype("f2"), "fc.bias": ZEROS}

    ledger = join(tmp_path, a={"fc.weight": ramp(3, 3), "fc.bias": ZEROS}, b=half)

    assert copies(ledger) == {
        "b/fc.weight": ("a/fc.weight", "content:cast-duplicated-file"),
        "b/fc.bias": ("a/fc.bias", "content:duplicated-file"),
    }


def test_a_parameter_that_was_folded_into_several_tensors_casts_no_doubt_on_names(tmp_path):
    def folded(shift: float) -> onnx.ModelProto:
        weights = {"val_1": ramp(3, 3), "val_2": ramp(3, start=shift), "fc.bias": ZEROS}
        origins = {"val_1": ["fc.weight"], "val_2": ["fc.weight"]}
        return dynamo_like(chain(weights), folded=origins)

    ledger = join(tmp_path, a=folded(1), b=folded(2))

    assert copies(ledger)["b/fc.bias"] == ("a/fc.bias", "content:duplicated-file")


def test_a_table_of_which_one_file_has_a_part_casts_no_doubt_on_names(tmp_path):
    part = dynamo_like(chain({"val_1": ramp(1, 3), "fc.bias": ZEROS}), folded={"val_1": ["wpe.weight"]})

    ledger = join(tmp_path, decode=part, prefill={"wpe.weight": ramp(9, 3), "fc.bias": ZEROS})

    assert copies(ledger) == {"prefill/fc.bias": ("decode/fc.bias", "content:duplicated-file")}


# merged decoders


def merged(*, is_shared: bool) -> onnx.ModelProto:
    """Return optimum's merged decoder: an If whose branches hold the weights or read the outer graph's."""

    def branch(name: str) -> onnx.GraphProto:
        nodes = [
            helper.make_node("MatMul", ["x", "decoder.fc.weight"], [f"{name}_h"]),
            helper.make_node("Add", [f"{name}_h", "decoder.fc.bias"], [f"{name}_y"]),
        ]
        tensors = [] if is_shared else stored()
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", 1, [2, 3])], tensors
        )

    def stored() -> list[onnx.TensorProto]:
        arrays = {"decoder.fc.weight": ramp(3, 3), "decoder.fc.bias": ZEROS}
        return [numpy_helper.from_array(array, name) for name, array in arrays.items()]

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("then"), else_branch=branch("else"))
    inputs = [helper.make_tensor_value_info("c", 9, [1]), helper.make_tensor_value_info("x", 1, [2, 3])]
    outputs = [helper.make_tensor_value_info("y", 1, [2, 3])]
    graph = helper.make_graph([node], "g", inputs, outputs, stored() if is_shared else [])
    return helper.make_model(graph, ir_version=10)


@pytest.mark.parametrize("is_shared", [False, True])
def test_optimums_decoders_hold_one_decoder(tmp_path, is_shared):
    decoder = {"decoder.fc.weight": ramp(3, 3), "decoder.fc.bias": ZEROS}

    ledger = join(
        tmp_path,
        encoder_model={"encoder.fc.weight": ramp(3, 3, start=5), "encoder.fc.bias": ZEROS},
        decoder_model=decoder,
        decoder_with_past_model=decoder,
        decoder_model_merged=merged(is_shared=is_shared),
    )

    assert ledger.parameters == 24
    assert {row.parameters for row in count_components(ledger)} == {12}
    assert ledger.stored_elements == 12 * (4 if is_shared else 5)
    groups = {g.name: (g.parameters, g.tensors) for g in group_by(ledger).groups if g.tensors}
    assert groups == {"decoder.fc": (12, 6 if is_shared else 8), "encoder.fc": (12, 2)}


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_branches_of_a_merged_decoder_alone_hold_one_decoder(tmp_path, is_shared):
    ledger = audit(tmp_path, merged(is_shared=is_shared))

    assert ledger.parameters == 12
    assert {rule for _, rule in copies(ledger).values()} == (set() if is_shared else {"content:copy"})


# external data


def outside(*tensors: onnx.TensorProto) -> onnx.ModelProto:
    proto = chain({})
    for tensor in tensors:
        proto.graph.initializer.append(tensor)
        proto.graph.node.append(helper.make_node("MatMul", ["h0", tensor.name], [f"{tensor.name}_y"]))
    return proto


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
def test_external_data_that_graphs_share_is_booked_once_and_is_no_duplicate(tmp_path, content):
    (tmp_path / "w.bin").write_bytes(ramp(3, 3).tobytes())
    write(
        tmp_path,
        a=outside(external("w", [3, 3], location="w.bin")),
        b=outside(external("v", [3, 3], location="w.bin")),
    )

    ledger = check(audit_model(tmp_path, artifact=True, content=content))

    assert copies(ledger) == {"b/v": ("a/w", "content:shared-data")}
    assert (ledger.parameters, ledger.stored_elements) == (9, 18)
    assert (ledger.stored_nbytes, ledger.shared_nbytes, ledger.duplicated_nbytes) == (72, 36, 0)
    assert [file.path for file in ledger.model.files] == ["a.onnx", "b.onnx", "w.bin"]
    assert not {"duplicate-content", "external-overlap", "external-orphaned"} & set(finding_ids(ledger))
    assert rows(ledger)["a"].file_nbytes == (tmp_path / "a.onnx").stat().st_size + 36


def test_shared_data_that_also_stands_elsewhere_leads_to_the_one_original(tmp_path):
    (tmp_path / "w.bin").write_bytes(ramp(3, 3).tobytes())
    place = outside(external("w", [3, 3], location="w.bin"))

    ledger = join(tmp_path, a={"fc.weight": ramp(3, 3)}, b=place, c=place)

    assert copies(ledger) == {
        "b/w": ("a/fc.weight", "content:duplicated-file"),
        "c/w": ("a/fc.weight", "content:shared-data"),
    }
    assert (ledger.parameters, ledger.duplicated_nbytes) == (9, 36)


def test_names_on_one_place_that_a_file_tells_apart_stay_two(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(12))
    both = outside(external("x.bias", [3], location="w.bin"), external("y.bias", [3], location="w.bin"))

    ledger = join(tmp_path, a=both, b=both)

    assert copies(ledger) == {
        "b/x.bias": ("a/x.bias", "content:shared-data"),
        "b/y.bias": ("a/y.bias", "content:shared-data"),
    }
    assert ledger.parameters == 6


def test_what_overlaps_otherwise_is_a_finding_across_files_too(tmp_path):
    (tmp_path / "w.bin").write_bytes(ramp(6).tobytes())
    a, b = (outside(external("w", [2, 2], location="w.bin", offset=offset)) for offset in (0, 8))

    ledger = join(tmp_path, a=a, b=b)

    assert "external-overlap" in finding_ids(ledger)
    assert ledger.shared_nbytes == 8


def test_bytes_that_only_one_of_the_graphs_leaves_out_are_not_orphaned(tmp_path):
    (tmp_path / "w.bin").write_bytes(ramp(8).tobytes())
    a, b = (outside(external("w", [2, 2], location="w.bin", offset=offset)) for offset in (0, 16))

    ledger = join(tmp_path, a=a, b=b)

    assert "external-orphaned" not in finding_ids(ledger)


def test_external_data_may_be_the_file_of_another_component(tmp_path):
    write(tmp_path, a={"fc.weight": ramp(3, 3)})
    offset = (tmp_path / "a.onnx").read_bytes().index(ramp(3, 3).tobytes())

    ledger = join(tmp_path, b=outside(external("fc.weight", [3, 3], location="a.onnx", offset=offset)))

    assert (ledger.parameters, ledger.stored_nbytes, ledger.shared_nbytes) == (9, 72, 36)
    assert len(ledger.model.files) == 2


def test_a_missing_file_is_a_finding_of_the_components_that_refer_to_it(tmp_path):
    place = outside(external("w", [3, 3], location="gone.bin"))

    ledger = join(tmp_path, a=place, b=place)

    (found,) = [finding for finding in ledger.findings if finding.id == "external-missing"]
    assert found.subjects == ("a/w", "b/w")


# without contents


def by_name(folder: Path, **protos: Mapping[str, Array]) -> Ledger:
    return check(audit_model(write(folder, **protos), artifact=True, content="none"))


def test_without_contents_a_dotted_name_of_one_dtype_and_shape_is_one_parameter(tmp_path):
    ledger = by_name(
        tmp_path,
        a={
            "fc.weight": ramp(3, 3),
            "onnx::MatMul_1": ramp(3, 3),
            "h.weight": ramp(2, 3),
            "i.weight": ramp(3),
        },
        b={"fc.weight": ramp(3, 3), "onnx::MatMul_1": ramp(3, 3), "i.weight": ramp(3).astype("f2")},
    )

    assert copies(ledger) == {"b/fc.weight": ("a/fc.weight", "name:duplicated-file")}
    (found,) = [finding for finding in ledger.findings if finding.id == "duplicate-content"]
    assert "judged by name" in found.message


def test_without_contents_names_are_no_evidence_where_one_has_two_shapes(tmp_path):
    a = {"layers.0.weight": ramp(3, 3), "layers.0.bias": ramp(3)}
    b = {"layers.0.weight": ramp(3, 4), "layers.0.bias": ramp(3)}

    assert copies(by_name(tmp_path, a=a, b=b)) == {}


# reports


@pytest.fixture
def whisper(tmp_path: Path) -> Path:
    folder = write(
        tmp_path / "whisper",
        encoder={"shared.weight": ramp(5, 3), "encoder.layer.0.fc.weight": ramp(3, 3)},
        decoder={
            "shared.weight": ramp(5, 3),
            "encoder.layer.0.fc.weight": ramp(3, 3),
            "decoder.weight": ramp(3, 3, start=7),
        },
    )
    return note(folder, encoder="encoder.onnx", decoder="decoder.onnx")


def test_inspect_of_the_folder_is_one_report_with_a_row_for_each_component(whisper):
    result = run("inspect", whisper, "--format", "json", "--digest")

    document = json.loads(result.stdout)
    jsonschema.validate(document, load_schema("inspect"))
    assert result.exit_code == 0
    assert document["model"]["path"] == str(whisper)
    assert [file["path"] for file in document["model"]["files"]] == ["encoder.onnx", "decoder.onnx"]
    assert document["totals"]["parameters"] == 33
    assert document["totals"]["duplicated_bytes"] == 96
    keys = ("component", "path", "parameters", "stored_elements", "stored_bytes", "duplicated_bytes", "nodes")
    assert [tuple(row[key] for key in keys) for row in document["components"]] == [
        ("encoder", "encoder.onnx", 24, 24, 96, 0, 2),
        ("decoder", "decoder.onnx", 33, 33, 132, 96, 3),
    ]
    assert run("inspect", whisper, "--format", "json", "--digest").stdout == result.stdout


def test_the_text_shows_each_component_and_the_unique_total(whisper):
    lines = [line.split() for line in run("inspect", whisper).stdout.splitlines()]

    assert ["33", "parameters"] in [line[:2] for line in lines]
    assert ["decoder", "decoder.onnx", "33", "33", "96", "B"] in [line[:6] for line in lines]
    assert ["all,", "each", "once", "33", "57", "96", "B"] in [line[:7] for line in lines]


def test_groups_are_those_of_all_components_together(whisper):
    result = run("inspect", whisper, "--format", "json", "--depth", "3")

    groups = {group["group"]: group for group in json.loads(result.stdout)["groups"]}
    assert (groups["encoder.layer.0"]["tensors"], groups["encoder.layer.0"]["parameters"]) == (2, 9)


def test_compare_takes_artifacts_and_their_reports(whisper, tmp_path):
    run("inspect", whisper, "--quiet", "-o", tmp_path / "saved.json")

    against_itself, against_saved = (
        json.loads(run("compare", whisper, other, "--format", "json").stdout)
        for other in (whisper, tmp_path / "saved.json")
    )

    assert against_itself["totals"]["parameters"] == {
        "a": 33,
        "b": 33,
        "difference": 0,
        "change": 0,
        "ratio": 1.0,
    }
    assert against_saved["groups"] == against_itself["groups"]
    assert load_report(tmp_path / "saved.json").parameters == 33


def test_compare_takes_a_folder_that_is_named_as_an_artifact(whisper):
    (whisper / "export.json").unlink()

    result = run("compare", whisper, whisper / "encoder.onnx", "--artifact", "--format", "json")

    assert json.loads(result.stdout)["totals"]["parameters"]["a"] == 33


def test_reconcile_takes_the_manifest_in_the_folder(whisper):
    weights = {
        "shared.weight": ramp(5, 3),
        "encoder.layer.0.fc.weight": ramp(3, 3),
        "decoder.weight": ramp(3, 3, start=7),
    }
    manifest = manifest_of(*(parameter(name, array) for name, array in weights.items()))
    save_manifest(manifest, whisper / "manifest.json")

    document = json.loads(run("reconcile", whisper, "--format", "json").stdout)

    assert document["pytorch"]["parameters"] == document["onnx"]["parameters_alone"] == 33


def test_an_output_may_not_replace_what_names_the_components(whisper):
    before = (whisper / "export.json").read_bytes()

    for arguments in (["inspect", whisper], ["compare", whisper, whisper]):
        assert isinstance(run(*arguments, "-o", whisper / "export.json").exception, UsageError)

    assert (whisper / "export.json").read_bytes() == before


# any components


@pytest.mark.slow
@settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60 if WHOLE else 20,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(any_model(), min_size=2, max_size=3), st.sampled_from(["none", "sampled", "full"]))
def test_identities_hold_for_any_artifact(tmp_path_factory, artifacts, content):
    folder = tmp_path_factory.mktemp("any")
    for index, artifact in enumerate(artifacts):
        for name, payload in artifact.files.items():
            (folder / name).write_bytes(payload)  # shared by all models, so some lack part of their data
        save(folder, artifact.proto, f"c{index}.onnx")

    ledger = check(audit_model(folder, artifact=True, content=content))

    alone = [audit_model(folder / f"c{index}.onnx", content=content) for index in range(len(artifacts))]
    assert ledger.stored_elements == sum(one.stored_elements for one in alone)
    assert ledger.parameters <= sum(one.parameters for one in alone)
    for row, one in zip(count_components(ledger), alone, strict=True):
        assert row.parameters <= one.parameters
    keys: list[Key] = [
        ((f"c{i}", *e.tensor.graph_path), e.tensor.key[1]) for i, one in enumerate(alone) for e in one.entries
    ]
    assert [e.tensor.key for e in ledger.entries] == keys
