"""Entries of several files, or of several branches -> those that are one parameter by their place or their name.

Content alone does not say it of every tensor: external data that two graphs refer to need not be read, a bias of zeros
is the same parameter in two files only if it has the same name there, and a name is all there is where contents are
not looked at. Within one file two names are two parameters; what `copies` finds in several files is held
against that too.
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
    """What each model file calls its learned tensors."""

    def __init__(self, model: Model, entries: Sequence[Entry]) -> None:
        self._model = model
        held: dict[GraphPath, set[_Sources]] = defaultdict(set)
        for entry in entries:
            if entry.role is Role.PARAMETER and entry.sources:
                held[self.root(entry)].add(entry.sources)
        self._held = tuple(held.values())
        self._main: set[GraphPath] = set()
        roots = {part.path for part in model.parts}
        for graph in model.graphs:
            if graph.path in roots or (graph.parent is not None and graph.parent[0] in self._main):
                self._main.add(graph.path)

    @property
    def has_several_files(self) -> bool:
        return len(self._model.parts) > 1

    def root(self, entry: Entry) -> GraphPath:
        """The component that an entry is in."""
        return self._model.root(entry.tensor.graph_path)

    def are_apart(self, a: Entry, b: Entry) -> bool:
        """Whether two entries are in different components."""
        return self.root(a) != self.root(b)

    def is_in_main(self, entry: Entry) -> bool:
        """Whether it is in a main graph or nested in one: a function's names are relative to what it was made of."""
        return entry.tensor.graph_path in self._main

    def may_be_one(self, a: _Sources, b: _Sources) -> bool:
        """Whether two names may be those of one tensor: no file holds both."""
        return a == b or not any(a in held and b in held for held in self._held)


class Same:
    """Originals of one content, under the PyTorch names that they have in any file.

    They are several only where their names say that they are. What is added first decides whether there are names.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._originals: list[tuple[Entry, set[_Sources]]] = []
        self._by_sources: dict[_Sources, Entry] = {}
        self._by_root: dict[GraphPath, Entry] = {}
        self._tried: Counter[GraphPath] = Counter()
        """How many originals were offered to other names of a component: each but once, as its names are all different
        tensors; and a file may have a hundred thousand of them."""

    def add(self, entry: Entry) -> None:
        if entry.sources not in self._by_sources:
            self._originals.append((entry, {entry.sources}))
            self._by_sources[entry.sources] = entry
            self._by_root.setdefault(self._names.root(entry), entry)

    def find(self, entry: Entry) -> Entry | None:
        """The original that an entry repeats; None where it has a name that makes it another tensor."""
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
    """One shape for a matrix and its transpose."""
    return min(shape, shape[::-1]) if len(shape) == 2 else shape


def find_shared(entries: Sequence[Entry], names: Names) -> tuple[Entry, ...]:
    """Mark learned entries that several components have in one place: external data that is stored once."""
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
    """Mark learned entries of the same PyTorch name that are one parameter, which no content of theirs could say.

    They are of one value throughout, the same in both; or, where contents are not looked at, of one dtype and shape in
    two components. The names of two components in which one of them means two different tensors say nothing.
    """
    told = Counter(entry.sources for entry in entries)
    named: dict[_Sources, list[Entry]] = defaultdict(list)
    for entry in entries if len(told) < len(entries) else ():
        if told[entry.sources] < 2 or not entry.sources:
            continue  # nearly all
        if entry.role is Role.PARAMETER and entry.tensor.numel and names.is_in_main(entry):
            named[entry.sources].append(entry)
    groups = [group for group in named.values() if len(group) > 1]
    if not groups or (content == "none" and not names.has_several_files):
        return tuple(entries)
    values = _Values(content)
    odds = _Odds(groups, names, values)
    decided: dict[Key, Entry] = {}
    for group in groups:
        left = [entry for entry in group if entry.copy_of is None]
        match = _match_names if content == "none" else _match_values
        for entry, original in match(left, names, values):
            is_apart = names.are_apart(entry, original)
            if not is_apart or not odds.are_between(names.root(entry), names.root(original)):
                rule = f"{values.evidence}:{'duplicated-file' if is_apart else 'copy'}"
                decided[entry.tensor.key] = copy_of(entry, original, rule)
    return _with(entries, decided)


class _Values:
    """The one value of tensors that have but one; read once."""

    def __init__(self, content: ContentMode) -> None:
        self.evidence = "name" if content == "none" else "content"
        self._known: dict[Key, bytes | None] = {}

    def of(self, entry: Entry) -> bytes | None:
        """Its bytes; none of a tensor of several values, and None where they cannot be had or are not asked for."""
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
    """Entries of one name and one value, each with the first such of another graph."""
    originals: dict[tuple[DType, tuple[int, ...], bytes], Entry] = {}
    for entry in group:
        value = values.of(entry)
        if value:
            original = originals.setdefault((entry.tensor.dtype, entry.tensor.shape, value), entry)
            if original.tensor.graph_path != entry.tensor.graph_path:
                yield entry, original


def _match_names(group: Sequence[Entry], names: Names, values: _Values) -> Iterator[tuple[Entry, Entry]]:
    """Entries of one dotted name, dtype and shape, where no component has two of them."""
    alike: dict[tuple[DType, tuple[int, ...]], list[Entry]] = defaultdict(list)
    for entry in group:
        if all(map(is_dotted, entry.sources)):
            alike[entry.tensor.dtype, entry.tensor.shape].append(entry)
    for first, *others in alike.values():
        if len({names.root(entry) for entry in (first, *others)}) == len(others) + 1:
            yield from ((entry, first) for entry in others)


class _Odds:
    """Whether two components call different tensors by one name: then each names its modules by itself."""

    def __init__(self, groups: Sequence[Sequence[Entry]], names: Names, values: _Values) -> None:
        self._values = values
        self._alone: dict[GraphPath, dict[_Sources, Entry]] = defaultdict(dict)
        """Entries that are stored under their PyTorch name, and no other of their component is: what was cut or folded
        differs in two files without being two."""
        self._known: dict[frozenset[GraphPath], bool] = {}
        for group in groups:
            whole = [entry for entry in group if entry.sources == (entry.tensor.name,)]
            times = Counter(map(names.root, whole))
            for entry in whole:
                if times[names.root(entry)] == 1:
                    self._alone[names.root(entry)][entry.sources] = entry

    def are_between(self, a: GraphPath, b: GraphPath) -> bool:
        pair = frozenset((a, b))
        if pair not in self._known:
            ours, theirs = self._alone[a], self._alone[b]
            common = (name for name in ours if name in theirs)
            self._known[pair] = any(_are_different(ours[name], theirs[name], self._values) for name in common)
        return self._known[pair]


def _are_different(a: Entry, b: Entry, values: _Values) -> bool:
    """Whether two entries are certainly no two copies of one tensor; one of another dtype may be a cast."""
    if (a.copy_of or a.tensor.key) == (b.copy_of or b.tensor.key) or a.tensor.dtype is not b.tensor.dtype:
        return False
    if either_way(a.tensor.shape) != either_way(b.tensor.shape):
        return True
    first, second = values.of(a), values.of(b)
    return first is not None and second is not None and (first != second or not first)


def copy_of(entry: Entry, original: Entry, rule: str) -> Entry:
    """The entry as a copy, which counts no parameters."""
    return replace(entry, decided_by=rule, parameters=0, copy_of=original.tensor.key)


def follow(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Copies of what is a copy itself, led to its original."""
    known = {entry.tensor.key: entry.copy_of for entry in entries if entry.copy_of is not None}
    if not known:
        return tuple(entries)

    def lead(entry: Entry) -> Entry:
        original = entry.copy_of
        while original in known:
            original = known[original]
        return entry if original == entry.copy_of else replace(entry, copy_of=original)

    return tuple(map(lead, entries))


def _with(entries: Sequence[Entry], decided: dict[Key, Entry]) -> tuple[Entry, ...]:
    if not decided:
        return tuple(entries)
    return tuple(decided.get(entry.tensor.key, entry) for entry in entries)
