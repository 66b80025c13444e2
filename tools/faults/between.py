"""The same faults, verified against the export that each file was made from: `python -m tools.faults.between`."""

from __future__ import annotations

import dataclasses
from functools import partial

from tools.faults.__main__ import SUITE
from tools.faults.cases import FileJudge, run_isolated
from tools.suite.command import run_suite

BETWEEN = dataclasses.replace(
    SUITE,
    name="faults.between",
    purpose="Put faults into small models, and count those that verify detects against the original file.",
    run=partial(run_isolated, judge=FileJudge),
    forms=("dynamic", "qdq", "int8", "fp16", "nbits", "ort-basic", "onnxslim"),
)

if __name__ == "__main__":
    run_suite(BETWEEN)
