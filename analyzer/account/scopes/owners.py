"""Entries + scopes of nodes -> the module that owns each entry: a list of rules, the strongest evidence first.

`docs/counting.md` has an example for each rule. The last rule, for entries that these leave without a scope, needs the
model's blocks: `analyzer.account.blocks.assign_block_scopes`.
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
"""Rules whose scopes of nodes come from their neighbours alone."""


class _Context(Frozen):
    """Input of the rules, and the scopes found so far."""

    flow: Dataflow
    decodes: Mapping[Key, Sequence[Key]]
    """The codes that each scale or zero point belongs to."""
    mangled: Mapping[str, str]
    """Modules of the file by the names that torch.export's placeholders use, if a tensor has a placeholder's name."""
    nodes: dict[int, Scope] = field(default_factory=dict)
    settled: dict[Key, Scope] = field(default_factory=dict)
    read: dict[Key, Scope | None] = field(default_factory=dict)
    """Cache of the scopes on which the readers of entries agree."""

    def of_readers(self, entry: Entry) -> Scope | None:
        """Return the scope on which the nodes that read an entry agree."""
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
    """Give every entry a scope if any evidence exists, and nodes without one the scope of their neighbours.

    Args:
        model: the model.
        entries: entries of all stored tensors, with copies known.
        wiring: providers and readers of all values.
        flow: data flow between the nodes.
        traced: scopes in the nodes' own metadata and names (`analyzer.account.scopes.paths.scope_nodes`).
        decodes: the codes that each scale or zero point belongs to (`classify.find_companions`).
        modules: modules in the names of tensors (`analyzer.account.scopes.known_modules`).

    Returns:
        The entries with `scope` and `scoped_by`; (scope, rule) of the nodes, those in `traced` included.
    """
    unscoped = [entry for entry in entries if not entry.has_scope]
    if not unscoped and None not in traced.in_order:
        return tuple(entries), traced
    mangled = _mangled_modules(modules) if any(map(_may_be_mangled, unscoped)) else {}
    context = _Context(flow, decodes, mangled)
    context.settled.update(
        (entry.tensor.key, (entry.scope, entry.scoped_by)) for entry in entries if entry.has_scope
    )
    _apply_rules(unscoped, NAMES, context)
    traced_scopes = {number: scope for number, scope in enumerate(traced.in_order) if scope is not None}
    found = settle_nodes(flow, wiring, entries, context.settled, traced_scopes)
    context.nodes.update(traced_scopes)
    context.nodes.update(found)
    remaining = [entry for entry in unscoped if entry.tensor.key not in context.settled]
    # A copy may take its original's scope, and a scale that of its codes, so originals and codes are settled first.
    rest = [entry for entry in remaining if entry.tensor.key not in decodes]
    _apply_rules([entry for entry in rest if entry.copy_of is None], READERS, context)
    _apply_rules([entry for entry in rest if entry.copy_of is not None], READERS, context)
    _apply_rules([entry for entry in remaining if entry.tensor.key in decodes], READERS, context)
    settled = tuple(
        entry if entry.has_scope else _with_scope(entry, context.settled.get(entry.tensor.key))
        for entry in entries
    )
    return settled, ByNode(model, [context.nodes.get(number) for number in range(len(flow.nodes))])


def _mangled_modules(modules: Iterable[str]) -> dict[str, str]:
    """Return modules by their mangled names, if only one module has that name."""
    found: dict[str, str] = {}
    repeated: set[str] = set()
    for module in modules:
        mangled = mangle(module)
        if mangled in found:
            repeated.add(mangled)
        found[mangled] = module
    return {mangled: module for mangled, module in found.items() if mangled not in repeated}


def _with_scope(entry: Entry, scope: Scope | None) -> Entry:
    if scope is None or scope == (entry.scope, entry.scoped_by):
        return entry
    return replace(entry, scope=scope[0], scoped_by=scope[1])


def _apply_rules(entries: Iterable[Entry], rules: Sequence[_Rule], context: _Context) -> None:
    """Give each entry the scope of the first rule that has one."""
    for entry in entries:
        for rule in rules:
            scope = rule(entry, context)
            if scope is not None:
                context.settled[entry.tensor.key] = scope
                break


def _by_dotted_name(entry: Entry, context: _Context) -> Scope | None:
    """Take the module of a dotted name, whatever the kind of tensor."""
    tensor = entry.tensor
    return (module_of(tensor.name), "name:dotted") if is_dotted(tensor.name) and tensor.node is None else None


def _by_path(entry: Entry, context: _Context) -> Scope | None:
    """Take the module of a name that is a path. Equal constants are merged under one name, so theirs says nothing."""
    tensor = entry.tensor
    if entry.role is Role.CONSTANT or tensor.node is not None:
        return None
    path = tensor_path(tensor.name)
    return None if path is None else (path, "name:path")


_PLACEHOLDER = re.compile(r"[pb]_(\w{1,512}?)(?:::\w+)?")


def _may_be_mangled(entry: Entry) -> bool:
    return entry.tensor.name.startswith(("p_", "b_"))


def _by_mangled_name(entry: Entry, context: _Context) -> Scope | None:
    """Take the known module whose mangled name begins a placeholder's name, `p_model_layers_0_mlp_weight`."""
    name = entry.tensor.name
    placeholder = _PLACEHOLDER.fullmatch(name) if _may_be_mangled(entry) else None
    name = placeholder[1] if placeholder else ""
    while name:
        name = name.rpartition("_")[0]
        if name in context.mangled:
            return context.mangled[name], "name:mangled"
    return None


def _by_codes(entry: Entry, context: _Context) -> Scope | None:
    """Give a scale or a zero point the common scope of its codes."""
    codes = [context.settled.get(key) for key in context.decodes.get(entry.tensor.key, ())]
    scopes = [scope for scope, _ in filter(None, codes)]
    return (common_scope(scopes), "structure:scale") if codes and len(scopes) == len(codes) else None


def _by_readers(entry: Entry, context: _Context) -> Scope | None:
    """Take the scope on which the readers agree, if it does not come from neighbours (`scopes.neighbours.STRENGTH`)."""
    found = context.of_readers(entry)
    return found if found is not None and found[1] not in _WEAK else None


def _by_copy(entry: Entry, context: _Context) -> Scope | None:
    """Take the scope of the tensor that it repeats."""
    original = context.settled.get(entry.copy_of) if entry.copy_of is not None else None
    return None if original is None else (original[0], "content:copy")


def _by_neighbours(entry: Entry, context: _Context) -> Scope | None:
    """Take the scope on which the readers agree, even if it comes from their neighbours."""
    return context.of_readers(entry)


_Rule = Callable[[Entry, _Context], Scope | None]

NAMES: tuple[_Rule, ...] = (_by_dotted_name, _by_path, _by_mangled_name)
"""Rules that use the tensor alone, for entries without a scope from metadata or from their own PyTorch name. The scopes
of nodes are derived from the results.
"""

READERS: tuple[_Rule, ...] = (_by_codes, _by_readers, _by_copy, _by_neighbours)
"""Rules that use the readers of a tensor. An entry that no rule reaches has no scope."""
