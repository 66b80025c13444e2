"""Lacking evidence, by kind: the metrics that it leaves without an answer, and on which side of a limit."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import external, ramp, raw, save, text_model
from onnx import TensorProto

from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.account.ledger import Ledger, Role
from analyzer.budget.evaluate import check_budget
from analyzer.budget.measuring import METRICS, Measured, measure
from analyzer.budget.outcomes import Outcome, compare_with_limit
from analyzer.budget.record import Among, AtLeast, AtMost, Growth, Limit, Over, Rule, Status, Verdict
from analyzer.budget.selecting import Unknown, select
from analyzer.documents.saved import load_report
from analyzer.formats.json import render_json
from analyzer.reports import Inspection

TEXT = """
    g (float[1,3] x) => (float[1,3] y) {
        ["/encoder/fc/MatMul"] h = MatMul(x, "encoder.fc.weight")
        ["/head/MatMul"] y = MatMul(h, w)
    }
"""
NAMED = ramp(3, 3)

HOLDERS: Mapping[str, Callable[[], onnx.TensorProto]] = {
    "external-escapes": lambda: external("w", [3, 3], location="../w.bin"),
    "external-missing": lambda: external("w", [3, 3], location="gone.bin"),
    "external-short": lambda: external("w", [3, 3], location="short.bin"),
    "invalid-dims": lambda: raw("w", [-3, 3], TensorProto.FLOAT, NAMED.tobytes()),
    "payload-mismatch": lambda: raw("w", [3, 3], TensorProto.FLOAT, b""),
    "unknown-dtype": lambda: raw("w", [3, 3], 99, NAMED.tobytes()),
}
"""Second weight of the model; it has no PyTorch name, as it cannot be read."""

UNLOOKED = "contents not looked at"
KINDS = (*HOLDERS, UNLOOKED)

_ALL = frozenset(KINDS)
_UNCOUNTED = frozenset({"invalid-dims", "payload-mismatch", "unknown-dtype"})
_OUTSIDE = frozenset({"external-escapes", "external-missing"})
MORE: Mapping[str, frozenset[str]] = {
    "parameters": _UNCOUNTED,
    "bytes": _ALL - {"payload-mismatch", UNLOOKED},
    "stored-elements": _UNCOUNTED,
    "stored-bytes": _ALL - {UNLOOKED},
    "tensors": frozenset(),
    "nodes": frozenset(),
    "calls": frozenset(),
    "metadata-bytes": frozenset(),
    "orphaned-bytes": _OUTSIDE,
    "external-bytes": _OUTSIDE,
    "quantization-bytes": _ALL - {UNLOOKED},
    "largest-tensor-bytes": _ALL - {UNLOOKED},
    "unattributed": _UNCOUNTED,
    "opaque": _UNCOUNTED | {UNLOOKED},
    "duplicates": _ALL,
    "unused-bytes": _ALL - {UNLOOKED},
    "unused-tensors": frozenset(),
    "external-outside": frozenset(),
    "opset": frozenset(),
    "ir-version": frozenset(),
    "findings": _ALL,
    "ops": frozenset(),
    "domains": frozenset(),
    "dtypes": frozenset({"unknown-dtype"}),
}
"""Kinds under which the true value may exceed the observed one, by metric: no `at most` then holds."""

LESS = _ALL - {"invalid-dims"}
"""Kinds under which counted parameters may be copies: no `at least` that depends on them then holds."""

MUCH = 1 << 40
PAGE = Path(__file__).parents[2] / "docs" / "budgets.md"


@functools.cache
def make(kind: str, folder: Path) -> Ledger:
    """Return the ledger of a model with nine named parameters, and nine unnamed ones that were not read."""
    proto = text_model(TEXT, {"encoder.fc.weight": NAMED})
    holder = HOLDERS.get(kind, lambda: raw("w", [3, 3], TensorProto.FLOAT, ramp(3, 3, start=50).tobytes()))
    proto.graph.initializer.append(holder())
    (folder / "short.bin").write_bytes(b"1234")
    return audit_model(save(folder, proto), content="none" if kind == UNLOOKED else "sampled")


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lacking")


def save_and_load(ledger: Ledger, folder: Path) -> Ledger:
    """Return the ledger as loaded from a saved report, which has no contents to examine."""
    path = folder / "report.json"
    path.write_text(render_json(Inspection(ledger, group_by(ledger))))
    return load_report(path)


def widest(metric: str, ledger: Ledger) -> Limit:
    """Return a limit that every observed value satisfies."""
    if METRICS[metric].kind != "among":
        return AtMost(MUCH)
    (part,) = _select(ledger)
    found = measure(metric, part, lowest=False)
    return Among(frozenset(found.observed)) if isinstance(found, Measured) else Among(frozenset())


def _select(ledger: Ledger, group: str | None = None) -> Sequence[object]:
    found = select(ledger, group, {})
    assert not isinstance(found, Unknown)
    return found


def judge(ledger: Ledger, metric: str, limit: Limit, group: str | None = None) -> Verdict:
    (verdict,) = check_budget(
        [Rule("r", metric, limit, group=group)],
        {"m.onnx": ledger},
        baseline="main.json",
        read=lambda _: ledger,
    )
    return verdict


def test_the_table_has_every_metric() -> None:
    assert MORE.keys() == METRICS.keys()


def test_the_page_says_of_each_metric_what_it_lacks() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Where evidence is lacking")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")][2:]
    documented: dict[str, frozenset[str]] = dict.fromkeys(METRICS, frozenset())
    for lacking, metrics in rows:
        kinds = {UNLOOKED} if lacking.startswith("contents") else set(re.findall(r"`([a-z-]+)`", lacking))
        for metric in re.findall(r"`([a-z-]+)`", metrics.partition("; of an artifact")[0]):
            documented[metric] |= kinds

    assert documented == MORE


@pytest.mark.parametrize("metric", METRICS)
def test_no_limit_passes_where_there_may_be_more(kind: str, metric: str, folder: Path) -> None:
    ledger = make(kind, folder)

    verdict = judge(ledger, metric, widest(metric, ledger))

    assert (verdict.status is Status.SKIP) is (kind in MORE[metric]), verdict.message
    if kind in MORE[metric]:
        assert (kind if kind != UNLOOKED else "--content sampled") in verdict.message


@pytest.mark.parametrize("metric", METRICS)
def test_a_saved_report_lacks_what_its_model_lacked(kind: str, metric: str, folder: Path) -> None:
    ledger = make(kind, folder)
    saved = save_and_load(ledger, folder)

    verdict = judge(saved, metric, widest(metric, ledger))

    assert (verdict.status is Status.SKIP) is (kind in MORE[metric])


@pytest.mark.parametrize("metric", [name for name, metric in METRICS.items() if metric.kind == "most"])
def test_a_baseline_that_lacks_evidence_is_no_baseline(kind: str, metric: str, folder: Path) -> None:
    ledger = make(kind, folder)
    if metric == "ir-version":
        return  # an IR version does not grow

    verdict = judge(ledger, metric, Over((Growth(amount=0),)))

    is_lacking = kind in MORE[metric] or (metric == "parameters" and kind in LESS)
    assert (verdict.status is Status.SKIP) is is_lacking, verdict.message
    if metric == "parameters" and is_lacking:
        assert "in the baseline" in verdict.message


def test_parameters_that_may_be_copies_satisfy_no_limit_that_needs_them(kind: str, folder: Path) -> None:
    ledger = make(kind, folder)
    counted = ledger.parameters
    sure = counted - 9 if kind in LESS else counted

    assert judge(ledger, "parameters", AtLeast(counted)).status is Status.SKIP
    assert judge(ledger, "parameters", AtMost(sure - 1)).status is Status.FAIL
    if kind in LESS:
        assert judge(ledger, "parameters", AtMost(counted - 1)).status is Status.SKIP
    if kind not in MORE["parameters"]:
        assert judge(ledger, "parameters", AtLeast(sure)).status is Status.PASS
        assert judge(ledger, "parameters", AtMost(counted)).status is Status.PASS


def test_of_a_group_only_what_it_contains_or_repeats_is_lacking(folder: Path) -> None:
    missing, stripped = make("external-missing", folder), make("payload-mismatch", folder)

    for ledger in (missing, stripped):
        assert judge(ledger, "parameters", AtLeast(9), "encoder").status is Status.PASS
        assert judge(ledger, "duplicates", AtMost(0), "encoder").status is Status.PASS
        assert judge(ledger, "bytes", AtMost(MUCH), "encoder").status is Status.PASS
        assert judge(ledger, "parameters", AtLeast(9), "head").status is Status.SKIP
        assert judge(ledger, "duplicates", AtMost(0), "head").status is Status.SKIP
        assert judge(ledger, "bytes", AtMost(MUCH), "head").status is Status.SKIP


def test_a_group_may_repeat_what_stands_unread_in_another(tmp_path: Path) -> None:
    proto = text_model(TEXT, {"w": NAMED})
    proto.graph.initializer.append(external("encoder.fc.weight", [3, 3], location="gone.bin"))
    ledger = audit_model(save(tmp_path, proto))

    assert judge(ledger, "duplicates", AtMost(0), "head").status is Status.SKIP
    assert judge(ledger, "parameters", AtLeast(9), "head").status is Status.SKIP
    assert judge(ledger, "parameters", AtLeast(9), "encoder").status is Status.PASS


def test_weights_that_a_file_lacks_are_no_proof_that_none_is_stored_twice(tmp_path: Path) -> None:
    text = "g (float[1,4] x) => (float[1,4] y) {\n h = MatMul(x, a)\n y = MatMul(h, b)\n}"
    proto = text_model(text)
    proto.graph.initializer.extend(raw(name, [4, 4], TensorProto.FLOAT, b"") for name in "ab")

    verdict = judge(audit_model(save(tmp_path, proto)), "duplicates", AtMost(0))

    assert verdict.status is Status.SKIP
    assert "payload-mismatch" in verdict.message


def test_of_tensors_that_may_all_repeat_each_other_one_counts(tmp_path: Path) -> None:
    text = "g (float[1,4] x) => (float[1,4] y) {\n h = MatMul(x, a)\n y = MatMul(h, b)\n}"
    path = save(tmp_path, text_model(text, {"a": ramp(4, 4), "b": ramp(4, 4, start=30)}))
    ledger = audit_model(path, content="none")

    verdicts = [
        judge(ledger, "parameters", limit) for limit in (AtMost(15), AtMost(16), AtLeast(16), AtLeast(17))
    ]

    assert [verdict.status for verdict in verdicts] == [Status.FAIL, Status.SKIP, Status.PASS, Status.SKIP]


def test_names_tell_parameters_apart_where_contents_were_not_looked_at(tmp_path: Path) -> None:
    text = (
        "g (float[1,3] x) => (float[1,3] y) {\n "
        'h = MatMul(x, "encoder.fc.weight")\n y = MatMul(h, "head.fc.weight")\n}'
    )
    path = save(tmp_path, text_model(text, {"encoder.fc.weight": NAMED, "head.fc.weight": NAMED}))
    seen, unseen = audit_model(path), audit_model(path, content="none")

    assert seen.parameters == unseen.parameters == 18
    assert judge(unseen, "parameters", AtLeast(18)).status is Status.PASS
    assert judge(unseen, "parameters", AtMost(17)).status is Status.FAIL
    assert judge(unseen, "parameters", Over((Growth(amount=0),))).status is Status.PASS


def test_one_name_in_two_files_is_no_proof_of_one_parameter(tmp_path: Path) -> None:
    text = 'g (float[1,3] x) => (float[1,3] y) {\n y = MatMul(x, "fc.weight")\n}'
    for at, name in enumerate(("encoder", "decoder")):
        save(tmp_path, text_model(text, {"fc.weight": ramp(3, 3, start=40 * at)}), f"{name}.onnx")
    seen = audit_model(tmp_path, artifact=True)
    unseen = audit_model(tmp_path, artifact=True, content="none")

    assert (seen.parameters, unseen.parameters) == (18, 9)
    assert judge(seen, "parameters", AtMost(10)).status is Status.FAIL
    assert judge(unseen, "parameters", AtMost(10)).status is Status.SKIP
    assert (unseen.parameters_at_least, unseen.parameters_at_most) == (9, 18)
    assert judge(unseen, "parameters", AtMost(18)).status is Status.PASS
    assert judge(unseen, "parameters", AtMost(8)).status is Status.FAIL


def test_what_was_read_and_differs_counts_whatever_else_is_missing(tmp_path: Path) -> None:
    text = "g (float[1,4] x) => (float[1,4] y) {\n h = MatMul(x, a)\n i = MatMul(h, b)\n y = MatMul(i, c)\n}"
    proto = text_model(text, {"a": ramp(4, 4), "b": ramp(4, 4, start=30)})
    proto.graph.initializer.append(external("c", [4, 4], location="gone.bin"))
    ledger = audit_model(save(tmp_path, proto))

    assert (ledger.parameters_at_least, ledger.parameters, ledger.parameters_at_most) == (32, 48, 48)
    assert [judge(ledger, "parameters", AtMost(limit)).status for limit in (31, 32, 47, 48)] == [
        Status.FAIL,
        Status.SKIP,
        Status.SKIP,
        Status.PASS,
    ]


@pytest.mark.parametrize("is_saved", [False, True])
def test_opaque_data_may_be_parameters_and_is_judged_as_such(is_saved: bool, tmp_path: Path) -> None:
    text = 'g (float[1,3] x) => (float[1,3] y) {\n h = MatMul(x, "fc.weight")\n y = Mul(h, mystery)\n}'
    ledger = audit_model(save(tmp_path, text_model(text, {"fc.weight": NAMED, "mystery": ramp(1, 3)})))
    (found,) = (entry for entry in ledger.entries if entry.tensor.name == "mystery")
    entries = tuple(
        replace(entry, role=Role.CONSTANT, parameters=0) if entry is found else entry
        for entry in ledger.entries
    )
    ledger = replace(ledger, entries=entries, opaque=(found.tensor.key,))
    ledger = save_and_load(ledger, tmp_path) if is_saved else ledger

    assert (ledger.parameters_at_least, ledger.parameters, ledger.parameters_at_most) == (9, 9, 12)
    verdicts = [
        judge(ledger, "parameters", limit) for limit in (AtMost(12), AtMost(9), AtMost(8), AtLeast(10))
    ]
    assert [verdict.status for verdict in verdicts] == [Status.PASS, Status.SKIP, Status.FAIL, Status.SKIP]
    assert "between 9 and 12 parameters: 3 elements of opaque data may be learned" in verdicts[1].message
    assert [judge(ledger, "opaque", AtMost(limit)).status for limit in (3, 2)] == [Status.PASS, Status.FAIL]


@pytest.mark.parametrize("is_saved", [False, True])
@pytest.mark.parametrize(
    ("made", "status"),
    [
        ("s = RandomNormal <shape = [4, 4], seed = 1.0> ()", Status.FAIL),
        ("s = RandomNormalLike <seed = 1.0> (h)", Status.SKIP),
        ("s = RandomNormalLike (h)", Status.PASS),
    ],
    ids=["a known number", "an unknown number", "noise"],
)
def test_opaque_data_that_a_node_makes_is_counted(
    made: str, status: Status, is_saved: bool, tmp_path: Path
) -> None:
    text = f'g (float[4,3] x) => (float[4,4] y) {{ h = MatMul(x, "fc.weight") {made} y = Add(h, s) }}'
    ledger = audit_model(save(tmp_path, text_model(text, {"fc.weight": ramp(3, 4)})))
    ledger = save_and_load(ledger, tmp_path) if is_saved else ledger

    found = judge(ledger, "opaque", AtMost(0)).status

    assert found is (Status.SKIP if is_saved and status is Status.FAIL else status)


def test_a_file_that_does_not_say_its_ir_version_has_none(tmp_path: Path) -> None:
    proto = text_model(TEXT, {"encoder.fc.weight": NAMED, "w": NAMED})
    proto.ClearField("ir_version")

    assert judge(audit_model(save(tmp_path, proto)), "ir-version", AtMost(10)).status is Status.SKIP


# random models

NAMES = ("encoder.fc.weight", "head.fc.weight", "a", "b", "c", "d")
TENSORS = st.dictionaries(
    st.sampled_from(NAMES),
    st.tuples(st.integers(0, 1), st.booleans(), st.booleans(), st.booleans()),
    min_size=2,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(tensors=TENSORS)
def test_what_contents_take_away_was_never_certain(
    tensors: Mapping[str, tuple[int, bool, bool, bool]], tmp_path: Path
) -> None:
    names = sorted(tensors)
    proto = text_model("g (float[6] x) => (float[6] y) {\n y = Neg(x)\n}")
    (tmp_path / "w.bin").write_bytes(b"")
    for at, name in enumerate(names):
        seed, is_turned, is_half, _ = tensors[name]
        array = ramp(3, 2, start=10 * seed + 1)
        array = np.ascontiguousarray(array.T) if is_turned else array
        array = array.astype(np.float16) if is_half else array
        kind = TensorProto.FLOAT16 if is_half else TensorProto.FLOAT
        shape = list(array.shape)
        whole = raw(name, shape, kind, array.tobytes())
        proto.graph.initializer.append(whole)
        proto.graph.node.append(onnx.helper.make_node("MatMul", ["x", name], [f"y{at}"]))
    seen = audit_model(save(tmp_path, proto), content="full")
    unseen = audit_model(save(tmp_path, proto), content="none")
    for tensor in proto.graph.initializer:
        if tensors[tensor.name][3]:
            tensor.CopyFrom(external(tensor.name, list(tensor.dims), tensor.data_type, location="gone.bin"))
    partly = audit_model(save(tmp_path, proto), content="full")

    for ledger in (unseen, partly):
        (part,) = _select(ledger)
        found = measure("parameters", part, lowest=False)
        assert isinstance(found, Measured)
        assert isinstance(found.observed, int)
        assert found.range is not None
        assert found.range.least <= seen.parameters <= found.observed == found.range.most
        assert (found.range.least, found.range.most) == (
            ledger.parameters_at_least,
            ledger.parameters_at_most,
        )
        for limit in (AtLeast(found.observed), AtMost(seen.parameters)):
            outcome = compare_with_limit(METRICS["parameters"], limit, part)
            truth = compare_with_limit(METRICS["parameters"], limit, _select(seen)[0])
            assert isinstance(truth, Outcome)
            assert isinstance(outcome, Unknown) or outcome.has_failed is truth.has_failed


def test_packed_codes_that_disagree_with_their_operator_leave_parameters_open(tmp_path: Path) -> None:
    node = "com.microsoft.MatMulNBits<K = 32, N = 4, bits = 4, block_size = 32>(x, w, s)"
    head = '<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>'
    proto = onnx.parser.parse_model(f"{head} g (float[1,32] x) => (float[1,4] y) {{ y = {node} }}")
    for name, array in {"w": np.arange(640, dtype="i4"), "s": np.ones(4, "f4")}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    ledger = audit_model(save(tmp_path, proto))

    assert [judge(ledger, "parameters", AtMost(limit)).status for limit in (127, 128, 9999)] == [
        Status.FAIL,
        Status.SKIP,
        Status.SKIP,
    ]


def test_what_the_known_part_exceeds_fails_though_the_rest_is_missing(folder: Path) -> None:
    missing = make("external-missing", folder)
    size = missing.file_nbytes

    for metric in (
        "bytes",
        "stored-bytes",
        "largest-tensor-bytes",
        "parameters",
        "stored-elements",
        "findings",
    ):
        assert judge(missing, metric, AtMost(0)).status is Status.FAIL, metric
    assert judge(missing, "bytes", AtMost(size)).status is Status.SKIP
    assert judge(missing, "bytes", AtLeast(size)).status is Status.PASS
    assert judge(missing, "bytes", AtLeast(size + 1)).status is Status.SKIP


def test_one_file_that_is_too_old_fails_though_another_does_not_say_its_opset(tmp_path: Path) -> None:
    text = "g (float[1,3] x) => (float[1,3] y) {\n y = MatMul(x, w)\n}"
    known, without_versions = text_model(text, {"w": NAMED}), text_model(text, {"w": NAMED})
    del without_versions.opset_import[:]
    without_versions.ir_version = 0
    for name, proto in (("encoder", known), ("decoder", without_versions)):
        save(tmp_path, proto, f"{name}.onnx")
    ledger = audit_model(tmp_path, artifact=True)
    opset, ir = known.opset_import[0].version, known.ir_version

    for metric, version in (("opset", opset), ("ir-version", ir)):
        assert judge(ledger, metric, AtLeast(version + 1)).status is Status.FAIL
        assert judge(ledger, metric, AtMost(version - 1)).status is Status.FAIL
        assert judge(ledger, metric, AtLeast(version)).status is Status.SKIP
        assert judge(ledger, metric, AtMost(version)).status is Status.SKIP


@pytest.mark.parametrize("version", [200, 999, 1 << 16, 10**12])
def test_an_invalid_version_passes_no_gate(tmp_path: Path, version: int) -> None:
    proto = text_model("g (float[1,3] x) => (float[1,3] y) {\n y = MatMul(x, w)\n}", {"w": NAMED})
    proto.opset_import[0].version = proto.ir_version = version
    ledger = audit_model(save(tmp_path, proto))

    for metric in ("opset", "ir-version"):
        verdict = judge(ledger, metric, AtLeast(1))
        assert verdict.status is Status.SKIP
        assert str(version) in verdict.message
