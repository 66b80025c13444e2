"""`1.5G`, `450 MiB`, `512m`, `0.1 %` -> exact numbers, or what to write instead: the one grammar of sizes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from fractions import Fraction

from analyzer.budget.record import Unit
from analyzer.wording import shown

__all__ = ["MOST", "parse_amount", "parse_percent"]

MOST = (1 << 63) - 1
"""The highest limit: every reader of JSON has it exactly, and no file holds more."""

_LONGEST = 60
"""Characters that a number may have."""

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
_ALSO: Mapping[str, int] = {
    name.lower(): value for name, value in _BYTES.items() if len(name) > 1 or name in "MGT"
}
"""Bytes as people type them: 512m, 8gib, 500mb. `Mb` would count bits, and `KB` means two things."""

_NONE: Mapping[str, int] = {"": 1}

_NUMBER = re.compile(
    r"(?P<whole>[0-9]+(?:_[0-9]+)*|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.(?P<part>[0-9]+))?", re.ASCII
)
_AMOUNT = re.compile(rf"{_NUMBER.pattern}\s*(?P<unit>[^\W\d_]*)", re.ASCII)


def parse_amount(text: str, unit: Unit) -> int:
    """A number with a unit, as a whole number.

    >>> parse_amount("1.5G", Unit.PARAMETERS), parse_amount("450 MiB", Unit.BYTES)
    (1500000000, 471859200)
    >>> parse_amount("512m", Unit.BYTES), parse_amount("0.5 GB", Unit.BYTES), parse_amount("8gib", Unit.BYTES)
    (512000000, 500000000, 8589934592)
    >>> parse_amount("110_000_000", Unit.PARAMETERS) == parse_amount("110,000,000", Unit.PARAMETERS)
    True

    Raises:
        ValueError: it is none; the message says what to write.
    """
    text = text.strip()
    _check(text)
    if text.endswith("%"):
        raise ValueError(f"{shown(text)}: of what? A growth over a baseline has a sign: write '+{text}'")
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise ValueError(f"{shown(text)}: no number; write {_forms(unit)}")
    written = _units(unit)
    factor = written.get(found["unit"], _ALSO.get(found["unit"]) if unit is Unit.BYTES else None)
    if factor is None:
        raise ValueError(f"{shown(text)}: {_unknown(found['unit'], unit)}")
    number = _fraction(found) * factor
    if number.denominator != 1:
        hint = ", or a unit, as in 450MiB" if unit is Unit.BYTES else ""
        raise ValueError(f"{shown(text)}: {unit.value} are whole; write a whole number{hint}")
    if number > MOST:
        raise ValueError(f"{shown(text)}: more than any file holds")
    return int(number)


def parse_percent(text: str) -> Fraction:
    """A percentage without a sign, exact.

    >>> parse_percent("0.1 %")
    Fraction(1, 1000)

    Raises:
        ValueError: it is none.
    """
    number = text.strip().removesuffix("%").strip()
    _check(number)
    found = _NUMBER.fullmatch(number)
    if found is None:
        raise ValueError(f"{shown(text)}: no percentage; write digits, such as 2 % or 0.5 %")
    if _fraction(found) > MOST:
        raise ValueError(f"{shown(text)}: more than any file grows")
    return _fraction(found) / 100


def _check(text: str) -> None:
    if len(text) > _LONGEST:
        raise ValueError(f"{shown(text)}: too long for a number")
    if re.fullmatch(r"[0-9.,_]+\s*[eE]\s*[+-]?\s*[0-9]+.*", text, re.DOTALL):
        raise ValueError(f"{shown(text)}: an exponent; write the digits, or a unit, as in 100M")
    if re.match(r"[-\N{MINUS SIGN}]", text):
        raise ValueError(f"{shown(text)}: nothing is less than 0; write a number without a sign")
    if re.fullmatch(r"[0-9]+,[0-9]{1,2}|[0-9]+,[0-9]{4,}", re.sub(r"[^0-9,]", "", text)):
        raise ValueError(
            f"{shown(text)}: a comma stands before three digits; write a point for a decimal one"
        )


def _fraction(found: re.Match[str]) -> Fraction:
    whole = found["whole"].replace("_", "").replace(",", "")
    return Fraction(f"{whole}.{found['part'] or 0}")


def _units(unit: Unit) -> Mapping[str, int]:
    return _BYTES if unit is Unit.BYTES else _NONE if unit is Unit.VERSION else _COUNTS


def _unknown(found: str, unit: Unit) -> str:
    """Why a unit is none, and which was meant."""
    units = _units(unit)
    if unit is Unit.VERSION:
        return f"a version has no unit, and {shown(found)} is one; write the number alone"
    if unit is not Unit.BYTES and found in _BYTES:
        return f"{found} counts bytes, and these are {unit.value}; write {_listed(units)}"
    if found == "KB":
        return "KB means two things; write kB for 1,000 bytes or KiB for 1,024"
    if unit is Unit.BYTES and found in ("b", "Kb", "Mb", "Gb", "Tb"):
        return f"{found} would count bits; write {found[:-1].replace('K', 'k')}B"
    near = [known for known in units if known and known.lower() == found.lower()][:1]
    near = near or difflib.get_close_matches(found, [known for known in units if known], 1, 0.5)
    meant = f"did you mean {near[0]}?" if near else f"write {_listed(units)}"
    return f"{shown(found)} is no unit of {unit.value}; {meant}"


def _listed(units: Mapping[str, int]) -> str:
    return ", ".join(name for name in units if name and name != "K") + ", or no unit"


def _forms(unit: Unit) -> str:
    if unit is Unit.VERSION:
        return "a whole number, such as 17"
    return "'450 MiB', '1.5G' or 450_000_000" if unit is Unit.BYTES else "'110M', '1.5G' or 110_000_000"
