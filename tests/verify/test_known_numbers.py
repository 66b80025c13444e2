"""Numbers that a file computes from known ones alone: they are a run's, in their type, or there is no proof."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import run_here
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from standard import AsStored

from analyzer import audit_model
from analyzer.verify.algebra.field import Numbers
from analyzer.verify.algebra.programs import File
from analyzer.verify.algebra.values import Algebra

ort = pytest.importorskip("onnxruntime", reason="needs onnxledger[time]")
pytestmark = pytest.mark.time
REFUSALS = tuple(
    getattr(ort.capi.onnxruntime_pybind11_state, name)
    for name in ("Fail", "InvalidArgument", "InvalidGraph", "NotImplemented")
)

NODE = helper.make_node
LEAST = np.iinfo(np.int64).min
MOST = np.iinfo(np.int64).max


def run(model: onnx.ModelProto, inputs: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, inputs)
    return found


# files beside PyTorch's program

NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    def forward(self, x):
        shares = torch.softmax(self.up(x), -1)
        return self.down(torch.cumsum(shares, 1))
def factory():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(2, 6, 8),)
"""


def make_behind(model: onnx.ModelProto, *nodes: onnx.NodeProto, **stored: Any) -> None:
    """Append nodes that read the output as `raw`, the last of which gives the output."""
    name = model.graph.output[0].name
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = ["raw" if each == name else each for each in names]
    nodes[-1].output[0] = name
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), each) for each, array in stored.items()
    )


def make_branches(then: Sequence[onnx.NodeProto], other: Sequence[onnx.NodeProto], *stored: Any) -> Any:
    """Return an If with the results `then` and `other`; the first has its own tensors."""
    graphs = [
        helper.make_graph(nodes, name, [], [onnx.ValueInfoProto(name=name)], tensors)
        for nodes, name, tensors in ((then, "then", stored), (other, "other", ()))
    ]
    return NODE("If", ["yes"], ["chosen"], then_branch=graphs[0], else_branch=graphs[1])


def sliced_from_below(model: onnx.ModelProto) -> None:
    make_behind(
        model,
        NODE("Slice", ["raw", "start", "end", "axis", "step"], ["first"]),
        NODE("ReduceSum", ["first", "axis"], ["sum"]),
        NODE("Add", ["raw", "sum"], ["y"]),
        start=[-100],
        end=[LEAST],
        axis=[1],
        step=[-1],
    )


def cast_to(kind: int) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        model.opset_import[0].version = 21
        make_behind(model, NODE("Cast", ["raw"], ["codes"], to=kind), NODE("Cast", ["codes"], ["y"], to=1))

    change.__name__ = f"cast_to_{TensorProto.DataType.Name(kind)}"
    return change


def cast_like_four_bits(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 21
    make_behind(model, NODE("CastLike", ["raw", "like"], ["codes"]), NODE("Cast", ["codes"], ["y"], to=1))
    model.graph.initializer.append(helper.make_tensor("like", TensorProto.INT4, [1], [1]))


def with_attribute_of_a_function(op_type: str, name: str, value: int) -> Callable[[onnx.ModelProto], None]:
    """Move a node into the body of an If of a function, which gives it an attribute of another value."""

    def change(model: onnx.ModelProto) -> None:
        node = next(each for each in model.graph.node if each.op_type == op_type)
        names = [f"x{at}" for at in range(len(node.input))]

        def make(output: str) -> onnx.NodeProto:
            made = NODE(op_type, names, [output])
            made.attribute.extend(each for each in node.attribute if each.name != name)
            made.attribute.append(AttributeProto(name=name, ref_attr_name="of", type=AttributeProto.INT))
            return made

        yes = NODE("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True)))
        body = make_branches([make("then")], [make("other")])
        opsets = [helper.make_opsetid("", model.opset_import[0].version)]
        model.functions.append(
            helper.make_function("own", "F", names, ["chosen"], [yes, body], opsets, ["of"])
        )
        model.opset_import.append(helper.make_opsetid("own", 1))
        called = NODE("F", node.input, node.output, domain="own", of=value)
        place = list(model.graph.node).index(node)
        model.graph.node.remove(node)
        model.graph.node.insert(place, called)

    change.__name__ = f"{op_type}_with_{name}_of_a_function"
    return change


def filled_by_a_function(model: onnx.ModelProto) -> None:
    filled = NODE("ConstantOfShape", ["x0"], ["y0"])
    filled.attribute.append(AttributeProto(name="value", ref_attr_name="of", type=AttributeProto.TENSOR))
    opsets = [helper.make_opsetid("", model.opset_import[0].version)]
    model.functions.append(helper.make_function("own", "F", ["x0"], ["y0"], [filled], opsets, ["of"]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    value = numpy_helper.from_array(np.array([3], np.float32))
    make_behind(
        model,
        NODE("F", ["size"], ["fill"], domain="own", of=value),
        NODE("Add", ["raw", "fill"], ["y"]),
        size=[1],
    )


def named_as_outside(model: onnx.ModelProto) -> None:
    """Turn the rows round in a body, by numbers that are named like those that keep them outside."""
    names = ["start", "end", "axis", "step"]
    inner = {"start": [-1], "end": [LEAST], "step": [-1]}
    stored = [numpy_helper.from_array(np.array(array), name) for name, array in inner.items()]
    turned = NODE("Slice", ["kept", *names], ["then"])
    make_behind(
        model,
        NODE("Slice", ["raw", *names], ["kept"]),
        make_branches([turned], [NODE("Identity", ["kept"], ["other"])], *stored),
        start=[0],
        end=[MOST],
        axis=[1],
        step=[1],
        yes=True,
    )


def negative_if(name: str, *nodes: onnx.NodeProto, **stored: Any) -> Callable[[onnx.ModelProto], None]:
    """Negate the output if known numbers say so: `nodes` compute the condition."""

    def change(model: onnx.ModelProto) -> None:
        copied = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        where = NODE("Where", ["condition", "negative", "raw"], ["y"])
        make_behind(model, *copied, NODE("Neg", ["raw"], ["negative"]), where, **stored)

    change.__name__ = name
    return change


CHANGES = [
    sliced_from_below,
    *map(cast_to, (TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8, TensorProto.FLOAT8E4M3FN)),
    cast_like_four_bits,
    with_attribute_of_a_function("Softmax", "axis", 1),
    with_attribute_of_a_function("CumSum", "reverse", 1),
    filled_by_a_function,
    named_as_outside,
    negative_if(
        "sum_that_wraps",
        NODE("CumSum", ["k", "axis"], ["sums"]),
        NODE("ReduceMin", ["sums"], ["least"], keepdims=0),
        NODE("Less", ["least", "zero"], ["condition"]),
        k=np.full(4, 2**30 - 1, np.int32),
        axis=0,
        zero=np.int32(0),
    ),
    negative_if(
        "sum_that_is_limited",
        NODE("ReduceSum", ["k", "axis"], ["sum"], keepdims=0),
        NODE("Greater", ["sum", "zero"], ["condition"]),
        k=np.full(3, 2**30, np.int32),
        axis=[0],
        zero=np.int32(0),
    ),
    negative_if(
        "half_that_is_infinite",
        NODE("Cast", ["k"], ["half"], to=TensorProto.FLOAT16),
        NODE("Cast", ["half"], ["single"], to=TensorProto.FLOAT),
        NODE("Greater", ["single", "limit"], ["condition"]),
        k=np.float32(1e5),
        limit=np.float32(2e5),
    ),
    negative_if(
        "half_of_an_integer",
        NODE("Cast", ["k"], ["half"], to=TensorProto.FLOAT16),
        NODE("Cast", ["half"], ["whole"], to=TensorProto.INT64),
        NODE("Equal", ["whole", "limit"], ["condition"]),
        k=2049,
        limit=2048,
    ),
    negative_if(
        "sum_of_halves",
        NODE("Add", ["k", "k"], ["sum"]),
        NODE("IsInf", ["sum"], ["condition"]),
        k=np.float16(6e4),
    ),
    negative_if(
        "power_of_integers",
        NODE("Pow", ["k", "exponent"], ["power"]),
        NODE("Equal", ["power", "zero"], ["condition"]),
        k=2,
        exponent=-1,
        zero=0,
    ),
    negative_if(
        "integer_of_no_number",
        NODE("Cast", ["k"], ["whole"], to=TensorProto.INT32),
        NODE("Less", ["whole", "zero"], ["condition"]),
        k=np.float32(np.nan),
        zero=np.int32(0),
    ),
]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("known")
    (folder / "nets.py").write_text(NET)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run_here("export", "nets:factory", "-o", folder / "out", "--quiet").returncode == 0
    return folder / "out"


def verify(path: Path, folder: Path) -> tuple[int, bool]:
    found = run_here("verify", path, "--static", "--against", folder / "manifest.json", "--format", "json")
    return found.returncode, json.loads(found.stdout)["same"]


@pytest.mark.slow
@pytest.mark.export
@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
def test_a_file_whose_known_numbers_give_another_output_is_not_the_same(
    exported: Path, tmp_path: Path, change: Callable[[onnx.ModelProto], None]
) -> None:
    honest = onnx.load(exported / "model.onnx")
    changed = onnx.load(exported / "model.onnx")
    change(changed)
    onnx.save(changed, tmp_path / "changed.onnx")
    inputs = {"x": np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)}

    (expected,), (found,) = run(honest, inputs), run(changed, inputs)
    code, is_same = verify(tmp_path / "changed.onnx", exported)

    assert not np.allclose(found, expected, 1e-3, 1e-3)
    assert (code in (1, 2), is_same) == (True, False)
    assert verify(exported / "model.onnx", exported) == (0, True)


# single operators beside onnxruntime

WHOLE = ("i1", "u1", "i2", "i4", "u4", "i8")
REAL = ("f2", "f4", "f8")
TYPES = tuple(
    TensorProto.DataType.Value(name)
    for name in ("FLOAT", "FLOAT16", "DOUBLE", "BOOL", "INT8", "UINT8", "INT32", "INT64", "UINT32", "INT16")
)


def draw(chance: np.random.Generator, kind: str, *shape: int) -> Any:
    """Draw small numbers, or the ends of the type."""
    if kind in REAL:
        ends = [0, -1.5, 2.5, 2048, 6e4, -6e4, np.inf, -np.inf, np.nan]
    else:
        limits = np.iinfo(kind)
        ends = [limits.min, limits.max, limits.max // 2 + 1, 1, 2]
    small = chance.integers(0 if kind[0] == "u" else -6, 7, shape)
    return (small if chance.integers(0, 2) else chance.choice(np.array(ends, kind), shape)).astype(kind)


def cases(chance: np.random.Generator) -> list[tuple[str, list[Any], dict[str, Any]]]:
    """Return operators with random inputs and attributes."""
    kind = str(chance.choice([*WHOLE, *REAL]))
    one, two = draw(chance, kind, 4), draw(chance, kind, 4)
    whole = str(chance.choice(WHOLE))
    number, divisor = draw(chance, whole, 4), draw(chance, whole, 4)
    divisor[(divisor == 0) | (divisor == np.array(-1).astype(whole))] = 3
    table, axis = draw(chance, kind, 2, 3), np.array([1])
    limits = [LEAST, -(2**31), -100, -7, -3, -1, 0, 1, 3, 5, 100, 2**31 - 1, MOST]
    start, end = (np.array([chance.choice(limits)]) for _ in range(2))
    step = np.array([chance.choice([-100, -2, -1, 1, 2, 100])])
    ranged = str(chance.choice(["i2", "i4", "i8", "f4"]))
    ends = [np.array(each, ranged) for each in (*chance.integers(-9, 9, 2), chance.choice([-2, -1, 1, 3]))]
    flags = {"exclusive": int(chance.integers(0, 2)), "reverse": int(chance.integers(0, 2))}
    return [
        *((op, [one, two], {}) for op in ("Add", "Sub", "Mul", "Max", "Min", "Equal", "Less")),
        *((op, [one], {}) for op in ("Neg", "Abs", "Sign", "Relu", "Identity")),
        *((op, [draw(chance, "f2", 3)], {}) for op in ("Exp", "Sqrt", "Round", "Sigmoid", "Reciprocal")),
        *((f"Reduce{op}", [table, axis], {}) for op in ("Sum", "Mean", "Max", "Min", "Prod")),
        *((op, [draw(chance, "f4", 2, 3)], {}) for op in ("ReduceLogSumExp", "LogSoftmax")),
        ("CumSum", [table, np.array(1)], flags),
        ("ArgMax", [table], {"axis": 1}),
        ("MatMul", [table, table.T.copy()], {}),
        ("Div", [number, divisor], {}),
        ("Mod", [number, divisor], {"fmod": flags["reverse"]}),
        ("Pow", [draw(chance, "i4", 3), chance.integers(-1, 8, 3)], {}),
        ("Range", ends, {}),
        ("Clip", [table, *np.sort(draw(chance, kind, 2))], {}),
        ("Cast", [table], {"to": int(chance.choice(TYPES))}),
        ("CastLike", [table, one], {}),
        ("Where", [chance.integers(0, 2, 4) > 0, one, two], {}),
        ("Slice", [np.arange(5, dtype="f4"), start, end, np.array([0]), step], {}),
    ]


@pytest.mark.parametrize("seed", range(12))
def test_a_known_number_is_that_of_a_run_in_its_type_or_unknown(seed: int, tmp_path: Path) -> None:
    for op_type, arrays, settings in cases(np.random.default_rng(seed)):
        inputs = {f"x{at}": np.asarray(array) for at, array in enumerate(arrays)}
        types = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
        ]
        node = NODE(op_type, [*inputs], ["y"], **settings)
        graph = helper.make_graph([node], "g", types, [onnx.ValueInfoProto(name="y")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        try:
            (expected,) = run(model, inputs)
        except REFUSALS:  # onnxruntime has not every operator for every type
            continue
        onnx.save(model, tmp_path / "model.onnx")
        ledger = audit_model(tmp_path / "model.onnx")
        file = File(Algebra(0, Numbers()), ledger, AsStored(), inputs, lambda node, place, value: value)

        file.run()

        found = file.values.get("y")
        if found is not None:
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape), (op_type, inputs)
            near = 2e-3 if expected.dtype == np.float16 else 1e-5
            is_alike = np.allclose(found.astype("f8"), expected.astype("f8"), near, 1e-6, equal_nan=True)
            assert np.array_equal(found, expected) or (found.dtype.kind == "f" and is_alike), (
                op_type,
                inputs,
            )


BUFFERS = """
import torch
class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.last = (torch.nn.Linear(8, 8) for _ in range(3))
        self.register_buffer("mask", torch.tril(torch.ones(12, 12)))
    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(1, 2) * 8**-0.5
        mask = self.mask[:x.shape[1], :x.shape[1]]
        return self.last(scores.masked_fill(mask == 0, float("-inf")).softmax(-1) @ x)
class Turned(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 3), torch.nn.Linear(12, 8)
        self.register_buffer("turns", 2.0 ** torch.arange(4))
    def forward(self, x):
        h = self.first(x) * 0.7
        return self.last(torch.cat([torch.sin(h * each) for each in self.turns], -1))
class Grid(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 1), torch.nn.Linear(11, 8)
        self.register_buffer("grid", torch.arange(12) * 0.4 - 1)
    def forward(self, x):
        h = torch.tanh(self.first(x)) * 0.7
        return self.last((h - self.grid[:-1]) / (self.grid[1:] - self.grid[:-1]))
class Resized(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(16, 8)
    def forward(self, x):
        image = self.first(x)[:, None]
        return self.last(torch.nn.functional.interpolate(image, size=(6, 16), mode="bilinear")[:, 0])
class Written(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.register_buffer("steps", torch.arange(8) * 0.3 + 0.1)
    def forward(self, x):
        h = self.first(x)
        h.mul_(2.5)
        return self.last(h + torch.arange(x.shape[1])[:, None] * self.steps)
def build(kind):
    torch.manual_seed(0)
    return kind().eval(), (torch.randn(2, 6, 8),)
def masked():
    return build(Masked)
def turned():
    return build(Turned)
def grid():
    return build(Grid)
def resized():
    return build(Resized)
def written():
    return build(Written)
"""


@pytest.fixture(scope="module")
def buffers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("buffers")
    (folder / "buffers.py").write_text(BUFFERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("masked", "turned", "grid", "resized", "written"):
            done = run_here("export", f"buffers:{name}", "-o", name, "--static", "--quiet")
            assert done.returncode == 0, done.stderr
    return folder


def of_number(model: onnx.ModelProto, number: float) -> onnx.TensorProto:
    (found,) = [
        each
        for each in model.graph.initializer
        if each.data_type == TensorProto.FLOAT
        and numpy_helper.to_array(each).size == 1
        and np.isclose(numpy_helper.to_array(each).item(), number)
    ]
    return found


def put_number(old: float, new: float) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        tensor = of_number(model, old)
        tensor.CopyFrom(numpy_helper.from_array(np.full([*tensor.dims], new, np.float32), tensor.name))

    change.__name__ = f"{old:.2g} to {new:.2g}"
    return change


def exchange_weights(model: onnx.ModelProto) -> None:
    first, second = [each for each in model.graph.node if each.op_type == "MatMul" and each.input[0] == "x"]
    first.input[1], second.input[1] = second.input[1], first.input[1]


def flip_mask(model: onnx.ModelProto) -> None:
    (tensor,) = [each for each in model.graph.initializer if each.data_type == TensorProto.BOOL]
    array = numpy_helper.to_array(tensor).copy()
    array[3, 1] = not array[3, 1]
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def keep(_: onnx.ModelProto) -> None:
    """Change nothing."""


@pytest.mark.export
@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("masked", keep, 0),
        ("masked", put_number(8**-0.5, 0.5), 1),
        ("masked", put_number(-np.inf, -1), 1),
        ("masked", flip_mask, 2),
        ("masked", exchange_weights, 1),
        ("turned", keep, 0),
        ("turned", put_number(4, 3), 1),
        ("turned", put_number(0.7, 0.6), 1),
        ("grid", keep, 0),
        ("grid", put_number(0.7, 0.6), 1),
        ("resized", keep, 0),
        ("written", keep, 0),
    ],
    ids=lambda each: each.__name__ if callable(each) else None,
)
def test_what_is_computed_of_buffers_is_known_by_manifest_and_by_module(
    buffers: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    change: Callable[[onnx.ModelProto], None],
    code: int,
) -> None:
    monkeypatch.chdir(buffers)
    model = onnx.load(buffers / name / "model.onnx")
    change(model)
    onnx.save(model, tmp_path / "model.onnx")
    codes = [
        run_here("verify", tmp_path / "model.onnx", "--static", "--against", source).returncode
        for source in (buffers / name / "manifest.json", f"buffers:{name}")
    ]

    assert codes == [code, code]
