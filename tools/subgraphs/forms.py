"""The forms that a model's file takes on its way to deployment: an export, and the output of a tool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tools.matrix.transforms import AS_EXPORTED, TRANSFORMS, optimize

__all__ = ["FORMS", "NAMED", "NAMELESS", "TITLES", "write_form"]

NAMED, NAMELESS = "named", "nameless"

FORMS: Mapping[str, tuple[str, str]] = {
    "exported": ("dynamic", AS_EXPORTED),
    "unoptimized": ("dynamo", AS_EXPORTED),
    "legacy": ("legacy", AS_EXPORTED),
    "fused": ("fused", AS_EXPORTED),
    "ort": ("dynamic", "ort-extended"),
    "ort-all": ("dynamic", "ort-all"),
    "onnxslim": ("dynamic", "onnxslim"),
    "fp16": ("dynamic", "fp16"),
    "int8": ("dynamic", "int8"),
    "qdq": ("dynamic", "qdq"),
    "4-bit": ("dynamic", "nbits"),
    "legacy-ort": ("legacy", "ort-extended"),
    "legacy-onnxslim": ("legacy", "onnxslim"),
    "legacy-int8": ("legacy", "int8"),
    "fused-int8": ("fused", "int8"),
}
"""Kind of export, as in `matrix.exports`, and transform, as in `matrix.transforms`."""

TITLES: Mapping[str, str] = {
    "exported": "exported",
    "unoptimized": "exported by dynamo, not optimized",
    "legacy": "exported by TorchScript",
    "fused": "exported with `--fuse cpu`",
    "ort": "optimized by onnxruntime, extended",
    "ort-all": "optimized by onnxruntime, all",
    "onnxslim": "onnxslim",
    "fp16": "fp16",
    "int8": "int8, dynamic",
    "qdq": "int8, static QDQ",
    "4-bit": "4-bit MatMulNBits",
    "legacy-ort": "TorchScript, then onnxruntime",
    "legacy-onnxslim": "TorchScript, then onnxslim",
    "legacy-int8": "TorchScript, then int8",
    "fused-int8": "`--fuse cpu`, then int8",
}

_TRANSFORMS = {**TRANSFORMS, "ort-all": optimize("ALL")}


def write_form(transform: str, source: Path, target: Path) -> None:
    """Write the output of `transform` for `source` to `target`, unless it fails."""
    partial = target.with_name(f".{target.name}")
    try:
        _TRANSFORMS[transform](source, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
