"""Rewrite small models in every known honest way, and list those that are wrongly blamed: `make rewrites`."""

from __future__ import annotations

from tools.rewrites.cases import Case, run_isolated
from tools.rewrites.known import reason_of
from tools.rewrites.report import render_markdown, render_text
from tools.rewrites.rewriting import REWRITES
from tools.suite.command import Suite, run_suite

SUITE = Suite(
    name="rewrites",
    purpose="Rewrite small models in every known honest way, and count the files that fail.",
    forms=("dynamic", "dynamo", "legacy", "fp16", "int8"),
    titles=tuple(REWRITES),
    run=run_isolated,
    absent=lambda base, title, why: Case(base, title, "no place", why),
    is_wrong=lambda case: case.status in ("red", "failed") and not reason_of(case.name),
    always_printed=frozenset({"red", "failed"}),
    text=render_text,
    markdown=render_markdown,
)

if __name__ == "__main__":
    run_suite(SUITE)
