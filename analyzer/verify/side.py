"""Protocol of verify's other side: PyTorch's, which the exporter implements, or another file's (`reference.py`).

Values are NumPy arrays, or prints of arrays; nothing here is of PyTorch.
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
        """Position in the pass."""
        ...

    @property
    def module(self) -> str:
        """Path of the module that makes it, with `#2` appended at a second call; empty for the whole model."""
        ...

    @property
    def class_name(self) -> str:
        """Class of that module."""
        ...

    @property
    def operator(self) -> str:
        """Name of the function: `layer_norm`, `matmul`, `add`."""
        ...

    @property
    def ordinal(self) -> int:
        """Position among the function calls in that call of the module."""
        ...

    @property
    def parents(self) -> tuple[int, ...]:
        """Numbers of the calls that made its arguments."""
        ...

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters and buffers among its arguments."""
        ...

    @property
    def numbers(self) -> tuple[float, ...]:
        """Numbers among its arguments."""
        ...


class ModuleCall(Protocol):
    """One call of a submodule."""

    @property
    def module(self) -> str:
        """Path of the submodule, with `#2` appended at a second call."""
        ...

    @property
    def class_name(self) -> str:
        """Class of the module."""
        ...

    @property
    def first(self) -> int:
        """Number of the first function call in it."""
        ...

    @property
    def last(self) -> int:
        """Number of the last function call in it."""
        ...

    @property
    def made(self) -> int | None:
        """Number of the call that made its first tensor; None where unknown."""
        ...

    @property
    def argument_calls(self) -> tuple[int, ...]:
        """Numbers of the calls that made its arguments."""
        ...

    @property
    def numel(self) -> int:
        """Number of elements of its first tensor."""
        ...

    @property
    def settings(self) -> Mapping[str, object]:
        """Attributes of the module that are numbers or strings."""
        ...


class Recording(Protocol):
    """Recording of a forward pass."""

    @property
    def modules(self) -> Sequence[ModuleCall]:
        """Module calls, in the order in which they end."""
        ...

    @property
    def outputs(self) -> Sequence[tuple[str, Array]]:
        """Output values, each with its name, or ""."""
        ...

    @property
    def made(self) -> Sequence[int]:
        """Numbers of the calls that made the outputs, as far as known; empty where every call counts as used."""
        ...


class Attempt(Frozen):
    """Replacement of one call or module, to be tried."""

    place: int | str
    """Number of a call, or label of a module."""
    index: int
    """Index among the alternatives of that place."""
    numbers: tuple[float, ...]
    """Numbers that the file has."""
    judged: tuple[int, ...] = ()
    """Numbers of the calls whose values are compared; a side may leave all others out."""


Value = Array | Print
"""Result of a call, or its print."""


class Side(Protocol):
    """Module, or other file, that gets the same inputs as the file under test."""

    carrier: str
    """Half-precision type of the file, or empty: two numbers that this type cannot tell apart count as one."""

    def feeds(self, seed: int, kind: str = "example") -> dict[str, Array]:
        """Return values for the file's inputs, by name; each seed has other values.

        The kind is `example`, one of `kinds`, or `whole`: then integer inputs keep the values of the example.
        """
        ...

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds among `small`, `single` and `long` that the file's axes allow."""
        ...

    def round_numbers(self, half: str, exact: Collection[float] = (), stored: Collection[float] = ()) -> None:
        """Replace numbers in the module's code by those that a half-precision file stores; an empty type restores them.

        Numbers that the file also has unrounded (`exact`) stay. The numbers that it has in half precision (`stored`)
        tell which number it stores instead of one in the code, such as the root of a scale.
        """
        ...

    def make_covering_inputs(self, at: int) -> dict[str, Array] | None:
        """Return inputs that look up rows which no run has reached; None if there are none, or `at` reaches the limit.

        Args:
            at: number of such inputs before this one.
        """
        ...

    def rows(self) -> Sequence[tuple[str, int, int]]:
        """Return the tables that were looked up: module, number of rows, number of rows that a run has reached."""
        ...

    def run(self, feeds: Mapping[str, Array], precision: str = "single") -> list[tuple[str, Array]]:
        """Return the outputs in order, each with its name, or ""; `precision` is `single`, `double` or `half`."""
        ...

    def record(
        self,
        feeds: Mapping[str, Array],
        report: Callable[[Call, Sequence[Value]], None],
        precision: str = "single",
        attempt: Attempt | None = None,
        until: int | None = None,
    ) -> Recording:
        """Run, and report every call with its results."""
        ...

    def value(self, feeds: Mapping[str, Array], number: int) -> Array | None:
        """Return the first float tensor that a call makes, whole; None where it makes none."""
        ...

    def alternatives(
        self,
        feeds: Mapping[str, Array],
        place: int | str,
        numbers: Sequence[float],
        report: Callable[[int, tuple[str, str, str], Value | None], None],
    ) -> None:
        """Report each alternative for a call or module: index, (kind, original, alternative) in words, and value."""
        ...

    def apart(self) -> Side:
        """Return a second side with a module of its own, which holds this one's current weights."""
        ...

    def vary(self, values: Mapping[str, Sequence[Array]]) -> None:
        """Give each parameter the next of these values at each call of its module."""
        ...

    def compute_with(self, values: Sequence[tuple[Array, Array]]) -> None:
        """Replace values computed from weights by these numbers, each unless it is off by more than its tolerance."""
        ...

    def load(self, path: Path) -> None:
        """Load the tensors of a safetensors file into the module."""
        ...
