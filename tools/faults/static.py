"""The same faults, found with the manifest without running a file: `python -m tools.faults.static`."""

from __future__ import annotations

import dataclasses
from functools import partial

from tools.faults.__main__ import SUITE
from tools.faults.cases import StaticJudge, run_isolated
from tools.suite.command import run_suite

STATIC = dataclasses.replace(
    SUITE,
    name="faults.static",
    purpose="Put faults into small models, and see what the manifest's program tells without running them.",
    run=partial(run_isolated, judge=StaticJudge),
    forms=("dynamic", "legacy", "dynamo", "static", "fused", "fp16", "ort-basic"),
)

if __name__ == "__main__":
    run_suite(STATIC)
