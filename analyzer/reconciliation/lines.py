"""The lines of the bridge, what each means, and the records of a reconciliation."""

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
from analyzer.records import Frozen, aside, replace
from analyzer.text import format_many, printable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from analyzer.reconciliation.layouts import Tiles

Compared = Literal["whole", "sampled", "none"]
"""Every element; some of them, with or without the sums of each row; or only names and shapes."""


Computes = Literal["same", "differs", "not-known"]
"""Whether the file computes PyTorch's program, by `analyzer.verify.proved`."""

Reads = Literal["as-exported", "differs", "not-compared"]
"""Wired as exported; wired otherwise; or a file that no export is known of, or that a tool has rewritten since."""


class Line(enum.StrEnum):
    """What became of a PyTorch parameter, or where a stored tensor came from. In the order of the report."""

    IDENTICAL = "identical"
    NAMED = "named"
    """The same name and shape; values were not compared."""
    RENAMED = "renamed"
    TRANSPOSED = "transposed"
    RESHAPED = "reshaped"
    SLICED = "sliced"
    """Some rows of a table, in order."""
    GATHERED = "gathered"
    """Rows of a table as some indices pick them."""
    BROADCAST = "broadcast"
    """All rows of a table, repeated."""
    CONCATENATED = "concatenated"
    """Stored in one piece with others: packed query, key and value; gate and up."""
    TIED = "tied"
    """Several PyTorch names, stored once."""
    DEDUPLICATED = "deduplicated"
    """Equal content of another parameter, merged by the exporter."""
    REMOVED_ZERO = "removed-zero"
    """A bias of zeros that the optimizer took off its node."""
    FOLDED_BATCHNORM = "folded-batchnorm"
    """A convolution's weight scaled by a BatchNorm, and the bias that the BatchNorm became."""
    FOLDED_WEIGHTNORM = "folded-weightnorm"
    """A direction and a length (`weight_v`, `weight_g`), multiplied out."""
    FOLDED_POINTWISE = "folded-pointwise"
    """A function of each element: 1 + w, exp(w), -exp(w), a constant times w; a factor for each channel that moved from
    a norm into the weights behind it."""
    EVALUATED = "evaluated"
    """A value of PyTorch's own program that depends on no input, computed in advance."""
    CAST = "cast"
    """In another floating-point type, rounded to it."""
    QUANTIZED = "quantized"
    """Integers or 8-bit floats, with a scale for the tensor or for each channel."""
    BLOCK_QUANTIZED = "block-quantized"
    """Codes of a few bits, with a scale for each block."""
    COPIED = "copied"
    """Stored again, as it stands or transposed."""
    DUPLICATED_FILE = "duplicated-file"
    """Stored again in another file of the artifact."""
    UNUSED = "unused"
    """The exported program does not read it."""
    OUTSIDE = "outside"
    """Of a head that this file's task does not have."""
    BUFFER = "buffer"
    """A PyTorch buffer, or computed from one."""
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
    """No rule explains what it is."""
    MISPLACED = "misplaced"
    """One parameter's values where another's belong."""
    DEAD = "dead"
    """Held, but no output depends on it."""
    OPAQUE = "opaque"
    """Data that nothing of PyTorch's explains, and that computes."""
    NOT_COMPARED = "not-compared"
    """PyTorch's side names it and does not describe it."""


class Meaning(Frozen, kw_only=True):
    """What a line means to whoever reads the bridge."""

    values: Literal["kept", "cast", "coded", "computed", "none"]
    """What the file has of a parameter's values: all bits, rounded to another type, codes of them, what was computed
    from them, or nothing that is known to be theirs."""
    is_cut: bool = False
    """Whether it is of a table of which the file may have only some rows, in whatever type."""
    has_tensor: bool = True
    """Whether a parameter on it has a stored tensor that is, or may be, its own."""
    unbalanced: tuple[str, ...] = ()
    """What is wrong, of one tensor and of several; nothing where the account balances all the same."""
    lost: str = ""
    """Why nothing on it can be given back; empty where it can, or where the tensor at hand says why not."""
    in_formula: str = ""
    """What is said of elements that a formula has and the file, by this line, has not."""

    @property
    def changes_values(self) -> bool:
        return self.values in ("cast", "coded", "computed")


_ROWS = "of a table of which the file has some rows only"

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
        values="none", has_tensor=False, in_formula="biases of zeros, which the exporter took off"
    ),
    Line.FOLDED_BATCHNORM: Meaning(
        values="computed",
        lost="multiplied out with a BatchNorm: only the product is in the file",
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
        lost="computed in advance: only what PyTorch's program makes of it is in the file",
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
        unbalanced=("no rule explains what it is", "no rule explains what they are"),
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
            "it takes part in the computation, and nothing of PyTorch's explains it",
            "they take part in the computation, and nothing of PyTorch's explains them",
        ),
    ),
    Line.NOT_COMPARED: Meaning(
        values="none",
        unbalanced=(
            "PyTorch's side names it and does not describe it",
            "PyTorch's side names them and does not describe them",
        ),
    ),
}
"""What every line means: whoever asks, asks here."""

UNBALANCED = tuple(line for line, meaning in MEANINGS.items() if meaning.unbalanced)
"""The lines that must be empty for the account to balance."""

Why = Literal["changed", "held-elsewhere", "reordered", "turned", "undecoded", "unreadable", "untraced"]
"""What is known of a parameter that differs."""

WHY: Mapping[str, tuple[str, str]] = {
    "changed": (
        "the file has its values, and a node makes others of them before they are used",
        "the file has their values, and nodes make others of them before they are used",
    ),
    "held-elsewhere": (
        "the file has other values under this name, and its own under another",
        "the file has other values under these names, and their own under others",
    ),
    "reordered": ("the file has its values in another order", "the file has their values in another order"),
    "turned": ("its values stand the other way round", "their values stand the other way round"),
    "undecoded": (
        "it is stored as codes that no scale decodes, so that nobody knows its values",
        "they are stored as codes that no scale decodes, so that nobody knows their values",
    ),
    "unreadable": (
        "it cannot be read, so that nobody knows its values",
        "they cannot be read, so that nobody knows their values",
    ),
    "untraced": (
        "more nodes stand behind it than are followed, so that nobody knows what arrives",
        "more nodes stand behind them than are followed, so that nobody knows what arrives",
    ),
}
"""What is wrong on the line `differing`, of one tensor and of several, where it is not that the file has other values:
by what the rule in `decided_by` ends with."""


CHANGED_BY = "changed-by-"
"""What the rule begins with where a node changes a tensor; the operator follows."""


def why_differing(line: Line, decided_by: str) -> Why | None:
    """The key of `WHY` that says what is wrong; None where other values are, and of any other line.

    >>> why_differing(Line.DIFFERING, "content:reordered"), why_differing(Line.DIFFERING, "name+content")
    ('reordered', None)
    """
    why = decided_by.rpartition(":")[2]
    if why.startswith(CHANGED_BY):
        why = "changed"
    return cast("Why", why) if line is Line.DIFFERING and why in WHY else None


RETYPED = tuple(line for line, meaning in MEANINGS.items() if meaning.values in ("cast", "coded"))
"""The lines of what is stored in another type than PyTorch's; whatever else became of it did so before."""


def with_line(chain: Iterable[Line], line: Line) -> tuple[Line, ...]:
    """A chain with one more line, before those of another type.

    >>> [str(each) for each in with_line((Line.TRANSPOSED, Line.CAST), Line.CONCATENATED)]
    ['transposed', 'concatenated', 'cast']
    """
    lines = tuple(chain)
    moved, retyped = (tuple(x for x in lines if (x in RETYPED) is last) for last in (False, True))
    return (*moved, line, *retyped)


def name_of(chain: tuple[Line, ...]) -> Line:
    """The line of a parameter that went through several: the last that changes a value, else the last.

    >>> name_of((Line.TRANSPOSED, Line.QUANTIZED, Line.COPIED)).value
    'quantized'
    """
    return next((line for line in reversed(chain) if MEANINGS[line].changes_values), chain[-1])


@aside("undo")
class Computed(Frozen):
    """What was made of each element before it was stored, and how it is taken back."""

    rule: str
    """As `decided_by` names it: `1+w`."""
    undo: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]] | None = None
    """What takes it back; None where the stored values alone do not tell, so that the tensor is lost."""
    factor: float | None = None
    """What each element was multiplied by, where that is all."""


class Piece(Frozen):
    """Where a part of a PyTorch tensor is stored, and how to get it back.

    The stored tensor is decoded, `taken` is cut from it, what is left is reshaped to the permuted shape and permuted
    back (`layout`), and the result is the PyTorch tensor, or the part of it that `put` names.
    """

    key: Key
    shape: tuple[int, ...]
    """Of the part, in PyTorch's order of axes."""
    axes: tuple[int, ...]
    """The order of PyTorch's axes in the file."""
    taken: tuple[int, int, int] | None = None
    """(axis, start, stop) in the decoded stored tensor; None for all of it."""
    put: tuple[int, int, int] | None = None
    """(axis, start, stop) in the PyTorch tensor; None for all of it."""
    viewed: tuple[int, ...] | None = None
    """The shape that the decoded tensor is first given; None takes its axes of more than one element."""
    computed: Computed | None = None
    """What has to be undone; None where the values are PyTorch's."""
    tiles: Tiles | None = None
    """How the stored tensor gets PyTorch's order of elements before all that; None where it has it."""


class Nearest(Frozen):
    """The PyTorch tensor that a stored tensor is most like, though no rule makes it that."""

    key: Key
    name: str
    equal: int
    """Of the compared elements, how many agree."""
    compared: int
    """How many elements were compared, at some positions."""
    max_abs_error: float | None
    """Largest difference among them; None where that is no number."""


SAMPLED = frozenset({"sampled", "sampled-rows", "sums"})
"""What `decided_by` has where not every value was compared."""


class ParameterLine(Frozen):
    """Where one PyTorch parameter went."""

    name: str
    line: Line
    chain: tuple[Line, ...]
    """All lines that apply, in order."""
    entries: tuple[Key, ...]
    """The stored tensors that hold it; the first is the one it is counted in, the others are copies."""
    decided_by: str
    max_abs_error: float | None
    """Largest difference to the stored values among those compared; None where none were."""
    pieces: tuple[Piece, ...] = ()
    """How to get it back from the file; empty where nothing in the file is it."""
    has_sampled_copy: bool = False
    """Whether one of its copies was compared at positions or by sums alone."""

    @property
    def compared(self) -> Compared:
        """How far its values were compared, in all of its copies, as `decided_by` says."""
        words = set(re.split("[+: ]", self.decided_by))
        if self.has_sampled_copy or words & SAMPLED:
            return "sampled"
        is_compared = self.entries and words & {"content", "rows"}
        return "whole" if is_compared else "none"


class EntryLine(Frozen):
    """Where one stored tensor came from."""

    key: Key
    line: Line
    parameter: str | None
    """The PyTorch name that it holds, the first if it holds several."""
    decided_by: str
    learned: int = 0
    """Elements that count as parameters: none of a copy's, nor of what the exporter made; repeated rows once."""
    piece: Piece | None = None
    """Of a buffer: how to get it back, where the tensor is all of it."""
    expression: str | None = None
    """Of what PyTorch's program computes of no input: what that is."""
    value: str | None = None
    """The name of that value in the program."""
    stands: Piece | None = None
    """How it stands here, as of a parameter; None where it is not all of the tensor."""
    order: str = ""
    """Of rows of a table: what tells in which order they stand here, where that is known."""


class BridgeRow(Frozen):
    """One line's totals, as docs/reference/report-format.md defines them ("The lines of the bridge").

    `tensors` are parameters and stored tensors, `elements` what is touched of both. `parameter_delta` and
    `stored_delta` are the elements, signed, that lead from PyTorch's parameters to the file's parameters and to what it
    stores. `nbytes` are bytes of payload of the stored tensors.
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
    """How far values were compared."""
    bridge: tuple[BridgeRow, ...]
    """Every line, also the empty ones."""
    parameters: tuple[ParameterLine, ...]
    """In `named_parameters()` order."""
    entries: tuple[EntryLine, ...]
    """In file order."""
    onnx_parameters: int
    """The count with the PyTorch side known."""
    findings: tuple[Finding, ...]
    trainability: Trainability
    nearest: tuple[Nearest, ...] = ()
    """Candidates for what is unexpected, unexplained or differing."""
    reads: Reads = "not-compared"
    """Whether the file computes with its weights what the manifest's export did."""
    differs_from: str | None = None
    """The first module, in the export's order, that computes something else; "" where none can be named."""
    checked_places: int = 0
    """Parameters that would have been found in another one's place; 0 where values were not compared."""
    computes: Computes = "not-known"
    """Whether the file is the program of PyTorch that the manifest has."""

    def in_pytorch_terms(self) -> Ledger:
        """The ledger with each tensor under the scope of the parameter that it holds, and counted as one.

        A tied tensor belongs to its first name in `named_parameters()` order; a copy stays where it is read.
        """
        told = []
        for entry, line in zip(self.ledger.entries, self.entries, strict=True):
            known = replace(entry, parameters=line.learned)
            if line.learned and line.parameter is not None:
                known = replace(known, scope=module_of(line.parameter), scoped_by="provenance:manifest")
            told.append(known)
        return replace(self.ledger, entries=tuple(told))

    @property
    def compared(self) -> dict[Compared, int]:
        """Elements of PyTorch's parameters, by how far the values in the file were compared with theirs."""
        counts: dict[Compared, int] = {"whole": 0, "sampled": 0, "none": 0}
        for parameter, line in zip(self.manifest.parameters, self.parameters, strict=True):
            counts[line.compared] += parameter.numel
        return counts

    def expression(self, settled: ParameterLine) -> str | None:
        """What PyTorch's program computes of a parameter that only such a value holds."""
        if Line.EVALUATED not in settled.chain:
            return None
        told = {line.key: line.expression for line in self.entries if line.key in settled.entries}
        return next((told[key] for key in settled.entries if told.get(key)), None)

    @property
    def evaluated(self) -> tuple[EntryLine, ...]:
        """The stored tensors that are values of PyTorch's program, in file order."""
        return tuple(
            line for line in self.entries if line.expression is not None and line.line is Line.EVALUATED
        )

    @property
    def misplaced(self) -> int:
        """Parameters whose values stand where another's belong."""
        return sum(line.line is Line.MISPLACED for line in self.parameters)

    def rows(self) -> list[dict[str, object]]:
        """A row for each PyTorch parameter, in `named_parameters()` order, with the keys of `reconcile`'s JSON."""
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
        from analyzer.account.notebook import to_html  # what only notebooks need

        rows: list[dict[str, object]] = [
            {"line": row.line.value, "tensors": row.tensors, "elements": row.elements, "bytes": row.nbytes}
            for row in self.bridge
            if row.tensors
        ]
        return to_html(repr(self)[1:-1], rows)

    @property
    def balanced(self) -> bool:
        return not any(row.tensors for row in self.bridge if row.line in UNBALANCED)
