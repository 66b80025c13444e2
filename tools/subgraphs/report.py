"""Outcomes of cells -> docs/evidence/blocks.md, as Markdown."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version

from tools.subgraphs.architectures import ARCHITECTURES, TITLES
from tools.subgraphs.cells import Cell, Outcome
from tools.subgraphs.forms import FORMS, NAMED, NAMELESS
from tools.subgraphs.forms import TITLES as FORM_TITLES
from tools.subgraphs.residues import KNOWN
from tools.subgraphs.score import Score, fold_counts

__all__ = ["render_markdown", "summary_lines"]

_INTRODUCTION = """# Blocks against layers

{architectures} models with random weights, each in {forms} forms, and every file in two versions: as written, and
without names: numbers replace the names of values, nodes, inputs, outputs and axes, and all metadata, doc strings,
shapes of intermediate values and the producer are removed. `make subgraphs` generates the files, compares the blocks of
`inspect --by block` with the layers of the PyTorch model, and writes this document; `tests/test_subgraphs.py` runs
small models of the same families.

The reference is PyTorch: `reconcile` on the file with names finds the stored tensors that hold each parameter, and the
parameter's module is its layer; values identify weights that onnxruntime stored in the layout of the processor. The
file without names has the same tensors in the same order.

A mark means that every layer has a block, that each block has exactly the learned tensors of its layer, and that no
other learned tensor of the model is in any block. Tensors before the first layer must be in `stem`, those after the
last in `head`; those between two layers, or tied and stored at both ends, may be in either. A tensor that a tool has
packed from several layers may be in any of them. ALBERT uses one layer twelve times: twelve blocks, whose parameters
belong to the first.

{packages}, Python {python}.
"""
_ABOUT_NODES = """
A traced export notes the module of each node. The table has the number of nodes that were traced in a layer and are in
its block, in the files without names. The others are constants, masks, positions and shapes, mostly those that the
first layer computes for all; none of them reads a parameter. ALBERT's notes do not distinguish the uses of
its layer."""
_ABOUT_PARAMETERS = """
The parameters that the files without names show; if that is not PyTorch's number, the blocks still have their layers'
tensors. A folded BatchNorm leaves one bias for a weight, a bias and two statistics. The exporter gathers Swin's tables
of relative positions, and without notes a gathered table does not look learned; QDQ makes the largest one, and Llama's
32 rotary frequencies, look learned. `--fuse cpu` packs the keys and values that T5's decoder takes from the encoder,
those of all six layers, in one matrix, which is in none of them."""
_PACKAGES = ("torch", "transformers", "onnx", "onnxruntime", "onnxslim")


def render_markdown(outcomes: Sequence[Outcome]) -> str:
    """Return the whole document."""
    introduction = _INTRODUCTION.format(
        architectures=len(ARCHITECTURES),
        forms=len(FORMS),
        python=platform.python_version(),
        packages=", ".join(f"{package} {version(package).partition('+')[0]}" for package in _PACKAGES),
    )
    return "\n\n".join([introduction.rstrip(), *_sections(outcomes)]) + "\n"


def summary_lines(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return sums, one sentence each."""
    lines = []
    for naming in (NAMED, NAMELESS):
        scored = [o.score for o in outcomes if o.cell.naming == naming and o.score is not None]
        exact = sum(score.is_exact for score in scored)
        found = sum(score.found == score.true for score in scored)
        with_names = "without names" if naming == NAMELESS else "as written"
        lines.append(
            f"{with_names}: of {len(scored):,} files {found:,} show a block for every layer, and in {exact:,} each "
            "learned tensor is in the right place."
        )
    times = sorted(outcome.seconds for outcome in outcomes if outcome.score is not None)
    if times:
        lines.append(
            f"The search for blocks takes {1000 * times[len(times) // 2]:.0f} ms of CPU time at the median, "
            f"{1000 * times[-1]:.0f} ms at most."
        )
    return tuple(line[0].upper() + line[1:] for line in lines)


def _sections(outcomes: Sequence[Outcome]) -> Iterator[str]:
    by_cell = {outcome.cell: outcome for outcome in outcomes}
    yield "\n".join(f"- {line}" for line in summary_lines(outcomes))
    for naming, title in ((NAMED, "With names"), (NAMELESS, "Without names")):
        yield f"## {title}"
        yield _overview(by_cell, naming)
    yield "## Nodes"
    yield _ABOUT_NODES.strip()
    yield _nodes(by_cell)
    yield "## Parameters in each block"
    yield _ABOUT_PARAMETERS.strip()
    for architecture in ARCHITECTURES:
        yield from _details(by_cell, architecture)
    yield "## What stands elsewhere"
    yield _misplaced(outcomes)
    yield "## Files that do not exist"
    yield _absences(outcomes)


def _overview(outcomes: Mapping[Cell, Outcome], naming: str) -> str:
    architectures = [a for a in ARCHITECTURES if any(cell.architecture == a for cell in outcomes)]
    rows = []
    for form in FORMS:
        cells = [outcomes.get(Cell(architecture, form, naming)) for architecture in architectures]
        if any(cells):
            rows.append((FORM_TITLES[form], *(_mark(cell) for cell in cells)))
    return _table(("", *(TITLES[architecture] for architecture in architectures)), rows)


def _nodes(outcomes: Mapping[Cell, Outcome]) -> str:
    noted = {
        cell: outcome.score
        for cell, outcome in outcomes.items()
        if cell.naming == NAMELESS and outcome.score is not None and outcome.score.traced
    }
    architectures = [a for a in ARCHITECTURES if any(cell.architecture == a for cell in noted)]
    rows = []
    for form in FORMS:
        scores = [noted.get(Cell(architecture, form, NAMELESS)) for architecture in architectures]
        if any(scores):
            cells = (f"{score.traced_there:,} of {score.traced:,}" if score else "" for score in scores)
            rows.append((FORM_TITLES[form], *cells))
    return _table(("", *(TITLES[architecture] for architecture in architectures)), rows)


def _mark(outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    if outcome.score is None:
        return "-" if outcome.status == "not made" else "!"
    score = outcome.score
    text = f"{score.found} of {score.true}"
    if score.is_exact:
        return f"{text} ✓"
    return (
        f"{text}, {len(score.unplaced):,} unknown"
        if score.unplaced
        else f"{text}, {_elements(score):,} elsewhere"
    )


def _elements(score: Score) -> int:
    return sum(tensor.elements for tensor in score.misplaced)


def _details(outcomes: Mapping[Cell, Outcome], architecture: str) -> Iterator[str]:
    rows: dict[str, list[str]] = defaultdict(list)
    true = ""
    for form in FORMS:
        outcome = outcomes.get(Cell(architecture, form, NAMELESS))
        if outcome is not None and outcome.score is not None:
            rows[fold_counts(outcome.score.parameters)].append(FORM_TITLES[form])
            true = fold_counts(outcome.score.true_parameters)
    if rows:
        yield f"### {TITLES[architecture]}"
        counts = [(f"**{true}**", "PyTorch"), *((count, "; ".join(forms)) for count, forms in rows.items())]
        yield _table(("parameters", "in"), counts)


def _misplaced(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for outcome in outcomes:
        known = KNOWN.get(outcome.cell.name)
        cause = known.cause if known is not None else "not known yet"
        if outcome.status == "failed":
            rows.append((f"`{outcome.cell.name}`", "", _escaped(outcome.reason), cause))
        elif outcome.score is not None and not outcome.score.is_exact:
            score = outcome.score
            of = _list_some(
                [f"`{tensor.parameters[0]}` in `{tensor.found}`" for tensor in score.misplaced]
                or [f"`{name}` is not known" for name in score.unplaced]
            )
            rows.append((f"`{outcome.cell.name}`", f"{_elements(score):,}", of, cause))
    return _table(("file", "elements", "of", "cause"), rows) if rows else "Nothing."


def _list_some(texts: Sequence[str], shown: int = 2) -> str:
    rest = f" and {len(texts) - shown} more" if len(texts) > shown else ""
    return ", ".join(texts[:shown]) + rest


def _absences(outcomes: Sequence[Outcome]) -> str:
    rows = [
        (f"`{outcome.cell.architecture}/{outcome.cell.form}`", _escaped(outcome.reason))
        for outcome in outcomes
        if outcome.status == "not made" and outcome.cell.naming == NAMED
    ]
    return _table(("file", "why"), rows) if rows else "All exist."


def _escaped(text: str) -> str:
    return "".join(f"\\{character}" if character in "|<>*_[]`\\" else character for character in text)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
