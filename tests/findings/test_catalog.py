"""The catalogue has every finding of the sources and no other, and its advice works."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import external, finding_ids, ramp, save, set_metadata, text_model
from onnx import helper, numpy_helper

import analyzer
from analyzer.account.audit import audit_model
from analyzer.account.findings.catalog import EXPLANATIONS, explain, list_paragraphs
from analyzer.account.ledger import Ledger, Severity
from analyzer.errors import UsageError
from analyzer.reconciliation import UNBALANCED

SOURCES = Path(analyzer.__file__).parent
ROOT = SOURCES.parent
ID = re.compile(r"[a-z]+[a-z0-9]*(?:-[a-z0-9]+)+")
NO_IDS = {"utf-8", "as-exported", "not-compared"}
OF_ONE_WORD = {"truncated", "unattributed", "weightless", *(line.value for line in UNBALANCED)}


def texts(*places: str) -> set[str]:
    """String literals of source files."""
    files = [file for place in places for file in SOURCES.glob(place)]
    assert len(files) >= len(places)
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    constants = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return {value for value in constants if isinstance(value, str)}


def found_by_rules() -> set[str]:
    """Ids in the rules: they are literals there, and no other literal has their form."""
    known = texts("account/findings/*.py", "account/group/patterns.py", "reconciliation/verdict.py")
    found = {text for text in known if ID.fullmatch(text) or text in OF_ONE_WORD} - NO_IDS
    return found | (texts("reconciliation/siblings.py") & {"odd-layer"})


def ids_of_errors() -> set[str]:
    """Ids in brackets, after a file name or before a sentence."""
    return {
        id_
        for text in texts("read/**/*.py", "model/ranges.py")
        for id_ in re.findall(r"(?:^|: )\[([a-z]+(?:-[a-z]+)*)\] ", text)
    }


# contents


def test_every_finding_of_the_sources_is_explained_and_nothing_else():
    used = found_by_rules() | ids_of_errors() | {line.value for line in UNBALANCED}

    assert used == EXPLANATIONS.keys()


def test_errors_and_rules_are_both_looked_at():
    assert {"not-onnx", "truncated", "deep-nesting", "external-escapes"} <= ids_of_errors()
    assert {"unattributed", "untied-weights", "overlapping-groups", "unknown-dtype"} <= found_by_rules()


def test_ids_are_sorted_and_each_entry_says_everything():
    assert list(EXPLANATIONS) == sorted(EXPLANATIONS)
    for id_, explanation in EXPLANATIONS.items():
        severities = [Severity(each) for each in explanation.severities]
        assert explanation.id == id_
        assert severities == sorted(severities, key=list(Severity).index)
        assert severities
        assert all((explanation.title, explanation.meaning, explanation.cost, explanation.mend))
        assert re.match(r"(inspect|reconcile|every command)\b", explanation.seen_by)


@pytest.mark.parametrize("id_", EXPLANATIONS)
def test_text_has_no_stray_marks(id_):
    explanation = EXPLANATIONS[id_]
    for text in (
        explanation.title,
        explanation.meaning,
        explanation.cost,
        explanation.mend,
        explanation.seen_by,
    ):
        prose = "\n\n".join(part for is_code, part in list_paragraphs(text) if not is_code)
        assert prose.count("`") % 2 == 0
        outside = re.sub(r"`[^`]*`", "", prose)
        assert not re.search(r"[*<>|_]", outside), outside
    assert len(explanation.title) <= 60
    assert explanation.cost.startswith(("Counted: ", "Not counted: ", "No bytes"))


@pytest.mark.parametrize("id_", EXPLANATIONS)
def test_page_that_says_more_has_that_heading(id_):
    page, _, heading = EXPLANATIONS[id_].docs.partition("#")

    text = (ROOT / page).read_text(encoding="utf-8")

    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings}
    assert not heading or heading in slugs


@pytest.mark.parametrize("id_", EXPLANATIONS)
def test_other_findings_that_a_text_names_are_there(id_):
    text = f"{EXPLANATIONS[id_].mend} {EXPLANATIONS[id_].meaning}"

    assert set(re.findall(r"(?:onnxledger explain|--ignore) ([a-z-]+)", text)) <= EXPLANATIONS.keys()


@pytest.mark.child
def test_catalogue_loads_no_numbers():
    heavy = "[m for m in ('numpy', 'onnx', 'rich') if m in sys.modules]"
    code = f"import sys, analyzer.account.findings.catalog; print({heavy})"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


# lookup


def test_id_is_looked_up():
    assert explain("fp64-weights").title == "weights in 64 bits"


@pytest.mark.parametrize(
    ("id_", "nearest"),
    [
        ("fp64-weigths", "did you mean fp64-weights"),
        ("duplicate", "did you mean duplicate-"),
        ("metadata", "did you mean strippable-metadata"),
        ("zzz", "no finding has this id; `onnxledger explain` lists all"),
        ("", "no finding has this id; `onnxledger explain` lists all"),
    ],
)
def test_unknown_id_is_refused_with_the_nearest(id_, nearest):
    with pytest.raises(UsageError, match=re.escape(nearest)):
        explain(id_)


# advice


MATMUL = "g (float[1,3] x) => (float[1,3] y) { y = MatMul(x, w) }"


def noted() -> onnx.ModelProto:
    proto = text_model(MATMUL, {"w": ramp(3, 3)})
    set_metadata(proto.graph.node[0], {"pkg.torch.onnx.stack_trace": "x" * 5000})
    return proto


def stored_twice() -> onnx.ModelProto:
    text = "g (float[1,3] x) => (float[1,3] y) { h = MatMul(x, a) y = MatMul(h, b) }"
    return text_model(text, {"a": ramp(3, 3), "b": ramp(3, 3)})


def unread() -> onnx.ModelProto:
    return text_model(MATMUL, {"w": ramp(3, 3), "idle": ramp(100)})


def in_a_constant() -> onnx.ModelProto:
    return text_model(
        "g (float[1,2] x) => (float[1,2] y) { w = Constant<value = float[2,2] {1,2,3,4}>() y = MatMul(x, w) }"
    )


def also_an_input() -> onnx.ModelProto:
    proto = text_model(MATMUL, {"w": ramp(3, 3)})
    proto.ir_version = 3
    proto.graph.input.append(helper.make_tensor_value_info("w", 1, [3, 3]))
    return proto


def unsorted() -> onnx.ModelProto:
    return text_model("g (float[2] x) => (float[2] y) { y = Relu(h) h = Relu(x) }")


def old() -> onnx.ModelProto:
    proto = text_model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    del proto.opset_import[:]
    proto.opset_import.append(helper.make_opsetid("", 6))
    return proto


def odd() -> bytes:
    return text_model(MATMUL, {"w": ramp(3, 3)}).SerializeToString() + b"\xa2\x1f\x03abc"


def with_gaps() -> onnx.ModelProto:
    Path("w.bin").write_bytes(b"\1" * 16 + ramp(30, 30).tobytes() + b"\2" * 16)
    proto = text_model("g (float[1,30] x) => (float[1,30] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(external("w", [30, 30], location="w.bin", offset=16, length=3600))
    return proto


def escaping() -> onnx.ModelProto:
    Path("folder/of/weights").mkdir(parents=True)
    Path("folder/of/weights/weights.bin").write_bytes(ramp(30, 30).tobytes())
    proto = text_model("g (float[1,30] x) => (float[1,30] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(external("w", [30, 30], location="../weights.bin"))
    return proto


FIXED: dict[str, Callable[[], onnx.ModelProto | bytes]] = {
    "constant-weights": in_a_constant,
    "duplicate-content": stored_twice,
    "external-escapes": escaping,
    "external-orphaned": with_gaps,
    "initializer-is-input": also_an_input,
    "not-sorted": unsorted,
    "old-opset": old,
    "strippable-metadata": noted,
    "unknown-fields": odd,
    "unused-initializer": unread,
}


def code_of(id_: str) -> str:
    """Return the Python code in a finding's advice."""
    parts = list_paragraphs(EXPLANATIONS[id_].mend)
    return "\n".join(text for is_code, text in parts if is_code and not text.startswith("onnxledger "))


@pytest.mark.parametrize("id_", FIXED)
def test_the_fix_of_a_finding_removes_it_and_saves_what_it_costs(id_, tmp_path, monkeypatch):
    if "onnx_ir" in code_of(id_):
        pytest.importorskip("onnx_ir")
    monkeypatch.chdir(tmp_path)
    before = audit_model(save(tmp_path, FIXED[id_]()))

    exec(compile(code_of(id_), id_, "exec"), {})

    (written,) = set(tmp_path.glob("*.onnx")) - {tmp_path / "model.onnx"}
    after = audit_model(written)
    assert id_ in finding_ids(before)
    assert id_ not in finding_ids(after)
    assert set(finding_ids(after)) <= set(finding_ids(before))
    assert max(0, wasted(before) - wasted(after)) == cost(before, id_)


def cost(ledger: Ledger, id_: str) -> int:
    return sum(finding.nbytes or 0 for finding in ledger.findings if finding.id == id_)


def wasted(ledger: Ledger) -> int:
    """Bytes of payload and of accounts that findings may concern: no names or headers, which a fix removes too."""
    return sum(
        account.nbytes
        for account in ledger.accounts
        if not account.name.startswith("[")
        or account.name in ("[node metadata]", "[unknown fields]", "[orphaned]")
    )


def test_all_code_of_fixes_is_run_here():
    with_code = {id_ for id_ in EXPLANATIONS if code_of(id_)}

    assert with_code == FIXED.keys()


def test_model_of_a_numpy_default_is_what_fp64_says():
    proto = text_model(MATMUL)
    proto.graph.initializer.append(numpy_helper.from_array(np.eye(3) + 1.5, "w"))

    assert proto.graph.initializer[0].data_type == onnx.TensorProto.DOUBLE
