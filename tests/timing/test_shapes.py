"""Texts of `--shape`: axes, sizes, ranges, and refusals."""

from __future__ import annotations

import pytest

from analyzer.errors import UsageError
from analyzer.timing.inputs.sizes import MOST_POINTS, Shapes, Sweep, parse_shapes


def test_a_text_has_one_size_or_several_and_texts_add_up():
    found = parse_shapes(["batch=8,sequence=128", "s18=4"])

    assert found.sizes == (("batch", 8), ("sequence", 128), ("s18", 4))
    assert found.sweep is None


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("a=1.batch=8", (("a=1.batch", 8),)),
        ("model.input.0=8", (("model.input.0", 8),)),
        ("in:0.batch=8,b=1", (("in:0.batch", 8), ("b", 1))),
        ("a,b.batch=8", (("a,b.batch", 8),)),
        (" batch = 8 , s = 2", (("batch", 8), ("s", 2))),
        ("past=0", (("past", 0),)),
    ],
)
def test_names_may_have_dots_commas_colons_and_equal_signs(text, sizes):
    assert parse_shapes([text]).sizes == sizes


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("s=16:128:x2", (16, 32, 64, 128)),
        ("s=16:100:x2", (16, 32, 64)),
        ("s=64:192:+64", (64, 128, 192)),
        ("s=0:2:+1", (0, 1, 2)),
        ("s=7:7:x3", (7,)),
    ],
)
def test_range_goes_by_steps_up_to_and_with_a_last_that_it_hits(text, values):
    assert parse_shapes([text]).sweep == Sweep("s", values)


def test_each_point_has_its_own_size_of_the_swept_axis_and_the_others_as_they_are():
    shapes = parse_shapes(["batch=8,s=1:2:+1"])

    assert [shapes.at(value) for value in shapes.points()] == [
        (("batch", 8), ("s", 1)),
        (("batch", 8), ("s", 2)),
    ]


def test_without_a_sweep_there_is_one_point():
    assert Shapes().points() == (None,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "=",
        "batch",
        "batch=",
        "=8",
        "batch=x",
        "batch=-1",
        "batch=1.5",
        "batch=9999999999",
        "b=1,c",
        "b=1_0",
    ],
)
def test_text_that_names_no_axis_or_no_size_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="as in batch=8,sequence=128"):
        parse_shapes([text])


@pytest.mark.parametrize("text", ["1:2", "1:2:3", "1:2:*2", ":2:x2", "1:2:x2:x2", "a:b:x2"])
def test_range_that_is_malformed_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="no range"):
        parse_shapes([f"s={text}"])


@pytest.mark.parametrize("text", ["1:9:x1", "1:9:x0", "1:9:+0", "0:9:x2", "9:1:+1"])
def test_range_that_goes_nowhere_is_refused(text):
    with pytest.raises(UsageError, match="has no steps"):
        parse_shapes([f"s={text}"])


def test_range_of_too_many_lengths_is_refused():
    assert parse_shapes([f"s=1:{MOST_POINTS}:+1"]).points()[-1] == MOST_POINTS
    with pytest.raises(UsageError, match=f"more than {MOST_POINTS}"):
        parse_shapes([f"s=1:{MOST_POINTS + 1}:+1"])


def test_axis_with_two_sizes_is_refused_and_with_the_same_twice_is_not():
    assert parse_shapes(["b=1,b=1"]).sizes == (("b", 1),)
    with pytest.raises(UsageError, match="both 1 and 2"):
        parse_shapes(["b=1", "b=2"])


def test_one_axis_is_swept_and_has_no_other_size():
    with pytest.raises(UsageError, match="s is swept already"):
        parse_shapes(["s=1:2:+1,t=1:2:+1"])
    with pytest.raises(UsageError, match="swept and to be 3"):
        parse_shapes(["s=1:2:+1,s=3"])


def test_names_that_steer_a_terminal_are_escaped():
    with pytest.raises(UsageError) as caught:
        parse_shapes(["\x1b[2J=x"])

    assert "\x1b" not in str(caught.value)
