"""What is known of a value before anything runs: its type, its sizes, and the numbers of small ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from analyzer.cost.algebra import Hidden, Poly, Size, largest, product, symbol
from analyzer.model import Node
from analyzer.model.dtypes import DType
from analyzer.records import Frozen, Mutable, field

MOST = 1024
"""Numbers of a value that are followed, as shapes are made of few."""

MOST_AXES = 1024
"""Axes of a value whose sizes are followed, of which tensors have a handful."""

Element: TypeAlias = "int | float | Poly"


class Value(Frozen):
    """A value of the graph."""

    dtype: DType
    shape: tuple[Size, ...] | None
    """None where not even the rank is known."""
    data: tuple[Element, ...] | None = None
    """Its numbers in row-major order, where they are few and known."""
    why: str = ""
    """What keeps its shape from being known."""
    is_stored: bool = False
    """Whether the file holds it."""
    bits: int | None = None
    """Of an element as it is stored, where that is not what its type says."""
    fill: Element | None = None
    """The number that each of its elements is, where that is known, however many they are."""
    items: tuple[Value, ...] | None = None
    """Of a sequence, the tensors in it, where they are known."""
    each: Value | None = None
    """Of a sequence, what each tensor in it is, where they are alike."""

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def numel(self) -> Size | None:
        """How many elements it has."""
        return None if self.shape is None else product(self.shape)

    @property
    def constant(self) -> Element | None:
        """The number that each of its elements is; None where they differ, or nobody knows."""
        if self.data:
            return self.data[0] if len(set(self.data)) == 1 else None
        return self.fill

    @property
    def nbytes(self) -> Size | None:
        """Bytes that its elements take."""
        count = self.numel
        if count is None:
            return None
        bits = self.dtype.bits
        if isinstance(count, int):
            return self.dtype.nbytes(count)
        return product((count, bits // 8)) if bits % 8 == 0 else None


NOTHING = Value(DType.UNDEFINED, None)
"""An optional input that is left out."""


class UnshapedError(Exception):
    """The shape of what a node makes cannot be known; the text says why."""


class Step(Mutable):
    """One node with what it reads, as a rule sees it."""

    node: Node
    inputs: tuple[Value, ...]
    opset: int
    given: Mapping[str, object] = field(default_factory=dict)
    """Attributes of the caller, in the body of a function."""
    fresh: Callable[[str], Poly] = field(default=lambda reason: symbol(Hidden("unknown", reason)))
    """Makes a size that only running tells."""
    meet: Callable[[Size, Size], Size] = largest
    """What two sizes make that meet in one axis, where neither is known to be 1."""
    attached: Mapping[str, Value] = field(default_factory=dict)
    """Tensors in its attributes, by name."""

    def has(self, slot: int) -> bool:
        """Whether an input is there."""
        return slot < len(self.inputs) and self.inputs[slot] is not NOTHING

    def value(self, slot: int) -> Value:
        """An input.

        Raises:
            UnshapedError: it is left out.
        """
        if not self.has(slot):
            raise UnshapedError(f"input {slot} is left out")
        return self.inputs[slot]

    def shape(self, slot: int) -> tuple[Size, ...]:
        """The sizes of an input.

        Raises:
            UnshapedError: not even its rank is known.
        """
        value = self.value(slot)
        if value.shape is None:
            raise UnshapedError(value.why or f"the rank of input {slot} is not known")
        return value.shape

    def broadcast(self, shapes: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
        """The shape that several have together (ONNX docs/Broadcasting.md); a size beside an unequal one is 1."""
        rank = max(map(len, shapes), default=0)
        result: list[Size] = []
        for place in range(-rank, 0):
            dims = [shape[place] for shape in shapes if -place <= len(shape)]
            numbers = [dim for dim in dims if isinstance(dim, int) and dim != 1]
            named = list(dict.fromkeys(dim for dim in dims if not isinstance(dim, int)))
            if numbers or not named:
                result.append(numbers[0] if numbers else 1)
                continue
            size: Size = named[0]
            for other in named[1:]:
                size = self.meet(size, other)
            result.append(size)
        return tuple(result)

    def sizes(self, slot: int) -> tuple[Size, ...] | None:
        """The numbers of an input that says sizes or axes; None where they are not known."""
        value = self.inputs[slot] if self.has(slot) else NOTHING
        return sizes_of(value)

    def setting(self, name: str) -> object:
        """An attribute, the caller's where a function hands it on; None where there is none."""
        if name in self.node.integers:
            return self.node.integers[name]
        found: object = self.node.settings.get(name)
        if isinstance(found, str) and found.startswith("@"):
            return self.given.get(found[1:])
        return found

    def number(self, name: str, default: int) -> int:
        """A whole-number attribute.

        Raises:
            UnshapedError: it is infinite, or no number.
        """
        found = self.setting(name)
        return _whole(name, found) if isinstance(found, (int, float)) else default

    def real(self, name: str, default: float) -> float:
        """A number."""
        found = self.setting(name)
        return float(found) if isinstance(found, (int, float)) else default

    def text(self, name: str, default: str) -> str:
        """A text."""
        found = self.setting(name)
        return found if isinstance(found, str) else default

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """A list of whole numbers; None where there is none.

        Raises:
            UnshapedError: one is infinite, or no number.
        """
        found = self.setting(name)
        if isinstance(found, tuple) and all(isinstance(each, (int, float)) for each in found):
            return tuple(_whole(name, each) for each in found)
        return None

    def named(self) -> Mapping[str, object]:
        """All attributes, as the body of a function sees them."""
        names = (*self.node.integers, *self.node.settings)
        return {name: self.setting(name) for name in names}


def _whole(name: str, number: float) -> int:
    if not math.isfinite(number):
        raise UnshapedError(f"attribute {name} is no whole number")
    return int(number)


Rule: TypeAlias = "Callable[[Step], Sequence[Value]]"
"""What a node makes of what it reads."""


def scalar(dtype: DType, number: Element) -> Value:
    """A value of one number, without axes."""
    return Value(dtype, (), (number,))


def sizes_of(value: Value) -> tuple[Size, ...] | None:
    """The numbers of a value as whole numbers; None where they are not known, or have fractions."""
    if value.data is None:
        return None
    if any(isinstance(each, float) and not each.is_integer() for each in value.data):
        return None
    return tuple(int(each) if isinstance(each, float) else each for each in value.data)
