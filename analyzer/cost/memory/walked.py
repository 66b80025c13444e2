"""A model's values by the rules of the cost -> their sizes where onnx's own inference tells none."""

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
    """What the walk of the cost knows of each value of the main graph."""

    walk: Walk
    values: Mapping[str, Value]
    names: Mapping[str, str]
    """What expressions call an axis, by its name in the file."""
    unnamed: Mapping[str, int]
    """Sizes of axes without a name, in elements, by what expressions call them."""

    def typed(self, name: str, sizes: Mapping[str, int]) -> tuple[DType, tuple[int, ...]] | None:
        """Type and shape of a value where the axes have these sizes; None where the rules do not tell both.

        Args:
            name: of the value.
            sizes: in elements, by the names of axes in the file.
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
        model: one file.
        axes: those of its inputs, with a size each.
    """
    walk = Walk(model)
    for _ in walk.run():
        pass
    main = model.graphs[0].path
    planned = {(axis.input, axis.position): axis.size for axis in axes}
    return Walked(
        walk,
        walk.values.get(main, {}),
        {axis.told: axis.name for axis in walk.axes if axis.told},
        {
            axis.name: planned[axis.input, axis.position]
            for axis in walk.axes
            if not axis.told and (axis.input, axis.position) in planned
        },
    )
