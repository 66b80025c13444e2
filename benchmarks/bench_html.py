"""Time that Chromium takes to open the HTML report of a model with 20,000 tensors, and a plain page of its table.

One browser opens both pages in turn, from a fresh profile each time, so that a noisy machine disturbs both alike. A
page counts as usable when it is loaded, has run its scripts and has been painted twice: it then responds to keys and
clicks at once. A run prints the measurements and the goals that they meet, and always exits with 0, because machines
differ.

    python benchmarks/bench_html.py --rounds 5
"""

from __future__ import annotations

import argparse
import html
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser")]

import chromium  # noqa: E402
import pages  # noqa: E402

from analyzer.formats import to_document  # noqa: E402
from analyzer.reports import Inspection  # noqa: E402

LIMIT = 2.0  # seconds until 20,000 tensors can be used
COLUMNS = ("name", "dtype", "shape", "role", "parameters", "stored_elements", "bytes", "decided_by")
PAINTED = (
    "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
)


@dataclass
class Opened:
    """Measurements of opening one page."""

    path: Path
    seconds: list[float] = field(default_factory=list)
    elements: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def row(self) -> str:
        spread = f"{min(self.seconds):.2f} to {max(self.seconds):.2f}"
        size = self.path.stat().st_size / 2**20
        return f"| {self.path.stem} | {self.median:.2f} | {spread} | {self.elements:,} | {size:.2f} |"


def main() -> None:
    options = arguments()
    executable = chromium.find_chromium()
    if executable is None:
        sys.exit("no Chromium is found")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        report = pages.inspect(Path(folder), pages.many(options.tensors))
        start = time.process_time()
        page = pages.write(Path(folder), report, name="report.html")
        making_seconds = time.process_time() - start
        opened = [Opened(page), Opened(plain(Path(folder), report))]
        with chromium.visitor(executable) as visit:
            for number in range(options.rounds + 1):
                for each in opened:
                    measure(visit, each, counts=number > 0)
        print(format_measurements(options, opened, making_seconds))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="openings of each page, of which the median counts"
    )
    parser.add_argument("--tensors", type=int, default=pages.MANY, help="tensors of the model")
    return parser.parse_args()


def plain(folder: Path, report: Inspection) -> Path:
    """Write the same tensors as a table in a page without style and script."""
    rows = [
        "".join(f"<td>{html.escape(str(tensor[column]))}</td>" for column in COLUMNS)
        for tensor in to_document(report)["tensors"]
    ]
    table = "\n".join(f"<tr>{row}</tr>" for row in rows)
    path = folder / "plain.html"
    path.write_text(f"<!doctype html><title>plain</title><table>{table}</table>", encoding="utf-8")
    return path


def measure(visit: chromium.Visitor, opened: Opened, *, counts: bool) -> None:
    """Open a page once; the first time warms the file and the browser."""
    blank = opened.path.with_name("blank.html")
    blank.write_text("<!doctype html><title>blank</title>", encoding="utf-8")
    here = visit(blank)
    start = time.perf_counter()
    here.page.goto(opened.path.as_uri(), wait_until="load")
    here.page.evaluate(PAINTED)
    seconds = time.perf_counter() - start
    if counts:
        opened.seconds.append(seconds)
    opened.elements = here.page.evaluate("() => document.querySelectorAll('*').length")
    here.context.close()


def format_measurements(options: argparse.Namespace, opened: list[Opened], making_seconds: float) -> str:
    """Return the measurements as Markdown."""
    report, reference = opened
    verdict = "meets" if report.median < LIMIT else "misses"
    return "\n".join(
        [
            f"# Seconds until a page of {options.tensors:,} tensors can be used, medians of {options.rounds} rounds",
            "",
            f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores; the page was made in "
            f"{making_seconds:.2f} s of CPU.",
            "",
            "| page | median | from to | elements | MiB |",
            "| --- | ---: | ---: | ---: | ---: |",
            *(each.row for each in opened),
            "",
            f"{report.median / reference.median:.2f} of the plain page's time; "
            f"{verdict} the goal of {LIMIT:.0f} s for 20,000 tensors.",
        ]
    )


if __name__ == "__main__":
    main()
