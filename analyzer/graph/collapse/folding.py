"""Groups, inputs and outputs -> the same, with numbered neighbours of equal content as one: `encoder.layer.0-11`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from analyzer.account.ledger import Group
from analyzer.records import Frozen

_NUMBER = re.compile(r"(?<![^.])(\d{1,9})(?![^. ])")
"""A number that is a whole part of a dotted name; longer numbers are not layer numbers."""

_Pieces = tuple[str, ...]
"""A name, split at its numbers: text and number in turn, with text first and last."""

Layers = Mapping[_Pieces, int]


class Folded(Frozen):
    """Groups that share one vertex."""

    name: str
    """Their name, with `0-11` in place of the numbers that differ."""
    groups: tuple[Group, ...]
    layers: tuple[Layers, ...] = ()
    """For each group, its own number at each folded place, by the beginning of the folded name up to there."""


def fold_groups(groups: Iterable[Group]) -> list[Folded]:
    """Fold groups from the outermost number to the innermost; a layer folds with all groups below it, or not at all.

    Two layers have the same content if their learned groups have the same names below the number, and the same
    parameters, bytes and uses.
    """
    members = {tuple(_NUMBER.split(group.name)): [group] for group in groups}
    place = 1
    while any(len(pieces) > place for pieces in members):
        members = _fold_at(members, place)
        place += 2
    return [
        Folded("".join(pieces), tuple(found), tuple(_layers(pieces, group) for group in found))
        for pieces, found in members.items()
    ]


def recurs(mine: Layers, theirs: Layers) -> bool:
    """Whether two groups are in different layers of one fold, so that an edge between them loops through the fold."""
    return any(mine[begin] != theirs[begin] for begin in mine.keys() & theirs.keys())


def _fold_at(members: dict[_Pieces, list[Group]], place: int) -> dict[_Pieces, list[Group]]:
    """Replace each layer's number by the range of its run, if the run has more than one layer."""
    families: dict[_Pieces, dict[int, list[_Pieces]]] = defaultdict(lambda: defaultdict(list))
    for pieces in members:
        if len(pieces) > place:
            families[pieces[:place]][int(pieces[place])].append(pieces)
    ranges: dict[_Pieces, str] = {}
    for layers in families.values():
        contents = {
            number: _content([(pieces[place + 1 :], members[pieces]) for pieces in found])
            for number, found in layers.items()
        }
        for run in _runs(contents):
            text = f"{run[0]}-{run[-1]}"
            ranges |= {pieces: text for number in run if len(run) > 1 for pieces in layers[number]}
    folded: dict[_Pieces, list[Group]] = {}
    for pieces, found in members.items():
        if pieces in ranges:
            pieces = (*pieces[:place], ranges[pieces], *pieces[place + 1 :])
        folded.setdefault(pieces, []).extend(found)
    return folded


_Content = tuple[object, ...]


def _content(rows: Sequence[tuple[_Pieces, list[Group]]]) -> _Content:
    """Return the content of a layer, for comparison with its neighbours."""
    learned = [
        (
            below,
            len(groups),
            sum(group.parameters for group in groups),
            sum(group.learned_nbytes for group in groups),
            groups[0].applications,
        )
        for below, groups in rows
        if any(group.parameters or group.learned_nbytes for group in groups)
    ]
    return tuple(sorted(learned)) or tuple(sorted(below for below, _ in rows))


def _runs(contents: dict[int, _Content]) -> list[list[int]]:
    """Return the numbers as runs: consecutive numbers with the same content."""
    runs: list[list[int]] = []
    for number in sorted(contents):
        last = runs[-1][-1] if runs else None
        if last is not None and number == last + 1 and contents[number] == contents[last]:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _layers(folded: _Pieces, group: Group) -> Layers:
    name = _NUMBER.split(group.name)
    return {
        folded[: place + 1]: int(name[place]) for place in range(1, len(folded), 2) if "-" in folded[place]
    }


_COUNTER = re.compile(r"(?<![^\W_])(\d{1,9})(?![^\W_])")
"""A number in the name of an input or an output, wherever it stands alone: `past_key_values.0.key`, `output_3`."""


def fold_names(names: Mapping[str, Hashable]) -> dict[str, str]:
    """Map each name to the name of its run: names with consecutive numbers and the same data fold into one.

    >>> fold_names({"ids": 0, "past.0.key": 1, "past.1.key": 1, "past.2.key": 2})
    {'ids': 'ids', 'past.0.key': 'past.0-1.key', 'past.1.key': 'past.0-1.key', 'past.2.key': 'past.2.key'}
    """
    alike: dict[Hashable, list[list[str]]] = defaultdict(list)
    for name, data in names.items():
        pieces = _COUNTER.split(name)
        alike[tuple(pieces[::2]), data].append(pieces)
    folded = {name: name for name in names}
    for members in alike.values():
        columns = list(zip(*members, strict=True))
        counting = [place for place, column in enumerate(columns) if len(set(column)) > 1]
        if len(counting) != 1:
            continue
        numbers = sorted(map(int, columns[counting[0]]))
        if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            run = list(members[0])
            run[counting[0]] = f"{numbers[0]}-{numbers[-1]}"
            folded |= {"".join(pieces): "".join(run) for pieces in members}
    return folded
