"""Cases -> the tables of docs/evidence/rewrites.md, as text and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tools.rewrites.cases import Case
from tools.rewrites.known import reason_of
from tools.rewrites.rewriting import REWRITES
from tools.suite.tables import aligned, markdown, percent

__all__ = ["render_markdown", "render_text"]

_INTRODUCTION = """# Honest rewrites: which are wrongly red

{rewrites} equivalent rewrites of the files of small random models: {architectures}; each as {forms}. A case counts if
onnxruntime computes the same afterwards, with the same seeded inputs and within the rounding of the stored types. A
case is "red" if `reconcile --content full` balanced before and no longer balances, against the checkpoint or against
the manifest. `make rewrites` generates the cases and writes this document; `tests/test_rewrites.py` runs a sample.

A cell has the number of red cases, and of all cases.
"""


def render_text(cases: Sequence[Case]) -> str:
    """Return the table of rewrites and forms, the reasons, and the sums."""
    lines = aligned([*_table(cases)])
    reds = [f"  {case.name}: {case.reason[:200]}" for case in cases if case.status in ("red", "failed")]
    parts = [*lines, "", *(["Red:", *reds, ""] if reds else []), *_sums(cases)]
    return "\n".join(line.rstrip() for line in parts)


def render_markdown(cases: Sequence[Case]) -> str:
    """Return the whole document."""
    introduction = _INTRODUCTION.format(
        rewrites=len({case.rewrite for case in cases}),
        architectures=", ".join(dict.fromkeys(f"`{case.base.architecture}`" for case in cases)),
        forms=", ".join(dict.fromkeys(f"`{case.base.form}`" for case in cases)),
    )
    parts = [
        introduction.rstrip(),
        "\n".join(f"- {line}" for line in _sums(cases)),
        markdown([*_table(cases)]),
        "## What is red, and why",
        _reds(cases),
        "## Rewrites that are no cases",
        _absences(cases),
    ]
    return "\n\n".join(parts) + "\n"


def _table(cases: Sequence[Case]) -> Iterator[tuple[str, ...]]:
    forms = list(dict.fromkeys(case.base.form for case in cases))
    yield ("rewrite", *forms, "red")
    counted = [case for case in cases if case.counts]
    for name in REWRITES:
        mine = [case for case in counted if case.rewrite == name]
        if mine:
            yield (name, *(_share(c for c in mine if c.base.form == form) for form in forms), _share(mine))
    yield ("all", *(_share(c for c in counted if c.base.form == form) for form in forms), _share(counted))


def _share(cases: Iterable[Case]) -> str:
    some = list(cases)
    return f"{sum(case.status != 'balanced' for case in some)}/{len(some)}" if some else "-"


def _sums(cases: Sequence[Case]) -> Iterator[str]:
    counted = [case for case in cases if case.counts]
    red = sum(case.status != "balanced" for case in counted)
    yield f"{red:,} of {len(counted):,} cases are red: {percent(red, len(counted))}."
    rest = Counter(case.status for case in cases if not case.counts)
    yield "No case: " + ", ".join(f"{count:,} {status}" for status, count in sorted(rest.items())) + "."


def _reds(cases: Sequence[Case]) -> str:
    rows = [
        (f"`{case.base.name}`", case.rewrite, _escaped(case.reason), reason_of(case.name) or "not known yet")
        for case in cases
        if case.status in ("red", "failed")
    ]
    return markdown([("file", "rewrite", "what does not balance", "why"), *rows]) if rows else "Nothing is."


def _absences(cases: Sequence[Case]) -> str:
    found: dict[tuple[str, str, str], int] = Counter(
        (case.rewrite, case.status, _escaped(case.reason or f"{case.change:.2g}"))
        for case in cases
        if case.status in ("computes otherwise", "does not run")
    )
    rows = [(name, status, f"{count}", reason) for (name, status, reason), count in found.items()]
    return markdown([("rewrite", "", "files", "why"), *rows]) if rows else "All are."


def _escaped(text: str) -> str:
    return "".join(f"\\{character}" if character in "|<>*_[]`\\" else character for character in text)
