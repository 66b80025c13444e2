"""A value from a file -> its text in a message: short, whatever the config says."""

from __future__ import annotations

import reprlib

__all__ = ["shown"]

_LONGEST = 200
"""Characters of a value that a message still has in full."""

_LONGEST_NUMBER = 200
"""Bits of a number that a message still has in full."""


class _Short(reprlib.Repr):
    """As Python shows it, with little of what is long or deep; digits cost nothing where a number has thousands."""

    def repr_int(self, value: int, level: int) -> str:
        length = value.bit_length()
        return repr(value) if length <= _LONGEST_NUMBER else f"a number of {length:,} bits"


_SHORT = _Short()
_SHORT.maxstring, _SHORT.maxother, _SHORT.maxlevel = 80, 80, 2


def shown(value: object) -> str:
    """A value of a config, or of a saved report, in a message: short, however long or deep it is.

    >>> shown(768), shown("relu"), shown(1 << 10_000)
    ('768', "'relu'", 'a number of 10,001 bits')
    """
    text = _SHORT.repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
