"""A graph as text -> its flow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from models import audit, ramp, text_model

from analyzer.account.blocks.flow import Flow, weigh
from analyzer.model.content import Array

RESIDUAL = """
g (float[n,2] x) => (float[n,3] y) {
    h0 = MatMul(x, first)
    a1 = MatMul(h0, w1)
    h1 = Add(h0, a1)
    a2 = MatMul(h1, w2)
    h2 = Add(h1, a2)
    a3 = MatMul(h2, w3)
    h3 = Add(h2, a3)
    y = MatMul(h3, last)
}
"""
RESIDUAL_WEIGHTS = {
    "first": ramp(2, 4),
    "last": ramp(4, 3, start=100),
    **{f"w{i}": ramp(4, 4, start=1000 * i) for i in (1, 2, 3)},
}


def flow_of(folder: Path, text: str, weights: Mapping[str, Array]) -> Flow:
    ledger = audit(folder, text_model(text, dict(weights)))
    model, wiring = ledger.model, ledger.wiring
    return Flow.of(model.graphs[0], wiring, weigh(model, ledger.entries, wiring))
