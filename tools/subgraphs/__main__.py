"""Compare blocks with layers, file by file: `make subgraphs`, or `PYTHONPATH=tests python -m tools.subgraphs --help`.

Files are made once and stay below the folder, so that a second run only looks for blocks. After a change to the
exporter, remove the folder.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.subgraphs.cells import Outcome, cells_of, make_and_score
from tools.subgraphs.report import render_markdown, summary_lines
from tools.subgraphs.residues import KNOWN, NOTHING
from tools.subgraphs.score import Score, fold_counts

_SHOWN = 3
"""Most tensors of a kind that `-v` names."""


def main() -> None:
    options = _arguments()
    cells = cells_of(tuple(options.only))
    if not cells:
        sys.exit(
            f"no cell fits {' or '.join(options.only)}; a name is <architecture>/<form>/<named|nameless>"
        )
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for cell in cells:
        outcome = make_and_score(folder, cell, again=options.again)
        outcomes.append(outcome)
        _print_line(_line(outcome))
        if options.verbose and outcome.score is not None:
            for line in _misplaced(outcome.score):
                _print_line(line)
    if options.markdown:
        options.markdown.write_text(render_markdown(outcomes), encoding="utf-8")
    for line in summary_lines(outcomes):
        _print_line(line)
    unexpected = list(_unexpected(outcomes))
    for line in unexpected:
        _print_line(line)
    sys.exit(bool(unexpected))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.subgraphs", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="GLOB",
        help="files whose name fits, as bert/int8/nameless, t5 or */legacy*; may be repeated",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(os.environ.get("ONNXLEDGER_SUBGRAPHS", "build/subgraphs")),
        help="where the files are made and kept, about 19 GB: $ONNXLEDGER_SUBGRAPHS, else build/subgraphs",
    )
    parser.add_argument("--again", action="store_true", help="try what could not be made before once more")
    parser.add_argument("-v", "--verbose", action="store_true", help="name the tensors that stand elsewhere")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to this file")
    return parser.parse_args()


def _line(outcome: Outcome) -> str:
    score = outcome.score
    if score is None:
        return f"{outcome.cell.name:32} {outcome.status}: {outcome.reason}"
    parts = [f"{score.found} of {score.true} blocks, {score.exact} exact", fold_counts(score.parameters)]
    if score.misplaced:
        elements = sum(tensor.elements for tensor in score.misplaced)
        parts.append(f"{len(score.misplaced)} tensors, {elements:,} elements elsewhere")
    if score.unplaced:
        parts.append(f"{len(score.unplaced)} parameters not known: {', '.join(score.unplaced[:_SHOWN])}")
    return f"{outcome.cell.name:32} {'  '.join(filter(None, parts))}"


def _misplaced(score: Score) -> Iterator[str]:
    """Yield found and true blocks of misplaced tensors; with shifted numbers, layers are matched to blocks first."""
    groups: dict[tuple[str, str], list[str]] = {}
    is_shifted = len(score.misaligned) < len(score.misplaced)
    if is_shifted:
        yield "  each layer taken for the block that holds most of it:"
    for tensor in score.misaligned if is_shifted else score.misplaced:
        text = f"{tensor.tensor} ({', '.join(tensor.parameters)}), {tensor.elements:,}"
        groups.setdefault((tensor.found, " or ".join(tensor.blocks)), []).append(text)
    for (found, true), texts in groups.items():
        yield f"  in {found}, should be in {true}: {len(texts)}"
        yield from (f"    {text}" for text in texts[:_SHOWN])
    yield from (f"  learned, but no parameter of PyTorch: {name}" for name in score.extra)


def _unexpected(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Yield the outcomes that differ from `residues.py`."""
    for outcome in outcomes:
        name, known, score = outcome.cell.name, KNOWN.get(outcome.cell.name, NOTHING), outcome.score
        if outcome.status == "failed":
            yield f"{name}: finding blocks failed: {outcome.reason}"
        elif score is not None:
            if score.unplaced:
                yield f"{name}: {len(score.unplaced)} parameters are in no known tensor"
            elements = sum(tensor.elements for tensor in score.misplaced)
            count = score.true if known.found is None else known.found
            if (score.found, elements) != (count, known.misplaced):
                yield (
                    f"{name}: {score.found} blocks and {elements:,} misplaced elements, expected {count} "
                    f"and {known.misplaced:,}"
                )


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
