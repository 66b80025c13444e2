"""Weights of LSTM, GRU and RNN: gates in ONNX's order, all directions in one tensor.

ONNX docs/Operators.md: W is (directions, gates x hidden, input), with the gates iofc of LSTM and zrh of GRU. PyTorch's
documentation of torch.nn.LSTM and torch.nn.GRU: rows in the order i, f, g, o and r, z, n. ONNX's reference evaluator
on the stored tensors agrees with the textbook's formula on PyTorch's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from models import bridge_of, lines_of, manifest_of, noise, parameters_of, quantized, reconcile, text_model

from analyzer.model.content import Array
from analyzer.reconciliation import Reconciliation
from analyzer.recover import recover_state

both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

GATES = {"LSTM": "ifgo", "GRU": "rzn", "RNN": "h"}
STORED = {"LSTM": "iofg", "GRU": "zrn", "RNN": "h"}
"""Gates in ONNX's order, in the letters of PyTorch."""

HIDDEN, INPUT = 3, 5


def pytorch(
    op: str, directions: int = 1, *, width: int = INPUT, layer: int = 0, module: str = "rnn"
) -> dict[str, Array]:
    """Return the parameters of the torch.nn module, all different."""
    rows = len(GATES[op]) * HIDDEN
    found: dict[str, Array] = {}
    for index in range(directions):
        end = f"_l{layer}" + "_reverse" * index
        seed = 100 * layer + 10 * index
        found[f"{module}.weight_ih{end}"] = noise(rows, width, seed=seed)
        found[f"{module}.weight_hh{end}"] = noise(rows, HIDDEN, seed=seed + 1)
        found[f"{module}.bias_ih{end}"] = noise(rows, seed=seed + 2)
        found[f"{module}.bias_hh{end}"] = noise(rows, seed=seed + 3)
    return found


def in_order(op: str, array: Array) -> Array:
    """Return the rows of PyTorch's tensor in ONNX's order of gates."""
    gates = dict(zip(GATES[op], np.split(array, len(GATES[op])), strict=True))
    return np.concatenate([gates[gate] for gate in STORED[op]])


def stored(op: str, arrays: dict[str, Array], module: str = "rnn", layer: int = 0) -> dict[str, Array]:
    """Return W, R and B as an exporter writes them."""
    parts: dict[str, list[Array]] = {"W": [], "R": [], "B": []}
    for end in (f"_l{layer}", f"_l{layer}_reverse"):
        if f"{module}.weight_ih{end}" in arrays:
            turned = {
                part: in_order(op, arrays[f"{module}.{part}{end}"])
                for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            }
            parts["W"].append(turned["weight_ih"])
            parts["R"].append(turned["weight_hh"])
            parts["B"].append(np.concatenate([turned["bias_ih"], turned["bias_hh"]]))
    return {name: np.stack(found) for name, found in parts.items()}


def file_of(op: str, tensors: dict[str, Array]) -> onnx.ModelProto:
    directions = len(tensors["W"])
    how = f"hidden_size = {HIDDEN}" + (', direction = "bidirectional"' if directions == 2 else "")
    how += ", linear_before_reset = 1" if op == "GRU" else ""
    return text_model(
        f"""g (float[7,1,{INPUT}] x) => (float[7,{directions},1,{HIDDEN}] y) {{
            y = {op}<{how}>(x, W, R, B)
        }}""",
        tensors,
    )


def run(
    tmp_path,
    proto: onnx.ModelProto,
    arrays: dict[str, Array],
    content: Any = "full",
    *,
    at_hand: bool = False,
) -> Reconciliation:
    return reconcile(
        tmp_path, proto, manifest_of(*parameters_of(arrays)), content, arrays if at_hand else None
    )


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def last_state(op: str, arrays: dict[str, Array], steps: Array) -> Array:
    """Compute the last state by the formula of PyTorch's documentation."""
    w, r, b, c = (
        arrays[f"rnn.{part}_l0"].astype("f8") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    hidden, cell = np.zeros(HIDDEN), np.zeros(HIDDEN)
    for x in steps:
        mine = np.split(w @ x + b, len(GATES[op]))
        past = np.split(r @ hidden + c, len(GATES[op]))
        if op == "LSTM":
            i, f, g, o = (one + other for one, other in zip(mine, past, strict=True))
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
        elif op == "GRU":
            reset, update = sigmoid(mine[0] + past[0]), sigmoid(mine[1] + past[1])
            hidden = (1 - update) * np.tanh(mine[2] + reset * past[2]) + update * hidden
        else:
            hidden = np.tanh(mine[0] + past[0])
    return hidden


@pytest.mark.parametrize("op", sorted(GATES))
def test_gates_are_in_the_order_in_which_the_operator_computes_what_pytorch_does(op):
    arrays = pytorch(op)
    steps = noise(7, 1, INPUT, seed=50)

    with np.errstate(invalid="ignore"):  # BLAS may raise the flag for lanes that it does not use
        (found,) = onnx.reference.ReferenceEvaluator(file_of(op, stored(op, arrays))).run(None, {"x": steps})

    assert found.reshape(-1, HIDDEN)[-1] == pytest.approx(
        last_state(op, arrays, steps[:, 0].astype("f8")), abs=1e-5
    )


@both
@pytest.mark.parametrize(("content", "evidence"), [("sampled", "sampled"), ("full", "content")])
@pytest.mark.parametrize("op", sorted(GATES))
@pytest.mark.parametrize("directions", [1, 2])
def test_every_tensor_is_found_in_its_place(tmp_path, op, directions, content, evidence, at_hand):
    arrays = pytorch(op, directions)

    result = run(tmp_path, file_of(op, stored(op, arrays)), arrays, content, at_hand=at_hand)

    assert result.balanced
    assert sum(row.stored_delta for row in result.bridge) == 0
    assert {line.decided_by for line in result.parameters} == {f"{evidence}:gates"}
    assert {line.max_abs_error for line in result.parameters} == {0.0}
    assert {
        line.name.rpartition(".")[2].partition("_l")[0]: line.entries[0][1] for line in result.parameters
    } == {"weight_ih": "W", "weight_hh": "R", "bias_ih": "B", "bias_hh": "B"}


def codes_of(arrays: dict[str, Array]) -> dict[str, Array]:
    """Return W, R and B as onnxruntime's dynamic quantization does: codes of transposed weights, and float biases."""
    found = stored("LSTM", arrays)
    tensors: dict[str, Array] = {"B": found["B"]}
    for name in "WR":
        turned = np.ascontiguousarray(found[name].transpose(0, 2, 1))
        scales = np.abs(turned).max(axis=(1, 2)).astype("f4") / np.float32(127)
        tensors[name] = np.rint(turned / scales[:, None, None]).astype("i1")
        tensors[f"{name}s"], tensors[f"{name}z"] = scales, np.zeros(len(turned), "i1")
    return tensors


def file_of_codes(tensors: dict[str, Array]) -> onnx.ModelProto:
    directions = len(tensors["W"])
    how = f"hidden_size = {HIDDEN}" + (', direction = "bidirectional"' if directions == 2 else "")
    inputs = "x, W, R, B, , , , , Ws, Wz, Rs, Rz"
    return text_model(
        f"""g (float[7,1,{INPUT}] x) => (float[7,{directions},1,{HIDDEN}] y) {{
            y = com.microsoft.DynamicQuantizeLSTM<{how}>({inputs})
        }}""",
        tensors,
    )


@both
@pytest.mark.parametrize("directions", [1, 2])
def test_codes_of_a_dynamically_quantized_lstm_are_its_weights(tmp_path, directions, at_hand):
    arrays = pytorch("LSTM", directions)

    result = run(tmp_path, file_of_codes(codes_of(arrays)), arrays, at_hand=at_hand)

    assert result.balanced
    assert {line.line for line in result.parameters if "weight" in line.name} == {"quantized"}
    assert {line.entries[0][1] for line in result.parameters} == {"W", "R", "B"}


@both
@pytest.mark.parametrize("how", ["not turned", "directions exchanged", "gates exchanged", "other weights"])
def test_codes_that_stand_otherwise_are_others(tmp_path, how, at_hand):
    arrays = pytorch("LSTM", 2)
    tensors = codes_of(arrays)
    if how == "not turned":
        shape = tensors["W"].shape
        tensors["W"] = np.ascontiguousarray(tensors["W"].transpose(0, 2, 1)).reshape(shape)
    elif how == "directions exchanged":
        tensors |= {name: array[::-1].copy() for name, array in tensors.items() if name[0] == "W"}
    elif how == "gates exchanged":
        tensors["W"] = np.roll(tensors["W"], HIDDEN, axis=2)
    else:
        tensors = codes_of({name: noise(*array.shape, seed=777) for name, array in arrays.items()})

    assert not run(tmp_path, file_of_codes(tensors), arrays, at_hand=at_hand).balanced


def test_weights_of_a_dynamically_quantized_lstm_are_recovered_within_a_step(tmp_path):
    arrays = pytorch("LSTM")
    tensors = codes_of(arrays)

    recovery = recover_state(run(tmp_path, file_of_codes(tensors), arrays, at_hand=True))

    assert recovery.is_whole
    for tensor in recovery.tensors:
        values = np.concatenate(list(recovery.values(tensor.name))).reshape(tensor.shape)
        np.testing.assert_allclose(values, arrays[tensor.name], atol=float(tensors["Ws"].max()))


def test_lines_of_one_direction_are_reshaped_and_of_packed_ones_concatenated(tmp_path):
    arrays = pytorch("LSTM")

    result = run(tmp_path, file_of("LSTM", stored("LSTM", arrays)), arrays)

    assert bridge_of(result) == {"reshaped": (2, 96, 0, 0), "concatenated": (2, 24, 0, 0)}


@both
@pytest.mark.parametrize("name", ["W", "R", "B"])
@pytest.mark.parametrize("position", [0, 7, -1])
def test_one_changed_element_is_seen(tmp_path, name, position, at_hand):
    arrays = pytorch("LSTM", 2)
    tensors = stored("LSTM", arrays)
    flat = tensors[name].reshape(-1)
    flat[position] = np.nextafter(flat[position], np.float32(np.inf))

    result = run(tmp_path, file_of("LSTM", tensors), arrays, at_hand=at_hand)

    assert not result.balanced
    assert any(name in finding.subjects for finding in result.findings)


@both
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_gates_in_another_order_are_another_layer(tmp_path, op, at_hand):
    arrays = pytorch(op)
    tensors = stored(
        op, {name: np.concatenate(np.split(array, len(GATES[op]))[::-1]) for name, array in arrays.items()}
    )

    assert not run(tmp_path, file_of(op, tensors), arrays, at_hand=at_hand).balanced


@both
def test_gates_in_pytorchs_order_are_another_layer(tmp_path, at_hand):
    arrays = pytorch("LSTM")
    tensors = {**stored("LSTM", arrays), "W": arrays["rnn.weight_ih_l0"][None]}

    assert not run(tmp_path, file_of("LSTM", tensors), arrays, at_hand=at_hand).balanced


# tensors of one shape


@both
def test_input_and_hidden_weights_of_one_shape_are_not_each_other(tmp_path, at_hand):
    arrays = pytorch("GRU", width=HIDDEN)
    tensors = stored("GRU", arrays)
    swapped = {**tensors, "W": tensors["R"], "R": tensors["W"]}

    assert run(tmp_path, file_of("GRU", tensors), arrays, at_hand=at_hand).balanced
    assert not run(tmp_path, file_of("GRU", swapped), arrays, at_hand=at_hand).balanced


@both
def test_directions_are_not_each_other(tmp_path, at_hand):
    arrays = pytorch("LSTM", 2)
    tensors = {name: array[::-1].copy() for name, array in stored("LSTM", arrays).items()}

    assert not run(tmp_path, file_of("LSTM", tensors), arrays, at_hand=at_hand).balanced


@both
def test_biases_are_not_each_other(tmp_path, at_hand):
    """GRU adds one bias to the input, and the reset gate scales the other."""
    arrays = pytorch("GRU")
    tensors = stored("GRU", arrays)
    tensors["B"] = np.roll(tensors["B"], 3 * HIDDEN, axis=1)

    assert not run(tmp_path, file_of("GRU", tensors), arrays, at_hand=at_hand).balanced


def two_layers(swapped: str = "") -> tuple[onnx.ModelProto, dict[str, Array]]:
    arrays = pytorch("RNN", width=HIDDEN) | pytorch("RNN", width=HIDDEN, layer=1)
    one, other = stored("RNN", arrays), stored("RNN", arrays, layer=1)
    for name in swapped:
        one[name], other[name] = other[name], one[name]
    proto = text_model(
        f"""g (float[7,1,{HIDDEN}] x) => (float[7,1,1,{HIDDEN}] y) {{
            h = RNN<hidden_size = {HIDDEN}>(x, W0, R0, B0)
            s = Squeeze(h, axes)
            y = RNN<hidden_size = {HIDDEN}>(s, W1, R1, B1)
        }}""",
        {f"{name}{i}": array for i, tensors in enumerate((one, other)) for name, array in tensors.items()}
        | {"axes": np.array([1])},
    )
    return proto, arrays


@both
def test_layers_are_told_apart(tmp_path, at_hand):
    assert run(tmp_path, *two_layers(), at_hand=at_hand).balanced


@both
@pytest.mark.parametrize("swapped", ["R", "B"])
def test_operator_has_all_its_weights_of_one_layer(tmp_path, swapped, at_hand):
    assert not run(tmp_path, *two_layers(swapped), at_hand=at_hand).balanced


@both
def test_both_biases_of_an_operator_are_of_one_layer(tmp_path, at_hand):
    proto, arrays = two_layers()
    by_name = {tensor.name: tensor for tensor in proto.graph.initializer}
    one, other = (onnx.numpy_helper.to_array(by_name[name]).copy() for name in ("B0", "B1"))
    one[:, HIDDEN:], other[:, HIDDEN:] = other[:, HIDDEN:].copy(), one[:, HIDDEN:].copy()
    for name, array in (("B0", one), ("B1", other)):
        by_name[name].CopyFrom(onnx.numpy_helper.from_array(array, name))

    assert not run(tmp_path, proto, arrays, at_hand=at_hand).balanced


@both
def test_layer_of_one_hidden_number_is_found_too(tmp_path, at_hand):
    known = {"weight_ih_l0": (1, 5), "weight_hh_l0": (1, 1), "bias_ih_l0": (1,), "bias_hh_l0": (1,)}
    arrays = {f"rnn.{name}": noise(*shape, seed=i) for i, (name, shape) in enumerate(known.items())}
    proto = text_model("g (float[1] x) => (float[1] y) { y = RNN(x, W, R, B) }", stored("RNN", arrays))

    result = run(tmp_path, proto, arrays, at_hand=at_hand)

    assert result.balanced
    assert lines_of(result)["rnn.weight_ih_l0"] == "reshaped"


# stored in another type


@both
def test_weights_may_be_cast(tmp_path, at_hand):
    arrays = pytorch("LSTM")
    tensors = {name: array.astype("f2") for name, array in stored("LSTM", arrays).items()}
    changed = {name: array.copy() for name, array in tensors.items()}
    changed["W"][0, 1, 2] = np.nextafter(changed["W"][0, 1, 2], np.float16(np.inf))

    result = run(tmp_path, file_of("LSTM", tensors), arrays, at_hand=at_hand)

    assert result.balanced
    assert set(lines_of(result).values()) == {"cast"}
    assert not run(tmp_path, file_of("LSTM", changed), arrays, at_hand=at_hand).balanced


@both
def test_cast_weights_are_compared_whole(tmp_path, at_hand):
    arrays = {
        name: noise(120, *([40] if "weight" in name else []), seed=i)
        for i, name in enumerate(pytorch("LSTM"))
    }
    tensors = stored("LSTM", arrays)
    half = tensors["W"].astype("f2")
    half[0, 0, 1] = np.nextafter(half[0, 0, 1], np.float16(np.inf))
    proto = text_model("g (float[1] x) => (float[1] y) { y = LSTM(x, W, R, B) }", {**tensors, "W": half})

    result = run(tmp_path, proto, arrays, at_hand=at_hand)

    assert lines_of(result)["rnn.weight_ih_l0"] == "missing"
    assert lines_of(result)["rnn.weight_hh_l0"] == "reshaped"
    right = text_model(
        "g (float[1] x) => (float[1] y) { y = LSTM(x, W, R, B) }",
        {**tensors, "W": tensors["W"].astype("f2")},
    )
    cast = run(tmp_path, right, arrays, at_hand=at_hand).parameters[0]
    assert (cast.line.value, cast.decided_by, cast.max_abs_error) == ("cast", "content:gates", None)


@both
def test_weights_may_be_quantized(tmp_path, at_hand):
    arrays = pytorch("LSTM")
    tensors = stored("LSTM", arrays)
    nodes, codes = [], {"B": tensors["B"]}
    for name in ("W", "R"):
        codes |= quantized(name, tensors[name])
        nodes.append(f"{name} = DequantizeLinear({name}_quantized, {name}_scale, {name}_zero_point)")
    proto = text_model(f"g (float[1] x) => (float[1] y) {{ {' '.join(nodes)} y = LSTM(x, W, R, B) }}", codes)

    result = run(tmp_path, proto, arrays, at_hand=at_hand)

    assert {line.name: line.line.value for line in result.parameters if "weight" in line.name} == {
        "rnn.weight_ih_l0": "quantized",
        "rnn.weight_hh_l0": "quantized",
    }
    assert result.balanced


@both
def test_codes_of_a_large_layer_are_compared_where_its_values_are_known(tmp_path, at_hand):
    arrays = {
        name: noise(120, *([40] if "weight" in name else []), seed=i)
        for i, name in enumerate(pytorch("LSTM"))
    }
    tensors = stored("LSTM", arrays)
    codes = {"R": tensors["R"], "B": tensors["B"]} | quantized("W", tensors["W"])
    node = "W = DequantizeLinear(W_quantized, W_scale, W_zero_point)"
    proto = text_model(f"g (float[1] x) => (float[1] y) {{ {node} y = LSTM(x, W, R, B) }}", codes)

    found = run(tmp_path, proto, arrays, at_hand=at_hand).parameters[0]

    assert found.line.value == "quantized"
    assert found.decided_by == ("content:gates" if at_hand else "sampled:gates")
    assert found.compared == ("whole" if at_hand else "sampled")


@pytest.mark.parametrize("op", sorted(GATES))
@pytest.mark.parametrize("directions", [1, 2])
def test_every_tensor_is_given_back_as_pytorch_has_it(tmp_path, op, directions):
    arrays = pytorch(op, directions)

    recovery = recover_state(run(tmp_path, file_of(op, stored(op, arrays)), arrays))

    assert recovery.is_whole
    for name, array in arrays.items():
        values = np.concatenate([part.reshape(-1) for part in recovery.values(name)])
        assert values.tobytes() == array.tobytes(), name


# weights that are no match


@both
def test_weights_of_other_operators_are_not_taken_apart(tmp_path, at_hand):
    arrays = pytorch("LSTM")
    proto = text_model(
        "g (float[1] x) => (float[1] y) { y = MatMul(x, W) }", {"W": stored("LSTM", arrays)["W"]}
    )

    assert "missing" in lines_of(run(tmp_path, proto, arrays, at_hand=at_hand)).values()


def test_rows_that_no_gates_divide_are_left_alone(tmp_path):
    proto = text_model(
        "g (float[1] x) => (float[1] y) { y = LSTM(x, W, R) }", {"W": noise(1, 7, 5), "R": noise(1, 7, 3)}
    )

    assert not run(tmp_path, proto, pytorch("LSTM")).balanced


@both
def test_weights_of_no_directions_are_unexpected(tmp_path, at_hand: bool) -> None:
    arrays = {"rnn.weight_ih_l0": noise(3, INPUT)}
    empty = {"W": noise(0, HIDDEN, INPUT), "R": noise(0, HIDDEN, HIDDEN), "B": noise(0, 2 * HIDDEN)}

    found = run(tmp_path, file_of("RNN", empty), arrays, at_hand=at_hand)

    assert bridge_of(found) == {"missing": (1, 15, -15, -15), "unexpected": (3, 0, 0, 0)}


CELL = {
    "Neg": "Neg(s)",
    "Abs": "Abs(s)",
    "Mul": "Mul(s, s)",
    "TopK": "TopK(s, count)",
    "Slice": "Slice(s, last, first, zero, last)",
    "Gather": "Gather(s, rows)",
}
"""Operators that change a tensor of a cell before its gates are reordered."""


def sliced(part: str, change: str) -> onnx.ModelProto:
    """Return torch's LSTM as TorchScript writes it: nodes put each tensor's gates in ONNX's order."""
    lines = []
    for name, letter in (("weight_ih", "W"), ("weight_hh", "R"), ("bias_ih", "b"), ("bias_hh", "c")):
        made = change if name == part else "Identity(s)"
        places = f", {letter}_at" if made.startswith("TopK") else ""
        read = made.replace("(s", f"({letter}s").replace(", s)", f", {letter}s)")
        lines += [f'{letter}s = Identity("rnn.{name}")', f"{letter}0{places} = {read}"]
        lines += [
            f"{letter}i, {letter}f, {letter}g, {letter}o = Split<axis = 0>({letter}0)",
            f"{letter}1 = Concat<axis = 0>({letter}i, {letter}o, {letter}f, {letter}g)",
        ]
    lines += ["b2 = Concat<axis = 0>(b1, c1)"]
    lines += [f"{letter}3 = Unsqueeze({letter}{at}, zero)" for letter, at in (("W", 1), ("R", 1), ("b", 2))]
    rows = 4 * HIDDEN
    numbers = {
        "first": [-(2**62)],
        "last": [-1],
        "count": [{"weight_ih": INPUT, "weight_hh": HIDDEN}.get(part, rows)],
        "rows": [1, 0, *range(2, rows)],
    }
    constants = [
        f"int64[{len(each)}] {name} = {{{', '.join(map(str, each))}}}"
        for name, each in numbers.items()
        if name in change
    ]
    weights = {name.replace("_l0", ""): array for name, array in pytorch("LSTM").items()}
    return text_model(
        f"""g (float[7,1,{INPUT}] x) => (float[7,1,1,{HIDDEN}] y)
            <{", ".join(["int64[1] zero = {0}", *constants])}> {{
            {" ".join(lines)}
            y = LSTM<hidden_size = {HIDDEN}>(x, W3, R3, b3)
        }}""",
        weights,
    )


@pytest.mark.parametrize("part", ["weight_ih", "weight_hh", "bias_ih", "bias_hh"])
def test_what_a_node_makes_of_a_cells_tensor_is_another_tensor(tmp_path, part):
    arrays = {name.replace("_l0", ""): array for name, array in pytorch("LSTM").items()}

    lines_after = {
        name: lines_of(run(tmp_path, sliced(part, change), arrays)) for name, change in CELL.items()
    }

    assert {name: lines[f"rnn.{part}"] for name, lines in lines_after.items()} == dict.fromkeys(
        CELL, "differing"
    )
    assert all(list(lines.values()).count("differing") == 1 for lines in lines_after.values())


def test_codes_that_a_quantizer_writes_on_the_way_are_the_cells_own(tmp_path):
    """Static quantization leaves such codes, as it quantizes the output of every node."""
    arrays = {name.replace("_l0", ""): array for name, array in pytorch("LSTM").items()}

    def recoded(change: str) -> onnx.ModelProto:
        proto = sliced("weight_ih", change)
        for before in ("W1", "W3", "R1", "b3"):
            reader = next(node for node in proto.graph.node if before in node.input)
            place = list(proto.graph.node).index(reader)
            made = [
                onnx.helper.make_node("QuantizeLinear", [before, "step", "none"], [f"{before}q"]),
                onnx.helper.make_node("DequantizeLinear", [f"{before}q", "step", "none"], [f"{before}d"]),
            ]
            for node in reversed(made):
                proto.graph.node.insert(place, node)
            reader.input[:] = [f"{before}d" if name == before else name for name in reader.input]
        for name, value in (("step", np.float32(2**-6)), ("none", np.int8(0))):
            proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), name))
        return proto

    honest, negated = (lines_of(run(tmp_path, recoded(each), arrays)) for each in ("Identity(s)", "Neg(s)"))

    assert set(honest.values()) == {"identical"}
    assert negated["rnn.weight_ih"] == "differing"


def test_gates_that_nodes_put_in_order_and_biases_that_they_add_up_are_the_cells_own(tmp_path):
    arrays = {name.replace("_l0", ""): array for name, array in pytorch("LSTM").items()}
    plain, summed = sliced("bias_ih", "Identity(s)"), sliced("bias_ih", "Identity(s)")
    [joined] = [node for node in summed.graph.node if list(node.output) == ["b2"]]
    joined.input[:] = ["b4", "c4"]
    at = list(summed.graph.node).index(joined)
    summed.graph.node.insert(at, onnx.helper.make_node("Sub", ["c1", "c1"], ["c4"]))
    summed.graph.node.insert(at, onnx.helper.make_node("Add", ["b1", "c1"], ["b4"]))

    assert run(tmp_path, plain, arrays).balanced
    assert lines_of(run(tmp_path, summed, arrays))["rnn.bias_ih"] == "identical"
