"""The keys of `inspect`'s JSON -> the columns of the tables, and rows -> tables of Arrow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from analyzer.documents import inspect as inspect_records
from analyzer.documents import shared as shared_records
from analyzer.fleet.record import TABLES, Tables

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["fitted", "make_tables", "schemas"]

_HEAD = ("model", "sha256", "etag")
_MOST_BITS = 63

_LEFT_OUT = {
    "models": {"path", "files"},
    "files": {"path", "bytes", "sha256"},
    "groups": {"trainable", "frozen"},
}
"""Fields of the documents that a table has in its own way, or that one file alone never has."""

_OF_MODEL = (
    *("components", "content", "roles", "quantization", "accounts", "dtypes"),
    *("by", "depth", "overlap", "ungrouped", "blocks"),
)
"""Keys of `inspect` that are columns of `models`, beside those of its `model` and `totals`."""


@functools.cache
def schemas() -> Mapping[str, pa.Schema]:
    """The columns of each table, with their types."""
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    head = [(name, text) for name in _HEAD]
    whole = dict(_fields(inspect_records.InspectDocument))
    models = [
        *_fields(inspect_records.Model, _LEFT_OUT["models"]),
        *_fields(inspect_records.Totals),
        *((name, whole[name]) for name in _OF_MODEL),
    ]
    prints = [
        ("digest", text),
        ("sketch", pa.list_(pa.float32())),
        ("logical_elements", number),
        ("code_bits", number),
    ]
    files = [("path", text), ("bytes", number), ("mtime_ns", number), ("place", text)]
    found = {
        "models": [*head, ("error", text), *models],
        "files": [*head, *files],
        "tensors": [*head, *_fields(inspect_records.Tensor), *prints],
        "groups": [*head, *_fields(shared_records.Group, _LEFT_OUT["groups"])],
        "operators": [*head, *_fields(inspect_records.Operator)],
        "findings": [*head, *_fields(shared_records.Finding)],
    }
    return {name: pa.schema(found[name]) for name in TABLES}


def _fields(kind: type[msgspec.Struct], left_out: Iterable[str] = ()) -> list[tuple[str, pa.DataType]]:
    told = msgspec.inspect.type_info(kind)
    assert isinstance(told, msgspec.inspect.StructType)
    return [
        (field.encode_name, _arrow(field.type)) for field in told.fields if field.encode_name not in left_out
    ]


def _arrow(told: msgspec.inspect.Type) -> pa.DataType:
    """The type of a column, or of a part of one, that holds what a field of a document does."""
    import pyarrow as pa

    match told:
        case msgspec.inspect.Metadata(type=inner):
            return _arrow(inner)
        case msgspec.inspect.BoolType():
            return pa.bool_()
        case msgspec.inspect.IntType():
            return pa.int64()
        case msgspec.inspect.FloatType():
            return pa.float64()
        case msgspec.inspect.ListType(item_type=item) | msgspec.inspect.CollectionType(item_type=item):
            return pa.list_(_arrow(item))
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            names = _names(key)
            if names is None:
                return pa.map_(pa.string(), _arrow(value))
            return pa.struct([(name, _arrow(value)) for name in names])
        case msgspec.inspect.StructType(cls=kind):
            return pa.struct(_fields(kind))
        case msgspec.inspect.UnionType(types=types):
            kinds = {_arrow(each) for each in types if not isinstance(each, _NOTHING)}
            return kinds.pop() if len(kinds) == 1 else pa.string()
        case _:
            return pa.string()


_NOTHING = (msgspec.inspect.NoneType,)


def _names(key: msgspec.inspect.Type) -> list[str] | None:
    """The keys that an object always has; None where it may have any."""
    if isinstance(key, msgspec.inspect.Metadata):
        return _names(key.type)
    return [str(each.value) for each in key.cls] if isinstance(key, msgspec.inspect.EnumType) else None


def make_tables(rows: Iterable[Mapping[str, list[dict[str, Any]]]]) -> Tables:
    """The tables that hold the rows of some models, in their order."""
    import pyarrow as pa

    joined: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for found in rows:
        for name in TABLES:
            joined[name] += found.get(name, ())
    try:
        return {name: _table(joined[name], schema) for name, schema in schemas().items()}
    except (OverflowError, pa.ArrowException):  # a file may claim any size
        return {name: _table(list(map(fitted, joined[name])), schema) for name, schema in schemas().items()}


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        convert = _converter(field.type)
        if convert is not None:
            values = [value if value is None else convert(value) for value in values]
        columns.append(pa.array(values, type=field.type))
    return pa.Table.from_arrays(columns, schema=schema)


@functools.cache
def _converter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes a value one that Arrow takes; None where it is one.

    Of maps it takes pairs, and of a list that has sizes and names the text of each.
    """
    import pyarrow as pa

    if pa.types.is_map(kind):
        return lambda value: list(value.items())
    if pa.types.is_struct(kind):
        inner = {field.name: convert for field in kind if (convert := _converter(field.type)) is not None}
        return (lambda value: _converted(value, inner)) if inner else None
    if not pa.types.is_list(kind):
        return None
    if pa.types.is_string(kind.value_type):
        return _texts
    convert = _converter(kind.value_type)
    return None if convert is None else lambda value: [convert(item) for item in value]


def _converted(value: Mapping[str, Any], inner: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    made = dict(value)
    for name, convert in inner.items():
        if made.get(name) is not None:
            made[name] = convert(made[name])
    return made


def _texts(value: Sequence[Any]) -> list[str | None]:
    return [item if item is None or type(item) is str else str(item) for item in value]


def fitted(value: Any) -> Any:
    """A value, or the values in it, but for numbers that 64 bits have no room for: these become null."""
    if isinstance(value, dict):
        return {key: fitted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fitted(item) for item in value]
    return None if isinstance(value, int) and value.bit_length() > _MOST_BITS else value
