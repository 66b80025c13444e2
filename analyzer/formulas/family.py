"""families/*.toml -> Family: the closed forms that ship, checked as they are read."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from analyzer.formulas.closed_form import Cache, Computed, Family, Field, ModelClass, Part, Term
from analyzer.formulas.language import Expression, parse_expression

__all__ = ["family_names", "find_family", "load_families", "load_family", "read_family"]

_FOLDER = "families"

_KEYS = (
    "name",
    "model_types",
    "prefix",
    "source",
    "like",
    "renamed",
    "fields",
    "values",
    "terms",
    "cache",
    "classes",
)


def family_names() -> tuple[str, ...]:
    """The closed forms that ship, by the names of their files."""
    folder = resources.files("analyzer.formulas") / _FOLDER
    return tuple(
        sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))
    )


def load_families() -> dict[str, Family]:
    """All of them."""
    return {key: load_family(key) for key in family_names()}


def find_family(model_type: str) -> Family | None:
    """The closed form of a `model_type`; None where none ships."""
    return next((family for family in load_families().values() if model_type in family.model_types), None)


@functools.cache
def load_family(key: str) -> Family:
    """One closed form.

    Raises:
        ValueError: the file contradicts itself; it says where. None that ships does, which the tests see to.
    """
    return read_family(key, _read_table(key))


def _read_table(key: str) -> dict[str, Any]:
    text = (resources.files("analyzer.formulas") / _FOLDER / f"{key}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def read_family(key: str, table: Mapping[str, Any]) -> Family:
    """A closed form from the content of its file.

    Raises:
        ValueError: as `load_family`.
    """
    _check_keys(key, table, *_KEYS)
    table = _fill_in(key, table)
    fields = {name: _field(name, item) for name, item in table["fields"].items()}
    values = tuple(_computed(name, item) for name, item in table.get("values", {}).items())
    terms = tuple(_term(item, table["source"]) for item in table["terms"])
    family = Family(
        key=key,
        name=table["name"],
        model_types=tuple(table["model_types"]),
        prefix=table.get("prefix", ""),
        source=table["source"],
        fields=fields,
        values=values,
        terms=terms,
        classes={name: _model_class(name, item, terms) for name, item in table["classes"].items()},
        cache=_cache(table["cache"]) if "cache" in table else None,
    )
    _check(family)
    return family


def _fill_in(key: str, table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table with what it leaves to the family that it is like: all that it does not say itself."""
    like, renamed = table.get("like"), table.get("renamed", {})
    if like is None:
        return table
    other = _read_table(like) if like in family_names() else {"like": like}
    if "like" in other:
        raise ValueError(f"{key}: like {like!r}, which is no family with a file of its own")

    def rename(text: str) -> str:
        called = "|".join(map(re.escape, renamed))
        return re.sub(called, lambda found: renamed[found[0]], text) if renamed else text

    def told(part: Mapping[str, Any]) -> dict[str, Any]:
        return {**part, "source": rename(part["source"])} if "source" in part else {**part}

    fields, own = other["fields"], table.get("fields", {})
    return {
        **other,
        "terms": [{**term, "parts": [*map(told, term["parts"])]} for term in other["terms"]],
        **table,
        "fields": {name: {**fields.get(name, {}), **own.get(name, {})} for name in {**fields, **own}},
        "values": {**other.get("values", {}), **table.get("values", {})},
        "classes": {
            **{rename(name): item for name, item in other["classes"].items()},
            **table.get("classes", {}),
        },
    }


def _expression(item: Mapping[str, Any], key: str) -> Expression | None:
    return parse_expression(item[key]) if key in item else None


def _field(name: str, item: Mapping[str, Any]) -> Field:
    _check_keys(name, item, "symbol", "default", "otherwise", "aliases", "length_of", "role", "usual")
    default = item.get("default")
    return Field(
        name=name,
        symbol=item.get("symbol"),
        default=tuple(default) if isinstance(default, list) else default,
        otherwise=_expression(item, "otherwise"),
        aliases=tuple(item.get("aliases", ())),
        length_of=item.get("length_of"),
        role=item.get("role"),
        usual=_expression(item, "usual"),
    )


def _computed(name: str, item: Mapping[str, Any]) -> Computed:
    _check_keys(name, item, "symbol", "expression", "meaning")
    expression = parse_expression(item["expression"])
    return Computed(name, item.get("symbol"), expression, item.get("meaning", ""))


def _term(item: Mapping[str, Any], source: str) -> Term:
    _check_keys(item["name"], item, "name", "times", "uses", "when", "parts")
    return Term(
        name=item["name"],
        times=_expression(item, "times"),
        uses=_expression(item, "uses"),
        when=_expression(item, "when"),
        parts=tuple(_part(item["name"], part, source) for part in item["parts"]),
    )


def _part(term: str, item: Mapping[str, Any], source: str) -> Part:
    known = ("name", "count", "vectors", "active", "times", "when", "scope", "source", "tied_to", "unread")
    _check_keys(f"{term}/{item['name']}", item, *known)
    re.compile(item["scope"])
    return Part(
        name=item["name"],
        term=term,
        count=parse_expression(item["count"]),
        vectors=parse_expression(item.get("vectors", "0")),
        active=_expression(item, "active"),
        times=_expression(item, "times"),
        when=_expression(item, "when"),
        scope=item["scope"],
        source=item.get("source", source),
        tied_to=item.get("tied_to"),
        unread=_expression(item, "unread"),
    )


def _cache(item: Mapping[str, Any]) -> Cache:
    _check_keys("cache", item, "when", "token", "source_token", "window", "context", "source_context")
    return Cache(
        when=_expression(item, "when"),
        token=parse_expression(item["token"]),
        source_token=_expression(item, "source_token"),
        window=_expression(item, "window"),
        context=_expression(item, "context"),
        source_context=_expression(item, "source_context"),
    )


def _model_class(name: str, item: Mapping[str, Any], terms: Iterable[Term]) -> ModelClass:
    _check_keys(name, item, "auto", "aliases", "terms", "without", "set")
    keys = {part.key: term.name for term in terms for part in term.parts}
    has, lacks = item["terms"], item.get("without", ())
    for chosen in (*has, *lacks):
        if chosen not in keys and chosen not in keys.values():
            raise ValueError(f"{name}: no term {chosen!r}")
    parts = tuple(
        key
        for key, term in keys.items()
        if (key in has or term in has) and key not in lacks and term not in lacks
    )
    return ModelClass(
        name, tuple(item.get("auto", ())), tuple(item.get("aliases", ())), parts, item.get("set", {})
    )


def _check_keys(where: str, item: Mapping[str, Any], *known: str) -> None:
    for key in item:
        if key not in known:
            raise ValueError(f"{where}: no key {key!r}; there are {', '.join(known)}")


def _check(family: Family) -> None:
    names = [part.name for part in family.parts]
    if len(set(names)) < len(names):
        raise ValueError(f"{family.key}: a part's name stands twice")
    if len(set(family.symbols.values())) < len(family.symbols):
        raise ValueError(f"{family.key}: a symbol stands twice")
    known = {*family.fields, *(value.name for value in family.values)}
    for where, expression in family.located:
        for name in expression.names:
            if name not in known:
                raise ValueError(f"{family.key}: {where}: no field {name!r}")
    for part in family.parts:
        if part.tied_to is not None and part.tied_to not in names:
            raise ValueError(f"{family.key}: {part.name}: tied to {part.tied_to!r}, which is no part")
