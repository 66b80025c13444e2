"""A path -> the types and shapes of its values, inferred by a separate process with limited time and memory."""

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
from analyzer.read.described import Described, DescribedTensor, DescribeRequest, Dim, Optimizing, Sizes
from analyzer.records import Mutable, field, replace
from analyzer.text import printable, shorten

_PROGRAM = "from analyzer.read.inferred import serve; serve()"
_OPTIMIZING = "from analyzer.timing.running.planned import serve; serve()"
_SECONDS = 120.0
"""Time limit of one answer, in seconds."""

_SPARE = 0.1
"""Fraction of the available memory that is left to other processes."""

Point = tuple[tuple[str, int], ...]
Typed = tuple[int, tuple[Dim, ...]]
"""Element type as a number of `TensorProto.DataType`, 0 where it is not known, and the shape."""


class Inference(Mutable):
    """Graph, and a process that infers the shapes of its values at any sizes of its axes."""

    described: Described
    child: Child
    name: str
    known: dict[Point, Sizes] = field(default_factory=dict)

    def types(self, sizes: Mapping[str, int]) -> Mapping[str, Typed]:
        """Return the types of all values with a known type, at these sizes of the axes.

        Raises:
            CostError: the process has ended, or takes more time or memory than it may.
        """
        return self._at(sizes).types

    def refused(self, sizes: Mapping[str, int]) -> str:
        """Return the first node whose inputs contradict each other at these sizes; "" where none do.

        Raises:
            CostError: the process has ended, or takes more time or memory than it may.
        """
        return self._at(sizes).refused

    def _at(self, sizes: Mapping[str, int]) -> Sizes:
        point = tuple(sorted(sizes.items()))
        if point not in self.known:
            answer = _query_child(self.child, msgspec.json.encode(dict(sizes)), self.name)
            self.known[point] = msgspec.json.decode(answer, type=Sizes)
        return self.known[point]


_MOST_CALLED = 250_000
"""Maximum number of nodes in all expanded calls of one function; inference expands every call."""


def check_calls(ledger: Ledger) -> None:
    """Reject functions whose expanded calls have too many nodes; inference expands every call.

    Raises:
        CostError: a function has too many.
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
        path: path of the main file.
        name: name of the file in messages, if not its path.
        halves: kernels that take FLOAT16; function operators without one are expanded. None expands none.
        functions: operators without any kernel, which are expanded as well.
        seconds: time limit of reading and inferring.

    Raises:
        CostError: inference ends its process, or takes more time or memory than it may.
    """
    name = name or printable(str(path))
    with _started(_PROGRAM) as child:
        answer = _query_child(
            child,
            msgspec.json.encode(
                DescribeRequest(
                    str(path.absolute()), None if halves is None else tuple(halves), tuple(functions)
                )
            ),
            name,
            seconds=seconds,
        )
        yield Inference(msgspec.json.decode(answer, type=Described), child, name)


@contextmanager
def open_optimized(path: Path, level: str) -> Iterator[Inference]:
    """Let onnxruntime optimize the graph without running it, and infer the shapes of the result.

    Args:
        path: path of the main file, which onnxruntime loads with its weights.
        level: a level of `onnxruntime.GraphOptimizationLevel`.

    Raises:
        CostError: onnxruntime does not load the model, or a process ends or takes more time or memory than it may.
        MissingExtraError: onnxruntime is not installed.
    """
    require_onnxruntime("planning the graph that a session makes")
    name = printable(str(path))
    with tempfile.TemporaryDirectory(prefix="onnxledger-") as folder:
        request = Optimizing(str(path.absolute()), folder, level)
        with _started(_OPTIMIZING) as child:
            answer = msgspec.json.decode(
                _query_child(child, msgspec.json.encode(request), name, "onnxruntime"), type=Described | str
            )
        if isinstance(answer, str):
            raise CostError(f"{name}: onnxruntime does not load it: {shorten(printable(answer), 300)}")
        with open_inference(Path(folder, "optimized.onnx"), name) as inference:
            stored = inference.described.tensors
            yield replace(inference, described=_with_tensors(answer, stored))


def _with_tensors(described: Described, stored: Mapping[str, DescribedTensor]) -> Described:
    """Mark constant tensors by the written ONNX file: onnxruntime's own format does not say whether they may be fed."""
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
        raise CostError(f"cannot start a process to infer shapes: {error}") from error
    try:
        yield child
    finally:
        child.end()


def _query_child(
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
