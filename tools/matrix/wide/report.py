"""Outcomes of cells -> lines for a terminal, and the tables of docs/evidence/matrix-wide.md, as Markdown."""

from __future__ import annotations

import platform
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from tools.matrix.report import escaped, list_some, own_version, percent, table
from tools.matrix.wide.account import Outcome, SideOutcome
from tools.matrix.wide.causes import cause_of, is_broken
from tools.matrix.wide.plan import ARCHITECTURES, EXPORTS, FRESH, HELD_OUT, SIDES, TOOLS


def line_of(outcome: Outcome) -> str:
    """Return one line for a terminal."""
    if outcome.status != "made":
        return f"{outcome.cell.name:48} {outcome.status}: {outcome.reason}"
    parts = [f"{side.side} {_describe_side(side)}" for side in outcome.sides]
    parts += [
        f"BALANCED AGAINST {negative.kind} {negative.changed}"
        for negative in outcome.negatives
        if negative.balanced
    ]
    if outcome.alone != "exact":
        parts.append(f"alone {outcome.alone}: {outcome.parameters:,} ({_range(outcome)}) of {outcome.read:,}")
    return f"{outcome.cell.name:48} {'; '.join(parts)}"


def _range(outcome: Outcome) -> str:
    """Return the range of the file's own count of parameters."""
    most = outcome.at_most
    return f"{outcome.at_least:,} or more" if most is None else f"{outcome.at_least:,} to {most:,}"


def _describe_side(side: SideOutcome) -> str:
    if side.balanced:
        return "ok"
    if side.error:
        return side.error
    return " + ".join(
        f"{residue.elements:,} {residue.line} ({', '.join(residue.names[:2])})" for residue in side.residue
    )


def summary_lines(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return sums and percentages, one sentence each."""
    made = [outcome for outcome in outcomes if outcome.status in ("made", "failed")]
    absent = Counter(outcome.status for outcome in outcomes if outcome.status not in ("made", "failed"))
    architectures = {outcome.cell.architecture for outcome in made}
    lines = [
        f"{len(made):,} files of {len(architectures)} architectures were made; "
        + ", ".join(f"{count:,} {status}" for status, count in sorted(absent.items()))
        + "."
        if absent
        else f"{len(made):,} files of {len(architectures)} architectures were made."
    ]
    groups = (
        ("", made),
        (
            " of the held architectures",
            [outcome for outcome in made if outcome.cell.architecture in HELD_OUT],
        ),
        (" of the architectures added last", [o for o in made if o.cell.architecture in FRESH]),
    )
    for title, some in groups:
        if not some:
            continue
        rates = ", ".join(
            f"{percent(good, total)} against the {side} ({good:,} of {total:,})"
            for side, good, total in ((side, *_rate(some, side)) for side in SIDES)
            if total
        )
        whole = sum(outcome.is_balanced for outcome in some)
        right = sum(outcome.alone in _RIGHT for outcome in some)
        known = sum(outcome.alone != "unknown" for outcome in some)
        exact = sum(outcome.alone == "exact" for outcome in some)
        lines += [
            f"Of {len(some):,} files{title}, {percent(whole, len(some))} balance against each side there is: {rates}.",
            f"Alone, {percent(right, known)} of {known:,} files{title} say PyTorch's number, a range that holds it or "
            f"what they do not know; {percent(exact, known)} say the number.",
        ]
    sound = [outcome for outcome in made if not is_broken(outcome)]
    if len(sound) < len(made):
        rates = ", ".join(
            f"{percent(*rate)} against the {side}" for side in SIDES if (rate := _rate(sound, side))[1]
        )
        lines.append(
            f"{len(made) - len(sound):,} files the exporter broke: they compute something else than PyTorch, or do "
            f"not run, and red is the right answer. Of the others {rates} balance."
        )
    negatives = [negative for outcome in outcomes for negative in outcome.negatives]
    passed = sum(negative.balanced for negative in negatives)
    lines.append(
        f"{len(negatives):,} negative controls, other weights or one parameter made anew: {passed:,} balance."
    )
    return tuple(lines)


_RIGHT = ("exact", "range", "unattributed")


def _rate(outcomes: Iterable[Outcome], side: str) -> tuple[int, int]:
    found = [one for outcome in outcomes for one in outcome.sides if one.side == side]
    return sum(one.balanced for one in found), len(found)


_INTRODUCTION = """# The wide matrix

Small random models of {architectures} architectures from transformers, torchvision, timm, diffusers and plain modules,
exported and rewritten as in practice, each in some of the ways. `make matrix-wide` generates the files, reconciles each
with full contents against PyTorch's side in three forms, and writes this document. `state` is a state dict alone (`.pt`
or `.safetensors`), `config` the folder of `save_pretrained`, `manifest` that of an `onnxledger export`. The rules were
developed with the models of [the matrix](matrix.md); this one has others. The {held} architectures marked `held` were
chosen before any of their files was examined. As long as no rule was made for them, 95.9 % of their files balanced
against the state, 98.2 % against the config and 98.4 % against the manifest: that estimates the rate for a model of
your own. What they showed has been mended since, so their rate below is no such estimate. {fresh} of them were added
last.

**Alone** is the answer of `inspect` without PyTorch's side: exact, a range that contains the number of parameters that
the module reads, `unattributed` elements, or wrong without a warning. **Negative controls** are the same files against
other weights, and against the right weights with one reinitialized parameter; none may balance.

{part}{versions}
"""
_PART = """**This is a part**: {taken} of the {planned} architectures of the plan, the others were not made in this run.

"""
_PACKAGES = (
    "torch", "transformers", "torchvision", "timm", "diffusers", "onnx", "onnxruntime", "onnxsim", "onnxslim",
    "onnx-graphsurgeon", "onnxconverter-common", "onnxruntime-genai",
)  # fmt: skip


def render_markdown(outcomes: Sequence[Outcome]) -> str:
    """Return the whole document."""
    architectures = len({outcome.cell.architecture for outcome in outcomes})
    introduction = _INTRODUCTION.format(
        architectures=architectures,
        part=_PART.format(taken=architectures, planned=len(ARCHITECTURES))
        if architectures < len(ARCHITECTURES)
        else "",
        held=len(HELD_OUT),
        fresh=len(FRESH),
        versions=textwrap.fill(", ".join(_versions()) + ".", 120, break_on_hyphens=False),
    )
    return "\n\n".join(part for part in (introduction.rstrip(), *_sections(outcomes)) if part) + "\n"


def _versions() -> Iterator[str]:
    yield f"onnxledger {own_version()}"
    for package in _PACKAGES:
        try:
            yield f"{package} {version(package).partition('+')[0]}"
        except PackageNotFoundError:
            yield f"{package} not installed"
    yield f"Python {platform.python_version()}"


def _sections(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "\n".join(f"- {line}" for line in summary_lines(outcomes))
    for title, keys, key in (
        ("export", EXPORTS, lambda o: o.cell.export),
        ("tool", TOOLS, lambda o: o.cell.tool),
        (
            "library",
            {name: name for name in dict.fromkeys(a.library for a in ARCHITECTURES.values())},
            lambda o: ARCHITECTURES[o.cell.architecture].library,
        ),
    ):
        yield table(
            (title, "", "files", "balanced", *SIDES, "alone right", "alone exact"), _sums(outcomes, keys, key)
        )
    yield "## Architectures"
    yield table(
        ("architecture", "held", "files", "balanced", *SIDES, "alone right"), _architectures(outcomes)
    )
    yield "## Negative controls"
    yield _negatives(outcomes)
    yield "## What does not balance"
    yield _residues(outcomes)
    yield "## Where the file alone is wrong"
    yield _wrong(outcomes)
    yield "## Cells without a file"
    yield _absences(outcomes)


def _sums(
    outcomes: Sequence[Outcome], titles: Mapping[str, str], key: Callable[[Outcome], str]
) -> Iterator[Sequence[str]]:
    for name, title in titles.items():
        found = [o for o in outcomes if o.status in ("made", "failed") and key(o) == name]
        if found:
            yield f"`{name}`", "" if title == name else title, *_figures(found)


def _figures(found: Sequence[Outcome]) -> Iterator[str]:
    yield f"{len(found):,}"
    yield percent(sum(outcome.is_balanced for outcome in found), len(found))
    for side in SIDES:
        good, total = _rate(found, side)
        yield percent(good, total) if total else ""
    known = [outcome for outcome in found if outcome.alone != "unknown"]
    yield percent(sum(outcome.alone in _RIGHT for outcome in known), len(known)) if known else ""
    yield percent(sum(outcome.alone == "exact" for outcome in known), len(known)) if known else ""


def _architectures(outcomes: Sequence[Outcome]) -> Iterator[Sequence[str]]:
    for name, spec in ARCHITECTURES.items():
        found = [o for o in outcomes if o.status in ("made", "failed") and o.cell.architecture == name]
        if found:
            good = sum(outcome.is_balanced for outcome in found)
            sides = [
                "/".join(map(str, _rate(found, side))) if _rate(found, side)[1] else "" for side in SIDES
            ]
            known = [outcome for outcome in found if outcome.alone != "unknown"]
            right = sum(outcome.alone in _RIGHT for outcome in known)
            mark = "held" if spec.is_held_out else ""
            yield f"`{name}`", mark, f"{len(found)}", f"{good}", *sides, f"{right}/{len(known)}"


def _negatives(outcomes: Sequence[Outcome]) -> str:
    rows = [
        (
            f"`{outcome.cell.name}`",
            negative.kind,
            negative.side,
            f"`{negative.changed}`" if negative.changed else "",
        )
        for outcome in outcomes
        for negative in outcome.negatives
        if negative.balanced
    ]
    total = sum(len(outcome.negatives) for outcome in outcomes)
    if not rows:
        return f"None of {total:,} balances."
    return table(("cell", "balances against", "side", "made anew"), rows)


def _residues(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for outcome in outcomes:
        name = f"`{outcome.cell.name}`"
        if outcome.status == "failed":
            rows.append((name, "", escaped(outcome.reason), "", ""))
        for sides, text, of in _group_sides(outcome.sides):
            rows.append((name, ", ".join(sides), text, of, cause_of(outcome, sides)))
    header = ("cell", "against", "residue", "of", "cause")
    return table(header, rows) if rows else "Everything balances."


def _group_sides(sides: Iterable[SideOutcome]) -> Iterator[tuple[list[str], str, str]]:
    """Yield the sides with equal residues, one row for each residue."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for side in sides:
        if not side.balanced:
            text = " + ".join(f"{residue.elements:,} {residue.line}" for residue in side.residue)
            of = "; ".join(list_some(residue.names, 2) for residue in side.residue)
            found[text or escaped(side.error), of].append(side.side)
    for (text, of), names in found.items():
        yield names, text, of


def _wrong(outcomes: Sequence[Outcome]) -> str:
    rows = [
        (
            f"`{outcome.cell.name}`",
            f"{outcome.parameters:,}",
            _range(outcome),
            f"{outcome.read:,}",
        )
        for outcome in outcomes
        if outcome.alone == "wrong"
    ]
    return table(("cell", "says", "its range", "PyTorch reads"), rows) if rows else "Nowhere."


def _absences(outcomes: Sequence[Outcome]) -> str:
    cells: dict[tuple[str, str], list[str]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.status not in ("made", "failed"):
            cells[outcome.status, outcome.reason].append(outcome.cell.name)
    rows = [
        (status, f"{len(names):,}", list_some(names, 4), escaped(reason))
        for (status, reason), names in cells.items()
    ]
    return table(("", "cells", "which", "why"), rows) if rows else "All have one."
