"""Static knowledge of a value: its type, its sizes, and its numbers if they are few."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from analyzer.cost.algebra import Hidden, Poly, Size, largest, product, symbol
from analyzer.model import Node
from analyzer.model.dtypes import DType
from analyzer.records import Frozen, Mutable, field

MOST = 1024
"""Maximum number of elements that are followed, because shapes consist of few."""

MOST_AXES = 1024
"""Maximum number of axes that are followed; tensors have a handful."""

Element: TypeAlias = "int | float | Poly"


class Value(Frozen):
    """Value of the graph."""

    dtype: DType
    shape: tuple[Size, ...] | None
    """Sizes of the axes; None where not even the rank is known."""
    data: tuple[Element, ...] | None = None
    """Numbers in row-major order, if they are few and known."""
    why: str = ""
    """Reason why the shape is not known."""
    is_stored: bool = False
    """Whether the file holds it."""
    bits: int | None = None
    """Bits of an element as stored; None for a value that is not stored, or has no elements."""
    fill: Element | None = None
    """Number that all elements are, if known, however many there are."""
    items: tuple[Value, ...] | None = None
    """Tensors of a sequence, if known."""
    each: Value | None = None
    """Common type and shape of a sequence's tensors, if they have one."""

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def numel(self) -> Size | None:
        """Number of elements."""
        return None if self.shape is None else product(self.shape)

    @property
    def constant(self) -> Element | None:
        """Number that all elements are; None where they differ, or are not known."""
        if self.data:
            return self.data[0] if len(set(self.data)) == 1 else None
        return self.fill

    @property
    def nbytes(self) -> Size | None:
        """Size of the elements, in bytes."""
        count = self.numel
        if count is None:
            return None
        bits = self.dtype.bits
        if isinstance(count, int):
            return self.dtype.nbytes(count)
        return product((count, bits // 8)) if bits % 8 == 0 else None


NOTHING = Value(DType.UNDEFINED, None)
"""Omitted optional input."""


class UnshapedError(Exception):
    """Raised where the shape of an output cannot be known; the message is the reason."""


UNFIT = "the inputs do not fit each other"
"""Reason why a node cannot run."""


class MisfitError(UnshapedError):
    """Raised where a node cannot run with the sizes of its inputs; the message says what does not fit."""


def check_equal(a: Size, b: Size, what: str) -> None:
    """Check that two sizes are equal, as far as both are numbers.

    Raises:
        MisfitError: they differ.
    """
    if isinstance(a, int) and isinstance(b, int) and a != b:
        raise MisfitError(f"{what}: {a:,} and {b:,}")


class Step(Mutable):
    """A node with its inputs, as a rule sees it."""

    node: Node
    inputs: tuple[Value, ...]
    opset: int
    caller_attributes: Mapping[str, object] = field(default_factory=dict)
    """Attributes of the calling node, in the body of a function."""
    fresh: Callable[[str], Poly] = field(default=lambda reason: symbol(Hidden("unknown", reason)))
    """Function that makes a size that only a run can tell."""
    meet: Callable[[Size, Size], Size] = largest
    """Function that returns the size of an axis where two sizes meet of which neither is known to be 1."""
    attached: Mapping[str, Value] = field(default_factory=dict)
    """Tensors in the node's attributes, by name."""

    def has(self, slot: int) -> bool:
        """Whether an input is present."""
        return slot < len(self.inputs) and self.inputs[slot] is not NOTHING

    def value(self, slot: int) -> Value:
        """Return an input.

        Raises:
            UnshapedError: it is omitted.
        """
        if not self.has(slot):
            raise UnshapedError(f"input {slot} is missing")
        return self.inputs[slot]

    def shape(self, slot: int) -> tuple[Size, ...]:
        """Return the sizes of an input.

        Raises:
            UnshapedError: not even its rank is known.
        """
        value = self.value(slot)
        if value.shape is None:
            raise UnshapedError(value.why or f"the rank of input {slot} is not known")
        return value.shape

    def broadcast(self, shapes: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
        """Return the broadcast shape (ONNX docs/Broadcasting.md); a number other than 1 is the size of its axis.

        Raises:
            MisfitError: an axis has two such numbers.
        """
        rank = max(map(len, shapes), default=0)
        result: list[Size] = []
        for place in range(-rank, 0):
            dims = [shape[place] for shape in shapes if -place <= len(shape)]
            numbers = [dim for dim in dims if isinstance(dim, int) and dim != 1]
            for number in numbers[1:]:
                check_equal(numbers[0], number, UNFIT)
            symbolic = list(dict.fromkeys(dim for dim in dims if not isinstance(dim, int)))
            if numbers or not symbolic:
                result.append(numbers[0] if numbers else 1)
                continue
            size: Size = symbolic[0]
            for other in symbolic[1:]:
                size = self.meet(size, other)
            result.append(size)
        return tuple(result)

    def sizes(self, slot: int) -> tuple[Size, ...] | None:
        """Return the numbers of an input of sizes or axes; None where they are not known."""
        value = self.inputs[slot] if self.has(slot) else NOTHING
        return sizes_of(value)

    def setting(self, name: str) -> object:
        """Return an attribute, or the caller's where a function refers to it; None where there is none."""
        if name in self.node.integers:
            return self.node.integers[name]
        found: object = self.node.settings.get(name)
        if isinstance(found, str) and found.startswith("@"):
            return self.caller_attributes.get(found[1:])
        return found

    def number(self, name: str, default: int) -> int:
        """Return an integer attribute.

        Raises:
            UnshapedError: it is infinite, or no number.
        """
        found = self.setting(name)
        return _whole(name, found) if isinstance(found, (int, float)) else default

    def real(self, name: str, default: float) -> float:
        """Return a number attribute."""
        found = self.setting(name)
        return float(found) if isinstance(found, (int, float)) else default

    def text(self, name: str, default: str) -> str:
        """Return a text attribute."""
        found = self.setting(name)
        return found if isinstance(found, str) else default

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """Return an attribute that is a list of integers; None where there is none.

        Raises:
            UnshapedError: one is infinite, or no number.
        """
        found = self.setting(name)
        if isinstance(found, tuple) and all(isinstance(each, (int, float)) for each in found):
            return tuple(_whole(name, each) for each in found)
        return None

    def attributes(self) -> Mapping[str, object]:
        """Return all attributes, for the body of a function that the node calls."""
        names = (*self.node.integers, *self.node.settings)
        return {name: self.setting(name) for name in names}


def _whole(name: str, number: float) -> int:
    if not math.isfinite(number):
        raise UnshapedError(f"attribute {name} is not a whole number")
    return int(number)


Rule: TypeAlias = "Callable[[Step], Sequence[Value]]"
"""Function from a node with its inputs to its outputs."""


def scalar(dtype: DType, number: Element) -> Value:
    """Return a value of one number and rank 0."""
    return Value(dtype, (), (number,))


def sizes_of(value: Value) -> tuple[Size, ...] | None:
    """Return the numbers of a value as integers; None where they are not known, or have fractions."""
    if value.data is None:
        return None
    if any(isinstance(each, float) and not each.is_integer() for each in value.data):
        return None
    return tuple(int(each) if isinstance(each, float) else each for each in value.data)
