"""nn.Module -> what its program computes of no input, at the shapes that a file's inputs fix."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from analyzer.checkpoints.weights import Trace
from analyzer.manifest import OF_CLASS, Manifest
from exporter.census import with_program, with_reads
from exporter.classes import first_line
from exporter.engines import reads_again
from exporter.inputs import Axes, ExampleInputs, untried_inputs
from exporter.program import Program
from exporter.quiet import quiet

__all__ = ["tracer_of"]

Shapes = Mapping[str, tuple[int | None, ...]]

_MOST_GIVEN = 1 << 26
"""Elements of example inputs: their shapes are a file's, which may claim anything."""


def tracer_of(
    model: nn.Module, config: Any | None, given: tuple[Any, ...] | Mapping[str, Any] | None = None
) -> Trace:
    """What traces a module when it is asked to: nothing of its forward is computed, but what no input has a part in.

    Where that fails, the program has no values, and a note that says why. Which parameters it reads is taken from it
    where it is given whatever the file is: another input may be what reads them.
    """

    def trace(
        manifest: Manifest, shapes: Sequence[tuple[str, tuple[int | None, ...]]], salt: str
    ) -> Manifest:
        try:
            named = {name for name, _ in shapes}
            inputs = untried_inputs(model, config, given, has_images=any("pixel" in name for name in named))
            prefix = _prefix(named, inputs.axes.keys())
            inputs = _fit(inputs, {name.removeprefix(prefix): shape for name, shape in shapes})
            with quiet():
                reads = reads_again(model, inputs)
        except Exception as error:  # noqa: BLE001  an account can do without it
            return with_program(manifest, Program(notes=(f"not traced: {first_line(error)}",)), salt)
        if not reads.program or {name.removeprefix(prefix) for name in named} - inputs.axes.keys():
            return with_program(manifest, reads.program or Program(), salt)
        return with_reads(manifest, replace(reads, trace=OF_CLASS), salt)

    return trace


def _prefix(named: Collection[str], known: Collection[str]) -> str:
    """What a tool has put before the name of each input of a file, as `onnx.compose` does; "" where it has not."""
    ends = {name.removesuffix(each) for name in named for each in known if name.endswith(each)}
    fits = [end for end in ends if all(name.startswith(end) and name[len(end) :] in known for name in named)]
    return min(fits, key=len, default="")


def _fit(inputs: ExampleInputs, shapes: Shapes) -> ExampleInputs:
    """The inputs with as many elements along each axis as the file says, by repeating or leaving out what they have."""
    names = list(inputs.axes) if inputs.args else list(inputs.kwargs)
    values = list(inputs.args or inputs.kwargs.values())
    fitted = [_resize(value, shapes.get(name, ())) for name, value in zip(names, values, strict=False)]
    if sum(value.numel() for value in fitted if isinstance(value, torch.Tensor)) > _MOST_GIVEN:
        raise ValueError("the file's inputs are larger than any example")
    axes: Axes = inputs.axes
    if inputs.args:
        return replace(inputs, args=tuple(fitted), axes=axes)
    return replace(inputs, kwargs=dict(zip(names, fitted, strict=True)), axes=axes)


def _resize(value: Any, shape: tuple[int | None, ...]) -> Any:
    if not isinstance(value, torch.Tensor) or value.ndim != len(shape):
        return value
    wanted = [have if want is None else want for have, want in zip(value.shape, shape, strict=True)]
    if math.prod(wanted) > _MOST_GIVEN:
        raise ValueError("the file's inputs are larger than any example")
    for axis, (have, want) in enumerate(zip(value.shape, wanted, strict=True)):
        if have and want != have:
            value = value.index_select(axis, torch.arange(want) % have)
    return value
