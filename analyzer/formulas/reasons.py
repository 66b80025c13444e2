"""Formula + counts of a side -> a reason for each part that differs: another class, config or size, or unexplained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from analyzer.errors import FormulaError
from analyzer.formulas.counting import count_parts, settle_fields
from analyzer.formulas.family import Family, Field, ModelClass, TermPart, load_families, load_family
from analyzer.formulas.language import Value, parse_expression
from analyzer.formulas.record import (
    Certainty,
    Counts,
    FieldOrigin,
    FieldValue,
    Formula,
    MatchedBy,
    PartCount,
    Reason,
    Side,
)
from analyzer.reconciliation.lines import MEANINGS, UNBALANCED, Line
from analyzer.records import Frozen, replace
from analyzer.text import format_count, format_many

# What-if in reverse: a change counts as a cause only if every part that it touches then agrees exactly.


_MOST_CAUSES = 3
"""Maximum number of combined causes: more could explain almost anything."""


def differing(wanted: Counts, counts: Counts) -> list[str]:
    """Return the keys of the parts in which two counts differ."""
    keys = dict.fromkeys((*wanted, *counts))
    return [key for key in keys if wanted.get(key, 0) != counts.get(key, 0)]


class Circumstances(Frozen):
    """Subject of a count: a class, a config, and fields that override it."""

    family: Family
    config: Mapping[str, Any]
    model_class: ModelClass
    changes: Mapping[str, Value]

    @classmethod
    def of(cls, formula: Formula) -> Circumstances | None:
        """Return those of a formula; None for a derived one, which cannot be counted again."""
        if formula.key is None:
            return None
        family = load_family(formula.key)
        return cls(family, formula.config, family.classes[formula.class_name], formula.changes)

    def fields(self) -> tuple[FieldValue, ...]:
        """Return fields and computed values, with their origins.

        Raises:
            FormulaError: such a config is not possible.
        """
        return settle_fields(self.family, self.config, self.model_class, self.changes)

    def values(self) -> dict[str, Value]:
        """Return the values of fields by name."""
        return {field.name: field.value for field in self.fields()}

    def count(self) -> dict[str, int] | None:
        """Return the elements by part; None where such a model is not possible."""
        try:
            return count_parts(self.family, self.values(), self.model_class)
        except FormulaError:
            return None

    def change(self, field: Field, value: Value) -> Circumstances:
        """Return the circumstances with another value of one field."""
        return replace(self, changes={**self.changes, field.name: value})


class Cause(Frozen):
    """Change of the class, or of a field's value, with the counts before and after it."""

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
        """Parts with a changed count."""
        return differing(self.was, self.wanted)

    @property
    def shrinks(self) -> bool:
        """Whether the count of any part decreases."""
        return any(self.wanted.get(key, 0) < self.was.get(key, 0) for key in self.touched)


def find_causes(formula: Formula, counts: Counts, *, may_lack: bool = True) -> list[Cause]:
    """Return the changes that bring the formula closest to the counts, starting with the one that explains most.

    Each builds on those before it.

    Args:
        formula: the expected counts.
        counts: the actual counts, by part.
        may_lack: whether a part may really have fewer elements; else some of its names may just not be recognized.
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


_SINGLE_PART_ROLES = ("vocabulary", "positions", "experts")
"""Roles of sizes that may differ in one part alone; the number of layers may not."""


def find_size(formula: Formula, key: str, count: int) -> tuple[Field, int, int] | None:
    """Return the one field, with its old and new size, that would give a part alone that count; None without one."""
    now = Circumstances.of(formula)
    if now is None:
        return None
    values = now.values()
    for field in now.family.fields.values():
        size = values[field.name]
        if field.role not in _SINGLE_PART_ROLES or type(size) is not int:
            continue
        for other in sizes_for(now, field, {key: count}).get(key, ()):
            if (now.change(field, other).count() or {}).get(key, 0) == count:
                return field, size, other
    return None


def _single_changes(now: Circumstances, wanted: Counts, counts: Counts) -> Iterator[Cause]:
    """Yield every plausible change: flags, sizes at which a differing part would agree, then classes."""
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
    """Yield other values of a field."""
    yield from other_words(field, value, now.family)
    if type(value) is int and field.symbol is not None:
        yield from _sizes(field, now, wanted, counts)


def other_words(field: Field, value: Value, family: Family) -> Iterator[Value]:
    """Yield other values of a flag or a text; none of a size."""
    if type(value) is bool:
        yield not value
    elif type(value) is str:
        yield from (each for each in _words(field, family) if each != value)


def _words(field: Field, family: Family) -> Iterator[str]:
    """Yield texts that a field may be: its default, and those that the formula's conditions compare it with."""
    if isinstance(field.default, str):
        yield field.default
    for expression in family.expressions:
        if field.name in expression.names:
            yield from expression.words


def _sizes(field: Field, now: Circumstances, wanted: Counts, counts: Counts) -> Iterator[int]:
    """Yield sizes at which a differing part would agree."""
    keys = differing(wanted, counts)
    sizes = sizes_for(now, field, {key: counts.get(key, 0) for key in keys})
    yield from dict.fromkeys(size for each in sizes.values() for size in each)


def sizes_for(now: Circumstances, field: Field, counts: Counts) -> dict[str, list[int]]:
    """Return sizes at which each of these parts may have its count, if it grows linearly or quadratically.

    A size from which others are computed, such as that of an image, is searched for.
    """
    size, wanted = now.values()[field.name], now.count()
    more = now.change(field, size + 1).count() if type(size) is int else None
    if type(size) is not int or wanted is None or more is None:
        return {}
    is_stepped = any(field.name in each.expression.names for each in now.family.values)
    found = {}
    for key, actual in counts.items():
        part = wanted.get(key, 0)
        step, need = more.get(key, 0) - part, actual - part
        likely = [size + need // step] if step and need % step == 0 else []
        if step and part and actual:
            likely.append(round(size * math.sqrt(actual / part)))
        if is_stepped and actual:
            likely.append(_search(now, field, key, actual))
        found[key] = [each for each in dict.fromkeys(likely) if each > 0 and each != size]
    return found


_LARGEST = 1 << 14


def _search(now: Circumstances, field: Field, key: str, target: int) -> int:
    """Return the least size at which a growing part has at least that many elements; 0 without one."""
    low, high = 0, _LARGEST
    while low + 1 < high:
        middle = (low + high) // 2
        if (now.change(field, middle).count() or {}).get(key, 0) < target:
            low = middle
        else:
            high = middle
    return high if high < _LARGEST else 0


# Where several sizes differ at once, a part that depends on two of them agrees with no single change. So parts are
# solved like equations: first those with one unknown size, such as a norm's width, then those that remain.


class Sibling(Frozen):
    """Another model of the same family."""

    class_name: str
    changes: Mapping[str, Value]
    """Fields with different values."""


def find_sibling(formula: Formula, counts: Counts) -> Sibling | None:
    """Return the model of the family with exactly these counts, of the same class if possible; None without one."""
    now = Circumstances.of(formula)
    if now is None:
        return None
    others = (each for each in now.family.classes.values() if each is not now.model_class)
    classes = (now, *(replace(now, model_class=each) for each in others))
    candidates = [each for base in classes for each in (base, *_vary_words(base))]
    for candidate in sorted(candidates, key=lambda each: _count_unshared(each, counts))[:_MOST_CANDIDATES]:
        found = _solve(candidate, frozenset(), counts)
        if found is not None:
            changes = {name: value for name, value in found.changes.items() if name not in now.changes}
            return Sibling(found.model_class.name, changes)
    return None


_MOST_CANDIDATES = 12
"""Number of candidates tried, classes with at most one changed flag or word: those whose parts agree best."""


def _vary_words(now: Circumstances) -> Iterator[Circumstances]:
    values = now.values()
    for field in now.family.fields.values():
        for other in other_words(field, values[field.name], now.family):
            yield now.change(field, other)


def _count_unshared(now: Circumstances, counts: Counts) -> int:
    """Count the parts that only one of the two has."""
    return len(_parts(now.count() or {}) ^ _parts(counts))


def _parts(counts: Counts) -> set[str]:
    return {key for key, count in counts.items() if count}


def _solve(now: Circumstances, settled: frozenset[str], counts: Counts) -> Circumstances | None:
    """Return the circumstances in which all parts agree, without changing the settled sizes; None without any.

    For a part with several unknown sizes, each in turn is changed, while the others stay.
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


def _sizes_of(now: Circumstances, part: TermPart) -> set[str]:
    """Return the sizes of the config that a part depends on, directly or through computed values."""
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


NO_TERM = "[no term]"
"""Key of elements that belong to no part of the formula."""


def find_reasons(formula: Formula, side: Side) -> tuple[Reason, ...]:
    """Return a reason for every differing part, in the formula's order, then for elements that belong to no part.

    A reconciliation's facts come first: merged, removed and unused parameters. Then the fewest changes of class and
    config that explain the rest, then reasons from the numbers of a part alone.
    """
    wanted: Counts = {part.key: part.value for part in formula.parts}
    reasons, counts = _known_lines(wanted, side)
    unread = _unread(formula, counts)
    reasons += unread
    counts.update({reason.part: -reason.elements for reason in unread})
    nameless = sum(side.unmatched.values())
    found, wanted = _by_causes(formula, wanted, counts, may_lack=not nameless)
    reasons += found
    for key in differing(wanted, counts):
        elements = counts.get(key, 0) - wanted.get(key, 0)
        sentence = None if elements < 0 and nameless else _describe_difference(formula, key, elements, side)
        reasons.append(
            Reason(key, elements, sentence)
            if sentence is not None
            else Reason(key, elements, _NOTHING, _UNEXPLAINED)
        )
    if nameless:
        reasons.append(Reason(NO_TERM, nameless, _describe_nameless(formula, side), _UNEXPLAINED))
        reasons = _fill(reasons, nameless, side)
    order = {part.key: number for number, part in enumerate(formula.parts)}
    groups = _groups(formula)
    return tuple(
        replace(reason, group=groups.get(reason.part, ""))
        for reason in sorted(reasons, key=lambda reason: order.get(reason.part, len(order)))
    )


def _other_family(family: Family, side: Side) -> Family | None:
    """Return the family that matches most of the side's unmatched names, if they are the majority; else None."""
    unknown = sum(side.unmatched.values())
    if 2 * unknown <= side.total:
        return None
    known = {
        other.key: sum(n for name, n in side.unmatched.items() if other.find_part([name]) is not None)
        for other in load_families().values()
        if other is not family
    }
    best = max(known, key=lambda key: known[key])
    return load_family(best) if 2 * known[best] > unknown else None


def _by_causes(
    formula: Formula, wanted: Counts, counts: Counts, *, may_lack: bool
) -> tuple[list[Reason], Counts]:
    """Return reasons from changes of class and config, and the counts after these changes."""
    causes = find_causes(formula, counts, may_lack=may_lack)
    after = causes[-1].wanted if causes else wanted
    sibling = find_sibling(formula, counts) if may_lack and differing(after, counts) else None
    if sibling is not None:
        sentence = _describe_sibling(formula, sibling)
        parts = differing(wanted, counts)
        return [Reason(key, counts.get(key, 0) - wanted.get(key, 0), sentence) for key in parts], counts
    reasons = [
        Reason(key, counts.get(key, 0) - cause.was.get(key, 0), _describe(cause, key))
        for cause in causes
        for key in cause.touched
    ]
    return reasons, after


def _describe_sibling(formula: Formula, sibling: Sibling) -> str:
    """Describe another model of the family by its class, if that differs, and its sizes."""
    sizes = ", ".join(f"{name} = {_format_value(value)}" for name, value in sibling.changes.items())
    name = f"{sibling.class_name} with " if sibling.class_name != formula.class_name else ""
    return f"another model of the family: {name}{sizes}"


def _groups(formula: Formula) -> dict[str, str]:
    """Return the scope of each part in a ledger."""
    if formula.key is None:
        return {part.key: part.name for part in formula.parts}
    return {part.key: part.group for part in load_family(formula.key).parts}


_NOTHING = "nothing explains it"
_UNEXPLAINED = Certainty.UNEXPLAINED


def _fill(reasons: list[Reason], nameless: int, side: Side) -> list[Reason]:
    """Return the reasons, where parts may lack just the elements of tensors without a recognized name.

    If the numbers are equal, and nothing else differs, only the assignment of tensors to parts is undecided. This does
    not hold on PyTorch's side, whose names are its own, nor after contents were compared with it: a tensor without a
    name is then known to be something else.
    """
    short = [each for each in reasons if each.certainty is _UNEXPLAINED and each.elements < 0]
    is_all = sum(each.elements for each in short) == -nameless and len(short) == len(reasons) - 1
    is_filled = is_all and side.kind == "model" and side.matched_by in (MatchedBy.NAMES, MatchedBy.SHAPES)
    certainty = Certainty.UNDECIDED if is_filled else _UNEXPLAINED
    among = f"among the {format_count(nameless)} elements whose names match no term"
    sentence = f"{'are' if is_filled else 'may be'} {among}"
    return [
        replace(each, sentence=sentence if each in short else each.sentence, certainty=certainty)
        if each in short or each.part == NO_TERM
        else each
        for each in reasons
    ]


def _describe_nameless(formula: Formula, side: Side) -> str:
    """Describe tensors that belong to no term."""
    other = None if formula.key is None else _other_family(load_family(formula.key), side)
    if other is not None:
        return f"named like those of {other.name}, not of {formula.family}; name the config of that model"
    tensors = "a tensor" if len(side.unmatched) == 1 else format_many(len(side.unmatched), "tensor")
    has_hint = side.kind == "model" and side.matched_by is MatchedBy.NAMES
    hint = "; --census finds them by their shapes" if has_hint else ""
    return f"{tensors} whose names match no term{hint}"


def _known_lines(wanted: Counts, side: Side) -> tuple[list[Reason], dict[str, int]]:
    """Return a reconciliation's reasons, and the counts as they would be without them.

    Missing parameters are no reason: another class or config may explain them.
    """
    reasons, counts = [], dict(side.counts)
    for line, absent in side.absent.items():
        for key, elements in absent.items():
            if line not in UNBALANCED and wanted.get(key, 0) - counts.get(key, 0) >= elements:
                sentence = f"{MEANINGS[Line(line)].in_formula or 'as it is stored'} [{line}]"
                reasons.append(Reason(key, -elements, sentence, Certainty.SETTLED))
                counts[key] = counts.get(key, 0) + elements
    return reasons, counts


def _unread(formula: Formula, counts: Counts) -> list[Reason]:
    """Return reasons for parts that the class's forward pass does not read, so that an export leaves them out."""
    parts = load_family(formula.key).parts if formula.key is not None else ()
    unread = {part.key for part in parts if part.unread is not None and part.unread.holds(formula.values)}
    sentence = "an export leaves it out, as the program does not read it"
    return [
        Reason(part.key, -part.value, sentence, Certainty.SETTLED)
        for part in formula.parts
        if part.key in unread and part.value and not counts.get(part.key)
    ]


def _describe(cause: Cause, key: str) -> str:
    """Describe the meaning of a cause for one part."""
    was, now = cause.was.get(key, 0), cause.wanted.get(key, 0)
    part = next(part for part in cause.before.family.parts if part.key == key)
    if cause.field is None:
        is_there = "present" if not was else "missing" if not now else "of another size"
        return f"{is_there}, as in {cause.after.model_class.name}"
    field = f"{cause.field.name} = {_format_value(cause.other)}, where the config has {_format_value(cause.value)}"
    if part.tied_to is not None and not was:
        return f"{_describe_untied(part)} ({field})"
    if part.tied_to is not None and not now:
        return f"the head is tied: its {part.name} is that of the {part.tied_to} ({field})"
    if type(cause.other) is int and type(cause.value) is int:
        return _describe_size(cause.field.role, cause.value, cause.other) or f"such as with {field}"
    return f"such as with {field}"


def _describe_untied(part: TermPart) -> str:
    return f"the head is untied: its {part.name} is stored beside the {part.tied_to}, with values of its own"


def _format_value(value: Value) -> str:
    return str(value).lower() if value is None or type(value) is bool else str(value)


def _describe_size(role: str | None, before: int, after: int) -> str | None:
    """Describe another size of the vocabulary or the positions, or another number of layers or experts."""
    known, found = format_count(before), format_count(after)
    more = "more" if after > before else "fewer"
    difference = f"{format_count(abs(after - before))} {more} than the config's {known}"
    multiple = _padded_to(before, after)
    if role == "vocabulary" and multiple:
        return f"the vocabulary is padded from {known} to {found}, a multiple of {multiple}"
    if role == "vocabulary":
        return f"a vocabulary of {found}, {difference}"
    return None if role is None else f"{found} {role}, {difference}"


def _padded_to(before: int, after: int) -> int | None:
    """Return the largest power of two, from 8 on, to whose next multiple a vocabulary was padded; None if it was not.

    >>> _padded_to(30522, 30528), _padded_to(50257, 50304), _padded_to(30522, 30000)
    (64, 128, None)
    """
    power = after & -after
    while power >= 8 and not 0 < after - before < power:
        power //= 2
    return power if power >= 8 else None


def _describe_difference(formula: Formula, key: str, elements: int, side: Side) -> str | None:
    """Describe a difference from the numbers of one part alone; None where they explain nothing."""
    what = "the file" if side.kind == "model" else "the model"
    part = next((part for part in formula.parts if part.key == key), None)
    if part is None or not part.value:
        tied = _tied_part(formula, key)
        return _describe_untied(tied) if tied is not None else f"present in {what}; the formula has none"
    if part.value + elements == 0:
        # An exporter stores equal vectors once, so a tensor of another part may replace all of these.
        return f"missing: {what} has none{'' if part.matrix_elements else ' of its own'}"
    vectors = side.vectors.get(key, 0)
    if vectors - part.vector_elements == elements < 0 and _has_all_matrices(formula, side):
        return _describe_vectors(part, vectors)
    found = find_size(formula, key, part.value + elements)
    if found is not None:
        field, before, after = found
        return _describe_size(field.role, before, after)
    if part.times > 1 and elements % part.each == 0:
        actual_times = format_count(part.times + elements // part.each)
        return f"the elements of {actual_times} of them, where the formula has {format_count(part.times)}"
    return None


def _has_all_matrices(formula: Formula, side: Side) -> bool:
    """Whether all matrices are present, so that only vectors can be missing."""
    return all(
        side.counts.get(part.key, 0) - side.vectors.get(part.key, 0) >= part.matrix_elements
        for part in formula.parts
    )


def _tied_part(formula: Formula, key: str) -> TermPart | None:
    """Return the family's part that shares another part's tensor in this class; None if the key names no such part."""
    parts = load_family(formula.key).parts if formula.key is not None else ()
    return next((part for part in parts if part.key == key and part.tied_to is not None), None)


def _describe_vectors(part: PartCount, vectors: int) -> str:
    """Explain why only parameters of one dimension are missing."""
    if part.matrix_elements and not vectors:
        return "all vectors are missing: the biases were dropped"
    if not part.matrix_elements and 2 * vectors == part.vector_elements:
        return "half of the elements are missing, as many as the norm biases"
    return "only vectors: an exporter stores equal ones once; `reconcile` shows which"
