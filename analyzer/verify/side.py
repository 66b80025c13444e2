"""What verify asks of the other side: PyTorch's, which the exporter answers, or another file's (`reference.py`).

Values are NumPy arrays, or what is kept of them; nothing here is of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from analyzer.model.content import Array
from analyzer.records import Frozen
from analyzer.verify.prints import Print


class Call(Protocol):
    """One call of a function of PyTorch in a forward pass."""

    @property
    def number(self) -> int:
        """Its place in the pass."""
        ...

    @property
    def module(self) -> str:
        """The path of the module that makes it; with `#2` behind it at a second call; empty for the whole."""
        ...

    @property
    def class_name(self) -> str:
        """Of that module."""
        ...

    @property
    def operator(self) -> str:
        """As `layer_norm`, `matmul`, `add`."""
        ...

    @property
    def ordinal(self) -> int:
        """Its place in that call of the module."""
        ...

    @property
    def parents(self) -> tuple[int, ...]:
        """The calls that made what it is given."""
        ...

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters and buffers that it is given."""
        ...


class ModuleCall(Protocol):
    """One call of a submodule."""

    @property
    def module(self) -> str:
        """Its path; with `#2` behind it at a second call."""
        ...

    @property
    def class_name(self) -> str:
        """Of the module."""
        ...

    @property
    def first(self) -> int:
        """The first call of a function in it."""
        ...

    @property
    def last(self) -> int:
        """The last one."""
        ...

    @property
    def made(self) -> int | None:
        """The call that made its first tensor; None where nothing tells."""
        ...

    @property
    def given(self) -> tuple[int, ...]:
        """The calls that made its arguments."""
        ...

    @property
    def numel(self) -> int:
        """Elements of its first tensor."""
        ...

    @property
    def settings(self) -> Mapping[str, object]:
        """The module's own numbers and words."""
        ...


class Recording(Protocol):
    """A forward pass."""

    @property
    def modules(self) -> Sequence[ModuleCall]:
        """In the order in which they end."""
        ...

    @property
    def outputs(self) -> Sequence[tuple[str, Array]]:
        """Each with its name, or ""."""
        ...

    @property
    def made(self) -> Sequence[int]:
        """The calls that made them, as far as that is known; none where all that was called is of use."""
        ...


class Attempt(Frozen):
    """Something else in the place of one call or module."""

    place: int | str
    """The number of a call, or the label of a module."""
    index: int
    """Of what it may be exchanged for."""
    numbers: tuple[float, ...]
    """That the file has."""
    judged: tuple[int, ...] = ()
    """The calls whose values are looked at; a side may leave all others out."""


Value = Array | Print
"""What a call gives, or what is kept of it."""


class Side(Protocol):
    """A module, or a file, that is fed what the file is fed."""

    carrier: str
    """The half-precision type of the file, or empty: two numbers that it cannot tell apart are one."""

    def feeds(self, seed: int, kind: str = "example") -> dict[str, Array]:
        """Values for the file's inputs, by name; other ones for each seed; of a kind as `kinds` has them.

        Of the kind `whole`, whole numbers are those of the example.
        """
        ...

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of `small`, `single` and `long`, those that the file's axes allow."""
        ...

    def round_numbers(self, half: str, exact: Collection[float] = (), stored: Collection[float] = ()) -> None:
        """Have numbers in the module's code be what a file of half precision stores of them; empty for as they are.

        Those that the file also has as they are (`exact`) stay. What it has in half precision (`stored`) tells which
        number of several it stores in the place of one, as the root of a scale.
        """
        ...

    def covering(self, at: int) -> dict[str, Array] | None:
        """Inputs that look up rows which no run has reached; None where there are none, or `at` such were made."""
        ...

    def rows(self) -> Sequence[tuple[str, int, int]]:
        """Tables that were looked up: the module, its rows, and how many of them a run has reached."""
        ...

    def run(self, feeds: Mapping[str, Array], precision: str = "single") -> list[tuple[str, Array]]:
        """The outputs in their order, each with its name, or ""; `double` and `half` compute so."""
        ...

    def record(
        self,
        feeds: Mapping[str, Array],
        told: Callable[[Call, Sequence[Value]], None],
        precision: str = "single",
        attempt: Attempt | None = None,
        until: int | None = None,
    ) -> Recording:
        """Run, and tell of every call with what it gives."""
        ...

    def value(self, feeds: Mapping[str, Array], number: int) -> Array | None:
        """The first floats that a call gives, whole; None where it gives none."""
        ...

    def alternatives(
        self,
        feeds: Mapping[str, Array],
        place: int | str,
        numbers: Sequence[float],
        told: Callable[[int, tuple[str, str, str], Value | None], None],
    ) -> None:
        """Tell what a call or a module may be exchanged for: kind, what PyTorch has, what it would be, its value."""
        ...

    def apart(self) -> Side:
        """Another with a module of its own, which holds what this one's holds now."""
        ...

    def vary(self, values: Mapping[str, Sequence[Array]]) -> None:
        """Have parameters hold another of these at each call of their module, in their order."""
        ...

    def compute_with(self, values: Sequence[tuple[Array, Array]]) -> None:
        """Have what is computed of weights be these numbers, where it is no further off than each may be."""
        ...

    def load(self, path: Path) -> None:
        """Give the module the tensors of a safetensors file."""
        ...
