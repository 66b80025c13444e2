"""VerifyReport -> its JSON document."""

from __future__ import annotations

import math

from analyzer.documents import verify as records
from analyzer.formats.json.parts import Fields, head
from analyzer.verify.record import Agreement, VerifyReport


def document_verification(report: VerifyReport) -> records.VerifyDocument:
    """What `verify` answers."""
    first = report.first
    return records.VerifyDocument(
        **head(report.stamp),
        model=report.path,
        against=report.against,
        same=report.same,
        first=None
        if first is None
        else records.VerifyFirst(module=first.module, node=first.node, reason=first.reason),
        wiring=records.VerifyWiring(
            checked=report.checked,
            differing=len(report.differences),
            differences=[
                records.VerifyDifference(
                    module=each.module,
                    parameter=each.parameter,
                    node=each.node,
                    kind=each.kind,
                    expected=each.expected,
                    found=each.found,
                )
                for each in report.differences
            ],
        ),
        outputs=[
            records.VerifiedOutput(name=each.name, **_agreement(each.agreement)) for each in report.outputs
        ],
        modules=[
            records.VerifiedModule(
                module=each.group, class_=each.op_type, value=each.name, **_agreement(each.agreement)
            )
            for each in report.values
        ],
        inputs=[
            records.VerifiedInput(name=fed.name, dtype=fed.dtype, shape=list(fed.shape), seed=fed.seed)
            for fed in report.inputs
        ],
        uncovered=list(report.uncovered),
    )


def _agreement(found: Agreement) -> Fields:
    return {
        "max_abs_error": found.max_abs_error,
        "signal_to_error_db": _finite(found.signal_to_error_db),
        "noise_db": _finite(found.noise_db),
        "verdict": found.verdict,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
