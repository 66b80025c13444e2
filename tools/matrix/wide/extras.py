"""Optional packages of the wide matrix: a check for them, and a way to import torchvision of another build."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

OPERATORS = ("nms", "qnms")
"""Operators that torchvision describes to PyTorch at import, whether or not its compiled half was loaded."""


def prepare_torchvision() -> None:
    """Declare the operators of torchvision's compiled half if that was built for another PyTorch.

    The wheels of the default index are for CUDA. They cannot be loaded with a PyTorch for CPUs, and importing
    torchvision, and with it transformers, then fails because of operators that no model here calls.
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


prepare_torchvision()  # at import: before transformers, which imports torchvision if it finds it


def missing(*packages: str) -> str | None:
    """Return the first of the packages that is not installed; None if all are."""
    return next((package for package in packages if find_spec(package) is None), None)
