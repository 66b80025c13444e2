"""A named file and the manifest of its export -> the layer of each stored tensor, according to PyTorch."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from analyzer import Ledger
    from analyzer.manifest import Manifest
    from analyzer.model import Key
    from analyzer.reconciliation import Reconciliation

__all__ = [
    "OUTSIDE",
    "TrueTensor",
    "Truth",
    "find_truth",
    "from_source",
    "load_truth",
    "save_truth",
    "true_layers",
]

HEAD, STEM = "head", "stem"
OUTSIDE = frozenset({STEM, HEAD})
"""Places of a tensor that is in no layer."""

_NAME_SCOPES = "pkg.torch.onnx.name_scopes"
_NOT_STORED = ("unused", "outside", "removed-zero")
"""Lines of the bridge whose parameters no tensor holds."""
_LAYER = re.compile(
    r"""(?:^|.*?\.)
    (?: (?:encoder|decoder)\.stages\.\d+\.layers\.\d+    # ResNet
      | encoder\.layers\.\d+\.blocks\.\d+                # Swin
      | albert_layer_groups\.\d+\.albert_layers\.\d+     # ALBERT
      | (?:layer|layers|h|block)\.\d+                    # the others
    )(?=\.)(?!\.downsample)                              # between two stages of Swin""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class TrueTensor:
    """A stored tensor that holds a PyTorch parameter."""

    parameters: tuple[str, ...]
    blocks: tuple[str, ...]
    """Blocks that it may be in: one, except for tensors in no layer, or in several."""
    elements: int
    """Learned elements that count in this tensor; 0 for a copy."""


@dataclass(frozen=True, slots=True)
class Truth:
    """Tensors and nodes of each layer in a file."""

    layers: tuple[str, ...]
    """PyTorch module of each layer in the order of the model; a shared one is listed once for each use."""
    parameters: tuple[int, ...]
    """PyTorch parameters of each layer; a shared layer's belong to its first use."""
    tensors: Mapping[int, TrueTensor]
    """Tensors by position among the file's stored tensors."""
    unplaced: tuple[str, ...]
    """PyTorch parameters without a known stored tensor."""
    nodes: Mapping[int, str]
    """Block of each node that names the module of its trace, by position among the file's nodes; "" if the module is in
    no layer. Empty for shared layers, because a trace does not show the use."""

    @property
    def count(self) -> int:
        return len(self.layers)


def true_layers(names: Sequence[str], uses: int = 1) -> tuple[str, ...]:
    """Return the modules that are layers, in the order of their definition, each as often as it is used.

    >>> true_layers(["wte.weight", "h.0.ln.weight", "h.0.ln.bias", "h.1.ln.weight"])
    ('h.0', 'h.1')
    """
    found = [match.group() for name in names if (match := _LAYER.match(name))]
    return tuple(layer for layer in dict.fromkeys(found) for _ in range(uses))


def find_truth(result: Reconciliation, uses: int = 1) -> Truth:
    """Find the tensors of each parameter of the manifest in the file, and the parameter's layer."""
    manifest = result.manifest
    names = [parameter.name for parameter in manifest.parameters]
    layers = true_layers(names, uses)
    places = _places(manifest, layers)
    position = {entry.tensor.key: index for index, entry in enumerate(result.ledger.entries)}
    reads = _reads(result.ledger)
    by_position: dict[int, list[tuple[str, frozenset[str]]]] = {}
    for parameter in result.parameters:
        accepted = places[parameter.name]
        keys = tuple(dict.fromkeys(parameter.entries))
        if len(keys) > 1 and accepted & OUTSIDE:
            accepted = OUTSIDE  # a tied table, stored both for the embedding and for the projection
        shared = _by_use({key: reads.get(key, []) for key in keys}, uses) if len(keys) > 1 else {}
        for key in keys:
            allowed = accepted if accepted & OUTSIDE else shared.get(key, accepted)
            by_position.setdefault(position[key], []).append((parameter.name, allowed))
    learned = [line.learned for line in result.entries]
    return Truth(
        layers,
        _sizes(manifest, layers),
        {
            index: TrueTensor(
                tuple(name for name, _ in pairs),
                tuple(sorted(_merge_places([accepted for _, accepted in pairs]))),
                learned[index],
            )
            for index, pairs in sorted(by_position.items())
        },
        tuple(p.name for p in result.parameters if not p.entries and p.line not in _NOT_STORED),
        _traced(result.ledger, layers) if uses == 1 else {},
    )


def _traced(ledger: Ledger, layers: Sequence[str]) -> dict[int, str]:
    found = {}
    for index, node in enumerate(ledger.model.nodes()):
        if _NAME_SCOPES in node.metadata:
            scopes = ast.literal_eval(node.metadata[_NAME_SCOPES])
            found[index] = next((f"block.{layers.index(scope)}" for scope in scopes if scope in layers), "")
    return found


def _merge_places(places: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the blocks of a tensor with several parameters; if they are in several layers, also those outside."""
    allowed = frozenset[str]().union(*places)
    return allowed | OUTSIDE if len({*places}) > 1 else allowed


def _places(manifest: Manifest, layers: Sequence[str]) -> dict[str, frozenset[str]]:
    """Return the blocks that each parameter may be in: its layer, `stem` before the first, or `head` after the last."""
    names = [parameter.name for parameter in manifest.parameters]
    inside = [match.group() if (match := _LAYER.match(name)) else None for name in names]
    first = next((index for index, layer in enumerate(inside) if layer), len(names))
    last = max((index for index, layer in enumerate(inside) if layer), default=-1)
    found = {}
    for index, (name, layer) in enumerate(zip(names, inside, strict=True)):
        if layer is not None:
            found[name] = frozenset({f"block.{layers.index(layer)}"})
        else:
            found[name] = (
                frozenset({STEM}) if index < first else frozenset({HEAD}) if index > last else OUTSIDE
            )
    return found


def _sizes(manifest: Manifest, layers: Sequence[str]) -> tuple[int, ...]:
    sizes = dict.fromkeys(layers, 0)
    for parameter in manifest.parameters:
        match = _LAYER.match(parameter.name)
        if match:
            sizes[match.group()] += parameter.numel
    return tuple(sizes.pop(layer, 0) for layer in layers)


def from_source(truth: Truth, ledger: Ledger, known: Truth, source: Ledger) -> Truth:
    """Complete the truth with that of the tool's input, if the tool wrote the same values in another order.

    Onnxruntime stores the weights of convolutions in the layout of the processor.
    """
    origins = {digest: known.tensors[index] for index, digest in _orderless(source) if index in known.tensors}
    tensors = {**truth.tensors}
    for index, digest in _orderless(ledger):
        if index not in tensors and digest in origins:
            tensors[index] = origins[digest]
    placed = {name for tensor in tensors.values() for name in tensor.parameters}
    return replace(
        truth,
        tensors=dict(sorted(tensors.items())),
        unplaced=tuple(name for name in truth.unplaced if name not in placed),
    )


def _orderless(ledger: Ledger) -> Iterator[tuple[int, str]]:
    """Yield a digest of each tensor of several floats, independent of the order of its values."""
    for index, entry in enumerate(ledger.entries):
        array = entry.tensor.payload.array() if entry.tensor.numel > 1 else None
        if array is not None and array.dtype.kind == "f":
            yield index, hashlib.sha256(np.sort(array, axis=None).tobytes()).hexdigest()


def _by_use(reads: Mapping[Key, Sequence[int]], uses: int) -> dict[Key, frozenset[str]]:
    """Return the blocks of each copy of a shared layer's tensor: its first use's, and block.0, where it counts."""
    events = sorted((depth, key) for key, depths in reads.items() for depth in depths)
    if uses == 1 or len(events) % uses:
        return {}
    first: dict[Key, int] = {}
    for index, (_, key) in enumerate(events):
        first.setdefault(key, index * uses // len(events))
    return {key: frozenset({"block.0", f"block.{use}"}) for key, use in first.items()}


def _reads(ledger: Ledger) -> dict[Key, list[int]]:
    """Return each tensor's distances from the model's inputs to its readers, past nodes that only decode or move it."""
    reads: dict[Key, list[int]] = {}
    for graph in ledger.model.graphs:
        tensors = {tensor.name: {tensor.key} for tensor in graph.tensors}
        depths = dict.fromkeys(graph.inputs, 0)
        for node in graph.nodes:
            inputs = [name for name in node.inputs if name]
            read = {key for name in inputs for key in tensors.get(name, ())}
            if any(name in depths for name in inputs):
                depth = 1 + max(depths.get(name, 0) for name in inputs)
                depths |= dict.fromkeys(node.outputs, depth)
                for key in read:
                    reads.setdefault(key, []).append(depth)
            else:
                tensors |= {name: tensors.get(name, set()) | read for name in node.outputs}
    return reads


def save_truth(truth: Truth, path: Path) -> None:
    path.write_text(json.dumps(asdict(truth)) + "\n", encoding="utf-8")


def load_truth(path: Path) -> Truth:
    document = json.loads(path.read_text(encoding="utf-8"))
    return Truth(
        tuple(document["layers"]),
        tuple(document["parameters"]),
        {
            int(index): TrueTensor(tuple(item["parameters"]), tuple(item["blocks"]), item["elements"])
            for index, item in document["tensors"].items()
        },
        tuple(document["unplaced"]),
        {int(index): block for index, block in document["nodes"].items()},
    )
