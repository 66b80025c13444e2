"""Weights of all models of a lake -> families of models with equal, cast, quantized, fine-tuned or merged weights."""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzer.documents.answer import Answer
from analyzer.fleet.kinship import WIDTH
from analyzer.fleet.lake import Lake, open_lake
from analyzer.model.dtypes import DType
from analyzer.records import Frozen, Mutable, field
from analyzer.text import format_doing, format_many

_ALIKE = 0.9
"""Cosine of two sketches above which their tensors are kin: 1 of 10^10 pairs of unrelated ones reaches it."""

_BLOCK = 1024

_FITS = 0.02
"""Largest remainder of a sketch after the best sum, as a part of the remainder after the nearer of the two alone."""

_EQUAL = 1 - 1e-6
"""Cosine of the sketches of equal tensors, at least."""

Sketches = npt.NDArray[np.float32]


class Weights:
    """Different weight tensors of a lake, by number; `elements` is the number of values that each represents."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}
        self.elements: list[int] = []
        self.exactness: list[int] = []
        """Rank of each tensor's exactness: twice the bits of a stored element, less 1 if it is a code."""
        self.is_code: list[bool] = []
        self._sketches: list[Sketches | None] = []

    def __len__(self) -> int:
        return len(self.elements)

    def enter(self, row: Mapping[str, Any]) -> int:
        """Return the number of the weights in a row of `tensors`, new or known."""
        key = (row["digest"], row["logical_elements"])
        if key not in self._numbers:
            self._numbers[key] = len(self.elements)
            is_code = row["code_bits"] is not None
            bits = row["code_bits"] if is_code else DType[row["dtype"]].bits
            self.elements.append(row["logical_elements"])
            self.exactness.append(2 * bits - is_code)
            self.is_code.append(is_code)
            self._sketches.append(_unit(row["sketch"]))
        return self._numbers[key]

    def sketch(self, number: int) -> Sketches | None:
        """Return the sketch of a tensor, of length 1; None if its values are unknown."""
        return self._sketches[number]

    def likeness(self, a: int, b: int) -> float:
        """Return the cosine of two sketches; 0 if one is unknown."""
        first, second = self._sketches[a], self._sketches[b]
        return 0.0 if first is None or second is None else float(first @ second)


def _unit(sketch: Sequence[float] | None) -> Sketches | None:
    if sketch is None:
        return None
    found = np.array(sketch, dtype=np.float64)
    length = float(np.linalg.norm(found))
    return (found / length).astype(np.float32) if length > 0 and found.size == WIDTH else None


def group_alike(weights: Weights) -> list[int]:
    """Return the class of each tensor: the number of the first tensor that it is like."""
    classes = list(range(len(weights)))
    by_size: dict[int, list[int]] = defaultdict(list)
    for number, elements in enumerate(weights.elements):
        if weights.sketch(number) is not None:
            by_size[elements].append(number)
    for numbers in by_size.values():
        if len(numbers) > 1:
            _group(weights, sorted(numbers, key=lambda each: (-weights.exactness[each], each)), classes)
    return classes


def _group(weights: Weights, numbers: Sequence[int], classes: list[int]) -> None:
    """Give each tensor the class of the first one that is like it, block by block."""
    firsts: list[int] = []
    known = np.empty((0, WIDTH), np.float32)
    for start in range(0, len(numbers), _BLOCK):
        block = numbers[start : start + _BLOCK]
        sketches = np.stack([_known(weights, each) for each in block])
        new: list[int] = []
        if len(firsts):
            likeness = sketches @ known.T  # (block, firsts)
            best = likeness.argmax(axis=1)
            for at, number in enumerate(block):
                if likeness[at, best[at]] >= _ALIKE:
                    classes[number] = firsts[best[at]]
                else:
                    new.append(at)
        else:
            new = list(range(len(block)))
        among = sketches[new] @ sketches[new].T
        own: list[int] = []
        for at, place in enumerate(new):
            like = [each for each in own if among[at, each] >= _ALIKE]
            if like:
                classes[block[place]] = block[new[like[0]]]
            else:
                own.append(at)
        firsts += [block[new[each]] for each in own]
        known = np.concatenate([known, sketches[[new[each] for each in own]]])


def _known(weights: Weights, number: int) -> Sketches:
    found = weights.sketch(number)
    assert found is not None  # a tensor without a sketch is in no group
    return found


def find_merge(
    weights: Weights, prints: Sequence[int], others: Sequence[Sequence[int]]
) -> tuple[int, int] | None:
    """Return the two of some models whose weighted sum is a model, tensor by tensor; None if there are none.

    Sketches are linear: the sketch of a sum is the sum of both sketches. Two factors do not fit 32 numbers by accident.
    """
    tested = [each for each in prints if weights.sketch(each) is not None]
    sides = [[_counterpart(weights, each, side) for each in tested] for side in others]
    usable = [at for at, side in enumerate(sides) if all(each is not None for each in side)]
    mine = [_known(weights, each) for each in tested]
    for a, b in itertools.combinations(usable, 2):
        is_sum = False
        for m, x, y in zip(mine, sides[a], sides[b], strict=True):
            is_equal = _are_equal(m, x, y)
            if not is_equal and not _is_sum(m, x, y):
                break
            is_sum = is_sum or not is_equal
        else:
            if is_sum:
                return a, b
    return None


def _counterpart(weights: Weights, number: int, side: Sequence[int]) -> Sketches | None:
    """Return the sketch, among one model's tensors of the same size, that is most like a tensor's."""
    same = [each for each in side if weights.elements[each] == weights.elements[number]]
    same = [each for each in same if weights.sketch(each) is not None]
    return _known(weights, max(same, key=lambda each: weights.likeness(number, each))) if same else None


def _are_equal(mine: Sketches, a: Sketches | None, b: Sketches | None) -> bool:
    """Whether three sketches are equal: both sides have the tensor in common."""
    return a is not None and b is not None and min(float(mine @ a), float(mine @ b)) > _EQUAL


def _is_sum(mine: Sketches, a: Sketches | None, b: Sketches | None) -> bool:
    """Whether a sketch is a sum of two others, and both contribute."""
    assert a is not None
    assert b is not None
    both = np.stack([a, b], axis=1).astype(np.float64)
    alone = min(float(np.linalg.norm(mine - each * (each @ mine))) for each in (a, b))
    factors = np.linalg.lstsq(both, mine.astype(np.float64), rcond=None)[0]
    left = float(np.linalg.norm(mine - both @ factors))
    return left <= _FITS * alone and bool((factors > _FITS).all())


_COLUMNS = (
    *("family", "model", "relation", "of", "parameters"),
    *("shared_tensors", "shared_parameters", "share", "copied_bytes"),
)

_LEAST_SHARE = 0.05
"""Least share of the weights of the smaller of two models that makes them kin."""

_MOST_KIN = 64
"""Most models that are listed for one class of weights; the first ones suffice."""

_MOST_NEAR = 512
_MOST_MERGED = 12
"""Most models that are tested in pairs for a sum: the nearest of the first candidates."""

_CAST = 0.9999
"""Likeness of a tensor and its cast, at least, by their sketches."""


class _Model(Mutable):
    """Weights of one model: the number of each print, with its count."""

    name: str
    prints: Counter[int] = field(default_factory=Counter)
    nbytes: dict[int, int] = field(default_factory=dict)
    """Stored bytes of one tensor with each print."""

    def elements(self, weights: Weights) -> int:
        return sum(weights.elements[each] * count for each, count in self.prints.items())

    def exactness(self, weights: Weights) -> float:
        """Return the average exactness of its elements; a code ranks below a number of as many bits."""
        total = sum(weights.exactness[each] * weights.elements[each] for each in self.prints)
        return total / max(1, sum(weights.elements[each] for each in self.prints))


class _Kin(Frozen):
    """Relation of a model to another, and the weights that they have in common."""

    other: int
    relation: str
    tensors: int
    elements: int


def find_families(lake: Path | str | Lake, *, says: str = "") -> Answer:
    """Find the models that have weights in common, and their relations.

    Args:
        lake: its folder.
        says: first sentence of the answer.

    Returns:
        A row for each model that has kin: the root of a family first, then the others with their relation to another.

    Raises:
        UsageError: there is no such lake.
        MissingExtraError: pyarrow is not installed.
    """
    opened = lake if isinstance(lake, Lake) else open_lake(lake)
    weights, models, silent = _read(opened)
    families = _Families(weights, models)
    sentences = [says, f"Copies cost {format_many(families.cost, 'byte')}."]
    if silent:
        sentences.append(
            f"{format_doing(silent, 'readable model', 'were')} not compared: no weights, or contents not read."
        )
    return Answer(_COLUMNS, families.rows(), " ".join(filter(None, sentences)))


def _read(lake: Lake) -> tuple[Weights, list[_Model], int]:
    """Read the weights of all models, each different one once; count the readable models without any."""
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
    """Models, ordered by their rank as a family's root: the most exact first, then the largest."""

    def __init__(self, weights: Weights, models: Sequence[_Model]) -> None:
        self._weights = weights
        self._classes = group_alike(weights)
        self._spread = Counter(each for model in models for each in model.prints)
        ranks = {id(model): self._rank(model) for model in models}
        self._models = sorted(models, key=lambda model: ranks[id(model)])
        self._sizes = [model.elements(weights) for model in self._models]
        self._alike = [self._by_class(model) for model in self._models]
        self._first: dict[frozenset[tuple[int, int]], int] = {}
        """First model with exactly these weights."""
        for number, model in enumerate(self._models):
            self._first.setdefault(frozenset(model.prints.items()), number)

    def _rank(self, model: _Model) -> tuple[float, int, int, str]:
        """Return a sort key: exact before coded, large before small, widely shared weights before rare ones."""
        weights = self._weights
        common = sum(weights.elements[each] * self._spread[each] for each in model.prints)
        return -round(model.exactness(weights)), -model.elements(weights), -common, model.name

    def _by_class(self, model: _Model) -> dict[int, Counter[int]]:
        found: dict[int, Counter[int]] = defaultdict(Counter)
        for each, count in model.prints.items():
            found[self._classes[each]][each] += count
        return found

    def rows(self) -> list[tuple[object, ...]]:
        """Return a row for each model that has kin."""
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
        """Bytes of all tensors that repeat an earlier one, in the same model or in another."""
        return sum(self._costs)

    @functools.cached_property
    def _costs(self) -> list[int]:
        """Bytes of each model's tensors that repeat one of an earlier model, or of its own."""
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
        """Return the origin of a model: the earlier one that shares most with it, or two that were merged into it."""
        first = self._first[frozenset(self._models[number].prints.items())]
        if first < number:
            return (_Kin(first, "same", self._models[number].prints.total(), self._sizes[number]),)
        found = [kin for each in self._near(number) if (kin := self._relate(number, each)) is not None]
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
        """Yield the earlier models that have a class of weights in common with this one, in their order."""
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
        """First models with weights of each class."""
        found: dict[int, list[int]] = defaultdict(list)
        for number in sorted(self._first.values()):
            for each in self._alike[number]:
                if len(found[each]) < _MOST_KIN:
                    found[each].append(number)
        return found

    def _relate(self, number: int, other: int) -> _Kin | None:
        """Return the relation of a model to an earlier one; None if they have too little in common."""
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
        """Return the two models of which one is a weighted sum, tensor by tensor; None if there are none."""
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
        """Different models by their number of elements."""
        found: dict[int, list[int]] = defaultdict(list)
        for number in sorted(self._first.values()):
            found[self._sizes[number]].append(number)
        return found

    def _nearest(self, number: int, others: Sequence[int]) -> list[int]:
        """Return the candidates whose tensors are most like the model's largest one, in their order."""
        weights = self._weights
        known = [each for each in self._models[number].prints if weights.sketch(each) is not None]
        if not known:
            return []
        largest = max(known, key=lambda each: (weights.elements[each], -each))

        def distance(other: int) -> float:
            same = (n for n in self._models[other].prints if weights.elements[n] == weights.elements[largest])
            return -max((weights.likeness(largest, each) for each in same), default=0.0)

        return sorted(sorted(others[:_MOST_NEAR], key=distance)[:_MOST_MERGED])
