"""nn.Module -> the same module with weights that are all different, in the dtype asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["DTYPES", "cast", "is_batch_norm", "randomize"]

DTYPES: Mapping[str, torch.dtype] = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
"""The names that `--dtype` takes."""

_NOISE = 0.02
_FEW_ELEMENTS = 64

_CONSTANT = 1e-5
"""Spread, beside the largest, of a tensor of one value: the mean of many tenths is not quite a tenth."""

_VANISHING = 1e-6
"""Half precision takes smaller numbers for zeros; some configs initialize with a spread of 1e-10 (BLIP, SAM)."""
# Rotary frequencies lose whole positions in half precision; `from_pretrained` keeps them in float32 as well.
_KEPT_IN_FLOAT32 = ("inv_freq", "original_inv_freq")


def is_batch_norm(module: nn.Module) -> bool:
    """Whether it normalizes with running statistics: torch's BatchNorms and the frozen ones of detection models."""
    if isinstance(module, _BatchNorm):
        return True
    return "FrozenBatchNorm" in type(module).__name__ and hasattr(module, "running_var")


def randomize(model: nn.Module, seed: int, dtype: torch.dtype) -> None:
    """Move every parameter and BatchNorm statistic a little, so that no two tensors stay equal by accident.

    An exporter merges equal constants, so a model fresh from its constructor loses its zero biases and unit gains.
    The noise is small beside each tensor's own scale, which keeps half-precision outputs finite. Ties stay ties.
    `dtype` is what the model will be cast to: values must still differ then. What a class makes anew whenever it is
    loaded (sinusoid tables that `save_pretrained` leaves out) stays as it is made: no checkpoint has it otherwise.
    """
    generator = torch.Generator().manual_seed(seed)
    seen: set[bytes] = set()
    with torch.no_grad():
        for tensor in _affine_tensors(model):
            _make_distinct(tensor, generator, dtype, seen)
        for module in model.modules():
            if is_batch_norm(module):
                _randomize_statistics(module, generator)


def _affine_tensors(model: nn.Module) -> Iterator[torch.Tensor]:
    """All float parameters once, then the weights that frozen BatchNorms hold as buffers."""
    remade = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and (parameter.requires_grad or name not in remade):
            yield parameter
    for module in model.modules():
        if is_batch_norm(module) and not isinstance(module, _BatchNorm):
            yield from (b for name, b in module.named_buffers(recurse=False) if name in ("weight", "bias"))


def _make_distinct(
    tensor: torch.Tensor, generator: torch.Generator, dtype: torch.dtype, seen: set[bytes]
) -> None:
    """Add noise until the cast content is new; only tensors of a few elements ever need a second draw."""
    _add_noise(tensor, generator)
    if not 0 < tensor.numel() <= _FEW_ELEMENTS:
        return
    for _ in range(100):
        content = tensor.detach().to(dtype).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        is_constant = tensor.numel() > 1 and bool((tensor.to(dtype) == tensor.to(dtype).reshape(-1)[0]).all())
        if content not in seen and not is_constant:
            break
        _add_noise(tensor, generator)
    seen.add(content)


def _add_noise(tensor: torch.Tensor, generator: torch.Generator) -> None:
    spread = float(tensor.float().std()) if tensor.numel() > 1 else 0.0
    level = float(tensor.float().abs().max()) if tensor.numel() else 0.0
    if spread > _CONSTANT * level and level >= _VANISHING and math.isfinite(spread):
        scale = 0.1 * spread
    else:
        # Layer scales start at 1e-6, where 2 % would vanish in half precision: hence the floor.
        scale = _NOISE * max(level, 0.05) if level >= _VANISHING else _NOISE
    tensor.add_(torch.randn(tensor.shape, generator=generator).to(tensor.dtype), alpha=scale)


def _randomize_statistics(module: nn.Module, generator: torch.Generator) -> None:
    """Running means off zero, running variances off one and still positive."""
    mean, variance = module.running_mean, module.running_var
    if isinstance(mean, torch.Tensor):
        mean.add_(torch.randn(mean.shape, generator=generator).to(mean.dtype), alpha=0.1)
    if isinstance(variance, torch.Tensor):
        variance.mul_(torch.randn(variance.shape, generator=generator).mul(0.1).exp().to(variance.dtype))


def cast(model: nn.Module, dtype: torch.dtype) -> None:
    """Cast every float parameter and buffer in place, except rotary frequencies."""
    kept = {
        (module, name): buffer
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name in _KEPT_IN_FLOAT32
    }
    model.to(dtype)
    for (module, name), buffer in kept.items():
        setattr(module, name, buffer)
