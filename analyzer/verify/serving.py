"""Model and its inputs -> its values, their prints, or its float twin; this runs in a separate process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx

from analyzer.errors import TimingError
from analyzer.model.content import Array
from analyzer.model.operators import MOVES, OPERATORS, Slot
from analyzer.process.child import read_frame, write_frame
from analyzer.timing.inputs.arrays import as_taken, make_array, save_arrays
from analyzer.timing.request import Feed
from analyzer.timing.running.providers import binding_device, check_installed, saves_graph, whole_chain
from analyzer.timing.running.session import check_registered, level_of
from analyzer.verify.arrays import as_array
from analyzer.verify.messages import (
    BEFORE,
    COARSE,
    Answer,
    OptimizedAnswer,
    Patch,
    PatchNode,
    QuantizerAnswer,
    Question,
    ReplacedTensor,
    Rounded,
    TwinAnswer,
    ValueDifference,
)
from analyzer.verify.prints import HUGE, Print, print_of
from analyzer.verify.twin import RANGES, RefusedError, make_twin

_LEAST_AT_ONCE, _MOST_AT_ONCE = 16, 4096
_MOST_BYTES = 1 << 28
"""Most bytes of inner values that one run returns; the smallest batch may need more."""
_FAR = 16.0
"""Least factor by which a mask element lies below all codes."""
_MOST_INLINE = 1_500_000_000
_MOST_CACHED = 8
"""Most models that are kept as they were read."""


def serve() -> None:
    """Answer the questions that come on stdin."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # for output that libraries print
    models = _ModelCache()
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        question = msgspec.json.decode(frame, type=Question)
        try:
            if question.optimized:
                answer = Answer(optimized=_write_optimized(models, question))
            elif question.twin:
                answer = Answer(twin=_make_twin(question))
            elif question.rewritten:
                answer = _rewrite_model(question)
            elif question.tries:
                answer = Answer(tried=_try_patches(models, question))
            elif question.other:
                answer = Answer(apart=_compare_files(models, question))
            elif question.rounds and not question.target:
                answer = Answer(rounded=_measure(models, question))
            elif question.target:
                answer = Answer(places=_save_values(models, question))
            else:
                answer = Answer(prints=_prints(models, question))
        except TimingError as error:
            answer = Answer(refused=str(error))
        except Exception as error:  # noqa: BLE001 - onnxruntime's classes have no base of their own
            answer = Answer(error=f"{type(error).__name__}: {error}")
        write_frame(answers, msgspec.json.encode(answer))
    os._exit(0)


class _ModelCache:
    """Models of the last questions, each read once: two of any size, or up to `_MOST_CACHED` small ones."""

    def __init__(self) -> None:
        self._protos: dict[tuple[str, int], tuple[Any, int]] = {}

    def open(self, path: str) -> Any:
        stat = Path(path).stat()
        key = (path, stat.st_mtime_ns)
        if key not in self._protos:
            while len(self._protos) > 1 and (
                len(self._protos) >= _MOST_CACHED
                or stat.st_size + sum(nbytes for _, nbytes in self._protos.values()) > _MOST_BYTES
            ):
                del self._protos[next(iter(self._protos))]
            self._protos[key] = onnx.load(path, load_external_data=False), stat.st_size
        return self._protos[key][0]


def _session(models: _ModelCache, question: Question, wanted: Sequence[str]) -> Any:
    import onnxruntime

    proto = models.open(question.model)
    nodes = _insert_quantizers(proto.graph, question.rounds if question.target else ())
    if question.patch is not None:
        nodes = nodes or list(proto.graph.node)
        _apply_patch(proto.graph, question.patch)
    if question.coarse:
        nodes = nodes or list(proto.graph.node)
        _coarsen(proto.graph)
    before = len(proto.graph.output)
    known = {output.name for output in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in known)
    options = _options(question)
    provider, available = question.execution.provider, onnxruntime.get_available_providers()
    check_installed(provider, available)
    if binding_device(provider) is not None:
        onnxruntime.preload_dlls()  # CUDA's libraries that pip installed, where no loader would look for them
    options.graph_optimization_level = level_of(question.execution.optimization)
    if question.optimized:
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        if saves_graph(provider):
            options.optimized_model_filepath = question.optimized
            weights = f"{Path(question.optimized).name}.data"
            options.add_session_config_entry(
                "session.optimized_model_external_initializers_file_name", weights
            )
    try:
        payload = proto.SerializeToString()
    finally:
        del proto.graph.output[before:]
        if nodes:
            del proto.graph.node[:]
            proto.graph.node.extend(nodes)
    # Without onnxruntime's fallback: it would run on the CPU instead, and report it on stdout.
    session = onnxruntime.InferenceSession(
        payload, options, providers=whole_chain(provider, available), enable_fallback=0
    )
    check_registered(provider, session.get_providers(), "")
    return session


def _write_optimized(models: _ModelCache, question: Question) -> OptimizedAnswer:
    """Write the graph that onnxruntime runs, and return its edges."""
    session = _session(models, question, ())
    target = Path(question.optimized)
    assigned: dict[str, int] = {}
    if hasattr(session, "get_provider_graph_assignment_info"):  # since onnxruntime 1.24
        for part in session.get_provider_graph_assignment_info():
            assigned[part.ep_name] = assigned.get(part.ep_name, 0) + len(part.get_nodes())
    if not target.is_file():
        return OptimizedAnswer([], is_written=False, assigned=assigned)
    graph = onnx.load(target, load_external_data=False).graph
    edges = [([*node.input, *_captured(node)], [*node.output], node.op_type) for node in graph.node]
    return OptimizedAnswer(edges, is_written=True, assigned=assigned)


def _options(question: Question) -> Any:
    """Return options for a silent session, whose threads wait between its short runs instead of spinning."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    folder = question.home or str(Path(question.model).resolve().parent)
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    return options


def _insert_quantizers(graph: Any, quantizers: Sequence[QuantizerAnswer]) -> list[Any]:
    """Insert quantizers that the twin leaves out; return the nodes as they were, or none where nothing changes."""
    if not quantizers:
        return []
    original, changed = list(graph.node), []
    by_place = {each.place: each for each in quantizers}
    for node in original:
        each = by_place.get(node.output[0]) if node.output else None
        if each is None:
            changed.append(node)
            continue
        real, codes = node.input[0], f"{each.place}/codes"
        make = onnx.helper.make_node
        if each.scale:
            scale_names = [each.scale, each.zero] if each.zero else [each.scale]
            quantize = make(
                "QuantizeLinear", [real, *scale_names], [codes], domain=each.domain, axis=each.axis
            )
        else:
            scale_names = [f"{each.place}/scale", f"{each.place}/zero"]
            quantize = make("DynamicQuantizeLinear", [real], [codes, *scale_names])
        decode = make(
            "DequantizeLinear", [codes, *scale_names], [each.place], domain=each.domain, axis=each.axis
        )
        if each.axis == 1:  # 1 is the default, and old versions have no such attribute
            for each_node in (quantize, decode):
                del each_node.attribute[:]
        changed += [quantize, decode]
    del graph.node[:]
    graph.node.extend(changed)
    return original


def _apply_patch(graph: Any, patch: Patch) -> None:
    """Replace a value by a patch; changed nodes are copies, so that the originals can be restored."""
    nodes = []
    for node in graph.node:
        if patch.output not in node.output:
            nodes.append(node)
            continue
        copied = type(node).FromString(node.SerializeToString())
        place = list(copied.output).index(patch.output)
        copied.output[place] = patch.output + BEFORE
        nodes += [copied, *_patch_nodes(patch)]
    del graph.node[:]
    graph.node.extend(nodes)


_SIGMOID_ERROR = 1.7e-7
"""Largest error of onnxruntime 1.31's sigmoid: 1.67e-7 among seven million numbers from -30 to 30."""


def _coarsen(graph: Any) -> None:
    """Add the largest possible error to the outputs of coarse operators; changed nodes are copies."""
    nodes = []
    for node in graph.node:
        if not _is_coarse(node):
            nodes.append(node)
            continue
        copied = type(node).FromString(node.SerializeToString())
        name = node.output[0]
        copied.output[0], error = name + BEFORE, f"{name}/off"
        nodes += [copied, *_patch_nodes(Patch(name, [], {error: _SIGMOID_ERROR}))]
        if node.op_type in _SIGMOID_PRODUCTS:  # these multiply a sigmoid by its input
            nodes.append(onnx.helper.make_node("Mul", [node.input[0], error], [f"{error}/times"]))
            error = f"{error}/times"
        nodes.append(onnx.helper.make_node("Add", [copied.output[0], error], [name]))
    del graph.node[:]
    graph.node.extend(nodes)


_FUSED = frozenset({"FusedConv", "FusedGemm"})
_SIGMOID_PRODUCTS = frozenset({"QuickGelu", "Swish", "Silu"})


def _is_coarse(node: Any) -> bool:
    if node.op_type not in COARSE:
        return False
    return node.op_type not in _FUSED or any(
        each.name == "activation" and each.s == b"Sigmoid" for each in node.attribute
    )


def _patch_nodes(patch: Patch) -> Iterator[Any]:
    for name, number in patch.numbers.items():
        value = onnx.numpy_helper.from_array(np.array(number, np.float32), name)
        yield onnx.helper.make_node("Constant", [], [name], value=value)
    for node in patch.nodes:
        yield _patch_node(node)


def _patch_node(node: PatchNode) -> Any:
    made = onnx.helper.make_node(node.op_type, node.inputs, [node.output], domain=node.domain or None)
    made.attribute.extend(onnx.helper.make_attribute(key, value) for key, value in node.settings.items())
    return made


def _try_patches(models: _ModelCache, question: Question) -> list[Print | None]:
    """Return the print of each patch's result, computed from the values of the unchanged model."""
    import onnxruntime

    proto = models.open(question.model)
    stored = _stored(proto)
    inputs = _inputs(question)
    makers = {name for node in proto.graph.node for name in node.output}
    wanted = list(dict.fromkeys(name for patch in question.tries for name in _patch_inputs(patch)))
    values = dict(inputs)
    running = [name for name in wanted if name in makers and name not in stored]
    values.update((running[place], value) for place, value in _run(models, question, running))
    options = _options(question)
    found: list[Print | None] = []
    for patch in question.tries:
        names = _patch_inputs(patch)
        feeds = {name: values[name] for name in names if name in values}
        tensors = []
        for name in names:
            if name in stored and name not in values:
                tensor = type(stored[name]).FromString(stored[name].SerializeToString())
                tensor.name = name
                tensors.append(tensor)
        nodes = [*_patch_nodes(patch)]
        for node in nodes:
            for place, name in enumerate(node.input):
                if name == patch.output + BEFORE:
                    node.input[place] = patch.output
            if node.output[0] == patch.output:
                node.output[0] = patch.output + "/tried"
        try:
            graph = onnx.helper.make_graph(
                nodes,
                "tried",
                [_typed_value(name, array) for name, array in feeds.items()],
                [onnx.ValueInfoProto(name=patch.output + "/tried")],
                tensors,
            )
            model = onnx.helper.make_model(
                graph, opset_imports=proto.opset_import, ir_version=proto.ir_version
            )
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            found.append(print_of(session.run(None, feeds)[0]))
        except Exception:  # noqa: BLE001 - what does not run is no answer
            found.append(None)
    return found


def _patch_inputs(patch: Patch) -> list[str]:
    """Return the values of the model that the nodes of a patch read."""
    own = {*(node.output for node in patch.nodes), *patch.numbers} - {patch.output}
    names = [name for node in patch.nodes for name in node.inputs if name and name not in own]
    return list(dict.fromkeys(patch.output if name == patch.output + BEFORE else name for name in names))


def _typed_value(name: str, array: Array) -> Any:
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, kind, list(array.shape))


def _rewrite_model(question: Question) -> Answer:
    """Write the model with other numbers in it."""
    proto = onnx.load(question.model, load_external_data=False)
    onnx.load_external_data_for_model(proto, question.home or str(Path(question.model).resolve().parent))
    with np.load(question.inputs_file) as archive:
        arrays = [archive[f"v{place}"] for place in range(len(question.state))]
    replaced_names = set()
    for replaced, array in zip(question.state, arrays, strict=True):
        _replace_tensor(proto.graph, replaced, array)
        replaced_names.add(replaced.name)
    if question.rounded_to or question.perturbation:
        _change_all(proto, replaced_names, question)
    if proto.ByteSize() > _MOST_INLINE:
        name = f"{Path(question.rewritten).name}.data"
        onnx.save(proto, question.rewritten, save_as_external_data=True, location=name, size_threshold=1024)
    else:
        Path(question.rewritten).write_bytes(proto.SerializeToString())
    return Answer()


def _replace_tensor(graph: Any, replaced: ReplacedTensor, array: Array) -> None:
    """Give a stored tensor other numbers, or give one node a tensor of its own to read."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            stored.update((node.output[0], each.t) for each in node.attribute if each.name == "value")
    original = stored[replaced.name]
    element = onnx.helper.tensor_dtype_to_np_dtype(original.data_type)
    replacement = onnx.numpy_helper.from_array(
        array.reshape(tuple(original.dims)).astype(element), original.name
    )
    if not replaced.reader:
        original.CopyFrom(replacement)
        return
    replacement.name = f"{replaced.name}/{replaced.reader}"
    graph.initializer.append(replacement)
    for node in graph.node:
        if node.output and node.output[0] == replaced.reader:
            for place, name in enumerate(node.input):
                if name == replaced.name:
                    node.input[place] = replacement.name


_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)


def _change_all(proto: Any, replaced_names: set[str], question: Question) -> None:
    """Round or move all stored floats, in the main graph and in bodies."""
    random = np.random.default_rng(0)
    shaping: set[str] = set()

    def change(tensor: Any, name: str) -> None:
        if tensor.data_type not in _FLOATS or name in shaping:
            return
        array = onnx.numpy_helper.to_array(tensor)
        if question.rounded_to and tensor.name not in replaced_names:
            array = _as_half(array, question.rounded_to)
        if question.perturbation and array.size > 1:
            signs = random.choice(np.array([-1.0, 1.0], array.dtype), array.shape)
            with np.errstate(over="ignore", invalid="ignore"):
                array = np.where(
                    np.abs(array) < HUGE, array * (1 + array.dtype.type(question.perturbation) * signs), array
                )
        tensor.CopyFrom(onnx.numpy_helper.from_array(np.asarray(array), tensor.name))

    def walk(graph: Any) -> None:
        shaping.update(_shaping(graph) if question.perturbation else ())
        for tensor in graph.initializer:
            change(tensor, tensor.name)
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.HasField("t"):
                    change(attribute.t, node.output[0])
                for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    walk(body)

    walk(proto.graph)


def _shaping(graph: Any) -> set[str]:
    """Return the values that determine sizes, such as the scales of Resize: with 1.9999999 for 2, 22 rows become 21."""
    found: set[str] = set()
    for node in reversed(graph.node):
        known = OPERATORS.get("" if node.domain == "ai.onnx" else node.domain, {}).get(node.op_type)
        for place, name in enumerate(node.input):
            is_own = known is not None and known.slot(place) in (Slot.CONSTANT, Slot.INDEX)
            if is_own or (node.op_type in MOVES and found.intersection(node.output)):
                found.add(name)
    return found


def _as_half(array: Array, half: str) -> Array:
    """Round as tools do: for FLOAT16, nonzero magnitudes below 1e-7 become 1e-7, and those above 65504 become 1e4."""
    import ml_dtypes

    element = np.dtype(np.float16 if half == "FLOAT16" else ml_dtypes.bfloat16)
    least, most = (1e-7, 1e4) if half == "FLOAT16" else (0.0, HUGE)
    with np.errstate(over="ignore"):
        small = (np.abs(array) < least) & (array != 0)
        kept = np.where(small, np.copysign(least, array), array)
        kept = np.where(np.abs(kept) > 65504.0, np.copysign(most, kept), kept) if half == "FLOAT16" else kept
        rounded: Array = kept.astype(element).astype(array.dtype)
    return rounded


def _inputs(question: Question) -> dict[str, Array]:
    if question.inputs_file:
        with np.load(question.inputs_file) as archive:
            return {name: archive[f"v{place}"] for place, name in enumerate(question.names)}
    feeds = [msgspec.convert(fields, Feed) for fields in question.feeds]
    return {feed.name: make_array(feed, question.seed) for feed in feeds}


def _run(models: _ModelCache, question: Question, wanted: Sequence[str]) -> Iterator[tuple[int, Array]]:
    """Yield the values that can be compared as arrays, each with its place in `wanted`."""
    session = _session(models, question, wanted)
    kinds = {each.name: each.type for each in session.get_inputs()}
    feeds = {
        name: _typed(array, kinds.get(name, "")) for name, array in _inputs(question).items() if name in kinds
    }
    for place, value in enumerate(session.run(list(wanted), as_taken(feeds, session))):
        array = as_array(value)
        if array is not None:
            yield place, array


_HALF = {"tensor(float16)": np.float16, "tensor(float)": np.float32}


def _typed(array: Array, kind: str) -> Array:
    """Convert a float input to the file's precision: the twin of a half-precision file takes single precision."""
    kind = kind.removeprefix("seq(").removesuffix("))") + ")" if kind.startswith("seq(") else kind
    return array.astype(_HALF[kind]) if kind in _HALF and array.dtype.kind == "f" else array


def _save_values(models: _ModelCache, question: Question) -> list[int]:
    kept = {f"v{place}": value for place, value in _run(models, question, question.wanted)}
    save_arrays(Path(question.target), kept)
    return [int(name[1:]) for name in kept]


def _prints(models: _ModelCache, question: Question) -> dict[str, Print]:
    """Return the prints of all wanted values, computed in batches so that memory stays bounded."""
    found: dict[str, Print] = {}
    waiting, batch_size = list(question.wanted), 64
    while waiting:
        batch, waiting = waiting[:batch_size], waiting[batch_size:]
        total_bytes = 1
        for place, value in _run(models, question, batch):
            total_bytes += value.nbytes
            found[batch[place]] = print_of(value)
        per_value = max(1, total_bytes // len(batch))
        batch_size = min(max(_MOST_BYTES // per_value, _LEAST_AT_ONCE), _MOST_AT_ONCE)
    return found


def _measure(models: _ModelCache, question: Question) -> dict[str, Rounded]:
    """Return the effect of each quantizer on its values, computed in batches so that memory stays bounded."""
    found: dict[str, Rounded] = {}
    stored = _stored(models.open(question.model))
    waiting, batch_size = list(question.rounds), 32
    while waiting:
        batch, waiting = waiting[:batch_size], waiting[batch_size:]
        total_bytes = 1
        for place, value in _run(models, question, [each.place for each in batch]):
            total_bytes += value.nbytes
            found[batch[place].place] = _round(value, batch[place], stored)
        batch_size = min(max(_MOST_BYTES // max(1, total_bytes // len(batch)), _LEAST_AT_ONCE), _MOST_AT_ONCE)
    return found


def _stored(proto: Any) -> dict[str, Any]:
    """Return initializers and the tensors of Constant nodes, by the name of the value."""
    found = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Constant":
            found.update((node.output[0], each.t) for each in node.attribute if each.name == "value")
    return found


def _round(value: Array, quantizer: QuantizerAnswer, stored: dict[str, Any]) -> Rounded:
    """Round as QuantizeLinear does, and compare the result with the input."""
    numbers = value.astype(np.float64)
    least, most = RANGES[quantizer.kind]
    with np.errstate(invalid="ignore"):
        counted = np.abs(numbers) < HUGE
    if quantizer.scale:
        scale = onnx.numpy_helper.to_array(stored[quantizer.scale]).astype(np.float64)
        zero = np.zeros(1)
        if quantizer.zero:
            zero = onnx.numpy_helper.to_array(stored[quantizer.zero]).astype(np.float64)
    else:  # as DynamicQuantizeLinear does
        low, high = min(numbers[counted].min(initial=0.0), 0.0), max(numbers[counted].max(initial=0.0), 0.0)
        step = (high - low) / (most - least) or 1.0
        scale, zero = np.array([step]), np.array([np.clip(np.rint(-low / step), least, most)])
    if scale.size > 1:  # one scale per channel
        sizes = [1] * numbers.ndim
        sizes[quantizer.axis] = -1
        scale, zero = scale.reshape(sizes), np.broadcast_to(zero.reshape(-1), scale.size).reshape(sizes)
    else:
        scale, zero = scale.reshape(()), zero.reshape(-1)[0]
    floor, ceiling = np.minimum((least - zero) * scale, 0.0), np.maximum((most - zero) * scale, 0.0)
    cut = (numbers < floor - np.abs(scale) / 2) | (numbers > ceiling + np.abs(scale) / 2)
    masks = int((cut & ~counted & ~np.isnan(numbers)).sum())
    cut_values = np.unique(numbers[cut & counted])
    if cut_values.size == 1 and float(cut_values[0]) < _FAR * float(floor.min()):  # one distant value: a mask
        masks += int((cut & counted).sum())
        counted &= ~cut
    with np.errstate(invalid="ignore", divide="ignore"):
        codes = np.clip(np.rint(numbers / scale) + zero, least, most)
        errors = ((codes - zero) * scale - numbers)[counted]
        # if all codes have the other sign there is no factor: count in half steps of the scale
        ratios = np.abs(numbers) / np.maximum(np.where(numbers < 0, -floor, ceiling), np.abs(scale) / 2)
    kept = numbers[counted]
    return Rounded(
        int(kept.size),
        float(kept @ kept),
        float(errors @ errors),
        int((cut & counted).sum()),
        float(ratios[counted].max(initial=0.0)),
        float(kept.min(initial=0.0)),
        float(kept.max(initial=0.0)),
        float(floor.reshape(-1)[0]),
        float(ceiling.reshape(-1)[0]),
        most - least,
        masks,
        *_rows(cut & counted),
    )


def _rows(cut: Array) -> tuple[int, int]:
    """Return the number of rows, and the number of rows in which an element is cut off."""
    rows = cut.reshape(-1, cut.shape[-1] if cut.ndim else 1)
    return len(rows), int(rows.any(axis=1).sum())


def _compare_files(models: _ModelCache, question: Question) -> dict[str, ValueDifference]:
    """Return the difference of each value of the same name in two files, in batches so that memory stays bounded."""
    found: dict[str, ValueDifference] = {}
    waiting, batch_size = list(question.wanted), 32
    other = msgspec.structs.replace(
        question,
        model=question.other,
        home=question.other_home,
        execution=question.other_execution,
        coarse=False,
    )
    while waiting:
        batch, waiting = waiting[:batch_size], waiting[batch_size:]
        our_values = dict(_run(models, question, batch))
        total_bytes = 1
        for place, their_value in _run(models, other, batch):
            total_bytes += their_value.nbytes
            our_value = our_values.get(place)
            if (
                our_value is not None
                and our_value.shape == their_value.shape
                and their_value.dtype.kind == "f"
            ):
                found[batch[place]] = _measure_difference(our_value, their_value)
        batch_size = min(max(_MOST_BYTES // max(1, total_bytes // len(batch)), _LEAST_AT_ONCE), _MOST_AT_ONCE)
    return found


def _measure_difference(ours: Array, theirs: Array) -> ValueDifference:
    a, b = ours.astype(np.float64).reshape(-1), theirs.astype(np.float64).reshape(-1)
    finite = np.isfinite(b)
    lost, gained = int((finite & ~np.isfinite(a)).sum()), int((~finite & np.isfinite(a)).sum())
    both = finite & np.isfinite(a)
    a, b = a[both], b[both]
    difference = np.abs(a - b)
    largest = float(np.abs(b).max(initial=0.0))
    count = max(b.size, 1)
    return ValueDifference(
        float(np.sqrt(b @ b / count)),
        float(np.sqrt(difference @ difference / count)),
        float(difference.max(initial=0.0)),
        lost,
        largest,
        gained,
    )


def _make_twin(question: Question) -> TwinAnswer:
    proto = onnx.load(question.model, load_external_data=bool(question.half))
    try:
        twin = make_twin(proto, question.half, rectify=question.rectify, restored=question.restored)
    except RefusedError as error:
        return TwinAnswer(str(error), [], 0, 0, 0, False, 0, [])
    edges = [([*node.input, *_captured(node)], [*node.output], node.op_type) for node in proto.graph.node]
    if question.half and proto.ByteSize() > _MOST_INLINE:
        onnx.save(proto, question.twin, save_as_external_data=True, location="twin.data", size_threshold=1024)
    else:
        Path(question.twin).write_bytes(proto.SerializeToString())
    quantizers = [
        QuantizerAnswer(q.node, q.value, q.place, q.scale, q.zero, q.axis, q.domain, q.kind)
        for q in twin.quantizers
    ]
    return TwinAnswer(
        "",
        quantizers,
        twin.activations,
        twin.products,
        twin.unmeasured,
        twin.is_widened,
        twin.rectified,
        edges,
    )


def _captured(node: Any) -> Iterator[str]:
    """Yield the names that the bodies of a node read, including names of their own."""
    for attribute in node.attribute:
        for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            for inner in body.node:
                yield from inner.input
                yield from _captured(inner)
            yield from (output.name for output in body.output)
