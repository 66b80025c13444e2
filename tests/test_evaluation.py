"""Values computed from stored values equal those of onnx's reference evaluator, or are None."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import Array, audit, noise, text_model
from onnx.reference import ReferenceEvaluator

from analyzer.model.evaluation import Evaluator

STORED: dict[str, Array] = {
    "w": noise(2, 3),
    "v": noise(3, seed=1),
    "p": np.abs(noise(2, 3, seed=2)) + np.float32(0.1),
    "i": np.array([[7, -7, 3], [0, 5, -1]], "i8"),
    "j": np.array([2, 2, -2], "i8"),
    "b": np.array([[True, False, True], [False, False, True]]),
    "square": noise(4, 4, seed=3),
    "codes": np.array([[1, -2, 3], [4, 5, -6]], "i1"),
    "one": np.array(1, "i8"),
    "zero": np.array(0, "i8"),
    "five": np.array(5, "i8"),
    "half": np.array(0.5, "f4"),
    "axis": np.array([1], "i8"),
    "minus": np.array([-1], "i8"),
    "picks": np.array([-1, 0], "i8"),
    "six": np.array([3, -1], "i8"),
    "rows": np.array([[[1], [0]], [[1], [1]]], "i8"),
    "places": np.array([[1, 2], [0, -1]], "i8"),
    "order": np.array([[1, 0, 3, 2], [2, 2, 0, 1]], "i8"),
    "columns": np.array([[[2], [0], [1]], [[0], [0], [1]]], "i8"),
    "keeps": np.array([0, 3, 1], "i8"),
    "wide": np.array([4, 2, 3], "i8"),
    "times": np.array([2, 1], "i8"),
    "scales": np.array([0.5, 0.25, 2.0], "f4"),
    "points": np.array([1, 0, -1], "i1"),
    "scale": np.array(0.5, "f4"),
    "far": np.array([np.iinfo("i8").max], "i8"),
    "start": np.array([0], "i8"),
    "last": np.array([-1], "i8"),
    "least": np.array([np.iinfo("i8").min], "i8"),
    "zerof": np.array(0, "f4"),
    "step": np.array(0.75, "f4"),
    "four": np.array(4, "f4"),
    "sizes": np.array([4, 7], "i8"),
}

GRAPHS = {
    **{name: f"{name}(w)" for name in ("Abs", "Ceil", "Cos", "Exp", "Floor", "Identity", "Neg", "Round")},
    **{name: f"{name}(w)" for name in ("Sigmoid", "Sign", "Sin", "Tanh", "Shape", "Transpose", "Flatten")},
    **{name: f"{name}(p)" for name in ("Log", "Sqrt", "Reciprocal")},
    **{name: f"{name}(w, v)" for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Less", "Greater")},
    **{name: f"{name}(w, v)" for name in ("GreaterOrEqual", "LessOrEqual", "MatMul")},
    **{name: f"{name}(b, b)" for name in ("And", "Or", "Xor")},
    "Not": "Not(b)",
    "Equal": "Equal(i, j)",
    "Div of integers goes towards zero": "Div(i, j)",
    "Mod has the divisor's sign": "Mod(i, j)",
    "Mod with fmod has the dividend's": "Mod <fmod = 1> (w, v)",
    "Pow": "Pow(p, half)",
    "Resize": 'Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(w, "", "", sizes)',
    "Resize by the nearest": 'Resize<mode="nearest">(w, "", "", sizes)',
    "Pow of integers": "Pow(i, one)",
    "Cast to integers": "Cast <to = 7> (w)",
    "Cast to half": "Cast <to = 10> (w)",
    "Cast to bool": "Cast <to = 9> (i)",
    "Clip": "Clip(w, zerof, half)",
    "Clip from below": "Clip(w, zerof)",
    "Clip from above": "Clip(w, , half)",
    "Concat": "Concat <axis = 0> (w, p)",
    "Concat along the last axis": "Concat <axis = -1> (w, p)",
    "CumSum": "CumSum(w, one)",
    "DequantizeLinear of one scale": "DequantizeLinear(codes, scale)",
    "DequantizeLinear along an axis": "DequantizeLinear <axis = 1> (codes, scales, points)",
    "EyeLike": "EyeLike <k = 1> (square)",
    "ConstantOfShape": "ConstantOfShape(wide)",
    "ConstantOfShape of a value": "ConstantOfShape <value = int64[1] {7}> (wide)",
    "Expand": "Expand(w, wide)",
    "Flatten from the first": "Flatten <axis = 0> (w)",
    "Gather of rows": "Gather(w, picks)",
    "GatherElements": "GatherElements(square, order)",
    "GatherElements of columns": "GatherElements <axis = 1> (w, places)",
    "GatherND of rows": "GatherND(w, rows)",
    "GatherND of elements": "GatherND(w, places)",
    "GatherND of each example": "GatherND <batch_dims = 1> (w, columns)",
    "Gather of columns": "Gather <axis = 1> (w, picks)",
    "Range": "Range(zero, five, one)",
    "Range of floats": "Range(zerof, four, step)",
    "ReduceMax": "ReduceMax(w, axis)",
    "ReduceMean": "ReduceMean <keepdims = 0> (w, axis)",
    "ReduceMin of all": "ReduceMin(w)",
    "ReduceSum": "ReduceSum(w, minus)",
    "Reshape with a free size": "Reshape(w, six)",
    "Reshape with a kept size": "Reshape(w, keeps)",
    "Slice": "Slice(w, axis, far, axis)",
    "Slice backwards": "Slice(w, last, least, axis, minus)",
    "Slice of the first": "Slice(w, start, last, axis)",
    "Squeeze": "Squeeze(axis)",
    "Tile": "Tile(w, times)",
    "Transpose in an order": "Transpose <perm = [1, 0]> (w)",
    "Trilu": "Trilu(square)",
    "Trilu of the lower half": "Trilu <upper = 0> (square, one)",
    "Unsqueeze": "Unsqueeze(w, axis)",
    "Where": "Where(b, w, v)",
}


def work_out(
    folder: Path, body: str, name: str = "r", weights: dict[str, Array] | None = None
) -> Array | None:
    """Evaluate a value of a graph that has an output in name only."""
    ledger = audit(folder, text_model(f"g (float[n] x) => (float[n] y) {{ {body} }}", weights or STORED))
    return Evaluator(ledger.model, ledger.wiring).value((), name)


@pytest.mark.parametrize("graph", GRAPHS)
def test_each_operator_gives_what_the_reference_gives(graph: str, tmp_path: Path) -> None:
    header = '<ir_version: 10, opset_import: ["" : 21]>'
    text = f"{header} g () => (float r) {{ r = {GRAPHS[graph]} }}"
    proto = text_model(text, {name: array for name, array in STORED.items() if name in GRAPHS[graph]})
    expected = np.asarray(ReferenceEvaluator(proto).run(None, {})[0])
    ledger = audit(tmp_path, proto)

    found = Evaluator(ledger.model, ledger.wiring).value((), "r")

    assert found is not None
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("place", ["zero", "one", "last"])
@pytest.mark.parametrize(
    "cut",
    [
        "<axis = 1> (wide, one)",
        "<axis = 1> (wide, two)",
        "<axis = -1> (wide, lengths)",
        "<axis = 1> (wide)",
        "<axis = 1, keepdims = 0> (wide)",
    ],
)
def test_a_part_of_a_sequence_is_what_the_reference_gives(cut: str, place: str, tmp_path: Path) -> None:
    stored = {
        "wide": noise(2, 5),
        "zero": np.array(0),
        "one": np.array(1),
        "two": np.array(2),
        "last": np.array(-1),
        "lengths": np.array([2, 3]),
    }
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
        g () => (float r) {{ s = SplitToSequence {cut} r = SequenceAt(s, {place}) }}"""
    used = {name: array for name, array in stored.items() if f"{name})" in text or f"({name}" in text}
    proto = text_model(text, used)
    ledger = audit(tmp_path, proto)

    found = Evaluator(ledger.model, ledger.wiring).value((), "r")

    assert found is not None
    np.testing.assert_array_equal(found, ReferenceEvaluator(proto).run(None, {})[0])


def test_nodes_after_one_another_are_worked_out(tmp_path: Path) -> None:
    found = work_out(
        tmp_path, "s = Range(zero, five, one) t = Mul(s, s) r = Gather(t, picks) y = Identity(x)"
    )

    assert found is not None
    assert found.tolist() == [16, 0]


@pytest.mark.parametrize(
    "body",
    {
        "an input": "r = Add(x, v) y = Identity(r)",
        "an input, further back": "s = Neg(x) t = Mul(s, zerof) r = Exp(t) y = Identity(r)",
        "the size of an input": "r = Shape(x) y = Identity(x)",
        "random numbers": "r = RandomNormal <shape = [3]> () y = Identity(r)",
        "an operator of another domain": "r = com.microsoft.Gelu(v) y = Identity(r)",
        "an operator that is not known": "r = Softmax(v) y = Identity(r)",
        "another cumulative sum": "r = CumSum <reverse = 1> (w, one) y = Identity(r)",
        "shapes that do not agree": "r = Add(w, square) y = Identity(r)",
        "no such value": "y = Identity(x)",
    }.items(),
    ids=lambda case: case[0],
)
def test_what_cannot_be_computed_has_no_value(body: tuple[str, str], tmp_path: Path) -> None:
    assert work_out(tmp_path, body[1]) is None


def test_a_number_of_an_operator_without_its_inputs_is_nothing(tmp_path: Path) -> None:
    ledger = audit(
        tmp_path, text_model("g (float[n] x) => (float[n] y) { r = Mul(v) y = Add(x, r) }", STORED)
    )

    assert Evaluator(ledger.model, ledger.wiring).number((), "r") is None


def test_a_stored_value_that_a_caller_may_replace_is_nothing(tmp_path: Path) -> None:
    proto = text_model(
        "g (float[3] x, float[3] v) => (float[3] y) { r = Neg(v) y = Add(x, r) }", {"v": noise(3)}
    )
    ledger = audit(tmp_path, proto)

    assert Evaluator(ledger.model, ledger.wiring).value((), "r") is None


def test_no_more_elements_are_made_than_requested(tmp_path: Path) -> None:
    body = "r = ConstantOfShape(size) y = Add(x, r)"
    proto = text_model(f"g (float[n] x) => (float[n] y) {{ {body} }}", {"size": np.array([1 << 40], "i8")})
    ledger = audit(tmp_path, proto)

    assert Evaluator(ledger.model, ledger.wiring).value((), "r") is None
    assert Evaluator(ledger.model, ledger.wiring, most=1).value((), "size") is not None


CALLS = """<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
g (float[n] x) => (float[n] y) {{ {body} }}
<domain: "my", opset_import: ["" : 21]>
shifted <by> (data) => (made) {{ by = Constant <value_int: int = @by> () made = Add(data, by) }}
<domain: "my", opset_import: ["" : 21, "my" : 1]>
twice (data) => (made, first) {{ first = my.shifted <by = 2> (data) made = my.shifted <by = 10> (first) }}
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    {
        "for this caller": (
            "s = my.shifted <by = 3> (one) r = my.shifted <by = 5> (five) y = Identity(x)",
            10,
        ),
        "calls in calls": ("r, s = my.twice(one) y = Identity(x)", 13),
        "another of its outputs": ("s, r = my.twice(one) y = Identity(x)", 3),
        "a caller that does not say": ("r = my.shifted(one) y = Identity(x)", None),
        "of an input": ("r = my.shifted <by = 3> (x) y = Identity(r)", None),
    }.values(),
    ids=lambda case: str(case)[:20],
)
def test_a_call_gives_what_its_body_makes_for_it(body: str, expected: int | None, tmp_path: Path) -> None:
    ledger = audit(tmp_path, text_model(CALLS.format(body=body), STORED))

    found = Evaluator(ledger.model, ledger.wiring).value((), "r")

    assert (None if found is None else found.item()) == expected


def test_calls_of_calls_end(tmp_path: Path) -> None:
    header = '<domain: "my", opset_import: ["" : 21, "my" : 1]>'
    deeper = "\n".join(
        f"{header} f{n} (a) => (b) {{{{ c = my.f{n + 1}(a) b = my.f{n + 1}(c) }}}}" for n in range(40)
    )
    last = f"{header} f40 (a) => (b) {{{{ b = Neg(a) }}}}"
    text = CALLS.format(body="r = my.f0(one) y = Identity(x)") + (deeper + last).format()
    ledger = audit(tmp_path, text_model(text, STORED))

    assert Evaluator(ledger.model, ledger.wiring).value((), "r") is None


@pytest.mark.parametrize(("chosen", "expected"), [("zero", [5, 0]), ("one", [0, -5])])
def test_a_known_condition_chooses_a_branch(chosen: str, expected: list[int], tmp_path: Path) -> None:
    text = f"""g (float[3] x) => (float[3] y) {{
        c = Cast <to = 9> ({chosen})
        r, s = If (c) <
            then_branch = a () => (int64 p, int64 q) {{ p = Identity(zero) q = Neg(five) }},
            else_branch = b () => (int64 p, int64 q) {{ p = Identity(five) q = Identity(zero) }}
        >
        y = Identity(x)
    }}"""
    names = (chosen, "zero", "five")
    ledger = audit(tmp_path, text_model(text, {name: STORED[name] for name in names}))
    evaluator = Evaluator(ledger.model, ledger.wiring)

    assert [int(found) for name in "rs" if (found := evaluator.value((), name)) is not None] == expected


def test_a_value_is_seen_from_a_body_that_reads_it(tmp_path: Path) -> None:
    text = """g (float[3] x, bool c) => (float[3] y) {
        s = Neg(v)
        y = If (c) <
            then_branch = a () => (float[3] t) { r = Abs(s) t = Add(x, r) },
            else_branch = b () => (float[3] e) { e = Identity(x) }
        >
    }"""
    ledger = audit(tmp_path, text_model(text, {"v": STORED["v"]}))
    (path,) = (graph.path for graph in ledger.model.graphs if any(n.op_type == "Abs" for n in graph.nodes))

    found = Evaluator(ledger.model, ledger.wiring).value(path, "r")

    assert found is not None
    np.testing.assert_array_equal(found, np.abs(STORED["v"]))
