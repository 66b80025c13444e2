"""Values by which a model chooses are compared themselves, since equal outputs do not show them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from commands import run_here
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from samples import sampled

from analyzer.verify.choices import keeps_order

ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("forked_children")

FACTORY = """
import torch
from torch import nn


class Codebook(nn.Module):
    '''The nearest of 24 rows.'''

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.body = nn.Linear(6, 5)
        self.rows = nn.Parameter(torch.randn(24, 5))
        self.head = nn.Linear(5, 4)

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        apart = (hidden[:, :, None, :] - self.rows).pow(2).sum(-1)
        return self.head(self.rows[apart.argmin(-1)])


class Router(nn.Module):
    '''The best two of 12 experts.'''

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.gate = nn.Linear(6, 12)
        self.gate.bias.data[7] = -6
        self.experts = nn.Parameter(torch.randn(12, 6))

    def forward(self, x):
        best = self.gate(x).softmax(-1).topk(2)
        return (x[:, :, None, :] * self.experts[best.indices] * best.values[..., None]).sum(-2)


class Labels(nn.Module):
    '''Only the best class comes out.'''

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.body, self.head = nn.Linear(6, 9), nn.Linear(9, 7)

    def forward(self, x):
        return self.head(torch.relu(self.body(x))).argmax(-1)


class Detector(nn.Module):
    '''The best of many scores, nearly all of which are next to nothing.'''

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.scores, self.boxes = nn.Linear(6, 1), nn.Linear(6, 4)
        self.scores.bias.data -= 11

    def forward(self, x):
        best = torch.sigmoid(self.scores(x)).squeeze(-1).topk(5)
        return best.values, self.boxes(x).gather(1, best.indices[..., None].expand(-1, -1, 4))


class Tied(nn.Module):
    '''The best of many scores, which are equal but for rounding.'''

    def __init__(self):
        super().__init__()
        torch.manual_seed(8)
        self.scores, self.boxes = nn.Linear(6, 1), nn.Linear(6, 4)
        self.scores.weight.data *= 1e-8

    def forward(self, x):
        best = self.scores(x).squeeze(-1).topk(5).indices
        return self.boxes(x).gather(1, best[..., None].expand(-1, -1, 4))


class Beside(nn.Module):
    '''Words, and numbers beside each.'''

    def __init__(self):
        super().__init__()
        torch.manual_seed(9)
        self.words, self.body = nn.Embedding(12, 6), nn.Linear(4, 6)

    def forward(self, ids, beside):
        return torch.tanh(self.words(ids) + self.body(beside))


def beside():
    return Beside().eval(), (torch.arange(18).reshape(2, 9) % 12, torch.randn(2, 9, 4))


class Placed(nn.Module):
    '''A parameter of the outermost module, read once.'''

    def __init__(self):
        super().__init__()
        torch.manual_seed(10)
        self.pos, self.query = nn.Parameter(torch.randn(9, 6)), nn.Linear(6, 5)

    def forward(self, x):
        return self.query(x.cumsum(1) + self.pos[: x.shape[1]])


def placed():
    return Placed().eval(), (torch.randn(2, 9, 6, generator=torch.Generator().manual_seed(1)),)


def tied():
    return Tied().eval(), (torch.randn(2, 40, 6, generator=torch.Generator().manual_seed(1)),)


def detector():
    return Detector().eval(), (torch.randn(2, 40, 6, generator=torch.Generator().manual_seed(1)),)


def codebook():
    return Codebook().eval(), (torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(1)),)


def router():
    return Router().eval(), (torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(1)),)


def labels():
    return Labels().eval(), (torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(1)),)
"""

CHOOSES = {"codebook": "ArgMin", "router": "TopK", "labels": "ArgMax"}
EXPORTED = (
    *(("codebook", "dynamo"), ("router", "dynamo"), ("labels", "torchscript")),
    *(("codebook", "torchscript"), ("router", "torchscript"), ("labels", "dynamo")),
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("choices")
    (folder / "choosing_nets.py").write_text(FACTORY)
    return folder


def export(folder: Path, name: str, exporter: str) -> Path:
    out = folder / f"{name}-{exporter}"
    if not out.exists():
        done = run_here("export", f"choosing_nets:{name}", "-o", out, "--via", exporter, "--quiet")
        assert done.returncode == 0, done.stderr
    return out / "model.onnx"


def behind(
    path: Path, target: Path, op_type: str, nodes: list[onnx.NodeProto], *stored: onnx.TensorProto
) -> Path:
    """Save a model with nodes between a choice's input, named `given` in them, and the choosing node."""
    model = onnx.load(path)
    at, node = next((i, each) for i, each in enumerate(model.graph.node) if each.op_type == op_type)
    nodes[0].input[0], node.input[0] = node.input[0], nodes[-1].output[0]
    for each in reversed(nodes):
        model.graph.node.insert(at, each)
    model.graph.initializer.extend(stored)
    target.parent.mkdir(exist_ok=True)
    onnx.save(model, target)
    return target


def never_chosen(path: Path, op_type: str) -> npt.NDArray[np.float32]:
    """Return an offset for a choice's input that lowers a candidate which wins for none of a thousand inputs."""
    model = onnx.load(path)
    node = next(each for each in model.graph.node if each.op_type == op_type)
    model.graph.output.append(helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None))
    session = ort.InferenceSession(model.SerializeToString())
    fed = session.get_inputs()[0].name
    rng = np.random.default_rng(7)
    values = np.concatenate(
        [
            session.run([node.input[0]], {fed: rng.normal(size=(2, 3, 6)).astype(np.float32)})[0].reshape(
                6, -1
            )
            for _ in range(200)
        ]
    )
    ranks = np.argsort(values if op_type == "ArgMin" else -values, axis=-1)
    lost = next(each for each in range(values.shape[-1]) if each not in ranks[:, :2])
    added = np.zeros(values.shape[-1], np.float32)
    added[lost] = 0.5 if op_type == "ArgMin" else -0.5
    return added


SEEDS = ("--seed", 0, "--seed", 1)
"""Options for differences that appear only in several runs."""


def verify(model: Path, *options: object) -> tuple[int, dict[str, Any]]:
    seeds = () if "--seed" in options else ("--seed", 0)
    done = run_here("verify", model, *options, "--format", "json", *seeds)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.time
@pytest.mark.export
@pytest.mark.parametrize(("name", "exporter"), sampled(EXPORTED, EXPORTED[:3]))
def test_what_is_chosen_by_is_compared_though_no_output_shows_it(
    exported: Path, monkeypatch: pytest.MonkeyPatch, name: str, exporter: str
) -> None:
    monkeypatch.chdir(exported)
    model = export(exported, name, exporter)
    op_type = CHOOSES[name]
    stored = numpy_helper.from_array(never_chosen(model, op_type), "planted")
    nodes = [helper.make_node("Add", ["", "planted"], ["moved"], name="moves")]
    changed = behind(model, exported / "changed" / "model.onnx", op_type, nodes, stored)

    honest = verify(model, "--against", f"choosing_nets:{name}")
    caught = verify(changed, "--against", f"choosing_nets:{name}")
    between = verify(changed, "--against", model)

    assert (honest[0], honest[1]["same"], honest[1]["first"]) == (0, True, None)
    assert not [
        line for line in honest[1]["uncovered"] if "other results" in line or "beyond the bounds" in line
    ]
    for code, document in (caught, between):
        assert (code, document["same"]) == (1, False)
        assert (
            document["outputs"][0]["max_abs_error"] in (0, None)
            or document["outputs"][0]["max_abs_error"] < 1e-6
        )
        assert document["first"]["node"] == "moves"
        assert document["first"]["reason"].endswith("chooses the same on these inputs")


@pytest.mark.time
@pytest.mark.export
def test_scores_next_to_nothing_are_chosen_by_as_they_are(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(exported)

    code, document = verify(export(exported, "detector", "dynamo"), "--against", "choosing_nets:detector")

    assert (code, document["same"]) == (0, True)
    assert not [line for line in document["uncovered"] if "other results" in line]


@pytest.mark.time
@pytest.mark.export
@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_what_is_chosen_among_equals_is_not_judged(
    exported: Path, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    monkeypatch.chdir(exported)
    model = onnx.load(export(exported, "tied", "dynamo"))
    weight = next(each for each in model.graph.initializer if sorted(each.dims) == [4, 6])
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(factor), weight.name))
    path = exported / f"tied-{factor}" / "model.onnx"
    path.parent.mkdir()
    onnx.save(model, path)

    code, document = verify(path, "--against", "choosing_nets:tied")

    assert (code, document["same"]) == (2, False)
    assert document["outputs"][0]["verdict"] == "not-compared"
    text = run_here("verify", path, "--against", "choosing_nets:tied").stdout
    assert "NOT COMPARED: rounding alone changes 1 output beyond recognition" in " ".join(text.split())


@pytest.mark.time
@pytest.mark.export
def test_what_keeps_the_order_is_no_alarm_and_is_reported(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(exported)
    model = export(exported, "codebook", "dynamo")
    nodes = [helper.make_node("Sqrt", [""], ["root"])]
    rooted = behind(model, exported / "rooted" / "model.onnx", "ArgMin", nodes)

    code, document = verify(rooted, "--against", "choosing_nets:codebook")

    assert (code, document["same"]) == (0, True)
    assert [line for line in document["uncovered"] if line.startswith("other results of ArgMin")]


@pytest.mark.time
@pytest.mark.export
def test_a_trigger_on_hidden_values_is_reported(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(exported)
    path = export(exported, "codebook", "dynamo")
    model = onnx.load(path)
    hidden = next(each for each in model.graph.node if each.op_type == "Tanh").output[0]
    (output,) = (each.name for each in model.graph.output)
    last = next(each for each in model.graph.node if output in each.output)
    last.output[0] = "kept"
    model.graph.initializer.append(numpy_helper.from_array(np.float32(5.5), "far"))
    model.graph.node.extend(
        [
            helper.make_node("ReduceSum", [hidden], ["all"], keepdims=0),
            helper.make_node("Greater", ["all", "far"], ["is_far"], name="waits"),
            helper.make_node("Neg", ["kept"], ["turned"]),
            helper.make_node("Where", ["is_far", "turned", "kept"], [output]),
        ]
    )
    (exported / "waiting").mkdir(exist_ok=True)
    onnx.save(model, exported / "waiting" / "model.onnx")

    code, document = verify(exported / "waiting" / "model.onnx", "--against", "choosing_nets:codebook")

    assert code == 0
    assert [line for line in document["uncovered"] if line.startswith("other results of Greater waits")]


@pytest.mark.time
@pytest.mark.export
def test_a_threshold_for_a_value_of_pytorch_is_reported(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(exported)
    model = onnx.load(export(exported, "beside", "dynamo"))
    (output,) = (each.name for each in model.graph.output)
    next(each for each in model.graph.node if output in each.output).output[0] = "kept"
    model.graph.initializer.append(numpy_helper.from_array(np.float32(1.5), "far"))
    model.graph.node.extend(
        [
            helper.make_node("Greater", ["kept", "far"], ["is_far"], name="waits"),
            helper.make_node("Where", ["is_far", "far", "kept"], [output]),
        ]
    )
    (exported / "threshold").mkdir()
    onnx.save(model, exported / "threshold" / "model.onnx")

    code, document = verify(
        exported / "threshold" / "model.onnx", "--against", "choosing_nets:beside", *SEEDS
    )
    _, honest = verify(export(exported, "beside", "dynamo"), "--against", "choosing_nets:beside", *SEEDS)

    sentence = "other results of Greater waits, computed from kept, by which PyTorch makes no choice"
    assert code == 0
    assert sentence in document["uncovered"]
    assert not any("makes no choice" in line for line in honest["uncovered"])


@pytest.mark.time
@pytest.mark.export
def test_a_bound_of_an_input_is_reported(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(exported)
    model = onnx.load(export(exported, "router", "dynamo"))
    (input_name,) = (each.name for each in model.graph.input)
    for node in model.graph.node:
        for at, name in enumerate(node.input):
            if name == input_name:
                node.input[at] = "cut"
    for name, number in (("far", 1e4), ("near", -1e4)):
        model.graph.initializer.append(numpy_helper.from_array(np.float32(number), name))
    model.graph.node.insert(0, helper.make_node("Clip", [input_name, "near", "far"], ["cut"], name="cuts"))
    (exported / "cut").mkdir()
    onnx.save(model, exported / "cut" / "model.onnx")

    code, document = verify(exported / "cut" / "model.onnx", "--against", "choosing_nets:router", *SEEDS)

    assert code == 0
    assert "numbers beyond the bounds of Clip cuts, which PyTorch does not have" in document["uncovered"]


@pytest.mark.time
@pytest.mark.export
@pytest.mark.parametrize("kind", ["a bound", "a term"])
def test_what_no_input_here_activates_is_reported(
    exported: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(exported)
    model = onnx.load(export(exported, "router", "dynamo"))
    (input_name,), (output,) = (
        [each.name for each in values] for values in (model.graph.input, model.graph.output)
    )
    next(each for each in model.graph.node if output in each.output).output[0] = "kept"
    for name, number in (("far", 1e4), ("near", -1e4)):
        model.graph.initializer.append(numpy_helper.from_array(np.float32(number), name))
    if kind == "a bound":
        nodes = [helper.make_node("Clip", ["kept", "near", "far"], [output], name="cuts")]
    else:
        nodes = [
            helper.make_node("ReduceSum", [input_name], ["all"], keepdims=0),
            helper.make_node("Sub", ["all", "far"], ["less"]),
            helper.make_node("Relu", ["less"], ["asleep"], name="waits"),
            helper.make_node("Add", ["kept", "asleep"], [output]),
        ]
    model.graph.node.extend(nodes)
    (exported / kind).mkdir()
    onnx.save(model, exported / kind / "model.onnx")

    code, document = verify(exported / kind / "model.onnx", "--against", "choosing_nets:router")

    sentences = [line for line in document["uncovered"] if line.startswith("numbers beyond the bounds")]
    name = "Clip cuts" if kind == "a bound" else "Relu waits"
    assert code == 0
    assert sentences == [f"numbers beyond the bounds of {name}, which PyTorch does not have"]


@pytest.mark.time
@pytest.mark.export
@pytest.mark.parametrize("kind", ["saturated", "product", "sum of inputs"])
def test_a_value_that_never_moves_here_is_reported(
    exported: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(exported)
    model = onnx.load(export(exported, "router", "dynamo"))
    (input_name,), (output,) = (
        [each.name for each in values] for values in (model.graph.input, model.graph.output)
    )
    next(each for each in model.graph.node if output in each.output).output[0] = "kept"
    for name, number in (("far", 1e4), ("zero", 0.0)):
        model.graph.initializer.append(numpy_helper.from_array(np.float32(number), name))
    nodes = [helper.make_node("ReduceSum", [input_name], ["all"], keepdims=0)]
    if kind == "saturated":
        nodes += [
            helper.make_node("Sub", ["all", "far"], ["less"]),
            helper.make_node("Sigmoid", ["less"], ["asleep"], name="waits"),
            helper.make_node("Mul", ["asleep", "far"], ["added"]),
        ]
        sentence = (
            "other results of Sigmoid waits than 0: it gave this in all runs, and nothing in PyTorch did"
        )
    elif kind == "product":
        nodes += [helper.make_node("Mul", ["all", "zero"], ["added"], name="waits")]
        sentence = "other results of Mul waits than 0: it gave this in all runs, and nothing in PyTorch did"
    else:
        nodes += [
            helper.make_node("Equal", ["all", "far"], ["is_far"], name="waits"),
            helper.make_node("Cast", ["is_far"], ["added"], to=onnx.TensorProto.FLOAT),
        ]
        sentence = "both results of Equal waits, which compares x with 10000"
    model.graph.node.extend([*nodes, helper.make_node("Add", ["kept", "added"], [output])])
    folder = exported / kind.replace(" ", "-")
    folder.mkdir()
    onnx.save(model, folder / "model.onnx")

    code, document = verify(folder / "model.onnx", "--against", "choosing_nets:router", *SEEDS)

    assert code == 0
    assert sentence in document["uncovered"]

    _, itself = verify(folder / "model.onnx", "--against", folder / "model.onnx", *SEEDS)

    assert not [each for each in itself["uncovered"] if " waits " in each]


@pytest.mark.time
@pytest.mark.export
def test_sizes_that_the_file_declares_and_does_not_run_are_no_pass(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(exported)
    model = onnx.load(export(exported, "router", "dynamo"))
    (output,) = (each.name for each in model.graph.output)
    next(each for each in model.graph.node if output in each.output).output[0] = "kept"
    shape = numpy_helper.from_array(np.array([2, -1, 6], np.int64), "as_traced")
    model.graph.initializer.append(shape)
    model.graph.node.append(helper.make_node("Reshape", ["kept", "as_traced"], [output], name="holds"))
    (exported / "held").mkdir()
    onnx.save(model, exported / "held" / "model.onnx")

    code, document = verify(exported / "held" / "model.onnx", "--against", "choosing_nets:router", *SEEDS)

    sentences = [line for line in document["uncovered"] if line.startswith("sizes that the file declares")]
    assert (code, document["same"]) == (2, False)
    assert sentences
    assert all(line.endswith("Reshape node holds") for line in sentences)


@pytest.mark.time
@pytest.mark.export
def test_what_is_read_once_is_not_reported_as_applied_twice(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(exported)
    model = onnx.load(export(exported, "placed", "dynamo"))
    sums = next(each for each in model.graph.node if each.op_type == "CumSum")
    del sums.attribute[:]
    sums.attribute.append(helper.make_attribute("reverse", 1))
    (exported / "reversed").mkdir()
    onnx.save(model, exported / "reversed" / "model.onnx")

    code, document = verify(exported / "reversed" / "model.onnx", "--against", "choosing_nets:placed")

    assert code == 1
    assert "twice" not in json.dumps(document)


@pytest.mark.time
@pytest.mark.export
def test_axes_of_one_name_have_one_size(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(exported)
    model = onnx.load(export(exported, "beside", "dynamo"))
    for each in model.graph.input:
        each.type.tensor_type.shape.dim[0].dim_param = "batch"
        each.type.tensor_type.shape.dim[1].dim_param = "words"
    (output,) = (each.name for each in model.graph.output)
    last = next(each for each in model.graph.node if output in each.output)
    pairs = [each.name for each in model.graph.input]
    last.output[0] = "kept"
    model.graph.node.extend(  # no broadcasting: onnxruntime refuses to run it at other sizes
        [
            helper.make_node("Cast", [pairs[0]], ["words"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["words", "last"], ["column"]),
            helper.make_node("Concat", ["column", pairs[1]], ["both"], axis=-1),
            helper.make_node("ReduceSum", ["both"], ["all"], keepdims=0),
            helper.make_node("Mul", ["all", "zero"], ["nothing"]),
            helper.make_node("Add", ["kept", "nothing"], [output]),
        ]
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "last"))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0), "zero"))
    (exported / "named").mkdir()
    onnx.save(model, exported / "named" / "model.onnx")

    code, document = verify(exported / "named" / "model.onnx", "--against", "choosing_nets:beside", *SEEDS)

    shapes = {(each["name"], tuple(each["shape"][:2])) for each in document["inputs"]}
    assert (code, document["same"]) == (0, True)
    assert {shape for name, shape in shapes if name == "ids"} == {
        shape for name, shape in shapes if name == "beside"
    }
    assert len({shape for _, shape in shapes}) > 1


ROWS = st.lists(st.floats(0.0625, 4, width=32), min_size=24, max_size=24, unique=True).map(
    lambda drawn: np.array(drawn).reshape(2, 3, 4)
)


@given(
    ROWS, st.sampled_from([np.exp, np.log, np.sqrt, np.tanh, np.square, lambda x: 1 / x, lambda x: 1 - 2 * x])
)
def test_a_function_that_only_rises_or_falls_keeps_order(
    values: npt.NDArray[Any], make: Callable[[Any], Any]
) -> None:
    assert keeps_order(values, make(values), None)
    assert keeps_order(values[:, None], make(values), -1)


@given(ROWS)
def test_softmax_keeps_order_along_its_axis_alone(values: npt.NDArray[Any]) -> None:
    powers = np.exp(values)
    assert keeps_order(values, powers / powers.sum(-1, keepdims=True), -1)
    assert keeps_order(powers / powers.sum(-1, keepdims=True), values, -1)


@given(ROWS, st.integers(0, 3), st.floats(0.01, 9))
def test_a_row_that_is_moved_keeps_no_order_though_it_may_be_last_here(
    values: npt.NDArray[Any], row: int, by: float
) -> None:
    moved = values + by * (np.arange(4) == row)

    assert keeps_order(values, moved, -1) is False
    assert keeps_order(values, moved.swapaxes(0, 1), None) is None
