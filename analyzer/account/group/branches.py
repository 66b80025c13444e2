"""Groups -> branches of a tree, by the parts of their names; neighbours that repeat each other -> one branch."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from analyzer.account.group.keys import DEEPEST, KEYS, NESTED
from analyzer.account.ledger import Group, Grouping, natural_order
from analyzer.records import Frozen


class Step(NamedTuple):
    """A part of a group's name."""

    key: int
    """Position of the key whose text contains it."""
    part: int
    """Its position in that text, from 1; 0 if the text has no parts."""
    text: str

    @property
    def number(self) -> int | None:
        """Its value, if it numbers modules or blocks."""
        text = self.text
        is_number = self.part and text.isdecimal() and text.isascii() and len(text) <= _DIGITS
        return int(text) if is_number and (text[0] != "0" or text == "0") else None

    def after(self, above: str | None) -> str:
        """Return the text with a prefix in front of it."""
        if above is None:
            return self.text
        return f"{above}{'.' if self.part > 1 else ' / '}{self.text}"


_make_step: Callable[[Iterable[Any]], Step] = functools.partial(tuple.__new__, Step)
"""Make a step from its fields: takes a fifth of the time of a call of the class."""

_DIGITS = 9
"""Most digits of a number that counts modules: a longer one is a name."""


class _Shape(NamedTuple):
    """Data that two branches must share to be merged into one row."""

    is_learned: bool
    """Whether anything below is learned; tensors that are not learned are compared only if none is."""
    own: tuple[int, ...]
    """Totals of learned groups, or stored elements; without the branches below."""
    below: tuple[tuple[Step, _Shape], ...]


class Branch(Frozen):
    """Groups whose names begin with the same steps."""

    step: Step
    count: int
    """Number of branches merged into it."""
    own: tuple[Group, ...]
    """Groups whose names end here."""
    children: tuple[Branch, ...]
    shape: _Shape

    @property
    def groups(self) -> Iterator[Group]:
        yield from self.own
        for child in self.children:
            yield from child.groups


def is_learned(group: Group) -> bool:
    """Whether the group has learned tensors, even if they are all copies."""
    return bool(group.parameters or group.learned_nbytes)


def grow(grouping: Grouping, alike: Totals = ("parameters", "learned_nbytes")) -> list[Branch]:
    """Return the outermost branches in the order of their groups; `alike` names the totals compared for folding."""
    keys = grouping.by.split(",")
    is_keyed = set(keys) <= KEYS.keys()  # the user's own groups and accounts have names that are not split
    known: dict[
        Step, Step
    ] = {}  # one object for all names with the same step: a million groups have few steps
    placed = [
        (_steps(keys, group, known) if is_keyed else (Step(0, 0, group.name),), group)
        for group in grouping.groups
    ]
    return _grow(placed, attrgetter(*alike), 0, {})


Totals = tuple[str, str]
"""Names of two fields of `Group`."""


_Alike = Callable[[Group], tuple[int, ...]]
"""Function that returns the compared totals of a learned group."""


def _steps(keys: Sequence[str], group: Group, known: dict[Step, Step]) -> tuple[Step, ...]:
    found: list[Step] = []
    make = _make_step
    for position, (key, text) in enumerate(zip(keys, group.label, strict=True)):
        if key in NESTED:
            parts = text.split(".", DEEPEST - 1)
            found += [make((position, number, part)) for number, part in enumerate(parts, start=1)]
        else:
            found.append(Step(position, 0, text))
    return tuple([known.setdefault(step, step) for step in found])


_Placed = tuple[tuple[Step, ...], Group]
"""Steps of a group's name, and the group."""


def _grow(placed: Sequence[_Placed], alike: _Alike, at: int, shapes: dict[_Shape, _Shape]) -> list[Branch]:
    """Make branches from groups by the step at `at`, in order of first occurrence; `shapes` holds known shapes."""
    own: dict[Step, list[Group]] = {}
    deeper: dict[Step, list[_Placed]] = {}
    for pair in placed:
        steps, group = pair
        step = steps[at]
        ending = own.get(step)
        if ending is None:
            ending = own[step] = []
        if len(steps) == at + 1:
            ending.append(group)
        else:
            deeper.setdefault(step, []).append(pair)
    grown = []
    for step, groups in own.items():
        children = tuple(_grow(deeper[step], alike, at + 1, shapes)) if step in deeper else ()
        shape = _shape(groups, children, alike)
        if not children:
            shape = shapes.setdefault(shape, shape)
        grown.append(Branch(step, 1, tuple(groups), children, shape))
    return grown


def _shape(own: Sequence[Group], children: Sequence[Branch], alike: _Alike) -> _Shape:
    if not children and len(own) == 1:  # nearly every branch of a large tree
        is_one = is_learned(own[0])
        return _Shape(is_one, alike(own[0]) if is_one else (own[0].stored_elements,), ())
    below = tuple([(child.step, child.shape) for child in children if child.shape.is_learned])
    if below or any(map(is_learned, own)):
        totals = tuple(map(sum, zip(*map(alike, own), strict=True))) or (0, 0)
        return _Shape(True, totals, below)
    stored = sum([group.stored_elements for group in own])
    return _Shape(False, (stored,), tuple([(child.step, child.shape) for child in children]))


def fold(branches: Sequence[Branch]) -> list[Branch]:
    """Merge neighbours with consecutive numbers and equal shapes."""
    runs: list[list[Branch]] = []
    before: int | None = None
    for branch in branches:
        number = branch.step.number
        is_next = before is not None and number == before + 1
        if is_next and runs[-1][-1].shape == branch.shape:
            runs[-1].append(branch)
        else:
            runs.append([branch])
        before = number
    return [
        _merge(run, run[0].step._replace(text=f"{run[0].step.text}-{run[-1].step.text}"))
        if len(run) > 1
        else run[0]
        for run in runs
    ]


def _merge(branches: Sequence[Branch], step: Step) -> Branch:
    """Merge branches of one shape; their children are merged by name, even if only some branches have a child."""
    by_step: dict[Step, list[Branch]] = defaultdict(list)
    for branch in branches:
        for child in branch.children:
            by_step[child.step].append(child)
    order = sorted(by_step, key=lambda found: (found.key, natural_order(found.text)))
    return Branch(
        step=step,
        count=sum(branch.count for branch in branches),
        own=tuple(group for branch in branches for group in branch.own),
        children=tuple(_merge(by_step[found], found) for found in order),
        shape=branches[0].shape,
    )


def fold_names(names: Sequence[str]) -> list[str]:
    """Fold names with consecutive numbers at their end into one.

    >>> fold_names(["encoder.layer.0", "encoder.layer.1", "encoder.layer.2", "decoder"])
    ['encoder.layer.0-2', 'decoder']
    """
    runs: list[list[tuple[str, Step]]] = []
    for name in names:
        head, dot, last = name.rpartition(".")
        above, step = head + dot, Step(0, 1, last)
        before = runs[-1][-1] if runs else None
        number = None if before is None or before[0] != above else before[1].number
        if number is not None and step.number == number + 1:
            runs[-1].append((above, step))
        else:
            runs.append([(above, step)])
    return [f"{run[0][0]}{run[0][1].text}" + (f"-{run[-1][1].text}" if len(run) > 1 else "") for run in runs]
