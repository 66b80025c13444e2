"""A file whose axes torch.export has numbered (`s18`) -> the same with the names that people know them by.

torch.export calls an axis that may vary by a symbol, which says nothing and is another on the next run. Axes of one
symbol are of one size, as far as the trace knows, so that a symbol has one name, and two symbols have two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import onnx

from exporter.inputs import Axes

_SYMBOL = re.compile(r"s\d+")
_WORD = re.compile(r"[A-Za-z_]\w*")


def name_axes(path: Path, axes: Axes) -> None:
    """Write a file once more with names for its symbols, where it has any; its data is not read.

    Args:
        path: of a model as torch's exporter wrote it.
        axes: for each input the names of its axes that may vary, by number.
    """
    model = onnx.load(path, load_external_data=False)
    if name_axes_of(model, axes):
        onnx.save(model, path)


def name_axes_of(model: onnx.ModelProto, axes: Axes) -> Mapping[str, str]:
    """Name the symbols of a model's inputs, wherever they stand in it; what they are called now, by symbol."""
    dims = list(_dims(model.graph))
    taken = {word for dim in dims for word in _WORD.findall(dim.dim_param) if not _SYMBOL.fullmatch(word)}
    names: dict[str, str] = {}
    for value in model.graph.input:
        shape = value.type.tensor_type.shape.dim
        for axis, name in axes.get(value.name, {}).items():
            symbol = shape[axis].dim_param if axis < len(shape) else ""
            if not _SYMBOL.fullmatch(symbol) or symbol in names:
                continue
            called = _free(taken, name.removeprefix(f"{value.name}_"), f"{value.name}_{axis}")
            if called:
                names[symbol] = called
                taken.add(called)
    if names:
        for dim in dims:
            if dim.dim_param:
                dim.dim_param = _WORD.sub(lambda word: names.get(word[0], word[0]), dim.dim_param)
    return names


def _free(taken: Iterable[str], name: str, place: str) -> str:
    """A name that nothing has: that of the axis, else with its input before it; "" where both are taken."""
    word = re.sub(r"\W", "_", name)
    owner, _, _ = re.sub(r"\W", "_", place).rpartition("_")
    return next((each for each in (word, f"{owner}_{word}") if each and each not in taken), "")


def _dims(graph: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """The axes of all values whose types a graph, or one inside it, says."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield from value.type.tensor_type.shape.dim
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _dims(inner)
