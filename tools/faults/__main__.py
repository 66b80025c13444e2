"""Put faults into small models, and list those that `verify` finds: `make faults`."""

from __future__ import annotations

from tools.faults.cases import CLEAN, Case, run_isolated
from tools.faults.quantizing import FAULTS
from tools.faults.report import render_markdown, render_text
from tools.matrix.architectures import ARCHITECTURES
from tools.suite.command import Suite, run_suite

FORMS = (
    *("dynamic", "int8", "nbits", "legacy", "qdq", "fp16", "ort-basic", "ort-extended"),
    *("dynamo", "static", "fused", "onnxslim", "int8-channel", "nbits-zero-point"),
)
"""Forms in the order in which they are tried; `--only '*/clean'` tries the honest files of all forms."""

SUITE = Suite(
    name="faults",
    purpose="Put faults into small models, and count those that verify detects.",
    forms=FORMS,
    titles=(CLEAN, *FAULTS),
    run=run_isolated,
    absent=lambda base, title, why: Case(base, title, "no place", why),
    is_wrong=lambda case: case.status in ("silent", "alarm", "failed"),
    always_printed=frozenset({"silent", "alarm", "failed"}),
    text=render_text,
    markdown=render_markdown,
    architectures=(*ARCHITECTURES, "net"),
    always=frozenset({CLEAN}),
)

if __name__ == "__main__":
    run_suite(SUITE)
