"""Numbers that only stored ones lead to -> whether PyTorch's own program computes them, too.

A file that keeps a computation as nodes holds few numbers of it: of a mask of ones, positions are counted, and sines
made of these. What comes of it where it meets an activation is a value of the program, or it is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from analyzer.content import Array, decode_values, digest, run_starts, run_sums, sample_positions
from analyzer.dtypes import DType
from analyzer.manifest import Traced
from analyzer.model import GraphPath, Node
from analyzer.reconciliation.books import Books, is_inside

__all__ = ["known_values", "repeated"]

Reals = npt.NDArray[np.float64]

_TOLERANCE = 2e-4
"""What an element may be off, relative to the largest: a sine of a large angle errs as much as the angle."""

_LEAST = 8
"""Elements of a value, at least: fewer are anybody's."""

_MOST_AXES = 4
"""Axes up to which other orders of them are tried."""

_MASKED = -1e4
"""At most what a mask adds to a score, where any number as low means the same."""


def known_values(books: Books) -> Callable[[GraphPath, str, Array], bool]:
    """What says of a value, by its graph and its name, whether its numbers are the program's in that module."""
    program = books.manifest.program
    if program is None or books.contents.mode == "none":
        return lambda path, name, value: False
    return _Known(books, [value for value in program.values if not value.parameters]).holds


@dataclass
class _Known:
    """Values of the program that no parameter has a part in."""

    books: Books
    values: Sequence[Traced]
    _answers: dict[tuple[GraphPath, str], bool] = field(default_factory=dict)

    def holds(self, path: GraphPath, name: str, value: Array) -> bool:
        if (path, name) not in self._answers:
            self._answers[path, name] = any(
                self._is_near(path, name, traced) and self._is_equal(value, traced) for traced in self.values
            )
        return self._answers[path, name]

    def _is_near(self, path: GraphPath, name: str, traced: Traced) -> bool:
        """Whether a node that makes or reads the value belongs to a module that the program reads it in."""
        ledger = self.books.ledger
        maker = ledger.wiring.find(path, name)
        nodes = [reader.node for reader in ledger.wiring.readers(maker)] if isinstance(maker, Node) else []
        scopes = {ledger.traced_scopes[node.place] for node in nodes if node.place in ledger.traced_scopes}
        modules = {self.books.aligned.module(scope) for scope in scopes}
        theirs = {module for module, _ in traced.uses}
        return (
            not modules
            or not theirs
            or any(
                is_inside(one, other) or is_inside(other, one)
                for one, other in itertools.product(modules, theirs)
            )
        )

    def _is_equal(self, value: Array, traced: Traced) -> bool:
        """Whether each element is the program's, in any order of axes, and however often the whole is repeated."""
        if value.size < _LEAST or traced.numel < _LEAST or value.dtype.kind not in "biuf":
            return False
        is_whole = value.dtype.kind in "biu"
        if is_whole == traced.dtype.is_floating:
            return False
        return any(
            _is_same(np.ascontiguousarray(turned), traced, self.books.contents.originals.salt)
            for each in repeated(value, traced.numel)
            for turned in _turned(each, traced.shape)
        )


def repeated(value: Array, numel: int) -> Iterator[Array]:
    """A value with as many elements, where it is repeated along an axis as often as it takes; first as it is."""
    if value.size == numel:
        yield value
        return
    for axis, length in enumerate(value.shape):
        rest = value.size // length if length else 0
        first = np.take(value, [0], axis) if length else value
        if rest and numel % rest == 0 and bool((value == first).all()):
            yield np.repeat(first, numel // rest, axis)


def _turned(value: Array, shape: tuple[int, ...]) -> Iterator[Array]:
    """A value in row-major order, and in each order of its axes that gives a shape, but for axes of one element."""
    yield value
    plain = value.squeeze()
    wanted = tuple(dim for dim in shape if dim != 1)
    if 1 < plain.ndim <= _MOST_AXES and sorted(plain.shape) == sorted(wanted):
        for order in itertools.permutations(range(plain.ndim)):
            if tuple(plain.shape[axis] for axis in order) == wanted and order != tuple(range(plain.ndim)):
                yield plain.transpose(order)


def _is_same(value: Array, traced: Traced, salt: str) -> bool:
    content, element = traced.content, traced.dtype.to_numpy()
    if content is None or element is None or content.constant_filled:
        return False
    flat = value.reshape(-1)
    samples = decode_values(content.samples, element).astype(np.float64)
    if not _are_near(flat[sample_positions(flat.size, salt)].astype(np.float64), samples, traced):
        return False
    if flat.dtype == element and digest(value) == content.digest:
        return True
    if traced.whole is not None:
        whole = decode_values(traced.whole, element).astype(np.float64)
        return _are_near(flat.astype(np.float64), whole, traced)
    if traced.sums is None:
        return False
    given = flat.astype(np.float64)
    wanted = decode_values(traced.sums, np.dtype("<f8")).reshape(2, -1).astype(np.float64)
    if not bool(np.isfinite(given).all()):
        return False
    room = np.full(given.shape, _room(given, traced.dtype))
    slack = np.sqrt(np.add.reduceat(room * room, np.array(run_starts(given.size))))
    projections, norms = np.abs(run_sums(given) - wanted)
    return bool((norms <= slack).all() and (projections <= 6 * slack).all())


def _are_near(given: Reals, expected: Reals, traced: Traced) -> bool:
    if given.shape != expected.shape:
        return False
    with np.errstate(invalid="ignore"):
        masked = (given <= _MASKED) & (expected <= _MASKED)
        near = np.abs(given - expected) <= _room(expected, traced.dtype)
    return bool((near | masked | (given == expected)).all())


def _room(expected: Reals, dtype: DType) -> float:
    """What each element may be off; nothing of whole numbers."""
    if not dtype.is_floating:
        return 0.0
    plain = expected[np.isfinite(expected) & (expected > _MASKED)]
    return _TOLERANCE * float(np.abs(plain).max(initial=0.0))
