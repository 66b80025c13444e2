"""Numbers and names as printed for readers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer import text
from analyzer.text import (
    format_bytes,
    format_count,
    format_doing,
    format_error,
    format_ratio,
    format_share,
    format_signed,
    printable,
    short_count,
)

COUNTS = st.integers(0, 10**17) | st.sampled_from([10**n + d for n in range(3, 17) for d in (-6, -5, -1, 0)])
SIZES = st.integers(0, 2**58) | st.sampled_from([2**n + d for n in range(10, 58) for d in (-6, -5, -1, 0)])
steady = settings(derandomize=True, deadline=None, database=None)


@steady
@given(COUNTS)
def test_no_count_reads_a_thousand_of_its_unit(number):
    text = short_count(number)

    assert not re.match(r"-?1,?000(\.00)? \w", text)
    assert re.fullmatch(r"\d{1,3}|\d{1,3}\.\d\d [kMGTP]", text)


@steady
@given(SIZES)
def test_no_size_reads_1024_of_its_unit(number):
    text = format_bytes(number)

    assert not text.startswith(("1,024.00", "1024.00"))
    assert re.fullmatch(r"\d{1,4} B|1,0[012]\d\.\d\d [KMGTP]iB|\d{1,3}\.\d\d [KMGTP]iB", text)


@steady
@given(COUNTS)
def test_short_count_is_the_exact_count_rounded(number):
    value, _, unit = short_count(number).partition(" ")

    scale = 1000 ** " kMGTP".index(unit or " ")
    assert abs(float(value) * scale - number) <= 0.005 * scale + 1


@steady
@given(st.integers(-(10**17), 10**17))
def test_exact_numbers_come_back(number):
    assert int(format_count(number).replace(",", "")) == number
    assert int(format_signed(number).replace(",", "")) == number


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00 k"),
        (999_994, "999.99 k"),
        (999_995, "1.00 M"),
        (999_999_999, "1.00 G"),
        (70_553_706_496, "70.55 G"),
    ],
)
def test_short_count_moves_to_the_next_unit_before_it_reads_1000(number, text):
    assert short_count(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1024**2 - 1, "1.00 MiB"), (-2048, "-2.00 KiB")],
)
def test_bytes_are_iec(number, text):
    assert format_bytes(number) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (1000, "+1,000"), (-83_712, "-83,712")])
def test_signed_numbers_show_their_sign_and_zero_has_none(number, text):
    assert format_signed(number) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "-"),
        (0, 7, "0.0000 %"),
        (7, 7, "100.0000 %"),
        (1, 10**9, "<0.0001 %"),
        (10**9 - 1, 10**9, ">99.9999 %"),
        (1, 3, "33.3333 %"),
    ],
)
def test_only_nothing_and_all_read_0_and_100(part, whole, text):
    assert format_share(part, whole) == text


@steady
@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_share_of_a_part_is_never_printed_as_nothing_or_all(part, rest):
    assert format_share(part, part + rest) not in ("0.0000 %", "100.0000 %")


def test_ratio_and_error_have_a_dash_where_there_is_none():
    assert (format_ratio(None), format_error(None)) == ("-", "-")
    assert (format_ratio(0.5), format_error(0.0), format_error(1.23456e-7)) == ("50.0000 %", "0", "1.23e-07")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("encoder.layer.0.weight", "encoder.layer.0.weight"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x9b2J", r"\x9b2J"),
        ("w\u202egpj", r"w\u202egpj"),
        ("w\u2066x\u2069", r"w\u2066x\u2069"),
        ("w\u200b", r"w\u200b"),
        ("\ufeffw", r"\ufeffw"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("größe.層", "größe.層"),
        ("a b", "a b"),
    ],
)
def test_names_cannot_move_the_cursor_or_turn_the_text(name, shown):
    assert printable(name) == shown


@steady
@given(st.text())
def test_printed_names_hold_no_control_or_format_character(name):
    assert printable(name).isprintable()


def test_rows_of_what_is_not_shown_are_written_in_one_place():
    """Separate code in each report once printed `[1 others]`."""
    sources = {path: path.read_text(encoding="utf-8") for path in Path(text.__file__).parent.rglob("*.py")}

    assert len(sources) > 200
    assert [path.name for path, source in sources.items() if re.search(r"\} others\b", source)] == []


@pytest.mark.parametrize(
    ("number", "doing"),
    [(0, "0 nodes are"), (1, "1 node is"), (2, "2 nodes are"), (1_000, "1,000 nodes are")],
)
def test_what_is_done_agrees_with_how_many_do_it(number, doing):
    assert format_doing(number, "node", "are") == doing
