"""Blocks are layers in small models of each family, and `make subgraphs` detects when they are not."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import audit, manifest_of, noise, parameters_of, reconcile, save, text_model, with_scopes
from samples import WHOLE

from analyzer.account.ledger import Blocks, Ledger, Member, Run
from tools.subgraphs.anonymize import strip_names
from tools.subgraphs.architectures import ARCHITECTURES, SMALL
from tools.subgraphs.cells import Cell, Outcome, make_and_score
from tools.subgraphs.forms import FORMS, NAMED, NAMELESS
from tools.subgraphs.report import render_markdown
from tools.subgraphs.residues import KNOWN
from tools.subgraphs.score import Score, fold_counts, score_blocks
from tools.subgraphs.truth import Truth, find_truth, from_source, load_truth, save_truth, true_layers

NEEDED = ("torch", "transformers", "onnxscript", "onnxruntime")  # each in another process
EXPORTED, LEGACY = ("exported", "legacy", "ort", "int8"), ("legacy", "legacy-ort", "legacy-int8")
FORMS_OF = {  # dynamo takes ten seconds where TorchScript takes one
    "bert": EXPORTED if WHOLE else LEGACY,
    "t5": EXPORTED if WHOLE else LEGACY,
    "resnet": EXPORTED,
    "albert": LEGACY,
    "gpt2": LEGACY,
    **({"llama": LEGACY} if WHOLE else {}),
}
LAYERS = """agraph (float[n, 4] input_ids) => (float[n, 2] logits) {
    wide = MatMul(input_ids, embed)
    one = MatMul(wide, first)
    two = MatMul(one, second)
    logits = MatMul(two, classifier)
}"""
WEIGHTS = {
    "embed": noise(4, 8, seed=0),
    "first": noise(8, 8, seed=1),
    "second": noise(8, 8, seed=2),
    "classifier": noise(8, 2, seed=3),
}
PARAMETERS = {
    "embed.weight": WEIGHTS["embed"],
    "encoder.layer.0.weight": WEIGHTS["first"],
    "encoder.layer.1.weight": WEIGHTS["second"],
    "classifier.weight": WEIGHTS["classifier"],
}


@pytest.mark.export
@pytest.mark.time
@pytest.mark.slow
@pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}")
@pytest.mark.parametrize("architecture", FORMS_OF)
def test_each_layer_is_a_block_with_names_and_without(tmp_path: Path, architecture: str) -> None:
    cells = [
        Cell(architecture, form, naming) for form in FORMS_OF[architecture] for naming in (NAMED, NAMELESS)
    ]

    outcomes = [make_and_score(tmp_path, cell, SMALL) for cell in cells]

    assert {outcome.cell.name: describe_outcome(outcome) for outcome in outcomes} == {
        cell.name: "exact" for cell in cells
    }


def describe_outcome(outcome: Outcome) -> str:
    score = outcome.score
    if score is None:
        return outcome.reason
    if score.is_exact:
        return "exact"
    wrong = ", ".join(f"{t.parameters[0]} in {t.found}" for t in score.misplaced[:5])
    return f"{score.found} of {score.true}, {len(score.misplaced)} misplaced: {wrong}"


# the truth


def truth_of_layers(folder: Path, uses: int = 1) -> Truth:
    proto = text_model(LAYERS, WEIGHTS)
    return find_truth(reconcile(folder, proto, manifest_of(*parameters_of(PARAMETERS))), uses)


def test_a_layer_is_the_module_that_its_parameters_name() -> None:
    names = [
        "vit.layers.3.norm.weight",
        "bert.encoder.layer.1.attention.self.query.weight",
        "encoder.block.0.layer.1.DenseReluDense.wi.weight",
        "resnet.encoder.stages.2.layers.1.layer.0.convolution.weight",
        "swin.encoder.layers.3.blocks.1.layernorm_before.bias",
        "encoder.albert_layer_groups.0.albert_layers.0.ffn.bias",
        "transformer.ln_f.weight",
    ]

    assert true_layers(names) == (
        "vit.layers.3",
        "bert.encoder.layer.1",
        "encoder.block.0",
        "resnet.encoder.stages.2.layers.1",
        "swin.encoder.layers.3.blocks.1",
        "encoder.albert_layer_groups.0.albert_layers.0",
    )


def test_what_no_layer_has_is_before_the_first_or_after_the_last(tmp_path: Path) -> None:
    truth = truth_of_layers(tmp_path)

    assert truth.layers == ("encoder.layer.0", "encoder.layer.1")
    assert truth.parameters == (64, 64)
    assert {tensor.parameters[0]: tensor.blocks for tensor in truth.tensors.values()} == {
        "embed.weight": ("stem",),
        "encoder.layer.0.weight": ("block.0",),
        "encoder.layer.1.weight": ("block.1",),
        "classifier.weight": ("head",),
    }


def test_a_node_is_in_the_layer_that_it_was_traced_in(tmp_path: Path) -> None:
    text = LAYERS.replace("wide = ", "[embed] wide = ").replace("two = ", "[second] two = ")
    proto = with_scopes(text_model(text, WEIGHTS), {"embed": "embeddings", "second": "encoder.layer.1"})

    truth = find_truth(reconcile(tmp_path, proto, manifest_of(*parameters_of(PARAMETERS))))

    assert truth.nodes == {0: "", 2: "block.1"}


def test_a_shared_layer_counts_for_each_use_and_owns_once(tmp_path: Path) -> None:
    shared = {"encoder.albert_layer_groups.0.albert_layers.0.weight": WEIGHTS["first"]}
    text = LAYERS.replace("second", "first")
    proto = text_model(text, {name: a for name, a in WEIGHTS.items() if name != "second"})
    manifest = manifest_of(*parameters_of(shared))

    truth = find_truth(reconcile(tmp_path, proto, manifest), uses=2)

    assert truth.count == 2
    assert truth.parameters == (64, 0)
    assert [tensor.blocks for tensor in truth.tensors.values()] == [("block.0",)]


def test_a_layer_that_is_stored_anew_for_each_use_is_in_that_block_or_the_first(tmp_path: Path) -> None:
    shared = {"encoder.albert_layer_groups.0.albert_layers.0.weight": WEIGHTS["first"]}
    proto = text_model(LAYERS, {**WEIGHTS, "second": WEIGHTS["first"]})

    truth = find_truth(reconcile(tmp_path, proto, manifest_of(*parameters_of(shared))), uses=2)

    assert [tensor.blocks for tensor in truth.tensors.values()] == [("block.0",), ("block.0", "block.1")]
    assert [tensor.elements for tensor in truth.tensors.values()] == [64, 0]


def test_what_was_written_in_another_order_is_known_by_its_values(tmp_path: Path) -> None:
    names = [parameter for parameter in PARAMETERS if parameter != "encoder.layer.1.weight"]
    known = truth_of_layers(tmp_path)
    source = audit(tmp_path, text_model(LAYERS, WEIGHTS))
    turned = {**WEIGHTS, "second": WEIGHTS["second"].reshape(-1)[::-1].reshape(8, 8).copy()}
    (tmp_path / "turned").mkdir()
    ledger = audit(tmp_path / "turned", text_model(LAYERS, turned))
    lost = {index: tensor for index, tensor in known.tensors.items() if tensor.parameters[0] in names}
    truth = replace(known, tensors=lost, unplaced=("encoder.layer.1.weight",))

    assert from_source(truth, ledger, known, source) == known


def test_the_truth_is_the_same_after_a_file(tmp_path: Path) -> None:
    truth = truth_of_layers(tmp_path)

    save_truth(truth, tmp_path / "truth.json")

    assert load_truth(tmp_path / "truth.json") == truth


# the score


def blocks_of(ledger: Ledger, places: dict[str, str], count: int) -> Blocks:
    members = {entry.tensor.key: Member(places[entry.tensor.name]) for entry in ledger.entries}
    nodes = {node.place: Member("block.0") for node in ledger.model.nodes()}
    return Blocks(runs=(Run(0, count),), entries=members, nodes=nodes, roles={})


def score(folder: Path, places: dict[str, str], count: int) -> Score:
    truth = truth_of_layers(folder)
    ledger = audit(folder, text_model(LAYERS, WEIGHTS))
    return score_blocks(ledger, blocks_of(ledger, places, count), truth)


def test_blocks_that_hold_their_layers_are_exact(tmp_path: Path) -> None:
    places = {"embed": "stem", "first": "block.0", "second": "block.1", "classifier": "head"}

    found = score(tmp_path, places, 2)

    assert found.is_exact
    assert found.parameters == found.true_parameters == (64, 64)


def test_a_weight_of_the_stem_in_a_block_is_misplaced(tmp_path: Path) -> None:
    places = {"embed": "block.0", "first": "block.0", "second": "block.1", "classifier": "head"}

    found = score(tmp_path, places, 2)

    assert not found.is_exact
    assert found.exact == 1
    assert [(t.tensor, t.found, t.elements) for t in found.misplaced] == [("embed", "block.0", 32)]


def test_a_lost_first_block_misplaces_all_by_number_and_one_by_likeness(tmp_path: Path) -> None:
    places = {"embed": "stem", "first": "stem", "second": "block.0", "classifier": "head"}

    found = score(tmp_path, places, 1)

    assert (found.found, found.true, found.exact) == (1, 2, 0)
    assert [t.tensor for t in found.misplaced] == ["first", "second"]
    assert [t.tensor for t in found.misaligned] == ["first"]


def test_nodes_are_counted_where_they_were_traced(tmp_path: Path) -> None:
    truth = replace(truth_of_layers(tmp_path), nodes={0: "", 1: "block.0", 2: "block.1"})
    ledger = audit(tmp_path, text_model(LAYERS, WEIGHTS))
    places = {"embed": "stem", "first": "block.0", "second": "block.1", "classifier": "head"}

    found = score_blocks(ledger, blocks_of(ledger, places, 2), truth)  # all nodes are in block.0

    assert (found.traced, found.traced_there) == (2, 1)


def test_parameters_of_which_nothing_is_known_keep_a_file_from_being_exact(tmp_path: Path) -> None:
    truth = replace(truth_of_layers(tmp_path), unplaced=("encoder.layer.0.bias",))
    ledger = audit(tmp_path, text_model(LAYERS, WEIGHTS))
    places = {"embed": "stem", "first": "block.0", "second": "block.1", "classifier": "head"}

    found = score_blocks(ledger, blocks_of(ledger, places, 2), truth)

    assert not found.misplaced
    assert not found.is_exact


def test_one_block_for_two_layers_is_one_of_them(tmp_path: Path) -> None:
    places = {"embed": "stem", "first": "block.0", "second": "block.0", "classifier": "head"}

    found = score(tmp_path, places, 1)

    assert not found.is_exact
    assert len(found.misaligned) == 1


def test_equal_neighbours_are_counted() -> None:
    assert fold_counts([7_087_872] * 12) == "12 x 7,087,872"
    assert fold_counts([1, 2, 2]) == "1, 2 x 2"
    assert fold_counts([]) == ""


# files without names


@pytest.fixture
def with_names(tmp_path: Path) -> Path:
    text = """agraph (float[batch, 16] input_ids, bool flag) => (float[batch, 16] logits) {
        hidden = MatMul(input_ids, kernel)
        shift = Constant <value: tensor = float[1] constant_inside {0.5}> ()
        logits = If (flag) <
            then_branch = thengraph () => (float[batch, 16] chosen) { chosen = Add(hidden, shift) },
            else_branch = elsegraph () => (float[batch, 16] other) { other = MatMul(hidden, kernel) }
        >
    }"""
    proto = with_scopes(text_model(text, {"kernel": noise(16, 16)}), {"": "encoder.layer.0"})
    proto.producer_name = "pytorch"
    proto.graph.node[0].name = "/encoder/layer.0/MatMul"
    proto.graph.node[0].doc_string = "a stack trace"
    proto.graph.value_info.add(name="hidden")
    return save(tmp_path, proto)


def test_nothing_that_was_called_something_is_still_called_so(with_names: Path) -> None:
    nameless = with_names.with_name("nameless.onnx")

    strip_names(with_names, nameless)

    content = nameless.read_bytes()
    words = ("input_ids", "flag", "logits", "hidden", "kernel", "shift", "chosen", "other", "batch", "graph")
    words += ("constant_inside", "encoder", "pytorch", "stack", "pkg.")
    assert [word for word in words if word.encode() in content] == []
    assert not onnx.load(nameless, load_external_data=False).graph.value_info


def test_tensors_and_nodes_keep_their_order_and_their_bytes(with_names: Path) -> None:
    nameless = with_names.with_name("nameless.onnx")

    strip_names(with_names, nameless)

    first, second = (onnx.load(path) for path in (with_names, nameless))
    assert [n.op_type for n in first.graph.node] == [n.op_type for n in second.graph.node]
    assert [t.raw_data for t in first.graph.initializer] == [t.raw_data for t in second.graph.initializer]
    onnx.checker.check_model(str(nameless))


@pytest.mark.time
def test_a_file_without_names_computes_the_same(with_names: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    nameless = with_names.with_name("nameless.onnx")
    strip_names(with_names, nameless)

    answers = []
    for path in (with_names, nameless):
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        feeds = (noise(3, 16, seed=5), np.array(False))
        inputs = {value.name: feed for value, feed in zip(session.get_inputs(), feeds, strict=True)}
        answers += session.run(None, inputs)

    assert np.array_equal(*answers)


# the harness


def test_there_are_eight_architectures_in_six_forms_and_more() -> None:
    assert {*ARCHITECTURES} == {"bert", "albert", "gpt2", "t5", "llama", "vit", "resnet", "swin"}
    assert {"exported", "legacy", "ort", "int8", "onnxslim"} <= FORMS.keys()
    assert SMALL.keys() < ARCHITECTURES.keys()


def test_what_is_known_names_cells_and_a_cause() -> None:
    names = {Cell(a, f, naming).name for a in ARCHITECTURES for f in FORMS for naming in (NAMED, NAMELESS)}

    assert KNOWN.keys() <= names
    assert all(known.cause for known in KNOWN.values())


@pytest.mark.export
@pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}")
def test_the_document_sums_up_the_outcomes(tmp_path: Path) -> None:
    places = {"embed": "stem", "first": "block.0", "second": "block.1", "classifier": "head"}
    exact = score(tmp_path, places, 2)
    wrong = score(tmp_path, {**places, "embed": "block.0"}, 2)
    outcomes = [
        Outcome(Cell("bert", "exported", NAMED), "scored", score=exact, seconds=0.002),
        Outcome(Cell("bert", "exported", NAMELESS), "scored", score=wrong, seconds=0.004),
        Outcome(Cell("bert", "qdq", NAMED), "not made", "Error: no <such> operator"),
    ]

    document = render_markdown(outcomes)

    assert "of 1 files 1 show a block for every layer, and in 1 each learned tensor" in document
    assert "| exported | 2 of 2 ✓ |" in document
    assert "| exported | 2 of 2, 32 elsewhere |" in document
    assert "| `bert/exported/nameless` | 32 | `embed.weight` in `block.0` | not known yet |" in document
    assert "| `bert/qdq` | Error: no \\<such\\> operator |" in document


def test_a_score_that_counts_too_few_blocks_is_not_exact(tmp_path: Path) -> None:
    places = {"embed": "stem", "first": "block.0", "second": "block.1", "classifier": "head"}

    assert not replace(score(tmp_path, places, 2), found=1).is_exact
