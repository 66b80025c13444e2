"""Model + wiring -> entries: each stored tensor with its role, and the rule that decided it.

Rules are asked from the strongest evidence to the weakest; the first that answers decides. `docs/counting.md`
lists them in the same order.
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
"""Last parts of a dotted name that are learned wherever PyTorch, or a framework that names alike, writes them, besides
those that end in `weight` or `bias`."""


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
"""Names that stand alone, of parameters of the outermost module: no words that an exporter calls a value by."""


_RECURRENT = ("weight_ih", "weight_hh", "weight_hr", "bias_ih", "bias_hh")
"""How the parameters of a recurrent layer begin, which end in its number."""


class Decision(NamedTuple):
    """A role, the rule that chose it, and the PyTorch tensors that the rule traced it to."""

    role: Role
    rule: str
    sources: tuple[str, ...] = ()


class _Context(NamedTuple):
    """What the rules look at besides the tensor itself."""

    wiring: Wiring
    structure: Structure
    provenance: Provenance
    metadata: dict[GraphPath, Mapping[str, Mapping[str, str]]]
    annotated: frozenset[tuple[GraphPath, str]]
    stored: Callable[[], frozenset[tuple[GraphPath, str]]]
    """What the tensors of each graph are called, without what quantizers add; few ask."""
    companions: Collection[Key]
    """Scales, zero points and group indices of what some reader decodes."""
    given_on: frozenset[Key]
    """What nested graphs give on as it is stored."""
    is_pytorch: bool
    prefix: str
    """What a tool has put before the name of every value, with its dot."""


def classify(
    model: Model, wiring: Wiring, companions: Collection[Key], computing: Sequence[Reader | None]
) -> tuple[Entry, ...]:
    """Enter every stored tensor once, in file order. Only PyTorch names give a scope here (`scopes.owners`).

    Content is not looked at (`copies` does).

    Args:
        model: whose tensors these are.
        wiring: who reads what.
        companions: the scales and zero points of stored codes.
        computing: the first reader that computes with each tensor, in their order.
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
    """For each scale, zero point and group index of stored codes, the codes that it belongs to."""
    found: dict[Key, list[Key]] = defaultdict(list)
    for tensor in model.tensors():
        if tensor.dtype in CODES and (encoded := find_encoding(tensor, wiring)) is not None:
            for companion in encoded.companions:
                found[companion.key].append(tensor.key)
    return found


def _context(model: Model, wiring: Wiring, companions: Collection[Key]) -> _Context:
    """What one model file says; the names and notes of another component are that one's own."""
    graphs = model.graphs
    return _Context(
        wiring=wiring,
        structure=Structure(wiring),
        provenance=read_provenance(model),
        metadata={g.path: g.metadata for g in graphs},
        annotated=frozenset(
            (g.path, name) for g in graphs for named in g.annotations.values() for name in named.values()
        ),
        stored=functools.cache(
            lambda: frozenset((tensor.graph_path, float_name(tensor.name)) for tensor in model.tensors())
        ),
        companions=companions,
        given_on=frozenset((g.path, name) for g in graphs if g.parent is not None for name in g.outputs),
        is_pytorch=model.producer.startswith("pytorch"),
        prefix=_common_prefix(graphs[0]) if graphs else "",
    )


def _common_prefix(graph: Graph) -> str:
    """What stands before the names of all values that a graph computes, with its dot: exporters dot no such name.

    The inputs and outputs may have got their own names back, and tell only where there is nothing between them.
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
"""Last parts of a name that are of no buffer, and behind which nothing is folded."""


def _enter_all(
    tensors: Sequence[StoredTensor], computing: Sequence[Reader | None], context: _Context
) -> Iterator[Entry]:
    """The entries of tensors, in their order.

    A dotted weight or bias without notes that one node reads, as nearly all are of a file of thousands, is what its
    name says; it is entered here, as `_enter` would, without asking all rules.
    """
    wiring, metadata = context.wiring, context.metadata
    is_simple = not (wiring.calls or context.annotated or context.companions)
    learned, rule, initializer = Role.PARAMETER, "name:parameter", Carrier.INITIALIZER
    named = {dtype: dtype.is_floating and dtype not in CODES for dtype in DType}
    unpacks: dict[str, bool] = {}
    for tensor, direct, reader in zip(tensors, wiring.read_by(tensors), computing, strict=True):
        name = tensor.name
        module, _, leaf = name.rpartition(".")
        if (
            is_simple
            and len(direct) == 1
            and leaf in _USUAL
            and tensor.carrier is initializer
            and named[tensor.dtype]
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
    # What a function does not use of what it is given, its calls do not use.
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
    """The exporter's own note on the value: a traced parameter or buffer, or what it was folded from."""
    notes = context.metadata[tensor.graph_path]
    props = notes.get(tensor.name)
    if props is None and tensor.dtype in CODES:
        props = notes.get(
            float_name(tensor.name)
        )  # a quantizer writes `val_47_quantized`, and leaves the note
    if props is None:
        return None
    origin = provenance_of(float_name(tensor.name), props, context.provenance)
    if origin is None:
        return None
    is_code = tensor.dtype in CODES and tensor.name != float_name(tensor.name)
    is_folded = origin.role is Role.PARAMETER and origin.rule.startswith("provenance:folded-")
    if is_folded and not tensor.dtype.is_floating and not is_code:
        return Decision(Role.CONSTANT, "provenance:folded-shape")  # a weight's shape, not its values
    return Decision(origin.role, origin.rule, origin.sources)


def _by_annotation(tensor: StoredTensor, context: _Context) -> Decision | None:
    """A scale or zero point that the graph's `quantization_annotation` names (onnx.proto, TensorAnnotation)."""
    if tensor.key in context.annotated:
        return Decision(Role.QUANTIZATION, "provenance:quantization-annotation")
    return None


def _by_encoding(tensor: StoredTensor, context: _Context) -> Decision | None:
    """A scale or zero point of stored codes, wherever the arithmetic applies it (`decoding.encodings`)."""
    return Decision(Role.QUANTIZATION, "structure:scale") if tensor.key in context.companions else None


def _by_name(tensor: StoredTensor, context: _Context) -> Decision | None:
    """A PyTorch name, whose last part tells learned from not; exporters keep it for what they do not fold."""
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
    """The operator input that reads it."""
    decided = context.structure.role(tensor, tensor)
    if decided is None:
        return None
    role, rule = decided
    if not _is_state(tensor, context):
        return Decision(role, rule)
    # The exporter names only state with dots, so such a tensor is no constant of its own making.
    return None if role is Role.CONSTANT else Decision(role, rule, (tensor.name,))


def _by_dotted_name(tensor: StoredTensor, context: _Context) -> Decision | None:
    """A dotted name in a file that PyTorch wrote is a key of the state dict: its exporters dot no other name."""
    if not _is_state(tensor, context):
        return None
    role = Role.PARAMETER if tensor.dtype.is_floating else Role.BUFFER
    return Decision(role, "name:state-dict", (tensor.name,))


def _by_branch(tensor: StoredTensor, context: _Context) -> Decision | None:
    """Integers that a branch of an If gives on, as Identity would: none is learned."""
    is_given = tensor.key in context.given_on and not tensor.dtype.is_floating
    return Decision(Role.CONSTANT, "structure:branch-output") if is_given else None


_MADE_UP = re.compile(r"val_\d+")
"""What PyTorch's exporter calls a value that has no name of its own; a dot before it is of a tool's prefix."""


def _is_state(tensor: StoredTensor, context: _Context) -> bool:
    name = tensor.name.removeprefix(context.prefix)
    if not context.is_pytorch or tensor.carrier is not Carrier.INITIALIZER or not is_dotted(name):
        return False
    leaf = name.rpartition(".")[2]  # torch.export dots what forward makes, `attention.lifted_tensor_0`
    return _MADE_UP.fullmatch(leaf) is None and not is_lifted(leaf)
