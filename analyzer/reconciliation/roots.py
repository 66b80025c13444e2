"""A ledger and PyTorch's names -> the ledger with what was folded from tensors of the root module, by its notes.

A name without a module (`pos_embed`, `logit_scale`) looks like any value's, so that the file alone cannot say what it
is; PyTorch's side can: in an exported graph a value has one name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from analyzer.ledger import Entry, Ledger, Role
from analyzer.manifest import Buffer, Manifest, Parameter
from analyzer.scopes import folded_from

__all__ = ["with_roots"]

_ROLES = (Role.CONSTANT, Role.PARAMETER, Role.UNATTRIBUTED)


def with_roots(ledger: Ledger, manifest: Manifest) -> Ledger:
    """The same ledger where PyTorch's root module has no tensors, or nothing was folded from them."""
    roots = {name: tensor for tensor in manifest.tensors for name in tensor.names if "." not in name}
    if not roots:
        return ledger
    told = dict(_told(ledger, roots))
    if not told:
        return ledger
    return replace(ledger, entries=tuple(told.get(entry.tensor.key, entry) for entry in ledger.entries))


def _told(
    ledger: Ledger, roots: Mapping[str, Parameter | Buffer]
) -> Iterator[tuple[tuple[tuple[str, ...], str], Entry]]:
    notes = {graph.path: graph.metadata for graph in ledger.model.graphs}
    for entry in ledger.entries:
        tensor = entry.tensor
        if entry.role not in _ROLES or not tensor.dtype.is_floating or entry.copy_of is not None:
            continue
        sources = folded_from(notes.get(tensor.graph_path, {}).get(tensor.name))
        learned = {name for name in sources if isinstance(roots.get(name), Parameter)}
        known = learned or {name for name in sources if name in roots and not entry.sources}
        if not known.issubset(entry.sources):
            role = Role.PARAMETER if learned else Role.BUFFER
            rule = f"provenance:folded-{'from' if len(known) == len(sources) else 'with'}"
            every = tuple(sorted({*entry.sources, *known}))
            yield tensor.key, replace(entry, role=role, sources=every, decided_by=rule)
