"""Model + wiring -> entries: each stored tensor with its role, and the rule that decided it.

Rules are tried from the strongest evidence to the weakest; the first that applies decides. `docs/counting.md` lists
them in the same order.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from analyzer.account.classify.structure import Structure
from analyzer.account.decoding import CODES
from analyzer.account.decoding.encodings import find_encoding, logical_numel, may_unpack
from analyzer.account.ledger import Entry, Evidence, Role
from analyzer.account.scopes import (
    Provenance,
    common_scope,
    float_name,
    is_buffer_name,
    is_dotted,
    is_lifted,
    is_root_buffer_name,
    module_of,
    provenance_of,
    read_provenance,
)
from analyzer.model import Carrier, Graph, GraphPath, Key, Model, StoredTensor
from analyzer.model.dtypes import DType
from analyzer.model.wiring import Reader, Wiring
from analyzer.records import replace

__all__ = ["classify", "find_companions"]

_LEARNED_LEAVES = frozenset(
    {
        "A_log",
        "D",
        "alpha",
        "b_0",
        "beta",
        "class_embedding",
        "cls_token",
        "distillation_token",
        "down_proj",
        "gamma",
        "gate_up_proj",
        "logit_scale",
        "mask_token",
        "masked_spec_embed",
        "original0",
        "original1",
        "pos_embed",
        "position_embedding",
        "position_embeddings",
        "w_0",
        "weight_g",
        "weight_v",
    }
)
"""Last parts of dotted names that are learned wherever PyTorch, or a framework with similar names, writes them, besides
those that end in `weight` or `bias`.
"""


_LEARNED_ROOTS = frozenset(
    {
        "absolute_pos_embed",
        "class_embedding",
        "class_token",
        "cls_token",
        "dist_token",
        "distillation_token",
        "logit_scale",
        "mask_token",
        "masked_spec_embed",
        "pos_embed",
        "pos_embedding",
        "position_embedding",
        "position_embeddings",
        "reg_token",
    }
)
"""Names of parameters of the outermost module, without a dot; no exporter uses these words for other values."""


_RECURRENT = ("weight_ih", "weight_hh", "weight_hr", "bias_ih", "bias_hh")
"""Beginnings of the parameter names of a recurrent layer, which end in the number of the layer."""


class Decision(NamedTuple):
    """A role, the rule that chose it, and the PyTorch tensors that the rule traced it to."""

    role: Role
    rule: str
    sources: tuple[str, ...] = ()


class _Context(NamedTuple):
    """Data that the rules use besides the tensor itself."""

    wiring: Wiring
    structure: Structure
    provenance: Provenance
    metadata: dict[GraphPath, Mapping[str, Mapping[str, str]]]
    annotated: frozenset[tuple[GraphPath, str]]
    stored: Callable[[], frozenset[tuple[GraphPath, str]]]
    """Names of the stored tensors of each graph, without suffixes of quantizers; computed on demand."""
    companions: Collection[Key]
    """Scales, zero points and group indices that some reader uses to decode codes."""
    branch_outputs: frozenset[Key]
    """Outputs of nested graphs."""
    is_pytorch: bool
    prefix: str
    """Prefix, including its dot, that a tool has put before the name of every value."""


def classify(
    model: Model, wiring: Wiring, companions: Collection[Key], computing: Sequence[Reader | None]
) -> tuple[Entry, ...]:
    """Enter every stored tensor once, in file order. Only PyTorch names give a scope here (`scopes.owners`).

    Contents are not read here (`copies` reads them).

    Args:
        model: model that stores the tensors.
        wiring: providers and readers of all values.
        companions: scales and zero points of stored codes.
        computing: the first reader that computes with each tensor, in the order of the tensors.
    """
    entries: list[Entry] = []
    for part, graphs in model.by_part():
        alone = replace(model, graphs=graphs, producer=part.producer)
        context = _context(alone, wiring, companions)
        tensors = list(alone.tensors())
        first = len(entries)
        entries += _enter_all(tensors, computing[first : first + len(tensors)], context)
    return tuple(entries)


def find_companions(model: Model, wiring: Wiring) -> dict[Key, list[Key]]:
    """Return, for each scale, zero point and group index of stored codes, the codes that it belongs to."""
    found: dict[Key, list[Key]] = defaultdict(list)
    for tensor in model.tensors():
        if tensor.dtype in CODES and (encoded := find_encoding(tensor, wiring)) is not None:
            for companion in encoded.companions:
                found[companion.key].append(tensor.key)
    return found


def _context(model: Model, wiring: Wiring, companions: Collection[Key]) -> _Context:
    """Build the context of one model file; names and metadata of other components do not apply to it."""
    graphs = model.graphs
    return _Context(
        wiring=wiring,
        structure=Structure(wiring),
        provenance=read_provenance(model),
        metadata={g.path: g.metadata for g in graphs},
        annotated=frozenset(
            (g.path, name)
            for g in graphs
            for annotation in g.annotations.values()
            for name in annotation.values()
        ),
        stored=functools.cache(
            lambda: frozenset((tensor.graph_path, float_name(tensor.name)) for tensor in model.tensors())
        ),
        companions=companions,
        branch_outputs=frozenset(
            (g.path, name) for g in graphs if g.parent is not None for name in g.outputs
        ),
        is_pytorch=model.producer.startswith("pytorch"),
        prefix=_common_prefix(graphs[0]) if graphs else "",
    )


def _common_prefix(graph: Graph) -> str:
    """Return the prefix, including its dot, of all values that a graph computes: exporters write no dots in such names.

    Inputs and outputs may have been renamed back, and are used only if the graph has no values between them.
    """
    outputs = frozenset(graph.outputs)
    between = (name for node in graph.nodes for name in node.outputs if name and name not in outputs)
    prefix: str | None = None
    for name in itertools.chain(between, () if len(graph.nodes) > 1 else (*graph.inputs, *outputs)):
        while prefix != "" and not (prefix and name.startswith(prefix)):
            start = name if prefix is None else prefix[:-1]
            prefix = start[: start.rfind(".") + 1]
        if not prefix:
            return ""
    return prefix or ""


_USUAL = frozenset({"weight", "bias"})
"""Last parts of a name that never belong to a buffer, and that no folding tool extends."""


def _enter_all(
    tensors: Sequence[StoredTensor], computing: Sequence[Reader | None], context: _Context
) -> Iterator[Entry]:
    """Yield the entries of tensors, in order.

    A dotted weight or bias without metadata, read by one node, has the role that its name gives; nearly all tensors of
    a large file are of this kind. This function enters it directly, like `_enter`, without trying all rules.
    """
    wiring, metadata = context.wiring, context.metadata
    is_simple = not (wiring.calls or context.annotated or context.companions)
    learned, rule, initializer = Role.PARAMETER, "name:parameter", Carrier.INITIALIZER
    is_plain_float = {dtype: dtype.is_floating and dtype not in CODES for dtype in DType}
    unpacks: dict[str, bool] = {}
    for tensor, direct, reader in zip(tensors, wiring.read_by(tensors), computing, strict=True):
        name = tensor.name
        module, _, leaf = name.rpartition(".")
        if (
            is_simple
            and len(direct) == 1
            and leaf in _USUAL
            and tensor.carrier is initializer
            and is_plain_float[tensor.dtype]
            and name not in metadata[tensor.graph_path]
            and is_dotted(name)
        ):
            op_type, numel = direct[0][0].op_type, tensor.numel
            if op_type not in unpacks:
                unpacks[op_type] = may_unpack(direct)
            if not unpacks[op_type]:
                by = "" if reader is None else reader[0].op_type
                yield Entry(
                    tensor, learned, rule, module, rule, (name,), 1, op_type, numel, numel, 1, (), None, by
                )
                continue
        yield _enter(tensor, direct, reader, context)


def _enter(tensor: StoredTensor, direct: list[Reader], computing: Reader | None, context: _Context) -> Entry:
    decision = _decide(tensor, context)
    wiring = context.wiring
    inlined = wiring.readers(tensor) if wiring.calls else direct
    first = inlined[0].node if inlined else None
    # A function's calls do not use an argument that the function does not use.
    using = direct if len(direct) < 2 else {reader.node.place for reader in direct}
    stands_for = logical_numel(tensor, wiring) if may_unpack(inlined) else tensor.numel
    return Entry(
        tensor=tensor,
        role=decision.role,
        decided_by=decision.rule,
        scope=common_scope(map(module_of, decision.sources)),
        scoped_by=decision.rule if decision.sources else Evidence.NONE,
        sources=decision.sources,
        uses=len(using) if inlined else 0,
        read_by=first.op_type if first is not None else "",
        parameters=stands_for if decision.role is Role.PARAMETER else 0,
        logical_numel=stands_for,
        computed_by="" if computing is None else computing.node.op_type,
    )


def _decide(tensor: StoredTensor, context: _Context) -> Decision:
    for rule in (
        _by_provenance,
        _by_annotation,
        _by_encoding,
        _by_name,
        _by_structure,
        _by_dotted_name,
        _by_branch,
    ):
        decision = rule(tensor, context)
        if decision is not None:
            return decision
    return Decision(Role.UNATTRIBUTED, f"{Evidence.NONE}:no-rule")


def _by_provenance(tensor: StoredTensor, context: _Context) -> Decision | None:
    """Use the exporter's metadata of the value: a traced parameter or buffer, or the values it was folded from."""
    notes = context.metadata[tensor.graph_path]
    props = notes.get(tensor.name)
    if props is None and tensor.dtype in CODES:
        # A quantizer writes `val_47_quantized`, and keeps the metadata under `val_47`.
        props = notes.get(float_name(tensor.name))
    if props is None:
        return None
    origin = provenance_of(float_name(tensor.name), props, context.provenance)
    if origin is None:
        return None
    is_code = tensor.dtype in CODES and tensor.name != float_name(tensor.name)
    is_folded = origin.role is Role.PARAMETER and origin.rule.startswith("provenance:folded-")
    if is_folded and not tensor.dtype.is_floating and not is_code:
        # The weight's shape was folded, not its values.
        return Decision(Role.CONSTANT, "provenance:folded-shape")
    return Decision(origin.role, origin.rule, origin.sources)


def _by_annotation(tensor: StoredTensor, context: _Context) -> Decision | None:
    """Recognize a scale or zero point in the graph's `quantization_annotation` (onnx.proto, TensorAnnotation)."""
    if tensor.key in context.annotated:
        return Decision(Role.QUANTIZATION, "provenance:quantization-annotation")
    return None


def _by_encoding(tensor: StoredTensor, context: _Context) -> Decision | None:
    """Recognize a scale or zero point of stored codes, wherever the graph applies it (`decoding.encodings`)."""
    return Decision(Role.QUANTIZATION, "structure:scale") if tensor.key in context.companions else None


def _by_name(tensor: StoredTensor, context: _Context) -> Decision | None:
    """Use a PyTorch name, whose last part gives the role; exporters keep the names of tensors that they do not fold."""
    name = float_name(tensor.name) if tensor.dtype in CODES else tensor.name
    leaf = name.rpartition(".")[2]
    is_code = name != tensor.name
    if tensor.carrier not in (Carrier.INITIALIZER, Carrier.CONSTANT):
        return None
    if context.is_pytorch and is_root_buffer_name(name) and tensor.node is None:
        return Decision(Role.BUFFER, "name:buffer", (name,))
    if context.is_pytorch and name in _LEARNED_ROOTS and tensor.node is None and tensor.dtype.is_floating:
        return Decision(Role.PARAMETER, "name:parameter", (name,))
    if not is_dotted(name):
        return None
    if is_buffer_name(name):
        return Decision(Role.BUFFER, "name:buffer", (name,))
    base = name.removesuffix("_bias")
    if base != name and (tensor.graph_path, base) in context.stored():
        # onnxscript's BatchNorm folding names the bias it makes after the convolution's weight.
        return Decision(Role.PARAMETER, "name:folded-bias", (base,))
    if not tensor.dtype.is_floating and not is_code:
        return None
    if leaf in _LEARNED_LEAVES or leaf.endswith(("weight", "bias")) or leaf.startswith(_RECURRENT):
        return Decision(Role.PARAMETER, "name:parameter", (name,))
    return None


def _by_structure(tensor: StoredTensor, context: _Context) -> Decision | None:
    """Use the operator input that reads it."""
    decided = context.structure.role(tensor, tensor)
    if decided is None:
        return None
    role, rule = decided
    if not _is_state(tensor, context):
        return Decision(role, rule)
    # The exporter writes dots only in names of state, so such a tensor is not a constant of its own.
    return None if role is Role.CONSTANT else Decision(role, rule, (tensor.name,))


def _by_dotted_name(tensor: StoredTensor, context: _Context) -> Decision | None:
    """Treat a dotted name in a file from PyTorch as a state-dict key: its exporters write dots in no other name."""
    if not _is_state(tensor, context):
        return None
    role = Role.PARAMETER if tensor.dtype.is_floating else Role.BUFFER
    return Decision(role, "name:state-dict", (tensor.name,))


def _by_branch(tensor: StoredTensor, context: _Context) -> Decision | None:
    """Treat integers that a nested graph returns unchanged as constants: they are not learned."""
    is_branch_output = tensor.key in context.branch_outputs and not tensor.dtype.is_floating
    return Decision(Role.CONSTANT, "structure:branch-output") if is_branch_output else None


_MADE_UP = re.compile(r"val_\d+")
"""Name that PyTorch's exporter gives to a value without one; a dot before it belongs to a tool's prefix."""


def _is_state(tensor: StoredTensor, context: _Context) -> bool:
    name = tensor.name.removeprefix(context.prefix)
    if not context.is_pytorch or tensor.carrier is not Carrier.INITIALIZER or not is_dotted(name):
        return False
    # `torch.export` gives tensors made in forward dotted names, `attention.lifted_tensor_0`.
    leaf = name.rpartition(".")[2]
    return _MADE_UP.fullmatch(leaf) is None and not is_lifted(leaf)
