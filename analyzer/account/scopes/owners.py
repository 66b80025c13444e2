"""Entries + what nodes tell -> the module that owns each entry: one ladder of rules, the strongest evidence first.

`docs/counting.md` has an example for each rung. The last, for what these leave without a scope, needs the model's
blocks: `analyzer.account.blocks.lend_scopes`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from analyzer.account.ledger import Entry, Role
from analyzer.account.scopes import common_scope, is_dotted, mangle, module_of
from analyzer.account.scopes.neighbours import BETWEEN, STRENGTH, agree, settle_nodes
from analyzer.account.scopes.paths import NodeScopes, Scope, tensor_path
from analyzer.model import Key, Model
from analyzer.model.dataflow import Dataflow
from analyzer.model.places import ByNode
from analyzer.model.wiring import Wiring
from analyzer.records import Frozen, field, replace

_WEAK = frozenset(STRENGTH[STRENGTH.index(BETWEEN) :])
"""Scopes of nodes that come from their neighbours' alone."""


class _Ground(Frozen):
    """What the rungs stand on."""

    flow: Dataflow
    decodes: Mapping[Key, Sequence[Key]]
    """For each scale or zero point, the codes that it belongs to."""
    mangled: Mapping[str, str]
    """Modules of the file as torch.export writes them in a placeholder's name, where a tensor has such a name."""
    nodes: dict[int, Scope] = field(default_factory=dict)
    settled: dict[Key, Scope] = field(default_factory=dict)
    read: dict[Key, Scope | None] = field(default_factory=dict)
    """What the readers of an entry agree on, once it has been asked."""

    def of_readers(self, entry: Entry) -> Scope | None:
        """What the nodes that read an entry agree on."""
        key = entry.tensor.key
        if key not in self.read:
            numbers = dict.fromkeys(number for number, _ in self.flow.reads(entry.tensor))
            is_owned = entry.role is Role.PARAMETER or entry.role is Role.BUFFER
            self.read[key] = agree((self.nodes.get(number) for number in numbers), is_owned=is_owned)
        return self.read[key]


def settle_scopes(
    model: Model,
    entries: Sequence[Entry],
    wiring: Wiring,
    flow: Dataflow,
    traced: NodeScopes,
    decodes: Mapping[Key, Sequence[Key]],
    modules: Iterable[str],
) -> tuple[tuple[Entry, ...], NodeScopes]:
    """Give every entry that anything tells the module of its scope; and the nodes that tell none, from neighbours.

    Args:
        model: the model.
        entries: what it stores, with copies known.
        wiring: who reads what.
        flow: what flows between the nodes.
        traced: what nodes say of themselves (`analyzer.account.scopes.paths.scope_nodes`).
        decodes: for each scale or zero point, the codes that it belongs to (`classify.find_companions`).
        modules: those that the names of tensors tell (`analyzer.account.scopes.known_modules`).

    Returns:
        The entries with `scope` and `scoped_by`; (scope, rule) of the nodes, those in `traced` included.
    """
    unscoped = [entry for entry in entries if not entry.has_scope]
    if not unscoped and None not in traced.in_order:
        return tuple(entries), traced
    mangled = _mangled_modules(modules) if any(map(_may_be_mangled, unscoped)) else {}
    ground = _Ground(flow, decodes, mangled)
    ground.settled.update(
        (entry.tensor.key, (entry.scope, entry.scoped_by)) for entry in entries if entry.has_scope
    )
    _climb(unscoped, NAMES, ground)
    told = {number: scope for number, scope in enumerate(traced.in_order) if scope is not None}
    found = settle_nodes(flow, wiring, entries, ground.settled, told)
    ground.nodes.update(told)
    ground.nodes.update(found)
    left = [entry for entry in unscoped if entry.tensor.key not in ground.settled]
    # A copy may take its original's scope, and a scale that of its codes, so these are settled first.
    rest = [entry for entry in left if entry.tensor.key not in decodes]
    _climb([entry for entry in rest if entry.copy_of is None], READERS, ground)
    _climb([entry for entry in rest if entry.copy_of is not None], READERS, ground)
    _climb([entry for entry in left if entry.tensor.key in decodes], READERS, ground)
    settled = tuple(
        entry if entry.has_scope else _told(entry, ground.settled.get(entry.tensor.key)) for entry in entries
    )
    return settled, ByNode(model, [ground.nodes.get(number) for number in range(len(flow.nodes))])


def _mangled_modules(modules: Iterable[str]) -> dict[str, str]:
    """Modules by their mangled names, where only one has that."""
    found: dict[str, str] = {}
    repeated: set[str] = set()
    for module in modules:
        mangled = mangle(module)
        if mangled in found:
            repeated.add(mangled)
        found[mangled] = module
    return {mangled: module for mangled, module in found.items() if mangled not in repeated}


def _told(entry: Entry, scope: Scope | None) -> Entry:
    if scope is None or scope == (entry.scope, entry.scoped_by):
        return entry
    return replace(entry, scope=scope[0], scoped_by=scope[1])


def _climb(entries: Iterable[Entry], rungs: Sequence[_Rung], ground: _Ground) -> None:
    """Give each entry the scope that the first rung has for it."""
    for entry in entries:
        for rung in rungs:
            scope = rung(entry, ground)
            if scope is not None:
                ground.settled[entry.tensor.key] = scope
                break


def _by_dotted_name(entry: Entry, ground: _Ground) -> Scope | None:
    """A dotted name, whatever the tensor is."""
    tensor = entry.tensor
    return (module_of(tensor.name), "name:dotted") if is_dotted(tensor.name) and tensor.node is None else None


def _by_path(entry: Entry, ground: _Ground) -> Scope | None:
    """A name that is a path. Equal constants are merged under the first one's name, so theirs tells nothing."""
    tensor = entry.tensor
    if entry.role is Role.CONSTANT or tensor.node is not None:
        return None
    path = tensor_path(tensor.name)
    return None if path is None else (path, "name:path")


_PLACEHOLDER = re.compile(r"[pb]_(\w{1,512}?)(?:::\w+)?")


def _may_be_mangled(entry: Entry) -> bool:
    return entry.tensor.name.startswith(("p_", "b_"))


def _by_mangled_name(entry: Entry, ground: _Ground) -> Scope | None:
    """A placeholder's name, `p_model_layers_0_mlp_weight`, as far as it is that of a module known otherwise."""
    name = entry.tensor.name
    placeholder = _PLACEHOLDER.fullmatch(name) if _may_be_mangled(entry) else None
    name = placeholder[1] if placeholder else ""
    while name:
        name = name.rpartition("_")[0]
        if name in ground.mangled:
            return ground.mangled[name], "name:mangled"
    return None


def _by_codes(entry: Entry, ground: _Ground) -> Scope | None:
    """A scale or a zero point is where the codes are that it belongs to."""
    codes = [ground.settled.get(key) for key in ground.decodes.get(entry.tensor.key, ())]
    scopes = [scope for scope, _ in filter(None, codes)]
    return (common_scope(scopes), "structure:scale") if codes and len(scopes) == len(codes) else None


def _by_readers(entry: Entry, ground: _Ground) -> Scope | None:
    """The nodes that read it, by what the strongest of their evidence says (`scopes.neighbours.STRENGTH`)."""
    found = ground.of_readers(entry)
    return found if found is not None and found[1] not in _WEAK else None


def _by_copy(entry: Entry, ground: _Ground) -> Scope | None:
    """Where the tensor is that it repeats."""
    original = ground.settled.get(entry.copy_of) if entry.copy_of is not None else None
    return None if original is None else (original[0], "content:copy")


def _by_neighbours(entry: Entry, ground: _Ground) -> Scope | None:
    """The place between others of the nodes that read it, if every one of them has one."""
    return ground.of_readers(entry)


_Rung = Callable[[Entry, _Ground], Scope | None]

NAMES: tuple[_Rung, ...] = (_by_dotted_name, _by_path, _by_mangled_name)
"""Rungs that look at the tensor alone, where neither the exporter's note nor its own PyTorch name has given it a scope
before. Nodes take from these what they need of their weights' scopes."""

READERS: tuple[_Rung, ...] = (_by_codes, _by_readers, _by_copy, _by_neighbours)
"""Rungs that look at who reads it. What none of all these rungs reaches has no scope."""
