"""A model's values, as the rules of cost infer them -> sizes that onnx's own inference cannot tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analyzer.cost.algebra import evaluate
from analyzer.cost.values import Value
from analyzer.cost.walk import Walk
from analyzer.model import Model
from analyzer.model.dtypes import DType
from analyzer.records import Frozen
from analyzer.timing.record import Axis


class Walked(Frozen):
    """Values of the main graph, as the walk of the cost infers them."""

    walk: Walk
    values: Mapping[str, Value]
    names: Mapping[str, str]
    """Names of axes in expressions, by their names in the file."""
    unnamed: Mapping[str, int]
    """Sizes, in elements, of axes without a name in the file, by their names in expressions."""

    def typed(self, name: str, sizes: Mapping[str, int]) -> tuple[DType, tuple[int, ...]] | None:
        """Return type and shape of a value at these sizes of the axes; None where the rules do not tell both.

        Args:
            name: name of the value.
            sizes: sizes in elements, by the names of axes in the file.
        """
        value = self.values.get(name)
        if value is None or value.shape is None or value.dtype is DType.UNDEFINED:
            return None
        bounds = {self.names[axis]: size for axis, size in sizes.items() if axis in self.names} | dict(
            self.unnamed
        )
        if self.walk.is_contradicted(bounds):
            return None
        dims = [evaluate(size, bounds) for size in value.shape]
        known = tuple(dim for dim in dims if dim is not None and dim >= 0)
        return (value.dtype, known) if len(known) == len(dims) else None


def walk_values(model: Model, axes: Sequence[Axis]) -> Walked:
    """Walk a model once.

    Args:
        model: a model that is one file.
        axes: axes of its inputs, with a size each.
    """
    walk = Walk(model)
    for _ in walk.run():
        pass
    main = model.graphs[0].path
    planned = {(axis.input, axis.position): axis.size for axis in axes}
    return Walked(
        walk,
        walk.values.get(main, {}),
        {axis.stored_name: axis.name for axis in walk.axes if axis.stored_name},
        {
            axis.name: planned[axis.input, axis.position]
            for axis in walk.axes
            if not axis.stored_name and (axis.input, axis.position) in planned
        },
    )
