"""The command line of a suite: selection of cases, folder, number of processes, and destination of the tables."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from tools.suite.bases import ARCHITECTURES, Base, bases, make_base

__all__ = ["Suite", "run_suite"]

_CHUNK = 128
"""Most cases in one process. Each process imports the model's class anew, which takes as long as dozens of cases."""


@dataclasses.dataclass(frozen=True, slots=True)
class Suite:
    """Differences between the suites."""

    name: str
    purpose: str
    forms: tuple[str, ...]
    titles: tuple[str, ...]
    """Names of the changes that are made to each honest file."""
    run: Callable[[Path, Base, Sequence[str], int], list[Any]]
    absent: Callable[[Base, str, str], Any]
    """Function that returns the case of a file that could not be made, with the reason."""
    is_wrong: Callable[[Any], bool]
    """Whether a case fails; any such case makes the exit code 1."""
    always_printed: frozenset[str]
    """Statuses that are always printed on a line of their own."""
    text: Callable[[Sequence[Any]], str]
    markdown: Callable[[Sequence[Any]], str]
    architectures: tuple[str, ...] = ARCHITECTURES
    always: frozenset[str] = frozenset()
    """Those of `titles` that are made to every file even in a sample."""


def run_suite(suite: Suite) -> None:
    """Run the command line.

    Raises:
        SystemExit: always, with 1 if a case fails.
    """
    options = _arguments(suite)
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    pairs = choose(suite, tuple(options.only), options.sample, options.seed, options.each)
    if not pairs:
        sys.exit(f"no case fits {' or '.join(options.only)}; a name is <architecture>/<form>/<change>")
    chosen: dict[Base, list[str]] = {}
    for base, title in pairs:
        chosen.setdefault(base, []).append(title)
    jobs = [
        (base, titles[place : place + _CHUNK])
        for base, titles in chosen.items()
        for place in range(0, len(titles), _CHUNK)
    ]

    def run(job: tuple[Base, list[str]]) -> list[Any]:
        base, titles = job
        if options.minutes is not None and time.perf_counter() - start > 60 * options.minutes:
            return []
        sys.stderr.write(f"{base.name}: {titles[0]} and {len(titles) - 1} more\n")
        reason = make_base(folder, base)
        if reason:
            return [suite.absent(base, title, reason) for title in titles]
        cases = suite.run(folder, base, titles, options.seed)
        for case in cases:
            if options.verbose or case.status in suite.always_printed:
                print_line(f"{case.name:78} {case.status} {case.reason[:160]}")
        return cases

    cases: list[Any] = []
    with ThreadPoolExecutor(options.processes) as pool:
        for some in pool.map(run, jobs):
            cases += some
            if options.json:  # an interrupted long run keeps its results
                rows = [{"name": case.name, **dataclasses.asdict(case)} for case in cases]
                options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(suite.markdown(cases), encoding="utf-8")
    print_line(suite.text(cases))
    print_line(f"{time.perf_counter() - start:.0f} s")
    sys.exit(any(map(suite.is_wrong, cases)))


def choose(
    suite: Suite, patterns: Sequence[str], sample: int | None, seed: int, each: int | None = None
) -> list[tuple[Base, str]]:
    """Return the cases whose names match any of the patterns, all without patterns; of these a sample if requested.

    Args:
            suite: the suite of the cases.
            patterns: patterns of names.
            sample: number of cases to draw.
            seed: seed of the draw.
            each: number to draw for each file, besides the titles in `always`; files are sorted by form.
    """
    pairs = [
        (base, title)
        for base in bases(suite.forms, suite.architectures)
        for title in suite.titles
        if not patterns or any(fnmatchcase(f"{base.name}/{title}", pattern) for pattern in patterns)
    ]
    if each is not None:
        drawn: list[tuple[Base, str]] = []
        files = list(dict.fromkeys(base for base, _ in pairs))
        forms = list(dict.fromkeys(base.form for base in files))
        for base in sorted(files, key=lambda one: forms.index(one.form)):
            titles = [title for other, title in pairs if other == base and title not in suite.always]
            random = np.random.default_rng([seed, zlib.crc32(base.name.encode())])
            chosen = np.sort(random.choice(len(titles), min(each, len(titles)), replace=False))
            kept = [title for other, title in pairs if other == base and title in suite.always]
            drawn += [(base, title) for title in (*kept, *(titles[place] for place in chosen))]
        return drawn
    if sample is None or sample >= len(pairs):
        return pairs
    places: Iterable[int] = np.sort(np.random.default_rng(seed).choice(len(pairs), sample, replace=False))
    return [pairs[place] for place in places]


def _arguments(suite: Suite) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m tools.{suite.name}", description=suite.purpose)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="GLOB",
        help="cases whose name fits: <architecture>/<form>/<change>, as gpt2/int8/*; may be repeated",
    )
    parser.add_argument("--sample", type=int, metavar="N", help="that many cases, drawn with the seed")
    parser.add_argument(
        "--each", type=int, metavar="N", help="that many cases of each file, drawn with the seed"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="start no file after so long; what is left out is in no table",
    )
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (0)")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build") / suite.name,
        help=f"where the honest files are made and kept: build/{suite.name}; remove it after a change to the exporter",
    )
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="how many files at a time (2)")
    parser.add_argument(
        "--verbose", action="store_true", help="a line for each case, not only for the bad ones"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every case to this file")
    return parser.parse_args()


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
