"""Names and metadata that exporters leave on values -> PyTorch names and their modules.

This module reads `metadata_props` of `torch.onnx.export(dynamo=True)` (torch/onnx/_internal/exporter/_core.py), and the
`folded_from` metadata of onnxscript's constant folding. `analyzer.account.scopes.paths` reads metadata of nodes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

from analyzer.account.ledger import Role
from analyzer.model import Model
from analyzer.records import Frozen

__all__ = [
    "Origin",
    "Provenance",
    "common_scope",
    "float_name",
    "folded_from",
    "is_buffer_name",
    "is_dotted",
    "is_lifted",
    "is_root_buffer_name",
    "known_modules",
    "list_of",
    "mangle",
    "module_of",
    "provenance_of",
    "read_provenance",
]

_FX_NODE = "pkg.torch.onnx.fx_node"
_INPUT_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
_FOLDED_FROM = "pkg.onnxscript.optimizer.folded_from"

_PLAIN_LIST = re.compile(r"\[(?:'[^'\\\\]*'(?:, '[^'\\\\]*')*)?\]")
_ITEM = re.compile(r"'([^'\\\\]*)'")
"""Items of a list as `repr` writes it when none needs escaping: nearly always, and 20 times as fast as `ast`."""

_PLACEHOLDER = re.compile(r"%([pb])_(\w+)")
_DOTTED = re.compile(r"(?=.*[A-Za-z_])(?:(?!onnx::)\w+::)*\w+(\.[\w-]+)+")
"""A module path, with or without a prefix such as `F0::` that a tool adds to names when it inlines graphs; `onnx::` is
the prefix of names that PyTorch's tracer makes up.
"""
_KINDS = {"PARAMETER": Role.PARAMETER, "BUFFER": Role.BUFFER, "CONSTANT_TENSOR": Role.CONSTANT}


class Provenance(Frozen):
    """Facts in the exporter's metadata about the whole file."""

    parameters: frozenset[str]
    """Mangled names (`encoder_layer_0_weight`) that traced nodes read as parameters."""
    buffers: frozenset[str]
    """Mangled names that traced nodes read as buffers."""


def read_provenance(model: Model) -> Provenance:
    """Collect the placeholders that the file's traced nodes mention."""
    found: dict[str, set[str]] = {"p": set(), "b": set()}
    for node in model.nodes():
        text = node.metadata.get(_FX_NODE)
        if text is not None:
            for kind, name in _PLACEHOLDER.findall(text):
                found[kind].add(name)
    return Provenance(frozenset(found["p"]), frozenset(found["b"]))


class Origin(Frozen):
    """Origin of one value, in PyTorch's terms."""

    role: Role
    sources: tuple[str, ...]
    """PyTorch names, sorted; empty for a value made only from the exporter's own values."""
    rule: str


def provenance_of(name: str, props: Mapping[str, str] | None, provenance: Provenance) -> Origin | None:
    """Return the origin given by a value's `metadata_props`; None if they give none."""
    if props is None:
        return None
    kind = props.get(_INPUT_KIND)
    if kind in _KINDS:
        role = _KINDS[kind]
        return Origin(role, (name,) if role is not Role.CONSTANT else (), "provenance:input-spec")
    sources = folded_from(props)
    if not sources:
        return None
    roles = {source: _source_role(source, provenance) for source in sources}
    with_role = {source for source, found in roles.items() if found is not None}
    learned = tuple(sorted(source for source in with_role if roles[source] is Role.PARAMETER))
    if learned:
        # Gather may have taken rows of it by stored indices, or Expand may have repeated it.
        rule = "provenance:folded-from" if len(with_role) == len(sources) else "provenance:folded-with"
        return Origin(Role.PARAMETER, learned, rule)
    if with_role:
        return Origin(Role.BUFFER, tuple(sorted(with_role)), "provenance:folded-from")
    return Origin(Role.CONSTANT, (), "provenance:folded-constant")


def folded_from(props: Mapping[str, str] | None) -> list[str]:
    """Return the names of the values that a value was folded from, as recorded by the exporter; empty if none are."""
    return [] if props is None else list_of(props.get(_FOLDED_FROM)) or []


def mangle(name: str) -> str:
    """Return the name of torch.export's placeholder for a state-dict key, without the prefix of its kind.

    >>> mangle("embeddings.LayerNorm.bias")
    'embeddings_layernorm_bias'
    """
    return name.replace(".", "_").lower()


_CODES_NAME = re.compile(r"(.+?)(?:_quantized|(?:_DQ)?_Q[248](?:G\d+)?)")


def float_name(name: str) -> str:
    """Return the name of a tensor before onnxruntime's quantizers wrote its codes; other names are unchanged.

    >>> float_name("encoder.weight_quantized"), float_name("val_47_Q4"), float_name("val_47")
    ('encoder.weight', 'val_47', 'val_47')
    """
    if "_q" not in name and "_Q" not in name:
        return name
    match = _CODES_NAME.fullmatch(name)
    return name if match is None else match[1]


_LIFTED = re.compile(r"(?:.*\.)?lifted_tensor_\d+")
"""Name that torch.export gives to a tensor that forward creates: a constant, whatever its module."""


def is_lifted(source: str) -> bool:
    """Whether a name is the one that torch.export gives to a tensor that forward creates."""
    return "lifted_tensor_" in source and _LIFTED.fullmatch(source) is not None


def _source_role(source: str, provenance: Provenance) -> Role | None:
    """Return parameter or buffer for a name in `folded_from`; None for one of the exporter's own values.

    The placeholders that traced nodes mention decide. A dotted name that none mentions (all its readers were folded
    away) is state of a module, because the exporter's own values have no dots; its last part gives the role.
    """
    if is_lifted(source):
        return None
    mangled = mangle(source)
    if mangled in provenance.parameters:
        return Role.PARAMETER
    if mangled in provenance.buffers:
        return Role.BUFFER
    if _DOTTED.fullmatch(source):
        return Role.BUFFER if is_buffer_name(source) else Role.PARAMETER
    return None


_BUFFER_LEAVES = frozenset(
    {
        "running_mean",
        "running_var",
        "num_batches_tracked",
        "position_ids",
        "token_type_ids",
        "inv_freq",
        "original_inv_freq",
        "inv_timescales",
        "freqs_cis",
        "masked_bias",
        "causal_mask",
        "attn_mask",
        "attn_mask_probs",
        "relative_position_index",
        "relative_coords_table",
        "cos_cached",
        "sin_cached",
        "cos_cache",
        "sin_cache",
        "pe",
        "embed_positions",
        "embed_scale",
        "mel_filters",
        "window",
        "pixel_mean",
        "pixel_std",
        "empty_weight",
        "final_logits_bias",
        "e_score_correction_bias",
        "inited",
        "cluster_size",
        "cluster_usage",
        "embed_avg",
        "embed_sum",
        "version",
        "_float_tensor",
        "act_scaling_factor",
        "bias_integer",
        "fc_scaling_factor",
        "norm_scaling_factor",
        "weight_integer",
        "weight_scaling_factor",
        "x_max",
        "x_min",
    }
)
_BUFFER_ENDINGS = (".LayerNorm.shift", ".codebook.embed", ".embed_positions.weights", ".rope.freqs")
"""Leaves that are buffers in one kind of module only: I-BERT's integer norm, EnCodec's codebooks, sinusoids, Llama's
original rotations.
"""
_LAST_OF_ENDINGS = tuple(ending.rpartition(".")[2] for ending in _BUFFER_ENDINGS)


def is_buffer_name(name: str) -> bool:
    """Whether a dotted name ends like those of buffers that PyTorch modules register.

    >>> (
    ...     is_buffer_name("bn1.running_mean"),
    ...     is_buffer_name("stft.forward_basis_buffer"),
    ...     is_buffer_name("fc.weight"),
    ... )
    (True, True, False)
    """
    leaf = name.rpartition(".")[2]
    if leaf in _BUFFER_LEAVES or leaf.endswith(("_buffer", "_index", "_inv_freq", "_mask")):
        return True
    return leaf.endswith(_LAST_OF_ENDINGS) and f".{name}".endswith(_BUFFER_ENDINGS)


def is_root_buffer_name(name: str) -> bool:
    """Whether a name without a module can only be a registered buffer, and not a word that names a value.

    >>> (
    ...     is_root_buffer_name("final_logits_bias"),
    ...     is_root_buffer_name("version"),
    ...     is_root_buffer_name("and_mask"),
    ... )
    (True, False, False)
    """
    return name in _BUFFER_LEAVES and "_" in name


def is_dotted(name: str) -> bool:
    """Whether a name has the form of a PyTorch state-dict key with a module path."""
    if name.isascii() and name.replace(".", "_").isidentifier():  # true of nearly all names
        return "." in name and ".." not in name and name[0] != "." and name[-1] != "."
    return "." in name and _DOTTED.fullmatch(name) is not None


def module_of(name: str) -> str:
    """Return the module that owns a parameter.

    >>> module_of("encoder.layer.0.attention.self.query.weight")
    'encoder.layer.0.attention.self.query'
    """
    return name.rpartition(".")[0]


_LONGEST_NAME = 1024
"""Longest name, in characters, whose modules are all listed."""


def known_modules(model: Model) -> set[str]:
    """Return the modules in the PyTorch names of tensors, with all their parents."""
    modules: set[str] = set()
    for tensor in model.tensors():
        if len(tensor.name) > _LONGEST_NAME:
            continue
        name = float_name(tensor.name)
        module = module_of(name)
        if module in modules or not is_dotted(name):
            continue
        while module and module not in modules:
            modules.add(module)
            module = module_of(module)
    return modules


def common_scope(scopes: Iterable[str]) -> str:
    """Return the deepest module that contains all of `scopes`.

    >>> common_scope(["encoder.layer.0", "encoder.layer.1"])
    'encoder.layer'
    """
    different = {*scopes}
    if len(different) < 2:
        return different.pop() if different else ""
    first, last = min(different), max(different)
    length = next(
        (index for index, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), None
    )
    shared = first if length is None else first[:length]
    is_whole = all(scope.startswith(".", len(shared)) for scope in different if scope != shared)
    return shared if is_whole else module_of(shared)


def list_of(text: str | None) -> list[str] | None:
    """Parse a list of strings that an exporter wrote with `repr`; None if the text is not a list."""
    if text is None:
        return None
    if _PLAIN_LIST.fullmatch(text):
        return _ITEM.findall(text)
    try:
        value = ast.literal_eval(text)
    except (TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(value, (list, tuple, set)):
        return None
    return [item for item in value if isinstance(item, str)]
