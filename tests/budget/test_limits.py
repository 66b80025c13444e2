"""Grammar of limits: exact parsing, refusals and their messages."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.budget.amounts import (
    MOST,
    format_growths,
    parse_amount,
    parse_limit,
    parse_names,
    parse_percent,
)
from analyzer.budget.record import Among, AtLeast, AtMost, Growth, Limit, Over, Unit

NUMBERS = st.integers(0, MOST)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("110M", 110_000_000),
        ("1.5G", 1_500_000_000),
        ("110_000_000", 110_000_000),
        ("110,000,000", 110_000_000),
        ("2 k", 2_000),
        ("0.001k", 1),
        ("0", 0),
        (str(MOST), MOST),
    ],
)
def test_counts_take_powers_of_a_thousand(text: str, value: int) -> None:
    assert parse_limit(text, Unit.PARAMETERS) == AtMost(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("450 MiB", 450 << 20),
        ("450MB", 450_000_000),
        ("450M", 450_000_000),
        ("1kB", 1_000),
        ("1KiB", 1_024),
        ("0.5 GiB", 1 << 29),
        ("1TiB", 1 << 40),
        ("12 B", 12),
    ],
)
def test_bytes_take_units_of_both_kinds(text: str, value: int) -> None:
    assert parse_limit(text, Unit.BYTES) == AtMost(value)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("at most 5", AtMost(5)),
        ("AT  LEAST 5", AtLeast(5)),
        ("<= 5", AtMost(5)),
        (">=5", AtLeast(5)),
        ("  5  ", AtMost(5)),
        (5, AtMost(5)),
    ],
)
def test_a_limit_says_on_which_side_it_is(text: object, limit: Limit) -> None:
    assert parse_limit(text, Unit.NODES) == limit


def test_a_number_alone_is_at_least_it_for_a_metric_of_that_kind() -> None:
    assert parse_limit("17", Unit.VERSION, least=True) == AtLeast(17)
    assert parse_limit(17, Unit.VERSION, least=True) == AtLeast(17)
    assert parse_limit("at most 17", Unit.VERSION, least=True) == AtMost(17)


@pytest.mark.parametrize(
    ("text", "growths"),
    [
        ("+2 %", [Growth(fraction=Fraction(2, 100))]),
        ("+0.1%", [Growth(fraction=Fraction(1, 1000))]),
        ("-1 %", [Growth(fraction=Fraction(-1, 100))]),
        ("\N{MINUS SIGN}1 %", [Growth(fraction=Fraction(-1, 100))]),
        ("+0", [Growth(amount=0)]),
        ("+5 MB", [Growth(amount=5_000_000)]),
        ("-5 MB", [Growth(amount=-5_000_000)]),
        ("at most +2 % and +5 MB", [Growth(fraction=Fraction(2, 100)), Growth(amount=5_000_000)]),
    ],
)
def test_a_signed_number_is_a_growth(text: str, growths: list[Growth]) -> None:
    assert parse_limit(text, Unit.BYTES) == Over(tuple(growths))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("+0 over main.json", "main.json"),
        ("+0 OVER my own report.json", "my own report.json"),
        ("+0 over 'my report.json'", "my report.json"),
        ('+0 over "it\'s.json"', "it's.json"),
        ("+0 over it's.json", "it's.json"),
        ("+0 over over and over.json", "over and over.json"),
        ("+0 over https://host/main.json?a=b", "https://host/main.json?a=b"),
    ],
)
def test_the_rest_of_the_text_is_the_name_of_the_baseline(text: str, name: str) -> None:
    limit = parse_limit(text, Unit.BYTES)

    assert isinstance(limit, Over)
    assert limit.baseline == name


REFUSED = [
    ("", Unit.BYTES, "has no number"),
    ("at most", Unit.BYTES, "has no number"),
    ("5 %", Unit.BYTES, "write '+5 %'"),
    ("at most 5 %", Unit.BYTES, "write '+5 %'"),
    ("450 Mi", Unit.BYTES, "did you mean MiB?"),
    ("450 Mb", Unit.BYTES, "would count bits; write MB"),
    ("5 KB", Unit.BYTES, "kB for 1,000 bytes or KiB for 1,024"),
    ("110MB", Unit.PARAMETERS, "MB counts bytes, and these are parameters"),
    ("110m", Unit.PARAMETERS, "did you mean M?"),
    ("110 millions", Unit.PARAMETERS, "is not a unit"),
    ("17M", Unit.VERSION, "a version has no unit"),
    ("17.5", Unit.VERSION, "whole"),
    ("1.5", Unit.NODES, "write a whole number"),
    ("1,5G", Unit.BYTES, "write a decimal point"),
    ("1e9", Unit.BYTES, "an exponent"),
    ("1e999999999", Unit.BYTES, "an exponent"),
    ("+1e9 %", Unit.BYTES, "an exponent"),
    ("NaN", Unit.BYTES, "not a number"),
    ("inf", Unit.BYTES, "not a number"),
    ("-inf", Unit.BYTES, "not a number"),
    ("+NaN %", Unit.BYTES, "not a percentage"),
    ("0x10", Unit.BYTES, "not a number"),
    ("١٢", Unit.BYTES, "not a number"),
    ("9" * 50, Unit.BYTES, "more than any file holds"),
    ("9" * 500, Unit.BYTES, "too long"),
    ("x" * 100_000, Unit.BYTES, "100,000 characters"),
    ("9223372036854775808", Unit.BYTES, "more than any file holds"),
    ("+2 % and 5 MB", Unit.BYTES, "write '+5 MB'"),
    ("+2 % and", Unit.BYTES, "not a number"),
    ("+", Unit.BYTES, "has no number"),
    ("+-2 %", Unit.BYTES, "a limit cannot be negative"),
    ("-101 %", Unit.BYTES, "write -100 % or more"),
    ("at least +2 %", Unit.BYTES, "write 'at most +2 %'"),
    ("5M over main.json", Unit.BYTES, "write '+5M over ...'"),
    ("over main.json", Unit.BYTES, "has no number"),
    ("+2 % over", Unit.BYTES, "no file after 'over'"),
    ("+2 % over ''", Unit.BYTES, "no file after 'over'"),
    ("+2 % over a\0b", Unit.BYTES, "no file has such a name"),
    ("+1", Unit.VERSION, "a version does not grow"),
    (-5, Unit.BYTES, "a limit cannot be negative"),
    (10**4000, Unit.BYTES, "more than any file holds"),
    (1.5, Unit.BYTES, "write a number, or a string"),
    (True, Unit.BYTES, "write a number, or a string"),
    (["FLOAT"], Unit.BYTES, "write a number, or a string"),
    (5, Unit.DTYPES, "as an array of names"),
    (["FLOAT32"], Unit.DTYPES, "did you mean FLOAT?"),
    (["FLAOT16"], Unit.DTYPES, "did you mean FLOAT16?"),
    ([5], Unit.OPERATORS, "as strings"),
    ([""], Unit.OPERATORS, "an empty name"),
    (["com.microsoft:"], Unit.OPERATORS, "names no operator"),
]


@pytest.mark.parametrize(("value", "unit", "advice"), REFUSED, ids=range(len(REFUSED)))
def test_an_empty_or_ambiguous_limit_is_refused_with_what_to_write(
    value: object, unit: Unit, advice: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(advice)) as caught:
        parse_limit(value, unit)

    assert len(str(caught.value)) < 400


def test_names_are_read_as_models_have_them() -> None:
    assert parse_limit("float, int8", Unit.DTYPES) == Among(frozenset({"FLOAT", "INT8"}))
    assert parse_limit(["", "com.microsoft"], Unit.DOMAINS) == Among(frozenset({"ai.onnx", "com.microsoft"}))
    assert parse_limit(["ai.onnx:Add", ":Mul", "x:Add"], Unit.OPERATORS) == Among(
        frozenset({"Add", "Mul", "x:Add"})
    )
    assert parse_limit([], Unit.OPERATORS) == Among(frozenset())


def test_a_decimal_is_exact() -> None:
    assert parse_amount("0.3k", Unit.NODES) == 300
    assert parse_amount("4.35G", Unit.BYTES) == 4_350_000_000
    assert parse_percent("0.3 %") * 3 == Fraction(9, 1000)


# properties


@st.composite
def growths(draw: st.DrawFn) -> Growth:
    if draw(st.booleans()):
        return Growth(amount=draw(st.integers(-MOST, MOST)))
    places = draw(st.integers(0, 12))
    return Growth(fraction=Fraction(draw(st.integers(-(10**places), 10 ** (places + 2))), 10**places))


NAMES = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=60).filter(
    lambda name: bool(name.strip()) and not (set(name) >= {'"', "'"})
)
LIMITS = st.one_of(
    st.builds(AtMost, NUMBERS),
    st.builds(AtLeast, NUMBERS),
    st.builds(Over, st.lists(growths(), min_size=1, max_size=3).map(tuple), st.none() | NAMES),
)


def format_limit(limit: Limit) -> str:
    """Return a limit in the text that a user would write."""
    match limit:
        case AtMost(value):
            return f"at most {value:,}"
        case AtLeast(value):
            return f"at least {value:,}"
        case Among(names):
            return ", ".join(sorted(names))
        case Over(growths, baseline):
            text = f"at most {format_growths(growths)}"
            return text if baseline is None else f"{text} over {quote(baseline)}"


def quote(name: str) -> str:
    is_plain = name == name.strip() and not (len(name) > 1 and name[0] == name[-1] and name[0] in "'\"")
    return name if is_plain else f'"{name}"'


@given(limit=LIMITS, unit=st.sampled_from([Unit.BYTES, Unit.PARAMETERS]), least=st.booleans())
def test_a_limit_that_is_written_is_the_same_when_it_is_read(
    limit: AtMost | AtLeast | Over, unit: Unit, least: bool
) -> None:
    assert parse_limit(format_limit(limit), unit, least=least) == limit


@given(st.sets(st.sampled_from(["FLOAT", "INT8", "BFLOAT16", "UINT4"]), min_size=1))
def test_names_that_are_written_are_the_same_when_they_are_read(names: set[str]) -> None:
    limit = parse_names(names, Unit.DTYPES)

    assert parse_limit(format_limit(limit), Unit.DTYPES) == limit


@given(st.text(max_size=200), st.sampled_from(list(Unit)), st.booleans())
def test_any_text_is_a_limit_or_is_refused_in_few_words(text: str, unit: Unit, least: bool) -> None:
    message = "a limit"
    try:
        parse_limit(text, unit, least=least)
    except ValueError as error:
        message = str(error)

    assert 0 < len(message) < 700


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("512m", 512_000_000),
        ("0.5 GB", 500_000_000),
        ("512MiB", 1 << 29),
        ("450 mb", 450_000_000),
        ("8gib", 1 << 33),
    ],
)
def test_bytes_are_read_as_people_type_them(text: str, nbytes: int) -> None:
    assert parse_limit(text, Unit.BYTES) == AtMost(nbytes)


@given(NUMBERS, st.sampled_from(["", "k", "M", "G", "T", "kB", "KiB", "MiB", "GiB", "TiB"]))
def test_a_unit_multiplies(number: int, unit: str) -> None:
    one = parse_amount(f"1{unit}", Unit.BYTES)

    if number * one > MOST:
        with pytest.raises(ValueError, match="more than any file"):
            parse_amount(f"{number}{unit}", Unit.BYTES)
    else:
        assert parse_amount(f"{number:,} {unit}", Unit.BYTES) == number * one
