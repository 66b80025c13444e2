"""An honest file and the same with a fault -> the modules that have the fault, by the honest file's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyzer.account.ledger import Ledger

_MOST = 6


def find_modules(honest: Any, faulty: Any, ledger: Ledger) -> frozenset[str]:
    """Return the scopes of nodes that were changed, added or removed, or that read a changed tensor.

    An added node has no scope: the scopes of its nearest neighbours count, and of the nodes that read it now. If a node
    reads another value than before, the producer of the old value counts, too: it may be left out, and nothing else be
    wrong. Nodes that no output depends on any more count, too. A convolution with a folded normalization counts as
    both: it has the name of one, and the weight of the other.
    """
    before = {_key(node): node for node in honest.graph.node}
    after = {_key(node): node for node in faulty.graph.node}
    scopes = {
        next(filter(None, node.outputs), ""): scope
        for node in ledger.model.graphs[0].nodes
        if (scope := ledger.node_scopes.get(node.place)) is not None
    }
    readers = _readers([*before.values(), *after.values()])
    producers = {name: key for key, node in after.items() for name in node.output}
    old_producers = {name: key for key, node in before.items() for name in node.output}
    folded = _folded([*before.values(), *after.values()], ledger)
    stored = _changed_tensors(honest, faulty)
    changed = [
        key
        for key in dict.fromkeys([*before, *after])
        if key not in before
        or key not in after
        or before[key].SerializeToString() != after[key].SerializeToString()
    ]
    found: set[str] = set()
    for name in stored:
        found |= _scopes_of(name, readers, scopes)
        for reader in _nearest_readers(name, readers, scopes):
            found |= folded.get(reader, set())
    for key in changed:
        node: Any = after.get(key, before.get(key))
        old: Any = before.get(key, node)
        for name in {*old.input} - {*node.input}:  # the value that is no longer read is left out
            producer = old_producers.get(name)
            if producer in scopes:
                found.add(scopes[producer])
        found |= folded.get(key, set())
        if key in scopes:
            found.add(scopes[key])
            continue
        for name in node.input:
            for producer in _nearest_producers(name, producers, after, scopes):
                found |= {scopes[producer], *folded.get(producer, ())}
        for name in node.output:
            found |= _scopes_of(name, readers, scopes)
    skipped = _live_nodes(honest) & set(after) - _live_nodes(faulty)
    if len(skipped) < len(before) / 2:  # else an output has another source, and nothing is skipped
        found |= {scopes[key] for key in skipped if key in scopes}
    outputs = {value.name for value in faulty.graph.output} - {value.name for value in honest.graph.output}
    for name in outputs:
        found |= {scopes[name]} if name in scopes else set()
    return frozenset(found)


def _folded(nodes: list[Any], ledger: Ledger) -> dict[str, set[str]]:
    """Return the modules whose weights each convolution reads, by its key."""
    owners = {entry.tensor.name: entry.scope for entry in ledger.entries if entry.parameters and entry.scope}
    for node in nodes:
        if node.op_type == "DequantizeLinear" and node.input[0] in owners:
            owners[node.output[0]] = owners[node.input[0]]
    modules: dict[str, set[str]] = {}
    for node in nodes:
        if node.op_type in ("Conv", "ConvTranspose", "ConvInteger", "DequantizeLinear"):
            modules.setdefault(_key(node), set()).update(
                owners[name] for name in node.input if name in owners
            )
    return modules


def _live_nodes(model: Any) -> set[str]:
    """Return the keys of nodes that an output depends on."""
    producers = {name: node for node in model.graph.node for name in node.output}
    waiting, found = [value.name for value in model.graph.output], set[str]()
    while waiting:
        node = producers.get(waiting.pop())
        if node is not None and _key(node) not in found:
            found.add(_key(node))
            waiting += node.input
            for attribute in node.attribute:
                for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    waiting += [name for inner in body.node for name in inner.input]
                    waiting += [value.name for value in body.output]
    return found


def _key(node: Any) -> str:
    return str(next(filter(None, node.output), node.name))


def _readers(nodes: list[Any]) -> Mapping[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for node in nodes:
        for name in node.input:
            found.setdefault(name, []).append(node)
    return found


def _scopes_of(name: str, readers: Mapping[str, list[Any]], scopes: Mapping[str, str]) -> set[str]:
    """Return the scopes of the nearest readers that have one."""
    return {scopes[key] for key in _nearest_readers(name, readers, scopes)}


def _nearest_readers(name: str, readers: Mapping[str, list[Any]], scopes: Mapping[str, str]) -> set[str]:
    """Return the keys of the nearest readers that have a scope."""
    layer, found = [name], set[str]()
    for _ in range(_MOST):
        nodes = [node for each in layer for node in readers.get(each, ())]
        found = {_key(node) for node in nodes if _key(node) in scopes}
        if found:
            return found
        layer = [output for node in nodes for output in node.output]
    return found


def _nearest_producers(
    name: str, producers: Mapping[str, str], nodes: Mapping[str, Any], scopes: Mapping[str, str]
) -> set[str]:
    """Return the keys of the nearest producers of a value with a scope: nodes that dequantize have none."""
    layer = [name]
    for _ in range(_MOST):
        keys = {producers[each] for each in layer if each in producers}
        found = {key for key in keys if key in scopes}
        if found:
            return found
        layer = [each for key in keys for each in nodes[key].input]
    return set()


def _changed_tensors(honest: Any, faulty: Any) -> list[str]:
    before = {tensor.name: tensor for tensor in honest.graph.initializer}
    return [
        tensor.name
        for tensor in faulty.graph.initializer
        if tensor.name in before and before[tensor.name].SerializeToString() != tensor.SerializeToString()
    ]


def is_right(reported: str, modules: frozenset[str]) -> bool:
    """Whether the named module is one of them, contains one, or is inside one; the root only if it has one directly."""
    if reported in ("[root]", ""):
        return "" in modules or not modules or any("." not in each for each in modules)
    return any(
        reported == each or reported.startswith(f"{each}.") or each.startswith(f"{reported}.")
        for each in modules
        if each
    )
