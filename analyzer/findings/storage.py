"""How a model is stored -> findings: bytes that serve nobody, tensors stored twice, widely, or out of sight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from analyzer.dtypes import DType
from analyzer.findings.evidence import Evidence, labels, sum_elements, sum_nbytes
from analyzer.ledger import Entry, Finding, Role, Severity
from analyzer.model import Carrier, is_training, label
from analyzer.read.book import NODE_METADATA, UNKNOWN
from analyzer.units import format_doing, format_many

__all__ = ["find_bytes", "find_copies", "find_entries"]

_STRIPPABLE = 1 << 10
"""Bytes of metadata that are worth a word."""


def find_entries(evidence: Evidence) -> Iterator[Finding]:
    """What single entries are."""
    for id_, severity, is_one, sentence in _ENTRY_RULES:
        members = [entry for entry in evidence.entries if is_one(entry, evidence)]
        if members:
            freed = evidence.freed(members) or 0
            yield Finding(
                id_,
                severity,
                sentence(members),
                labels(members),
                int(freed * _SAVED.get(id_, Fraction(0))) or None,
            )


def _is_unattributed(entry: Entry, _: Evidence) -> bool:
    return entry.role is Role.UNATTRIBUTED


def _is_unused(entry: Entry, evidence: Evidence) -> bool:
    """Whether no output depends on it. A training graph has outputs of its own, so there it has to be unread."""
    tensor = entry.tensor
    if tensor.carrier is not Carrier.INITIALIZER or tensor.key in evidence.live.needed:
        return False
    return not (entry.uses and is_training(tensor.graph_path))


def _is_hidden_in_constant(entry: Entry, _: Evidence) -> bool:
    carriers = (Carrier.CONSTANT, Carrier.SPARSE_CONSTANT, Carrier.CONSTANT_LIST)
    return entry.role is Role.PARAMETER and entry.tensor.carrier in carriers


def _is_double(entry: Entry, _: Evidence) -> bool:
    return entry.role is Role.PARAMETER and entry.tensor.dtype in (DType.DOUBLE, DType.COMPLEX128)


def _say_size(entries: Sequence[Entry]) -> str:
    return f"{format_many(sum_elements(entries), 'element')} ({format_many(sum_nbytes(entries), 'byte')})"


_Rule = tuple[str, Severity, Callable[[Entry, Evidence], bool], Callable[[Sequence[Entry]], str]]

_ENTRY_RULES: tuple[_Rule, ...] = (
    (
        "unattributed",
        Severity.WARNING,
        _is_unattributed,
        lambda found: f"{format_many(sum_elements(found), 'element')} that no rule explains",
    ),
    (
        "unused-initializer",
        Severity.WARNING,
        _is_unused,
        lambda found: (
            f"{_say_size(found)} in {format_many(len(found), 'initializer')} that no output depends on"
        ),
    ),
    (
        "constant-weights",
        Severity.NOTE,
        _is_hidden_in_constant,
        lambda found: (
            f"{format_doing(sum(entry.parameters for entry in found), 'parameter', 'are')} in Constant nodes, which "
            "tools that count initializers miss"
        ),
    ),
    (
        "fp64-weights",
        Severity.WARNING,
        _is_double,
        lambda found: (
            f"{format_doing(sum_elements(found), 'learned element', 'are')} stored in 64 bits; 32 bits would take "
            f"{format_many(sum_nbytes(found) // 2, 'byte')} less"
        ),
    ),
)
"""(id, severity, whether an entry is one, the sentence)."""

_SAVED = {"unused-initializer": Fraction(1), "fp64-weights": Fraction(1, 2)}
"""What of its entries' bytes mending a finding saves; of the others nothing."""


def find_bytes(evidence: Evidence) -> Iterator[Finding]:
    """Bytes that could be spared, and external data that is claimed twice or by nobody."""
    model, booked = evidence.model, evidence.booked
    nbytes = {account.name: account.nbytes for account in booked.accounts}
    metadata = nbytes[NODE_METADATA]
    if metadata >= _STRIPPABLE:
        message = (
            f"{format_many(metadata, 'byte')} could be stripped: stack traces and notes on nodes, without which a "
            "model runs as well (the notes tell subgraphs apart, so audit before you strip)"
        )
        yield Finding("strippable-metadata", Severity.NOTE, message, nbytes=metadata)
    if nbytes[UNKNOWN]:
        said = format_doing(nbytes[UNKNOWN], "byte", "are")
        message = f"{said} in fields that the ONNX format does not define: no reader sees them"
        yield Finding("unknown-fields", Severity.WARNING, message, nbytes=nbytes[UNKNOWN])
    if booked.overlaps:
        pairs = tuple(sorted(f"{label(a.tensor.key)} and {label(b.tensor.key)}" for a, b in booked.overlaps))
        said = format_doing(len(pairs), "tensor", "begin")
        message = f"{said} within the external data of another; their bytes are booked once"
        yield Finding("external-overlap", Severity.WARNING, message, pairs)
    if booked.orphans:
        names = {file.key: file.path for file in model.files}
        places = tuple(
            f"{names[gap.file]}: {format_many(gap.length, 'byte')} at offset {gap.offset:,}"
            for gap in booked.orphans
        )
        orphaned = sum(gap.length for gap in booked.orphans)
        belong = "belongs" if orphaned == 1 else "belong"
        message = f"{format_many(orphaned, 'byte')} of external files {belong} to no tensor"
        yield Finding("external-orphaned", Severity.WARNING, message, places, orphaned)


def find_copies(evidence: Evidence) -> Iterator[Finding]:
    """Tensors that repeat another's content, in the same file or in that of another component."""
    entries = evidence.entries
    for rule, finding, words in _COPIES:
        copies = [entry for entry in entries if entry.decided_by == rule]
        if copies:
            named = [f"{label(e.tensor.key)} = {label(e.copy_of)}" for e in copies if e.copy_of is not None]
            freed = evidence.freed(copies)
            elements, nbytes = sum_elements(copies), freed or 0
            are = "is" if elements == 1 else "are"
            message = (
                f"{format_doing(nbytes, 'byte', 'stand')} in more than one file: {format_many(elements, 'element')} "
                f"{are} stored again for another component{words}"
                if copies[0].is_duplicate
                else f"{format_many(elements, 'element')} ({format_many(nbytes, 'byte')}) {are} stored again, {words}"
            )
            yield Finding(finding, Severity.WARNING, message, tuple(sorted(named)), freed)


_COPIES = (
    ("content:copy", "duplicate-content", "as it stands"),
    ("content:transposed-copy", "transposed-copy", "transposed"),
    ("content:cast-copy", "duplicate-content", "cast to another type"),
    ("content:quantized-copy", "duplicate-content", "as codes, within their quantization step"),
    ("content:duplicated-file", "duplicate-content", ""),
    ("content:cast-duplicated-file", "duplicate-content", ", cast to another type"),
    ("content:quantized-duplicated-file", "duplicate-content", ", as codes, within their quantization step"),
    ("content:transposed-duplicated-file", "transposed-copy", ", transposed"),
    ("name:duplicated-file", "duplicate-content", ", by their names (--content sampled compares them)"),
)
"""(rule, id of the finding, how they are stored again)."""
