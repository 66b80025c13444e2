"""The weights of all models of a lake -> families: who holds the same, who is cast, quantized or tuned from whom."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analyzer.answer import Answer
from analyzer.fleet.lake import Lake, open_lake
from analyzer.fleet.likeness import Weights, find_merge, group_alike
from analyzer.units import format_many

__all__ = ["find_families"]

_COLUMNS = (
    *("family", "model", "relation", "of", "parameters"),
    *("shared_tensors", "shared_parameters", "share", "copied_bytes"),
)

_LEAST_SHARE = 0.05
"""Of the weights of the smaller of two models: with less in common they are no kin."""

_MOST_KIN = 64
"""Models that one weight leads to; of more, the first tell enough."""

_MOST_NEAR = 512
_MOST_MERGED = 12
"""Models of which a sum of two is looked for: the nearest of the first that come into question."""

_CAST = 0.9999
"""Likeness of a tensor and its cast, as sketches tell it."""


@dataclass(slots=True)
class _Model:
    """The weights of one model: numbers of prints, each as often as it is there."""

    name: str
    prints: Counter[int] = field(default_factory=Counter)
    nbytes: dict[int, int] = field(default_factory=dict)
    """Of one tensor with that print."""

    def elements(self, weights: Weights) -> int:
        return sum(weights.elements[each] * count for each, count in self.prints.items())

    def exactness(self, weights: Weights) -> float:
        """Bits of an element, as these are stored; codes are below numbers of as many bits."""
        total = sum(weights.exactness[each] * weights.elements[each] for each in self.prints)
        return total / max(1, sum(weights.elements[each] for each in self.prints))


@dataclass(frozen=True, slots=True)
class _Kin:
    """What a model has in common with another."""

    other: int
    relation: str
    tensors: int
    elements: int


def find_families(lake: Path | str | Lake, *, says: str = "") -> Answer:
    """Find the models that have weights in common, and how.

    Args:
        lake: its folder.
        says: what the answer begins with.

    Returns:
        A row for each model that has kin: the root of a family first, then the others with what they are of which.

    Raises:
        UsageError: there is no such lake.
        MissingExtraError: pyarrow is not installed.
    """
    opened = lake if isinstance(lake, Lake) else open_lake(lake)
    weights, models, silent = _read(opened)
    families = _Families(weights, models)
    told = [says, f"Copies cost {format_many(families.cost, 'byte')}."]
    if silent:
        told.append(
            f"Of {format_many(silent, 'readable model')} nobody can tell: no weights, or not looked at."
        )
    return Answer(_COLUMNS, families.rows(), " ".join(filter(None, told)))


def _read(lake: Lake) -> tuple[Weights, list[_Model], int]:
    """The weights of all models, each different one once; and how many readable models have none that tell anything."""
    weights = Weights()
    models: list[_Model] = []
    silent = 0
    columns = ["model", "digest", "sketch", "logical_elements", "code_bits", "dtype", "bytes"]
    for shard in lake.shards:
        by_name: dict[str, _Model] = {}
        table = lake.read("tensors", shard, columns)
        for row in table.filter(table["digest"].is_valid()).to_pylist():
            model = by_name.setdefault(row["model"], _Model(row["model"]))
            number = weights.enter(row)
            model.prints[number] += 1
            model.nbytes[number] = row["bytes"]
        models += by_name.values()
        errors: list[str | None] = lake.read("models", shard, ["error"])["error"].to_pylist()
        silent += errors.count(None) - len(by_name)
    return weights, models, silent


class _Families:
    """Models in the order in which they may be the root of others: the most exact first, then the largest."""

    def __init__(self, weights: Weights, models: Sequence[_Model]) -> None:
        self._weights = weights
        self._classes = group_alike(weights)
        self._spread = Counter(each for model in models for each in model.prints)
        ranks = {id(model): self._rank(model) for model in models}
        self._models = sorted(models, key=lambda model: ranks[id(model)])
        self._sizes = [model.elements(weights) for model in self._models]
        self._alike = [self._by_class(model) for model in self._models]
        self._first: dict[frozenset[tuple[int, int]], int] = {}
        """By its weights, the first model that has just these."""
        for number, model in enumerate(self._models):
            self._first.setdefault(frozenset(model.prints.items()), number)

    def _rank(self, model: _Model) -> tuple[float, int, int, str]:
        """Exact before coded, large before small, what others hold too before what none does."""
        weights = self._weights
        common = sum(weights.elements[each] * self._spread[each] for each in model.prints)
        return -round(model.exactness(weights)), -model.elements(weights), -common, model.name

    def _by_class(self, model: _Model) -> dict[int, Counter[int]]:
        found: dict[int, Counter[int]] = defaultdict(Counter)
        for each, count in model.prints.items():
            found[self._classes[each]][each] += count
        return found

    def rows(self) -> list[tuple[object, ...]]:
        """A row for each model that has kin."""
        kin = [self._find(number) for number in range(len(self._models))]
        roots = list(range(len(self._models)))
        for number, found in enumerate(kin):
            if found is not None:
                roots[number] = roots[found[0].other]
        members: dict[int, list[int]] = defaultdict(list)
        for number, root in enumerate(roots):
            members[root].append(number)
        costs = self._costs
        families = [each for each in members.values() if len(each) > 1]
        families.sort(key=lambda each: (-sum(costs[number] for number in each), self._models[each[0]].name))
        return [
            self._row(family, number, kin[number], costs[number])
            for family, numbers in enumerate(families, start=1)
            for number in numbers
        ]

    def _row(self, family: int, number: int, kin: Sequence[_Kin] | None, cost: int) -> tuple[object, ...]:
        model, size = self._models[number], self._sizes[number]
        if kin is None:
            return family, model.name, "root", None, size, None, None, None, cost
        names = " + ".join(self._models[each.other].name for each in kin)
        first = kin[0]
        share = first.elements / size if size else None
        return family, model.name, first.relation, names, size, first.tensors, first.elements, share, cost

    @property
    def cost(self) -> int:
        """Bytes of all tensors that are there already, in the same model or in another."""
        return sum(self._costs)

    @functools.cached_property
    def _costs(self) -> list[int]:
        """Bytes of each model's tensors that a model before it holds too, or it itself has held already."""
        seen: set[int] = set()
        costs = []
        for model in self._models:
            cost = 0
            for each, count in model.prints.items():
                cost += model.nbytes[each] * (count - (each not in seen))
            seen.update(model.prints)
            costs.append(cost)
        return costs

    def _find(self, number: int) -> tuple[_Kin, ...] | None:
        """What a model comes of: the one before it with which it has most in common, or two that it was merged from."""
        first = self._first[frozenset(self._models[number].prints.items())]
        if first < number:
            return (_Kin(first, "same", self._models[number].prints.total(), self._sizes[number]),)
        found = [kin for each in self._near(number) if (kin := self._hold(number, each)) is not None]
        found.sort(key=lambda kin: (-kin.elements, kin.other))
        best = found[0] if found else None
        if best is not None and best.relation in ("same", "part", "quantized", "cast"):
            return (best,)
        if best is None or best.relation == "fine-tuned":
            merged = self._find_merged(number, [kin.other for kin in found])
            if merged is not None:
                return merged
        return None if best is None else (best,)

    def _near(self, number: int) -> Iterator[int]:
        """Models before this one that have a weight in common with it, in their order."""
        index = self._index
        seen: set[int] = set()
        for each in self._alike[number]:
            for other in index[each]:
                if other >= number:
                    break
                if other not in seen:
                    seen.add(other)
                    yield other

    @functools.cached_property
    def _index(self) -> Mapping[int, list[int]]:
        """By class of weights the first models that have some."""
        found: dict[int, list[int]] = defaultdict(list)
        for number in sorted(self._first.values()):
            for each in self._alike[number]:
                if len(found[each]) < _MOST_KIN:
                    found[each].append(number)
        return found

    def _hold(self, number: int, other: int) -> _Kin | None:
        """What a model has in common with one before it; None where that is too little."""
        mine, theirs = self._alike[number], self._alike[other]
        sums: Counter[str] = Counter()
        tensors = 0
        for each in mine.keys() & theirs.keys():
            for print_, count in mine[each].items():
                kind = self._compare(print_, theirs[each])
                sums[kind] += self._weights.elements[print_] * count
                tensors += count
        shared = sums.total()
        if shared < _LEAST_SHARE * min(self._sizes[number], self._sizes[other]):
            return None
        return _Kin(other, self._name(sums, number, other), tensors, shared)

    def _compare(self, mine: int, theirs: Counter[int]) -> str:
        weights = self._weights
        if mine in theirs:
            return "equal"
        other = max(theirs, key=lambda each: weights.exactness[each])
        if weights.is_code[mine] and not weights.is_code[other]:
            return "quantized"
        is_other_type = weights.exactness[mine] != weights.exactness[other]
        if is_other_type and weights.likeness(mine, other) >= _CAST:
            return "quantized" if weights.is_code[mine] else "cast"
        return "changed"

    def _name(self, sums: Counter[str], number: int, other: int) -> str:
        size, shared = self._sizes[number], sums.total()
        if sums["equal"] == size:
            is_all = self._models[number].prints.keys() == self._models[other].prints.keys()
            return "same" if is_all else "part"
        for kind in ("quantized", "cast"):
            if sums[kind] * 2 >= max(shared - sums["equal"], 1) and shared * 2 >= size:
                return kind
        return "fine-tuned" if shared * 2 >= size else "shares"

    def _find_merged(self, number: int, kin: Sequence[int]) -> tuple[_Kin, ...] | None:
        """The two models that one is a weighted sum of, tensor by tensor."""
        size = self._sizes[number]
        others = [other for other in kin if self._sizes[other] == size] or self._by_size[size]
        others = self._nearest(number, [other for other in others if other < number])
        if len(others) < 2:
            return None
        sides = [list(self._models[other].prints) for other in others]
        found = find_merge(self._weights, list(self._models[number].prints), sides)
        if found is None:
            return None
        tensors = self._models[number].prints.total()
        return tuple(_Kin(others[each], "merged", tensors, size) for each in found)

    @functools.cached_property
    def _by_size(self) -> Mapping[int, list[int]]:
        """By how many elements it has, the different models of that size."""
        found: dict[int, list[int]] = defaultdict(list)
        for number in sorted(self._first.values()):
            found[self._sizes[number]].append(number)
        return found

    def _nearest(self, number: int, others: Sequence[int]) -> list[int]:
        """Those of some models whose largest tensor is most like a model's."""
        weights = self._weights
        known = [each for each in self._models[number].prints if weights.sketch(each) is not None]
        if not known:
            return []
        largest = max(known, key=lambda each: (weights.elements[each], -each))

        def distance(other: int) -> float:
            same = (n for n in self._models[other].prints if weights.elements[n] == weights.elements[largest])
            return -max((weights.likeness(largest, each) for each in same), default=0.0)

        return sorted(sorted(others[:_MOST_NEAR], key=distance)[:_MOST_MERGED])
