"""An .onnx file or URL -> Model. No protobuf message leaves this package, and payloads stay in the file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import DecodeError

from analyzer.errors import LedgerError, ModelReadError
from analyzer.model import TRAINING, File, Function, Graph, Model
from analyzer.model.ranges import Source
from analyzer.near import model_of_data
from analyzer.read.book import HEADER, METADATA, STRUCTURE, UNKNOWN, Book
from analyzer.read.graphs import Pending, read_function, read_graphs
from analyzer.read.protos import ModelProto
from analyzer.read.source import HEAD, describe_kind, open_source
from analyzer.read.wire import LENGTH, VARINT, BrokenMessageError, Field, Window
from analyzer.records import replace

__all__ = ["MAX_OBJECTS", "read_model"]

MAX_OBJECTS = 250_000
"""Most nodes and tensors that are read by default: each takes about a KiB of memory."""

_DOC, _GRAPH, _OPSET, _METADATA, _TRAINING, _FUNCTION = 6, 7, 8, 14, 20, 25
_HEADER = {1: VARINT, 2: LENGTH, 3: LENGTH, 4: LENGTH, 5: VARINT, _OPSET: LENGTH, 26: LENGTH}
"""ir_version, producer_name, producer_version, domain, model_version, opset_import, configuration."""
_INITIALIZATION, _ALGORITHM = 1, 2
_LONGEST_HEADER = 1 << 20


def read_model(path: Path | str, *, max_objects: int = MAX_OBJECTS) -> Model:
    """Read a model without the elements of its tensors.

    Args:
        path: an .onnx file, or a URL that fsspec understands; external data is expected beside it.
        max_objects: most nodes and tensors that it may have.

    Raises:
        ModelReadError: the file is absent, not a regular file, not an ONNX model, truncated, or over `max_objects`.
        MissingExtraError: it is a URL, and the package that reads such URLs is not installed.
        LedgerError: some bytes of the file are not booked, a defect of onnxledger.
    """
    location = os.fspath(path)
    source = open_source(location)
    if not source.nbytes:
        raise ModelReadError(f"{source.name}: [empty-model] is empty (0 bytes); export or download it again")
    book = Book(Window(source), max_objects)
    with source.kept_open():
        try:
            model = _read(location, source, book)
        except BrokenMessageError as error:
            raise _explain(source, error) from error
    source.check()
    return replace(model, traffic=source.traffic)  # counted last, because the check is a request too


def _read(location: str, source: Source, book: Book) -> Model:
    top = _read_top(book)
    graphs = list(_main_graphs(book, top))
    functions: list[Function] = []
    taken = Counter(graph.path[0] for graph in graphs if len(graph.path) == 1)
    for place in top[_FUNCTION]:
        function, bodies = read_function(book, place, taken)
        functions.append(function)
        graphs += bodies
    header = _parse_header(book, top)
    externals = {
        sibling.key: sibling for sibling in book.siblings.values() if not isinstance(sibling, Exception)
    }
    return Model(
        path=location if source.is_remote is False else source.name,
        files=_files(source, [externals[key] for key in sorted(externals)]),
        ir_version=header.ir_version,
        opsets=tuple((book.text(o.domain) or "ai.onnx", o.version) for o in header.opset_import),
        producer=" ".join(
            filter(None, (book.text(header.producer_name), book.text(header.producer_version)))
        ),
        graphs=tuple(graphs),
        functions=tuple(functions),
        structure=_structure(source, book, graphs),
        unread=tuple(book.unread),
        not_utf8=tuple(sorted(book.names.not_utf8)),
        odd_names=book.odd_names(),
        sources={source.key: source, **externals},
        missing=tuple(
            location
            for location, sibling in sorted(book.siblings.items())
            if isinstance(sibling, Exception) and str(sibling).startswith("[external-missing]")
        ),
    )


def _read_top(book: Book) -> dict[int, list[Field]]:
    """Locate the parts of the ModelProto, and book the small ones that need no further reading."""
    top: dict[int, list[Field]] = {_GRAPH: [], _TRAINING: [], _FUNCTION: [], _OPSET: []}
    for part in _top_fields(book):
        if part.number in (_GRAPH, _TRAINING, _FUNCTION) and part.wire == LENGTH:
            book.count(part.number != _GRAPH)
            top[part.number].append(part)
        elif part.number in (_DOC, _METADATA) and part.wire == LENGTH:
            book.field(METADATA, part)
        elif part.wire == _HEADER.get(part.number):
            book.count(part.number == _OPSET)
            top[_OPSET].append(part)
            book.field(HEADER, part)
        else:
            book.field(UNKNOWN, part)
    if not top[_GRAPH] and not top[_TRAINING]:
        words = describe_kind(book.source.read(0, HEAD)) or "another kind of file, or an empty model"
        raise ModelReadError(f"{book.source.name}: [empty-model] holds no graph; it is {words}")
    return top


def _top_fields(book: Book) -> Iterator[Field]:
    """Yield the fields of the ModelProto. If one exceeds the end of the file, the file is truncated."""
    source = book.source
    try:
        yield from book.window.fields(0, source.nbytes)
    except BrokenMessageError as error:
        is_known = error.number in (_GRAPH, _TRAINING, _FUNCTION, _METADATA, *_HEADER)
        is_after_known = not error.number and error.at and not book.nbytes[UNKNOWN]
        if not error.is_cut or not (is_known or is_after_known) or describe_kind(source.read(0, HEAD)):
            raise
        raise ModelReadError(
            f"{source.name}: [truncated] ends within the field that begins at byte {error.at:,}; download or copy it "
            "again"
        ) from error


def _main_graphs(book: Book, top: dict[int, list[Field]]) -> Iterator[Graph]:
    """Yield the main graph and the training graphs, with all graphs nested in them."""
    yield from read_graphs(book, Pending(top[_GRAPH], ()))
    for index, place in enumerate(top[_TRAINING]):
        book.nbytes[HEADER] += place.start - place.at
        parts: dict[int, list[Field]] = {_INITIALIZATION: [], _ALGORITHM: []}
        for part in book.window.fields(place.start, place.end):
            if part.number in parts and part.wire == LENGTH:
                parts[part.number].append(part)
            else:
                book.field(HEADER if part.number in (3, 4) else UNKNOWN, part)
        for number, label in ((_INITIALIZATION, "initialization"), (_ALGORITHM, "algorithm")):
            yield from read_graphs(book, Pending(parts[number], (f"{TRAINING}{index}:{label}",)))


def _parse_header(book: Book, top: dict[int, list[Field]]) -> ModelProto:
    window = book.window
    content = b"".join(
        window.take(part.at, part.end) for part in top[_OPSET] if part.end - part.at <= _LONGEST_HEADER
    )
    try:
        return ModelProto.FromString(content)
    except DecodeError as error:
        raise ModelReadError(
            f"{book.source.name}: [not-onnx] its version and opsets cannot be parsed; check the download"
        ) from error


def _files(source: Source, externals: list[Source]) -> tuple[File, ...]:
    """Return files with paths relative to the model's folder, so that no report depends on the working directory."""
    if source.is_remote:
        folder = source.name.rpartition("/")[0] + "/"
        return tuple(File(f.name.removeprefix(folder), f.nbytes, f.key) for f in (source, *externals))
    parent = Path(source.name).parent.resolve()
    main = File(Path(source.name).name, source.nbytes, source.key)
    return (main, *(File(os.path.relpath(f.key, parent), f.nbytes, f.key) for f in externals))


def _structure(source: Source, book: Book, graphs: list[Graph]) -> tuple[tuple[str, int], ...]:
    """Return bytes by account; with the tensors' elements in this file they must sum to its size."""
    inside = sum(t.nbytes - (t.extent.length if t.extent else 0) for g in graphs for t in g.tensors)
    total = inside + sum(book.nbytes.values())
    if total != source.nbytes or min(book.nbytes.values(), default=0) < 0:
        raise LedgerError(
            f"{source.name}: {total:,} of {source.nbytes:,} bytes are accounted for: {dict(book.nbytes)}; "
            "this is a defect of onnxledger, please report it"
        )
    return tuple((account, book.nbytes[account]) for account in STRUCTURE)


def _explain(source: Source, error: BrokenMessageError) -> ModelReadError:
    """Return an error that tells a person what to do about bytes that are not a message."""
    words = describe_kind(source.read(0, HEAD))
    if words is not None:
        return ModelReadError(f"{source.name}: [not-onnx] is {words}")
    near = "" if source.is_remote else model_of_data(Path(source.name))
    return ModelReadError(f"{error}{near or '; check the download, or export it again'}")
