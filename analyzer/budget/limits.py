"""The text of a limit, `110M` or `at most +2 % over main.json` -> what it allows, in exact numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

from analyzer.budget.amounts import MOST, parse_amount, parse_percent
from analyzer.budget.names import parse_names
from analyzer.budget.record import Among, AtLeast, AtMost, Growth, Limit, Over, Unit
from analyzer.units import format_count
from analyzer.wording import shown

__all__ = ["NAMES", "format_growth", "format_limit", "parse_amount", "parse_limit", "parse_names"]

NAMES = frozenset({Unit.OPERATORS, Unit.DOMAINS, Unit.DTYPES})
"""Units whose limits are names and no number."""

_LONGEST = 5_000
"""Characters that a limit may have: it may name a file."""

_SIDE = re.compile(r"(at\s+most\b|at\s+least\b|<=|>=)\s*", re.IGNORECASE)
_OVER = re.compile(r"(?:^|\s)over(?=\s|$)", re.IGNORECASE)
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)


def parse_limit(value: object, unit: Unit, *, least: bool = False) -> Limit:
    """What a limit allows: a text of the grammar, a number as TOML has it, or names for a unit that counts names.

    >>> parse_limit("110M", Unit.PARAMETERS)
    AtMost(value=110000000)
    >>> parse_limit(17, Unit.VERSION, least=True)
    AtLeast(value=17)
    >>> parse_limit("at most +2 % and +5 MB over main.json", Unit.BYTES).baseline
    'main.json'

    Args:
        value: what was written.
        unit: what is counted, which decides what units the number may have.
        least: a number alone is at least it, and not at most.

    Raises:
        ValueError: it says nothing, or not one thing; the message says what to write.
    """
    if unit in NAMES:
        return _parse_among(value, unit)
    if isinstance(value, int) and not isinstance(value, bool):
        return _side(_whole(value), least)
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)}: write a number, or a text such as {_example(unit)}")
    if len(value) > _LONGEST:
        raise ValueError(f"a limit of {len(value):,} characters; {_LONGEST:,} are allowed")
    return _parse_text(value.strip(), unit, least)


def _parse_text(text: str, unit: Unit, least: bool) -> Limit:
    """`at most X`, `at least X`, `X`, where X is an amount, or growths and perhaps what they are over."""
    said = _SIDE.match(text)
    at_least = least if said is None else said[1].lower().endswith("least") or said[1] == ">="
    rest = text if said is None else text[said.end() :]
    over = _OVER.search(rest)
    body = (rest if over is None else rest[: over.start()]).strip()
    if not body:
        raise ValueError(f"{shown(text)}: has no number; write one, such as {_example(unit)}")
    if body[0] not in "+-\N{MINUS SIGN}":
        if over is not None:
            raise ValueError(
                f"{shown(text)}: what is over a file is a growth and has a sign: write '+{_inside(body)} over ...'"
            )
        return _side(parse_amount(body, unit), at_least)
    if said is not None and at_least:
        raise ValueError(
            f"{shown(text)}: a growth over a baseline is always a most; write 'at most {_inside(body)}'"
        )
    return Over(_parse_growths(body, unit), None if over is None else _unquote(rest[over.end() :]))


def _inside(text: str) -> str:
    """A text as part of an example, which has quotes of its own: short."""
    return shown(text)[1:-1]


def _side(number: int, least: bool) -> AtMost | AtLeast:
    return AtLeast(number) if least else AtMost(number)


def _whole(number: int) -> int:
    if number < 0:
        raise ValueError(
            f"{shown(number)}: nothing is less than 0; less than a baseline is a text, such as '-1 %'"
        )
    if number > MOST:
        raise ValueError(f"{shown(number)}: more than any file holds")
    return number


def _parse_among(value: object, unit: Unit) -> Among:
    if isinstance(value, str):
        return parse_names(value.split(","), unit)
    if isinstance(value, list | tuple | set | frozenset):
        return parse_names(value, unit)
    raise ValueError(f"{shown(value)}: write the {unit.value} that are allowed, as an array of names")


def _parse_growths(text: str, unit: Unit) -> tuple[Growth, ...]:
    """`+2 % and +5 MB`, each with its sign."""
    if unit is Unit.VERSION:
        raise ValueError(
            f"{shown(text)}: a version does not grow; write the number, such as {_example(unit)}"
        )
    return tuple(_parse_growth(part.strip(), unit) for part in _AND.split(text))


def _parse_growth(text: str, unit: Unit) -> Growth:
    sign = {"+": 1, "-": -1, "\N{MINUS SIGN}": -1}.get(text[:1])
    rest = text[1:].strip()
    if sign is None:
        raise ValueError(f"{shown(text)}: a growth has a sign: write '+{_inside(text)}'")
    if not rest:
        raise ValueError(f"{shown(text)}: has no number; write one, such as '+2 %'")
    if not rest.endswith("%"):
        return Growth(amount=sign * parse_amount(rest, unit))
    fraction = sign * parse_percent(rest)
    if fraction < -1:
        raise ValueError(f"{shown(text)}: less than nothing cannot be left; -100 % is the least")
    return Growth(fraction=fraction)


def _unquote(text: str) -> str:
    """A file's name, which may stand in quotes."""
    name = text.strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"":
        name = name[1:-1]
    if not name:
        raise ValueError("'over' names no file; write it, as in '+2 % over main.json', or leave 'over' out")
    if "\0" in name:
        raise ValueError(f"{shown(name)}: no file has such a name")
    return name


def _example(unit: Unit) -> str:
    return {Unit.BYTES: "'450 MiB'", Unit.VERSION: "17", Unit.PARAMETERS: "'110M'"}.get(unit, "1000")


def format_limit(limit: Limit) -> str:
    """A limit as it can be written again.

    >>> format_limit(parse_limit("+2% and +5MB over main.json", Unit.BYTES))
    'at most +2 % and +5,000,000 over main.json'
    >>> format_limit(AtLeast(17)), format_limit(Among(frozenset({"FLOAT16", "FLOAT"})))
    ('at least 17', 'FLOAT, FLOAT16')
    """
    match limit:
        case AtMost(value):
            return f"at most {format_count(value)}"
        case AtLeast(value):
            return f"at least {format_count(value)}"
        case Among(names):
            return ", ".join(sorted(names))
        case Over(growths, baseline):
            text = f"at most {format_growths(growths)}"
            return text if baseline is None else f"{text} over {_quote(baseline)}"


def format_growths(growths: Iterable[Growth]) -> str:
    """What is allowed over a baseline.

    >>> format_growths([Growth(fraction=Fraction(2, 100)), Growth(amount=5_000_000)])
    '+2 % and +5,000,000'
    """
    return " and ".join(map(format_growth, growths))


def format_growth(growth: Growth) -> str:
    """One growth, exact.

    >>> format_growth(Growth(fraction=Fraction(1, 1000))), format_growth(Growth(amount=0))
    ('+0.1 %', '+0')
    """
    if growth.fraction is None:
        return f"{growth.amount or 0:+,}"
    return f"{'-' if growth.fraction < 0 else '+'}{_decimal(abs(growth.fraction) * 100)} %"


def _decimal(number: Fraction) -> str:
    """A fraction that was written as a decimal, as a decimal again; another one cut off after sixty places."""
    places = next((places for places in range(60) if not (number * 10**places).denominator - 1), 60)
    digits = str(int(number * 10**places)).rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}" if places else digits


def _quote(name: str) -> str:
    is_plain = name == name.strip() and not (len(name) > 1 and name[0] == name[-1] and name[0] in "'\"")
    return name if is_plain else f'"{name}"'
