"""Entries -> entries that know which of them repeat another's content, as it stands or transposed.

The file alone tells a tensor stored twice from two tensors: a few fixed positions of same-shaped or transposed
candidates are compared first, then, for those that agree, the whole content. Constant-filled tensors are never
copies (equal zero biases are different parameters), nor are two that each have a PyTorch name of their own.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence

from analyzer.content import digest, digest_transposed, is_constant_filled, transposed_positions
from analyzer.dtypes import DType
from analyzer.ledger import Entry, Role

__all__ = ["find_copies"]


def find_copies(
    entries: Sequence[Entry], progress: Callable[[int, int], None] | None = None
) -> tuple[Entry, ...]:
    """Mark each learned entry that repeats an earlier one; it then counts no parameters.

    The original is the one with a PyTorch name, else the first in file order. `progress` is told how many of the
    candidates are done.
    """
    groups: dict[tuple[DType, tuple[int, ...]], list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.role is Role.PARAMETER and entry.tensor.numel > 1:
            groups[entry.tensor.dtype, _either_way(entry.tensor.shape)].append(entry)
    candidates = [group for group in groups.values() if _may_hold_copies(group)]
    total = sum(map(len, candidates))
    decided: dict[int, Entry] = {}
    done = 0
    for group in candidates:
        originals = _Originals()
        # Named entries first: they are what the others are copies of.
        for entry in sorted(group, key=lambda entry: not entry.sources):
            copy = originals.match(entry)
            if copy is not None:
                decided[id(entry)] = copy
            done += 1
            if progress is not None:
                progress(done, total)
    return tuple(decided.get(id(entry), entry) for entry in entries)


def _either_way(shape: tuple[int, ...]) -> tuple[int, ...]:
    """One shape for a matrix and its transpose."""
    return min(shape, shape[::-1]) if len(shape) == 2 else shape


def _may_hold_copies(group: Sequence[Entry]) -> bool:
    """Whether any two of a group may be copies at all; most files name every tensor, and nothing need be read."""
    sources = {entry.sources for entry in group if entry.sources}
    return len(group) > 1 and len(sources) < len(group)


class _Originals:
    """The entries of one dtype and shape met so far, by a few of their elements."""

    def __init__(self) -> None:
        self._by_samples: dict[tuple[tuple[int, ...], bytes], _Alike] = {}

    def match(self, entry: Entry) -> Entry | None:
        """The entry as a copy of an original; None where it is an original itself, which is then remembered."""
        tensor = entry.tensor
        straight = tensor.payload.sample()
        if straight is None:
            return None
        key = (tensor.shape, straight.tobytes())
        if key in self._by_samples:
            original = self._by_samples[key].find(entry, transposed=False)
            if original is not None:
                return _copy(entry, original, "content:copy")
        if len(tensor.shape) == 2:
            turned = tensor.payload.at(transposed_positions(tensor.shape[0], tensor.shape[1]))
            alike = None if turned is None else self._by_samples.get((tensor.shape[::-1], turned.tobytes()))
            original = None if alike is None else alike.find(entry, transposed=True)
            if original is not None:
                return _copy(entry, original, "content:transposed-copy")
        self._by_samples.setdefault(key, _Alike()).add(entry)
        return None


class _Alike:
    """Originals that agree in shape and samples; the whole content of each is read once, and only for company."""

    def __init__(self) -> None:
        self._unread: list[Entry] = []
        self._by_content: dict[str, _Same] = {}

    def add(self, entry: Entry) -> None:
        self._unread.append(entry)

    def find(self, entry: Entry, *, transposed: bool) -> Entry | None:
        """The original that an entry repeats; what is constant-filled repeats none."""
        array = entry.tensor.payload.array()
        if array is None or is_constant_filled(array):
            return None
        for original in self._unread:
            content = original.tensor.payload.array()
            if content is not None and not is_constant_filled(content):
                self._by_content.setdefault(digest(content), _Same(original)).add(original)
        self._unread.clear()
        same = self._by_content.get(digest_transposed(array) if transposed else digest(array))
        return None if same is None else same.find(entry)


class _Same:
    """Originals of one content: several only where each has a PyTorch name of its own."""

    def __init__(self, first: Entry) -> None:
        self._first = first
        self._by_sources: dict[tuple[str, ...], Entry] = {}

    def add(self, entry: Entry) -> None:
        self._by_sources.setdefault(entry.sources, entry)

    def find(self, entry: Entry) -> Entry | None:
        """The original that an entry repeats; none where both have PyTorch names of their own: then they are two."""
        return self._by_sources.get(entry.sources) if entry.sources and self._first.sources else self._first


def _copy(entry: Entry, original: Entry, rule: str) -> Entry:
    return dataclasses.replace(entry, decided_by=rule, parameters=0, copy_of=original.tensor.key)
