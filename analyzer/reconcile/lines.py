"""The lines of the bridge and the records of a reconciliation."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from analyzer.ledger import Finding, Ledger, Trainability
from analyzer.manifest import Manifest
from analyzer.model import Key
from analyzer.scopes import module_of

__all__ = ["UNBALANCED", "BridgeRow", "EntryLine", "Line", "ParameterLine", "Reconciliation"]


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
    TIED = "tied"
    """Several PyTorch names, stored once."""
    DEDUPLICATED = "deduplicated"
    """Equal content of another parameter, merged by the exporter."""
    REMOVED_ZERO = "removed-zero"
    """A bias of zeros that the optimizer took off its node."""
    FOLDED_BATCHNORM = "folded-batchnorm"
    """A convolution's weight scaled by a BatchNorm, and the bias that the BatchNorm became."""
    COPIED = "copied"
    """Stored again, as it stands or transposed."""
    UNUSED = "unused"
    """The exported program does not read it."""
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


@dataclass(frozen=True, slots=True)
class EntryLine:
    """Where one stored tensor came from."""

    key: Key
    line: Line
    parameter: str | None
    """The PyTorch name that it holds, if it holds one."""
    decided_by: str
    learned: int = 0
    """Elements that count as parameters: none of a copy's, nor of what the exporter made; repeated rows once."""


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
    def balanced(self) -> bool:
        return not any(row.tensors for row in self.bridge if row.line in UNBALANCED)
