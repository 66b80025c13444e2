"""Outcomes of cells -> the tables of docs/evidence/matrix.md, as Markdown."""

from __future__ import annotations

import platform
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from tools.matrix.architectures import ARCHITECTURES
from tools.matrix.cells import Cell, Outcome
from tools.matrix.exports import EXPORTS
from tools.matrix.residues import KNOWN, explain_absence
from tools.matrix.transforms import TRANSFORMS

__all__ = ["escaped", "list_some", "own_version", "percent", "render_markdown", "summary_lines", "table"]

_ROOT = Path(__file__).resolve().parents[2]
_INTRODUCTION = """# The matrix

Small random models of {architectures} architectures, exported in {exports} ways, each file unchanged and after
{transforms} transforms. `make matrix` generates every cell, reconciles it with full contents against the manifest of
its export, and writes this document; `tests/test_matrix.py` runs a sample of cells and every residue.

A mark means that the cell balances: no tensor is unexplained, missing, unexpected or differing. A number is the count
of leftover elements. `-` means that there is no such file, with the reason at the end; `!` means that reconciling
failed. An asterisk means that the file alone, without PyTorch's side, shows another number of parameters than PyTorch;
a dagger, that the result against the checkpoint, a `.safetensors` file with its `config.json`, is different.

onnxledger {ours}, torch {torch}, transformers {transformers}, onnx {onnx}, onnxruntime {onnxruntime},
onnxslim {onnxslim}, Python {python}.
"""
_EXPORT_TITLES = {
    "static": "Built-in exporter, static",
    "dynamic": "Built-in exporter, dynamic",
    "fused": "Built-in exporter, fused for cpu",
    "dynamo": "torch dynamo, `optimize=False`",
    "legacy": "legacy TorchScript",
}
_TRANSFORM_TITLES = {
    "exported": "as exported",
    "ort-basic": "onnxruntime basic",
    "ort-extended": "onnxruntime extended",
    "int8": "dynamic int8",
    "int8-channel": "dynamic int8 per channel",
    "qdq": "static QDQ",
    "fp16": "fp16",
    "nbits": "MatMulNBits symmetric",
    "nbits-zero-point": "MatMulNBits with zero points",
    "onnxslim": "onnxslim",
}
_MARKS = {"balanced": "✓", "failed": "!", "not exported": "-", "not transformed": "-"}
_PACKAGES = ("torch", "transformers", "onnx", "onnxruntime", "onnxslim")


def render_markdown(outcomes: Sequence[Outcome]) -> str:
    """Return the whole document."""
    introduction = _INTRODUCTION.format(
        architectures=len(ARCHITECTURES),
        exports=len(EXPORTS),
        transforms=len(TRANSFORMS) - 1,
        ours=own_version(),
        python=platform.python_version(),
        **{package: version(package).partition("+")[0] for package in _PACKAGES},
    )
    parts = [introduction.rstrip(), *_sections(outcomes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def own_version() -> str:
    document = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(document["project"]["version"])


def summary_lines(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return sums and percentages, one sentence each."""
    existing = [outcome for outcome in outcomes if outcome.exists]
    balanced = sum(outcome.status == "balanced" for outcome in existing)
    agreeing = sum(outcome.counts_agree for outcome in existing)
    lines = [
        f"{len(existing):,} of {len(outcomes):,} cells exist.",
        f"{balanced:,} of them balance: {percent(balanced, len(existing))}.",
        f"In {agreeing:,} the file alone shows PyTorch's number of parameters: "
        f"{percent(agreeing, len(existing))}.",
    ]
    compared = [outcome for outcome in existing if outcome.checkpoint_residue is not None]
    if compared:
        also = sum(not outcome.checkpoint_residue for outcome in compared)
        lines.append(
            f"Against the checkpoint {also:,} of {len(compared):,} balance: {percent(also, len(compared))}."
        )
    tried = [outcome for outcome in existing if outcome.recovered is not None]
    if tried:
        whole = sum(outcome.recovered == "whole" for outcome in tried)
        part = sum(outcome.recovered == "in part" for outcome in tried)
        lines.append(
            f"Of {len(tried):,} float32 cells without BatchNorm, {whole:,} return the state dict bit by bit "
            f"({percent(whole, len(tried))}), {part:,} all except the listed tensors, "
            f"{len(tried) - whole - part:,} wrongly."
        )
    return tuple(lines)


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def _sections(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "\n".join(f"- {line}" for line in summary_lines(outcomes))
    yield table(("export", "cells", "balanced", "", "counts agree"), _sums(outcomes, EXPORTS, "export"))
    yield table(
        ("transform", "cells", "balanced", "", "counts agree"), _sums(outcomes, TRANSFORMS, "transform")
    )
    for export, title in _EXPORT_TITLES.items():
        of_export = {outcome.cell: outcome for outcome in outcomes if outcome.cell.export == export}
        if of_export:
            yield f"## {title}"
            yield _export_table(export, of_export)
    yield "## What does not balance"
    yield _residues(outcomes)
    yield "## Cells that do not exist"
    yield _absences(outcomes)


def _sums(outcomes: Sequence[Outcome], keys: Iterable[str], axis: str) -> Iterator[Sequence[str]]:
    for key in keys:
        found = [o for o in outcomes if o.exists and getattr(o.cell, axis) == key]
        balanced = sum(outcome.status == "balanced" for outcome in found)
        agreeing = sum(outcome.counts_agree for outcome in found)
        if found:
            share = percent(balanced, len(found))
            yield key, f"{len(found):,}", f"{balanced:,}", share, f"{agreeing:,}"


def _export_table(export: str, outcomes: Mapping[Cell, Outcome]) -> str:
    rows = []
    for architecture in ARCHITECTURES:
        cells = [outcomes.get(Cell(architecture, export, transform)) for transform in TRANSFORMS]
        if any(cells):
            rows.append((f"`{architecture}`", *("" if cell is None else _mark(cell) for cell in cells)))
    return table(("", *(_TRANSFORM_TITLES[transform] for transform in TRANSFORMS)), rows)


def _mark(outcome: Outcome) -> str:
    if outcome.status == "residue":
        mark = f"{sum(outcome.elements.values()):,}"
    else:
        mark = _MARKS[outcome.status]
    if outcome.exists and not outcome.counts_agree:
        mark += " \\*"
    if outcome.exists and outcome.checkpoint_elements != outcome.elements:
        mark += " †"
    return mark


def _residues(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for outcome in outcomes:
        name, known = f"`{outcome.cell.name}`", KNOWN.get(outcome.cell.name)
        cause = known.cause if known is not None else "not known yet"
        if outcome.status == "failed":
            rows.append((name, "", escaped(outcome.reason), cause))
        for against, residues in (
            ("", outcome.residue),
            (" against the checkpoint", outcome.checkpoint_residue or ()),
        ):
            if not against or outcome.checkpoint_elements != outcome.elements:
                rows += [
                    (name, f"{residue.elements:,} {residue.line}{against}", list_some(residue.names), cause)
                    for residue in residues
                ]
    return table(("cell", "residue", "of", "cause"), rows) if rows else "Everything balances."


def list_some(names: Sequence[str], shown: int = 3) -> str:
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(f"`{name}`" for name in names[:shown]) + rest


def _absences(outcomes: Sequence[Outcome]) -> str:
    cells: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if not outcome.exists:
            cells[outcome.status, explain_absence(outcome.reason)].append(outcome)
    rows = []
    for (status, reason), absent in cells.items():
        if status == "not exported":  # all transforms of one export
            names = list(dict.fromkeys(f"{o.cell.architecture}/{o.cell.export}" for o in absent))
        else:
            names = [outcome.cell.name for outcome in absent]
        rows.append((status, f"{len(absent):,}", list_some(names, len(names)), escaped(reason)))
    return table(("", "cells", "which", "why"), rows) if rows else "All exist."


def escaped(text: str) -> str:
    return "".join(f"\\{character}" if character in "|<>*_[]`\\" else character for character in text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
