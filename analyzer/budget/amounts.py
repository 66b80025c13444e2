"""Text of a limit, such as `1.5G` or `at most +2 % over main.json`, or names of operators -> an exact limit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

from analyzer.budget.record import Among, AtLeast, AtMost, Growth, Limit, Over, Unit
from analyzer.model import DEFAULT_DOMAIN
from analyzer.model.dtypes import DType
from analyzer.text import shown

MOST = (1 << 63) - 1
"""Highest limit: every JSON reader represents it exactly, and no file holds more."""

_LONGEST = 60
"""Maximum length of a number, in characters."""

_COUNTS: Mapping[str, int] = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BYTES: Mapping[str, int] = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
}
_LENIENT_BYTES: Mapping[str, int] = {
    name.lower(): value for name, value in _BYTES.items() if len(name) > 1 or name in "MGT"
}
"""Units of bytes as people type them: 512m, 8gib, 500mb. Not `Mb`, which counts bits, nor `KB`, which is ambiguous."""

_NONE: Mapping[str, int] = {"": 1}

_NUMBER = re.compile(
    r"(?P<whole>[0-9]+(?:_[0-9]+)*|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.(?P<part>[0-9]+))?", re.ASCII
)
_AMOUNT = re.compile(rf"{_NUMBER.pattern}\s*(?P<unit>[^\W\d_]*)", re.ASCII)


def parse_amount(text: str, unit: Unit) -> int:
    """Parse a number with a unit into a whole number.

    >>> parse_amount("1.5G", Unit.PARAMETERS), parse_amount("450 MiB", Unit.BYTES)
    (1500000000, 471859200)
    >>> parse_amount("512m", Unit.BYTES), parse_amount("0.5 GB", Unit.BYTES), parse_amount("8gib", Unit.BYTES)
    (512000000, 500000000, 8589934592)
    >>> parse_amount("110_000_000", Unit.PARAMETERS) == parse_amount("110,000,000", Unit.PARAMETERS)
    True

    Raises:
        ValueError: the text is no amount; the message says what to write.
    """
    text = text.strip()
    _check(text)
    if text.endswith("%"):
        raise ValueError(
            f"{shown(text)}: a percentage is a growth over a baseline and needs a sign: write '+{text}'"
        )
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise ValueError(f"{shown(text)}: not a number; write {_describe_forms(unit)}")
    factors = _units(unit)
    factor = factors.get(found["unit"], _LENIENT_BYTES.get(found["unit"]) if unit is Unit.BYTES else None)
    if factor is None:
        raise ValueError(f"{shown(text)}: {_explain_unknown_unit(found['unit'], unit)}")
    number = _fraction(found) * factor
    if number.denominator != 1:
        hint = ", or a unit, as in 450MiB" if unit is Unit.BYTES else ""
        raise ValueError(f"{shown(text)}: {unit.value} are whole; write a whole number{hint}")
    if number > MOST:
        raise ValueError(f"{shown(text)}: more than any file holds")
    return int(number)


def parse_percent(text: str) -> Fraction:
    """Parse a percentage without a sign into an exact fraction.

    >>> parse_percent("0.1 %")
    Fraction(1, 1000)

    Raises:
        ValueError: the text is no percentage.
    """
    number = text.strip().removesuffix("%").strip()
    _check(number)
    found = _NUMBER.fullmatch(number)
    if found is None:
        raise ValueError(f"{shown(text)}: not a percentage; write digits, such as 2 % or 0.5 %")
    if _fraction(found) > MOST:
        raise ValueError(f"{shown(text)}: more than any file grows")
    return _fraction(found) / 100


def _check(text: str) -> None:
    if len(text) > _LONGEST:
        raise ValueError(f"{shown(text)}: too long for a number")
    if re.fullmatch(r"[0-9.,_]+\s*[eE]\s*[+-]?\s*[0-9]+.*", text, re.DOTALL):
        raise ValueError(f"{shown(text)}: has an exponent; write the digits, or a unit, as in 100M")
    if re.match(r"[-\N{MINUS SIGN}]", text):
        raise ValueError(f"{shown(text)}: a limit cannot be negative; write a number without a sign")
    if re.fullmatch(r"[0-9]+,[0-9]{1,2}|[0-9]+,[0-9]{4,}", re.sub(r"[^0-9,]", "", text)):
        raise ValueError(f"{shown(text)}: a comma separates thousands; write a decimal point")


def _fraction(found: re.Match[str]) -> Fraction:
    whole = found["whole"].replace("_", "").replace(",", "")
    return Fraction(f"{whole}.{found['part'] or 0}")


def _units(unit: Unit) -> Mapping[str, int]:
    return _BYTES if unit is Unit.BYTES else _NONE if unit is Unit.VERSION else _COUNTS


def _explain_unknown_unit(found: str, unit: Unit) -> str:
    """Explain why a unit is not valid, and suggest the intended one."""
    units = _units(unit)
    if unit is Unit.VERSION:
        return f"a version has no unit, and {shown(found)} is one; write the number alone"
    if unit is not Unit.BYTES and found in _BYTES:
        return f"{found} counts bytes, and these are {unit.value}; write {_list_units(units)}"
    if found == "KB":
        return "KB means two things; write kB for 1,000 bytes or KiB for 1,024"
    if unit is Unit.BYTES and found in ("b", "Kb", "Mb", "Gb", "Tb"):
        return f"{found} would count bits; write {found[:-1].replace('K', 'k')}B"
    import difflib  # only a mistake needs it

    near = [known for known in units if known and known.lower() == found.lower()][:1]
    near = near or difflib.get_close_matches(found, [known for known in units if known], 1, 0.5)
    suggestion = f"did you mean {near[0]}?" if near else f"write {_list_units(units)}"
    return f"{shown(found)} is not a unit of {unit.value}; {suggestion}"


def _list_units(units: Mapping[str, int]) -> str:
    return ", ".join(name for name in units if name and name != "K") + ", or no unit"


def _describe_forms(unit: Unit) -> str:
    if unit is Unit.VERSION:
        return "a whole number, such as 17"
    return "'450 MiB', '1.5G' or 450_000_000" if unit is Unit.BYTES else "'110M', '1.5G' or 110_000_000"


_ONNX_NAMES = {
    "BF16": "BFLOAT16",
    "FLOAT32": "FLOAT",
    "FLOAT64": "DOUBLE",
    "FP16": "FLOAT16",
    "FP32": "FLOAT",
    "FP64": "DOUBLE",
    "HALF": "FLOAT16",
}
"""ONNX names for dtypes that other tools name differently."""


def name_operator(domain: str, op_type: str) -> str:
    """Return the name of an operator in limits and reports.

    >>> name_operator("", "MatMul"), name_operator("com.microsoft", "MatMulNBits")
    ('MatMul', 'com.microsoft:MatMulNBits')
    """
    return op_type if domain in ("", DEFAULT_DOMAIN) else f"{domain}:{op_type}"


def parse_names(names: Iterable[object], unit: Unit) -> Among:
    """Parse the allowed names into the spelling that models use. An empty list allows nothing.

    >>> sorted(parse_names(["float16", "INT8 "], Unit.DTYPES).names)
    ['FLOAT16', 'INT8']
    >>> sorted(parse_names(["ai.onnx:MatMul", "com.microsoft:Gelu"], Unit.OPERATORS).names)
    ['MatMul', 'com.microsoft:Gelu']

    Raises:
        ValueError: one is no name, or no dtype; the message suggests the intended one.
    """
    return Among(frozenset(_parse(name, unit) for name in names))


def _parse(value: object, unit: Unit) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)}: write the names of {unit.value} as strings")
    name = value.strip()
    match unit:
        case Unit.DTYPES:
            return _parse_dtype(name)
        case Unit.DOMAINS:
            return name or DEFAULT_DOMAIN
    if not name:
        raise ValueError("an empty name among the operators; leave it out")
    domain, colon, op_type = name.rpartition(":")
    if colon and not op_type:
        raise ValueError(
            f"{shown(name)}: names no operator; write DOMAIN:OP_TYPE, as in 'com.microsoft:Gelu'"
        )
    return name_operator(domain, op_type)


def _parse_dtype(name: str) -> str:
    upper = name.upper()
    known = [dtype.name for dtype in DType]
    if upper in known:
        return upper
    import difflib

    near = [_ONNX_NAMES[upper]] if upper in _ONNX_NAMES else difflib.get_close_matches(upper[:40], known, 1)
    suggestion = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    raise ValueError(f"{shown(name)} is not a dtype of ONNX; {suggestion}")


NAMES = frozenset({Unit.OPERATORS, Unit.DOMAINS, Unit.DTYPES})
"""Units whose limits are names, not numbers."""

_LONGEST_LIMIT = 5_000
"""Maximum length of a limit, in characters; it may contain the name of a file."""

_SIDE = re.compile(r"(at\s+most\b|at\s+least\b|<=|>=)\s*", re.IGNORECASE)
_OVER = re.compile(r"(?:^|\s)over(?=\s|$)", re.IGNORECASE)
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)


def parse_limit(value: object, unit: Unit, *, least: bool = False) -> Limit:
    """Parse a limit: a text of the grammar, a number from TOML, or names for a unit that counts names.

    >>> parse_limit("110M", Unit.PARAMETERS)
    AtMost(value=110000000)
    >>> parse_limit(17, Unit.VERSION, least=True)
    AtLeast(value=17)
    >>> parse_limit("at most +2 % and +5 MB over main.json", Unit.BYTES).baseline
    'main.json'

    Args:
        value: the limit as the user wrote it.
        unit: unit of the metric, which decides the suffixes that a number may have.
        least: whether a number alone is a minimum instead of a maximum.

    Raises:
        ValueError: the limit is malformed or ambiguous; the message says what to write.
    """
    if unit in NAMES:
        return _parse_among(value, unit)
    if isinstance(value, int) and not isinstance(value, bool):
        return _side(_check_whole(value), least)
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)}: write a number, or a string such as {_example(unit)}")
    if len(value) > _LONGEST_LIMIT:
        raise ValueError(f"a limit of {len(value):,} characters; {_LONGEST_LIMIT:,} are allowed")
    return _parse_text(value.strip(), unit, least)


def _parse_text(text: str, unit: Unit, least: bool) -> Limit:
    """Parse `at most X`, `at least X` or `X`, where X is an amount, or growths with an optional `over FILE`."""
    side = _SIDE.match(text)
    at_least = least if side is None else side[1].lower().endswith("least") or side[1] == ">="
    rest = text if side is None else text[side.end() :]
    over = _OVER.search(rest)
    body = (rest if over is None else rest[: over.start()]).strip()
    if not body:
        raise ValueError(f"{shown(text)}: has no number; write one, such as {_example(unit)}")
    if body[0] not in "+-\N{MINUS SIGN}":
        if over is not None:
            raise ValueError(
                f"{shown(text)}: a limit over a file is a growth and needs a sign: write '+{_shorten(body)} over ...'"
            )
        return _side(parse_amount(body, unit), at_least)
    if side is not None and at_least:
        raise ValueError(
            f"{shown(text)}: a growth over a baseline can only have a maximum; write 'at most {_shorten(body)}'"
        )
    return Over(_parse_growths(body, unit), None if over is None else _unquote(rest[over.end() :]))


def _shorten(text: str) -> str:
    """Return a short form of a text for use inside a quoted example."""
    return shown(text)[1:-1]


def _side(number: int, least: bool) -> AtMost | AtLeast:
    return AtLeast(number) if least else AtMost(number)


def _check_whole(number: int) -> int:
    if number < 0:
        raise ValueError(
            f"{shown(number)}: a limit cannot be negative; to go below a baseline, write a string such as '-1 %'"
        )
    if number > MOST:
        raise ValueError(f"{shown(number)}: more than any file holds")
    return number


def _parse_among(value: object, unit: Unit) -> Among:
    if isinstance(value, str):
        return parse_names(value.split(","), unit)
    if isinstance(value, list | tuple | set | frozenset):
        return parse_names(value, unit)
    raise ValueError(f"{shown(value)}: write the allowed {unit.value} as an array of names")


def _parse_growths(text: str, unit: Unit) -> tuple[Growth, ...]:
    """Parse growths such as `+2 % and +5 MB`, each with its sign."""
    if unit is Unit.VERSION:
        raise ValueError(
            f"{shown(text)}: a version does not grow; write the number, such as {_example(unit)}"
        )
    return tuple(_parse_growth(part.strip(), unit) for part in _AND.split(text))


def _parse_growth(text: str, unit: Unit) -> Growth:
    sign = {"+": 1, "-": -1, "\N{MINUS SIGN}": -1}.get(text[:1])
    rest = text[1:].strip()
    if sign is None:
        raise ValueError(f"{shown(text)}: a growth needs a sign: write '+{_shorten(text)}'")
    if not rest:
        raise ValueError(f"{shown(text)}: has no number; write one, such as '+2 %'")
    if not rest.endswith("%"):
        return Growth(amount=sign * parse_amount(rest, unit))
    fraction = sign * parse_percent(rest)
    if fraction < -1:
        raise ValueError(f"{shown(text)}: a decrease of over 100 % is impossible; write -100 % or more")
    return Growth(fraction=fraction)


def _unquote(text: str) -> str:
    """Return a file's name without the quotes that may surround it."""
    name = text.strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"":
        name = name[1:-1]
    if not name:
        raise ValueError("no file after 'over'; name one, as in '+2 % over main.json', or leave 'over' out")
    if "\0" in name:
        raise ValueError(f"{shown(name)}: no file has such a name")
    return name


def _example(unit: Unit) -> str:
    return {Unit.BYTES: "'450 MiB'", Unit.VERSION: "17", Unit.PARAMETERS: "'110M'"}.get(unit, "1000")


def format_growths(growths: Iterable[Growth]) -> str:
    """Return the text of the growths allowed over a baseline.

    >>> format_growths([Growth(fraction=Fraction(2, 100)), Growth(amount=5_000_000)])
    '+2 % and +5,000,000'
    """
    return " and ".join(map(format_growth, growths))


def format_growth(growth: Growth) -> str:
    """Return the exact text of one growth.

    >>> format_growth(Growth(fraction=Fraction(1, 1000))), format_growth(Growth(amount=0))
    ('+0.1 %', '+0')
    """
    if growth.fraction is None:
        return f"{growth.amount or 0:+,}"
    return f"{'-' if growth.fraction < 0 else '+'}{_decimal(abs(growth.fraction) * 100)} %"


def _decimal(number: Fraction) -> str:
    """Return a fraction as a decimal; one that is no finite decimal is cut off after sixty places."""
    places = next((places for places in range(60) if not (number * 10**places).denominator - 1), 60)
    digits = str(int(number * 10**places)).rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}" if places else digits
