"""Entries of several files or branches -> entries that are one parameter according to their location or their name.

Content alone does not decide this for every tensor: external data that two graphs refer to need not be read; a bias of
zeros is the same parameter in two files only if it has the same name there; and if contents are not read, only names
remain. Two names within one file are two parameters; `copies` applies that rule to several files too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from analyzer.account.ledger import Entry, Role
from analyzer.account.scopes import is_dotted
from analyzer.model import Extent, GraphPath, Key, Model
from analyzer.model.content import ContentMode, is_constant_filled
from analyzer.model.dtypes import DType
from analyzer.records import replace

_Sources = tuple[str, ...]


class Names:
    """Names of the learned tensors in each model file."""

    def __init__(self, model: Model, entries: Sequence[Entry]) -> None:
        self._model = model
        sources_by_root: dict[GraphPath, set[_Sources]] = defaultdict(set)
        for entry in entries:
            if entry.role is Role.PARAMETER and entry.sources:
                sources_by_root[self.root(entry)].add(entry.sources)
        self._sources_by_file = tuple(sources_by_root.values())
        self._main: set[GraphPath] = set()
        roots = {part.path for part in model.parts}
        for graph in model.graphs:
            if graph.path in roots or (graph.parent is not None and graph.parent[0] in self._main):
                self._main.add(graph.path)

    @property
    def has_several_files(self) -> bool:
        return len(self._model.parts) > 1

    def root(self, entry: Entry) -> GraphPath:
        """Return the component that holds an entry."""
        return self._model.root(entry.tensor.graph_path)

    def are_apart(self, a: Entry, b: Entry) -> bool:
        """Whether two entries are in different components."""
        return self.root(a) != self.root(b)

    def is_in_main(self, entry: Entry) -> bool:
        """Whether it is in a main graph or nested in one: names in a function are relative to its module."""
        return entry.tensor.graph_path in self._main

    def may_be_one(self, a: _Sources, b: _Sources) -> bool:
        """Whether two names may belong to one tensor: no file holds both."""
        return a == b or not any(a in known and b in known for known in self._sources_by_file)


class Same:
    """Originals of one content, with the PyTorch names that each has in any file.

    There are several only if their names say so. The first one added decides whether names count.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._originals: list[tuple[Entry, set[_Sources]]] = []
        self._by_sources: dict[_Sources, Entry] = {}
        self._by_root: dict[GraphPath, Entry] = {}
        self._tried: Counter[GraphPath] = Counter()
        """Number of originals already offered to new names of a component: each is offered only once, because the names
        of a component are all different tensors; a file may have a hundred thousand of them.
        """

    def add(self, entry: Entry) -> None:
        if entry.sources not in self._by_sources:
            self._originals.append((entry, {entry.sources}))
            self._by_sources[entry.sources] = entry
            self._by_root.setdefault(self._names.root(entry), entry)

    def find(self, entry: Entry) -> Entry | None:
        """Return the original that an entry repeats; None if its name makes it another tensor."""
        if not self._originals:
            return None
        first, root = self._originals[0][0], self._names.root(entry)
        if not entry.sources or not first.sources:
            return self._by_root.get(root, first)
        if entry.sources in self._by_sources:
            return self._by_sources[entry.sources]
        while self._tried[root] < len(self._originals):
            original, known = self._originals[self._tried[root]]
            self._tried[root] += 1
            if all(self._names.may_be_one(entry.sources, sources) for sources in known):
                known.add(entry.sources)
                self._by_sources[entry.sources] = original
                return original
        return None


def either_way(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the same shape for a matrix and its transpose."""
    return min(shape, shape[::-1]) if len(shape) == 2 else shape


def find_shared(entries: Sequence[Entry], names: Names) -> tuple[Entry, ...]:
    """Mark learned entries that several components share in one location: external data that is stored once."""
    groups: dict[tuple[Extent, DType, tuple[int, ...]], list[Entry]] = defaultdict(list)
    for entry in entries:
        tensor = entry.tensor
        if entry.role is Role.PARAMETER and tensor.extent is not None and tensor.extent.length:
            groups[tensor.extent, tensor.dtype, tensor.shape].append(entry)
    decided: dict[Key, Entry] = {}
    for group in groups.values():
        if len(group) > 1 and names.has_several_files:
            same = Same(names)
            for entry in sorted(group, key=lambda entry: not entry.sources):
                original = same.find(entry)
                if original is not None and names.are_apart(entry, original):
                    decided[entry.tensor.key] = copy_of(entry, original, "content:shared-data")
                else:
                    same.add(entry)
    return _with(entries, decided)


def find_named(entries: Sequence[Entry], names: Names, content: ContentMode) -> tuple[Entry, ...]:
    """Mark learned entries of equal PyTorch name that are one parameter, if their content alone cannot prove it.

    Their elements all have the same value in both; or, if contents are not read, they have equal dtype and shape in two
    components. Names say nothing between two components in which one name means two different tensors.
    """
    counts = Counter(entry.sources for entry in entries)
    by_sources: dict[_Sources, list[Entry]] = defaultdict(list)
    for entry in entries if len(counts) < len(entries) else ():
        if counts[entry.sources] < 2 or not entry.sources:
            continue  # nearly all
        if entry.role is Role.PARAMETER and entry.tensor.numel and names.is_in_main(entry):
            by_sources[entry.sources].append(entry)
    groups = [group for group in by_sources.values() if len(group) > 1]
    if not groups or (content == "none" and not names.has_several_files):
        return tuple(entries)
    values = _Values(content)
    conflicts = _Conflicts(groups, names, values)
    decided: dict[Key, Entry] = {}
    for group in groups:
        left = [entry for entry in group if entry.copy_of is None]
        match = _match_names if content == "none" else _match_values
        for entry, original in match(left, names, values):
            is_apart = names.are_apart(entry, original)
            if not is_apart or not conflicts.are_between(names.root(entry), names.root(original)):
                rule = f"{values.evidence}:{'duplicated-file' if is_apart else 'copy'}"
                decided[entry.tensor.key] = copy_of(entry, original, rule)
    return _with(entries, decided)


class _Values:
    """Values of constant-filled tensors; each is read once."""

    def __init__(self, content: ContentMode) -> None:
        self.evidence = "name" if content == "none" else "content"
        self._known: dict[Key, bytes | None] = {}

    def of(self, entry: Entry) -> bytes | None:
        """Return the bytes of the value; b"" for a tensor of several values; None if it cannot or must not be read."""
        if self.evidence == "name":
            return None
        if entry.tensor.key not in self._known:
            self._known[entry.tensor.key] = self._read(entry)
        return self._known[entry.tensor.key]

    def _read(self, entry: Entry) -> bytes | None:
        payload = entry.tensor.payload
        few = payload.sample()
        if few is None or not is_constant_filled(few):
            return None if few is None else b""
        array = payload.array()
        return None if array is None else few[:1].tobytes() if is_constant_filled(array) else b""


def _match_values(group: Sequence[Entry], names: Names, values: _Values) -> Iterator[tuple[Entry, Entry]]:
    """Yield entries of equal name and value in different graphs, each with the first such entry."""
    originals: dict[tuple[DType, tuple[int, ...], bytes], Entry] = {}
    for entry in group:
        value = values.of(entry)
        if value:
            original = originals.setdefault((entry.tensor.dtype, entry.tensor.shape, value), entry)
            if original.tensor.graph_path != entry.tensor.graph_path:
                yield entry, original


def _match_names(group: Sequence[Entry], names: Names, values: _Values) -> Iterator[tuple[Entry, Entry]]:
    """Yield entries of equal dotted name, dtype and shape, if no component has two of them."""
    alike: dict[tuple[DType, tuple[int, ...]], list[Entry]] = defaultdict(list)
    for entry in group:
        if all(map(is_dotted, entry.sources)):
            alike[entry.tensor.dtype, entry.tensor.shape].append(entry)
    for first, *others in alike.values():
        if len({names.root(entry) for entry in (first, *others)}) == len(others) + 1:
            yield from ((entry, first) for entry in others)


class _Conflicts:
    """Pairs of components that use one name for different tensors: then names do not prove that tensors are equal."""

    def __init__(self, groups: Sequence[Sequence[Entry]], names: Names, values: _Values) -> None:
        self._values = values
        self._unique: dict[GraphPath, dict[_Sources, Entry]] = defaultdict(dict)
        """Entries stored under their PyTorch name, as the only one in their component: tensors that were cut or folded
        differ between two files without being two.
        """
        self._known: dict[frozenset[GraphPath], bool] = {}
        for group in groups:
            whole = [entry for entry in group if entry.sources == (entry.tensor.name,)]
            times = Counter(map(names.root, whole))
            for entry in whole:
                if times[names.root(entry)] == 1:
                    self._unique[names.root(entry)][entry.sources] = entry

    def are_between(self, a: GraphPath, b: GraphPath) -> bool:
        pair = frozenset((a, b))
        if pair not in self._known:
            ours, theirs = self._unique[a], self._unique[b]
            common = (name for name in ours if name in theirs)
            self._known[pair] = any(_are_different(ours[name], theirs[name], self._values) for name in common)
        return self._known[pair]


def _are_different(a: Entry, b: Entry, values: _Values) -> bool:
    """Whether two entries are certainly not copies of one tensor; one of another dtype may be a cast."""
    if (a.copy_of or a.tensor.key) == (b.copy_of or b.tensor.key) or a.tensor.dtype is not b.tensor.dtype:
        return False
    if either_way(a.tensor.shape) != either_way(b.tensor.shape):
        return True
    first, second = values.of(a), values.of(b)
    return first is not None and second is not None and (first != second or not first)


def copy_of(entry: Entry, original: Entry, rule: str) -> Entry:
    """Return the entry as a copy, which counts no parameters."""
    return replace(entry, decided_by=rule, parameters=0, copy_of=original.tensor.key)


def follow(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Point copies of copies to the first original."""
    known = {entry.tensor.key: entry.copy_of for entry in entries if entry.copy_of is not None}
    if not known:
        return tuple(entries)

    def point_to_first(entry: Entry) -> Entry:
        original = entry.copy_of
        while original in known:
            original = known[original]
        return entry if original == entry.copy_of else replace(entry, copy_of=original)

    return tuple(map(point_to_first, entries))


def _with(entries: Sequence[Entry], decided: dict[Key, Entry]) -> tuple[Entry, ...]:
    if not decided:
        return tuple(entries)
    return tuple(decided.get(entry.tensor.key, entry) for entry in entries)
