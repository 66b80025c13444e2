"""Node -> the versions of ONNX's operators that apply to it, and whether it means something else in one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analyzer.model import GraphPath, Model, Node

EPOCHS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), (13,)),
    "BatchNormalization": (7,),
    "DFT": (20,),
    "Dropout": (7,),
    "GroupNormalization": (21,),
    "OneHot": (11,),
    "Resize": (11,),
    "RoiAlign": (16,),
    "Scan": (9,),
    "Selu": (6,),
}
"""For ONNX's own operators, the versions since which the same node means something else (onnx/docs/Changelog.md).

Before: Softmax and its kin over all axes from one on, not along one; BatchNormalization and Dropout as in training
unless `is_test` is set; another default axis of DFT; a scale of GroupNormalization for each group, not each channel; no
indices of OneHot below 0; other default coordinates of Resize and RoiAlign; a first axis of Scan for the batch;
constants of Selu with fewer digits.
"""


class Versions:
    """Versions of ONNX's own operators: those that each model file and each function imports."""

    def __init__(self, model: Model) -> None:
        self._imported: dict[GraphPath, int] = {
            path: min((version for domain, version in opsets if domain == "ai.onnx"), default=0)
            for path, opsets in (
                *((part.path, part.opsets) for part in model.parts),
                *((function.path, function.opsets) for function in model.functions),
            )
        }

    def of(self, node: Node) -> tuple[int, ...]:
        """Return the versions that apply to a node: in a function its own import, and the model's.

        ONNX's specification (onnx/docs/IR.md, on functions) wants an operator to be the same in both. Where it is not,
        runtimes differ in which of them they take.
        """
        path = node.graph_path
        around = (path[:end] for end in range(len(path), -1, -1))
        return tuple(self._imported[each] for each in around if each in self._imported) or (0,)

    def later_epochs(self, node: Node) -> list[int]:
        """Return the versions since which the node's operator means something else than in the node's version."""
        epochs = _epochs_of(node)
        least = min(self.of(node)) if epochs else 0
        return [epoch for epoch in epochs if least < epoch]

    def contradicting(self, node: Node) -> tuple[int, ...]:
        """Return the versions that apply to a node, if it means something else in one than in another."""
        later = self.later_epochs(node)
        versions = self.of(node) if later else ()
        return versions if any(epoch <= max(versions) for epoch in later) else ()


def _epochs_of(node: Node) -> Sequence[int]:
    return EPOCHS.get(node.op_type, ()) if node.domain in ("", "ai.onnx") else ()
