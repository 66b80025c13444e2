"""Sizes that a user gives by axis, by `input.axis` or by role -> sizes by the axes of the inputs."""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.account.ledger import Ledger
from analyzer.budget.amounts import parse_amount
from analyzer.budget.record import Unit
from analyzer.errors import OnnxLedgerError, UsageError
from analyzer.model import Graph
from analyzer.records import replace
from analyzer.text import printable, shown
from analyzer.timing.inputs.roles import Roles, assign_roles, look_up
from analyzer.timing.inputs.sizes import Shapes, bind_axes, parse_shapes


def with_past(shapes: Shapes, past: int | None) -> Shapes:
    """Return the sizes with the length of a decoder's cache, unless they have it already."""
    if past is None or any(key == Roles.PAST for key, _ in shapes.sizes):
        return shapes
    return replace(shapes, sizes=(*shapes.sizes, (Roles.PAST, past)))


def resolve_sizes(ledger: Ledger, shapes: Shapes) -> Mapping[str, int]:
    """Return the sizes of axes, in elements, by the name that the file gives an axis, or by `input.position`.

    Raises:
        UsageError: a name matches nothing, sizes contradict each other or those that the file fixes, or one is swept.
    """
    if shapes.sweep is not None:
        raise UsageError(f"--shape {printable(shapes.sweep.key)}: give one size; the formulas hold for all")
    if not shapes.sizes:
        return {}
    signature = [value_type for graph in _main_graphs(ledger) for value_type in graph.signature]
    parts, sides = assign_roles(signature, look_up(ledger.model, ledger.wiring).uses)
    sizes: dict[str, int] = {}
    for (number, position), size in bind_axes(parts, sides, shapes.sizes).items():
        dim = parts[number].dims[position]
        if not isinstance(dim, int) or dim < 0:
            named = dim if isinstance(dim, str) else ""
            sizes[named or f"{parts[number].value_type.name}.{position}"] = size
    return sizes


def _main_graphs(ledger: Ledger) -> list[Graph]:
    paths = {part.path for part in ledger.model.parts}
    return [graph for graph in ledger.model.graphs if graph.path in paths]


def parse_sized(flag: str, text: str, unit: Unit, example: str) -> tuple[Shapes, int]:
    """Parse sizes of axes, a colon, and an amount; the amount alone has no sizes.

    Raises:
        UsageError: it has no amount, or its sizes are malformed, or several.
    """
    sizes, _, amount = text.rpartition(":")
    try:
        number = parse_amount(amount.strip(), unit)
    except ValueError as error:
        raise UsageError(f"{flag} {shown(text)}: {error}; write it as '{example}'") from error
    try:
        shapes = parse_shapes([sizes.strip()] if sizes.strip() else [])
    except UsageError as error:
        raise UsageError(name_flag(error, flag)) from error
    if shapes.sweep is not None:
        raise UsageError(
            f"{flag} {shown(text)}: a limit has one size for each axis; give the limit once for each size"
        )
    return shapes, number


def name_flag(error: OnnxLedgerError, flag: str) -> str:
    """Return an error message about sizes under the name of the option that gave them.

    >>> name_flag(UsageError("--shape batch: is to be both 1 and 2"), "--max-macs")
    '--max-macs, batch: is to be both 1 and 2'
    """
    return str(error).replace("--shape ", f"{flag}, ", 1)
