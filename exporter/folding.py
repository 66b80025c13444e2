"""A layer of a traced program, and the batch normalization behind it -> the weight and bias of both together.

An exporter folds the normalization into the layer before (Jacob et al. 2018, equation 14). Where forward computes the
layer's weight (a weight norm, a mask of pruned elements, a low-rank update), neither the weight nor the parameters of
the normalization are in the file then, but only these two values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.nn.utils.fusion import fuse_conv_bn_weights

from exporter.nodes import operator_name

_CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d"})
_TRANSPOSED = frozenset({"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})
_LAYERS = _CONVOLUTIONS | _TRANSPOSED | {"convolution", "linear"}
_NORMS = frozenset({"batch_norm", "_native_batch_norm_legit_no_training"})
FUSION = fuse_conv_bn_weights.__name__
"""PyTorch's name for this computation, in expressions."""


@dataclass(frozen=True, slots=True)
class Folding:
    """A layer and the batch normalization that reads its result, as nodes of their inputs."""

    norm: fx.Node
    layer_weight: fx.Node
    layer_bias: fx.Node | None
    mean: fx.Node
    variance: fx.Node
    weight: fx.Node | None
    bias: fx.Node | None
    epsilon: float
    is_transposed: bool
    """Whether the output channels are the second axis of the layer's weight."""

    @property
    def sources(self) -> tuple[tuple[fx.Node, ...], tuple[fx.Node, ...]]:
        """Nodes of the tensors that the weight is computed from, and those of the bias."""
        weight = (self.layer_weight, self.variance, self.weight)
        bias = (self.layer_bias, self.mean, self.variance, self.weight, self.bias)
        return _present(weight), _present(bias)

    @property
    def nodes(self) -> tuple[fx.Node, ...]:
        """Nodes of all tensors that take part."""
        return tuple(dict.fromkeys(itertools.chain(*self.sources)))

    def fold(self, values: Mapping[fx.Node, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weight and the bias of both together, from the tensors of `nodes`."""

        def value(node: fx.Node | None) -> torch.Tensor | None:
            return None if node is None else values[node]

        weight, bias = fuse_conv_bn_weights(
            values[self.layer_weight],
            value(self.layer_bias),
            values[self.mean],
            values[self.variance],
            self.epsilon,
            value(self.weight),
            value(self.bias),
            transpose=self.is_transposed,
        )
        return weight.detach(), bias.detach()


def find_folding(layer: fx.Node) -> Folding | None:
    """Return a layer with the batch normalization that alone reads its result, if that has fixed statistics."""
    name = operator_name(layer.target)
    if name not in _LAYERS or len(layer.users) != 1:
        return None
    (norm,) = layer.users
    if operator_name(norm.target) not in _NORMS:
        return None
    made = layer.meta.get("val")
    if name == "linear" and (not isinstance(made, torch.Tensor) or made.ndim != 2):
        return None  # the normalization's channels are the second axis, and those of the layer the last
    own, behind = _arguments(layer), _arguments(norm)
    is_transposed = name in _TRANSPOSED or bool(own.get("transposed"))
    is_grouped = is_transposed and own.get("groups", 1) != 1
    if behind["input"] is not layer or behind.get("training") or is_grouped:
        return None
    weight, mean, variance = own["weight"], behind.get("running_mean"), behind.get("running_var")
    if weight is None or mean is None or variance is None:
        return None
    return Folding(
        norm,
        weight,
        own.get("bias"),
        mean,
        variance,
        behind.get("weight"),
        behind.get("bias"),
        behind["eps"],
        is_transposed,
    )


def _present(nodes: Iterable[fx.Node | None]) -> tuple[fx.Node, ...]:
    return tuple(each for each in nodes if each is not None)


def _arguments(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of a call by their names."""
    schema: Any = node.target
    names = [argument.name for argument in schema._schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}
