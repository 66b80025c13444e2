"""Formula + counts -> the fewest changes of its class and config under which it gives these counts.

What-if backwards: a change is taken for a cause only if every part that it touches then agrees exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from analyzer.errors import FormulaError
from analyzer.formulas.configs import settle_fields
from analyzer.formulas.counting import count_parts
from analyzer.formulas.family import Family, Field, ModelClass, load_family
from analyzer.formulas.language import Value
from analyzer.formulas.record import Counts, Formula

__all__ = ["Cause", "Circumstances", "differing", "find_causes", "find_size"]

_MOST_CAUSES = 3
"""Causes that are combined: with more of them almost anything could be explained."""


def differing(wanted: Counts, counts: Counts) -> list[str]:
    """Keys of the parts in which they differ."""
    keys = dict.fromkeys((*wanted, *counts))
    return [key for key in keys if wanted.get(key, 0) != counts.get(key, 0)]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is counted: a class, a config, and fields that are other than it says."""

    family: Family
    config: Mapping[str, Any]
    model_class: ModelClass
    changes: Mapping[str, Value]

    @classmethod
    def of(cls, formula: Formula) -> Circumstances | None:
        """Those of a formula; None of a derived one, which cannot be counted again."""
        if formula.key is None:
            return None
        family = load_family(formula.key)
        return cls(family, formula.config, family.classes[formula.class_name], formula.changes)

    def values(self) -> dict[str, Value]:
        """Fields by name."""
        fields = settle_fields(self.family, self.config, self.model_class, self.changes)
        return {field.name: field.value for field in fields}

    def count(self) -> dict[str, int] | None:
        """Elements by part; None where such a model cannot be."""
        try:
            return count_parts(self.family, self.values(), self.model_class)
        except FormulaError:
            return None

    def change(self, field: Field, value: Value) -> Circumstances:
        """The same with another value of one field."""
        return replace(self, changes={**self.changes, field.name: value})


@dataclass(frozen=True, slots=True)
class Cause:
    """One change: of the class, or of a field from one value to another; and what it makes of the counts."""

    before: Circumstances
    after: Circumstances
    was: Counts
    wanted: Counts
    field: Field | None = None
    value: Value = None
    other: Value = None
    """The field's value after the change."""

    @property
    def touched(self) -> list[str]:
        """Parts whose count it changes."""
        return differing(self.was, self.wanted)

    @property
    def shrinks(self) -> bool:
        """Whether a part counts less with it."""
        return any(self.wanted.get(key, 0) < self.was.get(key, 0) for key in self.touched)


def find_causes(formula: Formula, counts: Counts, *, may_lack: bool = True) -> list[Cause]:
    """The changes that bring the formula nearest to the counts, the one that explains most first.

    Each builds on those before it.

    Args:
        formula: what was expected.
        counts: what there is, by part.
        may_lack: whether parts may be smaller than expected, or may just not be known by their names.
    """
    circumstances = Circumstances.of(formula)
    wanted: Counts = {part.key: part.value for part in formula.parts}
    causes: list[Cause] = []
    while circumstances is not None and len(causes) < _MOST_CAUSES:
        differ = set(differing(wanted, counts))
        best, fewest = None, len(differ)
        for cause in _single_changes(circumstances, wanted, counts):
            left = set(differing(cause.wanted, counts))
            if not may_lack and cause.shrinks:
                continue
            if left < differ and left.isdisjoint(cause.touched) and len(left) < fewest:
                best, fewest = cause, len(left)
        if best is None:
            break
        causes.append(best)
        circumstances, wanted = best.after, best.wanted
    return causes


def find_size(formula: Formula, key: str, count: int) -> tuple[Field, int, int] | None:
    """The one size, before and after, with which a part alone would have that count; None without one."""
    now = Circumstances.of(formula)
    wanted = {part.key: part.value for part in formula.parts}
    if now is None:
        return None
    values = now.values()
    for field in now.family.fields.values():
        size = values[field.name]
        if field.role is None or type(size) is not int:
            continue
        for other in _sizes(field, size, now, {key: wanted.get(key, 0)}, {key: count}):
            if (now.change(field, other).count() or {}).get(key, 0) == count:
                return field, size, other
    return None


def _single_changes(now: Circumstances, wanted: Counts, counts: Counts) -> Iterator[Cause]:
    """Every change that might be meant: flags, sizes that a differing part asks for, then classes."""
    if not differing(wanted, counts):
        return
    values = now.values()
    for field in now.family.fields.values():
        for other in _other_values(field, values[field.name], now, wanted, counts):
            after = now.change(field, other)
            recounted = after.count()
            if recounted is not None:
                yield Cause(now, after, wanted, recounted, field, values[field.name], other)
    for model_class in now.family.classes.values():
        after = replace(now, model_class=model_class)
        recounted = after.count()
        if recounted is not None:
            yield Cause(now, after, wanted, recounted)


def _other_values(
    field: Field, value: Value, now: Circumstances, wanted: Counts, counts: Counts
) -> Iterator[Value]:
    """What a field may be instead."""
    if type(value) is bool:
        yield not value
    elif type(value) is str:
        yield from (each for each in _words(field, now.family) if each != value)
    elif type(value) is int and field.symbol is not None:
        yield from _sizes(field, value, now, wanted, counts)


def _words(field: Field, family: Family) -> Iterator[str]:
    """Texts that a field may be: its default, and what the formula's conditions compare it with."""
    if isinstance(field.default, str):
        yield field.default
    for expression in family.expressions:
        if field.name in expression.names:
            yield from expression.words


def _sizes(field: Field, size: int, now: Circumstances, wanted: Counts, counts: Counts) -> Iterator[int]:
    """Sizes at which a differing part would agree, if it grows by as much with each step."""
    more = now.change(field, size + 1).count()
    found: dict[int, None] = {}
    for key in differing(wanted, counts) if more is not None else ():
        part = wanted.get(key, 0)
        step, need = (more or {}).get(key, 0) - part, counts.get(key, 0) - part
        if step and need % step == 0 and size + need // step > 0:
            found[size + need // step] = None
    yield from found
