"""Expressions for axes in a file."""

from __future__ import annotations

import pytest

from analyzer.timing.inputs.sizes import compute_size, fixed_size, parse_size

SIZES = {"past_sequence_length": 7, "s41": 3, "s52": 4, "cache": 2, "seq": 5}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("past_sequence_length + 1", 8),
        ("s41 + s52", 7),
        ("cache+seq", 7),
        ("2*s41 - 1", 5),
        ("(s41 + s52)//2", 3),
        ("s41/0", None),
        ("s41 + other", None),
        ("s41 ** s52 + 1", None),
        ("f(s41) + 1", None),
        ("1.5 + s41", None),
    ],
)
def test_arithmetic_of_whole_numbers_and_names_is_computed(text, size):
    parsed = parse_size(text)

    assert parsed is not None
    assert compute_size(parsed, SIZES.get) == size


@pytest.mark.parametrize(
    "text", ["s41", "", "a +", "batch size", "\0+1", "(" * 150 + "+", "+1" * 200, "-" * 199 + "1"]
)
def test_plain_names_and_what_is_no_arithmetic_or_too_long_are_no_expressions(text):
    parsed = parse_size(text)

    assert parsed is None or compute_size(parsed, SIZES.get) is None


@pytest.mark.parametrize(("dim", "size"), [(3, 3), (0, 0), (-1, None), (None, None), ("s", None), ("11", 11)])
def test_sizes_are_numbers_and_names_that_are_numbers(dim, size):
    assert fixed_size(dim, is_nameless=False) == size


def test_where_all_names_are_numbers_they_are_no_sizes():
    assert fixed_size("11", is_nameless=True) is None
    assert fixed_size("9" * 5000, is_nameless=False) is None
