"""A graph's steps in run order -> the buffers that onnxruntime allocates for their outputs, and their lifetimes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence

from analyzer.cost.memory.steps import Program, Reuses, Step, Value
from analyzer.records import Frozen, Mutable, field


class Buffer(Frozen):
    """Memory that is allocated once, for its first tenant, and freed after the last reader of its tenants."""

    tenants: tuple[str, ...]
    first: int
    """Position of its allocation, among the steps in run order."""

    last: int | None
    """Position after which it is freed; None if it lives on to the end of the run."""

    @property
    def owner(self) -> str:
        """Value whose size it has."""
        return self.tenants[0]


class Plan(Frozen):
    """Steps in run order, and buffers in the order of their allocation."""

    order: tuple[int, ...]
    """Positions in the program."""

    buffers: tuple[Buffer, ...]

    def live(self, position: int) -> tuple[Buffer, ...]:
        """Return the buffers that are live after a step."""
        return tuple(
            buffer
            for buffer in self.buffers
            if buffer.first <= position and (buffer.last is None or position <= buffer.last)
        )


def live_nbytes(plan: Plan, nbytes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the live bytes after each step.

    Args:
        plan: result of `plan_buffers`.
        nbytes: bytes of each buffer, by its owner.
    """
    changes = [0] * (len(plan.order) + 1)
    for buffer in plan.buffers:
        size = nbytes[buffer.owner]
        changes[buffer.first] += size
        if buffer.last is not None:
            changes[buffer.last + 1] -= size
    lives, total = [], 0
    for change in changes[:-1]:
        total += change
        lives.append(total)
    return tuple(lives)


def peak_at(lives: Sequence[int]) -> int | None:
    """Return the first position with the most live bytes; None where nothing runs."""
    return max(range(len(lives)), key=lives.__getitem__) if lives else None


def plan_buffers(program: Program, order: Sequence[int], reuses: Reuses) -> Plan:
    """Replay the planner of onnxruntime's sequential executor, `ComputeSingleStreamReusePlan`.

    An output of the graph always gets a new buffer. Any other value takes over the memory of an input if its kernel
    can; else the memory that was freed last and has the same element size and shape, as far as shapes are known without
    running; else it gets a new buffer.
    """
    planner = _Planner(program, tuple(order), reuses)
    planner.plan()
    return Plan(planner.order, tuple(planner.buffers()))


class _Planner(Mutable):
    program: Program
    order: tuple[int, ...]
    reuses: Reuses
    uses: Counter[str] = field(default_factory=Counter)
    """Number of remaining reads and writes of each buffer after the current step, by its owner."""

    original: dict[str, str] = field(default_factory=dict)
    """Owner of the buffer of each value."""

    freed: dict[Hashable, list[str]] = field(default_factory=dict)
    """Owners of buffers without remaining readers, by element size and shape; the last freed is last."""

    allocated: dict[str, int] = field(default_factory=dict)
    """Position of each buffer's allocation, by its owner."""

    def plan(self) -> None:
        self._count_uses()
        outputs = frozenset(self.program.outputs)
        for position, index in enumerate(self.order):
            step = self.program.steps[index]
            for number, name in enumerate(step.outputs):
                if name:
                    self._place(step, number, name, position, is_output=name in outputs)
            for name in (*step.inputs, *step.implicit, *step.outputs):
                if name:
                    self._drop(name)

    def _count_uses(self) -> None:
        protected = (*self.program.inputs, *self.program.initializers, *self.program.outputs)
        self.uses.update(protected)
        for step in self.program.steps:
            self.uses.update(name for name in (*step.inputs, *step.implicit, *step.outputs) if name)

    def _place(self, step: Step, number: int, name: str, position: int, *, is_output: bool) -> None:
        taken = None
        if not is_output:
            taken = self._input_buffer(step, number, name)
            if taken is None and self._value(name).is_tensor and self.uses[name] > 1:  # it has a reader
                taken = self._freed_buffer(name)
        if taken is None:
            self.original[name] = name
            self.allocated[name] = position
            return
        owner = self._owner(taken)
        self.original[name] = owner
        self.uses[owner] += self.uses[name]

    def _input_buffer(self, step: Step, number: int, name: str) -> str | None:
        for source, target in self.reuses.aliases.get(step.kernel, ()):
            if target == number and source < len(step.inputs) and step.inputs[source]:
                return step.inputs[source]
        for source, target in self.reuses.in_place.get(step.kernel, ()):
            if target != number or source >= len(step.inputs) or not step.inputs[source]:
                continue
            taken = step.inputs[source]
            if self.uses[self._owner(taken)] == 1 and self._value(taken).fits(self._value(name)):
                return taken
        return None

    def _freed_buffer(self, name: str) -> str | None:
        wanted = self._value(name)
        if not wanted.shape:  # unknown rank, or a scalar
            return None
        alike = self.freed.get(wanted.room)
        return alike.pop() if alike else None

    def _drop(self, name: str) -> None:
        owner = self._owner(name)
        self.uses[owner] -= 1
        if self.uses[owner] == 0 and (room := self._value(owner).room) is not None:
            self.freed.setdefault(room, []).append(owner)

    def _owner(self, name: str) -> str:
        return self.original.get(name, name)

    def _value(self, name: str) -> Value:
        return self.program.values.get(name, _UNKNOWN)

    def buffers(self) -> Iterator[Buffer]:
        """Yield the allocated buffers, each freed after the last step that reads one of its tenants."""
        tenants: dict[str, list[str]] = {owner: [] for owner in self.allocated}
        for name, owner in self.original.items():
            if owner in tenants:
                tenants[owner].append(name)
        last = {
            self._owner(name): position
            for position, index in enumerate(self.order)
            for name in (*self.program.steps[index].inputs, *self.program.steps[index].implicit)
            if name
        }
        kept = frozenset(self.program.outputs)
        for owner, first in self.allocated.items():
            yield Buffer(tuple(tenants[owner]), first, None if owner in kept else last.get(owner))


_UNKNOWN = Value(0, None)
"""Value without any inferred property, which fits no buffer."""
