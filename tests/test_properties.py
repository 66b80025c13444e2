"""Properties of every model: random small models, and random manifests for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import external, manifest_of, parameter, save
from onnx import helper, numpy_helper
from samples import drawn

from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.account.group.keys import KEYS
from analyzer.account.group.patterns import group_by_patterns, parse_patterns
from analyzer.account.ledger import Grouping, Ledger, Role
from analyzer.documents.saved import load_report
from analyzer.formats.json import render_json
from analyzer.reconciliation import UNBALANCED, ContentMode, Reconciliation, reconcile_ledger
from analyzer.reports import Inspection

pytestmark = pytest.mark.slow  # draws random models

MODES: list[ContentMode] = ["none", "sampled", "full"]
DTYPES = [
    "f4",
    "f4",
    "f4",
    "f8",
    "f2",
    "i1",
    "u1",
    "i4",
    "i8",
    "?",
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e5m2,
]
OPS = ["MatMul", "Gemm", "Add", "Mul", "Relu", "Gather", "Reshape", "Clip", "DequantizeLinear", "Concat"]
PATTERNS = ["enc=^enc", "weights=weight$", "zero=0", "all=."]

steady = settings(derandomize=True, deadline=None, database=None, max_examples=drawn(100))


# random models


@dataclass(frozen=True)
class Stored:
    """One tensor of a random model, and its carrier."""

    name: str
    array: np.ndarray[Any, Any]
    carrier: str
    op: str
    scope: str


@st.composite
def tensors(draw: st.DrawFn) -> list[Stored]:
    """Draw tensors of any dtype and shape; some repeat an earlier one, perhaps transposed."""
    made: list[Stored] = []
    for index in range(draw(st.integers(0, 7))):
        dtype = draw(st.sampled_from(DTYPES))
        shape = draw(st.lists(st.integers(0, 4), max_size=3))
        span = draw(st.sampled_from([1, 3, 100]))
        array = (np.arange(int(np.prod(shape))) % span).reshape(shape).astype(dtype)
        if made and draw(st.booleans()):
            array = draw(st.sampled_from(made)).array
            array = array.T.copy() if draw(st.booleans()) else array
        name = draw(st.sampled_from([f"enc.{index}.weight", f"enc.{index}.running_mean", f"val_{index}"]))
        carrier = draw(st.sampled_from(["initializer", "initializer", "constant", "external", "shared"]))
        scope = draw(st.sampled_from(["", "enc/0", "dec/1"]))
        made.append(Stored(name, array, carrier, draw(st.sampled_from(OPS)), scope))
    return made


def build(folder: Path, made: list[Stored]) -> Path:
    """Write the model; external tensors follow each other, and shared ones all start at the beginning of one file."""
    nodes, initializers, outside = [], [], bytearray(b"pad")
    longest = max((t.array.nbytes for t in made if t.carrier == "shared"), default=0)
    for index, tensor in enumerate(made):
        proto = numpy_helper.from_array(tensor.array, tensor.name)
        dims, data_type = list(tensor.array.shape), proto.data_type
        if tensor.carrier == "constant":
            nodes.append(helper.make_node("Constant", [], [tensor.name], value=proto))
        elif tensor.carrier == "external":
            place = {"location": "w.bin", "offset": len(outside)}
            outside += tensor.array.tobytes()
            initializers.append(external(tensor.name, dims, data_type, **place))
        elif tensor.carrier == "shared":
            initializers.append(external(tensor.name, dims, data_type, location="shared.bin"))
        else:
            initializers.append(proto)
        path = f"/{tensor.scope}/{tensor.op}" if tensor.scope else ""
        nodes.append(helper.make_node(tensor.op, ["x", tensor.name], [f"y{index}"], name=path))
    (folder / "w.bin").write_bytes(outside)
    (folder / "shared.bin").write_bytes(bytes(i % 251 for i in range(longest + 5)))
    return save(folder, helper.make_model(helper.make_graph(nodes, "g", [], [], initializers)))


def totals(ledger: Ledger) -> dict[str, Any]:
    """Return totals that must not depend on the order of the file."""
    return {
        "parameters": ledger.parameters,
        "stored": ledger.stored_elements,
        "bytes": ledger.stored_nbytes,
        "files": sorted((file.path, file.nbytes) for file in ledger.model.files),
        "basis": ledger.basis,
        "roles": {
            role: sum(entry.tensor.numel for entry in ledger.entries if entry.role is role) for role in Role
        },
    }


def groupings(ledger: Ledger) -> Iterator[Grouping]:
    """Yield groupings by every key and by two, at every depth, and by overlapping patterns."""
    for by in (*KEYS, "scope,dtype", "op,block"):
        for depth in (None, 1, 2, 3):
            yield group_by(ledger, by, depth)
    for count in range(1, len(PATTERNS) + 1):
        yield group_by_patterns(ledger, parse_patterns(PATTERNS[:count]))


def summed(grouping: Grouping, total: str) -> int:
    return (
        sum(getattr(part, total) for part in grouping.groups)
        - getattr(grouping.overlap, total)
        + getattr(grouping.ungrouped, total)
    )


@steady
@given(tensors())
def test_roles_groups_and_accounts_sum_to_the_totals(made):
    with TemporaryDirectory() as folder:
        ledger = audit_model(build(Path(folder), made))

        on_disk = sum((Path(folder) / file.path).stat().st_size for file in ledger.model.files)

    assert ledger.stored_elements == sum(tensor.array.size for tensor in made)
    assert ledger.stored_nbytes == sum(tensor.array.nbytes for tensor in made)
    assert sum(totals(ledger)["roles"].values()) == ledger.stored_elements
    assert sum(ledger.basis.values()) == ledger.stored_elements
    assert sum(account.nbytes for account in ledger.accounts) == on_disk
    assert all(account.nbytes >= 0 for account in ledger.accounts)
    payload = sum(account.nbytes for account in ledger.accounts if account.name in list(Role))
    assert payload + ledger.shared_nbytes == ledger.stored_nbytes
    assert 0 <= ledger.parameters <= ledger.stored_elements
    for grouping in groupings(ledger):
        assert summed(grouping, "stored_elements") == ledger.stored_elements
        assert summed(grouping, "parameters") == ledger.parameters
        assert summed(grouping, "nbytes") == (on_disk if grouping.by == "bytes" else ledger.stored_nbytes)
        assert summed(grouping, "tensors") == len(made)


@steady
@given(tensors(), st.randoms(use_true_random=False))
def test_order_of_the_initializers_changes_no_total(made, chance: random.Random):
    with TemporaryDirectory() as folder:
        path = build(Path(folder), made)
        before = audit_model(path)
        proto = onnx.load(str(path), load_external_data=False)
        shuffled = list(proto.graph.initializer)
        chance.shuffle(shuffled)
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(shuffled)

        after = audit_model(save(Path(folder), proto))

    assert totals(after) == totals(before)


@steady
@given(tensors())
def test_saved_report_gives_the_same_totals_and_groups(made):
    with TemporaryDirectory() as folder:
        ledger = audit_model(build(Path(folder), made))
        saved_path = Path(folder) / "report.json"
        text = render_json(Inspection(ledger, group_by(ledger)))
        saved_path.write_text(text)

        saved = load_report(saved_path)

    assert totals(saved) == totals(ledger)
    for of_saved, of_ledger in zip(groupings(saved), groupings(ledger), strict=True):
        assert [replace(part, nodes=0, first=None) for part in of_saved.groups if part.tensors] == [
            replace(part, nodes=0, first=None) for part in of_ledger.groups if part.tensors
        ]
        assert summed(of_saved, "parameters") == summed(of_ledger, "parameters")


@steady
@given(tensors())
def test_copies_point_at_an_equal_tensor_that_is_no_copy(made):
    with TemporaryDirectory() as folder:
        ledger = audit_model(build(Path(folder), made))

        by_key = {entry.tensor.key: entry for entry in ledger.entries}
        for entry in ledger.entries:
            if entry.copy_of is not None:
                original = by_key[entry.copy_of]
                mine, other = entry.tensor.payload.array(), original.tensor.payload.array()
                transposed = entry.decided_by == "content:transposed-copy"
                assert original.copy_of is None
                assert (mine.T if transposed else mine).tobytes() == other.tobytes()


# random manifests


CHANGES = ["rename", "transpose", "rename+transpose", "copy", "drop", "change", "rename+change", "add"]
HARMLESS = {"rename", "transpose", "rename+transpose", "copy"}


@dataclass(frozen=True)
class Weight:
    """A PyTorch parameter, and its change on the way into the file."""

    name: str
    array: np.ndarray[Any, Any]
    change: str | None


@st.composite
def weights(draw: st.DrawFn, changes: list[str]) -> list[Weight]:
    """Draw non-square matrices without a pair of equal elements, so that no match is accidental."""
    made, start = [], 1
    for index in range(draw(st.integers(1, 5))):
        rows, columns = draw(st.permutations(range(2, 6)))[:2]
        array = np.arange(start, start + rows * columns, dtype="f4").reshape(rows, columns)
        start += 10 * rows * columns
        made.append(Weight(f"m{index}.fc.weight", array, draw(st.sampled_from([None, *changes]))))
    return made


def export(made: list[Weight]) -> onnx.ModelProto:
    """Return a model with one MatMul for each weight, named after its module as TorchScript names it."""
    nodes, initializers = [], []

    def store(name: str, array: np.ndarray[Any, Any], node: str) -> None:
        nodes.append(helper.make_node("MatMul", ["x", name], [f"y{len(nodes)}"], name=node))
        initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))

    for index, weight in enumerate(made):
        change = weight.change or ""
        module = "/" + weight.name.removesuffix(".weight").replace(".", "/")
        array = weight.array.T if "transpose" in change else weight.array
        if "change" in change:
            array = array.copy()
            array[-1, -1] += np.float32(0.5)
        if change != "drop":
            store(f"onnx::MatMul_{index}" if "rename" in change else weight.name, array, f"{module}/MatMul")
        if change == "copy":
            store(f"onnx::MatMul_{index}_1", array.T, f"{module}/MatMul_1")
        if change == "add":
            store(f"extra{index}.weight", array + np.float32(0.25), f"/extra{index}/MatMul")
    outputs = [helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None) for node in nodes]
    return helper.make_model(helper.make_graph(nodes, "g", [], outputs, initializers))


def reconciled(made: list[Weight], content: ContentMode) -> Reconciliation:
    manifest = manifest_of(*(parameter(weight.name, weight.array) for weight in made))
    with TemporaryDirectory() as folder:
        return reconcile_ledger(audit_model(save(Path(folder), export(made))), manifest, content)


def culprits(result: Reconciliation) -> set[str]:
    return {
        subject
        for finding in result.findings
        if finding.id in [line.value for line in UNBALANCED]
        for subject in finding.subjects
    }


@pytest.mark.parametrize("content", MODES)
@steady
@given(made=weights(CHANGES))
def test_both_sums_of_the_bridge_are_right_whatever_happened(content, made):
    result = reconciled(made, content)

    pytorch = sum(weight.array.size for weight in made)
    assert result.manifest.numel == pytorch
    assert pytorch + sum(row.parameter_delta for row in result.bridge) == result.onnx_parameters
    assert pytorch + sum(row.stored_delta for row in result.bridge) == result.ledger.stored_elements
    assert sum(row.nbytes for row in result.bridge) == result.ledger.stored_nbytes
    assert {settled.name for settled in result.parameters} == {weight.name for weight in made}


@pytest.mark.parametrize("content", MODES)
@steady
@given(made=weights(sorted(HARMLESS)))
def test_model_whose_values_are_untouched_balances(content, made):
    result = reconciled(made, content)

    assert result.balanced, result.findings
    assert result.onnx_parameters == result.manifest.numel


@pytest.mark.parametrize("content", ["sampled", "full"])
@steady
@given(made=weights(CHANGES))
def test_whatever_was_dropped_changed_or_added_unbalances_and_is_named(content, made):
    result = reconciled(made, content)

    expected = {w.name for w in made if w.change in ("drop", "change", "rename+change")}
    expected |= {f"extra{i}.weight" for i, w in enumerate(made) if w.change == "add"}
    assert result.balanced is (not expected)
    assert expected <= culprits(result)
    untouched = {w.name for w in made if w.change is None or w.change in HARMLESS}
    assert not untouched & culprits(result)


@steady
@given(made=weights(CHANGES), chance=st.randoms(use_true_random=False))
def test_order_of_pytorchs_parameters_does_not_decide_the_balance(made, chance: random.Random):
    manifest = manifest_of(*(parameter(weight.name, weight.array) for weight in made))
    shuffled = list(manifest.parameters)
    chance.shuffle(shuffled)
    with TemporaryDirectory() as folder:
        ledger = audit_model(save(Path(folder), export(made)))

        before = reconcile_ledger(ledger, manifest)
        after = reconcile_ledger(ledger, replace(manifest, parameters=tuple(shuffled)))

    assert before.bridge == after.bridge
    assert culprits(before) == culprits(after)
