"""Tamper with small models in every way known, and see what is told: `make tamper`.

The honest files are made once and stay below the folder. After a change to the exporter, remove it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from tools.suite.bases import Base, bases, make_base
from tools.tamper.cases import Case, run_apart
from tools.tamper.catalog import KINDS
from tools.tamper.report import render_markdown, render_text

FORMS = ("dynamic", "dynamo", "legacy", "fp16", "int8", "low")
_CHUNK = 40


def main() -> None:
    options = _arguments()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    chosen = _chosen(tuple(options.only), options.sample, options.seed)
    if not chosen:
        sys.exit(f"no case fits {' or '.join(options.only)}; a name is <architecture>/<form>/<class>/<kind>")
    jobs = [
        (base, kinds[place : place + _CHUNK])
        for base, kinds in chosen.items()
        for place in range(0, len(kinds), _CHUNK)
    ]

    def run(job: tuple[Base, list[str]]) -> list[Case]:
        base, kinds = job
        reason = make_base(folder, base)
        if reason:
            return [Case(base, kind, "no place", reason) for kind in kinds]
        cases = run_apart(folder, base, kinds, options.seed)
        for case in cases:
            if options.verbose or case.status in ("silent", "failed"):
                _say(f"{case.name:70} {case.status} {case.reason[:160]}")
        return cases

    with ThreadPoolExecutor(options.processes) as pool:
        cases = [case for some in pool.map(run, jobs) for case in some]
    if options.markdown:
        options.markdown.write_text(render_markdown(cases), encoding="utf-8")
    if options.json:
        rows = [{"name": case.name, **dataclasses.asdict(case)} for case in cases]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    _say(render_text(cases))
    _say(f"{time.perf_counter() - start:.0f} s")


def _chosen(patterns: tuple[str, ...], sample: int | None, seed: int) -> dict[Base, list[str]]:
    pairs = [
        (base, name)
        for base in bases(FORMS)
        for name in KINDS
        if not patterns or any(fnmatchcase(f"{base.name}/{name}", pattern) for pattern in patterns)
    ]
    if sample is not None and sample < len(pairs):
        places = np.sort(np.random.default_rng(seed).choice(len(pairs), sample, replace=False))
        pairs = [pairs[place] for place in places]
    chosen: dict[Base, list[str]] = {}
    for base, name in pairs:
        chosen.setdefault(base, []).append(name)
    return chosen


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.tamper", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="GLOB",
        help="cases whose name fits, as gpt2/int8/hollow/* or */planted/bools; may be repeated",
    )
    parser.add_argument("--sample", type=int, metavar="N", help="that many cases, drawn with the seed")
    parser.add_argument("--seed", type=int, default=0, help="of everything drawn (0)")
    parser.add_argument("--folder", type=Path, default=Path("build/tamper"), help="where honest files are kept")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="how many files at a time (2)")
    parser.add_argument("--verbose", action="store_true", help="a line for each case, not only where nothing is told")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every case to this file")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
