"""Entries of A and of B -> pairs of tensors with their differences, and the difference in wiring."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set

from analyzer.account.ledger import Entry, Ledger, Role
from analyzer.comparison.record import (
    Change,
    Followed,
    MatchedBy,
    Status,
    TensorPair,
    ValueCounts,
    WiringPair,
)
from analyzer.errors import ModelReadError
from analyzer.model import Key, NoPayload, StoredTensor
from analyzer.model.content import ContentMode
from analyzer.model.fingerprint import Fingerprint, take_fingerprint
from analyzer.records import replace

Grouped = tuple[Entry, str]
"""An entry and its group."""


def pair_tensors(
    a: Sequence[Grouped], b: Sequence[Grouped], followed: Followed | None = None
) -> tuple[TensorPair, ...]:
    """Return every tensor of both sides once: those of A in their order, then those of B alone.

    Learned tensors that were followed are paired by content; a tensor that holds several is paired with the first.
    Tensors of the same name in graphs of the same path are paired, unless the name is generated and both sides know
    different PyTorch tensors behind it. The rest are paired if they are computed from the same PyTorch tensors and no
    other tensor of their graph is: first among those in one role, then among all. Last, copies of paired tensors are
    paired.
    """
    partners, lines = _by_content(a, b, followed)
    paired = {j for j, _ in partners.values()}
    partners |= {
        i: found
        for i, found in _by_name(a, b)
        if i not in partners and i not in lines[0] and found[0] not in paired
    }
    for key in (_sources_and_role, _sources):
        taken = {j for j, _ in partners.values()}
        left = (
            [i for i in range(len(a)) if i not in partners and i not in lines[0]],
            [j for j in range(len(b)) if j not in taken and j not in lines[1]],
        )
        partners.update(_one_to_one(a, b, left, key))
    partners |= _by_original(a, b, partners)
    taken = {j for j, _ in partners.values()}
    pairs = [_pair(side, *_found(b, partners.get(i)), lines[0].get(i)) for i, side in enumerate(a)]
    return (*pairs, *(_pair(None, side, None, lines[1].get(j)) for j, side in enumerate(b) if j not in taken))


_Lines = tuple[dict[int, str], dict[int, str]]
"""Lines of the tensors of A, and of those of B, by position."""


def _by_content(
    a: Sequence[Grouped], b: Sequence[Grouped], followed: Followed | None
) -> tuple[dict[int, tuple[int, MatchedBy]], _Lines]:
    """Return the pairs that following found, and the line of each tensor that has one."""
    partners: dict[int, tuple[int, MatchedBy]] = {}
    lines: _Lines = ({}, {})
    if followed is None:
        return partners, lines
    numbers = [{entry.tensor.key: number for number, (entry, _) in enumerate(side)} for side in (a, b)]
    source, other = (1, 0) if followed.is_turned else (0, 1)
    taken: set[int] = set()
    for step in followed.steps:
        here, there = numbers[source].get(step.source), numbers[other].get(step.stored_in[0])
        if here is None or there is None:
            continue
        lines[source][here] = step.line
        if there not in taken:
            taken.add(there)
            i, j = (there, here) if followed.is_turned else (here, there)
            lines[0][i] = lines[1][j] = step.line
            by_name = _name(a[i][0]) == _name(b[j][0])
            partners[i] = j, MatchedBy.NAME if by_name else MatchedBy.CONTENT
    return partners, lines


def _found(
    b: Sequence[Grouped], partner: tuple[int, MatchedBy] | None
) -> tuple[Grouped | None, MatchedBy | None]:
    return (None, None) if partner is None else (b[partner[0]], partner[1])


def _by_original(
    a: Sequence[Grouped], b: Sequence[Grouped], partners: Mapping[int, tuple[int, MatchedBy]]
) -> dict[int, tuple[int, MatchedBy]]:
    """Pair a copy in A with a copy in B if their originals are a pair."""
    numbers = {entry.tensor.key: number for number, (entry, _) in enumerate(a)}
    taken = {j for j, _ in partners.values()}
    copies = defaultdict[Key, list[int]](list)
    for j, (entry, _) in enumerate(b):
        if j not in taken and entry.copy_of is not None:
            copies[entry.copy_of].append(j)
    found: dict[int, tuple[int, MatchedBy]] = {}
    for i, (entry, _) in enumerate(a):
        if i in partners or entry.copy_of is None or numbers.get(entry.copy_of) not in partners:
            continue
        original = b[partners[numbers[entry.copy_of]][0]][0].tensor.key
        if copies[original]:
            found[i] = copies[original].pop(0), MatchedBy.CONTENT
    return found


def _by_name(a: Sequence[Grouped], b: Sequence[Grouped]) -> Iterator[tuple[int, tuple[int, MatchedBy]]]:
    """Pair tensors of the same name; if several have it, the first of A with the first of B, and so on."""
    places = defaultdict[Hashable, list[int]](list)
    for j, (entry, _) in enumerate(b):
        places[_name(entry)].append(j)
    seen = defaultdict[Hashable, int](int)
    for i, (entry, _) in enumerate(a):
        key = _name(entry)
        candidates, position = places.get(key, []), seen[key]
        seen[key] += 1
        if position < len(candidates) and _may_be_one(entry, b[candidates[position]][0]):
            yield i, (candidates[position], MatchedBy.NAME)


def _name(entry: Entry) -> tuple[str, str]:
    """Return the tensor's graph path and name as reports write them, so that a saved report matches its model."""
    path, name = entry.tensor.key
    return "/".join(path), name


def _may_be_one(a: Entry, b: Entry) -> bool:
    """Whether two tensors of one name may be the same: `val_7` of one export is unrelated to that of another."""
    if not a.sources or not b.sources or {*a.sources} & {*b.sources}:
        return True
    return a.tensor.name in a.sources or b.tensor.name in b.sources


def _sources(entry: Entry) -> Hashable:
    return (_name(entry)[0], frozenset(entry.sources)) if entry.sources else None


def _sources_and_role(entry: Entry) -> Hashable:
    return (_sources(entry), entry.role) if entry.sources else None


def _one_to_one(
    a: Sequence[Grouped],
    b: Sequence[Grouped],
    left: tuple[Iterable[int], Iterable[int]],
    key: Callable[[Entry], Hashable],
) -> Iterator[tuple[int, tuple[int, MatchedBy]]]:
    of_a, of_b = (_index(side, which, key) for side, which in zip((a, b), left, strict=True))
    for found, mine in of_a.items():
        theirs = of_b.get(found, [])
        if len(mine) == len(theirs) == 1:
            yield mine[0], (theirs[0], MatchedBy.SOURCES)


def _index(
    side: Sequence[Grouped], which: Iterable[int], key: Callable[[Entry], Hashable]
) -> Mapping[Hashable, list[int]]:
    index = defaultdict[Hashable, list[int]](list)
    for i in which:
        found = key(side[i][0])
        if found is not None:
            index[found].append(i)
    return index


def _pair(
    a: Grouped | None, b: Grouped | None, matched_by: MatchedBy | None, line: str | None = None
) -> TensorPair:
    left, group_a = a or (None, None)
    right, group_b = b or (None, None)
    changed: tuple[Change, ...] = ()
    if left is None or right is None:
        status = Status.ADDED if left is None else Status.REMOVED
    else:
        changed = tuple(_changes(left, right))
        if line in _MOVED and Change.SHAPE not in changed:
            changed = (*changed, Change.LAYOUT)
        status = Status.CHANGED if changed else Status.UNCHANGED
    return TensorPair(left, right, (group_a, group_b), status, matched_by, changed, line)


_MOVED = frozenset({"transposed", "sliced", "gathered", "concatenated"})
"""Lines of tensors whose values stand in another order, even if the shape is the same."""


def _changes(a: Entry, b: Entry) -> Iterator[Change]:
    ours, theirs = _facts(a), _facts(b)
    return (change for change, value in ours.items() if value != theirs[change])


def _facts(entry: Entry) -> dict[Change, object]:
    tensor = entry.tensor
    return {
        Change.DTYPE: tensor.dtype,
        Change.SHAPE: tensor.shape,
        Change.ROLE: entry.role,
        Change.PARAMETERS: entry.parameters,
        Change.STORED_ELEMENTS: tensor.numel,
        Change.BYTES: tensor.nbytes,
    }


# values


def compare_values(
    pairs: Sequence[TensorPair], content: ContentMode, salt: str = ""
) -> tuple[tuple[TensorPair, ...], ValueCounts]:
    """Compare the stored values of pairs that are otherwise alike, byte by byte: those that `salt` picks, or all."""
    found: list[TensorPair] = []
    answers: list[bool | None] = []
    for pair in pairs:
        if pair.status is not Status.UNCHANGED or pair.a is None or pair.b is None:
            found.append(pair)
            continue
        answers.append(_are_equal(pair.a.tensor, pair.b.tensor, content, salt))
        differ = answers[-1] is False
        found.append(replace(pair, status=Status.CHANGED, changed=(Change.VALUES,)) if differ else pair)
    counts = (answers.count(answer) for answer in (True, False, None))
    return tuple(found), ValueCounts(content, *counts)


def compare_scales(pairs: Sequence[TensorPair]) -> tuple[TensorPair, ...]:
    """Compare the values of small scales and zero points that are otherwise alike, whatever else is compared."""
    return tuple(
        replace(pair, status=Status.CHANGED, changed=(Change.VALUES,)) if _is_other_scale(pair) else pair
        for pair in pairs
    )


def _is_other_scale(pair: TensorPair) -> bool:
    return pair.status is Status.UNCHANGED and _are_equal_scales(pair) is False


def _are_equal_scales(pair: TensorPair) -> bool | None:
    """Whether a small scale or zero point has the same values on both sides; None if either side is no such tensor."""
    if pair.a is None or pair.b is None:
        return None
    if any(side.role is not Role.QUANTIZATION or side.tensor.nbytes > _SMALL for side in (pair.a, pair.b)):
        return None
    return _are_equal(pair.a.tensor, pair.b.tensor, "full", "")


def _are_equal(a: StoredTensor, b: StoredTensor, content: ContentMode, salt: str) -> bool | None:
    """Whether the values are equal; None if unknown. Strings and sparse tensors are always compared whole."""
    if not a.numel:
        return True
    if isinstance(a.payload, NoPayload) or isinstance(b.payload, NoPayload):
        if not (isinstance(a.payload, NoPayload) and isinstance(b.payload, NoPayload)):
            return None
        first, second = a.payload.digest(), b.payload.digest()
        return None if first is None or second is None else first == second
    ours, theirs = (_digest(a), _digest(b)) if content == "full" else (_sample(a, salt), _sample(b, salt))
    return None if ours is None or theirs is None else ours == theirs


def _digest(tensor: StoredTensor) -> bytes | None:
    hasher, count = hashlib.sha256(), 0
    for part in tensor.payload.parts():
        hasher.update(part.tobytes())
        count += part.size
    return hasher.digest() if count else None


def _sample(tensor: StoredTensor, salt: str) -> bytes | None:
    found = tensor.payload.sample(salt)
    return None if found is None else found.tobytes()


def compare_wiring(a: Ledger, b: Ledger, pairs: Sequence[TensorPair]) -> WiringPair | None:
    """Compare the digests of the outputs of both models; the two tensors of a pair count as the same weight.

    Scales and zero points whose values were compared count as weights too: their pairs report the differences.

    A tensor without a pair is identified by its PyTorch name, if both files give names to all learned tensors. The
    result is None if a side is a saved report, is remote, or is too large for one pass.
    """
    is_named = all(_names_all_learned(side) for side in (a, b))
    labels: tuple[dict[Key, str], dict[Key, str]] = ({}, {})
    scales: tuple[set[Key], set[Key]] = (set(), set())
    for number, pair in enumerate(pairs):
        if pair.a is not None and pair.b is not None:
            moved = pair.line if pair.line in _MOVED else ""
            labels[0][pair.a.tensor.key] = f"pair {number}"
            labels[1][pair.b.tensor.key] = f"pair {number}{moved}"
            if pair.changed in ((), (Change.VALUES,)) and _are_equal_scales(pair) is not None:
                scales[0].add(pair.a.tensor.key)
                scales[1].add(pair.b.tensor.key)
    ours, theirs = (
        _fingerprint(side, side_labels, side_scales, is_named=is_named)
        for side, side_labels, side_scales in zip((a, b), labels, scales, strict=True)
    )
    if ours is None or theirs is None:
        return None
    if ours.outputs == theirs.outputs:
        return WiringPair(alike=True)
    return WiringPair(alike=False, first=ours.first_difference(theirs))


def _names_all_learned(ledger: Ledger) -> bool:
    """Whether each learned tensor has a PyTorch name."""
    return all(entry.sources for entry in ledger.entries if entry.role is Role.PARAMETER)


_SMALL = 64 << 10
"""Largest size in bytes of a constant that is compared by value."""


def _fingerprint(
    ledger: Ledger, labels: Mapping[Key, str], scales: Set[Key], *, is_named: bool
) -> Fingerprint | None:
    if ledger.live is None or ledger.model.traffic is not None:
        return None
    weights: dict[Key, str] = {}
    for entry in ledger.entries:
        label = labels.get(entry.copy_of or entry.tensor.key) or labels.get(entry.tensor.key)
        is_weight = entry.role in (Role.PARAMETER, Role.BUFFER)
        is_compared = label is not None and entry.tensor.nbytes > _SMALL  # large constants go by their pair
        if is_weight or is_compared or entry.tensor.key in scales:
            label = label or f"{entry.sources if is_named else ''}"
            weights[entry.tensor.key] = f"{entry.tensor.shape} {label}"
    try:
        return take_fingerprint(ledger.model, ledger.wiring, ledger.live, weights, ledger.traced_scopes)
    except ModelReadError:  # the file has changed since it was counted
        return None
