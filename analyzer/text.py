"""Numbers, names and values of files -> strings for people; no other module formats these."""

from __future__ import annotations

import functools
import re
import reprlib


def format_count(number: int) -> str:
    """Format a number exactly, with separators.

    >>> format_count(109_482_240)
    '109,482,240'
    """
    return f"{number:,}"


def format_many(number: int, what: str) -> str:
    """Format a number of things, with the noun in singular or plural.

    >>> format_many(1, "thread"), format_many(1_000, "thread")
    ('1 thread', '1,000 threads')
    """
    return f"{format_count(number)} {what}{'' if number == 1 else 's'}"


def format_doing(number: int, what: str, verb: str) -> str:
    """Format a number of things with a verb, which is given in its plural form.

    >>> format_doing(1, "node", "use"), format_doing(2, "node", "use")
    ('1 node uses', '2 nodes use')
    >>> format_doing(1, "value", "are"), format_doing(1, "name", "have")
    ('1 value is', '1 name has')
    """
    one = {"are": "is", "have": "has", "were": "was"}.get(verb, f"{verb}s")
    return f"{format_many(number, what)} {one if number == 1 else verb}"


def format_others(number: int) -> str:
    """Return the label of the row that stands for rows that are not shown.

    >>> format_others(1), format_others(1_000)
    ('[1 other]', '[1,000 others]')
    """
    return f"[{format_many(number, 'other')}]"


def format_signed(number: int) -> str:
    """Format a number exactly, with its sign; 0 has none.

    >>> format_signed(-83_712), format_signed(0), format_signed(512)
    ('-83,712', '0', '+512')
    """
    return f"{number:+,}" if number else "0"


def format_signed_bytes(number: int) -> str:
    """Format bytes in IEC units with a sign; 0 has none.

    >>> format_signed_bytes(12_582_912), format_signed_bytes(-5), format_signed_bytes(0)
    ('+12.00 MiB', '-5 B', '0 B')
    """
    return f"+{format_bytes(number)}" if number > 0 else format_bytes(number)


def short_count(number: int) -> str:
    """Format a number with an SI prefix and two decimals; exactly below a thousand.

    >>> short_count(109_482_240), short_count(999_999), short_count(768)
    ('109.48 M', '1.00 M', '768')
    """
    if abs(number) < 1000:
        return str(number)
    value, units = float(number), ("k", "M", "G", "T", "P")
    for unit in units:
        value /= 1000
        if round(abs(value), 2) < 1000 or unit == units[-1]:
            break
    return f"{value:,.2f} {unit}"


def format_bytes(number: int) -> str:
    """Format bytes in IEC units with two decimals; exactly below 1024.

    >>> format_bytes(437_928_960), format_bytes(1_048_575), format_bytes(12)
    ('417.64 MiB', '1.00 MiB', '12 B')
    """
    if abs(number) < 1024:
        return f"{number} B"
    value, units = float(number), ("KiB", "MiB", "GiB", "TiB", "PiB")
    for unit in units:
        value /= 1024
        if round(abs(value), 2) < 1024 or unit == units[-1]:
            break
    return f"{value:,.2f} {unit}"


def format_amount(number: int, unit: str) -> str:
    """Format an amount exactly, with a unit given in the plural; bytes also in IEC units; a version as it is.

    >>> format_amount(437_928_960, "bytes"), format_amount(1, "nodes"), format_amount(17, "version")
    ('437,928,960 bytes (417.64 MiB)', '1 node', '17')
    """
    if unit == "version":
        return str(number)
    exact = format_many(number, unit.removesuffix("s"))
    return f"{exact} ({format_bytes(number)})" if unit == "bytes" and abs(number) >= 1024 else exact


def format_share(part: int, whole: int) -> str:
    """Format a share as percent with four decimals; "-" if the whole is 0. Only exact 0 and 100 print as such.

    >>> format_share(23_837_184, 109_482_240), format_share(1, 10**9), format_share(1, 0)
    ('21.7726 %', '<0.0001 %', '-')
    """
    if not whole:
        return "-"
    if part < 0:
        return f"-{format_share(-part, whole)}"
    percent = 100 * part / whole
    if 0 < percent < 0.0001:
        return "<0.0001 %"
    if part < whole and percent > 99.9999:
        return ">99.9999 %"
    return f"{percent:.4f} %"


def short_share(fraction: float | None) -> str:
    """Format a fraction as percent with one decimal; "-" for None. Only exact 0 and 100 print as such.

    >>> short_share(0.21772), short_share(0.0001), short_share(0.99999), short_share(-0.559), short_share(0)
    ('21.8 %', '<0.1 %', '>99.9 %', '-55.9 %', '0 %')
    >>> short_share(-0.0001), short_share(-0.99999)
    ('>-0.1 %', '<-99.9 %')
    """
    if fraction is None:
        return "-"
    if fraction < 0:
        return _negated(short_share(-fraction))
    percent = 100 * fraction + 0.0  # turns -0.0 into 0.0
    if 0 < percent < 0.05:
        return "<0.1 %"
    if 99.95 <= percent < 100:
        return ">99.9 %"
    return f"{percent:.1f} %" if percent % 100 else f"{percent:.0f} %"


def _negated(text: str) -> str:
    """Return a share below 0; "<" and ">" are swapped, as a loss of less than 0.1 % is a change above -0.1 %."""
    swapped = {"<": ">", ">": "<"}.get(text[0])
    return f"-{text}" if swapped is None else f"{swapped}-{text[1:]}"


_MANY_TIMES = 10


def format_change(fraction: float | None) -> str:
    """Format a relative change as signed percent, or as a factor from ten times upwards.

    >>> format_change(0.03), format_change(-0.559), format_change(0.0), format_change(409.269)
    ('+3.0 %', '-55.9 %', '0 %', 'x 410')
    >>> format_change(0.0001), format_change(-0.0001), format_change(0.9999), format_change(-0.9999)
    ('<+0.1 %', '>-0.1 %', '+100.0 %', '<-99.9 %')
    """
    if fraction is None or fraction <= 0:
        return short_share(fraction)
    if fraction >= _MANY_TIMES - 1:
        return f"x {fraction + 1:,.0f}"
    if fraction < 0.0005:
        return "<+0.1 %"
    return f"+{short_share(fraction)}" if fraction >= 1 else f"+{100 * fraction:.1f} %"


def format_ratio(ratio: float | None) -> str:
    """Format a ratio as percent with four decimals; "-" for None.

    >>> format_ratio(4_005_120 / 23_837_184), format_ratio(None)
    ('16.8020 %', '-')
    """
    return "-" if ratio is None else f"{100 * ratio:.4f} %"


def format_error(error: float | None) -> str:
    """Format a largest error: 0 where contents are equal, "-" where none were compared."""
    return "-" if error is None else "0" if error == 0 else f"{error:.3g}"


def format_ms(ms: float) -> str:
    """Format milliseconds to the microsecond, as in onnxruntime's profile, with separators; columns add up.

    >>> format_ms(20.0213), format_ms(12_345.6789), format_ms(-0.0001)
    ('20.021', '12,345.679', '0.000')
    """
    return f"{round(ms, 3) + 0.0:,.3f}"


def format_fine_ms(ms: float) -> str:
    """Format milliseconds with two more decimals, for the columns of a run that takes less than one.

    >>> format_fine_ms(0.0213), format_fine_ms(-0.000001)
    ('0.02130', '0.00000')
    """
    return f"{round(ms, 5) + 0.0:,.5f}"


def short_ms(ms: float) -> str:
    """Format milliseconds for a sentence: with three figures, or with one decimal from 10 ms upwards.

    >>> short_ms(12_345.67), short_ms(94.4951), short_ms(7.92), short_ms(0.0314159), short_ms(0)
    ('12,345.7', '94.5', '7.92', '0.0314', '0')
    """
    if not ms:
        return "0"
    if round(abs(ms), 1) >= 10:
        return f"{ms:,.1f}"
    return f"{ms:.2f}" if abs(ms) >= 1 else f"{ms:.3g}"


def format_signed_ms(ms: float) -> str:
    """Format milliseconds to the microsecond with a sign; 0 has none.

    >>> format_signed_ms(-1.5), format_signed_ms(0.0002), format_signed_ms(2)
    ('-1.500', '0.000', '+2.000')
    """
    return f"{round(ms, 3):+,.3f}" if round(ms, 3) else "0.000"


def format_percent(fraction: float | None) -> str:
    """Format a measured (not counted) fraction as percent with two decimals; "-" for None.

    >>> format_percent(0.21772), format_percent(-0.013), format_percent(None)
    ('21.77 %', '-1.30 %', '-')
    """
    return "-" if fraction is None else f"{round(100 * fraction, 2) + 0.0:.2f} %"


def format_frequency(megahertz: float) -> str:
    """Format a clock rate.

    >>> format_frequency(1980.0), format_frequency(2593.906)
    ('1,980 MHz', '2,594 MHz')
    """
    return f"{megahertz:,.0f} MHz"


def printable(text: str) -> str:
    r"""Escape a name from a file, so that it is safe on a terminal and in the log of a CI job.

    Control, format and surrogate characters are escaped, and so are marks that a CI runner takes for its commands: `::`
    where a line may begin or before the name of a command, and `##` anywhere.

    >>> printable("w\x1b[2J\u202egpj.exe")
    'w\\x1b[2J\\u202egpj.exe'
    >>> printable("::set-output name=passed::true"), printable("a\n::error::b"), printable("##[add-path]/tmp")
    ('\\x3a:set-output name=passed::true', 'a\\n\\x3a:error::b', '\\x23#[add-path]/tmp')
    >>> printable("onnx::MatMul_123"), printable("block #3")
    ('onnx::MatMul_123', 'block #3')
    """
    escaped = text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)
    return _command().sub(_defuse, escaped) if ":" in escaped or "#" in escaped else escaped


def _defuse(mark: re.Match[str]) -> str:
    """Return a mark escaped; in a run of colons before a command name, all but the last colon."""
    found = mark[0]
    return f"\\x{ord(found):02x}" if mark["run"] is None else r"\x3a" * (len(found) - 1) + found[-1]


# Commands of GitHub's runner. It trims a line and looks for `::name` at its beginning, and for `##[name]`
# anywhere; Azure's agent looks for `##vso[name]`, TeamCity's for `##teamcity[name`. A long name may be broken over
# lines anywhere, so these names are escaped after `::` within a word too. The runners search for both marks with
# culture-sensitive rules, which ignore some characters beyond ASCII.
_NAMES = (
    "add-mask|add-matcher|add-path|debug|echo|endgroup|error|group|internal-set-repo-path|notice|remove-matcher"
    "|save-state|set-env|set-output|stop-commands|warning"
)


@functools.cache
def _command() -> re.Pattern[str]:
    """Return the pattern of the marks; it scans each run of colons once, however long it is."""
    return re.compile(
        rf"""(?ix)
        \#(?=[^ -~]*\#)
        | (?P<run>(?<!:):++(?=(?:{_NAMES})(?![\w-])))
        | (?<![!-~]):(?=[^ -~]*:)
        | :(?=[^ -~]++:++(?:{_NAMES})(?![\w-]))
        """
    )


def printable_name(name: str) -> str:
    """Return a name from a file, escaped and shortened: a file may have names of megabytes."""
    return printable(shorten(name, _LONGEST_NAME))


_LONGEST_NAME = 400
"""Largest number of characters of a name that are shown."""


def shorten(text: str, length: int, part: float = 0.5) -> str:
    """Return at most `length` characters of a text: its beginning and its end, which tell files and folders apart.

    `part` is the share of the end, between 0 and 1.

    >>> shorten("a-very-long-folder/model.onnx", 16), shorten("model.onnx", 16)
    ('a-very-…del.onnx', 'model.onnx')
    """
    if len(text) <= length:
        return text
    end = min(int(length * part), length - 1)
    return f"{text[: length - end - 1]}…{text[len(text) - end :]}"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def format_shape(shape: tuple[int, ...]) -> str:
    """Format the dimensions of a tensor; only the first twelve of absurdly many.

    >>> format_shape((30522, 768)), format_shape(())
    ('30522x768', 'scalar')
    """
    text = "x".join(map(str, shape[:_MAX_DIMS])) or "scalar"
    return text if len(shape) <= _MAX_DIMS else f"{text}x... ({format_many(len(shape), 'dimension')})"


_MAX_DIMS = 12


_LONGEST = 200
"""Largest number of characters of a value that a message shows in full."""

_LONGEST_NUMBER = 200
"""Largest number of bits of a number that a message shows in full."""


class _Short(reprlib.Repr):
    """Python's repr, abridged where a value is long or deep; the digits of a huge number are never computed."""

    def repr_int(self, value: int, level: int) -> str:
        length = value.bit_length()
        return repr(value) if length <= _LONGEST_NUMBER else f"a number of {length:,} bits"


_SHORT = _Short()
_SHORT.maxstring, _SHORT.maxother, _SHORT.maxlevel = 80, 80, 2


def shown(value: object) -> str:
    """Format a value of a config or a saved report for a message: short, however long or deep the value is.

    >>> shown(768), shown("relu"), shown(1 << 10_000)
    ('768', "'relu'", 'a number of 10,001 bits')
    """
    text = _SHORT.repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
