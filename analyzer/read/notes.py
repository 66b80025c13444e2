"""A model that was read -> the texts in its file that affect no output, and a digest of its training information."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TypeVar

from google.protobuf.message import DecodeError

from analyzer.model import Component, Model
from analyzer.read.protos import GraphProto, ModelProto
from analyzer.read.wire import LENGTH, Field, Window
from analyzer.records import Frozen

_GRAPH, _TRAINING = 7, 20
_HEADER = frozenset({2, 3, 4, 5, 6, 14})
"""producer_name, producer_version, domain, model_version, doc_string, metadata_props."""
_IN_GRAPH = {2: "graph name", 10: "doc string of the graph", 16: "metadata of the graph"}
_LONGEST_SHOWN = 100
"""Most characters of a text that is shown whole."""
_LONGEST = 1 << 20
"""Most bytes that are parsed; for more, only a digest is returned."""
_STEP = 1 << 18

_Kind = TypeVar("_Kind", GraphProto, ModelProto)


class Notes(Frozen):
    """Content of a model file on which no output depends."""

    texts: Mapping[str, str]
    """Texts by kind, `producer`, `model version`, `doc string`, `metadata KEY`, ...; a digest for a long text."""
    training: Mapping[str, str]
    """Digest of `training_info`, under this name, if there is any."""


def read_notes(model: Model) -> Notes | None:
    """Return the notes of a local model, with components' names as prefixes; None if it is remote or has no graphs.

    Notes on single nodes and values are not included.

    Raises:
        ModelReadError: a file has changed since it was read.
    """
    if model.traffic is not None or not model.graphs:
        return None
    texts: dict[str, str] = {}
    training: dict[str, str] = {}
    for part in model.parts:
        found = _read(model, part)
        prefix = f"{part.name}/" if part.name else ""
        texts.update((f"{prefix}{kind}", text) for kind, text in found.texts.items())
        training.update((f"{prefix}{kind}", text) for kind, text in found.training.items())
    return Notes(texts, training)


def _read(model: Model, part: Component) -> Notes:
    source = model.sources[part.files[0]]
    with source.kept_open():
        window = Window(source)
        header, trained = _Gathered(window), _Gathered(window)
        inside = {number: _Gathered(window) for number in _IN_GRAPH}
        for field in window.fields(0, source.nbytes):
            if field.number in _HEADER:
                header.add(field)
            elif field.number == _TRAINING:
                trained.add(field)
            elif field.number == _GRAPH and field.wire == LENGTH:
                for each in window.fields(field.start, field.end):
                    if each.number in inside:
                        inside[each.number].add(each)
    texts = _parsed(header)
    texts |= {kind: inside[number].describe() for number, kind in _IN_GRAPH.items() if inside[number].count}
    return Notes(texts, {"training_info": trained.digest()} if trained.count else {})


class _Gathered:
    """Fields of one kind, whose bytes are kept if they are few."""

    def __init__(self, window: Window) -> None:
        self.count = self.nbytes = 0
        self.kept = bytearray()
        """All of them, keys and lengths included; empty if they are too many."""
        self._window = window
        self._hasher = hashlib.sha256()

    def add(self, field: Field) -> None:
        self.count += 1
        length = field.end - field.at
        self.nbytes += length
        self._hasher.update(length.to_bytes(8, "little"))
        for start in range(field.at, field.end, _STEP):
            self._hasher.update(self._window.take(start, min(start + _STEP, field.end)))
        if self.nbytes <= _LONGEST:
            self.kept += self._window.take(field.at, field.end)
        else:
            self.kept.clear()

    def parse(self, kind: type[_Kind]) -> _Kind | None:
        """Return the message with these fields; None if they are too many, or broken."""
        if self.nbytes > _LONGEST:
            return None
        try:
            return kind.FromString(bytes(self.kept))
        except DecodeError:
            return None

    def digest(self) -> str:
        return _digest(self.nbytes, self._hasher.hexdigest())

    def describe(self) -> str:
        """Return the name or doc string of a graph, or a digest of its metadata."""
        graph = self.parse(GraphProto)
        if graph is None or graph.metadata_props:
            return self.digest()
        return _shortened(_text(graph.name or graph.doc_string))


def _parsed(header: _Gathered) -> dict[str, str]:
    proto = header.parse(ModelProto)
    if proto is None:
        return {"header": header.digest()}
    texts = {
        "producer": " ".join(filter(None, (_text(proto.producer_name), _text(proto.producer_version)))),
        "domain": _text(proto.domain),
        "model version": str(proto.model_version or ""),
        "doc string": _text(proto.doc_string),
    }
    for each in proto.metadata_props:
        kind = f"metadata {_shortened(_text(each.key))}"
        texts[kind] = f"{texts[kind]}; {_text(each.value)}" if kind in texts else _text(each.value)
    return {kind: _shortened(text) for kind, text in texts.items() if text or kind.startswith("metadata ")}


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST_SHOWN:
        return text
    content = text.encode("utf-8", "surrogatepass")
    return _digest(len(content), hashlib.sha256(content).hexdigest())


def _digest(nbytes: int, digest: str) -> str:
    return f"{nbytes:,} bytes, SHA-256 {digest[:16]}"
