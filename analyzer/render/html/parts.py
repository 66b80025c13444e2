"""What the documents of several commands have in common -> blocks: groups, findings, facts on a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from analyzer.findings.catalog import EXPLANATIONS
from analyzer.render.html.blocks import Block, Column, Fact, Facts, Finding
from analyzer.render.html.reading import View
from analyzer.render.html.wording import bytes_of, show, texts
from analyzer.render.sentences.findings import worst_first

__all__ = [
    "Beside",
    "Keys",
    "compact",
    "facts",
    "list_findings",
    "name",
    "number",
]


@dataclass(slots=True)
class Keys:
    """Gives every block of a page a key of its own."""

    count: int = 0

    def next(self) -> str:
        self.count += 1
        return f"block-{self.count}"


@dataclass(frozen=True, slots=True)
class Beside:
    """What other documents of the page say that belongs next to this one's numbers."""

    keys: Keys = field(default_factory=Keys)
    times: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of each group, by its name."""


def name(title: str) -> Column:
    """A column of names from files."""
    return Column(title, is_code=True)


def number(title: str) -> Column:
    """A column of numbers."""
    return Column(title, is_number=True)


def compact(blocks: Iterable[Block | None]) -> tuple[Block, ...]:
    """Those that are there."""
    return tuple(block for block in blocks if block is not None)


def facts(*pairs: tuple[str, str | None], title: str = "") -> Facts:
    """Those of the names and values that have one."""
    return Facts(tuple(Fact(label, show(value)) for label, value in pairs if value), title)


def list_findings(rows: Iterable[View], model: str = "") -> tuple[Finding, ...]:
    """Each with what the catalogue says of its kind; the gravest first."""
    found = sorted((_finding(row, model) for row in rows), key=lambda each: each.id)
    return tuple(worst_first(found, lambda each: each.severity))


def _finding(row: View, model: str) -> Finding:
    identity = row.text("id") or ""
    known = EXPLANATIONS.get(identity)
    paragraphs: tuple[tuple[str, str], ...] = ()
    if known is not None:
        paragraphs = (
            ("What it means", known.meaning),
            ("What it costs", known.cost),
            ("How to mend it", known.mend),
        )
    nbytes = row.count("bytes") if row.has("bytes") else None
    return Finding(
        id=show(identity),
        severity=show(row.text("severity")),
        message=show(row.text("message"), 4000),
        subjects=texts(row.names("subjects") if row.has("subjects") else ()),
        nbytes="" if nbytes is None else bytes_of(nbytes),
        title=known.title if known is not None else "",
        paragraphs=tuple((heading, text) for heading, text in paragraphs if text),
        model=show(row.text("model")) if row.has("model") else model,
    )
