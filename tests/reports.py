"""A report of every kind, of small models, for goldens, schemas, pages and the net of digests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import formula_reports
import numpy as np
import onnx
import onnx.parser
import timings

from analyzer.account.audit import audit_model, file_digests
from analyzer.account.group import group_by
from analyzer.account.group.patterns import group_by_patterns, parse_patterns
from analyzer.account.ledger import Ledger
from analyzer.budget.evaluate import check_models
from analyzer.budget.record import Among, AtLeast, AtMost, Growth, Over, Rule
from analyzer.comparison import compare_ledgers
from analyzer.cost.account import measure_cost
from analyzer.manifest import BatchNorm, Buffer, Content, Manifest, Parameter, WeightNorm
from analyzer.model.content import (
    Array,
    cast_digest,
    channel_statistics,
    digest,
    digest_transposed,
    encode_values,
    is_constant_filled,
    sample,
)
from analyzer.model.dtypes import DType
from analyzer.reconciliation import reconcile_ledger
from analyzer.recover import recover_state
from analyzer.recover.ownnames import read_own_names
from analyzer.reports import (
    ExportReport,
    Inspection,
    ReconcileReport,
    RecoverReport,
    Report,
    SurveyReport,
)
from analyzer.survey import survey_models
from analyzer.timing.generation import Step
from analyzer.timing.side_by_side import compare_timings
from analyzer.verify.record import (
    Agreement,
    Costs,
    Difference,
    Fed,
    First,
    KeptFloat,
    LayerCost,
    Pairing,
    Verdict,
    VerifyReport,
)

HEADER = '<ir_version: 10, opset_import: ["" : 18, "ai.onnx.ml" : 3], producer_name: "pytorch">\n'

CORNERS = """
corners (float[1,2] x, bool c) => (float[1,2] z, string[2] labels)
<float[2,2] w = {1,2,3,4}, int8[2,2] q = {1,2,-3,4}, float step = {0.5}, string[2] names = {"a", "bc"},
 float[0,2] nothing = {}, float[2,2] twin = {1,2,3,4}>
{
    dequantized = DequantizeLinear(q, step)
    hidden = Constant <value = float[2,2] {5,6,7,8}> ()
    axes = Constant <value_ints = [0, 1]> ()
    words = Constant <value_strings = ["a", "b"]> ()
    a = MatMul(x, w)
    b = MatMul(a, dequantized)
    d = MatMul(b, hidden)
    e = MatMul(d, twin)
    z = If (c) <
        then_branch = yes () => (float[1,2] t)
        <float[2,2] v = {9,10,11,12}>
        {
            t = If (c) <
                then_branch = deep () => (float[1,2] r) <float[2,2] v = {9,10,11,13}> { r = MatMul(e, v) },
                else_branch = flat () => (float[1,2] s) { s = MatMul(e, v) }
            >
        },
        else_branch = no () => (float[1,2] u) <float[2,2] v = {1,1,1,2}> { u = MatMul(e, v) }
    >
    labels = Identity(names)
}
"""

TREES = """
trees (float[1,2] x) => (float[1,1] y)
{
    y = ai.onnx.ml.LinearRegressor <coefficients = [0.5, 0.25], intercepts = [1.0], targets = 1> (x)
}
"""

EMPTY = "empty (float[1] x) => (float[1] x) {}"

NET = """
net (float[1,2] x, float[1,2] k) => (float[1,3] y)
<float[2,2] weight = {1,2,3,4}, float[3,2] head = {1,2,3,4,5,6}, float[2,3] turned = {11,13,15,12,14,16},
 float[2] mask = {0,1}>
{
    a = MatMul(x, weight)
    m = Mul(a, mask)
    b = Transpose <perm = [1,0]> (head)
    c = MatMul(m, b)
    d = MatMul(m, turned)
    y = Add(c, d)
}
"""


# the program's documents


def read(folder: Path, text: str, name: str = "model.onnx") -> Ledger:
    path = folder / name
    path.write_bytes(onnx.parser.parse_model(HEADER + text).SerializeToString())
    return audit_model(path)


def floats(*rows: object) -> Array:
    return np.array(rows, dtype="<f4")


def content_of(array: Array) -> Content:
    return Content(
        digest=digest(array),
        digest_transposed=digest_transposed(array) if array.ndim == 2 else None,
        constant_filled=is_constant_filled(array),
        samples=encode_values(sample(array)),
        casts={"FLOAT16": cast_digest(array, DType.FLOAT16)},
    )


def parameter(name: str, array: Array, **fields: Any) -> Parameter:
    trainable = fields.pop("trainable", True)
    return Parameter(name, array.shape, DType.FLOAT, trainable, content=content_of(array), **fields)


def make_manifest() -> Manifest:
    """Return PyTorch's side of `NET`: a tie, a transpose, a buffer, an unused, a missing and a differing parameter."""
    kernel = np.arange(36, dtype="<f4").reshape(2, 2, 3, 3)
    sums, norms = (encode_values(values) for values in channel_statistics(kernel))
    return Manifest(
        parameters=(
            parameter("weight", floats([1, 2], [3, 4]), tied=("alias",), trainable=False, read=True),
            parameter("head", floats([1, 2], [3, 4], [5, 7]), read=True),
            parameter("lost.weight", floats([11, 12], [13, 14], [15, 16]), read=True),
            parameter("gone.weight", floats(7, 8), read=False),
            parameter("conv.weight", kernel, channel_projections=sums, channel_norms=norms, read=True),
        ),
        buffers=(
            Buffer("mask", (2,), DType.FLOAT, persistent=True, content=content_of(floats(0, 1)), read=True),
        ),
        batch_norms=(BatchNorm("norm", 1e-5, None, None, "mask", "mask"),),
        weight_norms=(
            WeightNorm("normed", "gone.weight", "head", None, encode_values(np.array([0.5], "<f8"))),
        ),
        values={"mask": encode_values(floats(0, 1))},
        source={"source": "net", "class": "Net"},
        trace="exported-program",
        modules={"": "Net", "conv": "Conv2d"},
    )


def inspection(folder: Path) -> Report:
    ledger = read(folder, CORNERS)
    return Inspection(ledger, group_by(ledger), file_digests(ledger.model), "2025-01-31T12:00:00+00:00")


def plain_inspection(folder: Path) -> Report:
    ledger = read(folder, TREES)
    return Inspection(ledger, group_by(ledger, "op"))


def empty_inspection(folder: Path) -> Report:
    ledger = read(folder, EMPTY)
    return Inspection(ledger, group_by(ledger, "role"))


def user_grouped_inspection(folder: Path) -> Report:
    ledger = read(folder, CORNERS)
    return Inspection(ledger, group_by_patterns(ledger, parse_patterns(["w=^[wv]$", "v=v", "none=zzz"])))


def survey(folder: Path) -> Report:
    for name, text in (("a.onnx", CORNERS), ("b.onnx", EMPTY)):
        read(folder, text, name)
    (folder / "page.onnx").write_text("<html>")
    paths = [folder / name for name in ("a.onnx", "b.onnx", "page.onnx", "nowhere.onnx")]
    return SurveyReport(survey_models(paths, processes=1), "2025-01-31T12:00:00+00:00")


def artifact(folder: Path) -> Report:
    parts = folder / "parts"
    parts.mkdir(exist_ok=True)
    for name, text in (("decoder.onnx", CORNERS), ("encoder.onnx", CORNERS), ("trees.onnx", TREES)):
        read(parts, text, name)
    ledger = audit_model(parts, artifact=True)
    return Inspection(ledger, group_by(ledger), file_digests(ledger.model))


def survey_of_one(folder: Path) -> Report:
    read(folder, TREES)
    return SurveyReport(survey_models([folder / "model.onnx"]))


def reconciliation(folder: Path) -> ReconcileReport:
    result = reconcile_ledger(read(folder, NET), make_manifest())
    return ReconcileReport(result, group_by(result.in_pytorch_terms(), "scope", None, result.trainability))


def reconciliation_without_content(folder: Path) -> Report:
    result = reconcile_ledger(read(folder, CORNERS), make_manifest(), "none")
    patterns = parse_patterns(["all=.", "weights=w"])
    grouping = group_by_patterns(result.in_pytorch_terms(), patterns, result.trainability)
    return ReconcileReport(result, grouping, "2025-01-31T12:00:00+00:00")


def gate(folder: Path) -> Report:
    model, twin = read(folder, CORNERS, "a.onnx"), read(folder, EMPTY, "b.onnx")
    before = read(folder, NET, "main.onnx")
    rules = (
        Rule("size", "parameters", Over((Growth(amount=-6),)), message="ask ops", origin="--max-parameters"),
        Rule("types", "dtypes", Among(frozenset({"FLOAT"})), match="a.onnx"),
        Rule("old", "opset", AtLeast(99), origin="budget.toml:3"),
        Rule("part", "parameters", AtMost(3), group="nowhere"),
        Rule("other", "nodes", AtMost(3), match="other/*"),
        Rule("off", "nodes", AtMost(3), is_enabled=False),
        Rule("ok", "nodes", AtMost(99)),
    )
    return check_models(
        rules,
        {"a.onnx": model, "b.onnx": twin},
        {"c.onnx": "is empty"},
        baseline="main.onnx",
        read={"main.onnx": before}.__getitem__,
        stamp="2025-01-31T12:00:00+00:00",
    )


def passed_gate(folder: Path) -> Report:
    ledger = read(folder, TREES)
    return check_models((Rule("ok", "nodes", AtMost(9)),), {"a.onnx": ledger}, read=lambda name: ledger)


def comparison(folder: Path) -> Report:
    a, b = read(folder, CORNERS, "a.onnx"), read(folder, EMPTY, "b.onnx")
    return compare_ledgers(a, b, group_by(a, "dtype"), group_by(b, "dtype"), content="full")


def user_grouped_comparison(folder: Path) -> Report:
    a, b = read(folder, CORNERS, "a.onnx"), read(folder, NET, "b.onnx")
    patterns = parse_patterns(["w=w", "all=."])
    return compare_ledgers(a, b, group_by_patterns(a, patterns), group_by_patterns(b, patterns))


def exported(folder: Path) -> Report:
    return ExportReport((str(folder / "manifest.json"), str(folder / "model.onnx")), reconciliation(folder))


def recovery(folder: Path) -> Report:
    result = reconcile_ledger(read(folder, NET), make_manifest())
    return RecoverReport(recover_state(result), str(folder / "state.safetensors"))


def recovery_of_names_alone(folder: Path) -> Report:
    ledger = read(folder, CORNERS)
    original, refused = read_own_names(ledger)
    return RecoverReport(
        recover_state(reconcile_ledger(ledger, original.manifest), refused), None, lossless=True
    )


def timing(folder: Path) -> Report:
    return replace(timings.make_timing(folder), stamp="2025-01-31T12:00:00+00:00")


def user_grouped_timing(folder: Path) -> Report:
    return timings.make_timing(folder, is_own=True)


def sweep(folder: Path) -> Report:
    return timings.make_sweep(folder)


def sweep_of_two(folder: Path) -> Report:
    return timings.make_sweep(folder, (16, 32))


def generation(folder: Path) -> Report:
    return timings.make_generation(folder)


def user_grouped_generation(folder: Path) -> Report:
    return replace(timings.make_generation(folder, is_own=True), stamp="2025-01-31T12:00:00+00:00")


def generation_with_doubts(folder: Path) -> Report:
    """Return a loop with a decoder without a cache, an encoder with unknown outputs, and a file of no known step."""
    made = timings.make_generation(folder)
    encoder, prefill, decode = made.components
    first = replace(decode.timing, axis=None, points=(replace(decode.timing.points[0], value=None, axes=()),))
    loop = replace(made.loop, source_reason="default of encoder_sequence", caches=(), batch=1)
    unsure = replace(encoder.timing.points[0], latency=timings.latency(8.0, settled=False))
    components = (
        replace(encoder, timing=replace(encoder.timing, points=(unsure,))),
        prefill,
        replace(decode, timing=first),
        replace(prefill, name="classifier", step=Step.OTHER),
    )
    return replace(made, loop=loop, components=components)


def timing_comparison(folder: Path) -> Report:
    a, b = timings.make_timing(folder), timings.make_timing(folder, factor=1.1)
    return compare_timings(a, replace(b, environment=replace(b.environment, threads=8)))


def sweep_comparison(folder: Path) -> Report:
    return compare_timings(timings.make_sweep(folder, (8, 16, 32)), timings.make_sweep(folder, (16, 32, 64)))


def formula(folder: Path) -> Report:
    return formula_reports.compared()


def formula_with_changes(folder: Path) -> Report:
    return formula_reports.what_if()


def formula_of_symbols(folder: Path) -> Report:
    return formula_reports.symbolic()


def formula_with_a_cache(folder: Path) -> Report:
    return formula_reports.two_stacks()


def formula_that_was_found(folder: Path) -> Report:
    return formula_reports.derived()


def work(folder: Path) -> Report:
    """Return the cost of a product and of one with an unknown shape, at a size of one axis."""
    body = "h = MatMul(x, w) i = NonZero(h) f = Cast<to = 1>(i) y = MatMul(v, f)"
    weights = "<float[2,2] w = {1,2,3,4}, float[1,2] v = {5,6}>"
    proto = onnx.parser.parse_model(f"{HEADER} g (float[n,2] x) => (float[1,m] y) {weights} {{ {body} }}")
    onnx.save(proto, folder / "model.onnx")
    return measure_cost(audit_model(folder / "model.onnx"), sizes={"n": 8})


def verification(folder: Path) -> Report:
    """Return a comparison of two files with different outputs, as if they had run."""
    off = Agreement(0.0764, 31.6, 126.9, Verdict.DIFFERS)
    lost = Agreement(None, None, None, Verdict.NOT_COMPARED)
    reason = "LayerNormalization norm: epsilon 0.05, and epsilon 1e-05 in the other"
    return VerifyReport(
        path="new.onnx",
        against="old.onnx",
        outputs=(
            Pairing("y", "y", "bias", "Add", "head", off),
            Pairing("", "z", "", "", None, lost),
        ),
        values=(Pairing("b", "b", "norm", "LayerNormalization", None, off),),
        first=First(None, "norm", reason),
        checked=5,
        differences=(Difference(None, None, "norm", "attribute", "epsilon 1e-05", "epsilon 0.05"),),
        inputs=(Fed("x", "FLOAT", (6, 8), 0),),
        uncovered=("sizes other than x 6x8",),
        costs=Costs(
            weights_db=31.5,
            codes_db=40.25,
            layers=(
                LayerCost("head", 30.0, 31.0, 37.0, 2, 64, 256),
                LayerCost("norm", 44.0, None, 44.0, 1, 0, 0),
            ),
            kept=KeptFloat(("head", "norm"), 192, 30.5, 55.0),
            unmeasured=1,
        ),
        drift_db=30.75,
    )


REPORTS: list[Callable[[Path], Report]] = [
    work,
    verification,
    inspection,
    plain_inspection,
    empty_inspection,
    user_grouped_inspection,
    survey,
    survey_of_one,
    artifact,
    reconciliation,
    reconciliation_without_content,
    gate,
    passed_gate,
    comparison,
    user_grouped_comparison,
    exported,
    recovery,
    recovery_of_names_alone,
    timing,
    user_grouped_timing,
    sweep,
    sweep_of_two,
    generation,
    user_grouped_generation,
    generation_with_doubts,
    timing_comparison,
    sweep_comparison,
    formula,
    formula_with_changes,
    formula_of_symbols,
    formula_with_a_cache,
    formula_that_was_found,
]
ONE_OF_EACH = [
    inspection,
    survey,
    reconciliation,
    gate,
    comparison,
    exported,
    recovery,
    timing,
    sweep,
    generation,
    formula,
    formula_with_changes,
]
