"""The tables of the pages on JSON: each key's text is its field's docstring and unit."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from analyzer.documents import (
    check,
    compare,
    compare_time,
    cost,
    explain,
    formula,
    generation,
    graph,
    inspect,
    recover,
    shared,
    survey,
    time,
)
from analyzer.documents.base import Record
from analyzer.documents.kinds import DOCUMENTS
from tools.schemas.generate import docstrings

__all__ = ["PAGES", "TABLES", "keys_of", "rewrite"]

_DOCS = Path(__file__).parents[2] / "docs"

TABLES: Mapping[str, Mapping[str, type[Record]]] = {
    "reference/report-format.md": {
        **{name: record for name, record in DOCUMENTS.items() if name != "graph"},
        "head": inspect.InspectDocument,
        "totals": inspect.InspectDocument,
        "dtypes": inspect.InspectDocument,
        "grouping": inspect.InspectDocument,
        "group": shared.Group,
        "tree_row": shared.TreeRow,
        "counted_macs": shared.CountedMacs,
        "finding": shared.Finding,
        "tensor": inspect.Tensor,
        "role": inspect.RoleTotals,
        "surveyed": survey.Surveyed,
        "unreadable": survey.Unreadable,
        "state_tensor": recover.StateTensor,
        "pair": compare.Pair,
        "statuses": compare.Statuses,
        "group_pair": compare.GroupPair,
        "tensor_pair": compare.TensorPair,
        "tensor_side": compare.TensorSide,
        "ms_pair": compare_time.MsPair,
        "time_pair": compare_time.TimePair,
        "compared_point": compare_time.ComparedPoint,
        "verdict": check.Verdict,
        "contributor": check.Contributor,
        "model_finding": check.ModelFinding,
        "input": time.InputFeed,
        "axis": time.AxisSize,
        "latency": time.Latency,
        "time_group": time.TimeGroup,
        "elsewhere": time.Elsewhere,
        "kernel": time.Kernel,
        "point": time.Point,
        "generation_component": generation.GenerationComponent,
        "growth": time.Growth,
        "group_growth": time.GroupGrowth,
        "formula_term": formula.FormulaTerm,
        "formula_part": formula.FormulaPart,
        "formula_field": formula.FormulaField,
        "explanation": explain.Explanation,
        "amount": cost.Amount,
    },
    "graph.md": {
        "graph": graph.GraphDocument,
        "node": graph.NodeVertex,
        "tensor": graph.GraphTensor,
        "end": graph.End,
        "link": graph.Link,
        "group": graph.GraphGroup,
        "collapsed_end": graph.CollapsedEnd,
        "crossing": graph.Crossing,
    },
}
"""Record of each table of a page, by the heading above it."""

PAGES = tuple(_DOCS / name for name in TABLES)


def rewrite(page: Path) -> str:
    """Return the page with the records' texts and units of its keys; links stay if a text is the same."""
    lines, heading = [], ""
    meanings = functools.cache(lambda record: dict(keys_of(record)))
    tables = TABLES[page.relative_to(_DOCS).as_posix()]
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            found = re.fullmatch(r"#+ `(\w+)`", line)
            heading = found[1] if found else heading
        row = re.fullmatch(r"\| `([^`]+)` \| (.*?) \| (.*?) ?\| (.*) \|", line)
        record = tables.get(heading)
        texts = meanings(record) if row and record else {}
        if row and row[1] in texts:
            text, unit = texts[row[1]]
            text = row[4] if _without_links(row[4]) == text else text
            lines.append(f"| `{row[1]}` | {row[2]} | {f'{unit} ' if unit else ''}| {text} |")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def _without_links(text: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def keys_of(
    record: type[Record], prefix: str = "", apart: frozenset[type[Record]] = frozenset()
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the keys of a table, `a`, `a.b`, `a[].b`, with their meanings and units; not those of records `apart`."""
    texts = docstrings(record)
    for field in msgspec.structs.fields(record):
        key = f"{prefix}{field.encode_name}"
        yield key, (texts[field.name].removesuffix("."), " or ".join(dict.fromkeys(_units(field.type))))
        for inner, is_row in _records(msgspec.inspect.type_info(field.type)):
            if inner not in apart:
                yield from keys_of(inner, f"{key}{'[]' if is_row else ''}.", apart)


def _units(kind: Any) -> Iterator[str]:
    """Yield the unit of a number, or of numbers in a list or a mapping."""
    for meta in getattr(kind, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta) and meta.extra:
            yield meta.extra["unit"]
    for part in (
        *getattr(kind, "__args__", ()),
        *([kind.__origin__] if hasattr(kind, "__metadata__") else []),
    ):
        yield from _units(part)


def _records(info: msgspec.inspect.Type, is_row: bool = False) -> Iterator[tuple[type[Record], bool]]:
    match info:
        case msgspec.inspect.StructType(cls=cls) if issubclass(cls, Record):
            yield cls, is_row
        case msgspec.inspect.ListType(item_type=item):
            yield from _records(item, True)
        case msgspec.inspect.UnionType(types=types):
            for each in types:
                yield from _records(each, is_row)
        case msgspec.inspect.Metadata(type=inner):
            yield from _records(inner, is_row)
