"""One pass over a model file: where its bytes are booked, and what could not be read on the way."""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import NamedTuple

from analyzer.errors import ExternalDataError, ModelReadError
from analyzer.model import Key
from analyzer.model.dtypes import DType
from analyzer.model.ranges import Source
from analyzer.read.wire import Field, Window
from analyzer.records import Mutable, field

NODES = "[node structure]"
"""Operators, attributes and protobuf's own keys and lengths around them."""
NODE_METADATA = "[node metadata]"
"""`metadata_props` and `doc_string` of nodes: stack traces, module scopes."""
NAMES = "[names]"
"""Names of nodes, of what they read and write, and of tensors."""
VALUES = "[value info]"
"""Types and shapes of values between nodes, and the notes on them."""
TENSORS = "[tensor headers]"
"""Shapes, types and references of tensors, without their names and elements."""
FUNCTIONS = "[functions]"
"""Bodies of local functions, without what the accounts above hold of them."""
HEADER = "[model header]"
"""Versions, opsets, the graphs' inputs and outputs, annotations."""
METADATA = "[model metadata]"
"""`metadata_props` and `doc_string` of the model, its graphs and functions."""
UNKNOWN = "[unknown fields]"
"""Fields that the ONNX format does not define: no reader sees them."""
ORPHANED = "[orphaned]"
"""Payload that no tensor refers to, here or in an external file."""

INSIDE = (NODES, NODE_METADATA, NAMES, VALUES, TENSORS, FUNCTIONS, HEADER, METADATA, UNKNOWN)
STRUCTURE = (*INSIDE, ORPHANED)
"""The accounts of a model file's bytes besides payload, in the order of reports."""


class Names(dict[str | bytes, str]):
    """Each name once: `names[x]` is the text of x, one object for all its uses; of what is no UTF-8, an escaped one."""

    def __init__(self) -> None:
        super().__init__()
        self.not_utf8: set[str] = set()
        self.alone: list[str] = []
        """Names of nodes, which nobody else has."""

    def __missing__(self, name: str | bytes) -> str:
        if isinstance(name, str):
            text = name
        else:
            try:
                text = name.decode()
            except UnicodeDecodeError:
                text = name.decode("utf-8", "backslashreplace")
                self.not_utf8.add(text)
        self[text] = text
        if text is not name:
            self[name] = text
        return text


class Head(NamedTuple):
    """What the bytes of a tensor before its name say, where all elements follow the name."""

    dtype: DType
    shape: tuple[int, ...]
    numel: int
    nbytes: int
    tail: bytes
    """What stands between the name and the elements: the key and the length of `raw_data`."""


class Book(Mutable):
    """What all rooms of the reader write to."""

    window: Window
    limit: int
    """Nodes and tensors that are read; each takes memory of its own."""
    nbytes: Counter[str] = field(default_factory=Counter)
    """Bytes by account; with the payload inside the file they sum to its size."""
    unread: list[tuple[str, Key, str]] = field(default_factory=list)
    """(finding id, tensor, sentence)."""
    names: Names = field(default_factory=Names)
    shapes: dict[tuple[int, ...], tuple[tuple[int, ...], int]] = field(default_factory=dict)
    """Shapes that were met, one object for all tensors of each, and their elements."""
    heads: dict[bytes, Head] = field(default_factory=dict)
    """What the bytes of a tensor before its name say, of those that were met."""
    siblings: dict[str, Source | ExternalDataError] = field(default_factory=dict)
    """External files by location, looked at once each."""
    _counted: int = 0

    @property
    def source(self) -> Source:
        return self.window.source

    def count(self, objects: int = 1) -> None:
        """Count nodes and tensors.

        Raises:
            ModelReadError: there are more than `limit`.
        """
        self._counted += objects
        if self._counted > self.limit:
            raise ModelReadError(
                f"{self.source.name}: holds more than {self.limit:,} nodes and tensors, which would take too much "
                "memory; if you trust the file, raise the limit with --max-objects N"
            )

    def text(self, value: str | bytes) -> str:
        """A name as text, one object for all its uses; one that is no UTF-8 is escaped and noted."""
        return self.names[value]

    def odd_names(self) -> tuple[str, ...]:
        """Names with characters that steer a terminal or hide what they say, sorted."""
        names = set(self.names.values())
        if " ".join(names).isprintable() and " ".join(self.names.alone).isprintable():  # nearly always
            return ()
        names.update(self.names.alone)
        return tuple(sorted(name for name in names if not name.isprintable() and _steers(name)))

    def field(self, account: str, place: Field) -> None:
        """Book a whole field, key and length included."""
        self.nbytes[account] += place.end - place.at


def shown(name: str, longest: int = 128) -> str:
    """A name as a part of others: one of a megabyte would be repeated for every tensor below it.

    >>> len(shown("x" * 1_000_000))
    128
    """
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def untaken(label: str, taken: Counter[str]) -> str:
    """The label, or where it is taken, `label#2` and so on; the one that is returned is taken from then on."""
    found = label
    while taken[found]:
        taken[label] += 1
        found = f"{label}#{taken[label]}"
    taken[found] = 1
    return found


def _steers(name: str) -> bool:
    return any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in name if not c.isprintable())
