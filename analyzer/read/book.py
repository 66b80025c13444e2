"""Shared state of one pass over a model file: bytes booked by account, and the parts that could not be read."""

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
"""Names of nodes, of the values that they read and write, and of tensors."""
VALUES = "[value info]"
"""Types and shapes of values between nodes, and their metadata."""
TENSORS = "[tensor headers]"
"""Shapes, types and references of tensors, without their names and elements."""
FUNCTIONS = "[functions]"
"""Bodies of local functions, without the parts booked on the accounts above."""
HEADER = "[model header]"
"""Versions, opsets, the graphs' inputs and outputs, annotations."""
METADATA = "[model metadata]"
"""`metadata_props` and `doc_string` of the model, its graphs and functions."""
UNKNOWN = "[unknown fields]"
"""Fields that the ONNX format does not define: no reader sees them."""
ORPHANED = "[orphaned]"
"""Payload to which no tensor refers, here or in an external file."""

INSIDE = (NODES, NODE_METADATA, NAMES, VALUES, TENSORS, FUNCTIONS, HEADER, METADATA, UNKNOWN)
STRUCTURE = (*INSIDE, ORPHANED)
"""Accounts of a model file's bytes besides payload, in the order of reports."""


class Names(dict[str | bytes, str]):
    """Interned names: `names[x]` is the text of x, one object for all its uses; invalid UTF-8 is escaped."""

    def __init__(self) -> None:
        super().__init__()
        self.not_utf8: set[str] = set()
        self.node_names: list[str] = []
        """Names of nodes, which are not shared."""

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
    """Content of a tensor's bytes before its name, if all elements follow the name."""

    dtype: DType
    shape: tuple[int, ...]
    numel: int
    nbytes: int
    tail: bytes
    """Bytes between the name and the elements: the key and the length of `raw_data`."""


class Book(Mutable):
    """State that all modules of the reader write to."""

    window: Window
    limit: int
    """Most nodes and tensors that are read, because each takes memory of its own."""
    nbytes: Counter[str] = field(default_factory=Counter)
    """Bytes by account; with the payload inside the file they sum to its size."""
    unread: list[tuple[str, Key, str]] = field(default_factory=list)
    """(finding id, tensor, sentence)."""
    names: Names = field(default_factory=Names)
    shapes: dict[tuple[int, ...], tuple[tuple[int, ...], int]] = field(default_factory=dict)
    """Shapes read so far, one object for all tensors of each, with their numbers of elements."""
    heads: dict[bytes, Head] = field(default_factory=dict)
    """Content of the bytes before a tensor's name, for those read so far."""
    siblings: dict[str, Source | ExternalDataError] = field(default_factory=dict)
    """External files by location, each inspected once."""
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
        """Return a name as text, one object for all its uses; invalid UTF-8 is escaped and recorded."""
        return self.names[value]

    def odd_names(self) -> tuple[str, ...]:
        """Return the names with characters that control a terminal or hide text, sorted."""
        names = set(self.names.values())
        if (
            " ".join(names).isprintable() and " ".join(self.names.node_names).isprintable()
        ):  # nearly always true
            return ()
        names.update(self.names.node_names)
        return tuple(
            sorted(name for name in names if not name.isprintable() and _has_control_characters(name))
        )

    def field(self, account: str, place: Field) -> None:
        """Book a whole field, key and length included."""
        self.nbytes[account] += place.end - place.at


def shown(name: str, longest: int = 128) -> str:
    """Return a name shortened for use within others: one of a megabyte would be repeated for every tensor below it.

    >>> len(shown("x" * 1_000_000))
    128
    """
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def unique_label(label: str, taken: Counter[str]) -> str:
    """Return the label, or `label#2` and so on if it is taken, and mark the result as taken."""
    found = label
    while taken[found]:
        taken[label] += 1
        found = f"{label}#{taken[label]}"
    taken[found] = 1
    return found


def _has_control_characters(name: str) -> bool:
    return any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in name if not c.isprintable())
