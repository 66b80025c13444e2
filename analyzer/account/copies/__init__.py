"""Entries -> entries that know which of them repeat another's content, as it stands, transposed or in another type.

The file alone tells a tensor stored twice from two tensors: a few fixed positions of same-shaped or transposed
candidates are compared first, then, for those that agree, the whole content. Constant-filled tensors are copies only by
their name (equal zero biases are different parameters), and two PyTorch names that one file holds are two tensors.
Tensors of one type must be equal; `likeness` compares others. Of several files, `duplicates` knows what is one without
a look at its content.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from analyzer.account.copies.duplicates import (
    Names,
    Same,
    copy_of,
    either_way,
    find_named,
    find_shared,
    follow,
)
from analyzer.account.copies.likeness import find_alike
from analyzer.account.decoding.encodings import find_encoding
from analyzer.account.ledger import Entry, Role
from analyzer.account.scopes import float_name
from analyzer.model import Key, Model
from analyzer.model.content import (
    Array,
    ContentMode,
    digest,
    digest_transposed,
    is_constant_filled,
    row_digests,
    sample_positions,
    transposed_positions,
)
from analyzer.model.dtypes import DType
from analyzer.model.wiring import Wiring
from analyzer.read.payload import look_together
from analyzer.records import replace

__all__ = ["find_copies"]


def find_copies(
    model: Model,
    entries: Sequence[Entry],
    wiring: Wiring,
    content: ContentMode,
    progress: Callable[[int, int], None] | None = None,
    salt: str = "",
) -> tuple[Entry, ...]:
    """Mark each learned entry that repeats another; it then counts no parameters.

    The original is the one with a PyTorch name, else the most exact, else the first in file order. `progress` is told
    how many of the candidates are done; `salt` picks the elements that are looked at first. Where contents are not
    looked at, only what several components of an artifact both have is marked, by its place or its name.
    """
    called = entries if content == "none" or len(model.parts) > 1 else tuple(_without_tools(entries))
    names = Names(model, called)
    found = find_shared(called, names)
    if content != "none":
        found = _find_contents(found, names, wiring, progress, salt)
        found = find_alike(found, names, wiring, progress, salt)
        found = _count_rows_once(found)
    found = follow(find_named(found, names, content))
    return tuple(
        after
        if after is before or after.sources == before.sources
        else replace(after, sources=before.sources)
        for after, before in zip(found, entries, strict=True)
    )


_NODE = re.compile(r".+\.MatMul(?:NBits)?\.\w+")
"""How onnxruntime-genai calls what a node of its own reads: `lm_head.MatMul.weight`, also of a tied head."""

_NUMBERED_BIAS = re.compile(r"(.+\.bias\w*?)\d+")
"""How onnxruntime's quantizers call the codes of a bias that they write once more, for its second reader."""

_FUSED = re.compile(r"Conv(?:Bn|Mul|Add)Fusion_(?:BN_B|W|B|Mul_B|Add_B)_(.+?)(?:_token_\d+)?")
"""How onnxruntime calls a weight or a bias that it has put a norm, a factor or a bias into, once for each reader."""


def _may_be_of_tool(sources: Iterable[str]) -> bool:
    """Whether any of these names has something that tools leave in one."""
    return any("/" in name or ".MatMul" in name or name.startswith("Conv") for name in sources)


def _without_tools(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The same, under the names that PyTorch's module has: without a tool's prefix or number; a node's is none."""
    known = {source for entry in entries for source in entry.sources}
    for entry in entries:
        is_code = entry.tensor.dtype is DType.INT32
        if not is_code and not _may_be_of_tool(entry.sources):
            yield entry  # nearly all
            continue
        sources = []
        for source in entry.sources or ((float_name(entry.tensor.name),) if is_code else ()):
            if is_code:
                again = _NUMBERED_BIAS.fullmatch(source)
            else:
                again = _FUSED.fullmatch(source) if source.startswith("Conv") else None
            name = (
                again[1]
                if again is not None and (not is_code or again[1] in known)
                else source.rpartition("/")[2]
            )
            is_node = ".MatMul" in name and _NODE.fullmatch(name) is not None
            if not is_node and (entry.sources or again is not None):
                sources.append(name)
        named = tuple(sources)
        yield entry if named == entry.sources else replace(entry, sources=named)


def _count_rows_once(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Where an exporter gathered or repeated rows of a table, each row counts once, however often it is stored."""
    found = list(entries)
    for index, entry in enumerate(entries):
        shape = entry.tensor.shape
        if entry.decided_by == "provenance:folded-with" and entry.copy_of is None and len(shape) > 1:
            array = entry.tensor.payload.array()
            if array is not None and array.size:
                axes = {len(shape) - 1}
                if sum(dim > 1 for dim in shape) > 2 and entry.tensor.dtype.is_floating:
                    # Of a matrix of rows, the row may have been put first.
                    axes.update(axis for axis, dim in enumerate(shape) if dim > 1)
                count = min(_count_different(np.moveaxis(array, axis, -1)) for axis in axes)
                found[index] = replace(entry, parameters=min(count, entry.parameters))
    return tuple(found)


def _count_different(array: Array) -> int:
    """Elements of the rows of a table that differ; the rows are along the last axis."""
    rows = np.ascontiguousarray(array).reshape(-1, array.shape[-1])
    # Rows of one number say nothing: two of zeros may be two.
    is_constant = (rows == rows[:, :1]).all(axis=1)
    different = np.unique(row_digests(rows[~is_constant])).size if not is_constant.all() else 0
    return int((different + int(is_constant.sum())) * rows.shape[1])


def _find_contents(
    entries: Sequence[Entry],
    names: Names,
    wiring: Wiring,
    progress: Callable[[int, int], None] | None,
    salt: str,
) -> tuple[Entry, ...]:
    groups: dict[tuple[DType, tuple[int, ...]], list[Entry]] = defaultdict(list)
    ways = functools.cache(either_way)  # most tensors are of few shapes
    for entry in entries:
        tensor = entry.tensor
        if tensor.numel > 1 and entry.role is Role.PARAMETER and entry.copy_of is None:
            groups[tensor.dtype, ways(tensor.shape)].append(entry)
    candidates = [group for group in groups.values() if _may_hold_copies(group, names)]
    total = sum(map(len, candidates))
    decided: dict[Key, Entry] = {}
    done = 0
    for group in candidates:
        originals = _Originals(names, wiring)
        # Named entries first: they are what the others are copies of.
        ordered = sorted(group, key=lambda entry: not entry.sources)
        for start in range(0, len(ordered), _TOGETHER):
            batch = ordered[start : start + _TOGETHER]
            for entry, straight, turned in _look_both_ways(batch, salt):
                copy = originals.match(entry, straight, turned)
                if copy is not None:
                    decided[entry.tensor.key] = copy
                done += 1
                if progress is not None:
                    progress(done, total)
    if not decided:
        return tuple(entries)
    return tuple(decided.get(entry.tensor.key, entry) for entry in entries)


_TOGETHER = 1 << 10
"""Tensors of which a few elements are held at once."""


def _look_both_ways(
    entries: Sequence[Entry], salt: str
) -> Iterator[tuple[Entry, Array | None, Array | None]]:
    """A few elements of each tensor, and of a matrix those that stand in the same places of its transpose."""
    straight = functools.cache(functools.partial(sample_positions, salt=salt))
    turned = functools.cache(functools.partial(transposed_positions, salt=salt))
    first = look_together([(entry.tensor.payload, straight(entry.tensor.numel)) for entry in entries])
    matrices = [entry for entry in entries if len(entry.tensor.shape) == 2]
    second = iter(look_together([(each.tensor.payload, turned(*each.tensor.shape)) for each in matrices]))
    for entry, few in zip(entries, first, strict=True):
        yield entry, few, next(second) if len(entry.tensor.shape) == 2 else None


def _may_hold_copies(group: Sequence[Entry], names: Names) -> bool:
    """Whether any two of a group may be copies at all; most files name every tensor, and nothing need be read."""
    sources = {entry.sources for entry in group if entry.sources}
    return len(group) > 1 and (len(sources) < len(group) or len(set(map(names.root, group))) > 1)


class _Originals:
    """The entries of one dtype and shape met so far, by a few of their elements."""

    def __init__(self, names: Names, wiring: Wiring) -> None:
        self._names = names
        self._wiring = wiring
        self._by_samples: dict[tuple[tuple[int, ...], bytes], _Alike] = {}

    def match(self, entry: Entry, straight: Array | None, turned: Array | None) -> Entry | None:
        """The entry as a copy of an original; None where it is an original itself, which is then remembered.

        Args:
            entry: the entry.
            straight: a few of its elements; None where they cannot be read.
            turned: of a matrix, those in the same places of its transpose.
        """
        tensor = entry.tensor
        if straight is None:
            return None
        key = (tensor.shape, straight.tobytes())
        if key in self._by_samples:
            original = self._by_samples[key].find(entry, transposed=False)
            if original is not None:
                return self._copy(entry, original, "content:")
        alike = None if turned is None else self._by_samples.get((tensor.shape[::-1], turned.tobytes()))
        original = None if alike is None else alike.find(entry, transposed=True)
        if original is not None:
            return self._copy(entry, original, "content:transposed-")
        self._by_samples.setdefault(key, _Alike(self._names, self._wiring)).add(entry)
        return None

    def _copy(self, entry: Entry, original: Entry, how: str) -> Entry:
        return copy_of(
            entry, original, how + ("duplicated-file" if self._names.are_apart(entry, original) else "copy")
        )


class _Alike:
    """Originals that agree in shape and samples; the whole content of each is read once, and only for company."""

    def __init__(self, names: Names, wiring: Wiring) -> None:
        self._names = names
        self._wiring = wiring
        self._unread: list[Entry] = []
        self._by_content: dict[str, Same] = {}

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
                key = digest(content) + self._scales(original)
                self._by_content.setdefault(key, Same(self._names)).add(original)
        self._unread.clear()
        key = digest_transposed(array) if transposed else digest(array)
        same = self._by_content.get(key + self._scales(entry))
        return None if same is None else same.find(entry)

    def _scales(self, entry: Entry) -> str:
        """What decodes codes, without which equal ones are no equal numbers; "" of all others."""
        encoded = find_encoding(entry.tensor, self._wiring)
        if encoded is None:
            return ""
        arrays = (companion.payload.array() for companion in encoded.companions)
        return "".join("?" if array is None else digest(array) for array in arrays)
