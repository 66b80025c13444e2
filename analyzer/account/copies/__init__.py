"""Entries -> entries marked as copies of others: identical, transposed or in another type.

The file alone distinguishes a tensor stored twice from two tensors. Same-shaped or transposed candidates are compared
at a few fixed positions first; the whole content is compared if these agree. Constant-filled tensors are copies only if
their names say so (equal zero biases are different parameters), and two PyTorch names in one file are two tensors. This
module compares tensors of one type, which must be equal; a list without a name, such as a Constant's `value_floats`,
has no shape of its own and may hold a tensor of any shape. `likeness` compares different types. With several files,
`duplicates` finds tensors that are one without reading their content.
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
from analyzer.read.payload import sample_together
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

    The original is the one with a PyTorch name, else the most exact, else the first in file order. `progress` is called
    with the number of candidates done; `salt` selects the elements that are compared first. If contents are not read,
    only entries that several components of an artifact share, by their location or their name, are marked.
    """
    plainly_named = (
        entries if content == "none" or len(model.parts) > 1 else tuple(_without_tool_names(entries))
    )
    names = Names(model, plainly_named)
    found = find_shared(plainly_named, names)
    if content != "none":
        found = _find_contents(found, names, wiring, progress, salt)
        found = _find_flat(found, names, wiring, salt)
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
"""Names that onnxruntime-genai gives to inputs of its own nodes: `lm_head.MatMul.weight`, also for a tied head."""

_NUMBERED_BIAS = re.compile(r"(.+\.bias\w*?)\d+")
"""Names that onnxruntime's quantizers give to the codes of a bias when they store it again for a second reader."""

_FUSED = re.compile(r"Conv(?:Bn|Mul|Add)Fusion_(?:BN_B|W|B|Mul_B|Add_B)_(.+?)(?:_token_\d+)?")
"""Names that onnxruntime gives a weight or bias after folding a norm, factor or bias into it, once for each reader."""


def _may_be_of_tool(sources: Iterable[str]) -> bool:
    """Whether any of these names has a mark that tools leave."""
    return any("/" in name or ".MatMul" in name or name.startswith("Conv") for name in sources)


def _without_tool_names(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the entries under names of PyTorch's modules: without a tool's prefix or number, and without node names."""
    known = {source for entry in entries for source in entry.sources}
    for entry in entries:
        is_code = entry.tensor.dtype is DType.INT32
        if not is_code and not _may_be_of_tool(entry.sources):
            yield entry  # nearly all
            continue
        sources = []
        for source in entry.sources or ((float_name(entry.tensor.name),) if is_code else ()):
            if is_code:
                match = _NUMBERED_BIAS.fullmatch(source)
            else:
                match = _FUSED.fullmatch(source) if source.startswith("Conv") else None
            name = (
                match[1]
                if match is not None and (not is_code or match[1] in known)
                else source.rpartition("/")[2]
            )
            is_node = ".MatMul" in name and _NODE.fullmatch(name) is not None
            if not is_node and (entry.sources or match is not None):
                sources.append(name)
        stripped = tuple(sources)
        yield entry if stripped == entry.sources else replace(entry, sources=stripped)


def _count_rows_once(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Count each row once if an exporter gathered or repeated rows of a table, however often it is stored."""
    found = list(entries)
    for index, entry in enumerate(entries):
        shape = entry.tensor.shape
        if entry.decided_by == "provenance:folded-with" and entry.copy_of is None and len(shape) > 1:
            array = entry.tensor.payload.array()
            if array is not None and array.size:
                axes = {len(shape) - 1}
                if sum(dim > 1 for dim in shape) > 2 and entry.tensor.dtype.is_floating:
                    # A matrix of rows may have been transposed so that the row comes first.
                    axes.update(axis for axis, dim in enumerate(shape) if dim > 1)
                count = min(_count_different(np.moveaxis(array, axis, -1)) for axis in axes)
                found[index] = replace(entry, parameters=min(count, entry.parameters))
    return tuple(found)


def _count_different(array: Array) -> int:
    """Count the elements of a table's distinct rows; the rows are along the last axis."""
    rows = np.ascontiguousarray(array).reshape(-1, array.shape[-1])
    # Constant rows say nothing: two rows of zeros may be different rows.
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
    either_orientation = functools.cache(either_way)  # most tensors have one of few shapes
    for entry in entries:
        tensor = entry.tensor
        if tensor.numel > 1 and entry.role is Role.PARAMETER and entry.copy_of is None:
            groups[tensor.dtype, either_orientation(tensor.shape)].append(entry)
    candidates = [group for group in groups.values() if _may_hold_copies(group, names)]
    total = sum(map(len, candidates))
    decided: dict[Key, Entry] = {}
    done = 0
    for group in candidates:
        originals = _Originals(names, wiring)
        # Named entries come first: they are the originals of the others.
        ordered = sorted(group, key=lambda entry: not entry.sources)
        for start in range(0, len(ordered), _TOGETHER):
            batch = ordered[start : start + _TOGETHER]
            for entry, straight, turned in _sample_both_orientations(batch, salt):
                copy = originals.match(entry, straight, turned)
                if copy is not None:
                    decided[entry.tensor.key] = copy
                done += 1
                if progress is not None:
                    progress(done, total)
    if not decided:
        return tuple(entries)
    return tuple(decided.get(entry.tensor.key, entry) for entry in entries)


def _find_flat(entries: Sequence[Entry], names: Names, wiring: Wiring, salt: str) -> tuple[Entry, ...]:
    """Mark each long vector without a name that holds the elements of a tensor of more axes, in their order."""
    left = [
        entry
        for entry in entries
        if entry.role is Role.PARAMETER and entry.copy_of is None and entry.tensor.numel >= _LEAST_FLAT
    ]
    flat = [entry for entry in left if len(entry.tensor.shape) == 1 and not entry.sources]
    sizes = {(entry.tensor.dtype, entry.tensor.numel) for entry in flat}
    others: dict[tuple[DType, int], list[Entry]] = defaultdict(list)
    for entry in left if flat else ():
        if len(entry.tensor.shape) > 1 and (entry.tensor.dtype, entry.tensor.numel) in sizes:
            others[entry.tensor.dtype, entry.tensor.numel].append(entry)
    decided: dict[Key, Entry] = {}
    for entry in flat:
        tensor = entry.tensor
        candidates = others.get((tensor.dtype, tensor.numel), ())
        few = tensor.payload.at(sample_positions(tensor.numel, salt=salt)) if candidates else None
        if few is None or find_encoding(tensor, wiring) is not None:
            continue
        for other in candidates:
            samples = other.tensor.payload.at(sample_positions(tensor.numel, salt=salt))
            if samples is None or samples.tobytes() != few.tobytes():
                continue
            array, content = tensor.payload.array(), other.tensor.payload.array()
            if array is None or content is None or is_constant_filled(array):
                continue
            if digest(content.reshape(-1)) == digest(array) and find_encoding(other.tensor, wiring) is None:
                rule = "duplicated-file" if names.are_apart(entry, other) else "copy"
                decided[tensor.key] = copy_of(entry, other, f"content:{rule}")
                break
    return tuple(decided.get(entry.tensor.key, entry) for entry in entries) if decided else tuple(entries)


_LEAST_FLAT = 64
"""Fewest elements of a vector that may hold a tensor of another shape."""

_TOGETHER = 1 << 10
"""Tensors whose samples are held in memory at once."""


def _sample_both_orientations(
    entries: Sequence[Entry], salt: str
) -> Iterator[tuple[Entry, Array | None, Array | None]]:
    """Yield samples of each tensor, and for a matrix also the elements at the same positions of its transpose."""
    straight = functools.cache(functools.partial(sample_positions, salt=salt))
    turned = functools.cache(functools.partial(transposed_positions, salt=salt))
    first = sample_together([(entry.tensor.payload, straight(entry.tensor.numel)) for entry in entries])
    matrices = [entry for entry in entries if len(entry.tensor.shape) == 2]
    second = iter(sample_together([(each.tensor.payload, turned(*each.tensor.shape)) for each in matrices]))
    for entry, samples in zip(entries, first, strict=True):
        yield entry, samples, next(second) if len(entry.tensor.shape) == 2 else None


def _may_hold_copies(group: Sequence[Entry], names: Names) -> bool:
    """Whether any two entries of a group may be copies; in most files all tensors have names, and nothing is read."""
    sources = {entry.sources for entry in group if entry.sources}
    return len(group) > 1 and (len(sources) < len(group) or len(set(map(names.root, group))) > 1)


class _Originals:
    """Entries of one dtype and shape seen so far, by their samples."""

    def __init__(self, names: Names, wiring: Wiring) -> None:
        self._names = names
        self._wiring = wiring
        self._by_samples: dict[tuple[tuple[int, ...], bytes], _Alike] = {}

    def match(self, entry: Entry, straight: Array | None, turned: Array | None) -> Entry | None:
        """Return the entry as a copy of an original; None if it is an original itself, which is then remembered.

        Args:
            entry: the entry.
            straight: its samples; None if they cannot be read.
            turned: for a matrix, the elements at the same positions of its transpose.
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

    def _copy(self, entry: Entry, original: Entry, prefix: str) -> Entry:
        return copy_of(
            entry,
            original,
            prefix + ("duplicated-file" if self._names.are_apart(entry, original) else "copy"),
        )


class _Alike:
    """Originals that agree in shape and samples; each is read whole once, and only if a second one agrees."""

    def __init__(self, names: Names, wiring: Wiring) -> None:
        self._names = names
        self._wiring = wiring
        self._unread: list[Entry] = []
        self._by_content: dict[str, Same] = {}

    def add(self, entry: Entry) -> None:
        self._unread.append(entry)

    def find(self, entry: Entry, *, transposed: bool) -> Entry | None:
        """Return the original that an entry repeats; None for a constant-filled tensor."""
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
        """Return digests of the tensors that decode codes, since equal codes may be unequal numbers; "" for others."""
        encoded = find_encoding(entry.tensor, self._wiring)
        if encoded is None:
            return ""
        arrays = (companion.payload.array() for companion in encoded.companions)
        return "".join("?" if array is None else digest(array) for array in arrays)
