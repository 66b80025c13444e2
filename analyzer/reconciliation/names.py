"""Names in the file <-> names in PyTorch, if one side has prefixes that the other lacks, or a note gives the name.

A name without a module (`pos_embed`, `logit_scale`) looks like any value's, so that the file alone cannot identify it.
PyTorch's side can: in an exported graph a value has one name.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from analyzer.account.ledger import Entry, Ledger, Role
from analyzer.account.scopes import folded_from, known_modules
from analyzer.account.scopes.paths import scope_nodes
from analyzer.manifest import Buffer, Manifest, Parameter
from analyzer.model.places import ByNode
from analyzer.records import Frozen, replace

_DEEPEST_PREFIX = 3
"""Most parts of a wrapper's prefix (`model.`, `base_model.model.`)."""

_BOUNDARIES = "./:_"
"""Last characters of prefixes."""

_LONGEST_PREFIX = 64
"""Most characters of a prefix that a tool puts before names, with or without a dot (`enc_`, `m1/`)."""

_FEWEST = 2
"""Least number of names with a tool's prefix, or with a prefix of a part of the file."""

_MOST_PARTS = 4
"""Most parts of a file that have a prefix of their own."""

_TOOLS = re.compile(r"[A-Za-z0-9]+[_/:-]+")
"""Prefix as for `onnx.compose.add_prefix`: a word, and a separator from the name."""


class Alignment(Frozen):
    """Mapping of names in the file to names in PyTorch, by prefixes."""

    known: frozenset[str]
    strip: str = ""
    add: str = ""
    others: tuple[tuple[str, str], ...] = ()
    """Prefixes of other parts of the file, as (prefix to strip, prefix to add)."""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """All prefixes, each with its replacement; the most frequent first."""
        first = ((self.strip, self.add),) if self.strip or self.add else ()
        return (*first, *self.others)

    def __call__(self, name: str) -> str | None:
        """Return the PyTorch name; None if there is none. A name that PyTorch has is returned unchanged."""
        if name in self.known:
            return name
        for strip, add in self.pairs:
            if name.startswith(strip) and add + name[len(strip) :] in self.known:
                return add + name[len(strip) :]
        return None

    def module(self, scope: str) -> str:
        """Return PyTorch's path of a module path in the file."""
        for strip, add in self.pairs:
            if not strip or (scope + ".").startswith(strip):
                return f"{add}{(scope + '.')[len(strip) :]}".rstrip(".")
        return scope


def align(names: Iterable[str], known: Collection[str]) -> Alignment:
    """Find the prefix that, stripped or added, turns most of the file's names into PyTorch names.

    Exports through a wrapper module prefix every name (`model.bert...`), and so do tools that fuse nodes
    (`ConvBnFusion_W_conv.weight`). A bare model's file lacks the prefix that a model with a head has (`embeddings...`
    for `bert.embeddings...`). Tools that merge files put prefixes before their names (`enc_`, `m1/`); these are
    stripped for each part of the file, and PyTorch may have another prefix there. Among prefixes that explain as many
    names the shortest is taken, since a longer one gives a tensor to another module: `net/layer1.conv1.weight` is not
    the root's `conv1.weight`. A name that ends with an unprefixed name of the file is no evidence: beside `pos_embed`,
    `rope.pos_embed` is another tensor.

    >>> align(["model.fc.weight", "model.fc.bias"], ["fc.weight", "fc.bias"]).strip
    'model.'
    >>> align(["net/conv.weight", "net/block.conv.weight"], ["conv.weight", "block.conv.weight"]).strip
    'net/'
    >>> align(["m1/fc.weight", "m1/fc.bias"], ["fc.weight", "fc.bias"])("m1/fc.bias")
    'fc.bias'
    >>> align(["pos_embed", "rope.pos_embed"], ["pos_embed"]).strip
    ''
    """
    targets = frozenset(known)
    endings: dict[str, set[str]] = defaultdict(set)
    for name in targets:
        head, dot, tail = name.partition(".")
        if dot:
            endings[tail].add(f"{head}.")
    head = _common_head(targets)
    file_names = list(names)
    left = [name for name in file_names if name not in targets]
    absent = targets.difference(file_names)
    stripped: Counter[str] = Counter()
    added: Counter[str] = Counter()
    for name in left:
        stripped.update(prefix for prefix in _prefixes(name) if name[len(prefix) :] in absent)
        if "." in name:  # `bias` alone may be any module's
            added.update(endings.get(name, ()))
            added.update({head} if head.count(".") > 1 and head + name in targets else ())
    strip, strip_count = _best(stripped)
    if strip.endswith("_") and strip_count < _FEWEST:  # as likely a part of the name
        strip, strip_count = "", 0
    add, add_count = _best(added)
    first = Alignment(targets, strip=strip) if strip_count >= add_count else Alignment(targets, add=add)
    taken = {found for name in left if (found := first(name)) is not None}
    unknown = [name for name in left if first(name) is None]
    others = tuple(_prefixes_of_tools(unknown, targets - taken, endings))
    return Alignment(targets, first.strip, first.add, others)


def _prefixes(name: str) -> Iterator[str]:
    """Yield the possible prefixes of a PyTorch name: some parts of a wrapper's path, or a tool's prefix.

    >>> list(_prefixes("net/model.fc.bias"))
    ['net/', 'net/model.', 'net/model.fc.']
    """
    dots = 0
    for place, letter in enumerate(name[:-1], 1):
        dots += letter == "."
        if dots > _DEEPEST_PREFIX:
            return
        if letter in _BOUNDARIES:
            yield name[:place]


def _prefixes_of_tools(
    names: Collection[str], targets: Collection[str], endings: Mapping[str, Collection[str]]
) -> Iterator[tuple[str, str]]:
    """Yield prefixes that several names share, such that no two names map to one PyTorch name."""
    left = list(dict.fromkeys(names))
    taken: set[str] = set()
    for _ in range(_MOST_PARTS):
        found: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for name in left:
            prefix = _TOOLS.match(name[:_LONGEST_PREFIX])
            rest = name[prefix.end() :] if prefix else ""
            if not prefix or "." not in rest:
                continue
            for add in ("", *sorted(endings.get(rest, ()))):
                if add + rest in targets and add + rest not in taken:
                    found[prefix.group(), add][name] = add + rest
        if not found:
            return
        pair, mapped = max(found.items(), key=lambda item: (len(item[1]), item[0]))
        if len(mapped) < _FEWEST:
            return
        yield pair
        taken.update(mapped.values())
        left = [name for name in left if name not in mapped]


def _common_head(names: Collection[str]) -> str:
    """Return the module path that all names begin with: wrappers that a trainer put around a model.

    >>> _common_head(["net.inner.fc.weight", "net.inner.norm.weight"])
    'net.inner.'
    """
    paths = [name.split(".")[:-1] for name in names]
    common: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join([*common, ""]) if common else ""


def _best(counter: Counter[str]) -> tuple[str, int]:
    return max(counter.items(), key=lambda item: (item[1], -len(item[0]), item[0]), default=("", 0))


# notes on tensors of the root module

_ROLES = (Role.CONSTANT, Role.PARAMETER, Role.UNATTRIBUTED)


def with_roots(ledger: Ledger, manifest: Manifest) -> Ledger:
    """Return the ledger with roles and sources added to entries that were folded from the root module's tensors."""
    roots = {name: tensor for tensor in manifest.tensors for name in tensor.names if "." not in name}
    if not roots:
        return ledger
    updated = dict(_update_entries(ledger, roots))
    if not updated:
        return ledger
    return replace(ledger, entries=tuple(updated.get(entry.tensor.key, entry) for entry in ledger.entries))


def _update_entries(
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


# modules that hold a list of their own name


def with_lists(ledger: Ledger, aligned: Alignment) -> Ledger:
    """Return the ledger with the modules of its nodes read anew, if a PyTorch module holds a list of its own name.

    The names of the file's tensors need not say so: a file without biases may have none with a module.
    """
    holders = {module for name in aligned.known for module in _in_lists(name)}
    if not holders or not ledger.traced_scopes:
        return ledger
    for strip, add in aligned.pairs:
        holders |= {strip + module[len(add) :] for module in holders if f"{module}.".startswith(add)}
    found = scope_nodes(ledger.model, known_modules(ledger.model) | holders)
    scopes = [None if scope is None else scope[0] for scope in found.in_order]
    return replace(ledger, traced_scopes=ByNode(ledger.model, scopes))


def _in_lists(name: str) -> Iterator[str]:
    """Yield the modules of a tensor's path that are numbered in a list with its holder's name.

    >>> list(_in_lists("net.encoder.encoder.0.1.fc.weight")), list(_in_lists("layer.0.layer.0.fc.weight"))
    (['net.encoder.encoder.0', 'net.encoder.encoder.0.1'], [])
    """
    parts = name.split(".")[:-1]
    for start, (holder, part) in enumerate(itertools.pairwise(parts)):
        if holder == part:
            for stop, number in enumerate(parts[start + 2 :], start + 3):
                if not number.isdigit():
                    break
                yield ".".join(parts[:stop])
