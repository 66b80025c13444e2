"""A described graph -> the program that onnxruntime makes of it before anything is optimized.

Even with optimizations off, a session turns CastLike into Cast, takes away Casts that the next undoes, and gives each
reader of a DequantizeLinear one of its own. What it adds stands behind all other nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from analyzer.cost.memory.steps import Program, Step, Value
from analyzer.model.dtypes import DType
from analyzer.read.described import Described, DescribedNode, DescribedValue

_BYTE = 8


def as_it_stands(described: Described) -> Program:
    """Return the program of a graph that nobody changes any more, as onnxruntime has written it."""
    return Program(
        steps=tuple(map(_step, described.nodes)),
        values=_values(described),
        inputs=tuple(described.inputs),
        initializers=frozenset(described.tensors),
        outputs=described.outputs,
    )


def as_loaded(described: Described) -> Program:
    """Return the program that a session with optimizations off makes of a graph."""
    program = as_it_stands(described)
    steps = list(program.steps)
    steps = _with_casts(steps)
    steps = _without_round_trips(steps, program)
    steps, values = _with_own_dequantizers(steps, program)
    return replace(program, steps=tuple(steps), values={**program.values, **values})


def _step(node: DescribedNode) -> Step:
    return Step(node.op_type, node.domain, node.inputs, node.outputs, node.implicit, node.name)


def _values(described: Described) -> Mapping[str, Value]:
    values = {name: _value(value) for name, value in described.values.items()}
    for name, tensor in described.tensors.items():
        values[name] = _value(DescribedValue(tensor.dtype, tensor.dims))
    return values


def _value(value: DescribedValue) -> Value:
    dtype = DType.from_onnx(value.dtype)
    is_string = dtype is DType.STRING
    nbytes = 32 if is_string else max(1, dtype.bits // _BYTE) if dtype.bits else 0
    return Value(nbytes, value.dims, value.is_tensor, is_string, value.dtype)


def _with_casts(steps: Sequence[Step]) -> list[Step]:
    """CastLike has no kernel: its function, one Cast, is put in its place."""
    is_like = [step.op_type == "CastLike" and not step.domain for step in steps]
    kept = [step for step, like in zip(steps, is_like, strict=True) if not like]
    made = [
        replace(step, op_type="Cast", inputs=step.inputs[:1], name="")
        for step, like in zip(steps, is_like, strict=True)
        if like
    ]
    return [*kept, *made]


def _without_round_trips(steps: Sequence[Step], program: Program) -> list[Step]:
    """Casts whose readers are all Casts back to the type that was cast: neither is needed."""
    readers: dict[str, list[int]] = defaultdict(list)
    for index, step in enumerate(steps):
        for name in (*step.inputs, *step.implicit):
            readers[name].append(index)
    gone: set[int] = set()
    instead: dict[str, str] = {}
    outputs = frozenset(program.outputs)
    for index, step in enumerate(steps):
        if index in gone or not _is_cast(step) or step.outputs[0] in outputs:
            continue
        following = readers[step.outputs[0]]
        source = instead.get(step.inputs[0], step.inputs[0])
        if following and all(_undoes(steps[each], source, program) for each in following):
            gone |= {index, *following}
            instead.update((steps[each].outputs[0], source) for each in following)
    return [
        replace(step, inputs=tuple(instead.get(name, name) for name in step.inputs))
        for index, step in enumerate(steps)
        if index not in gone
    ]


def _is_cast(step: Step) -> bool:
    return step.op_type == "Cast" and not step.domain and len(step.outputs) == 1


def _undoes(step: Step, source: str, program: Program) -> bool:
    """Whether it is a Cast whose output has the type of the source, and is no output of the graph."""
    if not _is_cast(step) or step.outputs[0] in program.outputs:
        return False
    a, b = program.values.get(source), program.values.get(step.outputs[0])
    return a is not None and b is not None and a.dtype == b.dtype


def _with_own_dequantizers(steps: Sequence[Step], program: Program) -> tuple[list[Step], Mapping[str, Value]]:
    """Of each DequantizeLinear a copy for every reader but the first, or for all where it is an output as well."""
    readers: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, step in enumerate(steps):
        for place, name in enumerate(step.inputs):
            readers[name].append((index, place))
    held = Counter(name for step in steps for name in step.implicit)
    changed = list(steps)
    values: dict[str, Value] = {}
    for step in steps:
        if step.op_type != "DequantizeLinear" or any(x not in program.initializers for x in step.inputs[1:]):
            continue
        name = step.outputs[0]
        is_kept = name in program.outputs or held[name] > 0
        for number, (index, place) in enumerate(readers[name] if is_kept else readers[name][1:]):
            own = f"{name}\0{number}"
            changed.append(replace(step, outputs=(own,), name=f"{step.name}/duplicated"))
            reader = changed[index]
            inputs = (*reader.inputs[:place], own, *reader.inputs[place + 1 :])
            changed[index] = replace(reader, inputs=inputs)
            if name in program.values:
                values[own] = program.values[name]
    return changed, values
