"""Pictures of timings: complete, the same on each run, and safe for all names of groups."""

from __future__ import annotations

import builtins
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timings

from analyzer.account.ledger import Group
from analyzer.errors import MissingExtraError
from analyzer.formats.plot import render_plot
from analyzer.timing.record import TimedGroup, Timing

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: bytes) -> list[str]:
    """Return every text of an SVG, a line each."""
    pytest.importorskip("matplotlib", reason="needs the [report] extra")
    return ["".join(text.itertext()) for text in ET.fromstring(picture).iter(f"{SVG}text")]


def draw(timing: Timing, style: str = "svg") -> bytes:
    pytest.importorskip("matplotlib", reason="needs the [report] extra")
    return render_plot(timing, style)


def renamed(timing: Timing, names: Sequence[str]) -> Timing:
    """Return the timing with one group for each name, which has only a time."""
    groups = tuple(Group(name, (name,), tensors=1) for name in names)
    points = tuple(
        replace(point, parts=tuple(TimedGroup(g, 1.0 + i, 1) for i, g in enumerate(groups)))
        for point in timing.points
    )
    grouping = replace(timing.grouping, by="group", groups=groups)
    return replace(timing, grouping=grouping, points=points)


def test_a_sweep_shows_each_group_with_its_growth(tmp_path: Path) -> None:
    found = texts(draw(timings.make_sweep(tmp_path, power=2)))

    for line in ("layer.0-2", "head", "embeddings", "between layer.0-2", "plain run", "[overhead]"):
        assert f"{line}: quadratic" in found
    assert {"16", "32", "64", "128", "256", "sequence", "net/model.onnx"} <= set(found)


def test_a_sweep_of_two_lengths_is_drawn_without_growth(tmp_path: Path) -> None:
    found = texts(draw(timings.make_sweep(tmp_path, (16, 32))))

    assert {"head", "plain run"} <= set(found)


def test_one_measurement_shows_the_shares_of_each_group(tmp_path: Path) -> None:
    found = texts(draw(timings.make_timing(tmp_path)))

    assert {"time", "parameters", "bytes", "head", "[unattributed]", "[overhead]"} <= set(found)
    assert "63.75 %  6.375 ms" in found


def test_the_users_groups_are_drawn_with_what_they_leave_out(tmp_path: Path) -> None:
    found = texts(draw(timings.make_timing(tmp_path, is_own=True)))

    assert {"early", "late", "[ungrouped]"} <= set(found)


@pytest.mark.parametrize("style", ["svg", "png"])
def test_the_same_timing_makes_the_same_bytes(tmp_path: Path, style: str) -> None:
    for timing in (timings.make_sweep(tmp_path), timings.make_timing(tmp_path)):
        assert draw(timing, style) == draw(timing, style)


def test_a_png_is_one_and_an_svg_has_no_date(tmp_path: Path) -> None:
    sweep = timings.make_sweep(tmp_path)

    assert draw(sweep, "png").startswith(b"\x89PNG\r\n")
    assert b"date" not in draw(sweep, "svg").lower()


HOSTILE = (
    "$\\frac{1}{$",
    "<script>&",
    "a\x1b[2Jb\x00",
    "\u202egpj",
    "\u5c42.\ud800",
    "_hidden",
    "x" * 10**4,
)


def test_hostile_names_are_text(tmp_path: Path) -> None:
    for timing in (timings.make_timing(tmp_path), timings.make_sweep(tmp_path)):
        hostile = replace(renamed(timing, HOSTILE), path="$\x1b[2J<script>")

        picture = draw(hostile)

        found = texts(picture)
        assert b"<script" not in picture
        assert all(text.isprintable() and len(text) < 200 for text in found)
        assert any("$\\frac{1}{$" in text for text in found)
        assert draw(hostile, "png").startswith(b"\x89PNG")


def test_a_dollar_is_a_dollar_and_an_underscore_hides_nothing(tmp_path: Path) -> None:
    found = " ".join(texts(draw(renamed(timings.make_sweep(tmp_path), ["$x$", "_hidden"]))))

    assert "$x$: constant" in found
    assert "_hidden: constant" in found


@pytest.mark.parametrize("count", [1, 20, 21])
def test_at_most_twenty_lines_are_drawn_and_the_rest_is_their_sum(tmp_path: Path, count: int) -> None:
    names = [f"group-{number}" for number in range(count)]

    for timing in (timings.make_sweep(tmp_path), timings.make_timing(tmp_path)):
        found = texts(draw(renamed(timing, names)))

        shown = [text for text in found if text.startswith("group-")]
        assert len(shown) == (count if count <= 20 else 19)
        assert any(f"[{count - 19} others]" in text for text in found) == (count > 20)


def test_lengths_close_together_have_plain_axes_and_nothing_negative_is_lost(tmp_path: Path) -> None:
    sweep = timings.make_sweep(tmp_path, (10, 12, 14))
    points = tuple(replace(point, overhead_ms=-0.5) for point in sweep.points)

    found = texts(draw(replace(sweep, points=points)))

    assert "[overhead]" in found


def test_numbers_of_many_lengths_do_not_overlap(tmp_path: Path) -> None:
    found = texts(draw(timings.make_sweep(tmp_path, range(8, 513, 8))))

    numbers = [int(text) for text in found if text.isdecimal() and int(text) >= 8]
    assert 5 <= len(numbers) <= 16
    assert {8, 16} <= set(numbers)


def test_negative_overhead_is_left_out_of_logarithms(tmp_path: Path) -> None:
    sweep = timings.make_sweep(tmp_path)
    points = tuple(replace(point, overhead_ms=-0.5) for point in sweep.points)

    found = texts(draw(replace(sweep, points=points)))

    assert not any("[overhead]" in text for text in found)


def test_settings_of_the_user_are_neither_used_nor_changed(tmp_path: Path) -> None:
    mpl = pytest.importorskip("matplotlib", reason="needs the [report] extra")
    plain = draw(timings.make_sweep(tmp_path))

    with mpl.rc_context({"axes.facecolor": "red", "svg.fonttype": "path", "font.size": 30}):
        assert draw(timings.make_sweep(tmp_path)) == plain
        assert mpl.rcParams["axes.facecolor"] == "red"
    assert "matplotlib.pyplot" not in sys.modules


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}", name="matplotlib")
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)

    with pytest.raises(MissingExtraError, match=r'a plot needs matplotlib.*"onnxledger\[report\]"'):
        render_plot(timings.make_timing(tmp_path), "svg")
