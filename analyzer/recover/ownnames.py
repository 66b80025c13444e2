"""Ledger -> the PyTorch side as the file itself describes it: the names that its exporter left in it.

For `recover` of a file that came alone. A name says which PyTorch tensor a stored one is; that it is all of it, and
which way it stands, the exporter's note says, or nothing does, and then the tensor is refused with the reason.
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
"""What onnxscript's folding of a BatchNorm adds to a weight's name for the bias that it makes."""

_PERSISTENT = "pkg.torch.export.graph_signature.InputSpec.persistent"
_RUNNING = frozenset({"num_batches_tracked", "running_mean", "running_var"})
"""Buffers of BatchNorm, which every state dict has; of others only the exporter's note says whether it has them."""

_MULTIPLIERS = frozenset(
    {"DynamicQuantizeMatMul", "FusedMatMul", "MatMul", "MatMulInteger", "MatMulIntegerToFloat"}
    | PACKS_TRANSPOSE
)
"""What reads a Linear's weight that was transposed in advance."""


def read_own_names(ledger: Ledger) -> tuple[Original, dict[Key, str]]:
    """Take each learned tensor, and each buffer, for the PyTorch tensor whose name it bears.

    Returns:
        PyTorch's side, without contents, ties and what the file does not hold; and why learned tensors of the file are
        none of it.
    """
    parameters: dict[str, Parameter] = {}
    buffers: dict[str, Buffer] = {}
    refused: dict[Key, str] = {}
    stored = {float_name(entry.tensor.name) for entry in ledger.entries}
    folded = {name.removesuffix(_FOLDED_BIAS) for name in stored if name.endswith(_FOLDED_BIAS)} & stored
    multiplied = _multiplied_out(ledger)
    # What stands under its own name is the original of what was folded from it.
    for entry in sorted(ledger.entries, key=_is_folded):
        name = _name(entry, folded)
        if entry.role not in (Role.PARAMETER, Role.BUFFER) or name is None or name in {*parameters, *buffers}:
            continue
        encoded = find_encoding(entry.tensor, ledger.wiring)
        shape = _shape(entry, encoded)
        if name in folded or entry.tensor.key in multiplied:
            refused[entry.tensor.key] = f"{name}, multiplied out with a BatchNorm"
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
    """The weight and the bias of each layer that hides a BatchNorm."""
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
    """Whether its elements are codes: a quantizer named it, or a parameter's type is one of codes and no note says so.

    PyTorch may have parameters of whole numbers; the exporter notes what it traced.
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
    """PyTorch's shape, or why it is not known."""
    shape = entry.tensor.shape if encoded is None else encoded.shape
    is_matrix = len(shape) == 2 and min(shape) > 1
    is_packed = entry.read_by in PACKS_TRANSPOSE
    if _is_folded(entry):
        if not is_matrix or entry.read_by not in _MULTIPLIERS:
            return "computed by the exporter, which does not say how"
        return shape if is_packed else shape[::-1]
    if encoded is not None and is_matrix and is_turnable(entry):
        return "codes that a quantizer may have transposed, which it does not say"
    return shape[::-1] if is_packed and is_matrix else shape


def _is_persistent(ledger: Ledger, entry: Entry, name: str) -> bool:
    path = entry.tensor.graph_path
    notes = next((graph.metadata for graph in ledger.model.graphs if graph.path == path), {})
    noted = notes.get(entry.tensor.name, {}).get(_PERSISTENT)
    return noted == "True" if noted is not None else name.rpartition(".")[2] in _RUNNING
