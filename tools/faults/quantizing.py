"""Faults in the quantizers of activations, which only files with such quantizers have a place for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from tools.suite.surgery import NoPlaceError, Surgery
from tools.tamper.catalog import KINDS
from tools.tamper.kinds import Kind

GROUP = "quantizers"
_WHOLE = {TensorProto.UINT8: np.uint8, TensorProto.INT8: np.int8}


def _places(surgery: Surgery) -> list[tuple[str, str]]:
    """Return the stored scale and zero point of each QuantizeLinear of an activation."""
    stored = surgery.stored()
    found = []
    for node in surgery.nodes:
        if node.op_type == "QuantizeLinear" and len(node.input) > 2 and node.input[0] not in stored:
            scale, zero = node.input[1:3]
            is_one = scale in stored and zero in stored and not int(np.prod(stored[scale].dims)) > 1
            if is_one and stored[zero].data_type in _WHOLE:
                found.append((scale, zero))
    return found


def _scaled(factor: float) -> Callable[[Surgery], None]:
    def make(surgery: Surgery) -> None:
        scale, _ = surgery.pick(_places(surgery), "quantizer of an activation")
        surgery.store(scale, (surgery.array(scale) * np.float32(factor)).astype(np.float32))

    return make


def _zeroed(surgery: Surgery) -> None:
    """Set a zero point to the least code, so that all codes mean numbers above zero."""
    stored = surgery.stored()
    least = {TensorProto.UINT8: 0, TensorProto.INT8: -128}
    found = [
        (zero, least[kind])
        for _, zero in _places(surgery)
        if (kind := stored[zero].data_type) in least and int(surgery.array(zero).min()) > least[kind] + 64
    ]
    if not found:
        raise NoPlaceError("no quantizer of an activation with codes on both sides of zero")
    zero, code = surgery.pick(found, "zero point")
    surgery.store(zero, np.full_like(surgery.array(zero), code))


FAULTS: dict[str, Kind] = {
    **KINDS,
    **{
        kind.name: kind
        for kind in (
            Kind(GROUP, "an activation's scale times 16", _scaled(16)),
            Kind(GROUP, "an activation's scale times 4", _scaled(4)),
            Kind(GROUP, "an activation's scale by 4", _scaled(1 / 4)),
            Kind(GROUP, "an activation's scale by 16", _scaled(1 / 16)),
            Kind(GROUP, "an activation's zero point at the least code", _zeroed),
        )
    },
}
"""All faults, by name."""
