"""Two ledgers -> place of each learned tensor of one in the other, by the bridge of `reconcile`.

Names are not needed. A tensor is followed by its content, as `reconcile` follows PyTorch's parameters: in any
orientation, through a cast, within the quantization step of its codes, into a matrix into which several were packed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from analyzer.account.decoding import CODES
from analyzer.account.ledger import Entry, Ledger, Role
from analyzer.comparison.record import Followed, Step
from analyzer.manifest import BatchNorm, Buffer, Manifest, Parameter
from analyzer.model import Key, StoredTensor, label
from analyzer.model.content import Array, ContentMode
from analyzer.reconciliation import UNBALANCED, Line, Reconciliation, reconcile_ledger
from analyzer.records import Frozen, replace

_MOST_READ = 1 << 32
"""Bytes of both sides up to which all values are compared by default."""

Progress = Callable[[int, int], None]


def follow_changed(
    a: Ledger, b: Ledger, content: ContentMode | None = None, progress: Progress | None = None
) -> Followed | None:
    """Follow the learned tensors if any has another name, type or shape in the other file, or is missing there.

    Raises:
        UsageError: as in `follow_tensors`.
    """
    if _facts(a) == _facts(b):
        return None
    return follow_tensors(a, b, content, progress)


def _facts(ledger: Ledger) -> dict[str, object]:
    learned = [entry for entry in ledger.entries if entry.role is Role.PARAMETER]
    return {label(e.tensor.key): (e.tensor.dtype, e.tensor.shape, e.parameters, e.sources) for e in learned}


def follow_tensors(
    a: Ledger, b: Ledger, content: ContentMode | None = None, progress: Progress | None = None
) -> Followed | None:
    """Find the learned tensors of one side in the other; None where that is impossible.

    A side whose weights are codes is taken as made from the other. Following is impossible for saved reports and remote
    files, for two quantized sides, for a side without parameters, and if contents are not to be compared.

    Raises:
        UsageError: `content` asks for values that a side does not have.
    """
    sides = (a, b)
    if content == "none" or not all(side.model.graphs and side.model.traffic is None for side in sides):
        return None
    codes = [_count_codes(side) for side in sides]
    if all(codes) or not all(side.parameters for side in sides):
        return None
    if content is None:
        content = "full" if a.stored_nbytes + b.stored_nbytes <= _MOST_READ else "sampled"
    bits = [mean_bits(side) for side in sides]
    is_turned = bool(codes[0]) or (not codes[1] and (bits[0], -a.parameters) < (bits[1], -b.parameters))
    found = _follow(a, b, content, progress, is_turned=is_turned)
    if found.is_whole or any(codes) or bits[0] != bits[1]:
        return found
    other = _follow(a, b, content, progress, is_turned=not is_turned)
    return other if other.is_whole or len(other.steps) > len(found.steps) else found


def _follow(
    a: Ledger, b: Ledger, content: ContentMode, progress: Progress | None, *, is_turned: bool
) -> Followed:
    """Return the learned tensors of A found in B; those of B found in A if `is_turned`."""
    source, made = (b, a) if is_turned else (a, b)
    found, keys = reconcile_files(source, made, content, progress)
    return _followed(found, keys, content, is_turned=is_turned)


def reconcile_files(
    source: Ledger,
    made: Ledger,
    content: ContentMode,
    progress: Progress | None = None,
    *,
    with_constants: bool = False,
) -> tuple[Reconciliation, Mapping[str, Key]]:
    """Reconcile a file with one that was made from it; also return the tensor of the first file behind each name.

    Args:
        source: the file whose tensors are followed.
        made: the file that is searched for them.
        content: amount of values that are compared.
        progress: called with (done, total) in bytes.
        with_constants: whether float tensors that an exporter made, such as masks and tables, are followed too.

    Raises:
        UsageError: values of a side cannot be read.
    """
    manifest, keys, weights = _describe(source, with_constants=with_constants)
    nameless = replace(
        made,
        entries=tuple(e if _has_common_name(e, keys) else replace(e, sources=()) for e in made.entries),
        traced_scopes={},
        node_scopes={},
    )
    found = reconcile_ledger(nameless, manifest, content, weights=weights, progress=progress, is_file=True)
    return found, keys


def _has_common_name(entry: Entry, names: Mapping[str, Key]) -> bool:
    """Whether a learned tensor has exactly one PyTorch name, which the other file has too; True for other roles."""
    return entry.role is not Role.PARAMETER or (len(entry.sources) == 1 and entry.sources[0] in names)


def _count_codes(ledger: Ledger) -> int:
    """Return the number of learned elements that are stored as codes."""
    return sum(e.parameters for e in ledger.entries if e.role is Role.PARAMETER and e.tensor.dtype in CODES)


def mean_bits(ledger: Ledger) -> float:
    """Return the mean number of stored bits of a learned element."""
    return sum(entry.tensor.dtype.bits * entry.parameters for entry in ledger.entries) / ledger.parameters


class _Values(Frozen):
    """Values of a file's tensors under the names of the manifest."""

    entries: Mapping[str, Entry]

    def array(self, name: str) -> Array | None:
        entry = self.entries.get(name)
        return None if entry is None else entry.tensor.payload.array()


_FOLLOWED_ROLES = frozenset({Role.PARAMETER, Role.BUFFER, Role.UNATTRIBUTED})
"""Roles that are followed: learned tensors, buffers, and unexplained tensors, which may be either."""


def _describe(ledger: Ledger, *, with_constants: bool = False) -> tuple[Manifest, dict[str, Key], _Values]:
    """Describe the learned tensors and buffers of a file as PyTorch's side of a bridge."""
    names: dict[str, Entry] = {}
    for entry in ledger.entries:
        is_float = entry.tensor.dtype.is_floating and entry.tensor.numel > 1
        is_followed = entry.role in _FOLLOWED_ROLES or (
            with_constants and entry.role is Role.CONSTANT and is_float
        )
        if is_followed and entry.copy_of is None:
            names[_name(entry, names)] = entry
    parameters, buffers = [], []
    for name, entry in names.items():
        tensor = entry.tensor
        if entry.role is Role.PARAMETER:
            parameters.append(Parameter(name, tensor.shape, tensor.dtype, trainable=True))
        else:
            buffers.append(Buffer(name, tensor.shape, tensor.dtype, persistent=True))
    by_key = {entry.tensor.key: name for name, entry in names.items()}
    manifest = Manifest(
        parameters=tuple(parameters),
        buffers=tuple(buffers),
        batch_norms=tuple(_batch_norms(ledger, by_key)),
        source={"kind": "onnx", "path": str(ledger.model.path)},
        lists_all_buffers=False,
    )
    return manifest, {name: entry.tensor.key for name, entry in names.items()}, _Values(names)


def _name(entry: Entry, taken: Mapping[str, Entry]) -> str:
    """Return the PyTorch name that the file gives, else the tensor's own; a qualified name if that is taken."""
    wanted = entry.sources[0] if len(entry.sources) == 1 else entry.tensor.name
    return wanted if wanted not in taken else label(entry.tensor.key)


_NORM_EPS = 1e-5


def _batch_norms(ledger: Ledger, names: Mapping[Key, str]) -> Iterator[BatchNorm]:
    """Return the norms that a tool may have folded into the layers before them."""
    for node in ledger.model.nodes():
        if node.op_type != "BatchNormalization" or len(node.inputs) < 5:
            continue
        read = [ledger.wiring.find(node.graph_path, name) for name in node.inputs[1:5]]
        tensor_names = [names.get(found.key) if isinstance(found, StoredTensor) else None for found in read]
        eps = node.settings.get("epsilon", _NORM_EPS)
        if all(tensor_names) and isinstance(eps, float):
            yield BatchNorm(node.name or node.outputs[0], eps, *tensor_names)


_CUT = frozenset({Line.SLICED, Line.GATHERED, Line.UNUSED, Line.OUTSIDE, Line.REMOVED_ZERO})
"""Lines of tensors that the other file holds only in part, or need not hold."""


def _followed(
    found: Reconciliation, keys: Mapping[str, Key], content: ContentMode, *, is_turned: bool
) -> Followed:
    steps = [
        Step(keys[line.name], line.entries, str(line.line))
        for line in found.parameters
        if line.entries and line.line not in UNBALANCED
    ]
    cut = sum(line.line in _CUT for line in found.parameters)
    lines = [*(line.line for line in found.parameters), *(line.line for line in found.entries)]
    lost = any(line in UNBALANCED for line in lines)
    return Followed(tuple(steps), is_turned, not lost, cut, content)
