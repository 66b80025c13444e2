"""Meanings of a key of `--shape`."""

from __future__ import annotations

import pytest

from analyzer.errors import UsageError
from analyzer.model import ValueType
from analyzer.model.dtypes import DType
from analyzer.timing.inputs.roles import KnownInput, Purpose
from analyzer.timing.inputs.sizes import AxisNames


def names(*inputs: tuple[str, tuple[int | str | None, ...], str]) -> AxisNames:
    parts = [
        KnownInput(ValueType(name, "tensor", DType.INT64, dims), Purpose.TOKENS, tuple(roles.split()))
        for name, dims, roles in inputs
    ]
    symbols: dict[str, list[tuple[int, int]]] = {}
    by_role: dict[str, list[tuple[int, int]]] = {}
    for number, part in enumerate(parts):
        for position, (dim, role) in enumerate(zip(part.dims, part.roles, strict=True)):
            by_role.setdefault(role, []).append((number, position))
            if isinstance(dim, str):
                symbols.setdefault(dim, []).append((number, position))
    return AxisNames(parts, symbols, by_role)


BERT = names(("ids", ("s18", "s41"), "batch sequence"), ("ids.mask", ("s43", "s41"), "batch sequence"))


@pytest.mark.parametrize(
    ("key", "slots", "role"),
    [
        ("s41", [(0, 1), (1, 1)], None),
        ("batch", [], "batch"),
        ("ids.0", [(0, 0)], None),
        ("ids.s41", [(0, 1)], None),
        ("ids.sequence", [(0, 1)], None),
        ("ids.mask.batch", [(1, 0)], None),
        ("decoder_sequence", [], "sequence"),
    ],
)
def test_key_is_an_axis_of_the_file_a_role_or_an_axis_of_an_input(key, slots, role):
    assert BERT.find(key) == (slots, role)


def test_axis_that_is_called_as_a_role_is_both():
    assert names(("x", ("batch", 3), "batch other")).find("batch") == ([(0, 0)], "batch")


def test_of_inputs_whose_names_begin_alike_the_longest_that_has_the_axis_is_meant():
    found = names(("a", ("b.c", 1), "batch other"), ("a.b", (None, "d"), "batch other"))

    assert found.find("a.b.d") == ([(1, 1)], None)
    assert found.find("a.b.c") == ([(0, 0)], None)


@pytest.mark.parametrize("key", ["s1", "ids.2", "ids.s43", "mask.0", "past", "", "."])
def test_key_that_means_nothing_is_refused_with_a_list_of_what_there_is(key):
    with pytest.raises(UsageError, match=r"ids \(s18: batch, s41: sequence\); ids.mask \(s43: batch"):
        BERT.find(key)


def test_input_alone_is_refused_with_how_to_name_its_axes():
    with pytest.raises(UsageError, match=r"is an input; name one of its axes, as in ids.batch or ids.0"):
        BERT.find("ids")


def test_list_is_short_and_its_names_are_safe():
    many = names(*[("\x1b" + "x" * 10_000, ("\x1b" * 1000,), "batch")] * 500)

    with pytest.raises(UsageError) as caught:
        many.find("y")

    assert len(str(caught.value)) < 10_000
    assert "\x1b" not in str(caught.value)
    assert "488 more" in str(caught.value)
