"""families/*.toml -> Family: fields, terms, classes and cache of the built-in closed forms, checked when read."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Container, Iterable, Mapping
from importlib import resources
from typing import Any

from analyzer.formulas.language import Expression, Value, parse_expression
from analyzer.records import Frozen


class Field(Frozen):
    """Field of the config that the formula reads."""

    name: str
    symbol: str | None
    """Letter in formulas; None where only conditions read it."""
    default: Value
    """Default of the config's class where `config.json` lacks the field."""
    otherwise: Expression | None
    """Expression for its value where `config.json` lacks it or says null."""
    aliases: tuple[str, ...]
    """Other names of the field in `config.json`."""
    length_of: str | None
    """Map in `config.json`, such as `id2label`, whose length is the value where the number itself is missing."""
    role: str | None
    """Word for the field in reasons: `vocabulary`, `positions`, `layers` or `experts`."""
    usual: Expression | None
    """Value in nearly all published models."""


class Computed(Frozen):
    """Number, or condition, that is computed from fields."""

    name: str
    symbol: str | None
    expression: Expression
    meaning: str


class TermPart(Frozen):
    """Count of one kind of module. The expressions are for one module; `times` is the number of modules."""

    name: str
    term: str
    count: Expression
    vectors: Expression
    """Elements of the count in parameters of one dimension: biases and norms."""
    active: Expression | None
    """Elements of the count that one token uses; None for all."""
    times: Expression | None
    when: Expression | None
    scope: str
    """Regex over PyTorch's names, from their beginning to the end of a module's or parameter's name."""
    source: str
    tied_to: str | None
    """Part whose tensor it shares where `when` does not hold."""
    unread: Expression | None
    """Condition under which the class has the part, but its forward pass does not read it."""

    @property
    def key(self) -> str:
        return f"{self.term}/{self.name}"

    @property
    def group(self) -> str:
        """Scope in a readable form: `encoder.layer.*.attention.(self.(query|key|value)|output.dense)`."""
        return _LOOKAHEAD.sub("", self.scope).replace(r"\d+", "*").replace(r"\.", ".")


_LOOKAHEAD = re.compile(r"\(\?!(?:[^()]|\([^()]*\))*\)")


class Term(Frozen):
    """Summand of the count."""

    name: str
    times: Expression | None
    uses: Expression | None
    """Number of times that each of it is applied in one forward pass; None for once."""
    when: Expression | None
    parts: tuple[TermPart, ...]


class Cache(Frozen):
    """The key-value cache of a decoder, in elements."""

    when: Expression | None
    token: Expression
    source_token: Expression | None
    """Elements for each position of the encoder, which cross-attention reads."""
    window: Expression | None
    context: Expression | None
    source_context: Expression | None


class Work(Frozen):
    """Multiply-accumulates of one kind of product in a forward pass, over the fields and `AXES`."""

    name: str
    macs: Expression
    when: Expression | None
    of: str | None
    """Term that a class needs to have this work; None for all classes."""
    classes: tuple[str, ...]
    """Classes that have this work; empty for all with the term."""
    scope: str
    """Regex over PyTorch's names of the modules that compute it."""

    def is_of(self, model_class: ModelClass, terms: Container[str]) -> bool:
        """Whether a class with these terms has this work."""
        return (self.of is None or self.of in terms) and (
            not self.classes or model_class.name in self.classes
        )


AXES = ("batch", "sequence", "keys")
"""Axes that work also depends on: rows, positions, and attended positions including those of a cache."""


class ModelClass(Frozen):
    """Class of transformers, and its parts."""

    name: str
    auto: tuple[str, ...]
    aliases: tuple[str, ...]
    """Names of the class in earlier versions of transformers."""
    parts: tuple[str, ...]
    """Keys of the class's parts."""
    fixed: Mapping[str, Value]
    """Fields that the class decides, whatever the config says."""


class Family(Frozen):
    """Closed form of a model family."""

    key: str
    """Name of its file."""
    name: str
    model_types: tuple[str, ...]
    prefix: str
    source: str
    fields: Mapping[str, Field]
    values: tuple[Computed, ...]
    terms: tuple[Term, ...]
    classes: Mapping[str, ModelClass]
    cache: Cache | None
    work: tuple[Work, ...] = ()
    """Multiply-accumulates of a forward pass; empty if the file does not define them."""

    @property
    def parts(self) -> tuple[TermPart, ...]:
        """Parts in the order of the file, in which their scopes are tried."""
        return tuple(part for term in self.terms for part in term.parts)

    @property
    def symbols(self) -> dict[str, str]:
        """Letters by the names of fields and values."""
        fields_and_values: list[Field | Computed] = [*self.fields.values(), *self.values]
        return {each.name: each.symbol for each in fields_and_values if each.symbol is not None}

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All expressions."""
        return tuple(expression for _, expression in self.located)

    @property
    def located(self) -> tuple[tuple[str, Expression], ...]:
        """All expressions, each with the name of the field, value, term, part or cache that it belongs to."""
        cache = self.cache
        several: list[tuple[str, tuple[Expression | None, ...]]] = [
            *((each.name, (each.otherwise, each.usual)) for each in self.fields.values()),
            *((each.name, (each.expression,)) for each in self.values),
            *((term.name, (term.times, term.uses, term.when)) for term in self.terms),
            *(
                (part.name, (part.count, part.vectors, part.active, part.times, part.when, part.unread))
                for part in self.parts
            ),
        ]
        if cache is not None:
            several.append(
                (
                    "cache",
                    (
                        cache.when,
                        cache.token,
                        cache.source_token,
                        cache.window,
                        cache.context,
                        cache.source_context,
                    ),
                )
            )
        return tuple((where, each) for where, each_of in several for each in each_of if each is not None)

    def pattern(self, part: TermPart) -> re.Pattern[str]:
        """Return a regex for the names of the part's parameters, or of their modules."""
        return _compile_scope(self.prefix, part.scope)

    def work_pattern(self, work: Work) -> re.Pattern[str]:
        """Return a regex for the names of the modules that compute it."""
        return _compile_scope(self.prefix, work.scope)

    def find_part(self, names: Iterable[str]) -> TermPart | None:
        """Return the part that matches the first of a parameter's names that any part matches; None if none does."""
        for name in names:
            for part in self.parts:
                if self.pattern(part).match(name):
                    return part
        return None


@functools.cache
def _compile_scope(prefix: str, scope: str) -> re.Pattern[str]:
    outer = "|".join(dict.fromkeys(re.escape(each) for each in ("model", prefix) if each))
    return re.compile(rf"(?:(?:{outer})\.)*(?:{scope})(?:\.|$)")


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
    "work",
    "classes",
)


def family_names() -> tuple[str, ...]:
    """Return the names of the built-in closed forms, which are those of their files."""
    folder = resources.files("analyzer.formulas") / _FOLDER
    return tuple(
        sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))
    )


def load_families() -> dict[str, Family]:
    """Load all built-in closed forms."""
    return {key: load_family(key) for key in family_names()}


def find_family(model_type: str) -> Family | None:
    """Return the closed form of a `model_type`; None if none ships."""
    return next((family for family in load_families().values() if model_type in family.model_types), None)


@functools.cache
def load_family(key: str) -> Family:
    """Load one closed form.

    Raises:
        ValueError: the file contradicts itself; it says where. No built-in file does, as the tests verify.
    """
    return read_family(key, _read_table(key))


def _read_table(key: str) -> dict[str, Any]:
    text = (resources.files("analyzer.formulas") / _FOLDER / f"{key}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def read_family(key: str, table: Mapping[str, Any]) -> Family:
    """Read a closed form from the content of its file.

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
        work=tuple(_work(item) for item in table.get("work", ())),
    )
    _check(family)
    return family


def _fill_in(key: str, table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the table, completed from the family that it is `like` with all that it does not define itself."""
    like, renamed = table.get("like"), table.get("renamed", {})
    if like is None:
        return table
    other = _read_table(like) if like in family_names() else {"like": like}
    if "like" in other:
        raise ValueError(f"{key}: like {like!r}, which is no family with a file of its own")

    def rename(text: str) -> str:
        pattern = "|".join(map(re.escape, renamed))
        return re.sub(pattern, lambda found: renamed[found[0]], text) if renamed else text

    def rename_source(part: Mapping[str, Any]) -> dict[str, Any]:
        return {**part, "source": rename(part["source"])} if "source" in part else {**part}

    fields, own = other["fields"], table.get("fields", {})
    return {
        **other,
        "terms": [{**term, "parts": [*map(rename_source, term["parts"])]} for term in other["terms"]],
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


def _part(term: str, item: Mapping[str, Any], source: str) -> TermPart:
    known = ("name", "count", "vectors", "active", "times", "when", "scope", "source", "tied_to", "unread")
    _check_keys(f"{term}/{item['name']}", item, *known)
    re.compile(item["scope"])
    return TermPart(
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


def _work(item: Mapping[str, Any]) -> Work:
    _check_keys(item["name"], item, "name", "macs", "when", "of", "classes", "scope")
    re.compile(item["scope"])
    macs = parse_expression(item["macs"])
    classes = tuple(item.get("classes", ()))
    return Work(item["name"], macs, _expression(item, "when"), item.get("of"), classes, item["scope"])


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
        raise ValueError(f"{family.key}: a part's name appears twice")
    if len(set(family.symbols.values())) < len(family.symbols):
        raise ValueError(f"{family.key}: a symbol appears twice")
    known = {*family.fields, *(value.name for value in family.values)}
    for where, expression in family.located:
        for name in expression.names:
            if name not in known:
                raise ValueError(f"{family.key}: {where}: no field {name!r}")
    terms = {term.name for term in family.terms}
    for work in family.work:
        if work.of is not None and work.of not in terms:
            raise ValueError(f"{family.key}: {work.name}: of {work.of!r}, which is no term")
        for name in (*work.macs.names, *(work.when.names if work.when is not None else ())):
            if name not in known and name not in AXES:
                raise ValueError(f"{family.key}: {work.name}: no field {name!r}")
    for part in family.parts:
        if part.tied_to is not None and part.tied_to not in names:
            raise ValueError(f"{family.key}: {part.name}: tied to {part.tied_to!r}, which is no part")
