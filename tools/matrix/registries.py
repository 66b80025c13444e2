"""The table of `torch.onnx`'s translations, which each export makes anew in half a second -> the table, made once."""

from __future__ import annotations

from typing import Any

from torch.onnx._internal.exporter import _registration


def remember_registries() -> None:
    """Make the table of each opset once; every caller gets its own copies of the lists."""
    made: dict[int, Any] = {}
    make = _registration.ONNXRegistry.from_torchlib

    def remembered(*args: int, **kwargs: int) -> Any:
        opset = next(iter((*args, *kwargs.values())), 0)
        if opset not in made:
            made[opset] = make(*args, **kwargs)
        registry = _registration.ONNXRegistry()
        registry.__dict__.update(made[opset].__dict__)
        registry.functions = {name: [*metas] for name, metas in made[opset].functions.items()}
        return registry

    _registration.ONNXRegistry.from_torchlib = staticmethod(remembered)  # type: ignore[method-assign]
