"""What the Markdown of several commands has in common: names, tables that are cut, groups, findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from analyzer.findings.catalog import EXPLANATIONS
from analyzer.ledger import Finding
from analyzer.render.pieces import Block, Cell, Code, Column, Fold, Items, Piece, Row, Strong
from analyzer.render.sentences.findings import count_severities, worst_first
from analyzer.units import format_bytes, format_count, format_many

__all__ = [
    "columns",
    "cut",
    "list_names",
    "name",
    "others",
    "show_findings",
    "show_sides",
    "text_row",
]

_T = TypeVar("_T")


def columns(*titles: str, words: int = 1) -> tuple[Column, ...]:
    """Columns of which the first `words` hold names, and the others numbers."""
    return tuple(Column(title, is_number=at >= words) for at, title in enumerate(titles))


def text_row(first: Piece, *texts: str, level: int = 0, is_total: bool = False) -> Row:
    """A row of a name and texts."""
    return Row(((first,), *((text,) for text in texts)), level, is_total)


def name(text: str) -> Piece:
    """A name, anybody's; one in brackets is a row that the report adds, as a rule, and stands as text."""
    return text if text.startswith(("[", "(")) else Code(text)


def cut(rows: Sequence[_T], limit: int) -> tuple[Sequence[_T], Sequence[_T]]:
    """Those that are shown and those that are left out; a limit of 0 leaves none out."""
    return (rows[:limit], rows[limit:]) if limit else (rows, ())


def others(left: Sequence[object]) -> str:
    """What stands for those that are left out."""
    return f"[{format_many(len(left), 'other')}]"


def list_names(names: Sequence[str], limit: int) -> Cell:
    """Names with commas between them, and how many more there are."""
    shown, left = cut(names, limit)
    parts = [name(each) for each in shown] + ([others(left)] if left else [])
    return tuple(piece for part in parts for piece in (", ", part))[1:]


def show_sides(a: str, b: str) -> Iterator[Block]:
    """What is compared."""
    yield Items((("a = ", Code(a)), ("b = ", Code(b))))


# groups


# findings


def show_findings(findings: Sequence[Finding], limit: int) -> Iterator[Block]:
    """A fold with a sentence for each, the worst first, what it is about, and how to mend it."""
    if not findings:
        return
    ordered = worst_first(findings, lambda finding: finding.severity)
    shown, left = cut(ordered, limit)
    told: dict[tuple[str, ...], str] = {}
    items = [
        _finding(finding, told.setdefault(finding.subjects, finding.id), min(limit or _SUBJECTS, _SUBJECTS))
        for finding in shown
    ]
    items += [(others(left),)] if left else []
    yield Fold(f"Findings: {count_severities(findings)}", (Items(tuple(items)),))


_SUBJECTS = 5
"""Tensors that a finding's sentence names."""


def _finding(finding: Finding, known: str, limit: int) -> Cell:
    """One finding; `known` is the first that told of the same."""
    pieces: list[Piece] = [Strong(finding.severity.value), " ", Code(finding.id), f": {finding.message}"]
    if known != finding.id and len(finding.subjects) > 1:
        pieces += [f": the same {format_count(len(finding.subjects))} as under ", Code(known)]
    elif finding.subjects:
        pieces += [": ", *list_names(finding.subjects, limit)]
    pieces.append(f". Mending it saves {format_bytes(finding.nbytes)}." if finding.nbytes else ".")
    return (*pieces, *_mend(finding.id))


def _mend(id_: str) -> Iterator[Piece]:
    """How to mend it: the first paragraph of what `explain` says, and where the rest is."""
    if id_ not in EXPLANATIONS:
        return
    paragraph = EXPLANATIONS[id_].mend.strip().partition("\n\n")[0]
    told = " ".join(paragraph.split()).removesuffix(":")
    yield " "
    for at, part in enumerate(told.split("`")):
        if part:
            yield Code(part) if at % 2 else part
    yield " (" if told.endswith(".") else ". ("
    yield Code(f"onnxledger explain {id_}")
    yield ")"
