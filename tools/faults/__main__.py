"""Put faults into small models, and see what `verify` tells: `make faults`."""

from __future__ import annotations

from tools.faults.cases import CLEAN, Case, run_apart
from tools.faults.report import render_markdown, render_text
from tools.suite.command import Suite, run_suite
from tools.tamper.catalog import KINDS

SUITE = Suite(
    name="faults",
    purpose="Put faults into small models, and see what verify tells.",
    forms=("dynamic", "legacy", "fp16", "int8", "low", "ort-basic"),
    titles=(CLEAN, *KINDS),
    run=run_apart,
    absent=lambda base, title, why: Case(base, title, "no place", why),
    is_wrong=lambda case: case.status in ("silent", "alarm", "failed"),
    loud=frozenset({"silent", "alarm", "failed"}),
    text=render_text,
    markdown=render_markdown,
)

if __name__ == "__main__":
    run_suite(SUITE)
