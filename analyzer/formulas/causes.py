"""Formula + counts -> the fewest changes of its class and config under which it gives these counts.

What-if backwards: a change is taken for a cause only if every part that it touches then agrees exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from analyzer.errors import FormulaError
from analyzer.formulas.closed_form import Family, Field, ModelClass
from analyzer.formulas.configs import settle_fields
from analyzer.formulas.counting import count_parts
from analyzer.formulas.family import load_family
from analyzer.formulas.language import Value
from analyzer.formulas.record import Counts, FieldValue, Formula

__all__ = ["Cause", "Circumstances", "differing", "find_causes", "find_size", "other_words", "sizes_for"]

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

    def fields(self) -> tuple[FieldValue, ...]:
        """Fields and computed values, and where they come from.

        Raises:
            FormulaError: such a config cannot be.
        """
        return settle_fields(self.family, self.config, self.model_class, self.changes)

    def values(self) -> dict[str, Value]:
        """Their values by name."""
        return {field.name: field.value for field in self.fields()}

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


_OF_ONE_PART = ("vocabulary", "positions", "experts")
"""Roles of what a part can have fewer of alone; parts of layers that would be of several numbers are none's."""


def find_size(formula: Formula, key: str, count: int) -> tuple[Field, int, int] | None:
    """The one size, before and after, with which a part alone would have that count; None without one."""
    now = Circumstances.of(formula)
    if now is None:
        return None
    values = now.values()
    for field in now.family.fields.values():
        size = values[field.name]
        if field.role not in _OF_ONE_PART or type(size) is not int:
            continue
        for other in sizes_for(now, field, {key: count}).get(key, ()):
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
    yield from other_words(field, value, now.family)
    if type(value) is int and field.symbol is not None:
        yield from _sizes(field, now, wanted, counts)


def other_words(field: Field, value: Value, family: Family) -> Iterator[Value]:
    """What a flag or a text may be instead; nothing of a size."""
    if type(value) is bool:
        yield not value
    elif type(value) is str:
        yield from (each for each in _words(field, family) if each != value)


def _words(field: Field, family: Family) -> Iterator[str]:
    """Texts that a field may be: its default, and what the formula's conditions compare it with."""
    if isinstance(field.default, str):
        yield field.default
    for expression in family.expressions:
        if field.name in expression.names:
            yield from expression.words


def _sizes(field: Field, now: Circumstances, wanted: Counts, counts: Counts) -> Iterator[int]:
    """Sizes at which a differing part would agree."""
    keys = differing(wanted, counts)
    sizes = sizes_for(now, field, {key: counts.get(key, 0) for key in keys})
    yield from dict.fromkeys(size for each in sizes.values() for size in each)


def sizes_for(now: Circumstances, field: Field, counts: Counts) -> dict[str, list[int]]:
    """Sizes at which each of these parts may have its count: if it grows by as much with each step, or by squares.

    A size of which others are computed, such as that of an image, is searched for.
    """
    size, wanted = now.values()[field.name], now.count()
    more = now.change(field, size + 1).count() if type(size) is int else None
    if type(size) is not int or wanted is None or more is None:
        return {}
    is_stepped = any(field.name in each.expression.names for each in now.family.values)
    found = {}
    for key, there in counts.items():
        part = wanted.get(key, 0)
        step, need = more.get(key, 0) - part, there - part
        likely = [size + need // step] if step and need % step == 0 else []
        if step and part and there:
            likely.append(round(size * math.sqrt(there / part)))
        if is_stepped and there:
            likely.append(_search(now, field, key, there))
        found[key] = [each for each in dict.fromkeys(likely) if each > 0 and each != size]
    return found


_LARGEST = 1 << 14


def _search(now: Circumstances, field: Field, key: str, there: int) -> int:
    """The least size at which a part that grows with it has so many elements, or more; 0 without one."""
    low, high = 0, _LARGEST
    while low + 1 < high:
        middle = (low + high) // 2
        if (now.change(field, middle).count() or {}).get(key, 0) < there:
            low = middle
        else:
            high = middle
    return high if high < _LARGEST else 0
