"""Ledger -> PyTorch's side as the file itself describes it, by the names that its exporter left in it.

For `recover` of a file without its PyTorch side. A name identifies the PyTorch tensor of a stored tensor. The
exporter's names and notes, and the reading operator, must tell whether the stored tensor is the whole of it, and in
which orientation; else the tensor is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Collection

from analyzer.account.classify.structure import find_origin
from analyzer.account.decoding import CODES, Encoded
from analyzer.account.decoding.encodings import find_encoding
from analyzer.account.ledger import Entry, Ledger, Role
from analyzer.account.scopes import float_name, is_dotted
from analyzer.account.scopes.paths import module_classes
from analyzer.checkpoints import Original
from analyzer.manifest import Buffer, Manifest, Parameter, split_name
from analyzer.model import Carrier, Key, StoredTensor
from analyzer.model.dtypes import DType
from analyzer.reconciliation.layouts import PACKS_TRANSPOSE, is_turnable
from analyzer.recover.restoring import NO_SCALE

_FOLDED_BIAS = "_bias"
"""Suffix that onnxscript's folding of a BatchNorm adds to a weight's name for the bias that it makes."""

_PERSISTENT = "pkg.torch.export.graph_signature.InputSpec.persistent"
_RUNNING = frozenset({"num_batches_tracked", "running_mean", "running_var"})
"""Buffers of BatchNorm, which every state dict has; for others only the exporter's note says whether it has them."""

_MULTIPLIERS = frozenset(
    {"DynamicQuantizeMatMul", "FusedMatMul", "MatMul", "MatMulInteger", "MatMulIntegerToFloat"}
    | PACKS_TRANSPOSE
)
"""Operators that read a Linear's weight that was transposed in advance."""


def read_own_names(ledger: Ledger) -> tuple[Original, dict[Key, str]]:
    """Identify each learned tensor and buffer with the PyTorch tensor of its name.

    Returns:
        PyTorch's side, without contents, ties and tensors that the file does not hold; and the reasons why learned
        tensors of the file are not in it.
    """
    parameters: dict[str, Parameter] = {}
    buffers: dict[str, Buffer] = {}
    refused: dict[Key, str] = {}
    stored = {float_name(entry.tensor.name) for entry in ledger.entries}
    folded = {name.removesuffix(_FOLDED_BIAS) for name in stored if name.endswith(_FOLDED_BIAS)} & stored
    multiplied = _multiplied_out(ledger)
    # A tensor under its own name is the original of tensors that were folded from it, so it comes first.
    for entry in sorted(ledger.entries, key=_is_folded):
        name = _name(entry, folded)
        if entry.role not in (Role.PARAMETER, Role.BUFFER) or name is None or name in {*parameters, *buffers}:
            continue
        encoded = find_encoding(entry.tensor, ledger.wiring)
        shape = _shape(entry, encoded)
        if name in folded or entry.tensor.key in multiplied:
            refused[entry.tensor.key] = f"{name}, with a BatchNorm folded in"
        elif encoded is None and _is_code(entry):
            refused[entry.tensor.key] = f"{name}, {NO_SCALE}"
        elif entry.role is Role.BUFFER:
            is_persistent = _is_persistent(ledger, entry, name)
            buffers[name] = Buffer(name, entry.tensor.shape, entry.tensor.dtype, is_persistent)
        elif isinstance(shape, str):
            refused[entry.tensor.key] = f"{name}, {shape}"
        else:
            dtype = entry.tensor.dtype
            if encoded is not None:
                dtype = encoded.scale.dtype if encoded.scale.dtype.is_floating else DType.FLOAT
            parameters[name] = Parameter(name, shape, dtype, trainable=True)
    source = {"source": "the file itself", "kind": "own-names"}
    classes = module_classes(ledger.model)
    owners = {split_name(name)[0] for name in (*parameters, *buffers)}
    manifest = Manifest(
        tuple(parameters.values()),
        tuple(buffers.values()),
        source=source,
        modules={path: name for path, name in classes.items() if path in owners},
    )
    return Original(manifest), refused


def _multiplied_out(ledger: Ledger) -> set[Key]:
    """Return the weight and the bias of each layer into which a BatchNorm was folded."""
    tensors = {entry.tensor.key: entry.tensor for entry in ledger.entries}
    learned = {entry.tensor.key for entry in ledger.entries if entry.role is Role.PARAMETER}
    found = set()
    for key, hides in ledger.hidden.items():
        if hides.why == "batchnorm":
            found.add(key)
            for reader in ledger.wiring.readers(tensors[key]):
                origins = (
                    find_origin(ledger.wiring, reader.node, slot) for slot in range(len(reader.node.inputs))
                )
                found |= {origin.key for origin in origins if isinstance(origin, StoredTensor)} & learned
    return found


def _name(entry: Entry, folded: Collection[str]) -> str | None:
    name, plain = entry.tensor.name, float_name(entry.tensor.name)
    is_made_up = name != plain and (not entry.sources or name in entry.sources)  # `x.bias0_quantized`
    if is_made_up or (plain.endswith(_FOLDED_BIAS) and plain.removesuffix(_FOLDED_BIAS) in folded):
        return None
    if entry.sources:
        return entry.sources[0] if len(entry.sources) == 1 else None
    return name if entry.tensor.carrier is Carrier.INITIALIZER and is_dotted(name) else None


def _is_code(entry: Entry) -> bool:
    """Whether its elements are codes: a quantizer named it, or it is a parameter of a code type without a note.

    PyTorch may have integer parameters; the exporter notes those that it traced.
    """
    if entry.tensor.dtype not in CODES:
        return False
    is_traced = entry.decided_by.startswith("provenance:") and not _is_folded(entry)
    return entry.tensor.name != float_name(entry.tensor.name) or (
        entry.role is Role.PARAMETER and not is_traced
    )


def _is_folded(entry: Entry) -> bool:
    """Whether it was computed from the PyTorch tensor whose name is noted on it."""
    return bool(entry.sources) and float_name(entry.tensor.name) not in entry.sources


def _shape(entry: Entry, encoded: Encoded | None) -> tuple[int, ...] | str:
    """Return PyTorch's shape, or the reason why it is unknown."""
    shape = entry.tensor.shape if encoded is None else encoded.shape
    is_matrix = len(shape) == 2 and min(shape) > 1
    is_packed = entry.read_by in PACKS_TRANSPOSE
    if _is_folded(entry):
        if not is_matrix or entry.read_by not in _MULTIPLIERS:
            return "computed by the exporter in an unknown way"
        return shape if is_packed else shape[::-1]
    if encoded is not None and is_matrix and is_turnable(entry):
        return "codes that a quantizer may have transposed without a note"
    return shape[::-1] if is_packed and is_matrix else shape


def _is_persistent(ledger: Ledger, entry: Entry, name: str) -> bool:
    path = entry.tensor.graph_path
    notes = next((graph.metadata for graph in ledger.model.graphs if graph.path == path), {})
    noted = notes.get(entry.tensor.name, {}).get(_PERSISTENT)
    return noted == "True" if noted is not None else name.rpartition(".")[2] in _RUNNING
