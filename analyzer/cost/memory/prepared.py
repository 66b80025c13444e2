"""A described graph -> the program that a session of onnxruntime makes of it before any optimization.

Even with optimizations off, a session turns CastLike into Cast, removes Casts that the next one undoes, and gives each
reader of a DequantizeLinear its own copy. Added nodes follow all others. `halves` adds the Casts around FLOAT16.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from analyzer.cost.memory.halves import INSERTED
from analyzer.cost.memory.order import default_order
from analyzer.cost.memory.steps import Program, Step, Value
from analyzer.model.dtypes import DType
from analyzer.read.described import Described, DescribedNode, DescribedValue
from analyzer.records import replace

_BYTE = 8


def as_it_stands(described: Described) -> Program:
    """Return the program of a graph that onnxruntime has written, which nothing changes any more."""
    return Program(
        steps=tuple(map(_step, described.nodes)),
        values=_values(described),
        inputs=tuple(described.inputs),
        initializers=frozenset(described.tensors),
        outputs=described.outputs,
    )


def as_loaded(described: Described) -> Program:
    """Return the program that a session with optimizations off makes of a graph."""
    program = _with_own_dequantizers(as_it_stands(described))
    steps = _without_round_trips(_with_casts(program.steps), program)
    return replace(program, steps=tuple(steps))


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
    """Replace CastLike, which has no kernel, with its function, one Cast."""
    is_like = [step.op_type == "CastLike" and not step.domain for step in steps]
    kept = [step for step, like in zip(steps, is_like, strict=True) if not like]
    made = [
        replace(step, op_type="Cast", inputs=step.inputs[:1], name="")
        for step, like in zip(steps, is_like, strict=True)
        if like
    ]
    return [*kept, *made]


def _without_round_trips(steps: Sequence[Step], program: Program) -> list[Step]:
    """Remove Casts as `RemoveDuplicateCastTransformer` does (insert_cast_transformer.cc).

    After a Cast that is lossless, or was inserted for FLOAT16, a Cast back to the original type is removed; the first
    Cast is removed too if only Casts read it.
    """
    kept: list[Step | None] = list(steps)
    types = {name: value.dtype for name, value in program.values.items()}
    readers: dict[str, list[int]] = defaultdict(list)
    for place, each in enumerate(steps):
        for name in (*each.inputs, *each.implicit):
            readers[name].append(place)
    outputs = frozenset(program.outputs)

    def rewire(index: int, old: str, new: str) -> None:
        reader = kept[index]
        if reader is not None:
            inputs = tuple(new if name == old else name for name in reader.inputs)
            implicit = tuple(new if name == old else name for name in reader.implicit)
            kept[index] = replace(reader, inputs=inputs, implicit=implicit)
            readers[new].append(index)

    for index in range(len(kept)):
        step = kept[index]
        if step is None or not _is_cast(step):
            continue
        (source,), (target,) = step.inputs, step.outputs
        before, after = types.get(source, 0), types.get(target, 0)
        if not before or not after:
            continue
        following = [(reader, other) for reader in readers[target] if (other := kept[reader]) is not None]
        casts = [(reader, other) for reader, other in following if _is_cast(other)]
        is_lossy = not _is_safe(before, after, step)
        if is_lossy and any(not _is_safe(types.get(other.outputs[0], 0), after, other) for _, other in casts):
            continue
        for reader, other in casts:
            result = other.outputs[0]
            if types.get(result) == before and result not in outputs:
                kept[reader] = None
                for behind in list(readers[result]):
                    rewire(behind, result, source)
        if following and len(casts) == len(following) and target not in outputs:
            kept[index] = None
            for reader, _ in casts:
                rewire(reader, target, source)
    return [step for step in kept if step is not None]


def _is_cast(step: Step) -> bool:
    return step.op_type == "Cast" and not step.domain and len(step.outputs) == 1


_WHOLE: Mapping[DType, tuple[int, bool]] = {
    DType.BOOL: (1, False),
    DType.UINT8: (8, False),
    DType.UINT16: (16, False),
    DType.UINT32: (32, False),
    DType.UINT64: (64, False),
    DType.INT8: (8, True),
    DType.INT16: (16, True),
    DType.INT32: (32, True),
    DType.INT64: (64, True),
}
"""Bits of integer types, and whether they are signed."""

_REAL: Mapping[DType, int] = {DType.FLOAT16: 16, DType.BFLOAT16: 16, DType.FLOAT: 32, DType.DOUBLE: 64}
"""Bits of floating-point types."""


def _is_safe(before: int, after: int, step: Step) -> bool:
    """Whether onnxruntime treats a Cast as lossless, as it does all Casts that it inserted for FLOAT16."""
    a, b = DType.from_onnx(before), DType.from_onnx(after)
    if not (a in _WHOLE or a in _REAL) or not (b in _WHOLE or b in _REAL):
        return False
    if a in _REAL:
        if b not in _REAL or {a, b} == {DType.FLOAT16, DType.BFLOAT16}:
            return False
        return _REAL[a] <= _REAL[b] or step.name.startswith(INSERTED)
    bits, is_signed = _WHOLE[a]
    if b in _REAL:
        return a is DType.BOOL or bits < _REAL[b]
    others, is_other = _WHOLE[b]
    if is_signed and not is_other and b is not DType.BOOL:
        return False
    if not is_signed and is_other and a is not DType.BOOL:
        return bits < others
    return bits <= others


def _with_own_dequantizers(program: Program) -> Program:
    """Copy each DequantizeLinear for all readers but the first; for all, if it is an output or nested graphs read it.

    This is `EnsureUniqueDQForNodeUnit` (ensure_unique_dq_for_node_unit.cc), which visits the nodes in run order.
    """
    steps = program.steps
    readers: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, step in enumerate(steps):
        for place, name in enumerate(step.inputs):
            readers[name].append((index, place))
    implicit_reads = Counter(name for step in steps for name in step.implicit)
    changed = list(steps)
    values: dict[str, Value] = {}
    for at in default_order(steps):
        step = steps[at]
        if step.op_type != "DequantizeLinear" or any(x not in program.initializers for x in step.inputs[1:]):
            continue
        name = step.outputs[0]
        is_kept = name in program.outputs or implicit_reads[name] > 0
        for number, (index, place) in enumerate(readers[name] if is_kept else readers[name][1:]):
            own = f"{name}\0{number}"
            changed.append(replace(changed[at], outputs=(own,), name=f"{step.name}/duplicated"))
            reader = changed[index]
            inputs = (*reader.inputs[:place], own, *reader.inputs[place + 1 :])
            changed[index] = replace(reader, inputs=inputs)
            if name in program.values:  # the shape of a copy is inferred from its input alone
                source = program.values.get(step.inputs[0])
                values[own] = replace(program.values[name], shape=None if source is None else source.shape)
    return replace(program, steps=tuple(changed), values={**program.values, **values})
