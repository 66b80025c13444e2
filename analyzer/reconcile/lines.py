"""The lines of the bridge and the records of a reconciliation."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from typing import Literal

from analyzer.ledger import Finding, Ledger, Trainability
from analyzer.manifest import Manifest
from analyzer.model import Key
from analyzer.scopes import module_of

__all__ = [
    "UNBALANCED",
    "BridgeRow",
    "Compared",
    "EntryLine",
    "Line",
    "Nearest",
    "ParameterLine",
    "Piece",
    "Reconciliation",
    "name_of",
]

Compared = Literal["whole", "sampled", "none"]
"""Every element, those at fixed positions, or only names and shapes."""


class Line(enum.StrEnum):
    """What became of a PyTorch parameter, or where a stored tensor came from. In the order of the report."""

    IDENTICAL = "identical"
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
    """A function of each element: 1 + w, exp(w), -exp(w), a constant times w."""
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
    ADDED = "added"
    """Made by the exporter."""
    QUANTIZATION = "quantization"
    DIFFERING = "differing"
    """Same name, other content."""
    MISSING = "missing"
    UNEXPECTED = "unexpected"
    UNEXPLAINED = "unexplained"


UNBALANCED = (Line.DIFFERING, Line.MISSING, Line.UNEXPECTED, Line.UNEXPLAINED)
"""The lines that must be empty for the account to balance."""

_VALUE_CHANGING = (
    Line.FOLDED_BATCHNORM,
    Line.FOLDED_WEIGHTNORM,
    Line.FOLDED_POINTWISE,
    Line.CAST,
    Line.QUANTIZED,
    Line.BLOCK_QUANTIZED,
)


def name_of(chain: tuple[Line, ...]) -> Line:
    """The line of a parameter that went through several: the last that changes a value, else the last.

    >>> name_of((Line.TRANSPOSED, Line.QUANTIZED, Line.COPIED)).value
    'quantized'
    """
    return next((line for line in reversed(chain) if line in _VALUE_CHANGING), chain[-1])


@dataclass(frozen=True, slots=True)
class Piece:
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
    scale: str | None = None
    """The formula that has to be undone, as `decided_by` names it; None for none."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The PyTorch tensor that a stored tensor is most like, though no rule makes it that."""

    key: Key
    name: str
    equal: int
    """Of the compared elements, how many agree."""
    compared: int
    max_abs_error: float | None


@dataclass(frozen=True, slots=True)
class ParameterLine:
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

    @property
    def compared(self) -> Compared:
        """How far its values were compared, as `decided_by` says."""
        words = set(re.split("[+: ]", self.decided_by))
        if words & {"sampled", "sampled-rows"}:
            return "sampled"
        is_compared = self.entries and words & {"content", "rows"}
        return "whole" if is_compared else "none"


@dataclass(frozen=True, slots=True)
class EntryLine:
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


@dataclass(frozen=True, slots=True)
class BridgeRow:
    """One line's totals. See the contract, "Entries, roles and the identities", 3."""

    line: Line
    tensors: int
    elements: int
    parameter_delta: int
    stored_delta: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """A ledger against a manifest, balanced or not.

    `manifest.numel + sum(parameter_delta) = onnx_parameters`, and
    `manifest.numel + sum(stored_delta) = ledger.stored_elements`.
    """

    ledger: Ledger
    manifest: Manifest
    content: str
    """How far values were compared: `none`, `sampled`, `full`."""
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
    undescribed: int = 0
    """PyTorch tensors of which no values are known."""
    nearest: tuple[Nearest, ...] = ()
    """Candidates for what is unexpected, unexplained or differing."""

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

    @property
    def balanced(self) -> bool:
        return not any(row.tensors for row in self.bridge if row.line in UNBALANCED)
