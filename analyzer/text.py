"""Numbers, names and values of files -> strings: the only place where they are formatted for a person."""

from __future__ import annotations

import functools
import re
import reprlib


def format_count(number: int) -> str:
    """Exact, with separators.

    >>> format_count(109_482_240)
    '109,482,240'
    """
    return f"{number:,}"


def format_many(number: int, what: str) -> str:
    """So many of something.

    >>> format_many(1, "thread"), format_many(1_000, "thread")
    ('1 thread', '1,000 threads')
    """
    return f"{format_count(number)} {what}{'' if number == 1 else 's'}"


def format_doing(number: int, what: str, verb: str) -> str:
    """So many of something, and what they do; the verb as it follows several.

    >>> format_doing(1, "node", "use"), format_doing(2, "node", "use")
    ('1 node uses', '2 nodes use')
    >>> format_doing(1, "value", "are"), format_doing(1, "name", "have")
    ('1 value is', '1 name has')
    """
    one = {"are": "is", "have": "has", "were": "was"}.get(verb, f"{verb}s")
    return f"{format_many(number, what)} {one if number == 1 else verb}"


def format_others(number: int) -> str:
    """The row of what is not shown.

    >>> format_others(1), format_others(1_000)
    ('[1 other]', '[1,000 others]')
    """
    return f"[{format_many(number, 'other')}]"


def format_signed(number: int) -> str:
    """Exact, with its sign; a plain 0.

    >>> format_signed(-83_712), format_signed(0), format_signed(512)
    ('-83,712', '0', '+512')
    """
    return f"{number:+,}" if number else "0"


def format_signed_bytes(number: int) -> str:
    """IEC with its sign; a plain 0.

    >>> format_signed_bytes(12_582_912), format_signed_bytes(-5), format_signed_bytes(0)
    ('+12.00 MiB', '-5 B', '0 B')
    """
    return f"+{format_bytes(number)}" if number > 0 else format_bytes(number)


def short_count(number: int) -> str:
    """SI, two decimals; exact below a thousand.

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
    """IEC, two decimals; exact below 1024.

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
    """So many of a unit that is named in the plural, exact; bytes also as IEC; a version as it is.

    >>> format_amount(437_928_960, "bytes"), format_amount(1, "nodes"), format_amount(17, "version")
    ('437,928,960 bytes (417.64 MiB)', '1 node', '17')
    """
    if unit == "version":
        return str(number)
    exact = format_many(number, unit.removesuffix("s"))
    return f"{exact} ({format_bytes(number)})" if unit == "bytes" and abs(number) >= 1024 else exact


def format_share(part: int, whole: int) -> str:
    """Percent with four decimals; "-" where there is nothing to share. Only 0 and all are printed as 0 and 100.

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
    """Percent with one decimal; "-" where there is nothing to share. Only 0 and all are 0 and 100.

    >>> short_share(0.21772), short_share(0.0001), short_share(0.99999), short_share(-0.559), short_share(0)
    ('21.8 %', '<0.1 %', '>99.9 %', '-55.9 %', '0 %')
    >>> short_share(-0.0001), short_share(-0.99999)
    ('>-0.1 %', '<-99.9 %')
    """
    if fraction is None:
        return "-"
    if fraction < 0:
        return _negated(short_share(-fraction))
    percent = 100 * fraction + 0.0  # of -0.0 too
    if 0 < percent < 0.05:
        return "<0.1 %"
    if 99.95 <= percent < 100:
        return ">99.9 %"
    return f"{percent:.1f} %" if percent % 100 else f"{percent:.0f} %"


def _negated(said: str) -> str:
    """A share below 0; what is less than 0.1 % of a loss is more than -0.1 %."""
    turned = {"<": ">", ">": "<"}.get(said[0])
    return f"-{said}" if turned is None else f"{turned}-{said[1:]}"


_MANY_TIMES = 10


def format_change(fraction: float | None) -> str:
    """The same with its sign, of a change; how many times as much where that is ten times and more.

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
    """A ratio as percent with four decimals; "-" where there is none.

    >>> format_ratio(4_005_120 / 23_837_184), format_ratio(None)
    ('16.8020 %', '-')
    """
    return "-" if ratio is None else f"{100 * ratio:.4f} %"


def format_error(error: float | None) -> str:
    """A largest error: 0 where contents are equal, "-" where none were compared."""
    return "-" if error is None else "0" if error == 0 else f"{error:.3g}"


def format_ms(ms: float) -> str:
    """Milliseconds to the microsecond, with separators: onnxruntime's profile knows no more, and columns add up.

    >>> format_ms(20.0213), format_ms(12_345.6789), format_ms(-0.0001)
    ('20.021', '12,345.679', '0.000')
    """
    return f"{round(ms, 3) + 0.0:,.3f}"


def short_ms(ms: float) -> str:
    """The same in a sentence: three figures, and of what is longer one decimal.

    >>> short_ms(12_345.67), short_ms(94.4951), short_ms(7.92), short_ms(0.0314159), short_ms(0)
    ('12,345.7', '94.5', '7.92', '0.0314', '0')
    """
    if not ms:
        return "0"
    if round(abs(ms), 1) >= 10:
        return f"{ms:,.1f}"
    return f"{ms:.2f}" if abs(ms) >= 1 else f"{ms:.3g}"


def format_signed_ms(ms: float) -> str:
    """The same with its sign; a plain 0.

    >>> format_signed_ms(-1.5), format_signed_ms(0.0002), format_signed_ms(2)
    ('-1.500', '0.000', '+2.000')
    """
    return f"{round(ms, 3):+,.3f}" if round(ms, 3) else "0.000"


def format_percent(fraction: float | None) -> str:
    """Percent of what is measured, not counted: two decimals; "-" where there is nothing to share.

    >>> format_percent(0.21772), format_percent(-0.013), format_percent(None)
    ('21.77 %', '-1.30 %', '-')
    """
    return "-" if fraction is None else f"{round(100 * fraction, 2) + 0.0:.2f} %"


def format_frequency(megahertz: float) -> str:
    """A clock.

    >>> format_frequency(1980.0), format_frequency(2593.906)
    ('1,980 MHz', '2,594 MHz')
    """
    return f"{megahertz:,.0f} MHz"


def printable(text: str) -> str:
    r"""A name from a file, safe on a terminal and in the log of a CI job.

    Control, format and surrogate characters are escaped, and so is what a job's runner would take for a command to
    itself: `::` where a line may begin, or before the name of such a command, and `##` anywhere.

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
    """A mark escaped; of colons before a name all but the last."""
    found = mark[0]
    return f"\\x{ord(found):02x}" if mark["run"] is None else r"\x3a" * (len(found) - 1) + found[-1]


# What GitHub's runner knows by name. It trims a line and looks for `::name` at its beginning, and for `##[name]`
# anywhere; Azure's agent looks for `##vso[name]`, TeamCity's for `##teamcity[name`. A long name may be broken over
# lines anywhere, so that these names are not left after `::` within a word either. Both marks are searched by the
# rules of a language, which pass over some characters beyond ASCII.
_NAMES = (
    "add-mask|add-matcher|add-path|debug|echo|endgroup|error|group|internal-set-repo-path|notice|remove-matcher"
    "|save-state|set-env|set-output|stop-commands|warning"
)


@functools.cache
def _command() -> re.Pattern[str]:
    """What is searched in a text; each run of colons is looked along once, however long it is."""
    return re.compile(
        rf"""(?ix)
        \#(?=[^ -~]*\#)
        | (?P<run>(?<!:):++(?=(?:{_NAMES})(?![\w-])))
        | (?<![!-~]):(?=[^ -~]*:)
        | :(?=[^ -~]++:++(?:{_NAMES})(?![\w-]))
        """
    )


def printable_name(name: str) -> str:
    """A name from a file, escaped, and no longer than anybody reads: a file may have names of megabytes."""
    return printable(shorten(name, _LONGEST_NAME))


_LONGEST_NAME = 400
"""Characters of a name that are shown."""


def shorten(text: str, length: int, part: float = 0.5) -> str:
    """At most `length` characters: its beginning and its end, which tell files and folders apart.

    `part` is how much of them the end takes, of 1.

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
    """Dimensions, of a tensor of absurdly many only the first.

    >>> format_shape((30522, 768)), format_shape(())
    ('30522x768', 'scalar')
    """
    text = "x".join(map(str, shape[:_MAX_DIMS])) or "scalar"
    return text if len(shape) <= _MAX_DIMS else f"{text}x... ({format_many(len(shape), 'dimension')})"


_MAX_DIMS = 12


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
