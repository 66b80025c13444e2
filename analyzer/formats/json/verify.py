"""VerifyReport -> its JSON document."""

from __future__ import annotations

import math

from analyzer.documents import verify as records
from analyzer.formats.json.parts import Fields, head
from analyzer.verify.record import Agreement, Costs, Executed, VerifyReport


def document_verification(report: VerifyReport) -> records.VerifyDocument:
    """Return the document of `verify`."""
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
        executions=None if report.executions is None else _executions(*report.executions),
        drift_db=_finite(report.drift_db),
        costs=None if report.costs is None else _costs(report.costs),
        inputs=[
            records.VerifiedInput(
                name=entry.name, dtype=entry.dtype, shape=list(entry.shape), seed=entry.seed, file=entry.file
            )
            for entry in report.inputs
        ],
        uncovered=[
            *(f"{records.REFUSED}{each}" for each in report.unfit),
            *(f"{records.EMPTIED}{each}" for each in report.emptied),
            *report.uncovered,
        ],
    )


def _executions(ours: Executed, theirs: Executed) -> records.VerifyExecutions:
    own_execution, other_execution = (
        records.VerifyExecution(optimization=each.optimization, provider=each.provider, nodes=each.nodes)
        for each in (ours, theirs)
    )
    return records.VerifyExecutions(model=own_execution, against=other_execution)


def _costs(costs: Costs) -> records.VerifyCosts:
    kept = costs.kept
    return records.VerifyCosts(
        weights_db=_finite(costs.weights_db),
        codes_db=_finite(costs.codes_db),
        layers=[
            records.VerifyLayerCost(
                module=each.module,
                signal_to_error_db=_finite(each.signal_to_error_db),
                weights_db=_finite(each.weights_db),
                codes_db=_finite(each.codes_db),
                quantizers=each.quantizers,
                nbytes=each.nbytes,
                float_nbytes=each.float_nbytes,
            )
            for each in costs.layers
        ],
        kept=None
        if kept is None
        else records.VerifyKept(
            modules=list(kept.modules),
            more_nbytes=kept.more_nbytes,
            before_db=_finite(kept.before_db),
            signal_to_error_db=_finite(kept.signal_to_error_db),
        ),
        unmeasured=costs.unmeasured,
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
