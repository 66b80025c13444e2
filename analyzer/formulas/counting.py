"""Family + fields + class -> Formula: every expression settled by the config, and computed."""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.errors import FormulaError
from analyzer.formulas.closed_form import Cache, Family, ModelClass, Part, Term
from analyzer.formulas.configs import Config, check_names, choose_class, choose_family, settle_fields
from analyzer.formulas.language import Expression, Value, Values
from analyzer.formulas.record import CacheSize, Formula, Kind, PartCount, TermCount

__all__ = ["count_config", "count_parts"]


def count_config(
    config: Config,
    model_class: str | None = None,
    changes: Mapping[str, Value] | None = None,
    source: str = "the config",
) -> Formula | None:
    """The closed form of a config; None where its family, or the class, has none.

    Args:
        config: the content of a `config.json`.
        model_class: a class of transformers, or an Auto class; None takes the config's architecture.
        changes: fields that are to be other than the config says.
        source: what messages call the config.

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


def _notes(config: Config, chosen: ModelClass, asked: str | None) -> tuple[str, ...]:
    """What a person must know of the choice of class."""
    if asked is not None or config.get("architectures"):
        return ()
    return (f"the config names no architecture: {chosen.name}, without a head; --class chooses another",)


def count_parts(family: Family, values: Values, model_class: ModelClass) -> dict[str, int]:
    """Elements of every part that the class has with these values, by key: of one that has none, nothing.

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


def _applies(term: Term, part: Part, values: Values) -> bool:
    return all(condition is None or condition.holds(values) for condition in (term.when, part.when))


def _count_part(family: Family, term: Term, part: Part, values: Values) -> PartCount:
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

    def known(expression: Expression | None) -> int | None:
        is_none = expression is None or expression.evaluate(values) is None
        return None if expression is None or is_none else expression.count(values)

    return CacheSize(
        token=cache.token.count(values),
        token_expression=cache.token.settle(values),
        source_token=0 if cache.source_token is None else cache.source_token.count(values),
        source_token_expression=None if cache.source_token is None else cache.source_token.settle(values),
        window=known(cache.window),
        context=known(cache.context),
        source_context=known(cache.source_context),
    )
