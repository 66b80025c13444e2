"""Comparison -> sentences: what changed, how far it was compared, and what differs between two tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analyzer.comparison import Change, Comparison, Status, TensorPair, count_statuses
from analyzer.ledger import Entry
from analyzer.model import label
from analyzer.units import format_count, format_many, format_shape, printable_name

__all__ = ["list_notes", "tell_changes"]


def list_notes(pair: TensorPair) -> Iterator[str]:
    """What differs between the two, or what the one is that is there."""
    if pair.a is None or pair.b is None:
        tensor = pair.entry.tensor
        yield f"{tensor.dtype.name} {format_shape(tensor.shape)}"
        yield from _copies((("", pair.entry),))
        return
    a, b = pair.a.tensor, pair.b.tensor
    if a.name != b.name:
        yield f"{printable_name(a.name)} is now {printable_name(b.name)}"
    if Change.DTYPE in pair.changed:
        yield f"{a.dtype.name} to {b.dtype.name}"
    if Change.SHAPE in pair.changed:
        yield f"{format_shape(a.shape)} to {format_shape(b.shape)}"
    if Change.ROLE in pair.changed:
        yield f"{pair.a.role.value} to {pair.b.role.value}"
    if Change.VALUES in pair.changed:
        yield "other values"
    if Change.PARAMETERS in pair.changed and Change.SHAPE not in pair.changed:
        yield f"{format_count(pair.parameters.a)} to {format_many(pair.parameters.b, 'parameter')}"
    if Change.PARAMETERS in pair.changed:
        yield from _copies(((" in a", pair.a), (" in b", pair.b)))


def _copies(sides: Iterable[tuple[str, Entry]]) -> Iterator[str]:
    """Why what is learned does not count: it is there already."""
    for where, entry in sides:
        if entry.copy_of is not None:
            yield f"copy of {printable_name(label(entry.copy_of))}{where}"


def tell_changes(report: Comparison) -> Iterator[str]:
    """How many groups and tensors changed, and how far they were compared."""
    for what, pairs in (("groups", report.groups), ("tensors", report.tensors)):
        counts = count_statuses(pairs)
        words = {status: status.value for status in Status}
        if what == "groups":  # what tensors hold is compared by tensor
            words[Status.UNCHANGED] += " in count and bytes"
        told = ", ".join(
            f"{format_count(count)} {words[status]}" for status, count in counts.items() if count
        )
        yield (f"{what}: {told or 'none'}")
    yield from _values(report)
    yield from _wiring(report)
    if report.nodes is None:
        yield ("nodes: not compared, as a saved report does not say how many there were")
    if len(set(report.contents)) > 1 and "none" in report.contents:
        side = "ab"[report.contents.index("none")]
        yield (f"contents of {side} were not looked at: what is stored twice counts twice there, once here")


def _wiring(report: Comparison) -> Iterator[str]:
    """Whether the same is computed with the weights."""
    if report.wiring is not None and report.wiring.alike:
        yield "wiring: both compute the same with their weights"
    elif report.wiring is not None:
        first = f", first in {printable_name(report.wiring.first)}" if report.wiring.first else ""
        yield f"wiring: b computes otherwise than a{first}"


def _values(report: Comparison) -> Iterator[str]:
    """Unchanged says nothing of values unless they were compared."""
    values = report.values
    if values is None:
        if count_statuses(report.tensors)[Status.UNCHANGED]:
            yield ("unchanged tensors have the same type, shape, role and size; values were not compared")
        return
    where = "whole" if values.content == "full" else "at fixed positions"
    unknown = f", {format_many(values.unknown, 'tensor')} could not be" if values.unknown else ""
    alike = format_many(values.equal + values.differing, "tensor")
    apart = sum(pair.status is Status.CHANGED and pair.changed != (Change.VALUES,) for pair in report.tensors)
    others = (
        f"; not those of {format_many(apart, 'tensor')} of another type, shape, role or size" if apart else ""
    )
    yield (f"values compared {where}: {alike}, {format_count(values.differing)} differ{unknown}{others}")
