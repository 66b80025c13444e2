"""A record -> its JSON Schema (draft 2020-12): msgspec's, with each field's docstring, closed and self-contained."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from analyzer.account.findings.catalog import load_explanations
from analyzer.budget.measuring import METRICS
from analyzer.documents.base import Record
from analyzer.documents.kinds import DOCUMENTS
from analyzer.formulas.rows import Precision
from analyzer.model.dtypes import DType

__all__ = ["FOLDER", "VALUES", "docstrings", "generate", "records_of"]

VALUES: Mapping[str, Iterable[str]] = {
    "dtype": [dtype.name for dtype in DType],
    "finding_id": [explanation.id for explanation in load_explanations()],
    "metric": list(METRICS),
    "precision": [precision.label for precision in Precision],
}
"""Values for a name that begins with `$values`: names that are data, and no type."""

FOLDER = Path(__file__).parents[2] / "analyzer" / "schemas"

_DEFS = "#/$defs/"


def generate(name: str) -> dict[str, Any]:
    """Return the schema of one kind of document, which refers to no other file."""
    root = DOCUMENTS[name]
    known = {record.__name__: record for record in records_of(root)}
    _, components = msgspec.json.schema_components(known.values(), ref_template=f"{_DEFS}{{name}}")
    made = {key: _closed(schema, known.get(key)) for key, schema in components.items()}
    used = sorted(_references(made[root.__name__], made))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"onnxledger:{name}:1",
        "title": inspect.getdoc(root).split("\n")[0].removesuffix("."),  # type: ignore[union-attr]
        **{key: value for key, value in made[root.__name__].items() if key != "description"},
        "$defs": {key: made[key] for key in used},
    }


def records_of(root: type[Record]) -> list[type[Record]]:
    """Return a record and all records that its fields refer to, each once."""
    found: dict[type[Record], None] = {}
    waiting = [root]
    while waiting:
        record = waiting.pop()
        if record in found:
            continue
        found[record] = None
        module = inspect.getmodule(record)
        for field in msgspec.structs.fields(record):
            waiting.extend(_structs(msgspec.inspect.type_info(field.type)))
            alternatives = [schema.get("$oneOf", ()) for schema in _extras(field.type)]
            waiting.extend(getattr(module, each) for names in alternatives for each in names)
    return list(found)


def _structs(info: msgspec.inspect.Type) -> Iterable[type[Record]]:
    match info:
        case msgspec.inspect.StructType(cls=cls) if issubclass(cls, Record):
            yield cls
        case msgspec.inspect.ListType(item_type=item):
            yield from _structs(item)
        case msgspec.inspect.DictType(value_type=value):
            yield from _structs(value)
        case msgspec.inspect.UnionType(types=types):
            for each in types:
                yield from _structs(each)
        case msgspec.inspect.Metadata(type=inner):
            yield from _structs(inner)


def _extras(kind: Any) -> Iterable[dict[str, Any]]:
    """Yield the additional schema in the annotations of a type and of its parts."""
    for meta in getattr(kind, "__metadata__", ()):
        yield meta.extra_json_schema or {}
    for part in getattr(kind, "__args__", ()):
        yield from _extras(part)
    if hasattr(kind, "__origin__"):
        yield from _extras(kind.__origin__)


@functools.cache
def docstrings(record: type[Record]) -> dict[str, str]:
    """Return the docstring below each field of a record and of its base classes."""
    found: dict[str, str] = {}
    for cls in reversed(record.__mro__):
        if cls is object or cls.__module__.startswith("msgspec"):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(body, ast.ClassDef)
        for before, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(before, ast.AnnAssign) and isinstance(after, ast.Expr):
                assert isinstance(before.target, ast.Name)
                assert isinstance(after.value, ast.Constant)
                found[before.target.id] = " ".join(inspect.cleandoc(str(after.value.value)).split())
    return found


def _closed(schema: dict[str, Any], record: type[Record] | None) -> dict[str, Any]:
    schema = _simplify(schema)
    schema.pop("title", None)
    schema.pop("description", None)
    if record is None:
        return schema
    encoded = {field.name: field.encode_name for field in msgspec.structs.fields(record)}
    descriptions = {encoded[name]: text for name, text in docstrings(record).items()}
    properties = {
        name: {"description": descriptions[name], **_without_default(each)}
        for name, each in schema["properties"].items()
    }
    optional = {field.encode_name for field in msgspec.structs.fields(record) if _may_be_left_out(field.type)}
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
        **DEPENDENT.get(record.__name__, {}),
    }


DEPENDENT = {"Group": {"dependentRequired": {"trainable": ["frozen"], "frozen": ["trainable"]}}}
"""Conditions that types cannot express: both or none."""


def _may_be_left_out(kind: Any) -> bool:
    return msgspec.UnsetType in getattr(kind, "__args__", ())


def _without_default(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "default"}


def _simplify(schema: Any) -> Any:
    """Simplify the schema: `const` for a single value, a list of types for a nullable one."""
    if isinstance(schema, list):
        return [_simplify(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: _simplify(value) for key, value in schema.items()}
    if "$values" in schema:
        return {"enum": list(VALUES[schema["$values"]])}
    if "$oneOf" in schema:
        return {"oneOf": [{"$ref": f"{_DEFS}{name}"} for name in schema["$oneOf"]]}
    if "const" in schema:
        return {"const": schema["const"]}
    if len(schema.get("enum", ())) == 1:
        return {**{key: value for key, value in schema.items() if key != "enum"}, "const": schema["enum"][0]}
    options = schema.get("anyOf", ())
    if sorted(option.get("type", "") for option in options) == ["integer", "number"]:
        return {"type": "number"}  # a number that stays as it was written
    types = [option for option in options if set(option) != {"type"} or option["type"] != "null"]
    if len(types) == 1 and len(options) == 2 and isinstance(types[0].get("type"), str):
        return {**types[0], "type": [types[0]["type"], "null"]}
    if len(types) == 1 and len(options) == 2 and "enum" in types[0]:
        return {**types[0], "enum": [*types[0]["enum"], None]}
    if options:  # msgspec has them in the order of a set
        schema["anyOf"] = sorted(
            options, key=lambda option: (option.get("type") == "null", json.dumps(option))
        )
    return schema


def _references(schema: Any, known: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            name = part.get("$ref", "").removeprefix(_DEFS)
            if name and name not in found:
                found.add(name)
                waiting.append(known[name])
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return found
