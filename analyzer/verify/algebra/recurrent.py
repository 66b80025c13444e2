"""Recurrent layers, step by step: PyTorch's `lstm`, `gru` and `rnn_*`, and ONNX's LSTM, GRU and RNN.

Sizes are known here, so a layer is unrolled over its sequence. Gates are in PyTorch's order (torch.nn.LSTM: input,
forget, cell, output; torch.nn.GRU: reset, update, new); those of ONNX (docs/Operators.md) are reordered to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from analyzer.records import Frozen
from analyzer.verify.algebra.values import Algebra, UnknownError, Value, number, shape_of

_MOST_STEPS = 1 << 12
"""Largest number of steps of a sequence."""


class Cell(Frozen):
    """The weights of one direction of one layer, (gates x hidden) x columns each."""

    input_weight: Value
    """Weight of the input."""
    hidden_weight: Value
    """Weight of the hidden state."""
    input_bias: Value | None = None
    hidden_bias: Value | None = None
    projection: Value | None = None
    """Weight of an LSTM's projection of its hidden state, projection x hidden."""


Activation = Callable[[Algebra, Value], Value]
"""An elementwise function, as of a gate."""
State = tuple[Value, ...]
"""Hidden state, batch x hidden; for an LSTM also the cell state."""
Step = Callable[[Algebra, Value, State, Cell], State]
"""Input of batch x columns, and state -> next state."""


def activation(name: str) -> Activation:
    """Return the function of this name."""
    return lambda a, value: a.function(name, value)


SIGMOID, TANH, RELU = map(activation, ("sigmoid", "tanh", "relu"))


def linear(a: Algebra, value: Value, weight: Value, bias: Value | None) -> Value:
    """Compute value @ weight.T + bias."""
    found: Value = a.matmul(value, a.permute(weight, (1, 0)))
    return found if bias is None else a.add(found, bias)


def gates(a: Algebra, value: Value, count: int, axis: int = -1) -> list[Value]:
    """Split an axis into equal parts.

    Raises:
        UnknownError: the axis has no such parts.
    """
    shape = shape_of(value)
    size, rest = divmod(shape[axis], count)
    if rest:
        raise UnknownError(f"{count} gates in {shape[axis]} numbers")
    return [_cut(a, value, at * size, (at + 1) * size, axis) for at in range(count)]


def lstm_step(gate: Activation = SIGMOID, inner: Activation = TANH, outer: Activation = TANH) -> Step:
    """Return a step of an LSTM (Hochreiter and Schmidhuber 1997) with the functions of gates, cell and hidden state."""

    def step(a: Algebra, value: Value, state: State, cell: Cell) -> State:
        hidden, cell_state = state
        gate_inputs = a.add(
            linear(a, value, cell.input_weight, cell.input_bias),
            linear(a, hidden, cell.hidden_weight, cell.hidden_bias),
        )
        input_gate, forget_gate, candidate, output_gate = gates(a, gate_inputs, 4)
        forget_gate, input_gate, output_gate = (
            gate(a, each) for each in (forget_gate, input_gate, output_gate)
        )
        cell_state = a.add(a.multiply(forget_gate, cell_state), a.multiply(input_gate, inner(a, candidate)))
        hidden = a.multiply(output_gate, outer(a, cell_state))
        return hidden if cell.projection is None else linear(a, hidden, cell.projection, None), cell_state

    return step


def gru_step(gate: Activation = SIGMOID, inner: Activation = TANH, *, resets_after: bool = True) -> Step:
    """Return a step of a GRU (Cho et al. 2014); reset applies after (PyTorch) or before the hidden state's product."""

    def step(a: Algebra, value: Value, state: State, cell: Cell) -> State:
        (hidden,) = state
        from_input = gates(a, linear(a, value, cell.input_weight, cell.input_bias), 3)
        from_hidden = gates(a, linear(a, hidden, cell.hidden_weight, cell.hidden_bias), 3)
        reset, update = (gate(a, a.add(from_input[at], from_hidden[at])) for at in range(2))
        if resets_after:
            reset_product = a.multiply(reset, from_hidden[2])
        else:
            weight = gates(a, cell.hidden_weight, 3, 0)[2]
            bias = None if cell.hidden_bias is None else gates(a, cell.hidden_bias, 3)[2]
            reset_product = linear(a, a.multiply(reset, hidden), weight, bias)
        candidate = inner(a, a.add(from_input[2], reset_product))
        return (a.add(a.multiply(a.subtract(number(1), update), candidate), a.multiply(update, hidden)),)

    return step


def rnn_step(function: Activation = TANH) -> Step:
    """Return a step of a plain recurrent layer (Elman 1990)."""

    def step(a: Algebra, value: Value, state: State, cell: Cell) -> State:
        (hidden,) = state
        from_input = linear(a, value, cell.input_weight, cell.input_bias)
        return (function(a, a.add(from_input, linear(a, hidden, cell.hidden_weight, cell.hidden_bias))),)

    return step


def run(
    a: Algebra, step: Step, value: Value, state: State, cell: Cell, *, backwards: bool
) -> tuple[Value, State]:
    """Run one direction of one layer; return its outputs, steps x batch x hidden, and the last state.

    Raises:
        UnknownError: there are no steps, or too many.
    """
    count, batch, columns = shape_of(value)
    if not 0 < count <= _MOST_STEPS:
        raise UnknownError(f"a recurrent layer of {count:,} steps")
    found: dict[int, Value] = {}
    for at in reversed(range(count)) if backwards else range(count):
        step_input = a.reshape(_cut(a, value, at, at + 1, 0), (batch, columns))
        state = step(a, step_input, state, cell)
        found[at] = a.reshape(state[0], (1, *shape_of(state[0])))
    return a.concat([found[at] for at in range(count)], 0), state


def layers(
    a: Algebra, step: Step, value: Value, states: Sequence[Value], cells: Sequence[Sequence[Cell]]
) -> tuple[Value, list[Value]]:
    """Run stacked layers, each with one or both directions.

    Args:
        a: the algebra.
        step: the step of a cell.
        value: steps x batch x columns.
        states: initial states, (layers x directions) x batch x hidden; two for an LSTM.
        cells: cells by layer and direction; the second direction runs backwards.

    Returns:
        The outputs, steps x batch x (directions x hidden), and the last states, in the form of `states`.

    Raises:
        UnknownError: there are no steps, or too many.
    """
    last: list[State] = []
    for directions in cells:
        found = []
        for backwards, cell in enumerate(directions):
            state = tuple(row(a, each, len(last)) for each in states)
            output, state = run(a, step, value, state, cell, backwards=bool(backwards))
            found.append(output)
            last.append(state)
        value = found[0] if len(found) == 1 else a.concat(found, 2)
    return value, [a.concat([*_rows(a, each)], 0) for each in zip(*last, strict=True)]


def _cut(a: Algebra, value: Value, start: int, stop: int, axis: int) -> Value:
    whole = [slice(None)] * len(shape_of(value))
    whole[axis] = slice(start, stop)
    return a.cut(value, whole)


def row(a: Algebra, value: Value, at: int) -> Value:
    """Return one index of the first axis, without that axis."""
    return a.reshape(_cut(a, value, at, at + 1, 0), shape_of(value)[1:])


def _rows(a: Algebra, values: Sequence[Value]) -> Iterator[Value]:
    return (a.reshape(each, (1, *shape_of(each))) for each in values)
