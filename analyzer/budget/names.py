"""Names that a budget allows -> the names as models have them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from analyzer.budget.record import Among, Unit
from analyzer.dtypes import DType
from analyzer.model import DEFAULT_DOMAIN
from analyzer.wording import shown

__all__ = ["name_operator", "parse_names"]

_MEANT = {
    "BF16": "BFLOAT16",
    "FLOAT32": "FLOAT",
    "FLOAT64": "DOUBLE",
    "FP16": "FLOAT16",
    "FP32": "FLOAT",
    "FP64": "DOUBLE",
    "HALF": "FLOAT16",
}
"""What others call a dtype, and ONNX does not."""


def name_operator(domain: str, op_type: str) -> str:
    """An operator as limits and reports name it.

    >>> name_operator("", "MatMul"), name_operator("com.microsoft", "MatMulNBits")
    ('MatMul', 'com.microsoft:MatMulNBits')
    """
    return op_type if domain in ("", DEFAULT_DOMAIN) else f"{domain}:{op_type}"


def parse_names(names: Iterable[object], unit: Unit) -> Among:
    """The names that are allowed, each as models have it. None at all allows nothing.

    >>> sorted(parse_names(["float16", "INT8 "], Unit.DTYPES).names)
    ['FLOAT16', 'INT8']
    >>> sorted(parse_names(["ai.onnx:MatMul", "com.microsoft:Gelu"], Unit.OPERATORS).names)
    ['MatMul', 'com.microsoft:Gelu']

    Raises:
        ValueError: one is no name, or no dtype; the message says which was meant.
    """
    return Among(frozenset(_parse(name, unit) for name in names))


def _parse(value: object, unit: Unit) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)}: write the names of {unit.value} as texts")
    name = value.strip()
    match unit:
        case Unit.DTYPES:
            return _parse_dtype(name)
        case Unit.DOMAINS:
            return name or DEFAULT_DOMAIN
    if not name:
        raise ValueError("an empty name among the operators; leave it out")
    domain, colon, op_type = name.rpartition(":")
    if colon and not op_type:
        raise ValueError(
            f"{shown(name)}: names no operator; write DOMAIN:OP_TYPE, as in 'com.microsoft:Gelu'"
        )
    return name_operator(domain, op_type)


def _parse_dtype(name: str) -> str:
    upper = name.upper()
    known = [dtype.name for dtype in DType]
    if upper in known:
        return upper
    near = [_MEANT[upper]] if upper in _MEANT else difflib.get_close_matches(upper[:40], known, 1)
    meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    raise ValueError(f"{shown(name)} is no dtype of ONNX; {meant}")
