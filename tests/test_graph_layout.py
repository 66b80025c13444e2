"""Layout of boxes and arrows in a picture: no overlaps in any graph."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.formats.graph.graphviz import lay_out_by_graphviz
from analyzer.formats.graph.layers import Arrow, make_rows
from analyzer.formats.graph.layout import Layout, Point, Size, lay_out

Drawing = tuple[list[Size], list[Arrow]]


@st.composite
def drawings(draw: st.DrawFn) -> Drawing:
    """Draw a graph without self-loops: with cycles, parallel arrows and isolated boxes."""
    count = draw(st.integers(1, 9))
    sizes = draw(st.lists(st.tuples(st.floats(20, 300), st.floats(20, 90)), min_size=count, max_size=count))
    box = st.integers(0, count - 1)
    arrows = draw(st.lists(st.builds(Arrow, box, box, st.booleans()), max_size=14))
    return sizes, [arrow for arrow in arrows if arrow.source != arrow.target]


def curve(route: tuple[Point, ...]) -> Iterator[Point]:
    """Yield points along the Bezier curves of an arrow."""
    for place in range(0, len(route) - 1, 3):
        a, b, c, d = route[place : place + 4]
        for step in range(9):
            t = step / 8
            weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
            yield tuple(
                sum(w * p[axis] for w, p in zip(weights, (a, b, c, d), strict=True)) for axis in (0, 1)
            )


def is_inside(point: Point, center: Point, size: Size) -> bool:
    return all(abs(point[axis] - center[axis]) < size[axis] / 2 - 0.01 for axis in (0, 1))


@given(drawings())
def test_boxes_are_apart_and_within_the_drawing(drawing: Drawing) -> None:
    sizes, arrows = drawing

    layout = lay_out(sizes, arrows)

    placed = list(zip(layout.centers, sizes, strict=True))
    for (a, first), (b, second) in itertools.combinations(placed, 2):
        assert any(abs(a[axis] - b[axis]) >= (first[axis] + second[axis]) / 2 - 0.01 for axis in (0, 1))
    for center, size in placed:
        for axis in (0, 1):
            assert size[axis] / 2 - 0.01 <= center[axis] <= layout.size[axis] - size[axis] / 2 + 0.01


@given(drawings())
def test_arrow_begins_and_ends_at_its_boxes_and_passes_through_none(drawing: Drawing) -> None:
    sizes, arrows = drawing

    layout = lay_out(sizes, arrows)

    for arrow, route in zip(arrows, layout.routes, strict=True):
        for end, box in ((route[0], arrow.source), (route[-1], arrow.target)):
            assert abs(end[0] - layout.centers[box][0]) <= sizes[box][0] / 2
            assert abs(end[1] - layout.centers[box][1]) == pytest.approx(sizes[box][1] / 2)
        for point in curve(route):
            for box, (center, size) in enumerate(zip(layout.centers, sizes, strict=True)):
                assert box in arrow[:2] or not is_inside(point, center, size)


def test_an_arrow_from_a_low_box_goes_past_the_high_one_beside_it() -> None:
    sizes = [(20.0, 20.0)] * 8 + [(155.0, 90.0)]
    pairs = [(2, 8), (1, 6), (4, 2), (2, 5), (2, 8)]
    arrows = [*(Arrow(*pair) for pair in pairs), Arrow(6, 7, True)]

    layout = lay_out(sizes, arrows)

    center, size = layout.centers[8], sizes[8]
    assert not any(is_inside(point, center, size) for point in curve(layout.routes[3]))


@given(drawings())
def test_two_arrows_leave_or_reach_a_box_at_two_places(drawing: Drawing) -> None:
    sizes, arrows = drawing

    layout = lay_out(sizes, arrows)

    ends = [(route[0], arrow.source) for arrow, route in zip(arrows, layout.routes, strict=True)]
    ends += [(route[-1], arrow.target) for arrow, route in zip(arrows, layout.routes, strict=True)]
    assert len({(round(x, 3), round(y, 3), box) for (x, y), box in ends}) == len(ends)


@given(drawings())
def test_the_same_graph_is_laid_out_the_same(drawing: Drawing) -> None:
    assert lay_out(*drawing) == lay_out(*drawing)


def rows_of(count: int, *arrows: Arrow) -> list[list[int]]:
    return [[slot for slot in row if slot < count] for row in make_rows(count, arrows).rows]


def test_box_is_below_all_that_lead_to_it() -> None:
    assert rows_of(4, Arrow(0, 1), Arrow(1, 2), Arrow(0, 2), Arrow(2, 3)) == [[0], [1], [2], [3]]


def test_box_that_only_leads_stands_right_above_what_it_leads_to() -> None:
    assert rows_of(4, Arrow(0, 1), Arrow(1, 2), Arrow(3, 2)) == [[0], [1, 3], [2]]


def test_soft_arrow_does_not_push_its_target_down() -> None:
    assert rows_of(3, Arrow(0, 1), Arrow(1, 2), Arrow(2, 0, is_soft=True)) == [[0], [1], [2]]
    assert make_rows(3, [Arrow(0, 1), Arrow(1, 2), Arrow(2, 0, is_soft=True)]).turned == (False, False, True)


def test_circle_is_cut_where_it_comes_back_to_the_first() -> None:
    assert make_rows(3, [Arrow(0, 1), Arrow(1, 2), Arrow(2, 0)]).turned == (False, False, True)


def test_crossings_are_taken_out() -> None:
    layout = lay_out([(50, 20)] * 4, [Arrow(0, 3), Arrow(1, 2)])

    (a, b, c, d) = layout.centers
    assert (a[0] < b[0]) == (d[0] < c[0])


def test_chain_is_straight() -> None:
    layout = lay_out([(80, 20), (200, 20), (120, 20)], [Arrow(0, 1), Arrow(1, 2)])

    assert len({round(x, 3) for x, _ in layout.centers}) == 1
    assert len({round(x, 3) for route in layout.routes for x, _ in route}) == 1


def test_an_empty_graph_is_laid_out_too() -> None:
    assert lay_out([], []) == Layout((0, 0), (), ())


def test_long_chain_does_not_exhaust_the_stack() -> None:
    count = 5_000

    assert len(make_rows(count, [Arrow(i, i + 1) for i in range(count - 1)]).rows) == count


# Graphviz

PLAIN = """graph 1 4 3
node 0 2 2.5 1 1 "" solid box black lightgrey
node 1 2 0.5 1 1 "" solid box black lightgrey
edge 0 1 4 2 2 2 1.8 2 1.2 2 1 solid black
stop
"""
BOXES: list[Size] = [(72, 72), (72, 72)]


@pytest.fixture
def dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a `dot` on the PATH that records its input and answers `PLAIN`."""
    program = tmp_path / "dot"
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"open({str(tmp_path / 'told')!r}, 'w').write(' '.join(sys.argv[1:]) + sys.stdin.read())\n"
        f"print({PLAIN!r})\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    return program


@pytest.mark.child
def test_graphviz_gets_sizes_and_arrows_and_returns_where_they_go(dot: Path) -> None:
    layout = lay_out_by_graphviz(BOXES, [Arrow(0, 1)])

    assert layout == Layout(
        (288, 216),
        ((144, 36), (144, 180)),
        (((144, 72), (144, pytest.approx(86.4)), (144, pytest.approx(129.6)), (144, 144)),),
    )
    received = (dot.parent / "told").read_text()
    assert received.startswith("-Tplain")
    assert "0 [width=1.0000, height=1.0000];" in received
    assert "0 -> 1 [constraint=true];" in received


@pytest.mark.child
@pytest.mark.parametrize(
    "answer", ["exit 1", "echo nonsense", "echo 'graph 1 x y'", "printf '\\377'", "true"]
)
def test_graphviz_that_fails_or_says_something_else_is_no_answer(answer: str, dot: Path) -> None:
    dot.write_text(f"#!/bin/sh\n{answer}\n")

    assert lay_out_by_graphviz(BOXES, [Arrow(0, 1)]) is None


def test_without_graphviz_there_is_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert lay_out_by_graphviz(BOXES, [Arrow(0, 1)]) is None
