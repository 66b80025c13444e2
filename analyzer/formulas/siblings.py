"""Formula + counts -> the model of the same family, of other sizes, that has just these counts.

Where several sizes differ at once, none of them alone makes a part agree that depends on two. So parts are solved as
equations are: first those with one unknown size, such as a norm's width, then what these leave open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from analyzer.formulas.causes import Circumstances, differing, other_words, sizes_for
from analyzer.formulas.closed_form import Part
from analyzer.formulas.language import Value, parse_expression
from analyzer.formulas.record import Counts, FieldOrigin, FieldValue, Formula

__all__ = ["Sibling", "find_sibling"]


@dataclass(frozen=True, slots=True)
class Sibling:
    """Another model of a family."""

    class_name: str
    changes: Mapping[str, Value]
    """Fields in which it differs."""


def find_sibling(formula: Formula, counts: Counts) -> Sibling | None:
    """The model with exactly these counts, of the same class if there is one; None without one."""
    now = Circumstances.of(formula)
    if now is None:
        return None
    others = (each for each in now.family.classes.values() if each is not now.model_class)
    classes = (now, *(replace(now, model_class=each) for each in others))
    candidates = [each for named in classes for each in (named, *_switch(named))]
    for candidate in sorted(candidates, key=lambda each: _strangers(each, counts))[:_TRIED]:
        found = _solve(candidate, frozenset(), counts)
        if found is not None:
            changes = {name: value for name, value in found.changes.items() if name not in now.changes}
            return Sibling(found.model_class.name, changes)
    return None


_TRIED = 12
"""How many classes, each also with one flag or word that is another, are tried: those with the parts that are there."""


def _switch(now: Circumstances) -> Iterator[Circumstances]:
    values = now.values()
    for field in now.family.fields.values():
        for other in other_words(field, values[field.name], now.family):
            yield now.change(field, other)


def _strangers(now: Circumstances, counts: Counts) -> int:
    """Parts that only one of the two has."""
    return len(_parts(now.count() or {}) ^ _parts(counts))


def _parts(counts: Counts) -> set[str]:
    return {key for key, count in counts.items() if count}


def _solve(now: Circumstances, settled: frozenset[str], counts: Counts) -> Circumstances | None:
    """The circumstances under which all parts agree, with the settled sizes as they are; None without any.

    Of a part with several unknown sizes one is taken for what differs, each in turn, and the others as they stand.
    """
    wanted = now.count()
    if wanted is None:
        return None
    shared = [part for part in now.family.parts if wanted.get(part.key) and counts.get(part.key)]
    unknown = {part.key: _sizes_of(now, part) - settled for part in shared}
    if any(wanted[key] != counts[key] for key, fields in unknown.items() if not fields):
        return None
    key = min((key for key in unknown if unknown[key]), key=lambda key: len(unknown[key]), default=None)
    if key is None:
        return None if differing(wanted, counts) else now
    known = settled | unknown[key]
    if wanted[key] == counts[key]:
        return _solve(now, known, counts)
    for name in sorted(unknown[key]):
        field = now.family.fields[name]
        for size in sizes_for(now, field, {key: counts[key]}).get(key, ()):
            found = _solve(now.change(field, size), known, counts)
            if found is not None:
                return found
    return None


def _sizes_of(now: Circumstances, part: Part) -> set[str]:
    """The sizes that a part depends on, of those that a config says: others are computed from them."""
    fields = {field.name: field for field in now.fields()}
    term = next(term for term in now.family.terms if term.name == part.term)
    times = part.times or term.times
    counted = part.count.settle({name: field.value for name, field in fields.items()})
    return set(_independent([*counted.names, *(times.names if times is not None else ())], fields))


def _independent(names: Iterable[str], fields: Mapping[str, FieldValue]) -> Iterator[str]:
    for name in names:
        field = fields[name]
        if field.origin is FieldOrigin.COMPUTED and field.expression is not None:
            yield from _independent(parse_expression(field.expression).names, fields)
        elif type(field.value) is int and field.symbol is not None:
            yield name
