"""Rule: a function of each element that an exporter computed in advance.

1 + w is what RMSNorm of the Gemma models scales by; -exp(w) is the state matrix of Mamba (A_log); exp(w) the logit
scale of CLIP; softplus(w), which is log(1 + exp(w)), the decay of RecurrentGemma's recurrence; w / sqrt(d) a query's
weight or bias into which attention's scale was multiplied (d is a head's width).
No other factor is taken for an exporter's: a layer times two is another layer; and none of them anywhere else than
where PyTorch's program has it (`leash`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzer.ledger import Entry, Role
from analyzer.manifest import Parameter
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.closeness import is_like, least_difference
from analyzer.reconciliation.layouts import Layout, layouts
from analyzer.reconciliation.leash import is_allowed, is_offset
from analyzer.reconciliation.lines import Computed, Line, Piece
from analyzer.reconciliation.scaled import tolerance_of
from analyzer.reconciliation.stacks import Stacks, Tensor
from analyzer.scopes import module_of

__all__ = ["FUNCTIONS", "match_folded_pointwise", "undo"]

Reals = npt.NDArray[np.float64]

FUNCTIONS: Mapping[str, tuple[Callable[[Reals], Reals], Callable[[Reals], Reals]]] = {
    "1+w": (lambda w: 1.0 + w, lambda x: x - 1.0),
    "-exp(w)": (lambda w: -np.exp(w), lambda x: np.log(-x)),
    "exp(w)": (np.exp, np.log),
    "softplus(w)": (lambda w: np.logaddexp(0.0, w), lambda x: np.log(np.expm1(x))),
}
"""Each function and what undoes it."""

_SHIFTED = "1+w"
_OF_VECTORS = frozenset({_SHIFTED, "softplus(w)"})
"""A norm's scale; the step of a recurrence (RecurrentGemma's gate, a state space's)."""

_TIMES = "*w"
"""How a rule that multiplies by a constant ends."""


def undo(rule: str) -> Callable[[Reals], Reals] | None:
    """What takes a rule's effect back; None for no rule of this file.

    >>> undo("0.125*w")(np.array([1.0])).tolist()
    [8.0]
    """
    if rule in FUNCTIONS:
        return FUNCTIONS[rule][1]
    factor = _constant_factor(rule)
    return None if factor is None else lambda x: x / factor


def _constant_factor(rule: str) -> float | None:
    """What a rule multiplies each element by, if that is all that it does."""
    try:
        return float(rule.removesuffix(_TIMES)) if rule.endswith(_TIMES) else None
    except ValueError:
        return None


_FEW = 4
"""Elements from which a constant factor is evidence: of fewer, any may be one."""

_LEAST_HEAD = 8
"""The width of a head, at least."""

_MOST_SAMPLED = 1 << 16
"""Elements up to which all are looked at also where samples are asked for."""


@dataclass(frozen=True, slots=True)
class _Found:
    layout: Layout
    rule: str
    error: float
    is_whole: bool


def match_folded_pointwise(books: Books) -> None:
    """Explain suspects and nameless vectors that are a known function of one free PyTorch parameter."""
    if books.contents.mode == "none":
        return
    for entry, tensors in list(_pairs(books)):
        for tensor in tensors:
            if tensor.name in books.parameters or entry.tensor.key in books.entries:
                continue
            found = _explain(books, entry, tensor)
            if found is not None:
                evidence = "content" if found.is_whole and books.contents.mode == "full" else "sampled"
                changed = books.contents.changes(entry, tensor) or ()
                chain = (*found.layout.chain, Line.FOLDED_POINTWISE, *changed)
                function = Computed(found.rule, undo(found.rule), _constant_factor(found.rule))
                piece = Piece(entry.tensor.key, found.layout.shape, found.layout.axes, computed=function)
                books.suspects = [s for s in books.suspects if s.entry.tensor.key != entry.tensor.key]
                books.hold(tensor, entry, chain, f"{evidence}:{found.rule}", found.error, pieces=(piece,))


def _pairs(books: Books) -> Iterator[tuple[Entry, list[Parameter]]]:
    """What was folded from a suspect, beside it; a nameless entry beside the free tensors of its size.

    What stands under the parameter's own name is no function of it: an exporter gives a computed tensor a new name. But
    builders that load a checkpoint write the gain 1 + w under the name of w (onnxruntime-genai's, of Gemma).
    """
    for suspect in books.suspects:
        is_renamed = not _bears_its_name(books, suspect.entry, suspect.tensor)
        is_vector = sum(dim != 1 for dim in suspect.tensor.shape) <= 1
        if isinstance(suspect.tensor, Parameter) and (is_renamed or is_vector):
            yield suspect.entry, [suspect.tensor]
    stacks = Stacks(books.contents, (p for p in books.free_parameters() if p.dtype.is_floating))
    for entry in books.free_entries():
        is_real = entry.tensor.dtype.is_floating or books.contents.encoding(entry) is not None
        if entry.role not in (Role.PARAMETER, Role.UNATTRIBUTED, Role.CONSTANT) or not is_real:
            continue
        sources = (tensor for name in entry.sources if (tensor := books.tensor(name)) is not None)
        named = [tensor for tensor in sources if isinstance(tensor, Parameter)]
        if named or books.contents.numel(entry) > 1:
            modules = books.reader_modules(entry)
            like = named or [p for p in _like(books, entry, stacks) if isinstance(p, Parameter)]
            like = [tensor for tensor in like if not books.is_elsewhere(entry, tensor)]
            yield entry, sorted(like, key=lambda p: module_of(p.name) not in modules)


def _bears_its_name(books: Books, entry: Entry, tensor: Tensor) -> bool:
    own = entry.tensor.name
    return own in tensor.names or books.aligned(own) in tensor.names


def _like(books: Books, entry: Entry, stacks: Stacks) -> Iterator[Tensor]:
    """The tensors of which a few elements are those of the entry under some function: all compared at once."""
    tolerance = 2 * tolerance_of(books.contents, entry)
    for shape in stacks.shapes(books.contents.numel(entry)):
        tensors, rows = stacks.of(shape)  # (tensors, samples)
        for layout in layouts(shape, books.contents.shape(entry)):
            look = books.contents.look(entry, layout) if layout.is_plain else None
            if look is None or (look[0].dtype.kind not in "fV" and look[1] is None):
                continue
            stored = look[0].astype(np.float64)
            steps = np.zeros_like(stored) if look[1] is None else look[1] * 1.01
            near = np.zeros(len(tensors), dtype=bool)
            with np.errstate(all="ignore"):
                for way, _ in FUNCTIONS.values():
                    wanted = way(rows)
                    room = tolerance * np.abs(wanted).max(axis=1, keepdims=True) + steps + 1e-12
                    near |= (np.abs(wanted - stored) <= room).all(axis=1)
                sizes = np.linalg.norm(rows, axis=1) * np.linalg.norm(stored)
                near |= np.abs(rows @ stored) >= sizes * (1 - 1e-4) - np.linalg.norm(steps) * sizes
            yield from (tensors[number] for number in np.flatnonzero(near))


def _explain(books: Books, entry: Entry, tensor: Parameter) -> _Found | None:
    originals = books.contents.originals
    samples = originals.samples(tensor)
    if samples is None or not tensor.dtype.is_floating:
        return None
    found = [
        layout for layout in books.contents.layouts(entry, tensor.shape, is_computed=True) if layout.is_plain
    ]
    is_open = any(books.contents.is_open(entry, tensor, layout) for layout in found)
    is_whole = books.contents.mode == "full" or tensor.numel <= _MOST_SAMPLED or is_open
    values = originals.values(tensor) if is_whole else None
    if is_open and values is None:
        return None  # a few elements do not say which way it stands
    expected = (samples if values is None else values.reshape(-1)).astype(np.float64)
    for layout in found:
        if values is None:
            look = books.contents.look(entry, layout)
        else:
            look = books.contents.at(entry, layout.positions(np.arange(tensor.numel)))
        if look is None or (look[0].dtype.kind not in "fV" and look[1] is None):
            continue
        stored = look[0].astype(np.float64)
        tolerance = tolerance_of(books.contents, entry)
        least = least_difference(look[0])
        is_own = _bears_its_name(books, entry, tensor)
        for rule, way in _ways(expected, stored, tensor.shape):
            if is_own and (rule != _SHIFTED or not is_offset(books, tensor)):
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                wanted = way(expected)
                # Each relative to itself; but 1 + w rounds as 1 does, and exp(w) errs as w does.
                growth = np.abs(expected) if rule.endswith("exp(w)") else 1.0
                room = tolerance * np.abs(wanted) * np.maximum(1.0, growth) + least
                room += tolerance if rule == _SHIFTED else 0.0
                error = np.abs(stored - wanted)
                near = error <= (room if look[1] is None else room + look[1] * 1.001)
            if (
                bool(near.all())
                and bool(np.isfinite(wanted).all())
                and is_allowed(books, entry, tensor, rule)
            ):
                if look[1] is not None and not _varies_alike(rule, stored, expected):
                    continue
                return _Found(layout, rule, float(error.max(initial=0.0)), values is not None)
    return None


def _varies_alike(rule: str, stored: Reals, expected: Reals) -> bool:
    """Whether codes, taken back to the parameter, have its direction: codes of ones are 1 + w for any small w."""
    back = undo(rule)
    assert back is not None
    with np.errstate(divide="ignore", invalid="ignore"):
        found = back(stored)
    found = np.where(np.isfinite(found), found, 0.0)
    return is_like(found, expected, np.full(found.shape, np.inf))


def _ways(
    expected: Reals, stored: Reals, shape: tuple[int, ...]
) -> Iterator[tuple[str, Callable[[Reals], Reals]]]:
    is_vector = sum(dim != 1 for dim in shape) <= 1
    yield from ((rule, way) for rule, (way, _) in FUNCTIONS.items() if is_vector or rule not in _OF_VECTORS)
    size = float(expected @ expected)
    if (
        len(shape) not in (1, 2)
        or expected.size < _FEW
        or not 0 < size < np.inf
        or float(np.ptp(expected)) == 0
    ):
        return
    factor = float(stored @ expected / size)
    widths = (width for width in range(_LEAST_HEAD, shape[0] + 1) if shape[0] % width == 0)
    scale = min((width**-0.5 for width in widths), key=lambda scale: abs(scale - factor), default=0.0)
    if scale:
        yield f"{scale:.9g}{_TIMES}", lambda w: scale * w
