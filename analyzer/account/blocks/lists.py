"""Scopes of learned tensors -> numbered modules, such as `encoder.layer.0`: the blocks given by names.

A numbered module is a block if it holds several matrices, its siblings consist of the same modules, and all of them
hold most of the learned elements. If stages hold blocks, the blocks count: `stages.1.layers.0`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from analyzer.account.ledger import Entry, Role, natural_order
from analyzer.model.operators import Kind, operators_of
from analyzer.records import Mutable, field

Lists = tuple[tuple[str, ...], ...]
"""Numbered modules, grouped by their parent, in the order of the numbers."""

MOST = 0.5
"""Least share of the learned elements that all blocks hold together to count whatever structure finds."""

_MOST = 0.5
"""Least share of one child's modules that its sibling has too; of a stage that its blocks hold; of the surrounding
module that a block without siblings holds.
"""

_LEAST = 0.05
"""Least share of the elements of all lists for lists of one name: the layers of a small head are no blocks."""

_DEEPEST = 32
"""Most parts of a scope that are used."""

_NUMBERED = re.compile(r"(.*?)(\d{1,9})")
_TABLES = operators_of(Kind.LOOKS_UP)


class _Module(Mutable):
    """A module, and the learned tensors in it and below."""

    path: str
    depth: int
    elements: int = 0
    matrices: int = 0
    """Number of modules that hold a matrix, itself included."""
    own: list[str] = field(default_factory=list)
    """Shapes of the learned tensors that it holds itself."""
    children: dict[str, _Module] = field(default_factory=dict)

    def below(self) -> Iterator[_Module]:
        """Yield this module and all modules in it."""
        waiting = [self]
        while waiting:
            module = waiting.pop()
            yield module
            waiting.extend(reversed(module.children.values()))

    @property
    def is_of_parts(self) -> bool:
        """Whether the modules in it hold its matrices, and it has none of its own."""
        return bool(self.children) and not any("x" in shape for shape in self.own)

    def kinds(self) -> frozenset[str]:
        """Return the modules in it that hold tensors, by their paths relative to it."""
        return frozenset(module.path[len(self.path) :] for module in self.below() if module.own)

    def form(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return these modules with the shapes that each holds: equal for modules that repeat each other."""
        return tuple(sorted((m.path[len(self.path) :], tuple(sorted(m.own))) for m in self.below() if m.own))


def has_matrix(entry: Entry) -> bool:
    """Whether a learned tensor mixes channels: several of its axes have more than one element, or it is packed."""
    return sum(map((1).__lt__, entry.tensor.shape)) > 1 or entry.logical_numel > entry.tensor.numel


class Numbered(NamedTuple):
    """Numbered modules that may be blocks."""

    lists: Lists
    """Lists sorted by the name of their parent; empty if names do not give blocks."""
    elements: int
    """Learned elements that they hold together."""
    whole: int
    """Learned elements of the whole model."""
    least: float
    """Least share of these that they must hold to be blocks."""

    def at(self, share: float) -> Lists:
        """Return the blocks, if they hold this share of the learned elements; else nothing."""
        return self.lists if self.elements >= max(share, self.least) * self.whole else ()


def find_lists(entries: Iterable[Entry]) -> Numbered:
    """Find the numbered modules that may be blocks in the entries of the whole model.

    Tables that are looked up, such as embeddings, do not count: a vocabulary is larger than the layers of a small
    model.
    """
    learned = [entry for entry in entries if entry.role is Role.PARAMETER and entry.logical_numel]
    learned = [entry for entry in learned if entry.read_by not in _TABLES]
    root = _tree(entry for entry in learned if entry.has_scope)
    found = _with_small(_without_single(list(_lists(root)), root), root)
    least = 0.0
    if not found:
        least = MOST
        found = [members for members in _lists(root, 1) if len(members) > 1]
    totals: Counter[str] = Counter()
    for members in found:
        totals[_pattern(members[0])] += sum(member.elements for member in members)
    kept = {pattern for pattern, elements in totals.items() if elements >= _LEAST * totals.total()}
    found = [members for members in found if _pattern(members[0]) in kept]
    found.sort(key=lambda members: natural_order(members[0].path))
    lists = tuple(tuple(member.path for member in members) for members in found)
    return Numbered(
        () if _are_ambiguous(lists) else lists,
        sum(totals[pattern] for pattern in kept),
        sum(entry.logical_numel for entry in learned),
        least,
    )


def _are_ambiguous(lists: Lists) -> bool:
    """Whether some names have an additional root module: then they do not tell which block holds a tensor."""
    firsts = {members[0] for members in lists}
    return any(one[dot.end() :] in firsts for one in firsts for dot in re.finditer(r"\.", one))


def _tree(entries: Iterable[Entry]) -> _Module:
    root = _Module("", 0)
    chains: dict[str, list[_Module]] = {"": [root]}
    """Paths of modules around those that hold tensors, which are fewer."""
    known: dict[tuple[tuple[int, ...], int, int], tuple[bool, str]] = {}
    """Cache by shape: whether a tensor is a matrix, and its text. Most tensors have one of few shapes."""
    for entry in entries:
        scope, tensor, elements = entry.scope, entry.tensor, entry.logical_numel
        parent, dot, last = scope.rpartition(".")
        chain = chains.get(parent)
        if chain is None:
            chain = chains[parent] = _open_modules(root, parent)
        if scope and (parent or not dot) and len(chain) <= _DEEPEST:
            holder = chain[-1]
            module = holder.children.get(last)
            if module is None:
                path = f"{holder.path}.{last}" if holder.path else last
                module = holder.children[last] = _Module(path, len(chain))
        else:
            chain = _open_modules(root, scope)
            module = chain.pop()
        size = (tensor.shape, elements, tensor.numel)
        described = known.get(size)
        if described is None:
            is_matrix = has_matrix(entry)
            sizes = sorted(size for size in tensor.shape if size > 1) if is_matrix else ()
            described = known[size] = is_matrix, "x".join(map(str, sizes)) or str(elements)
        is_matrix, shape = described
        own = module.own
        is_first = is_matrix and not (own and any("x" in shape for shape in own))
        module.elements += elements
        module.matrices += is_first
        for around in chain:
            around.elements += elements
            around.matrices += is_first
        own.append(shape)
    return root


def _open_modules(root: _Module, scope: str) -> list[_Module]:
    """Return the modules from the root to a scope; missing ones are created."""
    module, chain = root, [root]
    for number, part in enumerate(scope.split(".", _DEEPEST)[:_DEEPEST] if scope else (), 1):
        below = module.children.get(part)
        if below is None:
            below = _Module(f"{module.path}.{part}" if module.path else part, number)
            module.children[part] = below
        module = below
        chain.append(module)
    return chain


def _lists(module: _Module, least: int = 2) -> Iterator[list[_Module]]:
    """Yield the lists in a module, the outermost of each; for stages, the lists in them.

    Args:
        module: module to search.
        least: fewest matrices of a member; with one, a member must contain modules, and not be a linear map itself.
    """
    inside: set[str] = set()
    for members in _siblings(module, least):
        stages = [_stage(member) for member in members]
        if _are_stages(members, stages):
            yield from (found for lists in stages for found in lists)
        else:
            yield members
        inside.update(member.path for member in members)
    for child in module.children.values():
        if child.children and child.path not in inside:
            yield from _lists(child, least)


def _siblings(module: _Module, least: int = 2) -> list[list[_Module]]:
    """Return its numbered children that consist of the same modules, with several matrices each, grouped by stem."""
    if not module.children:
        return []
    is_stage = _NUMBERED.fullmatch(module.path.rpartition(".")[2]) is not None
    by_stem: dict[str, list[tuple[int, _Module]]] = defaultdict(list)
    for name, child in module.children.items():
        if child.matrices < least or not (least > 1 or child.is_of_parts):
            continue
        if (match := _NUMBERED.fullmatch(name)) is not None:
            by_stem[match[1]].append((int(match[2]), child))
    found = []
    for stem, numbered in by_stem.items():
        if stem and len(numbered) < 2 and not is_stage:  # the digit is part of a word: `wav2vec2`
            continue
        children = [child for _, child in sorted(numbered, key=lambda pair: pair[0])]
        kinds = [child.kinds() for child in children]
        known = Counter(kinds)
        alike = [
            child
            for child, own in zip(children, kinds, strict=True)
            if len(children) == 1 or known[own] > 1 or any(_are_alike(own, k) for k in known if k != own)
        ]
        if alike:
            found.append(alike)
    return found


def _are_alike(one: frozenset[str], two: frozenset[str]) -> bool:
    return len(one & two) >= _MOST * min(len(one), len(two))


def _stage(module: _Module) -> list[list[_Module]]:
    """Return the lists that make up most of a module: its own, or else those of one of its children."""
    for places in ([module], module.children.values()):
        found = [
            members
            for place in places
            for members in _siblings(place)
            if sum(member.elements for member in members) >= _MOST * module.elements
        ]
        if found:
            return found
    return []


def _are_stages(members: Sequence[_Module], stages: Sequence[list[list[_Module]]]) -> bool:
    """Whether these modules contain blocks, and no two are equal: equal modules repeat each other, and are blocks."""
    if not all(stages):
        return False
    forms = Counter(member.form() for member in members)
    return max(forms.values()) == 1


def _without_single(found: Sequence[list[_Module]], root: _Module) -> list[list[_Module]]:
    """Return the lists without single modules, unless these are numbered and together most of the surrounding module.

    A stage may have one block if other stages have blocks under the same name.
    """
    patterns = Counter(_pattern(members[0]) for members in found)
    single = [members[0] for members in found if len(members) == 1 and patterns[_pattern(members[0])] == 1]
    numbered = [module for module in single if module.path.rpartition(".")[2].isdecimal()]
    totals: Counter[str] = Counter()
    for module in numbered:
        totals[_around(module)] += module.elements
    dropped = {module.path for module in single}
    for module in numbered:
        around = root
        for part in filter(None, _around(module).split(".")):
            around = around.children[part]
        if totals[around.path] >= _MOST * around.elements:
            dropped.discard(module.path)
    return [members for members in found if members[0].path not in dropped]


def _around(module: _Module) -> str:
    """Return the parent of a numbered module's parent."""
    return ".".join(module.path.split(".")[:-2])


def _with_small(found: Sequence[list[_Module]], root: _Module) -> list[list[_Module]]:
    """Return the lists with blocks of stages that hold a single matrix, such as the first of an EfficientNet.

    They are numbered like blocks of other stages, and contain modules: a convolution followed by its norm, as siblings,
    is numbered alike and is not a block.
    """
    if not found:
        return []
    patterns = {_pattern(members[0]) for members in found}
    known = {member.path for members in found for member in members}
    around = {path.rpartition(".")[0] for path in known}
    more: dict[str, list[_Module]] = defaultdict(list)
    for module in root.below():
        parent, _, name = module.path.rpartition(".")
        is_of_stage = _NUMBERED.fullmatch(parent.rpartition(".")[2]) is not None
        if not is_of_stage or _NUMBERED.fullmatch(name) is None or module.path in known:
            continue
        if module.matrices and module.is_of_parts and _pattern(module) in patterns:
            more[parent].append(module)
    lists = [
        sorted(
            [*members, *more.pop(members[0].path.rpartition(".")[0], ())],
            key=lambda module: natural_order(module.path),
        )
        for members in found
    ]
    lists += [members for parent, members in more.items() if parent not in around]
    return lists


def _pattern(module: _Module) -> str:
    return re.sub(r"\d+", "#", module.path)
