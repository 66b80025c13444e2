"""Try every mutant of the rules: `make mutants`, or `PYTHONPATH=tests python -m tools.mutants --help`."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from random import Random

import pytest

from tools.mutants.changes import Mutant, mutants_of
from tools.mutants.running import Outcome, Trial

ROOT = Path(__file__).resolve().parents[2]

# Folders of the rooms whose tests are listed below.
FOLDERS: Mapping[str, Path] = {
    "classify": ROOT / "analyzer" / "account" / "classify",
    "group": ROOT / "analyzer" / "account" / "group",
    "reconciliation": ROOT / "analyzer" / "reconciliation",
}

# Tests of each room, without those that export models, take long or draw their models at random.
TESTS: Mapping[str, Sequence[str]] = {
    "classify": ("test_classify.py", "test_structure.py", "test_encodings.py", "test_scopes.py"),
    "group": (
        "test_group.py",
        "test_tree.py",
        "test_patterns.py",
        "test_presets.py",
        "test_saved.py",
        "test_csv.py",
        "test_compare.py",
    ),
    "reconciliation": ("reconcile", "test_recover.py", "test_bridge_page.py", "formulas/test_reasons.py"),
}


def main() -> None:
    options = _arguments()
    mutants = [mutant for mutant in _mutants(options.names) if _is_selected(mutant.name, options.names)]
    if not mutants:
        sys.exit(
            f"no mutant is called {' or '.join(options.names)}; a name is <room>.<module>.<function>#<number>"
        )
    if options.sample:
        mutants = list(_sample(mutants, options.sample))
    rooms = sorted({mutant.name.partition(".")[0] for mutant in mutants})
    outcomes: list[Outcome] = []

    def record(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if outcome.status in ("survived", "not reached"):
            _print_line(f"{outcome.mutant.name} {outcome.status}\n{outcome.mutant.diff}\n")

    os.environ["ONNXLEDGER_CASES"] = (
        os.devnull
    )  # else tests of files outside the repository would run if the files exist
    files = [str(ROOT / "tests" / file) for room in rooms for file in TESTS[room]]
    files += [str(FOLDERS[room]) for room in rooms]  # their doctests
    switches = [
        "-qq",
        "-s",
        "--no-header",
        "--no-summary",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-m",
        "not export and not slow",
    ]
    trial = Trial(mutants, options.processes, options.seconds, record)
    pytest.main([*switches, f"--rootdir={ROOT}", *files], plugins=[trial])
    for line in _table(outcomes) if outcomes else ():
        _print_line(line)
    if len(outcomes) < len(mutants):
        sys.exit(f"{len(outcomes)} of {len(mutants)} mutants were tried")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        default=[],
        help="rooms, modules, functions or mutants: reconciliation, group.keys.by_role#3; all without any",
    )
    parser.add_argument(
        "--processes", type=int, default=2, metavar="N", help="how many mutants at a time (2)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        metavar="S",
        help="try a mutant on its module's own tests and the quickest others, up to so much of their time; "
        "without, on all that reach it",
    )
    parser.add_argument(
        "--sample", type=int, metavar="N", help="only so many mutants of each module, the same each time"
    )
    return parser.parse_args()


def _mutants(names: Sequence[str]) -> Iterable[Mutant]:
    for room in TESTS:
        for path in sorted(FOLDERS[room].glob("*.py")):
            module = room if path.stem == "__init__" else f"{room}.{path.stem}"
            if _is_selected(module, names) or any(selected.startswith(module) for selected in names):
                yield from mutants_of(path, module)


def _sample(mutants: Iterable[Mutant], number: int) -> Iterable[Mutant]:
    for _, group in groupby(mutants, lambda mutant: mutant.path):
        of_module = list(group)
        yield from Random(number).sample(of_module, min(number, len(of_module)))


def _is_selected(name: str, selected: Sequence[str]) -> bool:
    return not selected or any(name == one or name.startswith((f"{one}.", f"{one}#")) for one in selected)


def _table(outcomes: Iterable[Outcome]) -> Iterable[str]:
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        path = outcome.mutant.path
        counts.setdefault(f"{path.parent.name}/{path.name}", Counter())[outcome.status] += 1
    total = sum(counts.values(), Counter[str]())
    for module, count in [*counts.items(), ("all", total)]:
        killed = count["killed"] + count["timeout"]
        yield f"{module:<36} {killed:>5} of {count.total():>5} killed, {killed / count.total():.1%}"


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
