"""Formula + Side -> Reasons: why each part differs, in a sentence; what nothing explains is told as it is."""

from __future__ import annotations

from dataclasses import replace

from analyzer.formulas.causes import Cause, differing, find_causes, find_size
from analyzer.formulas.closed_form import Family, Part
from analyzer.formulas.family import load_families, load_family
from analyzer.formulas.language import Value
from analyzer.formulas.record import Certainty, Counts, Formula, MatchedBy, PartCount, Reason, Side
from analyzer.formulas.siblings import Sibling, find_sibling
from analyzer.reconciliation.lines import MEANINGS, UNBALANCED, Line
from analyzer.units import format_count, format_many

__all__ = ["NO_TERM", "find_reasons"]


NO_TERM = "[no term]"
"""What belongs to no part of the formula."""


def find_reasons(formula: Formula, side: Side) -> tuple[Reason, ...]:
    """A reason for every part in which the side differs, in the formula's order, then for what belongs to no part.

    What a reconciliation knows comes first: merged, removed and unused parameters. Then the fewest changes of class
    and config that explain what is left, then what the numbers of a part say by themselves.
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
        told = None if elements < 0 and nameless else _tell_alone(formula, key, elements, side)
        reasons.append(
            Reason(key, elements, told) if told is not None else Reason(key, elements, _NOTHING, _UNEXPLAINED)
        )
    if nameless:
        reasons.append(Reason(NO_TERM, nameless, _nameless(formula, side), _UNEXPLAINED))
        reasons = _fill(reasons, nameless, side)
    order = {part.key: number for number, part in enumerate(formula.parts)}
    groups = _groups(formula)
    return tuple(
        replace(reason, group=groups.get(reason.part, ""))
        for reason in sorted(reasons, key=lambda reason: order.get(reason.part, len(order)))
    )


def _other_family(family: Family, side: Side) -> Family | None:
    """The family that knows more of the side's names, if most of them belong to no term of this one."""
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
    """What changes of class and config explain, and the counts with these changes."""
    causes = find_causes(formula, counts, may_lack=may_lack)
    after = causes[-1].wanted if causes else wanted
    sibling = find_sibling(formula, counts) if may_lack and differing(after, counts) else None
    if sibling is not None:
        told = _describe_sibling(formula, sibling)
        parts = differing(wanted, counts)
        return [Reason(key, counts.get(key, 0) - wanted.get(key, 0), told) for key in parts], counts
    reasons = [
        Reason(key, counts.get(key, 0) - cause.was.get(key, 0), _describe(cause, key))
        for cause in causes
        for key in cause.touched
    ]
    return reasons, after


def _describe_sibling(formula: Formula, sibling: Sibling) -> str:
    """What another model of the family is called: its class, where that differs, and its sizes."""
    sizes = ", ".join(f"{name} = {_show(value)}" for name, value in sibling.changes.items())
    name = f"{sibling.class_name} with " if sibling.class_name != formula.class_name else ""
    return f"another model of the family: {name}{sizes}"


def _groups(formula: Formula) -> dict[str, str]:
    """What each part is in a ledger: a scope."""
    if formula.key is None:
        return {part.key: part.name for part in formula.parts}
    return {part.key: part.group for part in load_family(formula.key).parts}


_NOTHING = "nothing explains it"
_UNEXPLAINED = Certainty.UNEXPLAINED


def _fill(reasons: list[Reason], nameless: int, side: Side) -> list[Reason]:
    """The same where parts are short of elements that may be among those without a name.

    Where these are just as many, and nothing else differs, all that is undecided is which of them belongs where. Not
    on PyTorch's side, whose names are its own, nor where contents were compared with it: what has no name then is
    known to be something else.
    """
    short = [each for each in reasons if each.certainty is _UNEXPLAINED and each.elements < 0]
    is_all = sum(each.elements for each in short) == -nameless and len(short) == len(reasons) - 1
    is_filled = is_all and side.kind == "model" and side.matched_by in (MatchedBy.NAMES, MatchedBy.SHAPES)
    certainty = Certainty.UNDECIDED if is_filled else _UNEXPLAINED
    among = f"among the {format_count(nameless)} elements whose names tell no term"
    sentence = f"{'are' if is_filled else 'may be'} {among}"
    return [
        replace(each, sentence=sentence if each in short else each.sentence, certainty=certainty)
        if each in short or each.part == NO_TERM
        else each
        for each in reasons
    ]


def _nameless(formula: Formula, side: Side) -> str:
    """What there is to say of tensors that belong to no term."""
    other = None if formula.key is None else _other_family(load_family(formula.key), side)
    if other is not None:
        return f"named as those of {other.name} are, not of {formula.family}; name the config of that model"
    tensors = "a tensor" if len(side.unmatched) == 1 else format_many(len(side.unmatched), "tensor")
    has_hint = side.kind == "model" and side.matched_by is MatchedBy.NAMES
    hint = "; --census finds them by their shapes" if has_hint else ""
    return f"{tensors} whose names tell no term{hint}"


def _known_lines(wanted: Counts, side: Side) -> tuple[list[Reason], dict[str, int]]:
    """Reasons that a reconciliation gives, and the counts as they would be without them.

    What is missing is no reason: another class or config may say why.
    """
    reasons, counts = [], dict(side.counts)
    for line, absent in side.absent.items():
        for key, elements in absent.items():
            if line not in UNBALANCED and wanted.get(key, 0) - counts.get(key, 0) >= elements:
                told = f"{MEANINGS[Line(line)].in_formula or 'as it is stored'} [{line}]"
                reasons.append(Reason(key, -elements, told, Certainty.SETTLED))
                counts[key] = counts.get(key, 0) + elements
    return reasons, counts


def _unread(formula: Formula, counts: Counts) -> list[Reason]:
    """What the class has and its forward pass does not read, so that an export leaves it out."""
    parts = load_family(formula.key).parts if formula.key is not None else ()
    unread = {part.key for part in parts if part.unread is not None and part.unread.holds(formula.values)}
    told = "an export leaves it out, as the program does not read it"
    return [
        Reason(part.key, -part.value, told, Certainty.SETTLED)
        for part in formula.parts
        if part.key in unread and part.value and not counts.get(part.key)
    ]


def _describe(cause: Cause, key: str) -> str:
    """What a cause means for one part."""
    was, now = cause.was.get(key, 0), cause.wanted.get(key, 0)
    part = next(part for part in cause.before.family.parts if part.key == key)
    if cause.field is None:
        is_there = "present" if not was else "missing" if not now else "of another size"
        return f"{is_there}, as in {cause.after.model_class.name}"
    field = f"{cause.field.name} = {_show(cause.other)}, where the config has {_show(cause.value)}"
    if part.tied_to is not None and not was:
        return f"{_untied(part)} ({field})"
    if part.tied_to is not None and not now:
        return f"the head is tied: its {part.name} is that of the {part.tied_to} ({field})"
    if type(cause.other) is int and type(cause.value) is int:
        return _describe_size(cause.field.role, cause.value, cause.other) or f"such as with {field}"
    return f"such as with {field}"


def _untied(part: Part) -> str:
    return f"the head is untied: its {part.name} is stored beside the {part.tied_to}, with values of its own"


def _show(value: Value) -> str:
    return str(value).lower() if value is None or type(value) is bool else str(value)


def _describe_size(role: str | None, before: int, after: int) -> str | None:
    """What another size of the vocabulary, of positions, or another number of layers or experts is called."""
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
    """The largest power of two, from 8 on, to whose next multiple a vocabulary was padded; None if it was not.

    >>> _padded_to(30522, 30528), _padded_to(50257, 50304), _padded_to(30522, 30000)
    (64, 128, None)
    """
    power = after & -after
    while power >= 8 and not 0 < after - before < power:
        power //= 2
    return power if power >= 8 else None


def _tell_alone(formula: Formula, key: str, elements: int, side: Side) -> str | None:
    """What the numbers of one part say by themselves; None where they say nothing."""
    what = "the file" if side.kind == "model" else "the model"
    part = next((part for part in formula.parts if part.key == key), None)
    if part is None or not part.value:
        tied = _tied_part(formula, key)
        return _untied(tied) if tied is not None else f"present in {what}; the formula has none"
    if part.value + elements == 0:
        # An exporter stores equal vectors once, and may have another stand for all of these.
        return f"missing: {what} has none{'' if part.matrix_elements else ' of its own'}"
    vectors = side.vectors.get(key, 0)
    if vectors - part.vector_elements == elements < 0 and _has_all_matrices(formula, side):
        return _tell_vectors(part, vectors)
    found = find_size(formula, key, part.value + elements)
    if found is not None:
        field, before, after = found
        return _describe_size(field.role, before, after)
    if part.times > 1 and elements % part.each == 0:
        have = format_count(part.times + elements // part.each)
        return f"as many as {have} of them have, where the formula has {format_count(part.times)}"
    return None


def _has_all_matrices(formula: Formula, side: Side) -> bool:
    """Whether all that has two dimensions or more is there, so that nothing but vectors can be missing."""
    return all(
        side.counts.get(part.key, 0) - side.vectors.get(part.key, 0) >= part.matrix_elements
        for part in formula.parts
    )


def _tied_part(formula: Formula, key: str) -> Part | None:
    """The part of the family whose tensor is another's in this class."""
    parts = load_family(formula.key).parts if formula.key is not None else ()
    return next((part for part in parts if part.key == key and part.tied_to is not None), None)


def _tell_vectors(part: PartCount, vectors: int) -> str:
    """Why only parameters of one dimension are fewer."""
    if part.matrix_elements and not vectors:
        return "all vectors are missing: the biases were dropped"
    if not part.matrix_elements and 2 * vectors == part.vector_elements:
        return "as many elements are missing as the norms have in biases"
    return "vectors only: an exporter stores equal ones once, which `reconcile` tells"
