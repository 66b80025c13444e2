"""What `torch.onnx` can translate, a table that each export makes anew in half a second -> the table, made once."""

from __future__ import annotations

from typing import Any

from torch.onnx._internal.exporter import _registration


def remember_registries() -> None:
    """Make the table of each opset once; whoever asks gets lists of its own."""
    made: dict[int, Any] = {}
    make = _registration.ONNXRegistry.from_torchlib

    def remembered(*asked: int, **named: int) -> Any:
        opset = next(iter((*asked, *named.values())), 0)
        if opset not in made:
            made[opset] = make(*asked, **named)
        registry = _registration.ONNXRegistry()
        registry.__dict__.update(made[opset].__dict__)
        registry.functions = {name: [*metas] for name, metas in made[opset].functions.items()}
        return registry

    _registration.ONNXRegistry.from_torchlib = staticmethod(remembered)  # type: ignore[method-assign]
