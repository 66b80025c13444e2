"""config.json + Family -> every field of the formula with its origin -> Formula; without transformers."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analyzer.errors import FormulaError, UsageError
from analyzer.formulas.family import (
    Cache,
    Family,
    Field,
    ModelClass,
    Term,
    TermPart,
    find_family,
    load_families,
)
from analyzer.formulas.language import Expression, Value, Values
from analyzer.formulas.record import CacheSize, FieldOrigin, FieldValue, Formula, Kind, PartCount, TermCount
from analyzer.json_files import LARGEST_CONFIG, load_json
from analyzer.text import shown

# The defaults are those of transformers' config classes; the tests compare them.


Config = Mapping[str, Any]

_LARGEST = 1 << 53
"""Highest valid size in a config; every JSON reader represents it exactly."""


def read_config(path: Path) -> dict[str, Any]:
    """Return the content of a `config.json`.

    Raises:
        FormulaError: it cannot be read, or is no JSON object.
    """
    try:
        if path.is_file() and path.stat().st_size > LARGEST_CONFIG:
            raise FormulaError(f"{path}: is too large to be a config")
        if not path.is_file():
            raise FormulaError(f"{path}: no such file, or not readable")
        document = load_json(path)
    except OSError as error:
        raise FormulaError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise FormulaError(f"{path}: not JSON ({error}); save_pretrained() writes a config.json") from error
    if not isinstance(document, dict):
        raise FormulaError(f"{path}: not a JSON object, so not a config")
    return document


def check_names(config: Config) -> None:
    """Reject a config whose model type or architecture is no name, so that no class can be chosen.

    Raises:
        FormulaError: one of them is no name.
    """
    model_type, architectures = config.get("model_type"), config.get("architectures")
    if model_type is not None and not isinstance(model_type, str):
        raise FormulaError(f"model_type is {shown(model_type)}; write a name, such as 'bert'")
    if architectures is None or (
        isinstance(architectures, (list, tuple)) and all(isinstance(each, str) for each in architectures)
    ):
        return
    raise FormulaError(
        f"architectures is {shown(architectures)}; write a list of names, such as ['BertModel']"
    )


def choose_family(config: Config) -> Family | None:
    """Return the closed form of a config's `model_type`, or without one, of its architecture; None if none ships."""
    model_type = config.get("model_type")
    if model_type is not None:
        return find_family(model_type)
    architecture = _architecture(config)
    return next((family for family in load_families().values() if architecture in family.classes), None)


def _architecture(config: Config) -> str | None:
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, (list, tuple)) and architectures else None
    return first if isinstance(first, str) else None


_FRAMEWORKS = ("TF", "Flax")
"""Prefixes of transformers' classes for other frameworks, which have the same parameters."""


def choose_class(family: Family, config: Config, requested: str | None = None) -> ModelClass | None:
    """Return the class to count: the requested one, else the config's architecture, else the base class.

    None where the closed form lacks the class, although transformers may have it.
    """
    wanted = requested or _architecture(config) or "AutoModel"
    for name in (
        wanted,
        *(wanted.removeprefix(prefix) for prefix in _FRAMEWORKS if wanted.startswith(prefix)),
    ):
        for each in family.classes.values():
            if name == each.name or name in each.auto or name in each.aliases:
                return each
    return None


def settle_fields(
    family: Family, config: Config, model_class: ModelClass, changes: Mapping[str, Value] | None = None
) -> tuple[FieldValue, ...]:
    """Return every field and computed value of the family, in its order.

    Raises:
        FormulaError: a field is of the wrong kind, or the config gives it twice with different values.
    """
    initial: dict[str, tuple[Value, FieldOrigin]] = {}
    for field in family.fields.values():
        if field.name in model_class.fixed:
            initial[field.name] = model_class.fixed[field.name], FieldOrigin.CLASS
        elif changes and field.name in changes:
            initial[field.name] = changes[field.name], FieldOrigin.SET
        else:
            initial[field.name] = _read_field(field, config)
    values: dict[str, Value] = {name: value for name, (value, _) in initial.items()}
    settled = {}
    for field in family.fields.values():
        value, origin = initial[field.name]
        if value is None and field.otherwise is not None:
            value, origin = field.otherwise.evaluate(values), FieldOrigin.COMPUTED
            values[field.name] = value
        _check_kind(field, value)
        settled[field.name] = value, origin
    described = [_describe(field, *settled[field.name], values) for field in family.fields.values()]
    for computed in family.values:
        values[computed.name] = computed.expression.evaluate(values)
        described.append(
            FieldValue(
                computed.name,
                computed.symbol,
                values[computed.name],
                FieldOrigin.COMPUTED,
                computed.expression.text,
                meaning=computed.meaning,
            )
        )
    return tuple(described)


def _read_field(field: Field, config: Config) -> tuple[Value, FieldOrigin]:
    names = [name for name in (field.name, *field.aliases) if config.get(name) is not None]
    found = {name: _plain(config[name]) for name in names}
    if len(set(map(shown, found.values()))) > 1:
        both = " and ".join(f"{name} = {shown(value)}" for name, value in found.items())
        raise FormulaError(f"says {both}, two names of one field; keep one")
    if names:
        return found[names[0]], FieldOrigin.CONFIG
    if field.length_of is not None and config.get(field.length_of) is not None:
        return _length(field.length_of, config[field.length_of]), FieldOrigin.CONFIG
    is_null = any(name in config for name in (field.name, *field.aliases))
    if is_null and field.otherwise is None and field.default is not None:
        raise FormulaError(f"{field.name} is null; give it a value, or leave it out for {field.default!r}")
    return (None if is_null else field.default), FieldOrigin.DEFAULT


def _length(name: str, value: Any) -> int:
    if not isinstance(value, (dict, list)):
        raise FormulaError(f"{name} is {shown(value)}, not a map")
    return len(value)


def _plain(value: Any) -> Value:
    return tuple(value) if isinstance(value, list) else value


def _check_kind(field: Field, value: Value) -> None:
    """Reject a value of the wrong kind, or a size that is invalid."""
    if field.symbol is None:
        if field.default is not None and type(value) is not type(field.default) and value is not None:
            raise FormulaError(f"{field.name} is {shown(value)}; write a value such as {field.default!r}")
        if type(value) is int and abs(value) > _LARGEST:
            raise FormulaError(f"{field.name} is {shown(value)}, which is too large")
        return
    if isinstance(value, tuple) and len(value) != 2:
        raise FormulaError(f"{field.name} is {shown(value)}, which is not a size")
    sizes = value if isinstance(value, tuple) else (value,)
    for size in sizes:
        if size is None and field.default is None and field.otherwise is None:
            continue
        if type(size) is not int or not 0 <= size <= _LARGEST:
            raise FormulaError(f"{field.name} is {shown(value)}, which is not a size")


def _describe(field: Field, value: Value, origin: FieldOrigin, values: Mapping[str, Value]) -> FieldValue:
    is_usual = field.usual is not None and field.usual.evaluate(values) == value
    is_computed = origin is FieldOrigin.COMPUTED and field.otherwise is not None
    return FieldValue(
        name=field.name,
        symbol=field.symbol,
        value=value,
        origin=origin,
        expression=field.otherwise.text if is_computed and field.otherwise is not None else None,
        usual=field.usual if is_usual else None,
    )


def parse_changes(family: Family, texts: Sequence[str], class_name: str) -> dict[str, Value]:
    """Parse `--set key=value` options into values of the family's fields.

    Raises:
        UsageError: one is malformed, names no field of the formula or one that the class decides, or is given twice.
    """
    names = {name: field.name for field in family.fields.values() for name in (field.name, *field.aliases)}
    fixed = family.classes[class_name].fixed
    changes: dict[str, Value] = {}
    for key, value in _parse_pairs(texts, names, f"the count of {family.name} depends on"):
        name = names[key]
        if name in fixed:
            raise UsageError(f"--set {key}: {class_name} always has {fixed[name]}")
        if name in changes:
            raise UsageError(f"--set {key} is given twice")
        changes[name] = value
    return changes


def parse_config_changes(known: Iterable[str], texts: Sequence[str]) -> dict[str, Value]:
    """Parse `--set key=value` options into values of a config's fields, where no family says which of them count.

    Raises:
        UsageError: one is malformed, names no field of the config, or is given twice.
    """
    pairs = list(_parse_pairs(texts, known, "the config has"))
    changes = dict(pairs)
    if len(changes) < len(pairs):
        raise UsageError("--set: a field is given twice")
    return changes


def _parse_pairs(texts: Sequence[str], known: Iterable[str], there_are: str) -> Iterator[tuple[str, Value]]:
    known = list(known)
    for text in texts:
        key, equals, value = (piece.strip() for piece in text.partition("="))
        if not key or not equals or not value:
            raise UsageError(f"--set {text!r}: write key=value, as in num_hidden_layers=6")
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"--set {key}: no field of this name{hint} ({there_are} {', '.join(known)})")
        yield key, parse_value(value)


_WORDS: Mapping[str, Value] = {"true": True, "false": False, "null": None, "none": None}


def parse_value(text: str) -> Value:
    """Parse a value as JSON; anything else is text.

    >>> parse_value("6"), parse_value("true"), parse_value("gated-gelu"), parse_value("[224, 192]")
    (6, True, 'gated-gelu', (224, 192))
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _plain(value)


def count_config(
    config: Config,
    model_class: str | None = None,
    changes: Mapping[str, Value] | None = None,
    source: str = "the config",
) -> Formula | None:
    """Evaluate the closed form of a config; None where its family, or the class, has none.

    Args:
        config: the content of a `config.json`.
        model_class: a class of transformers, or an Auto class; None takes the config's architecture.
        changes: fields with other values than in the config.
        source: name of the config in messages.

    Raises:
        FormulaError: a field is missing or no size.
    """
    try:
        return _count(config, model_class, changes or {}, source)
    except FormulaError as error:
        raise FormulaError(f"{source}: {error}") from error


def _count(
    config: Config, model_class: str | None, changes: Mapping[str, Value], source: str
) -> Formula | None:
    check_names(config)
    family = choose_family(config)
    chosen = choose_class(family, config, model_class) if family is not None else None
    if family is None or chosen is None:
        return None
    fields = settle_fields(family, config, chosen, changes)
    values = {field.name: field.value for field in fields}
    terms = (_count_term(family, term, chosen, values) for term in family.terms)
    return Formula(
        source=source,
        kind=Kind.CLOSED_FORM,
        family=family.name,
        class_name=chosen.name,
        fields=fields,
        terms=tuple(term for term in terms if term.parts),
        cache=_cache_size(family.cache, values) if family.cache is not None else None,
        notes=_notes(config, chosen, model_class),
        key=family.key,
        config=config,
        changes=changes,
    )


def _count_term(family: Family, term: Term, model_class: ModelClass, values: Values) -> TermCount:
    has = [part for part in term.parts if part.key in model_class.parts and _applies(term, part, values)]
    parts = [_count_part(family, term, part, values) for part in has]
    uses = 1 if term.uses is None else term.uses.count(values)
    return TermCount(term.name, tuple(parts), uses)


def _notes(config: Config, chosen: ModelClass, requested: str | None) -> tuple[str, ...]:
    """Return notes for the user on the choice of the class."""
    if requested is not None or config.get("architectures"):
        return ()
    return (
        f"the config names no architecture: counted as {chosen.name}, without a head; --class chooses another",
    )


def count_parts(family: Family, values: Values, model_class: ModelClass) -> dict[str, int]:
    """Return the elements of every part that the class has with these values, by key; other parts are left out.

    Raises:
        FormulaError: an expression has no count.
    """
    counts = {}
    for term in family.terms:
        for part in term.parts:
            if part.key in model_class.parts and _applies(term, part, values):
                times = part.times or term.times
                counts[part.key] = part.count.count(values) * (1 if times is None else times.count(values))
    return counts


def _applies(term: Term, part: TermPart, values: Values) -> bool:
    return all(condition is None or condition.holds(values) for condition in (term.when, part.when))


def _count_part(family: Family, term: Term, part: TermPart, values: Values) -> PartCount:
    times = part.times or term.times
    count = 1 if times is None else times.count(values)
    each = part.count.count(values)
    return PartCount(
        name=part.name,
        term=term.name,
        times=count,
        each=each,
        vectors=part.vectors.count(values),
        active=count * each if part.active is None else count * part.active.count(values),
        source=part.source,
        scope=family.pattern(part).pattern,
        expression=part.count.settle(values),
        times_expression=None if times is None else times.settle(values),
        active_expression=None if part.active is None else part.active.settle(values),
    )


def _cache_size(cache: Cache, values: Values) -> CacheSize | None:
    if cache.when is not None and not cache.when.holds(values):
        return None

    def count_known(expression: Expression | None) -> int | None:
        is_none = expression is None or expression.evaluate(values) is None
        return None if expression is None or is_none else expression.count(values)

    return CacheSize(
        token=cache.token.count(values),
        token_expression=cache.token.settle(values),
        source_token=0 if cache.source_token is None else cache.source_token.count(values),
        source_token_expression=None if cache.source_token is None else cache.source_token.settle(values),
        window=count_known(cache.window),
        context=count_known(cache.context),
        source_context=count_known(cache.source_context),
    )
