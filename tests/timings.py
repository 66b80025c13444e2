"""Timings made by hand: a small model, its groups, and times that sum up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import models

from analyzer.account.group import group_by
from analyzer.account.group.patterns import group_by_patterns, parse_patterns
from analyzer.account.ledger import Group, Grouping, Ledger
from analyzer.timing.generation import GenerationTiming, Loop, Step, StepTiming
from analyzer.timing.record import (
    Axis,
    Environment,
    KernelTime,
    Latency,
    Point,
    TimedGroup,
    Timing,
    TimingSettings,
)
from analyzer.timing.request import Feed, Fill

NET = """
net (int64[1,4] ids) => (float[1,4,6] logits)
<float[6,2] wte = {0,1,2,3,4,5,6,7,8,9,10,11}, float[2,2] w0 = {1,2,3,4}, float[2,2] w1 = {5,6,7,8},
 float[2,2] w2 = {9,1,2,4}, float[2,6] head = {1,2,3,4,5,6,7,8,9,1,2,3}>
{
    [embed] a = Gather(wte, ids)
    [zero] b = MatMul(a, w0)
    [one] c = MatMul(b, w1)
    [two] d = MatMul(c, w2)
    [project] e = MatMul(d, head)
    [act] logits = Relu(e)
}
"""
SCOPES = {
    "embed": "embeddings",
    "zero": "layer.0",
    "one": "layer.1",
    "two": "layer.2",
    "project": "head",
    "act": "head",
}
FEEDS = (
    Feed("ids", "INT64", (1, 4), Fill.INTEGERS, 0, 5),
    Feed("mask", "INT64", (1, 4), Fill.CONSTANT, 1, 1),
    Feed("pixels", "FLOAT", (1, 3, 8, 8), Fill.UNIFORM, -1, 1),
)
MS = {"embeddings": 0.5, "layer.0": 2.0, "layer.1": 2.25, "layer.2": 2.125, "head": 1.0}
ACROSS = ("layer.0", "layer.1")


def audit_net(folder: Path) -> Ledger:
    """Audit a model of an embedding, three layers and a head."""
    return models.audit(folder, models.dynamo_like(models.text_model(NET), scopes=SCOPES))


def latency(mean: float, runs: int = 20, *, settled: bool = True) -> Latency:
    """Return the latency of runs that differ by some percent."""
    return Latency(mean, 0.99 * mean, 1.05 * mean, 1.2 * mean, 0.95 * mean, runs, 0.004, settled)


def own_groups(ledger: Ledger) -> Grouping:
    """Return the user's groups that overlap in `layer.1` and leave the head out."""
    patterns = parse_patterns(["early=embeddings|layer.[01]", "late=layer.[12]"])
    return group_by_patterns(ledger, patterns)


def make_point(
    grouping: Grouping, factor: float = 1.0, value: int | None = None, *, feeds: Sequence[Feed] = FEEDS
) -> Point:
    """Return times of the groups in `MS`, of a fused kernel, and an unattributed rest."""
    parts = [
        TimedGroup(group, factor * MS[group.name], 2, error_ms=0.02 * factor)
        if group.name in MS
        else TimedGroup(group, 0.0, 0)
        for group in grouping.groups
    ]
    parts.append(TimedGroup(Group(" + ".join(ACROSS)), 0.3 * factor, 1, ACROSS, 0.01 * factor))
    unattributed = 0.05 * factor
    profiled = latency(10.0 * factor)
    overhead = profiled.mean - math.fsum(part.ms for part in parts) - unattributed
    kernels = (
        KernelTime("embed", "Gather", "CPUExecutionProvider", 0.5 * factor, ("embeddings",), "name:same", 1),
        KernelTime(
            "zero/MatMul+one", "FusedMatMul", "CPUExecutionProvider", 0.3 * factor, ACROSS, "value:made", 2
        ),
        KernelTime("reorder", "ReorderInput", "CPUExecutionProvider", 0.05 * factor, (), "none", 0),
    )
    return Point(
        feeds=tuple(feeds),
        latency=latency(8.0 * factor),
        profiled=profiled,
        parts=tuple(parts),
        unattributed_ms=unattributed,
        overhead_ms=overhead,
        kernels=kernels,
        value=value,
        axes=(
            Axis("ids", 0, "batch_size", "batch", 1, "default of batch"),
            Axis("ids", 1, None, "sequence", feeds[0].shape[1], "--shape sequence"),
            Axis("pixels", 1, None, "channels", 3, "file"),
        ),
    )


def make_own_point(grouping: Grouping) -> Point:
    """Return times of `own_groups`: 4.75 and 4.375, which both include layer.1's 2.25; the head's 1.0 is in neither."""
    early, late = grouping.groups
    parts = (TimedGroup(early, 4.75, 3, error_ms=0.1), TimedGroup(late, 4.375, 2, error_ms=0.1))
    return replace(
        make_point(grouping),
        parts=parts,
        overlap_ms=2.25,
        ungrouped=TimedGroup(grouping.ungrouped, 1.0, 2),
        unattributed_ms=0.05,
        overhead_ms=10.0 - 4.75 - 4.375 + 2.25 - 1.0 - 0.05,
    )


ENVIRONMENT = Environment(
    device="A Processor of 3 GHz",
    providers=("CPUExecutionProvider",),
    versions=(("onnxruntime", "1.31.1"),),
    threads=2,
    cores=2,
    precision=(("FLOAT", 1.0),),
    load_ms=12.5,
    peak_rss_nbytes=100 * 2**20,
    order="in turns",
)


def make_timing(folder: Path, *, is_own: bool = False, factor: float = 1.0) -> Timing:
    """Return one measurement of the model, by scope or in the user's groups."""
    ledger = audit_net(folder)
    grouping = own_groups(ledger) if is_own else group_by(ledger, "scope", 2)
    point = make_own_point(grouping) if is_own else make_point(grouping, factor)
    return Timing(
        ledger=ledger,
        path="net/model.onnx",
        grouping=grouping,
        settings=TimingSettings("cpu"),
        environment=ENVIRONMENT,
        points=(point,),
        parameters=ledger.parameters,
        file_nbytes=ledger.file_nbytes,
    )


def make_generation(folder: Path, *, is_own: bool = False, factor: float = 1.0) -> GenerationTiming:
    """Return a loop of an encoder, a prefill and a decode of one model, with 16 tokens of a source and 5 new ones."""
    once = make_timing(folder, is_own=is_own, factor=factor)

    def at(factor: float, value: int | None = None, **others: int) -> Point:
        point = make_own_point(once.grouping) if is_own else make_point(once.grouping, factor, value)
        axes = tuple(
            Axis("ids", position, role, role, size, "the loop")
            for position, (role, size) in enumerate(others.items())
        )
        return replace(point, value=value, axes=axes)

    def timed(name: str, *points: Point) -> Timing:
        axis = "past" if len(points) > 1 else None
        return replace(once, path=f"net/{name}.onnx", points=points, axis=axis)

    decode = (at(factor / 4, 2, decoder_sequence=1, past=2), at(factor / 2, 5, decoder_sequence=1, past=5))
    return GenerationTiming(
        path="net",
        loop=Loop(2, 16, "--shape sequence", 2, "--shape decoder_sequence", 5, (2, 5)),
        components=(
            StepTiming("encoder", Step.ENCODE, timed("encoder", at(2 * factor, sequence=16))),
            StepTiming("prefill", Step.PREFILL, timed("prefill", at(factor, decoder_sequence=2))),
            StepTiming("decode", Step.DECODE, timed("decode", *decode)),
        ),
        parameters=once.parameters,
        file_nbytes=3 * once.file_nbytes,
    )


def make_sweep(folder: Path, lengths: Sequence[int] = (16, 32, 64, 128, 256), power: int = 1) -> Timing:
    """Return a measurement at each length; all times grow with its power."""
    plain = make_timing(folder)
    points = tuple(
        make_point(
            plain.grouping,
            (length / 64) ** power,
            length,
            feeds=[replace(feed, shape=(1, length)) for feed in FEEDS[:2]],
        )
        for length in lengths
    )
    return replace(plain, points=points, axis="sequence")
