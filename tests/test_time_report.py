"""Reports of `time` and of two timings: every column adds up to the measured run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timings

from analyzer.documents.saved.timing import load_timing
from analyzer.formats import render_report
from analyzer.formats.json import render_json, to_document
from analyzer.formats.options import RenderOptions
from analyzer.formats.text import render_text
from analyzer.timing.generation import Step, StepTiming
from analyzer.timing.record import KernelTime, Timing
from analyzer.timing.request import Fill, MeasuringOrder, Schedule
from analyzer.timing.side_by_side import compare_timings

Golden = Callable[[str, str], None]


def summed(row: dict[str, Any]) -> float:
    """Return the sum that must equal the mean profiled run, for a document or one of its points."""
    groups = math.fsum(group["ms"] for group in row["groups"])
    return groups - row["overlap_ms"] + row["ungrouped_ms"] + row["unattributed_ms"] + row["overhead_ms"]


def with_point(timing: Timing, **changes: Any) -> Timing:
    return replace(timing, points=(replace(timing.points[0], **changes),))


# JSON


@pytest.mark.parametrize("is_own", [False, True])
def test_the_times_in_the_json_sum_to_the_profiled_run(tmp_path: Path, is_own: bool) -> None:
    document = json.loads(render_json(timings.make_timing(tmp_path, is_own=is_own)))

    mean = document["profiled_latency_ms"]["mean"]
    assert summed(document) == pytest.approx(mean, rel=1e-12)
    shares = math.fsum(group["share"] for group in document["groups"]) * mean
    assert shares == pytest.approx(math.fsum(group["ms"] for group in document["groups"]))


def test_the_times_of_every_point_of_a_sweep_do_too(tmp_path: Path) -> None:
    document = json.loads(render_json(timings.make_sweep(tmp_path)))

    assert [point["value"] for point in document["points"]] == [16, 32, 64, 128, 256]
    for point in document["points"]:
        assert summed(point) == pytest.approx(point["profiled_latency_ms"]["mean"], rel=1e-12)


def test_scaled_times_sum_to_the_plain_run(tmp_path: Path) -> None:
    document = to_document(timings.make_timing(tmp_path))

    rest = document["unattributed_ms"] + document["overhead_ms"]
    scaled = math.fsum(group["scaled_ms"] for group in document["groups"]) + rest * document["scale"]
    assert scaled == pytest.approx(document["latency_ms"]["mean"])


def test_shares_of_parameters_and_bytes_sum_to_one(tmp_path: Path) -> None:
    document = to_document(timings.make_timing(tmp_path))

    for key in ("parameter_share", "byte_share"):
        assert math.fsum(group[key] for group in document["groups"]) == pytest.approx(1)


# text


def test_the_text_of_a_timing(tmp_path: Path, golden: Golden) -> None:
    golden("time", render_text(timings.make_timing(tmp_path), RenderOptions(verbose=True)))


def test_the_text_of_a_timing_in_the_users_groups(tmp_path: Path, golden: Golden) -> None:
    golden("time-own", render_text(timings.make_timing(tmp_path, is_own=True)))


def test_the_text_of_a_sweep(tmp_path: Path, golden: Golden) -> None:
    lengths = (16, 32, 64, 128, 256, 512, 1024)

    golden("time-sweep", render_text(timings.make_sweep(tmp_path, lengths, power=2)))


def test_the_text_of_two_timings(tmp_path: Path, golden: Golden) -> None:
    a, b = timings.make_timing(tmp_path), timings.make_timing(tmp_path, factor=1.05)
    b = replace(b, environment=replace(b.environment, threads=1), path="other/model.onnx")

    golden("compare-time", render_text(compare_timings(a, b)))


@pytest.mark.parametrize("rows", [0, 1, 2, 20])
@pytest.mark.parametrize("is_own", [False, True])
def test_the_printed_column_sums_to_the_printed_total(tmp_path: Path, rows: int, is_own: bool) -> None:
    text = render_text(timings.make_timing(tmp_path, is_own=is_own), RenderOptions(rows=rows))

    table = text.partition(" ms ")[2].partition("\nms sum")[0]
    printed = re.findall(r"^(\S.*?) {2,}(-?[\d,]+\.\d{3}) ", table, re.MULTILINE)
    *lines, (name, total) = [(name, float(ms.replace(",", ""))) for name, ms in printed]
    assert name == "total"
    assert math.fsum(ms for _, ms in lines) == pytest.approx(total, abs=0.0005 * len(lines))
    assert "[unattributed]" in dict(lines)
    assert "[overhead]" in dict(lines)


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, width: int) -> None:
    lengths = tuple(2**power for power in range(4, 15))
    reports = (
        timings.make_timing(tmp_path, factor=1000),
        timings.make_timing(tmp_path, is_own=True),
        timings.make_sweep(tmp_path, lengths, power=2),
        timings.make_generation(tmp_path, factor=1000),
        timings.make_generation(tmp_path, is_own=True),
        compare_timings(timings.make_timing(tmp_path), timings.make_timing(tmp_path, factor=1e4)),
    )
    for report in reports:
        text = render_text(report, RenderOptions(width=width, verbose=True))

        assert max(map(len, text.splitlines())) <= width


def test_names_from_the_file_cannot_reach_the_terminal(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)
    evil = "x\x1b[2J\n[bold]"
    kernel = KernelTime(evil, evil, evil, 1.0, (evil,), evil, 1)
    feeds = (replace(timings.FEEDS[0], name=evil),)
    environment = replace(timing.environment, device=evil, messages=(evil,))
    hostile = with_point(replace(timing, path=evil, environment=environment), kernels=(kernel,), feeds=feeds)
    sweep = replace(timings.make_sweep(tmp_path), axis=evil)
    loop = timings.make_generation(tmp_path)
    files = [StepTiming(evil, each.step, replace(each.timing, path=evil)) for each in loop.components]
    files.append(StepTiming(evil, Step.OTHER, hostile))
    loop = replace(loop, path=evil, components=tuple(files))

    for report in (hostile, sweep, loop, compare_timings(hostile, timing), compare_timings(sweep, sweep)):
        text = render_text(report, RenderOptions(verbose=True))

        assert "\x1b" not in text
        assert "[bold]" in text


def test_what_ran_elsewhere_and_copies_are_reported(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)
    cuda, cpu = "CUDAExecutionProvider", "CPUExecutionProvider"
    kernels = (
        KernelTime("a", "MatMul", cuda, 3.0, ("head",), "name:same", 1),
        KernelTime("b", "Gather", cpu, 1.5, ("head",), "name:same", 1),
        KernelTime("c", "MemcpyToHost", cuda, 0.5, (), "none", 0),
    )
    environment = replace(timing.environment, providers=(cuda, cpu))
    settings = replace(timing.settings, provider="cuda")
    moved = with_point(
        replace(timing, environment=environment, settings=settings), kernels=kernels, held_nbytes=2**20
    )

    text, document = render_text(moved), to_document(moved)

    assert "1 kernel ran on another provider than cuda, 1.500 ms: 1 Gather (cpu, 1.500" in text
    assert "1 kernel copied values between devices, 0.500 ms: 1 MemcpyToHost" in text
    assert "onnxruntime's arena 1.00 MiB" in text
    assert [(row["op_type"], row["ms"]) for row in document["fallback"]] == [("Gather", 1.5)]
    assert [(row["op_type"], row["kernels"]) for row in document["copies"]] == [("MemcpyToHost", 1)]


def test_why_the_runs_ended_is_reported(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)
    loose = with_point(timing, latency=timings.latency(8.0, settled=False))
    fixed = replace(timing, settings=replace(timing.settings, schedule=Schedule(runs=7)))

    assert "median ±0.40 % (target 1.00 %, reached)" in flat(timing)
    assert "median ±0.40 % (target 1.00 %, NOT reached)" in flat(loose)
    assert "WARN the median is less precise than requested: ±1.00 % was not reached within 10 s" in flat(
        loose
    )
    assert "±0.40 % of 7 runs, as asked for" in flat(fixed)
    assert "WARN" not in flat(fixed)


def test_a_median_of_too_few_runs_is_a_warning(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)
    noisy = replace(timings.latency(8.0), precision=6.1)
    fixed = replace(timing, settings=replace(timing.settings, schedule=Schedule(runs=7)))

    text = flat(with_point(fixed, latency=noisy))

    assert "median of 20 runs, uncertainty over 100 %" in text
    assert "WARN the median of 7 runs may be off by over 100 %: leave --runs out" in text
    assert "610" not in text


def test_the_uncertainty_of_one_run_is_not_known(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)
    once = replace(timings.latency(8.0, runs=1, settled=False), precision=None)
    fixed = replace(timing, settings=replace(timing.settings, schedule=Schedule(runs=1)))
    text = flat(with_point(fixed, latency=once, profiled=replace(once, mean=10.0)), verbose=True)

    assert "median of 1 run, uncertainty not known" in text
    assert "±0" not in text
    assert "may be off" not in text


def test_a_run_of_less_than_a_millisecond_has_more_decimals(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path, factor=0.002)
    text = flat(timing)

    assert "embeddings 0.00100" in text
    assert "ms sum to the mean profiled run, 0.02000" in text


def flat(timing: Timing, *, verbose: bool = False) -> str:
    """Return the text with each line break as a space."""
    return " ".join(render_text(timing, RenderOptions(verbose=verbose)).split())


def test_profiled_runs_never_aim_to_settle(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)
    loose = with_point(timing, profiled=timings.latency(10.0, settled=False))

    assert "reached within" not in flat(loose)
    assert "(target 1.00 %, reached)" in flat(loose)


@pytest.mark.parametrize("order", ["in turns", "one after the other"])
def test_how_the_two_measurements_were_made_is_reported(tmp_path: Path, order: MeasuringOrder) -> None:
    for timing in (timings.make_timing(tmp_path), timings.make_sweep(tmp_path)):
        ordered = replace(timing, environment=replace(timing.environment, order=order))

        assert f"plain and profiled runs {order}" in flat(ordered, verbose=True)
        assert to_document(ordered)["environment"]["order"] == order


def test_lengths_of_a_sweep_whose_times_mean_little_are_reported(tmp_path: Path) -> None:
    sweep = timings.make_sweep(tmp_path)
    ms = [point.profiled.mean for point in sweep.points]
    changed = {
        0: timings.latency(1.2 * ms[0]),
        2: timings.latency(1.5 * ms[2]),
        3: timings.latency(0.1 * ms[3]),
        4: timings.latency(0.8 * ms[4], settled=False),
    }
    points = tuple(
        replace(point, latency=changed.get(at, point.latency)) for at, point in enumerate(sweep.points)
    )
    text = flat(replace(sweep, points=points))

    assert "WARN at sequence = 16, 64: profiled runs were faster" in text
    assert "WARN at sequence = 128: profiled runs take over twice as long" in text
    assert "WARN at sequence = 256: the median is not precise: ±1.00 % was not reached within 10 s" in text
    assert "profiled runs were" not in flat(sweep)


def test_what_profiling_does_not_explain_is_warned_of(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)
    slow, fast = (
        " ".join(render_text(with_point(timing, latency=timings.latency(ms))).split()) for ms in (4.0, 12.0)
    )

    assert "take 6.00 ms more" in slow
    assert "WARN profiled runs take over twice as long: kernels are very short" in slow
    assert "WARN profiled runs were faster than plain ones" in fast
    assert "something else was running" not in render_text(timing)


def test_a_mean_that_a_few_runs_have_raised_is_warned_of(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)
    plain = timing.points[0].latency

    disturbed = flat(with_point(timing, latency=replace(plain, median=plain.mean / 4)))

    assert "WARN the mean run took 4.0 times as long as the median: something else was running" in disturbed
    assert "times as long as the median" not in flat(timing)


@pytest.mark.parametrize("fill", Fill)
def test_every_way_to_fill_an_input_has_words(tmp_path: Path, fill: Fill) -> None:
    feeds = (replace(timings.FEEDS[0], fill=fill, low=2, high=30_521),)

    text = flat(with_point(timings.make_timing(tmp_path), feeds=feeds, axes=()), verbose=True)

    words = {
        Fill.INTEGERS: "random 2 to 30,521",
        Fill.UNIFORM: "random 2 to 30521",
        Fill.CONSTANT: "all 2",
        Fill.POSITIONS: "2, 3, ...",
        Fill.TEXT: '"a"',
        Fill.FILE: "the .npz file",
    }
    assert words[fill] in text


def test_a_model_without_inputs_and_parameters_has_a_report(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)
    empty = replace(timing.grouping, groups=())
    bare = with_point(replace(timing, grouping=empty, parameters=0), feeds=(), axes=(), parts=(), kernels=())

    text, document = render_text(bare, RenderOptions(verbose=True)), to_document(bare)

    assert "the model has no inputs" in text
    assert document["groups"] == []


def test_few_lengths_have_no_growth_and_a_note_says_so(tmp_path: Path) -> None:
    text = render_text(timings.make_sweep(tmp_path, (16, 32)))

    assert "growth: unclear" in text.splitlines()[1]
    assert "a fit needs at least 3 lengths" in text


@pytest.mark.parametrize("lengths", [(16, 18, 20), (16, 32, 64)])
def test_a_growth_that_no_curve_fits_is_unclear(tmp_path: Path, lengths: tuple[int, ...]) -> None:
    sweep = timings.make_sweep(tmp_path, lengths)
    odd = replace(sweep.points[1], latency=timings.latency(3 * sweep.points[1].latency.mean))
    uneven = replace(sweep, points=(sweep.points[0], odd, sweep.points[2]))

    assert "growth: unclear" in render_text(uneven).splitlines()[1]
    assert ("growth: linear" in render_text(sweep).splitlines()[1]) is (lengths == (16, 32, 64))


def test_every_format_warns_and_says_how_sure_the_median_is(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)
    loose = with_point(timing, latency=timings.latency(4.0, settled=False))
    loose = replace(loose, environment=replace(loose.environment, messages=("nodes were moved",)))

    for style in ("text", "markdown", "html"):
        page = render_report(loose, style)
        assert isinstance(page, str)
        words = " ".join(re.sub(r"<[^>]*>|\\", "", page).split())
        for fact in (
            "3.96 ms median at batch 1, sequence 4 on CPU",
            "±0.40 % (target 1.00 %, NOT reached)",
            "±1.00 % was not reached within 10 s or 1,000 runs",
            "profiled runs take over twice as long",
            "nodes were moved",
            "A Processor of 3 GHz",
            "memory at most",
        ):
            assert fact in words


def test_every_format_says_whether_the_new_timing_is_slower_and_what_was_measured_otherwise(
    tmp_path: Path,
) -> None:
    old, new = timings.make_timing(tmp_path), timings.make_timing(tmp_path, factor=1.5)
    new = replace(new, environment=replace(new.environment, threads=1))

    for style in ("text", "markdown", "html"):
        there, back = (render_report(compare_timings(*pair), style) for pair in ((old, new), (new, old)))
        assert "50.0 % slower: 8.00 -&gt; 12.0 ms a run" in str(there).replace("-\\>", "-&gt;").replace(
            "->", "-&gt;"
        )
        assert "33.3 % faster" in str(back)
        assert "measured differently: threads 2 " in str(there)


def test_without_a_clear_difference_the_comparison_says_so(tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path)

    assert "as fast: 8.00 ms a run; no group differs clearly" in render_text(compare_timings(timing, timing))


# device clock


def by_device(timing: Timing, *, plain: float = 8.0) -> Timing:
    """Return the timing with kernels that a GPU timed, which profiling did not slow down."""
    point = timing.points[0]
    kernels = (
        KernelTime("embed", "Gather", "CUDAExecutionProvider", 7.0, ("embeddings",), "name:same", 1),
        KernelTime("shape", "Shape", "CPUExecutionProvider", 0.5, ("embeddings",), "name:same", 1),
    )
    overhead = 20.0 - (point.profiled.mean - point.overhead_ms)
    point = replace(
        point,
        latency=timings.latency(plain),
        profiled=timings.latency(20.0),
        overhead_ms=overhead,
        kernels=kernels,
        clock="device",
    )
    environment = replace(timing.environment, kernel_clock="device", device="A GPU")
    return replace(timing, points=(point,), environment=environment)


@pytest.mark.parametrize(("plain", "scale"), [(9.0, 1.0), (4.0, 4.0 / 8.225)])
def test_times_by_a_device_s_clock_stay_as_they_are_where_they_fit_into_a_plain_run(
    tmp_path: Path, plain: float, scale: float
) -> None:
    document = to_document(by_device(timings.make_timing(tmp_path), plain=plain))

    assert document["scale"] == pytest.approx(scale)
    assert document["device_ms"] == 7.0
    assert summed(document) == pytest.approx(20.0)
    assert [group["scaled_ms"] for group in document["groups"]] == pytest.approx(
        [group["ms"] * scale for group in document["groups"]]
    )


def test_shares_by_a_device_s_clock_are_those_of_a_plain_run(tmp_path: Path) -> None:
    timing = by_device(timings.make_timing(tmp_path), plain=10.0)

    text = render_text(timing)

    assert "the GPU is busy for 7.00 ms of a run, 70.0 %, by its own clock" in text
    assert "over twice as long" not in text
    table = text[text.index("scope, depth") : text.index("\ntotal")].splitlines()[1:]
    shares = {line.split("  ")[0]: float(line.partition(" %")[0].split()[-1]) for line in table}
    assert math.fsum(shares.values()) == pytest.approx(100, abs=0.6)
    assert shares["[overhead]"] == pytest.approx(100 - 82.25, abs=0.1)


def test_a_report_by_a_device_s_clock_is_read_back_as_it_was(tmp_path: Path) -> None:
    timing = by_device(timings.make_timing(tmp_path))
    path = tmp_path / "report.json"
    path.write_text(render_json(timing), encoding="utf-8")

    assert to_document(load_timing(path)) == to_document(timing)
