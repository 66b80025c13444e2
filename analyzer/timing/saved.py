"""A saved `time` report -> Timing, so that two can be compared without running anything."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast, get_args

from analyzer.errors import UsageError
from analyzer.ledger import Group, Grouping, Match
from analyzer.saved import read_report
from analyzer.timing.record import Axis, Environment, KernelTime, Latency, Part, Point, Timing, TimingSettings
from analyzer.timing.request import Clock, Feed, Fill, MeasuringOrder, Optimization, Schedule
from analyzer.units import shorten

__all__ = ["is_saved_timing", "load_timing"]


def is_saved_timing(path: Path | str) -> bool:
    """Whether a path names a JSON report of `time`, whatever its version; one that cannot be read is none."""
    if Path(path).suffix != ".json":
        return False
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("command") == "time"


def load_timing(path: Path | str) -> Timing:
    """Rebuild the timing that a `time --format json` report describes; its ledger is None.

    Raises:
        UsageError: the file cannot be read, or is no whole report of this schema.
    """
    document = read_report(path, "time")
    try:
        return _timing(document)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path}: not a whole report ({shorten(repr(error), 200)}); make it again"
        ) from error


def _timing(document: dict[str, Any]) -> Timing:
    model, axis = document["model"], document.get("axis")
    rows = [document] if axis is None else document["points"]
    points = tuple(_point(row, is_own=document["by"] == "group") for row in rows)
    if axis is not None and not points:
        raise ValueError("a sweep without points")
    return Timing(
        ledger=None,
        path=_text(model["path"]),
        grouping=_grouping(document, points),
        settings=_settings(document),
        environment=_environment(document),
        points=points,
        axis=_maybe_text(axis),
        parameters=_count(model["parameters"]),
        file_nbytes=_count(model["file_bytes"]),
        stamp=_maybe_text(document.get("generated_at")),
    )


def _grouping(document: dict[str, Any], points: tuple[Point, ...]) -> Grouping:
    """The groups, as the points have them, and what the user's own have in common and leave out."""
    groups = {part.group.label: part.group for point in points for part in point.parts if not part.across}
    balance = (document if "axis" not in document else document["points"][0])["group_balance"]
    return Grouping(
        by=_text(document["by"]),
        depth=_maybe(document["depth"]),
        groups=tuple(groups.values()),
        overlap=_part(balance["overlap"]).group,
        ungrouped=_part(balance["ungrouped"]).group,
        match=_match(document["match"]),
        origin=_maybe_text(document["groups_from"]),
    )


def _settings(document: dict[str, Any]) -> TimingSettings:
    row = document["settings"]
    return TimingSettings(
        provider=_text(document["provider"]),
        provider_options=_texts(row["provider_options"]),
        threads=None if row["threads"] is None else _count(row["threads"]),
        optimization=Optimization(row["optimization"]),
        seed=int(row["seed"]),
        schedule=Schedule(
            runs=None if row["runs"] is None else _count(row["runs"]),
            warmup=_count(row["warmup"]),
            fewest=_count(row["fewest"]),
            most=_count(row["most"]),
            seconds=_number(row["seconds"]),
            precision=_number(row["precision"]),
        ),
    )


def _environment(document: dict[str, Any]) -> Environment:
    row = document["environment"]
    return Environment(
        device=_text(document["device"]),
        providers=tuple(map(_text, row["providers"])),
        versions=_texts(row["versions"]),
        threads=_count(row["threads"]),
        cores=_count(row["cores"]),
        precision=tuple((_text(name), _number(share)) for name, share in row["precision"].items()),
        clocks=tuple((_text(name), _number(clock)) for name, clock in row["clocks"].items()),
        load_ms=_number(row["load_ms"]),
        peak_rss_nbytes=_maybe(row["peak_rss_bytes"]),
        messages=tuple(map(_text, row["messages"])),
        kernel_clock=cast("Clock", _one_of(Clock, row["kernel_clock"])),
        order=cast("MeasuringOrder", _one_of(MeasuringOrder, row["order"])),
    )


def _one_of(known: Any, value: object) -> object:
    """A text that is one of those of a literal type."""
    if value not in get_args(known):
        raise ValueError(f"{value!r}: none of {', '.join(get_args(known))}")
    return value


def _point(row: dict[str, Any], *, is_own: bool) -> Point:
    return Point(
        feeds=tuple(map(_feed, row["inputs"])),
        latency=_latency(row["latency_ms"]),
        profiled=_latency(row["profiled_latency_ms"]),
        parts=tuple(map(_part, row["groups"])),
        unattributed_ms=_number(row["unattributed_ms"]),
        overhead_ms=_number(row["overhead_ms"]),
        kernels=tuple(map(_kernel, row["kernels"])),
        value=_maybe(row.get("value")),
        overlap_ms=_number(row["overlap_ms"]),
        ungrouped=_part(row["group_balance"]["ungrouped"]) if is_own else None,
        held_nbytes=_maybe(row["held_bytes"]),
        axes=tuple(map(_axis, row["axes"])),
    )


def _feed(row: dict[str, Any]) -> Feed:
    shape = tuple(map(_count, row["shape"]))
    return Feed(
        _text(row["name"]),
        _text(row["dtype"]),
        shape,
        Fill(row["fill"]),
        _number(row["low"]),
        _number(row["high"]),
    )


def _axis(row: dict[str, Any]) -> Axis:
    return Axis(
        input=_text(row["input"]),
        position=_count(row["position"]),
        name=_maybe_text(row["name"]),
        role=_text(row["role"]),
        size=_count(row["size"]),
        reason=_text(row["decided_by"]),
    )


def _latency(row: dict[str, Any]) -> Latency:
    times = {key: _number(row[key]) for key in ("mean", "median", "p90", "p99", "min", "precision")}
    return Latency(**times, runs=_count(row["runs"]), settled=bool(row["settled"]))


def _part(row: dict[str, Any]) -> Part:
    group = Group(
        name=_text(row["group"]),
        label=tuple(map(_text, row["keys"])),
        parameters=_count(row["parameters"]),
        stored_elements=_count(row["stored_elements"]),
        nbytes=_count(row["bytes"]),
        tensors=_count(row["tensors"]),
        nodes=_count(row["nodes"]),
    )
    across = tuple(map(_text, row["across"]))
    return Part(group, _number(row["ms"]), _count(row["kernels"]), across, _number(row["error_ms"]))


def _kernel(row: dict[str, Any]) -> KernelTime:
    name, op_type, provider, decided_by = (
        _text(row[key]) for key in ("name", "op_type", "provider", "decided_by")
    )
    groups = tuple(map(_text, row["groups"]))
    ms, nodes = _number(row["ms"]), _count(row["nodes"])
    return KernelTime(name, op_type, provider, ms, groups, decided_by, nodes, bool(row["across"]))


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r}: not a count")
    return value


def _maybe(value: object) -> int | None:
    return None if value is None else _count(value)


def _number(value: object) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]  # it is a number
        raise TypeError(f"{value!r}: not a number")
    return value  # type: ignore[return-value]  # the same


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r}: not a text")
    return value


def _maybe_text(value: object) -> str | None:
    return None if value is None else _text(value)


def _match(value: object) -> Match | None:
    for match in get_args(Match):
        if value == match:
            return match  # type: ignore[no-any-return]  # one of its values
    if value is not None:
        raise ValueError(f"{value!r}: no way to match")
    return None


def _texts(rows: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((_text(key), _text(value)) for key, value in rows.items())
