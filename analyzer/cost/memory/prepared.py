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
    """Without Casts that `RemoveDuplicateCastTransformer` takes away.

    Behind a Cast that loses nothing, one back to the type before it goes, and it goes itself where only Casts read it;
    behind one that loses something, a second to the same type goes.
    """
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
        source = instead.get(step.inputs[0], step.inputs[0])
        before, after = _dtype(source, program), _dtype(step.outputs[0], program)
        following = readers[step.outputs[0]]
        casts = [
            each for each in following if _is_cast(steps[each]) and steps[each].outputs[0] not in outputs
        ]
        is_exact = _is_exact(before, after)
        back = [
            each
            for each in casts
            if _dtype(steps[each].outputs[0], program) == (before if is_exact else after)
        ]
        if not after or not before:
            continue
        kept = source if is_exact else step.outputs[0]
        gone |= set(back)
        instead.update((steps[each].outputs[0], kept) for each in back)
        if is_exact and following and len(casts) == len(following):
            gone.add(index)
            instead[step.outputs[0]] = source
    return [
        replace(step, inputs=tuple(_end(instead, name) for name in step.inputs))
        for index, step in enumerate(steps)
        if index not in gone
    ]


def _end(instead: Mapping[str, str], name: str) -> str:
    while name in instead:
        name = instead[name]
    return name


def _is_cast(step: Step) -> bool:
    return step.op_type == "Cast" and not step.domain and len(step.outputs) == 1


def _dtype(name: str, program: Program) -> int:
    """The number of a value's type; 0 where nobody says it."""
    value = program.values.get(name)
    return 0 if value is None else value.dtype


_WHOLE: Mapping[DType, tuple[int, bool]] = {
    DType.BOOL: (1, False),
    DType.UINT8: (8, False),
    DType.UINT16: (16, False),
    DType.UINT32: (32, False),
    DType.UINT64: (64, False),
    DType.INT8: (7, True),
    DType.INT16: (15, True),
    DType.INT32: (31, True),
    DType.INT64: (63, True),
}
"""Bits of the largest whole number, and whether there are negative ones."""

_REAL: Mapping[DType, tuple[int, int]] = {
    DType.FLOAT16: (11, 5),
    DType.BFLOAT16: (8, 8),
    DType.FLOAT: (24, 8),
    DType.DOUBLE: (53, 11),
}
"""Bits of the digits, and of the exponent."""


def _is_exact(before: int, after: int) -> bool:
    """Whether a type holds each number of another."""
    a, b = DType.from_onnx(before), DType.from_onnx(after)
    if a is b:
        return True
    if a in _WHOLE and b in _WHOLE:
        (ours, is_signed), (others, is_other) = _WHOLE[a], _WHOLE[b]
        return ours <= others and (is_other or not is_signed)
    if a in _WHOLE and b in _REAL:
        return _WHOLE[a][0] <= _REAL[b][0]
    return a in _REAL and b in _REAL and all(x <= y for x, y in zip(_REAL[a], _REAL[b], strict=True))


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
