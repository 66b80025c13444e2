"""Reconciliation -> the weights that PyTorch's side computes with: the file's, where the file holds them rounded."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

import numpy as np

from analyzer.manifest import BatchNorm, Buffer, Parameter
from analyzer.model import Key, StoredTensor
from analyzer.model.content import Array
from analyzer.model.dtypes import HALF_STEPS, DType
from analyzer.reconciliation import Reconciliation
from analyzer.reconciliation.lines import MEANINGS, UNBALANCED, Line, ParameterLine
from analyzer.records import replace
from analyzer.recover import recover_state
from analyzer.recover.restoring import Restorer
from analyzer.verify.against import DEAD, SWAPPED, Known
from analyzer.verify.costs import Exchange, ModuleTensors, load_tensors
from analyzer.verify.side import Side

_ROUNDED = frozenset({Line.CAST, Line.QUANTIZED, Line.BLOCK_QUANTIZED})
_FOLDED = "batchnorm "
_DECODING = ("DequantizeLinear", "Transpose", "Identity", "Cast", "Reshape")
"""Operators between codes and the operator that computes with them."""
REASONS = {
    Line.DIFFERING: "its values in the file differ",
    Line.MISPLACED: SWAPPED,
    Line.MISSING: "the file does not hold it",
    Line.DEAD: DEAD,
    Line.UNEXPECTED: "PyTorch has no such tensor",
    Line.UNEXPLAINED: "nothing in PyTorch explains it",
    Line.OPAQUE: "nothing in PyTorch explains it, and the file computes with it",
}
"""Reason why a tensor does not balance, by its line."""


def known_of(result: Reconciliation) -> Known:
    """Return the weights that do not balance, with the reasons in words."""
    suspects = {
        line.name: REASONS.get(line.line, str(line.line.value))
        for line in result.parameters
        if line.line in UNBALANCED
    }
    strangers = {}
    for entry in result.entries:
        if entry.line not in UNBALANCED:
            continue
        if entry.parameter is not None:
            suspects.setdefault(entry.parameter, REASONS.get(entry.line, str(entry.line.value)))
        if entry.line in (Line.UNEXPECTED, Line.UNEXPLAINED, Line.OPAQUE):
            strangers[entry.key[1]] = REASONS[entry.line]
    for finding in result.findings:
        if finding.id == Line.OPAQUE.value:  # also values without a stored tensor, as made by a function
            for name in finding.subjects:
                strangers.setdefault(name, REASONS[Line.OPAQUE])
    stored_names = {name: [key[1] for key in keys if not key[0]] for name, keys in _stored(result).items()}
    for entry in result.entries:
        if entry.parameter is not None and not entry.key[0]:
            stored_names.setdefault(entry.parameter, []).append(entry.key[1])
    return Known(suspects, strangers, {name: tuple(keys) for name, keys in stored_names.items()})


def find_lost(result: Reconciliation) -> list[str]:
    """Return the parameters that forward may read, and that cannot be recovered from the file."""
    recovery = recover_state(result)
    read = {parameter.name for parameter in result.manifest.parameters if parameter.read is not False}
    lost = [each.name for each in recovery.lost if each.name in read]
    unfolded = (
        {name for _, name, _ in unfold(result, Restorer(result.ledger), is_all=True)} if lost else set()
    )
    return [name for name in lost if name not in unfolded]


def load_file_weights(result: Reconciliation, side: Side, *, is_all: bool = False) -> Exchange:
    """Load the file's tensors into the module: all of them, or those that it holds rounded.

    Tensors that do not balance stay as PyTorch has them. A batch normalization that was folded into a convolution and
    rounded with it becomes one that only adds the file's bias.

    Returns:
        The exchanged tensors, by module, and the module as it was before, unless its weights are made up (`is_all`).

    Raises:
        UsageError: a tensor of the file cannot be read.
    """
    recovery = recover_state(result)
    restorer = Restorer(result.ledger)
    rounded = {line.name for line in result.parameters if is_rounded(line)}
    tensors = {
        each.name: each
        for each in recovery.tensors
        if is_all or (each.name in rounded and each.line not in UNBALANCED)
    }
    found: dict[str, dict[str, Array]] = {}
    for name, each in tensors.items():
        parts = [*restorer.values(each.shape, each.dtype, each.pieces)]
        value = np.concatenate([part.reshape(-1) for part in parts]).reshape(each.shape)
        found.setdefault(_owner(name), {})[name] = value
    separate = (*_copies(result, restorer), *buffers_of(result, restorer), *_directions(result, restorer))
    for owner, name, value in (*separate, *(() if is_all else _misplaced(result, restorer))):
        found.setdefault(owner, {})[name] = value
    for owner, name, value in unfold(result, restorer, is_all=is_all):
        found.setdefault(owner, {})[name] = value
    stored = _stored(result)
    tensors_of = {
        module: {key for name in values for key in stored.get(name, ())} for module, values in found.items()
    }
    by_key = {entry.tensor.key: entry.tensor for entry in result.ledger.entries}
    exchanged = tuple(
        ModuleTensors(
            module,
            values,
            sum(by_key[key].nbytes for key in tensors_of[module]),
            sum(math.prod(restorer.shape(by_key[key])) * _SINGLE for key in tensors_of[module]),
        )
        for module, values in found.items()
    )
    computed = [*_computed(result, restorer)]
    side.compute_with(computed)
    if not exchanged and not computed:
        return Exchange(is_made_up=is_all)
    varying = dict(_values_by_call(result, restorer))
    original = None if is_all else side.apart()
    load_tensors(side, exchanged)
    side.vary(varying)
    return Exchange(exchanged, original, is_all)


_SINGLE = 4
"""Bytes of a number in single precision."""
_NEAR = 1 / 8
"""Largest rounding error, relative to the largest number: half a step of four bits."""


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _stored(result: Reconciliation) -> dict[str, tuple[Key, ...]]:
    """Return the stored tensors of each parameter and buffer: codes without their scales."""
    found = {line.name: tuple(line.entries) for line in result.parameters}
    for line in result.entries:
        if line.line is Line.BUFFER and line.parameter is not None:
            found.setdefault(line.parameter, (line.key,))
    return found


def is_rounded(line: ParameterLine) -> bool:
    """Whether the file holds a tensor rounded, and the tensor balances."""
    return line.line not in UNBALANCED and bool(_ROUNDED.intersection(line.chain))


def _misplaced(result: Reconciliation, restorer: Restorer) -> Iterator[tuple[str, str, Array]]:
    """Yield parameters whose values the file holds rounded but reads in another's place, really or apparently.

    The fault is in the place where they are read. Without these values, PyTorch's exact numbers would differ from the
    file's by rounding in every place that is right.
    """
    shapes = {parameter.name: parameter.shape for parameter in result.manifest.parameters}
    for line in result.parameters:
        is_own = line.line is Line.MISPLACED and line.pieces and line.max_abs_error is not None
        if not is_own or not _ROUNDED.intersection(line.chain):
            continue
        parts = [part.reshape(-1) for part in restorer.values(shapes[line.name], DType.FLOAT, line.pieces)]
        value = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        if value.size != math.prod(shapes[line.name]) or not value.size:
            continue
        assert line.max_abs_error is not None
        if line.max_abs_error <= _NEAR * float(np.abs(value).max()):
            yield _owner(line.name), line.name, value.reshape(shapes[line.name])


def buffers_of(result: Reconciliation, restorer: Restorer) -> Iterator[tuple[str, str, Array]]:
    """Yield buffers that the file holds rounded, also those that are in no state dict."""
    shapes = {name: buffer.shape for buffer in result.manifest.buffers for name in buffer.names}
    entries = {entry.tensor.key: entry for entry in result.ledger.entries}
    for line in result.entries:
        if line.line is not Line.BUFFER or line.parameter not in shapes:
            continue
        tensor = entries[line.key].tensor
        is_rounded = restorer.encoding(tensor) is not None or tensor.dtype.name in ("FLOAT16", "BFLOAT16")
        value = decode(restorer, result, line.key) if is_rounded else None
        if value is not None and value.size == math.prod(shapes[line.parameter]):
            yield (
                _owner(line.parameter),
                line.parameter,
                value.reshape(shapes[line.parameter]).astype(np.float32),
            )


def _copies(result: Reconciliation, restorer: Restorer) -> Iterator[tuple[str, str, Array]]:
    """Yield tied tensors that the file holds several times, rounded differently: each name with its own values."""
    lines = {line.name: line for line in result.parameters}
    for parameter in result.manifest.parameters:
        line = lines[parameter.name]
        if not parameter.tied or len(line.entries) < 2 or line.line in UNBALANCED:
            continue
        decoded = {key: decode(restorer, result, key) for key in line.entries}
        values = {
            key: value if value.shape == parameter.shape else value.T
            for key, value in decoded.items()
            if value is not None and parameter.shape in (value.shape, value.shape[::-1])
        }
        if len(values) < 2 or all(
            np.array_equal(value, each) for value in values.values() for each in values.values()
        ):
            continue
        readers = {key: _readers(result, key) for key in values}
        names = (parameter.name, *parameter.tied)
        modules = {name: name.rpartition(".")[0] for name in names}
        for name, module in modules.items():
            own_keys = [key for key in values if any(_is_in(scope, module) for scope in readers[key])]
            others = {other for other in modules.values() if other != module}
            free = [
                key for key in values if not any(_is_in(s, other) for s in readers[key] for other in others)
            ]
            yield _owner(parameter.name), name, values[[*own_keys, *free, *values][0]]


def _directions(result: Reconciliation, restorer: Restorer) -> Iterator[tuple[str, str, Array]]:
    """Yield the weights of LSTMs of two directions that `DynamicQuantizeLSTM` reads.

    Its codes are (directions, inputs, gates x hidden): a weight of PyTorch is no cut of them, but one direction with
    its gates in another order.
    """
    shapes = {parameter.name: parameter.shape for parameter in result.manifest.parameters}
    for line in result.parameters:
        is_whole = len(line.entries) == 1 and not line.pieces
        if not is_whole or not is_rounded(line) or not line.decided_by.endswith(":gates"):
            continue
        shape, value = shapes[line.name], decode(restorer, result, line.entries[0])
        if value is None or len(shape) != 2 or value.shape != (2, *shape[::-1]):
            continue
        stored = value[int(line.name.endswith("_reverse"))].T  # (gates x hidden, inputs)
        gates = np.split(stored.astype(np.float32), len(_GATES))
        yield _owner(line.name), line.name, np.concatenate([gates[at] for at in _GATES])


_GATES = (0, 2, 3, 1)
"""Index in ONNX of each of the gates of PyTorch's LSTM."""
_MADE = frozenset({Line.EVALUATED, Line.FOLDED_WEIGHTNORM})


def _computed(result: Reconciliation, restorer: Restorer) -> Iterator[tuple[Array, Array]]:
    """Yield rounded results of PyTorch's computations on weights, with the largest error of each number.

    Rows of a table that are stored without the others are included, and values computed from nothing: positions, and
    tables of them.
    """
    tensors = {entry.tensor.key: entry.tensor for entry in result.ledger.entries}
    keys = {
        line.key
        for line in result.entries
        if line.line in (Line.EVALUATED, Line.ADDED)
        or (line.line is Line.BUFFER and line.decided_by.endswith("+derived"))
    }
    for line in result.parameters:
        is_cut = is_rounded(line) and any(MEANINGS[each].is_cut for each in line.chain)
        if line.line not in UNBALANCED and (is_cut or _MADE.intersection(line.chain)):
            keys.update(line.entries)
    for key in sorted(keys):
        rounded = _with_rounding_errors(restorer, tensors[key])
        if rounded is not None and np.linalg.norm(rounded[1]) <= _COARSE * np.linalg.norm(rounded[0]):
            yield rounded


_COARSE = 0.5
"""Largest rounding error of a whole tensor, relative to its norm; the meaning of coarser values is unknown."""


def _with_rounding_errors(restorer: Restorer, tensor: StoredTensor) -> tuple[Array, Array] | None:
    """Return a tensor's decoded values, and the largest rounding error of each; None where it is not rounded."""
    encoded = restorer.encoding(tensor)
    if encoded is None:
        part = HALF_STEPS.get(tensor.dtype)
        value = None if part is None else tensor.payload.array()
        if value is None or part is None:
            return None
        exact = value.astype(np.float64)
        return exact, np.abs(exact) * part + 1e-7
    bands = [*encoded.bands()]
    if not bands:
        return None
    numbers, steps = (np.concatenate(each).reshape(encoded.shape) for each in zip(*bands, strict=True))
    return numbers.astype(np.float64), steps.astype(np.float64)


def _values_by_call(result: Reconciliation, restorer: Restorer) -> Iterator[tuple[str, list[Array]]]:
    """Yield parameters of modules called several times, which the file holds rounded separately for each call.

    Or rounded for some calls only: a tool that rounds the weight of one product leaves that of the next as it was.
    """
    shapes = {parameter.name: parameter.shape for parameter in result.manifest.parameters}
    tied = {parameter.name for parameter in result.manifest.parameters if parameter.tied}
    for line in result.parameters:
        if line.line in UNBALANCED or len(line.entries) < 2 or line.name in tied:
            continue
        if Line.FOLDED_BATCHNORM in line.chain:  # each tensor is the weight times the factors of a BatchNorm
            continue
        decoded = {key: decode(restorer, result, key) for key in line.entries}
        first = next((value for value in decoded.values() if value is not None), None)
        if first is None or (
            not is_rounded(line) and not any(_is_coded(restorer, result, k) for k in decoded)
        ):
            continue
        own = _oriented(result, restorer, line, first)
        values = {
            key: _nearest(value, own)
            for key, value in decoded.items()
            if value is not None and own is not None
        }
        uses = sorted((use, key) for key in values for use in _uses(result, key, line.name))
        ordered: list[Array] = [values[key].astype(np.float32) for _, key in uses]
        is_whole = len(values) == len(line.entries) and all(
            each.shape == shapes[line.name] for each in ordered
        )
        if is_whole and any(not np.array_equal(ordered[0], each) for each in ordered):
            yield line.name, ordered


def _oriented(result: Reconciliation, restorer: Restorer, line: ParameterLine, first: Array) -> Array | None:
    """Return a parameter's values in PyTorch's layout, as far as the file holds them whole."""
    shape = next(each.shape for each in result.manifest.parameters if each.name == line.name)
    if len(line.pieces) != 1:
        return first if first.shape == shape else None
    parts = [part.reshape(-1) for part in restorer.values(shape, DType.FLOAT, line.pieces)]
    found = np.concatenate(parts) if parts else first.reshape(-1)
    return found.reshape(shape) if found.size == math.prod(shape) else None


def _nearest(value: Array, own: Array) -> Array:
    """Return a value as it is or transposed, whichever is nearer to the values that it copies."""
    orientations = [each for each in (value, value.T) if each.shape == own.shape]
    wanted = own.astype(np.float64)
    return min(
        orientations, key=lambda each: float(np.square(each.astype(np.float64) - wanted).sum()), default=value
    )


def _is_coded(restorer: Restorer, result: Reconciliation, key: Key) -> bool:
    tensor = next(entry.tensor for entry in result.ledger.entries if entry.tensor.key == key)
    return restorer.encoding(tensor) is not None


def _uses(result: Reconciliation, key: Key, name: str) -> list[tuple[int, int]]:
    """Return the uses of a stored tensor, across decoding, in the order of its module's calls.

    An older exporter names the nodes of a second call after `module_1`; else calls are in the order of the file.
    """
    tensor = next(entry.tensor for entry in result.ledger.entries if entry.tensor.key == key)
    leaf = _owner(name).rpartition(".")[2]
    found = set()
    for reader in result.ledger.wiring.readers(tensor, _DECODING):
        match = re.search(rf"/{re.escape(leaf)}_(\d+)/", reader.node.name)
        found.add((int(match[1]) if match else 0, reader.node.position))
    return sorted(found)


def _is_in(scope: str, module: str) -> bool:
    return scope == module or scope.startswith(f"{module}.")


def _readers(result: Reconciliation, key: Key) -> set[str]:
    """Return the scopes of the nodes that read a stored tensor, across decoding and moves."""
    ledger = result.ledger
    tensor = next(entry.tensor for entry in ledger.entries if entry.tensor.key == key)
    scopes = (
        ledger.node_scopes.get(reader.node.place) for reader in ledger.wiring.readers(tensor, _DECODING)
    )
    return {scope for scope in scopes if scope}


def decode(restorer: Restorer, result: Reconciliation, key: Key) -> Array | None:
    """Return the decoded values of a stored tensor; None where it cannot be read."""
    tensor = next(entry.tensor for entry in result.ledger.entries if entry.tensor.key == key)
    encoded = restorer.encoding(tensor)
    return tensor.payload.array() if encoded is None else encoded.array()


def unfold(
    result: Reconciliation,
    restorer: Restorer,
    biases: Mapping[str, str] | None = None,
    *,
    is_all: bool = False,
) -> Iterator[tuple[str, str, Array]]:
    """Yield tensors for convolutions with rounded weights, and for the batch normalizations folded into them.

    Many weights and normalizations give the file's result. These are the ones whose normalization only adds the bias:
    its scale is 1, its mean is 0 (or the negative bias, if it has none of its own), and its variance plus eps is 1.

    Args:
        result: the reconciliation.
        restorer: restorer of its file.
        biases: the bias of each convolution by its weight; None where it has the name that PyTorch gives it.
        is_all: whether to include weights that the file holds folded but not rounded.
    """
    lines = {line.name: line for line in result.parameters}
    norms = {norm.module: norm for norm in result.manifest.batch_norms}
    tensors: tuple[Parameter | Buffer, ...] = (*result.manifest.parameters, *result.manifest.buffers)
    shapes = {name: each.shape for each in tensors for name in each.names}
    for line in result.parameters:
        norm = norms.get(_folded_with(line)) if Line.FOLDED_BATCHNORM in line.chain else None
        if norm is None or line.name in (norm.weight, norm.bias):
            continue
        stored_bias = _folded_bias(result, norm, lines)
        if stored_bias is None:
            continue
        is_bias_rounded = line.line not in UNBALANCED and _is_coded(restorer, result, stored_bias)
        if not (is_all or is_rounded(line) or is_bias_rounded):
            continue
        bias = decode(restorer, result, stored_bias)
        whole = _folded_weight(result, restorer, line, shapes[line.name])
        if bias is None or whole is None:
            continue
        owner, count, shift = _owner(line.name), bias.size, bias.reshape(-1).astype(np.float32)
        own = f"{owner}.bias" if biases is None else biases.get(line.name, "")
        yield owner, line.name, whole
        for name, value in (
            (norm.bias, shift),
            (norm.weight, np.ones(count, np.float32)),
            (norm.running_mean, np.zeros(count, np.float32) if norm.bias else -shift),
            (norm.running_var, np.full(count, max(1 - norm.eps, 0), np.float32)),
            (own, np.zeros(shapes.get(own, ()), np.float32)),
        ):
            if name and name in shapes:
                yield owner, name, value


def _folded_bias(result: Reconciliation, norm: BatchNorm, lines: Mapping[str, ParameterLine]) -> Key | None:
    """Return the stored bias of a convolution with a batch normalization folded in; None where it is not known."""
    if norm.bias is not None:
        line = lines.get(norm.bias)
        return None if line is None or not line.entries or line.line in UNBALANCED else line.entries[0]
    decided = f"{_FOLDED}{norm.module}"
    return next(
        (
            entry.key
            for entry in result.entries
            if entry.line is Line.FOLDED_BATCHNORM
            and entry.parameter is None
            and entry.decided_by.endswith(decided)
        ),
        None,
    )


def _folded_with(line: ParameterLine) -> str:
    """Return the batch normalization that is folded into a weight; "" where unknown."""
    rule = next((piece.computed.rule for piece in line.pieces if piece.computed is not None), None)
    if rule is None and not line.pieces:  # without values, the weight's reader or metadata tells
        return line.decided_by.rpartition(" ")[2] if line.decided_by else ""
    return rule.removeprefix(_FOLDED) if rule is not None and rule.startswith(_FOLDED) else ""


def _folded_weight(
    result: Reconciliation, restorer: Restorer, line: ParameterLine, shape: tuple[int, ...]
) -> Array | None:
    """Return a weight as the file has it, in PyTorch's shape; None where that is not known.

    Without values nothing tells whether a matrix is transposed; the kernels of convolutions have PyTorch's layout.
    """
    if len(line.pieces) == 1:
        plain = [replace(line.pieces[0], computed=None)]
        parts = [part.reshape(-1) for part in restorer.values(shape, DType.FLOAT, plain)]
        return np.concatenate(parts).reshape(shape) if parts else None
    if line.pieces or len(line.entries) != 1 or len(shape) < 3:
        return None
    value = decode(restorer, result, line.entries[0])
    return value.astype(np.float32) if value is not None and value.shape == shape else None
