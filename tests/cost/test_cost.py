"""Work of a model as formulas: exact beside onnxruntime's runs, and never silently 0."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
from commands import run_here
from models import audit, noise, save, text_model

from analyzer.cost.account import measure_cost
from analyzer.cost.algebra import evaluate
from analyzer.cost.walk import Walk
from analyzer.read import read_model
from analyzer.schemas import load_schema


def cost(folder: Path, text: str, weights: dict[str, np.ndarray] | None = None, **sizes: int):
    return measure_cost(audit(folder, text_model(text, weights or {})), sizes=sizes)


def test_a_product_counts_each_multiply_accumulate(tmp_path: Path) -> None:
    report = cost(
        tmp_path,
        "g (float[b, s, 6] x) => (float[b, s, 4] y) { y = MatMul(x, w) }",
        {"w": noise(6, 4)},
        b=2,
        s=5,
    )

    assert str(report.total.macs) == "24*b*s"
    assert report.at(report.total.macs) == 2 * 5 * 6 * 4
    assert str(report.total.flops) == "48*b*s"
    assert report.at(report.total.read) == 4 * (2 * 5 * 6 + 6 * 4)
    assert report.is_complete


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("", 8 * 14 * 14 * 3 * 9),
        ("<pads = [1,1,1,1]>", 8 * 16 * 16 * 3 * 9),
        ("<pads = [1,1,1,1], strides = [2,2]>", 8 * 8 * 8 * 3 * 9),
        ("<dilations = [2,2]>", 8 * 12 * 12 * 3 * 9),
        ('<auto_pad = "SAME_UPPER", strides = [3,3]>', 8 * 6 * 6 * 3 * 9),
    ],
)
def test_a_convolution_counts_its_windows(tmp_path: Path, attributes: str, expected: int) -> None:
    report = cost(
        tmp_path,
        f"g (float[n, 3, 16, 16] x) => (float[n, 8, a, c] y) {{ y = Conv{attributes}(x, w) }}",
        {"w": noise(8, 3, 3, 3)},
        n=1,
    )

    assert report.at(report.total.macs) == expected


def test_a_free_height_is_an_exact_floor(tmp_path: Path) -> None:
    text = "g (float[1, 3, h, 16] x) => (float[1, 8, a, c] y) { y = Conv<strides = [2,2]>(x, w) }"
    report = cost(tmp_path, text, {"w": noise(8, 3, 3, 3)})

    for height in (3, 15, 16, 33):
        assert evaluate(report.total.macs, {"h": height}) == 8 * ((height - 3) // 2 + 1) * 7 * 27
        assert eval(str(report.total.macs), {"h": height}) == evaluate(report.total.macs, {"h": height})


def test_groups_of_any_key_sum_to_the_total(tmp_path: Path) -> None:
    text = "g (float[b, 6] x) => (float[b, 4] y) { h = MatMul(x, w) r = Relu(h) y = MatMul(r, v) }"
    ledger = audit(tmp_path, text_model(text, {"w": noise(6, 5), "v": noise(5, 4)}))

    for by in ("scope", "block", "op", "scope,op"):
        report = measure_cost(ledger, by)
        for key in ("macs", "flops", "read", "written"):
            whole = evaluate(getattr(report.total, key), {"b": 3})
            assert sum(evaluate(getattr(group.sums, key), {"b": 3}) or 0 for group in report.groups) == whole


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = acme.Mystery(x)", "no rule for acme.Mystery"),
        ("n = NonZero(x) t = Transpose(n) f = Cast<to = 1>(t) y = MatMul(f, w)", "NonZero"),
    ],
)
def test_what_is_not_known_is_reported_and_never_zero(tmp_path: Path, body: str, reason: str) -> None:
    proto = text_model(f"g (float[b, 2] x) => (float[b, c] y) {{ {body} }}", {"w": noise(2, 4)})
    proto.opset_import.append(onnx.helper.make_opsetid("acme", 1))
    report = measure_cost(audit(tmp_path, proto), sizes={"b": 2})

    assert not report.is_complete
    assert any(reason in row.reason for row in report.unknown)


@pytest.mark.parametrize(
    ("noted", "macs"), [(["b", 2], 5 * 2 * 4), ([5, 2], 5 * 2 * 4), (["other", 2], None), (None, None)]
)
def test_behind_a_custom_operator_the_shape_is_what_the_file_notes(
    tmp_path: Path, noted: list[str | int] | None, macs: int | None
) -> None:
    """The operator's own work stays unknown, and so does the work after it where no shape is noted."""
    text = "g (float[b, 2] x) => (float[b, 4] y) { m = acme.Mystery(x) y = MatMul(m, w) }"
    proto = text_model(text, {"w": noise(2, 4)})
    proto.opset_import.append(onnx.helper.make_opsetid("acme", 1))
    if noted is not None:
        proto.graph.value_info.append(onnx.helper.make_tensor_value_info("m", onnx.TensorProto.FLOAT, noted))

    report = measure_cost(audit(tmp_path, proto), sizes={"b": 5})

    assert not report.is_complete
    assert "Mystery" in [row.op_type for row in report.unknown]
    assert [row.op_type for row in report.unknown] == ["Mystery", "MatMul"][: 1 if macs else 2]
    assert report.at(report.total.macs) == (macs if macs else None if noted else 0)


def test_a_branch_that_depends_on_values_is_reported_as_a_range(tmp_path: Path) -> None:
    text = """
        g (float[2, 6] x, bool c) => (float[2, 4] y) {
            y = If(c) <then_branch = t () => (float[2, 4] a) { a = MatMul(x, w) },
                       else_branch = e () => (float[2, 4] z) { p = Slice(x, s, o, i) z = Add(p, p) }>
        }
    """
    indices = {"s": np.array([0]), "o": np.array([4]), "i": np.array([1])}
    report = cost(tmp_path, text, {"w": noise(6, 4), **indices})

    assert report.total.macs == 48
    assert not report.is_complete
    assert "0 to 48 multiply-accumulates" in report.unknown[0].reason


INNER = """If(c) <then_branch = t () => (float[2, 6] a) {{ a = MatMul(x, w) }},
                  else_branch = e () => (float[2, 6] z) {{ {} }}>"""


@pytest.mark.parametrize(
    ("inner", "macs", "reasons"),
    [("z = MatMul(x, v)", 72, 0), ("z = Relu(x)", 72, 1), ("p = MatMul(x, w) z = MatMul(p, w)", 144, 2)],
)
def test_one_branch_counts_of_an_if_in_a_branch_of_another(
    inner: str, macs: int, reasons: int, tmp_path: Path
) -> None:
    text = f"""
        g (float[2, 6] x, bool c) => (float[2, 6] y) {{
            y = If(c) <then_branch = o () => (float[2, 6] k) {{ k = {INNER.format(inner)} }},
                       else_branch = u () => (float[2, 6] m) {{ m = MatMul(x, w) }}>
        }}
    """
    report = cost(tmp_path, text, {"w": noise(6, 6), "v": noise(6, 6, seed=1)})

    assert report.total.macs == macs
    assert len(report.unknown) == reasons


def test_ifs_of_one_name_are_decided_apart(tmp_path: Path) -> None:
    text = f"""
        g (float[2, 6] x, bool c) => (float[2, 6] y, float[2, 6] n) {{
            [same] y = {INNER.format("z = Relu(x)")}
            [same] n = {INNER.format("p = MatMul(x, w) z = MatMul(p, w)")}
        }}
    """
    report = cost(tmp_path, text, {"w": noise(6, 6)})

    assert report.total.macs == 72 + 144
    assert ["0 to 72" in row.reason or "72 to 144" in row.reason for row in report.unknown] == [True, True]


def test_a_loop_works_as_often_as_its_number_says(tmp_path: Path) -> None:
    text = """
        g (float[2, 6] x) => (float[2, 6] y) {
            m = Constant<value = int64 {7}>()
            t = Constant<value = bool {1}>()
            y = Loop(m, t, x) <body = b (int64 i, bool c, float[2, 6] h) => (bool d, float[2, 6] o)
                { d = Identity(c) o = MatMul(h, w) }>
        }
    """
    report = cost(tmp_path, text, {"w": noise(6, 6)})

    assert report.total.macs == 7 * 2 * 6 * 6
    assert report.is_complete


def test_the_command_prints_formulas_and_numbers(tmp_path: Path) -> None:
    text = "g (float[b, 6] x) => (float[b, 4] y) { y = MatMul(x, w) }"
    model = save(tmp_path, text_model(text, {"w": noise(6, 4)}))

    free = json.loads(run_here("cost", model, "--format", "json").stdout)
    bound = json.loads(run_here("cost", model, "--shape", "b=3", "--format", "json").stdout)

    jsonschema.validate(free, load_schema("cost"))
    assert free["totals"]["macs"] == {"expression": "24*b", "value": None}
    assert bound["totals"]["macs"] == {"expression": "24*b", "value": 72}
    assert "24 b MACs" in run_here("cost", model).stdout
    assert "72 MACs" in run_here("cost", model, "--shape", "b=3").stdout
    assert "72" in run_here("cost", model, "--shape", "b=3", "--format", "markdown").stdout
    wrong = run_here("cost", model, "--shape", "c=3")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "c" in wrong.stderr


def test_an_incomplete_cost_says_so_first(tmp_path: Path) -> None:
    proto = text_model("g (float[2] x) => (float[2] y) { y = acme.Mystery(x) }")
    proto.opset_import.append(onnx.helper.make_opsetid("acme", 1))

    first = run_here("cost", save(tmp_path, proto)).stdout.partition("\n\n")[0]

    assert "NOT COMPLETE: the work of 1 node is not known" in " ".join(first.split())


TEXTS = {
    "slices": """g (float[b, s, 8] x) => (float[b, t, u] y) {
        h = Shape(x) i = Gather<axis = 0>(h, one) k = Unsqueeze(i, zero0) e = Slice(x, zero0, k, one0)
        c = Concat<axis = 2>(e, x) p, q = Split<axis = 2, num_outputs = 2>(c) y = Add(p, q) }""",
    "reshapes": """g (float[b, s, 8] x) => (float[b, s, 2, 4] y) {
        h = Shape<start = 0, end = 2>(x) r = Concat<axis = 0>(h, tail) y = Reshape(x, r) }""",
    "expands": """g (float[b, s, 8] x) => (float[b, s, 8] y) {
        h = Shape(x) n = ConstantOfShape<value = int64[1] {1}>(three) q = Mul(n, minus) z = Equal(h, q)
        w = Where(z, n, h) y = Expand(x, w) }""",
    "reduces": """g (float[b, s, 8] x) => (float[b, 1, 8] y) {
        y = ReduceMean<keepdims = 1>(x, one0) }""",
    "pads": """g (float[b, s, 8] x) => (float[b, t, 9] y) { y = Pad(x, pads) }""",
    "pools": """g (float[b, 2, s, 8] x) => (float[b, 2, t, u] y) {
        y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(x) }""",
    "turns": """g (float[b, s, 8] x) => (float[b, 2, 4, s] y) {
        r = Reshape(x, four) y = Transpose<perm = [0, 2, 3, 1]>(r) }""",
}
NUMBERS = {
    "one": np.array(1),
    "zero0": np.array([0]),
    "one0": np.array([1]),
    "tail": np.array([2, 4]),
    "three": np.array([3]),
    "minus": np.array(-1),
    "pads": np.array([0, 2, 1, 0, 1, 0]),
    "four": np.array([0, 0, 2, -1]),
}


@pytest.mark.time
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("sizes", [(1, 8), (2, 5), (3, 11)])
def test_every_shape_is_the_one_that_onnxruntime_makes(
    tmp_path: Path, name: str, sizes: tuple[int, int]
) -> None:
    import onnxruntime

    proto = text_model(TEXTS[name], {key: array for key, array in NUMBERS.items() if key in TEXTS[name]})
    walk = Walk(read_model(save(tmp_path, proto)))
    list(walk.run())
    names = [name for node in proto.graph.node for name in node.output]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    at = {"b": sizes[0], "s": sizes[1]}
    input_shape = walk.values[()]["x"].shape
    assert input_shape is not None
    x = np.ones([evaluate(dim, at) for dim in input_shape], np.float32)

    for value, found in zip(names, session.run(names, {"x": x}), strict=True):
        shape = walk.values[()][value].shape
        assert shape is not None, value
        assert tuple(evaluate(dim, at) for dim in shape) == found.shape, value


def test_functions_that_double_forty_times_are_reported_and_not_followed(tmp_path: Path) -> None:
    """A file of 3 kB whose bodies hold 2^40 nodes."""
    functions = [
        onnx.helper.make_function(
            "f",
            f"F{at}",
            ["x"],
            ["y"],
            [
                onnx.helper.make_node(
                    "Relu" if at == 0 else f"F{at - 1}", ["x"], ["h"], domain="f" if at else ""
                ),
                onnx.helper.make_node(
                    "Relu" if at == 0 else f"F{at - 1}", ["h"], ["y"], domain="f" if at else ""
                ),
            ],
            [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("f", 1)],
        )
        for at in range(40)
    ]
    proto = text_model("g (float[2] x) => (float[2] y) { y = f.F39(x) }", {})
    proto.functions.extend(functions)
    proto.opset_import.append(onnx.helper.make_opsetid("f", 1))

    report = measure_cost(audit(tmp_path, proto))

    assert not report.is_complete
    assert "bodies have over 100,000 nodes" in report.unknown[0].reason


def test_loops_in_loops_are_reported_and_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that is not examined is never reported as 0."""
    monkeypatch.setattr("analyzer.cost.walk._MOST_INNER", 3)
    text = """
        g (float[2, 6] x, int64 m) => (float[2, 6] y) {
            t = Constant<value = bool {1}>()
            y = Loop(m, t, x) <body = b (int64 i, bool c, float[2, 6] h) => (bool d, float[2, 6] o) {
                d = Identity(c) e = Identity(h) f = Identity(e) k = Identity(f)
                o = Loop(m, d, k) <body = n (int64 j, bool p, float[2, 6] q) => (bool r, float[2, 6] s)
                    { r = Identity(p) s = MatMul(q, w) }>
            }>
        }
    """
    report = cost(tmp_path, text, {"w": noise(6, 6)})

    assert not report.is_complete
    assert [(row.op_type, "the rest is skipped" in row.reason) for row in report.unknown] == [("Loop", True)]


def test_a_product_of_many_sums_is_reported_and_not_worked_out(tmp_path: Path) -> None:
    """Each of 14 MatMuls doubles the number of terms, in a file of 2 KB."""
    inputs = ", ".join(f"float[a{at}, 1] p{at}, float[b{at}, 1] q{at}" for at in range(14))
    body = "".join(
        f" c{at} = Concat<axis = 0>(p{at}, q{at}) t{at} = Transpose(c{at})"
        f" m{at} = MatMul({f'r{at - 1}' if at else 'one'}, t{at}) r{at} = Reshape(m{at}, column)"
        for at in range(14)
    )
    weights = {"one": np.ones((1, 1), np.float32), "column": np.array([-1, 1])}
    sizes = {f"{name}{at}": 1 for name in "ab" for at in range(14)}
    text = f"g ({inputs}) => (float[m, 1] y) {{ {body} y = Relu(r13) }}"

    report = cost(tmp_path, text, weights)

    assert not report.is_complete
    assert any("more than 1,024 terms" in row.reason for row in report.unknown)
    at_sizes = cost(tmp_path, text, weights, **sizes)
    assert (at_sizes.is_complete, at_sizes.at(at_sizes.total.macs)) == (
        True,
        sum(2**at for at in range(1, 15)),
    )


def test_a_size_of_hundreds_of_functions_in_one_another_is_reported_and_not_worked_out(
    tmp_path: Path,
) -> None:
    """Each Slice takes the minimum of two sizes."""
    body = " ".join(
        f"c{at} = Concat<axis = 0>(s{at}, s{at}) s{at + 1} = Slice(c{at}, first, last)" for at in range(500)
    )
    weights = {"first": np.array([0]), "last": np.array([8])}

    text = f"g (float[b] s0) => (float[b2] y) {{ {body} y = Relu(s500) }}"

    report = cost(tmp_path, text, weights)

    assert not report.is_complete
    assert any("more than 90 functions in one another" in row.reason for row in report.unknown)
    assert cost(tmp_path, text, weights, b=3).is_complete


def test_numbers_of_a_shape_that_wrap_around_are_not_known(tmp_path: Path) -> None:
    body = " ".join(f"s{at + 1} = Mul(s{at}, s{at})" for at in range(64))
    text = f"g (float[b, 2] x) => (float y) {{ {body} e = Expand(x, s64) y = Relu(e) }}"

    report = cost(tmp_path, text, {"s0": np.array([10**9])}, b=1)

    assert not report.is_complete
    assert any("Expand" in row.reason for row in report.unknown)


def test_more_elements_than_can_be_written_are_not_known(tmp_path: Path) -> None:
    dims = ", ".join(["4611686018427387904"] * 1000)
    run = run_here(
        "cost", save(tmp_path, text_model(f"g (float[{dims}] x) => (float[{dims}] y) {{ y = Add(x, x) }}"))
    )

    assert run.returncode == 0
    assert "not known" in run.stdout
    assert "internal error" not in run.stderr


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize(
    "body",
    [
        "y = Flatten<axis = 0.5>(x)",
        "y = Transpose<perm = [0.5, 0.5]>(x)",
        "y = Scan<num_scan_inputs = 1, scan_input_axes = [0.5], body = step (p) => (q) { q = Relu(p) }>(x)",
        "y = Scan<num_scan_inputs = 1, scan_output_axes = [0.5], body = step (p) => (q) { q = Relu(p) }>(x)",
    ],
    ids=["axis", "perm", "axes of what is read", "axes of what is made"],
)
def test_an_axis_that_is_no_number_is_not_known(tmp_path: Path, body: str, value: float) -> None:
    text = f"g (float[b, 2] x) => (float y) {{ {body} z = MatMul(y, w) }}"
    proto = text_model(text, {"w": noise(2, 4)})
    for each in proto.graph.node[0].attribute:
        if each.type == onnx.AttributeProto.FLOAT:
            each.f = value
        each.floats[:] = [value] * len(each.floats)

    report = measure_cost(audit(tmp_path, proto), sizes={"b": 2})

    assert not report.is_complete


def test_a_size_can_be_given_to_an_axis_as_the_report_prints_it(tmp_path: Path) -> None:
    """One axis has no name; another has a name that is no identifier."""
    proto = text_model("g (float[?, 8] X, float[s, 8] Z) => (float[?, 8] y) { a = Sin(X) y = Add(a, Z) }", {})
    proto.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    proto.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "s - 1"
    path = save(tmp_path, proto)

    assert "free axes: X_0 (X.0), s___1 (Z.0)" in run_here("cost", path).stdout
    for key in ("X_0", "X.0"):
        done = run_here("cost", path, "--shape", f"{key}=5,s___1=5")
        assert "at X.0=5, s - 1=5" in done.stdout
    refused = run_here("cost", path, "--shape", "Y_0=5")
    assert refused.returncode == 2
    assert "X (X.0: batch, 8: features)" in refused.stderr


def test_an_axis_as_printed_is_refused_where_two_are_printed_so(tmp_path: Path) -> None:
    proto = text_model("g (float[?, 8] a, float[?, 8] a_b) => (float[?, 8] y) { y = Sin(a_b) }", {})
    proto.graph.input[0].name = "a.b"
    for graph_input in proto.graph.input:
        graph_input.type.tensor_type.shape.dim[0].Clear()

    assert run_here("cost", save(tmp_path, proto), "--shape", "a_b_0=5").returncode == 2


POSITIONS = """
    g (float[b, s, 6] x) => (float[b, s, 4] y) {
        size = Shape<start = 1, end = 2>(x)
        rows = Slice(table, zero, size, zero)
        h = Add(x, rows)
        y = MatMul(h, w)
    }
"""
STORED = {"w": noise(6, 4), "table": noise(16, 6), "zero": np.zeros(1, np.int64)}


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ("b=1,s=17", "the inputs do not fit each other: 17 and 16"),
        ("s=17", "the inputs do not fit each other: 17 and 16"),
    ],
)
def test_sizes_that_the_model_cannot_run_at_are_not_complete(tmp_path: Path, sizes: str, reason: str) -> None:
    model = save(tmp_path, text_model(POSITIONS, STORED))

    document = json.loads(run_here("cost", model, "--shape", sizes, "--format", "json").stdout)

    jsonschema.validate(document, load_schema("cost"))
    assert not document["complete"]
    assert (document["refused"]["op_type"], document["refused"]["reason"]) == ("Add", reason)
    assert document["totals"]["macs"]["expression"] == "0"  # the product after it is not known either
    first = " ".join(run_here("cost", model, "--shape", sizes).stdout.split())
    assert f"NOT COMPLETE: the model does not run at these sizes (h: {reason})" in first


@pytest.mark.parametrize("s", [0, 1, 16])
def test_sizes_that_the_model_runs_at_are_complete(tmp_path: Path, s: int) -> None:
    report = measure_cost(audit(tmp_path, text_model(POSITIONS, STORED)), sizes={"b": 2, "s": s})

    assert report.is_complete
    assert report.refused is None
    assert report.at(report.total.macs) == 2 * s * 24


@pytest.mark.parametrize(
    ("body", "width"),
    [
        ("y = Conv(x, w)", 2),
        ("y = Conv<dilations = [4], pads = [1, 1]>(x, w)", 6),
        ("y = MaxPool<kernel_shape = [5], strides = [4]>(x)", 4),  # its floor would be 0
        ("y = AveragePool<kernel_shape = [5], strides = [4], ceil_mode = 1>(x)", 4),
        ("y = Conv(x, wide)", 0),
    ],
)
def test_a_window_larger_than_its_input_has_no_work(tmp_path: Path, body: str, width: int) -> None:
    stored = {"w": noise(3, 3, 3), "wide": noise(3, 3, 3)}
    ledger = audit(tmp_path, text_model(f"g (float[n, 3, s] x) => (float[n, 3, t] y) {{ {body} }}", stored))

    for sizes in ({"s": width}, {"n": 1, "s": width}):
        report = measure_cost(ledger, sizes=sizes)
        assert not report.is_complete
        assert "is larger than its" in report.unknown[0].reason
        assert (report.refused is None) == ("Pool" in body)  # onnxruntime runs some of these
        assert report.total.macs == 0
    assert measure_cost(ledger, sizes={"n": 1, "s": width + 3}).is_complete


def test_a_branch_that_may_not_run_does_not_refuse_the_model(tmp_path: Path) -> None:
    text = """
        g (bool c, float[1, 3, s] x) => (float[1, 3, t] y) {
            y = If(c) <then_branch = a () => (float[1, 3, t] p) { p = Conv(x, w) },
                       else_branch = e () => (float[1, 3, t] q) { q = Identity(x) }>
        }
    """
    report = cost(tmp_path, text, {"w": noise(3, 3, 3)}, s=2)

    assert report.refused is None
    assert not report.is_complete


@pytest.mark.parametrize(
    "body",
    [
        "y = MatMul(x, w)",
        "y = Gemm(x, w)",
        "y = Concat<axis = 0>(x, w)",
        "y = Reshape(x, shape)",
        'y = Einsum<equation = "ij,jk->ik">(x, w)',
        "y = Add(x, w)",
    ],
)
def test_inputs_that_do_not_fit_each_other_refuse_the_model(tmp_path: Path, body: str) -> None:
    stored = {"w": noise(5, 4), "shape": np.array([3, 7], np.int64)}

    report = cost(tmp_path, f"g (float[n, s] x) => (float[a, c] y) {{ {body} }}", stored, n=3, s=6)

    assert report.refused is not None
    assert not report.is_complete


def test_operators_of_old_sets_align_by_an_attribute(tmp_path: Path) -> None:
    text = """
        <ir_version: 3, opset_import: ["": 6]>
        g (float[n, 3, 5, 5] x) => (float[n, 3, 5, 5] y) { y = Add<broadcast = 1, axis = 1>(x, w) }
    """
    report = cost(tmp_path, text, {"w": noise(3)}, n=2)

    assert report.is_complete
    assert report.at(report.total.flops) == 2 * 75


def test_with_sizes_for_some_axes_all_formulas_are_in_the_others(tmp_path: Path) -> None:
    text = """
        g (float[b, s, 6] x, float[b, 4] z) => (float[b, s, 4] y, float[b, 3] u) { y = MatMul(x, w) u = MatMul(z, v) }
    """
    model = save(tmp_path, text_model(text, {"w": noise(6, 4), "v": noise(4, 3)}))

    for size in (2, 0):
        document = json.loads(run_here("cost", model, "--shape", f"b={size}", "--format", "json").stdout)
        macs = document["totals"]["macs"]
        rows = [row["macs"]["expression"] for row in document["groups"]]
        assert macs["expression"] == (f"{24 * size}*s + {12 * size}" if size else "0")
        assert sum(eval(row, {"s": 5}) for row in rows) == eval(macs["expression"], {"s": 5})
        assert not any("b" in row for row in rows)
    assert "48 s + 24 MACs" in run_here("cost", model, "--shape", "b=2").stdout


def test_sizes_decide_what_no_formula_tells(tmp_path: Path) -> None:
    text = """
        g (float[b, 6] x) => (float[n, 4] y) {
            size = Shape<start = 0, end = 1>(x)
            small = Less(size, limit)
            c = Squeeze(small)
            h = If(c) <then_branch = a () => (float[b, 6] p) { p = Identity(x) },
                       else_branch = e () => (float[1, b, 6] q) { q = Unsqueeze(x, zero) }>
            y = MatMul(h, w)
        }
    """
    stored = {"w": noise(6, 4), "limit": np.array([8], np.int64), "zero": np.zeros(1, np.int64)}
    ledger = audit(tmp_path, text_model(text, stored))

    assert not measure_cost(ledger).is_complete
    for b in (3, 9):
        report = measure_cost(ledger, sizes={"b": b})
        assert (report.is_complete, report.at(report.total.macs)) == (True, b * 24)


def test_a_sum_without_the_work_of_a_node_is_not_printed_as_a_number(tmp_path: Path) -> None:
    text = """
        <ir_version: 10, opset_import: ["": 18, "acme": 1]>
        g (float[2, 6] x) => (float[2, 4] y, float[2, 4] z) {
            h = acme.Mystery(x)
            r = Relu(h)
            t = Tanh(r)
            p = MatMul(r, w)
            y = Add(p, p)
            z = MatMul(x, w)
        }
    """
    model = save(tmp_path, text_model(text, {"w": noise(6, 4)}))

    printed = run_here("cost", model, "--by", "op").stdout
    document = json.loads(run_here("cost", model, "--by", "op", "--format", "json").stdout)

    assert "48 or more MACs" in printed
    rows = {line.split()[0]: line.split()[1:4] for line in printed.splitlines() if line.strip()}
    assert rows["Mystery"][0] == "unknown"
    assert rows["MatMul"] == rows["total"] == ["48", "or", "more"]
    assert printed.count("no rule for acme.Mystery") == 1  # one row for all nodes
    assert {row["group"]: row["nodes_without_macs"] for row in document["groups"]} == {
        "Mystery": 1, "Relu": 0, "Tanh": 0, "MatMul": 1, "Add": 0,
    }  # fmt: skip


def test_shares_of_open_formulas_have_no_total(tmp_path: Path) -> None:
    text = "g (float[b, s, 6] x, float[b, 4] z) => (y, u) { y = MatMul(x, w) u = Gemm(z, v) }"
    model = save(tmp_path, text_model(text, {"w": noise(6, 4), "v": noise(4, 3)}))

    free = run_here("cost", model, "--by", "op").stdout.splitlines()
    bound = run_here("cost", model, "--by", "op", "--shape", "b=1,s=2").stdout.splitlines()

    assert not any("100 %" in line for line in free)
    assert any("100 %" in line for line in bound if line.startswith("total"))


def test_an_empty_input_of_a_concat_refuses_nothing(tmp_path: Path) -> None:
    report = cost(
        tmp_path,
        "g (float[p, 4] x) => (float[n, m] y) { y = Concat<axis = 0>(x, w) }",
        {"w": noise(3, 5)},
        p=0,
    )

    assert report.refused is None
