"""A model and what it is fed -> its values or what is kept of them, or its float twin: by a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx

from analyzer.model.content import Array
from analyzer.process.child import read_frame, write_frame
from analyzer.timing.inputs.arrays import make_array
from analyzer.timing.request import Feed
from analyzer.verify.asked import Answer, Apart, QuantizerAnswer, Question, Rounded, TwinAnswer
from analyzer.verify.prints import HUGE, Print, print_of
from analyzer.verify.twin import RANGES, RefusedError, make_twin

_LEAST_AT_ONCE, _MOST_AT_ONCE = 16, 4096
_ROOM = 1 << 28
"""Bytes of inner values that one run hands out, or those of a few values where these are larger."""
_FAR = 16.0
"""How many times lower than all codes the number of a mask is, at least."""
_MOST_INLINE = 1_500_000_000


def serve() -> None:
    """Answer questions that come on stdin."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print
    held = _Held()
    while (question := read_frame(sys.stdin.buffer)) is not None:
        asked = msgspec.json.decode(question, type=Question)
        try:
            if asked.twin:
                answer = Answer(twin=_make_twin(asked))
            elif asked.other:
                answer = Answer(apart=_beside(held, asked))
            elif asked.rounds and not asked.target:
                answer = Answer(rounded=_measure(held, asked))
            elif asked.target:
                answer = Answer(places=_values(held, asked))
            else:
                answer = Answer(prints=_prints(held, asked))
        except Exception as error:  # noqa: BLE001 - onnxruntime's classes have no base of their own
            answer = Answer(error=f"{type(error).__name__}: {error}")
        write_frame(answers, msgspec.json.encode(answer))
    os._exit(0)


class _Held:
    """The models of the last two questions, so that each is read once."""

    def __init__(self) -> None:
        self._protos: dict[tuple[str, int], Any] = {}

    def open(self, path: str) -> Any:
        key = (path, Path(path).stat().st_mtime_ns)
        if key not in self._protos:
            while len(self._protos) > 1:
                del self._protos[next(iter(self._protos))]
            self._protos[key] = onnx.load(path, load_external_data=False)
        return self._protos[key]


def _session(held: _Held, asked: Question, wanted: Sequence[str]) -> Any:
    import onnxruntime

    proto = held.open(asked.model)
    nodes = _put_back(proto.graph, asked.rounds if asked.target else ())
    before = len(proto.graph.output)
    known = {output.name for output in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in known)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, asked.level)
    folder = asked.home or str(Path(asked.model).resolve().parent)
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    try:
        payload = proto.SerializeToString()
    finally:
        del proto.graph.output[before:]
        if nodes:
            del proto.graph.node[:]
            proto.graph.node.extend(nodes)
    return onnxruntime.InferenceSession(payload, options, providers=["CPUExecutionProvider"])


def _put_back(graph: Any, quantizers: Sequence[QuantizerAnswer]) -> list[Any]:
    """Have quantizers round what the twin only hands on; the nodes as they were, where there are any."""
    if not quantizers:
        return []
    before, made = list(graph.node), []
    places = {each.place: each for each in quantizers}
    for node in before:
        each = places.get(node.output[0]) if node.output else None
        if each is None:
            made.append(node)
            continue
        real, codes = node.input[0], f"{each.place}/codes"
        make = onnx.helper.make_node
        if each.scale:
            given = [each.scale, each.zero] if each.zero else [each.scale]
            quantize = make("QuantizeLinear", [real, *given], [codes], domain=each.domain, axis=each.axis)
        else:
            given = [f"{each.place}/scale", f"{each.place}/zero"]
            quantize = make("DynamicQuantizeLinear", [real], [codes, *given])
        decode = make("DequantizeLinear", [codes, *given], [each.place], domain=each.domain, axis=each.axis)
        if each.axis == 1:  # as it is without saying, and as old versions have it
            for each_node in (quantize, decode):
                del each_node.attribute[:]
        made += [quantize, decode]
    del graph.node[:]
    graph.node.extend(made)
    return before


def _inputs(asked: Question) -> dict[str, Array]:
    if asked.given:
        with np.load(asked.given) as held:
            return {name: held[f"v{place}"] for place, name in enumerate(asked.names)}
    feeds = [msgspec.convert(fields, Feed) for fields in asked.feeds]
    return {feed.name: make_array(feed, asked.seed) for feed in feeds}


def _run(held: _Held, asked: Question, wanted: Sequence[str]) -> Iterator[tuple[int, Array]]:
    """Values with their places; those that are no arrays are left out."""
    session = _session(held, asked, wanted)
    kinds = {each.name: each.type for each in session.get_inputs()}
    given = {
        name: _typed(array, kinds.get(name, "")) for name, array in _inputs(asked).items() if name in kinds
    }
    for place, value in enumerate(session.run(list(wanted), given)):
        if isinstance(value, np.ndarray) and value.dtype != object:
            yield place, value


_HALF = {"tensor(float16)": np.float16, "tensor(float)": np.float32}


def _typed(array: Array, kind: str) -> Array:
    """A float input in the file's precision: the twin of a half-precision file takes single ones."""
    return array.astype(_HALF[kind]) if kind in _HALF and array.dtype.kind == "f" else array


def _values(held: _Held, asked: Question) -> list[int]:
    kept = {f"v{place}": value for place, value in _run(held, asked, asked.wanted)}
    np.savez(asked.target, allow_pickle=False, **kept)
    return [int(name[1:]) for name in kept]


def _prints(held: _Held, asked: Question) -> dict[str, Print]:
    """What is kept of all wanted values, so many at a time that memory stays bounded."""
    found: dict[str, Print] = {}
    waiting, many = list(asked.wanted), 64
    while waiting:
        some, waiting = waiting[:many], waiting[many:]
        taken = 1
        for place, value in _run(held, asked, some):
            taken += value.nbytes
            found[some[place]] = print_of(value)
        each = max(1, taken // len(some))
        many = min(max(_ROOM // each, _LEAST_AT_ONCE), _MOST_AT_ONCE)
    return found


def _measure(held: _Held, asked: Question) -> dict[str, Rounded]:
    """What each quantizer does to its values, so many at a time that memory stays bounded."""
    found: dict[str, Rounded] = {}
    stored = _stored(held.open(asked.model))
    waiting, many = list(asked.rounds), 32
    while waiting:
        some, waiting = waiting[:many], waiting[many:]
        taken = 1
        for place, value in _run(held, asked, [each.place for each in some]):
            taken += value.nbytes
            found[some[place].place] = _round(value, some[place], stored)
        many = min(max(_ROOM // max(1, taken // len(some)), _LEAST_AT_ONCE), _MOST_AT_ONCE)
    return found


def _stored(proto: Any) -> dict[str, Any]:
    """Initializers, and what Constant nodes hold, by the name of the value."""
    found = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Constant":
            found.update((node.output[0], each.t) for each in node.attribute if each.name == "value")
    return found


def _round(value: Array, quantizer: QuantizerAnswer, stored: dict[str, Any]) -> Rounded:
    """Round as QuantizeLinear does, and hold what comes of it against what was given."""
    given = value.astype(np.float64)
    least, most = RANGES[quantizer.kind]
    with np.errstate(invalid="ignore"):
        counts = np.abs(given) < HUGE
    if quantizer.scale:
        scale = onnx.numpy_helper.to_array(stored[quantizer.scale]).astype(np.float64)
        zero = np.zeros(1)
        if quantizer.zero:
            zero = onnx.numpy_helper.to_array(stored[quantizer.zero]).astype(np.float64)
    else:  # as DynamicQuantizeLinear does
        low, high = min(given[counts].min(initial=0.0), 0.0), max(given[counts].max(initial=0.0), 0.0)
        step = (high - low) / (most - least) or 1.0
        scale, zero = np.array([step]), np.array([np.clip(np.rint(-low / step), least, most)])
    if scale.size > 1:  # a number for each channel
        sizes = [1] * given.ndim
        sizes[quantizer.axis] = -1
        scale, zero = scale.reshape(sizes), np.broadcast_to(zero.reshape(-1), scale.size).reshape(sizes)
    else:
        scale, zero = scale.reshape(()), zero.reshape(-1)[0]
    floor, ceiling = np.minimum((least - zero) * scale, 0.0), np.maximum((most - zero) * scale, 0.0)
    cut = (given < floor - np.abs(scale) / 2) | (given > ceiling + np.abs(scale) / 2)
    masks = int((cut & ~counts & ~np.isnan(given)).sum())
    alone = np.unique(given[cut & counts])
    if alone.size == 1 and float(alone[0]) < _FAR * float(floor.min()):  # one number, far off: a mask
        masks += int((cut & counts).sum())
        counts &= ~cut
    with np.errstate(invalid="ignore", divide="ignore"):
        codes = np.clip(np.rint(given / scale) + zero, least, most)
        off = ((codes - zero) * scale - given)[counts]
        # a number of the other sign than all codes is beyond by no factor: it counts in half steps of what there is
        times = np.abs(given) / np.maximum(np.where(given < 0, -floor, ceiling), np.abs(scale) / 2)
    kept = given[counts]
    return Rounded(
        int(kept.size),
        float(kept @ kept),
        float(off @ off),
        int((cut & counts).sum()),
        float(times[counts].max(initial=0.0)),
        float(kept.min(initial=0.0)),
        float(kept.max(initial=0.0)),
        float(floor.reshape(-1)[0]),
        float(ceiling.reshape(-1)[0]),
        most - least,
        masks,
    )


def _beside(held: _Held, asked: Question) -> dict[str, Apart]:
    """Values of one name in two files, so many at a time that memory stays bounded."""
    found: dict[str, Apart] = {}
    waiting, many = list(asked.wanted), 32
    other = msgspec.structs.replace(asked, model=asked.other, home=asked.other_home)
    while waiting:
        some, waiting = waiting[:many], waiting[many:]
        ours = dict(_run(held, asked, some))
        taken = 1
        for place, theirs in _run(held, other, some):
            taken += theirs.nbytes
            mine = ours.get(place)
            if mine is not None and mine.shape == theirs.shape and theirs.dtype.kind == "f":
                found[some[place]] = _apart(mine, theirs)
        many = min(max(_ROOM // max(1, taken // len(some)), _LEAST_AT_ONCE), _MOST_AT_ONCE)
    return found


def _apart(ours: Array, theirs: Array) -> Apart:
    a, b = ours.astype(np.float64).reshape(-1), theirs.astype(np.float64).reshape(-1)
    finite = np.isfinite(b)
    lost = int((finite & ~np.isfinite(a)).sum())
    both = finite & np.isfinite(a)
    a, b = a[both], b[both]
    off = np.abs(a - b)
    largest = float(np.abs(b).max(initial=0.0))
    count = max(b.size, 1)
    return Apart(
        float(np.sqrt(b @ b / count)),
        float(np.sqrt(off @ off / count)),
        float(off.max(initial=0.0)),
        lost,
        largest,
    )


def _make_twin(asked: Question) -> TwinAnswer:
    proto = onnx.load(asked.model, load_external_data=bool(asked.half))
    try:
        twin = make_twin(proto, asked.half, rectify=asked.rectify)
    except RefusedError as error:
        return TwinAnswer(str(error), [], 0, 0, 0, False, 0, [])
    edges = [([*node.input, *_captured(node)], [*node.output], node.op_type) for node in proto.graph.node]
    if asked.half and proto.ByteSize() > _MOST_INLINE:
        onnx.save(proto, asked.twin, save_as_external_data=True, location="twin.data", size_threshold=1024)
    else:
        Path(asked.twin).write_bytes(proto.SerializeToString())
    quantizers = [
        QuantizerAnswer(q.node, q.value, q.place, q.scale, q.zero, q.axis, q.domain, q.kind)
        for q in twin.quantizers
    ]
    return TwinAnswer(
        "",
        quantizers,
        twin.activations,
        twin.products,
        twin.untold,
        twin.is_widened,
        twin.rectified,
        edges,
    )


def _captured(node: Any) -> Iterator[str]:
    """Names that the bodies of a node read, those of their own among them."""
    for attribute in node.attribute:
        for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            for inner in body.node:
                yield from inner.input
                yield from _captured(inner)
            yield from (output.name for output in body.output)
