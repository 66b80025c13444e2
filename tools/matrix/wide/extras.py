"""Optional packages of the wide matrix: which are here, and how torchvision of another build is made importable."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

OPERATORS = ("nms", "qnms")
"""What torchvision describes to PyTorch when it is imported, whether or not its compiled half could be loaded."""


def prepare_torchvision() -> None:
    """Declare the operators of torchvision's compiled half where that was built for another PyTorch.

    The wheels of the default index are for CUDA. Beside PyTorch for CPUs they cannot be loaded, and importing
    torchvision, and with it transformers, then fails over operators that no model here calls.
    """
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    import torch

    compiled = next(Path(spec.origin).parent.glob("_C*.so"), None)
    try:
        if compiled is not None:
            torch.ops.load_library(str(compiled))
            return
    except OSError:
        pass
    for name in OPERATORS:
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(
                f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )


prepare_torchvision()  # when imported: before transformers, which imports torchvision as soon as it finds it


def missing(*packages: str) -> str | None:
    """The first of the packages that is not installed; None where all are."""
    return next((package for package in packages if find_spec(package) is None), None)
