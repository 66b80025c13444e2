"""Module and the nodes exported from it -> their difference, as far as the module's class and settings tell."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from analyzer.model import Node, StoredTensor
from analyzer.model.dtypes import is_one_in_half
from analyzer.verify.side import ModuleCall

Cause = tuple[Literal["operator", "attribute", "constant", "input"], str, str]
"""Kind of the cause, PyTorch's side in words, the file's side in words."""

_EPSILONS = ("eps", "variance_epsilon", "epsilon", "layer_norm_epsilon")
NORMS = frozenset(
    (
        "LayerNormalization",
        "SkipLayerNormalization",
        "SimplifiedLayerNormalization",
        "BatchNormalization",
        "InstanceNormalization",
        "GroupNormalization",
        "RMSNormalization",
    )
)
_ACTIVATIONS: Mapping[str, frozenset[str]] = {
    "relu": frozenset(("Relu", "Clip", "Max")),
    "gelu": frozenset(("Gelu", "Erf", "Tanh", "FastGelu", "BiasGelu", "QuickGelu", "Sigmoid")),
    "silu": frozenset(("Sigmoid", "Silu", "Swish", "QuickGelu")),
    "swish": frozenset(("Sigmoid", "Silu", "Swish", "QuickGelu", "HardSwish")),
    "tanh": frozenset(("Tanh",)),
    "sigmoid": frozenset(("Sigmoid", "HardSigmoid")),
    "elu": frozenset(("Elu", "Selu", "Celu", "Gelu", "Relu", "LeakyRelu", "PRelu", "Erf", "Tanh", "Clip")),
}
_ACTIVE = frozenset((*(name for names in _ACTIVATIONS.values() for name in names), "Softplus", "Mish", "Elu"))


def find_cause(
    boundary: ModuleCall, nodes: Sequence[Node], tensors: Mapping[str, StoredTensor], half: str = ""
) -> Cause | None:
    """Return a difference between the nodes of a module and its class; None where they tell nothing.

    Args:
        boundary: the module.
        nodes: nodes of its scope.
        tensors: stored tensors of the main graph, by name.
        half: the half-precision type of the file; empty where it has none.
    """
    epsilons = _epsilon(boundary, nodes, tensors, half)
    return next(itertools.chain(epsilons, _activation(boundary, nodes)), None)


def _epsilon(
    boundary: ModuleCall, nodes: Sequence[Node], tensors: Mapping[str, StoredTensor], half: str
) -> Iterator[Cause]:
    """Yield the epsilon of a norm if the file has another: an attribute, or the number added before a square root."""
    wanted = next(
        (value for key in _EPSILONS if isinstance(value := boundary.settings.get(key), float)), None
    )
    if wanted is None:
        return
    epsilons = [*_written(nodes), *_added(nodes, tensors)]
    is_there = any(abs(each - wanted) <= 1e-3 * max(wanted, 1e-12) for each in epsilons)
    if (
        epsilons
        and not is_there
        and not (half and any(is_one_in_half(each, wanted, half) for each in epsilons))
    ):
        yield "attribute", f"epsilon {wanted:g}", f"epsilon {epsilons[0]:g}"


def _written(nodes: Iterable[Node]) -> Iterator[float]:
    for node in nodes:
        if node.op_type in NORMS:
            value = node.settings.get("epsilon", 1e-5)
            if isinstance(value, (int, float)):
                yield float(value)


def _added(nodes: Sequence[Node], tensors: Mapping[str, StoredTensor]) -> Iterator[float]:
    """Yield the scalars that are added to the input of `Sqrt`."""
    rooted = {name for node in nodes if node.op_type == "Sqrt" for name in node.inputs}
    for node in nodes:
        if node.op_type != "Add" or not rooted & {*node.outputs}:
            continue
        for name in node.inputs:
            tensor = tensors.get(name)
            array = tensor.payload.array() if tensor is not None and tensor.numel == 1 else None
            if array is not None:
                yield float(array.reshape(-1)[0])


def _activation(boundary: ModuleCall, nodes: Sequence[Node]) -> Iterator[Cause]:
    name = boundary.class_name.lower()
    wanted = next((known for word, known in _ACTIVATIONS.items() if word in name), None)
    activations = [node.op_type for node in nodes if node.op_type in _ACTIVE]
    if wanted is not None and activations and not wanted & {*activations}:
        yield "operator", boundary.class_name, activations[0]
