"""A path -> what its values are, by a process of its own that has so much time and memory."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from analyzer.account.ledger import Ledger
from analyzer.errors import CostError
from analyzer.process import require_onnxruntime
from analyzer.process.child import Child, OverMemoryError, OverTimeError
from analyzer.process.memory import available
from analyzer.read.described import Asked, Described, DescribedTensor, Dim, Optimizing, Sizes
from analyzer.records import Mutable, field, replace
from analyzer.text import printable, shorten

_PROGRAM = "from analyzer.read.inferred import serve; serve()"
_OPTIMIZING = "from analyzer.timing.running.planned import serve; serve()"
_SECONDS = 120.0
"""What one answer may take."""

_SPARE = 0.1
"""The part of the memory that is there which is left to others."""

Point = tuple[tuple[str, int], ...]
Typed = tuple[int, tuple[Dim, ...]]
"""The number of the element in `TensorProto.DataType`, 0 where nobody knows, and the shape."""


class Inference(Mutable):
    """A graph, and a process that knows the shapes of its values at any sizes of its axes."""

    described: Described
    child: Child
    name: str
    known: dict[Point, Sizes] = field(default_factory=dict)

    def types(self, sizes: Mapping[str, int]) -> Mapping[str, Typed]:
        """Return the type of every value of which something is known, where the axes have these sizes.

        Raises:
            CostError: the process has ended, or takes more time or memory than it may.
        """
        return self._at(sizes).types

    def refused(self, sizes: Mapping[str, int]) -> str:
        """Return the first node whose inputs do not fit each other at these sizes; "" where all do.

        Raises:
            CostError: the process has ended, or takes more time or memory than it may.
        """
        return self._at(sizes).refused

    def _at(self, sizes: Mapping[str, int]) -> Sizes:
        point = tuple(sorted(sizes.items()))
        if point not in self.known:
            answer = _ask(self.child, msgspec.json.encode(dict(sizes)), self.name)
            self.known[point] = msgspec.json.decode(answer, type=Sizes)
        return self.known[point]


_MOST_CALLED = 250_000
"""Nodes that bodies of functions may have once every call is expanded, which inference does."""


def check_calls(ledger: Ledger) -> None:
    """Refuse functions that call functions until no memory holds what they stand for, which inference expands.

    Raises:
        CostError: they do.
    """
    bodies = {graph.path: len(graph.nodes) for graph in ledger.model.graphs}
    for call in ledger.calls:
        nodes = bodies.get(call.function.path, 0)
        if call.calls is None or call.calls * nodes > _MOST_CALLED:
            many = "endless" if call.calls is None else f"{call.calls * nodes:,}"
            raise CostError(
                f"{printable(str(ledger.model.path))}: memory is planned with all calls expanded, and function "
                f"{printable(call.function.name)} alone would have {many} nodes"
            )


@contextmanager
def open_inference(
    path: Path,
    name: str | None = None,
    *,
    halves: Collection[str] | None = None,
    functions: Collection[str] = (),
    seconds: float = _SECONDS,
) -> Iterator[Inference]:
    """Infer the shapes of a file's values for as long as the context lasts.

    Args:
        path: of the main file.
        name: what messages call it, if not its path.
        halves: kernels that take FLOAT16; an operator without one that is a function is expanded. None: none is.
        functions: operators without any kernel, which are expanded as well.
        seconds: what reading and inferring may take.

    Raises:
        CostError: inference ends its process, or takes more time or memory than it may.
    """
    name = name or printable(str(path))
    with _started(_PROGRAM) as child:
        answer = _ask(
            child,
            msgspec.json.encode(
                Asked(str(path.absolute()), None if halves is None else tuple(halves), tuple(functions))
            ),
            name,
            seconds=seconds,
        )
        yield Inference(msgspec.json.decode(answer, type=Described), child, name)


@contextmanager
def open_optimized(path: Path, level: str) -> Iterator[Inference]:
    """Have onnxruntime make the graph that it would run, without running it, and infer the shapes of that.

    Args:
        path: of the main file, which onnxruntime loads with its weights.
        level: of `onnxruntime.GraphOptimizationLevel`.

    Raises:
        CostError: onnxruntime does not load the model, or a process ends or takes more time or memory than it may.
        MissingExtraError: onnxruntime is not installed.
    """
    require_onnxruntime("planning the graph that a session makes")
    name = printable(str(path))
    with tempfile.TemporaryDirectory(prefix="onnxledger-") as folder:
        asked = Optimizing(str(path.absolute()), folder, level)
        with _started(_OPTIMIZING) as child:
            answer = msgspec.json.decode(
                _ask(child, msgspec.json.encode(asked), name, "onnxruntime"), type=Described | str
            )
        if isinstance(answer, str):
            raise CostError(f"{name}: onnxruntime does not load it: {shorten(printable(answer), 300)}")
        with open_inference(Path(folder, "optimized.onnx"), name) as inference:
            stored = inference.described.tensors
            yield replace(inference, described=_with_tensors(answer, stored))


def _with_tensors(described: Described, stored: Mapping[str, DescribedTensor]) -> Described:
    """What onnxruntime's format says of tensors is not whether they may be fed: the file that it wrote does."""
    tensors = {
        name: msgspec.structs.replace(tensor, is_constant=name not in stored or stored[name].is_constant)
        for name, tensor in described.tensors.items()
    }
    return msgspec.structs.replace(described, tensors=tensors)


@contextmanager
def _started(program: str) -> Iterator[Child]:
    try:
        with open(os.devnull, "wb") as log:  # noqa: PTH123 - no path of a file
            child = Child(program, log=log, environment={"ORT_DISABLE_TELEMETRY": "1"})
    except OSError as error:
        raise CostError(f"no process that infers shapes can be started: {error}") from error
    try:
        yield child
    finally:
        child.end()


def _ask(
    child: Child,
    question: bytes,
    name: str,
    what: str = "the inference of shapes",
    seconds: float = _SECONDS,
) -> bytes:
    left = available()
    most = None if left is None else int(left * (1 - _SPARE))
    child.send(question)
    try:
        answer = child.receive(time.monotonic() + seconds, most)
    except OverTimeError:
        raise CostError(f"{name}: {what} did not finish within {seconds:g} s") from None
    except OverMemoryError:
        raise CostError(f"{name}: {what} took more memory than there is") from None
    if answer is None:
        raise CostError(f"{name}: {what} ended its process, with exit code {child.end(1)}")
    return answer
