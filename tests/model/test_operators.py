"""Table of operators, beside the schemas of ONNX and of onnxruntime."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import onnx
import pytest

from analyzer.model import Node
from analyzer.model.operators import (
    MOVES,
    OPERATORS,
    STANDARD,
    Kind,
    Slot,
    is_own,
    operator_of,
)

_NEWEST_ONNX = 28
"""Opset from which the table was written; it knows more operators than an older opset."""
_NEWEST_RUNTIME = (1, 32)

_BY_NAME = (
    (r"(?:.*_)?zero_points?", Slot.ZERO_POINT),
    (r"(?:.*_)?(?:axes|axis|indices|shape|position_ids|pads|condition|repeats|sequence_lens|seqlens_k)", Slot.INDEX),
    (r"(?:cos|sin)_cache|input_(?:mean|var)", Slot.BUFFER),
    (r"[a-z]+_scales?|scales", Slot.SCALE),
)  # fmt: skip
"""Slot of an input by its name in a schema."""
_NAMED_OTHERWISE = frozenset(
    {
        ("EngramGate", Slot.SCALE),  # three scales of a norm, which are learned
        ("HyperConnectionLowRankMix", Slot.SCALE),
        ("LinearAttentionGate", Slot.SCALE),  # -exp(A_log)
        ("MatMulNBitsMlp", Slot.SCALE),  # a norm's scales, beside scales of codes
        ("MatMulNBitsQkv", Slot.SCALE),
        ("Resize", Slot.SCALE),  # factors of the output size
        ("Upsample", Slot.SCALE),
        ("Scan", Slot.INDEX),  # in its first version only
    }
)


def _onnx_schemas() -> list[Any]:
    return onnx.defs.get_all_schemas_with_history()


def _runtime_schemas() -> list[Any]:
    return pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state").get_all_operator_schema()


def _is_newest_runtime() -> bool:
    version = pytest.importorskip("onnxruntime").__version__
    return tuple(map(int, version.split(".")[:2])) >= _NEWEST_RUNTIME


def _inputs(schemas: Iterable[Any]) -> dict[tuple[str, str], tuple[int, bool]]:
    """Return each operator's largest number of inputs over its versions, and whether it is variadic."""
    found: dict[tuple[str, str], tuple[int, bool]] = {}
    for schema in schemas:
        count, variadic = found.get((schema.domain, schema.name), (0, False))
        is_variadic = any("variadic" in str(item.option).lower() for item in schema.inputs)
        found[schema.domain, schema.name] = max(count, len(schema.inputs)), variadic or is_variadic
    return found


def _known_inputs(domain: str, name: str) -> tuple[int, bool]:
    known = OPERATORS.get(domain, {}).get(name)
    # A schema lists repeated inputs once: scale, zero point and codes of QLinearConcat are one input.
    return (-1, False) if known is None else (len(known.slots) - max(known.again - 1, 0), known.again > 0)


def _find_wrong(schemas: Iterable[Any], *, is_newest: bool) -> list[str]:
    wrong = []
    for (domain, name), (count, is_variadic) in _inputs(schemas).items():
        known, is_known_variadic = _known_inputs(domain, name)
        if known < count or is_known_variadic != is_variadic or (is_newest and known != count):
            wrong.append(f"{domain}:{name} {known} told, {count} there")
    return wrong


def test_every_input_of_every_onnx_operator_is_known_and_none_invented():
    is_newest = onnx.defs.onnx_opset_version() >= _NEWEST_ONNX

    assert _find_wrong(_onnx_schemas(), is_newest=is_newest) == []


def test_every_input_of_every_operator_that_onnxruntime_registers_is_known_and_none_invented():
    # onnxruntime's copies of ONNX's operators may be older than onnx.
    contributed = [schema for schema in _runtime_schemas() if schema.domain not in ("", "ai.onnx.ml")]

    assert _find_wrong(contributed, is_newest=_is_newest_runtime()) == []
    assert _find_wrong(_runtime_schemas(), is_newest=False) == []


def test_what_is_called_standard_is_what_onnx_defines_in_its_own_domain():
    own = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}

    assert own <= STANDARD
    if onnx.defs.onnx_opset_version() >= _NEWEST_ONNX:
        assert own == STANDARD


def test_no_operator_is_invented():
    if onnx.defs.onnx_opset_version() < _NEWEST_ONNX or not _is_newest_runtime():
        pytest.skip("the table knows operators of later versions")
    there = {(schema.domain, schema.name) for schema in (*_onnx_schemas(), *_runtime_schemas())}

    for domain in ("", "ai.onnx.ml", "ai.onnx.preview", "com.microsoft", "com.microsoft.nchwc"):
        assert [name for name in OPERATORS[domain] if (domain, name) not in there] == []


def test_slots_are_what_the_schemas_call_them():
    wrong = []
    for schema in (*onnx.defs.get_all_schemas(), *_runtime_schemas()):
        known = OPERATORS.get(schema.domain, {}).get(schema.name)
        assert known is not None
        for index, item in enumerate(schema.inputs):
            expected = next((slot for name, slot in _BY_NAME if re.fullmatch(name, item.name)), None)
            if expected not in (None, known.slot(index)) and (schema.name, expected) not in _NAMED_OTHERWISE:
                wrong.append(f"{schema.domain}:{schema.name} {item.name} {known.slot(index)}")

    assert wrong == []


def test_a_line_of_the_table_repeats_no_operator():
    from analyzer.model.operators import _DOMAINS, _parse

    names = [(known.domain, known.op_type) for domain, table in _DOMAINS for known in _parse(domain, table)]

    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("domain", "op_type", "slots"),
    [
        ("", "Attention", {3: Slot.DATA, 6: Slot.INDEX}),
        ("com.microsoft", "Attention", {1: Slot.LEARNED, 2: Slot.BIAS, 3: Slot.INDEX}),
        ("", "RotaryEmbedding", {1: Slot.BUFFER, 3: Slot.INDEX}),
        ("com.microsoft", "RotaryEmbedding", {1: Slot.INDEX, 3: Slot.BUFFER}),
        ("com.microsoft", "QLinearConcat", {0: Slot.SCALE, 2: Slot.CODES, 8: Slot.CODES, 9: Slot.SCALE}),
        ("com.ms.internal.nhwc", "QLinearConv", {3: Slot.CODES, 4: Slot.SCALE, 8: Slot.BIAS}),
        ("ai.onnx", "Loop", {0: Slot.INDEX, 1: Slot.INDEX, 2: Slot.DATA, 9: Slot.DATA}),
    ],
)
def test_operators_of_one_name_are_told_apart_by_domain(domain: str, op_type: str, slots: dict[int, Slot]):
    known = OPERATORS.get(domain, {}).get(op_type)

    assert known is not None
    assert {index: known.slot(index) for index in slots} == slots


def test_inputs_that_operators_pass_on_unchanged_are_known():
    def moved(op_type: str) -> list[int]:
        known = OPERATORS.get("", {}).get(op_type)
        assert known is not None
        return [index for index in range(4) if known.passes_on(index)]

    assert (moved("Reshape"), moved("Where"), moved("Concat"), moved("MatMul")) == (
        [0],
        [1, 2],
        [0, 1, 2, 3],
        [],
    )
    assert {"Cast", "Concat", "Slice", "Transpose"} <= MOVES
    assert not MOVES & {"DequantizeLinear", "Gather", "Mul", "Where"}


def test_a_name_that_a_domain_lacks_is_no_operator():
    def node(domain: str, op_type: str) -> Node:
        return Node((), 0, op_type, domain, "", (), ())

    assert operator_of(node("", "FusedMatMul")) is None
    assert operator_of(node("org.example", "MatMul")) is None
    assert operator_of(node("ai.onnx", "MatMul")) is operator_of(node("", "MatMul"))
    assert is_own(node("com.microsoft", "FusedMatMul"))
    assert not is_own(node("com.microsoft", "MyMatMul"))
    assert not is_own(node("ai.onnx.contrib", "BertTokenizer"))  # from a library that may not be installed


def test_every_kind_has_operators():
    kinds = {known.kind for domain in OPERATORS.values() for known in domain.values()}

    assert kinds == set(Kind)
