"""Lines of the bridge with their meanings, and the records of a reconciliation."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, cast

from analyzer.account.ledger import Finding, Ledger, Trainability
from analyzer.account.scopes import module_of
from analyzer.manifest import Manifest
from analyzer.model import Key, label
from analyzer.model.content import ContentMode
from analyzer.records import Frozen, exclude_fields, replace
from analyzer.text import format_many, printable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from analyzer.reconciliation.layouts import Tiles

Compared = Literal["whole", "sampled", "none"]
"""Extent of a comparison: every element; some elements, with or without the sums of rows; only names and shapes."""


Computes = Literal["same", "differs", "not-known"]
"""Whether the file computes PyTorch's program, as `analyzer.verify.proved` finds."""

Reads = Literal["as-exported", "differs", "not-compared"]
"""Wiring of the file: as exported; different; or not comparable, without a known export or after a tool's rewrite."""


class Line(enum.StrEnum):
    """Line of the bridge: the fate of a PyTorch parameter, or the origin of a stored tensor; in the report's order."""

    IDENTICAL = "identical"
    NAMED = "named"
    """Same name and shape; values were not compared."""
    RENAMED = "renamed"
    TRANSPOSED = "transposed"
    RESHAPED = "reshaped"
    SLICED = "sliced"
    """Some rows of a table, in order."""
    GATHERED = "gathered"
    """Rows of a table, selected by indices."""
    BROADCAST = "broadcast"
    """All rows of a table, repeated."""
    CONCATENATED = "concatenated"
    """Stored in one tensor with others: packed query, key and value; gate and up."""
    TIED = "tied"
    """Several PyTorch names, stored once."""
    DEDUPLICATED = "deduplicated"
    """Equal to another parameter, and merged with it by the exporter."""
    REMOVED_ZERO = "removed-zero"
    """A bias of zeros that the optimizer removed from its node."""
    FOLDED_BATCHNORM = "folded-batchnorm"
    """A convolution's weight scaled by a BatchNorm, and the bias that the BatchNorm became."""
    FOLDED_WEIGHTNORM = "folded-weightnorm"
    """A direction and a length (`weight_v`, `weight_g`), stored as their product."""
    FOLDED_POINTWISE = "folded-pointwise"
    """A function of each element: 1 + w, exp(w), -exp(w), -w, a constant times w; or a factor of each channel that
    moved from a norm into the weights after it."""
    EVALUATED = "evaluated"
    """A value of PyTorch's own program that depends on no input, computed in advance."""
    CAST = "cast"
    """Rounded to another floating-point type."""
    QUANTIZED = "quantized"
    """Integers or 8-bit floats, with a scale for the tensor or for each channel."""
    BLOCK_QUANTIZED = "block-quantized"
    """Codes of a few bits, with a scale for each block."""
    COPIED = "copied"
    """Stored once more, unchanged or transposed."""
    DUPLICATED_FILE = "duplicated-file"
    """Stored once more in another file of the artifact."""
    UNUSED = "unused"
    """The exported program does not read it."""
    OUTSIDE = "outside"
    """Part of a head that this file's task does not have."""
    BUFFER = "buffer"
    """A PyTorch buffer, or a tensor computed from one."""
    ADDED = "added"
    """Made by the exporter."""
    QUANTIZATION = "quantization"
    """Scales and zero points."""
    DIFFERING = "differing"
    """Same name, other content."""
    MISSING = "missing"
    """PyTorch has it, the file does not."""
    UNEXPECTED = "unexpected"
    """The file has it, PyTorch does not."""
    UNEXPLAINED = "unexplained"
    """No rule explains it."""
    MISPLACED = "misplaced"
    """One parameter's values where another's belong."""
    DEAD = "dead"
    """Held, but no output depends on it."""
    OPAQUE = "opaque"
    """Data that takes part in the computation, and that nothing in PyTorch explains."""
    NOT_COMPARED = "not-compared"
    """PyTorch's side names it, but does not describe it."""


class Meaning(Frozen, kw_only=True):
    """Meaning of a line for a reader of the bridge."""

    values: Literal["kept", "cast", "coded", "computed", "none"]
    """Form of a parameter's values in the file: all bits; rounded to another type; quantized codes; results computed
    from them; or nothing that is known to be theirs."""
    is_cut: bool = False
    """Whether the file may have only some rows of the table, in any type."""
    has_tensor: bool = True
    """Whether a parameter on it has a stored tensor that is, or may be, its own."""
    unbalanced: tuple[str, ...] = ()
    """Texts of the error for one tensor and for several; empty if the line does not unbalance the account."""
    lost: str = ""
    """Reason why a parameter on this line cannot be recovered; empty if it can, or if the tensor itself tells why."""
    in_formula: str = ""
    """Text about elements that a formula counts and that the file lacks because of this line."""

    @property
    def changes_values(self) -> bool:
        return self.values in ("cast", "coded", "computed")


_ROWS = "of a table of which the file has only some rows"

MEANINGS: Mapping[Line, Meaning] = {
    Line.IDENTICAL: Meaning(values="kept"),
    Line.NAMED: Meaning(values="kept"),
    Line.RENAMED: Meaning(values="kept"),
    Line.TRANSPOSED: Meaning(values="kept"),
    Line.RESHAPED: Meaning(values="kept"),
    Line.SLICED: Meaning(values="kept", is_cut=True, in_formula=_ROWS),
    Line.GATHERED: Meaning(values="kept", is_cut=True, in_formula=_ROWS),
    Line.BROADCAST: Meaning(values="kept", is_cut=True, in_formula="of a table whose rows the file repeats"),
    Line.CONCATENATED: Meaning(values="kept"),
    Line.TIED: Meaning(values="kept"),
    Line.DEDUPLICATED: Meaning(
        values="kept",
        has_tensor=False,
        in_formula="equal to other parameters, which the exporter stored once",
    ),
    Line.REMOVED_ZERO: Meaning(
        values="none", has_tensor=False, in_formula="zero biases, which the exporter removed"
    ),
    Line.FOLDED_BATCHNORM: Meaning(
        values="computed",
        lost="folded with a BatchNorm: only the product is in the file",
        in_formula="multiplied into the weights before it",
    ),
    Line.FOLDED_WEIGHTNORM: Meaning(
        values="computed",
        lost="a direction times a length: only the product is in the file",
        in_formula="a length, multiplied into its direction",
    ),
    Line.FOLDED_POINTWISE: Meaning(values="computed"),
    Line.EVALUATED: Meaning(
        values="computed",
        lost="computed in advance, so the file holds only the result of PyTorch's program",
        in_formula="computed in advance, by PyTorch's own program",
    ),
    Line.CAST: Meaning(values="cast"),
    Line.QUANTIZED: Meaning(values="coded"),
    Line.BLOCK_QUANTIZED: Meaning(values="coded"),
    Line.COPIED: Meaning(values="kept"),
    Line.DUPLICATED_FILE: Meaning(values="kept"),
    Line.UNUSED: Meaning(
        values="none",
        has_tensor=False,
        lost="the exported program does not read it, and the file does not hold it",
        in_formula="not read by the exported program",
    ),
    Line.OUTSIDE: Meaning(
        values="none",
        has_tensor=False,
        lost="of a head that this file does not have",
        in_formula="of a head that this file's task does not have",
    ),
    Line.BUFFER: Meaning(values="none"),
    Line.ADDED: Meaning(values="none"),
    Line.QUANTIZATION: Meaning(values="none"),
    Line.DIFFERING: Meaning(
        values="none",
        unbalanced=(
            "the file has other values under this name",
            "the file has other values under these names",
        ),
    ),
    Line.MISSING: Meaning(
        values="none",
        has_tensor=False,
        unbalanced=("PyTorch has it, the file does not", "PyTorch has them, the file does not"),
    ),
    Line.UNEXPECTED: Meaning(
        values="none",
        unbalanced=("the file has it, PyTorch does not", "the file has them, PyTorch does not"),
    ),
    Line.UNEXPLAINED: Meaning(
        values="none",
        unbalanced=("no rule explains it", "no rule explains them"),
    ),
    Line.MISPLACED: Meaning(
        values="none",
        unbalanced=(
            "the file does not read it where PyTorch does",
            "the file does not read them where PyTorch does",
        ),
    ),
    Line.DEAD: Meaning(
        values="none",
        unbalanced=(
            "the file holds it, but no output depends on it",
            "the file holds them, but no output depends on them",
        ),
    ),
    Line.OPAQUE: Meaning(
        values="none",
        unbalanced=(
            "it takes part in the computation, but nothing in PyTorch explains it",
            "they take part in the computation, but nothing in PyTorch explains them",
        ),
    ),
    Line.NOT_COMPARED: Meaning(
        values="none",
        unbalanced=(
            "PyTorch's side names it, but does not describe its values",
            "PyTorch's side names them, but does not describe their values",
        ),
    ),
}
"""Meaning of every line: the one place to look it up."""

UNBALANCED = tuple(line for line, meaning in MEANINGS.items() if meaning.unbalanced)
"""The lines that must be empty for the account to balance."""

Why = Literal[
    "changed", "held-elsewhere", "reordered", "rescaled", "turned", "undecoded", "unreadable", "untraced"
]
"""Reason why a parameter is on the line `differing`, where one is known."""

WHY: Mapping[str, tuple[str, str]] = {
    "changed": (
        "the file has its values, but a node changes them before they are used",
        "the file has their values, but nodes change them before they are used",
    ),
    "held-elsewhere": (
        "the file has other values under this name, and the right ones under another name",
        "the file has other values under these names, and the right ones under other names",
    ),
    "reordered": ("the file has its values in another order", "the file has their values in another order"),
    "rescaled": (
        "the file has its values, each channel times a factor that no BatchNorm of PyTorch's gives: running "
        "statistics, gains or eps changed, as they do when a model is exported in training mode",
        "the file has their values, each channel times a factor that no BatchNorm of PyTorch's gives: running "
        "statistics, gains or eps changed, as they do when a model is exported in training mode",
    ),
    "turned": (
        "the file uses it transposed, unlike PyTorch",
        "the file uses them transposed, unlike PyTorch",
    ),
    "undecoded": (
        "it is stored as codes that no scale decodes, so its values are unknown",
        "they are stored as codes that no scale decodes, so their values are unknown",
    ),
    "unreadable": (
        "it cannot be read, so its values are unknown",
        "they cannot be read, so their values are unknown",
    ),
    "untraced": (
        "too many nodes process it to be traced, so its final values are unknown",
        "too many nodes process them to be traced, so their final values are unknown",
    ),
}
"""Texts for the line `differing`, for one tensor and for several, where the error is not just other values; the key is
the end of the rule in `decided_by`."""


CHANGED_BY = "changed-by-"
"""Start of the rule's name where a node changes a tensor; the operator follows."""


def why_differing(line: Line, decided_by: str) -> Why | None:
    """Return the key of `WHY` that explains a difference; None if the values just differ, and for other lines.

    >>> why_differing(Line.DIFFERING, "content:reordered"), why_differing(Line.DIFFERING, "name+content")
    ('reordered', None)
    """
    why = decided_by.rpartition(":")[2]
    if why.startswith(CHANGED_BY):
        why = "changed"
    return cast("Why", why) if line is Line.DIFFERING and why in WHY else None


RETYPED = tuple(line for line, meaning in MEANINGS.items() if meaning.values in ("cast", "coded"))
"""Lines of tensors stored in another type than PyTorch's; every other change in a chain comes before these."""


def with_line(chain: Iterable[Line], line: Line) -> tuple[Line, ...]:
    """Return a chain with one more line, placed before the lines of another type (`RETYPED`).

    >>> [str(each) for each in with_line((Line.TRANSPOSED, Line.CAST), Line.CONCATENATED)]
    ['transposed', 'concatenated', 'cast']
    """
    lines = tuple(chain)
    moved, retyped = (tuple(x for x in lines if (x in RETYPED) is last) for last in (False, True))
    return (*moved, line, *retyped)


def name_of(chain: tuple[Line, ...]) -> Line:
    """Return the line that names a whole chain: the last that changes values, else the last.

    >>> name_of((Line.TRANSPOSED, Line.QUANTIZED, Line.COPIED)).value
    'quantized'
    """
    return next((line for line in reversed(chain) if MEANINGS[line].changes_values), chain[-1])


@exclude_fields("undo")
class Computed(Frozen):
    """Function that was applied to each element before it was stored, and its inverse."""

    rule: str
    """Name of the function in `decided_by`, such as `1+w`."""
    undo: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]] | None = None
    """Inverse function; None if the stored values alone do not determine the tensor, so that it is lost."""
    factor: float | None = None
    """Factor of each element, if a multiplication is the whole function."""


class Piece(Frozen):
    """Place of a part of a PyTorch tensor in the file, and the steps that recover it.

    The stored tensor is decoded and `taken` is cut from it. The cut is reshaped to the permuted shape and permuted
    back (`layout`). The result is the PyTorch tensor, or the part of it that `put` names.
    """

    key: Key
    shape: tuple[int, ...]
    """Shape of the part, in PyTorch's order of axes."""
    axes: tuple[int, ...]
    """Order of PyTorch's axes in the file."""
    taken: tuple[int, int, int] | None = None
    """(axis, start, stop) in the decoded stored tensor; None for all of it."""
    put: tuple[int, int, int] | None = None
    """(axis, start, stop) in the PyTorch tensor; None for all of it."""
    viewed: tuple[int, ...] | None = None
    """Shape to which the decoded tensor is reshaped first; None drops axes of one element if a part is taken."""
    computed: Computed | None = None
    """Function to undo; None if the values are PyTorch's."""
    tiles: Tiles | None = None
    """Tiling to undo before all other steps; None if the elements are in PyTorch's order already."""


class Nearest(Frozen):
    """PyTorch tensor that is most like a stored tensor, though no rule matches the two."""

    key: Key
    name: str
    equal: int
    """Number of compared elements that agree."""
    compared: int
    """Number of elements that were compared: all, or those at sampled positions."""
    max_abs_error: float | None
    """Largest difference among them; None if it is not a finite number, or unknown."""


SAMPLED = frozenset({"sampled", "sampled-rows", "sums"})
"""Words of `decided_by` that tell that not every value was compared."""


class ParameterLine(Frozen):
    """Fate of one PyTorch parameter."""

    name: str
    line: Line
    chain: tuple[Line, ...]
    """All lines that apply, in order."""
    entries: tuple[Key, ...]
    """Stored tensors that hold it: the one or several in which it is counted, then copies."""
    decided_by: str
    max_abs_error: float | None
    """Largest difference to the stored values among those compared; None if none were."""
    pieces: tuple[Piece, ...] = ()
    """Pieces from which the file gives it back; empty if the file does not have it."""
    has_sampled_copy: bool = False
    """Whether one of its copies was compared only at sampled positions or by sums."""

    @property
    def compared(self) -> Compared:
        """Extent to which its values were compared, in all of its copies, according to `decided_by`."""
        words = set(re.split("[+: ]", self.decided_by))
        if self.has_sampled_copy or words & SAMPLED:
            return "sampled"
        is_compared = self.entries and words & {"content", "rows"}
        return "whole" if is_compared else "none"


class EntryLine(Frozen):
    """Origin of one stored tensor."""

    key: Key
    line: Line
    parameter: str | None
    """Name of the PyTorch tensor that it holds, the first if it holds several."""
    decided_by: str
    learned: int = 0
    """Elements that count as parameters: none in copies and tensors made by the exporter; repeated rows count once."""
    piece: Piece | None = None
    """Piece that gives a buffer back, if the tensor holds all of it; or that of a copy with a BatchNorm of its own."""
    expression: str | None = None
    """Expression of a value that PyTorch's program computes without any input."""
    value: str | None = None
    """Name of that value in the program."""
    value_piece: Piece | None = None
    """Layout of that value in the tensor, as for a parameter; None if the value is not the whole tensor."""
    order: str = ""
    """Text that identifies the order of a table's rows in the tensor, where that is known."""


class BridgeRow(Frozen):
    """One line's totals, as docs/reference/report-format.md defines them ("The lines of the bridge").

    `tensors` counts parameters and stored tensors, `elements` the elements of both that the line concerns.
    `parameter_delta` is the signed number of elements that leads from PyTorch's parameters to the file's parameters;
    `stored_delta` leads to the stored elements. `nbytes` counts bytes of payload of the stored tensors.
    """

    line: Line
    tensors: int
    elements: int
    parameter_delta: int
    stored_delta: int
    nbytes: int


class Reconciliation(Frozen):
    """A ledger against a manifest, balanced or not.

    `manifest.numel + sum(parameter_delta) = onnx_parameters`, and
    `manifest.numel + sum(stored_delta) = ledger.stored_elements`.
    """

    ledger: Ledger
    manifest: Manifest
    content: ContentMode
    """Mode in which values were compared."""
    bridge: tuple[BridgeRow, ...]
    """Totals of every line, also of empty ones."""
    parameters: tuple[ParameterLine, ...]
    """In `named_parameters()` order."""
    entries: tuple[EntryLine, ...]
    """In file order."""
    onnx_parameters: int
    """Number of parameters in the file, with the PyTorch side known."""
    findings: tuple[Finding, ...]
    trainability: Trainability
    nearest: tuple[Nearest, ...] = ()
    """Most similar PyTorch tensors of entries on unbalanced lines."""
    reads: Reads = "not-compared"
    """Whether the file uses its weights as the export did that wrote the manifest."""
    differs_from: str | None = None
    """First module, in the export's order, that computes something else; "" if none can be named."""
    checked_places: int = 0
    """Number of parameters for which a wrong place would have been detected; 0 if values were not compared."""
    computes: Computes = "not-known"
    """Whether the file computes the PyTorch program in the manifest."""

    def in_pytorch_terms(self) -> Ledger:
        """Return the ledger with each tensor in the scope of its PyTorch parameter, and its learned elements counted.

        A tied tensor belongs to its first name in `named_parameters()` order; a copy stays in its reader's scope.
        """
        scoped = []
        for entry, line in zip(self.ledger.entries, self.entries, strict=True):
            updated = replace(entry, parameters=line.learned)
            if line.learned and line.parameter is not None:
                updated = replace(updated, scope=module_of(line.parameter), scoped_by="provenance:manifest")
            scoped.append(updated)
        return replace(self.ledger, entries=tuple(scoped))

    @property
    def compared(self) -> dict[Compared, int]:
        """Number of elements of PyTorch's parameters for each extent of comparison."""
        counts: dict[Compared, int] = {"whole": 0, "sampled": 0, "none": 0}
        for parameter, line in zip(self.manifest.parameters, self.parameters, strict=True):
            counts[line.compared] += parameter.numel
        return counts

    def expression(self, settled: ParameterLine) -> str | None:
        """Return the expression of the program's value that holds a parameter; None if it is not held that way."""
        if Line.EVALUATED not in settled.chain:
            return None
        expressions = {line.key: line.expression for line in self.entries if line.key in settled.entries}
        return next((expressions[key] for key in settled.entries if expressions.get(key)), None)

    @property
    def evaluated(self) -> tuple[EntryLine, ...]:
        """Lines of stored tensors that are values of PyTorch's program, in file order."""
        return tuple(
            line for line in self.entries if line.expression is not None and line.line is Line.EVALUATED
        )

    @property
    def misplaced(self) -> int:
        """Number of parameters whose values are in another parameter's place."""
        return sum(line.line is Line.MISPLACED for line in self.parameters)

    def rows(self) -> list[dict[str, object]]:
        """Return a row for each PyTorch parameter, in `named_parameters()` order, with the keys of the JSON report."""
        return [
            {
                "name": parameter.name,
                "shape": parameter.shape,
                "elements": parameter.numel,
                "trainable": parameter.trainable,
                "line": line.line.value,
                "chain": tuple(link.value for link in line.chain),
                "entries": tuple(label(key) for key in line.entries),
                "decided_by": line.decided_by,
                "max_abs_error": line.max_abs_error,
                "compared": line.compared,
            }
            for parameter, line in zip(self.manifest.parameters, self.parameters, strict=True)
        ]

    def __repr__(self) -> str:
        verdict = "balanced" if self.balanced else "does not balance"
        path, pytorch = printable(self.ledger.model.path), format_many(self.manifest.numel, "parameter")
        return f"<Reconciliation {path}: {verdict}, {pytorch} in PyTorch, content {self.content}>"

    def _repr_html_(self) -> str:
        from analyzer.account.notebook import to_html  # only notebooks need it

        rows: list[dict[str, object]] = [
            {"line": row.line.value, "tensors": row.tensors, "elements": row.elements, "bytes": row.nbytes}
            for row in self.bridge
            if row.tensors
        ]
        return to_html(repr(self)[1:-1], rows)

    @property
    def balanced(self) -> bool:
        return not any(row.tensors for row in self.bridge if row.line in UNBALANCED)
