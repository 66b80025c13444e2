"""Columns of each kind of report: the keys of the record that a row is made of, and the exceptions."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from analyzer.documents.base import Record
from analyzer.documents.check import Verdict
from analyzer.documents.compare import TensorPair, TensorSide
from analyzer.documents.compare_time import TimePair
from analyzer.documents.cost import CostGroup
from analyzer.documents.formula import FormulaPart
from analyzer.documents.inspect import Tensor
from analyzer.documents.reconcile import Parameter
from analyzer.documents.recover import Lossy, Lost, StateTensor, Unnamed
from analyzer.documents.survey import Surveyed, SurveyTotals, Unreadable
from analyzer.documents.time import TimeGroup
from analyzer.documents.verify import VerifiedModule


def _find_record(kind: Any) -> type[Record] | None:
    """Return the record that a field holds by itself or as an alternative to null; None for any other field."""
    if get_origin(kind) is Annotated:
        return _find_record(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return next(filter(None, map(_find_record, get_args(kind))), None)
    return kind if isinstance(kind, type) and issubclass(kind, Record) else None


def nested(record: type[Record]) -> dict[str, type[Record]]:
    """Return the keys that hold an object, each with its record."""
    found = {field.encode_name: _find_record(field.type) for field in msgspec.structs.fields(record)}
    return {key: inner for key, inner in found.items() if inner is not None}


def plain(record: type[Record], *without: str) -> tuple[str, ...]:
    """Return the keys that hold no object, in the record's order.

    >>> plain(TensorSide, "copy_of")[:3]
    ('name', 'group', 'dtype')
    """
    objects = nested(record)
    return tuple(
        field.encode_name
        for field in msgspec.structs.fields(record)
        if field.encode_name not in (*objects, *without)
    )


def spread(key: str, record: type[Record]) -> dict[str, str]:
    """Return the columns of an object of numbers (`ms_a`, `ms_b`) with its keys; an expression's is the key alone."""
    inner = plain(record, _LEFT_OUT)
    return {key if name == _EXPRESSION else f"{key}_{name}": name for name in inner}


_LEFT_OUT, _EXPRESSION = "change", "expression"


def _columns(
    *records: type[Record], without: str = "", after: Mapping[str, tuple[str, ...]] | None = None
) -> tuple[str, ...]:
    """Return the keys of the records, each once, in their order; the keys of an object stand in its place.

    Args:
        records: records that a row may be made of.
        without: keys that have no column.
        after: columns to put after a key: of no record, or of keys that stand elsewhere there.
    """
    moved = after or {}
    left = {*without.split(), *(name for names in moved.values() for name in names)}
    return tuple(dict.fromkeys(_place(records, left, moved)))


def _place(
    records: tuple[type[Record], ...], left: set[str], moved: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    for record in records:
        objects = nested(record)
        for field in msgspec.structs.fields(record):
            key = field.encode_name
            if key not in left:
                yield from spread(key, objects[key]) if key in objects else (key,)
                yield from moved.get(key, ())


_TIMED = _columns(TimeGroup, without="keys")
_COMPARED = _columns(TimePair, without="keys")
_RECONCILED = _columns(Parameter, without="why", after={"trainable": ("group",)})
_AT = ("axis", "value")

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "inspect": _columns(Tensor, without="opaque hides", after={"graph_path": ("group", "role")}),
    "survey": _columns(
        Surveyed,
        Unreadable,
        without="totals roles",
        after={
            "readable": (*plain(SurveyTotals, "models", "readable"), "stored_tensors", "shared_bytes"),
            "nodes": ("parameters_at_least", "parameters_at_most"),
        },
    ),
    "reconcile": _RECONCILED,
    "export": _RECONCILED,
    "recover": _columns(
        *(StateTensor, Lossy, Lost, Unnamed),
        without="buffer",
        after={"name": ("graph_path", "kind", "status", "dtype")},
    ),
    "compare": (
        *plain(TensorPair),
        *(f"{key}_{side}" for key in plain(TensorSide, *nested(TensorPair)) for side in "ab"),
        *_columns(TensorPair, without=" ".join((*plain(TensorPair), "a b"))),
    ),
    "compare_time": _COMPARED,
    "compare_sweep": (*_AT, *_COMPARED),
    "verify": ("kind", *_columns(VerifiedModule)),
    "cost": _columns(CostGroup, without="keys"),
    "check": _columns(Verdict, after={"status": ("skipped",)}),
    "time": _TIMED,
    "sweep": (*_AT, *_TIMED),
    "generation": ("component", "step", "times", "cache", *_TIMED),
    "formula": ("term", *_columns(FormulaPart)),
}
"""Columns by the name of the schema; docs/reference/report-format.md describes each."""
