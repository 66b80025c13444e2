"""Cases -> the tables of docs/evidence/tamper.md, as text and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tools.suite.tables import aligned, markdown, percent
from tools.tamper.cases import CHANGED, Case
from tools.tamper.catalog import CERTAIN, CLASSES, KINDS

__all__ = ["render_markdown", "render_text"]

SIDES = ("manifest", "checkpoint", "checkpoint alone")
"""PyTorch's sides. The last is the checkpoint without the config that names its class."""

_INTRODUCTION = f"""# Tampering: what `reconcile` detects

{{kinds}} kinds of tampering with small random models: {{architectures}}; each as {{forms}}. A case counts if the
outputs in onnxruntime change, with the same seeded inputs, by more than {CHANGED:g} of the largest output. A
case is "detected" if `reconcile --content full` does not balance (exit 1) against each of three sides: the
manifest, the checkpoint with its config, and the checkpoint alone. `make tamper` generates the cases and writes
this document; `tests/test_tamper.py` runs a sample.

A cell has the number of detected cases, and of all cases that change the outputs. The columns after the sum have
the cases that are detected against each side alone, and those whose wiring the report finds different from the
exported one (`reads differs`).
"""


def render_text(cases: Sequence[Case]) -> str:
    """Return the table of classes and forms, the kinds with silent cases, and the sums."""
    lines = aligned([*_table(cases)])
    silent = [f"  {reported:>3} of {of:>3}  {name}" for name, reported, of in _kinds(cases) if reported < of]
    parts = [*lines, "", *(["Kinds with silent cases:", *silent, ""] if silent else []), *_sums(cases)]
    return "\n".join(line.rstrip() for line in parts)


def render_markdown(cases: Sequence[Case]) -> str:
    """Return the whole document."""
    header, *rows = _table(cases)
    architectures = list(dict.fromkeys(f"`{case.base.architecture}`" for case in cases))
    forms = list(dict.fromkeys(f"`{case.base.form}`" for case in cases))
    kinds = len({case.kind for case in cases})
    parts = [
        _INTRODUCTION.format(
            kinds=kinds, architectures=", ".join(architectures), forms=", ".join(forms)
        ).rstrip(),
        *_drawn(cases),
        "\n".join(f"- {line}" for line in _sums(cases)),
        markdown([header, *rows]),
        "## What is silent",
        _silent(cases),
        "## Every kind",
        markdown(
            [
                ("kind", "detected", "of"),
                *((f"{name}", f"{reported}", f"{of}") for name, reported, of in _kinds(cases)),
            ]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _drawn(cases: Sequence[Case]) -> Iterator[str]:
    """Yield a note if the cases are a sample."""
    every = len(KINDS) * len(architectures_and_forms(cases))
    if len(cases) < every:
        yield f"Of the {every:,} cases {len(cases):,} were drawn with a seed."


def architectures_and_forms(cases: Sequence[Case]) -> set[tuple[str, str]]:
    return {(case.base.architecture, case.base.form) for case in cases}


def _table(cases: Sequence[Case]) -> Iterator[tuple[str, ...]]:
    forms = list(dict.fromkeys(case.base.form for case in cases))
    yield ("class", *forms, "detected", "", *SIDES, "reads differs")
    for group in (*CLASSES, "all"):
        mine = [c for c in cases if c.counts and (group == "all" or KINDS[c.kind].group == group)]
        if not mine:
            continue
        cells = [_share([case for case in mine if case.base.form == form]) for form in forms]
        reported = sum(case.status == "detected" for case in mine)
        sides = [str(sum(_is_reported(case, side) for case in mine)) for side in SIDES]
        differs = sum(case.judgement is not None and case.judgement.differs for case in mine)
        yield (group, *cells, f"{reported}/{len(mine)}", percent(reported, len(mine)), *sides, str(differs))


def _is_reported(case: Case, side: str) -> bool:
    """Whether that side reports the case; a refused file counts as reported by all sides."""
    if case.judgement is None:
        return case.status == "detected"
    found = case.judgement.sides.get(side)
    return case.status == "detected" if found is None else not found.balanced


def _share(cases: Sequence[Case]) -> str:
    return f"{sum(case.status == 'detected' for case in cases)}/{len(cases)}" if cases else "-"


def _kinds(cases: Iterable[Case]) -> Iterator[tuple[str, int, int]]:
    counted = [case for case in cases if case.counts]
    for name in KINDS:
        mine = [case for case in counted if case.kind == name]
        if mine:
            yield name, sum(case.status == "detected" for case in mine), len(mine)


def _sums(cases: Sequence[Case]) -> Iterator[str]:
    counted = [case for case in cases if case.counts]
    certain = [case for case in counted if KINDS[case.kind].group in CERTAIN]
    for what, some in (("cases", counted), ("cases of the classes that must be detected", certain)):
        reported = sum(case.status == "detected" for case in some)
        yield f"{reported:,} of {len(some):,} {what} are detected: {percent(reported, len(some))}."
    at_positions = sum(case.is_at_positions for case in certain)
    if at_positions:
        yield (
            f"{at_positions:,} more of these classes are detected against each side that has all values. They pass "
            "against the manifest alone, and the report says that codes were compared at positions."
        )
    either = sum(c.status == "detected" or (c.judgement is not None and c.judgement.differs) for c in counted)
    yield f"{either:,} are detected, or their wiring differs from what was exported."
    rest = Counter(case.status for case in cases if not case.counts)
    yield "No case: " + ", ".join(f"{count:,} {status}" for status, count in sorted(rest.items())) + "."
    failed = [case for case in cases if case.status == "failed"]
    for case in failed[:20]:
        yield f"FAILED {case.name}: {case.reason}"


def _silent(cases: Sequence[Case]) -> str:
    silent: dict[str, list[Case]] = {}
    for case in cases:
        if case.status in ("silent", "failed"):
            silent.setdefault(case.kind, []).append(case)
    if not silent:
        return "Nothing is."
    rows = []
    for name, some in silent.items():
        where = [f"`{case.base.name}`{_side(case)}" for case in some[:6]]
        rows.append((name, f"{len(some)}", ", ".join([*where, "..."][: len(some)])))
    return markdown([("kind", "silent", "where"), *rows])


def _side(case: Case) -> str:
    """Return the names of the sides that report nothing, if another side does."""
    if case.judgement is None or case.judgement.balanced:
        return ""
    silent = [side for side, result in case.judgement.sides.items() if result.balanced]
    return f" ({' and '.join(silent)})"
