"""Cases -> the table of docs/evidence/faults.md, as text and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tools.faults.cases import CHANGED, CLEAN, Case
from tools.faults.quantizing import FAULTS
from tools.suite.tables import aligned, markdown, percent

_COUNTED = ("detected", "silent", "unknown", "failed")

_INTRODUCTION = f"""# Faults: what `verify` catches

{{kinds}} of {{all_kinds}} kinds of faults were tried in {{files}} files: small models with random weights, of {{many}}
architectures ({{architectures}}), each as {{forms}}, as far as time allowed and a file could be made. Each file has a
separate random selection of kinds. A case counts if the fault changes the outputs in onnxruntime by more than
{CHANGED:g} of the largest output; for this test activations are not rounded to codes, as any noise changes some codes.
A case is "caught" if `verify` against PyTorch's module does not answer `same`; "placed" if the named module has the
fault, or contains or is part of one that has it (a convolution with a folded normalization is both); "explained" if the
report names the cause of the fault. Clean files are those without a fault. `unknown` is no answer (exit code 2), and is
neither placed nor explained. `make faults` generates the cases and writes this document; `ARGS="--only gpt2/qdq/*"`
tries all kinds in one file.
"""


def render_text(cases: Sequence[Case]) -> str:
    """Return the table, the sums, and the cases with an unexpected result."""
    lines = aligned([*_table(cases)])
    return "\n".join([*(line.rstrip() for line in lines), "", *_sums(cases), "", *_unexpected(cases)])


def render_markdown(cases: Sequence[Case]) -> str:
    """Return the whole document."""
    names = list(dict.fromkeys(f"`{case.base.architecture}`" for case in cases))
    forms = list(dict.fromkeys(f"`{case.base.form}`" for case in cases))
    kinds = {case.kind for case in cases if case.kind != CLEAN}
    parts = [
        _INTRODUCTION.format(
            kinds=len(kinds),
            all_kinds=len(FAULTS),
            files=len({case.base for case in cases}),
            many=len(names),
            architectures=", ".join(names),
            forms=", ".join(forms),
        ).rstrip(),
        "\n".join(f"- {line}" for line in _sums(cases)),
        markdown([*_table(cases)]),
        "## What is not caught, or an alarm",
        "\n".join(f"- {line}" for line in _unexpected(cases)) or "Nothing is.",
        "## What is placed elsewhere, or detected without its cause",
        "\n".join(f"- {line}" for line in _imprecise(cases)) or "Nothing is.",
    ]
    return "\n\n".join(parts) + "\n"


def _counted(cases: Sequence[Case]) -> list[Case]:
    return [case for case in cases if case.kind != CLEAN and case.status in _COUNTED]


def _table(cases: Sequence[Case]) -> Iterator[tuple[str, ...]]:
    groups = list(dict.fromkeys(case.kind.partition("/")[0] for case in _counted(cases)))
    forms = list(dict.fromkeys(case.base.form for case in _counted(cases)))
    yield ("class", "cases", "caught", "placed", "explained")
    for group in groups:
        yield _row(group, [c for c in _counted(cases) if c.kind.partition("/")[0] == group])
    for form in forms:
        yield _row(f"as {form}", [c for c in _counted(cases) if c.base.form == form])
    yield _row("all", _counted(cases))


def _row(name: str, cases: Sequence[Case]) -> tuple[str, ...]:
    caught = [case for case in cases if case.status in ("detected", "unknown")]
    reported = [case for case in cases if case.status == "detected"]
    return (
        name,
        f"{len(cases)}",
        percent(len(caught), len(cases)),
        percent(sum(case.is_placed for case in reported), len(cases)),
        percent(sum(case.is_explained for case in reported), len(cases)),
    )


def _sums(cases: Sequence[Case]) -> Iterator[str]:
    counted = _counted(cases)
    caught = sum(case.status in ("detected", "unknown") for case in counted)
    yield f"{caught:,} of {len(counted):,} faults are caught: {percent(caught, len(counted))}."
    placed = sum(case.is_placed for case in counted)
    yield f"{placed:,} are placed at the right module: {percent(placed, len(counted))}."
    explained = sum(case.is_explained for case in counted)
    yield f"{explained:,} are detected with their cause: {percent(explained, len(counted))}."
    clean = Counter(case.status for case in cases if case.kind == CLEAN)
    many = sum(clean[status] for status in ("same", "alarm", "unknown", "failed"))
    yield f"{clean['alarm']:,} of {many:,} clean files raise an alarm; {clean['same']:,} are the same."
    rest = Counter(case.status for case in cases if case.status not in (*_COUNTED, "same", "alarm"))
    yield "No case: " + ", ".join(f"{count:,} {status}" for status, count in sorted(rest.items())) + "."


def _unexpected(cases: Sequence[Case]) -> Iterator[str]:
    for case in cases:
        if case.status in ("silent", "alarm", "failed") or (case.kind == CLEAN and case.status == "unknown"):
            yield f"{case.name}: {case.status}: {case.reason[:200]}"


def _imprecise(cases: Sequence[Case]) -> Iterator[str]:
    for case in cases:
        if case.status == "detected" and not (case.is_placed and case.is_explained):
            where = "" if case.is_placed else f", and it is in {' or '.join(case.modules[:3]) or 'no module'}"
            yield f"{case.name}: {case.reason[:160]}{where}"
