"""Tamper with small models in every known way, and list the cases that `reconcile` reports: `make tamper`."""

from __future__ import annotations

from tools.suite.command import Suite, run_suite
from tools.tamper.cases import Case, run_isolated
from tools.tamper.catalog import CERTAIN, KINDS
from tools.tamper.report import render_markdown, render_text

SUITE = Suite(
    name="tamper",
    purpose="Tamper with small models in every known way, and count the cases that reconcile detects.",
    forms=("dynamic", "dynamo", "legacy", "fp16", "int8", "low"),
    titles=tuple(KINDS),
    run=run_isolated,
    absent=lambda base, title, why: Case(base, title, "no place", why),
    is_wrong=lambda case: (
        case.status == "failed"
        or (case.status == "silent" and not case.is_at_positions and KINDS[case.kind].group in CERTAIN)
    ),
    always_printed=frozenset({"failed"}),
    text=render_text,
    markdown=render_markdown,
)

if __name__ == "__main__":
    run_suite(SUITE)
