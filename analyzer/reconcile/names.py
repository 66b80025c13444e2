"""Names in the file <-> names in PyTorch, where one side has a prefix that the other lacks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Alignment", "align"]

_DEEPEST_PREFIX = 3
"""Parts of a wrapper's prefix that are tried (`model.`, `base_model.model.`)."""

_BOUNDARIES = "./:_"
"""What a prefix ends with."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """How a name in the file becomes a name in PyTorch."""

    known: frozenset[str]
    strip: str = ""
    add: str = ""

    def __call__(self, name: str) -> str | None:
        """The PyTorch name, None if there is none. A name that PyTorch knows as it is stays."""
        if name in self.known:
            return name
        if self.strip and name.startswith(self.strip) and name[len(self.strip) :] in self.known:
            return name[len(self.strip) :]
        return self.add + name if self.add and self.add + name in self.known else None

    def module(self, scope: str) -> str:
        """A module path of the file in PyTorch's terms."""
        if self.strip and (scope + ".").startswith(self.strip):
            return scope[len(self.strip) :]
        return f"{self.add}{scope}".rstrip(".") if self.add else scope


def align(names: Iterable[str], known: Collection[str]) -> Alignment:
    """Find the one prefix that makes most of the file's names PyTorch names: dropped, or put before them.

    Exports through a wrapper module prefix every name (`model.bert...`), tools that merge graphs or fuse nodes do too
    (`net/conv.weight`, `ConvBnFusion_W_conv.weight`); a bare model's file lacks the prefix that a model with a head has
    (`embeddings...` for `bert.embeddings...`). Of prefixes that explain as many names the shortest is taken, since a
    longer one gives a tensor to another module: `net/layer1.conv1.weight` is not the root's `conv1.weight`.

    >>> align(["model.fc.weight", "model.fc.bias"], ["fc.weight", "fc.bias"]).strip
    'model.'
    >>> align(["net/conv.weight", "net/block.conv.weight"], ["conv.weight", "block.conv.weight"]).strip
    'net/'
    """
    targets = frozenset(known)
    endings: dict[str, set[str]] = defaultdict(set)
    for name in targets:
        head, dot, tail = name.partition(".")
        if dot:
            endings[tail].add(f"{head}.")
    stripped: Counter[str] = Counter()
    added: Counter[str] = Counter()
    for name in names:
        if name in targets:
            continue
        stripped.update(prefix for prefix in _prefixes(name) if name[len(prefix) :] in targets)
        if "." in name:  # `bias` alone may be any module's
            added.update(endings.get(name, ()))
    strip, strip_count = _best(stripped)
    add, add_count = _best(added)
    return Alignment(targets, strip=strip) if strip_count >= add_count else Alignment(targets, add=add)


def _prefixes(name: str) -> Iterator[str]:
    """What may stand before a PyTorch name: some parts of a wrapper's path, or what a tool put there.

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


def _best(counter: Counter[str]) -> tuple[str, int]:
    return max(counter.items(), key=lambda item: (item[1], -len(item[0]), item[0]), default=("", 0))
