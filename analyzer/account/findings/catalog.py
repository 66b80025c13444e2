"""catalog.toml -> what each finding means, what it costs, and how to mend it."""

from __future__ import annotations

import difflib
import itertools
import textwrap
import tomllib
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

from analyzer.errors import UsageError
from analyzer.records import Frozen

_NEAREST = 3
"""Ids that are offered in the place of one that is not there."""


class Explanation(Frozen):
    """What there is to say of one kind of finding: plain text, in which `...` marks code.

    A blank line parts paragraphs, which are lines of any length; one that begins with four spaces is code.
    """

    id: str
    title: str
    """A few words, which begin with no capital."""
    severities: tuple[str, ...]
    """Those that it comes with, the mildest first."""
    meaning: str
    """What was seen, and why it matters."""
    cost: str
    """Which bytes are counted as its cost, or what it costs otherwise."""
    mend: str
    """The steps that make it go away."""
    seen_by: str
    """The commands that find it, and the options that this depends on."""
    docs: str
    """Where more is said: a page of the repository, and a heading in it."""


def explain(id_: str, option: str = "explain") -> Explanation:
    """The explanation of one kind of finding.

    Args:
        id_: as reports name it.
        option: who asks for it, for the message.

    Raises:
        UsageError: there is none of this id; the message has the nearest.
    """
    if id_ in EXPLANATIONS:
        return EXPLANATIONS[id_]
    near = difflib.get_close_matches(id_, EXPLANATIONS, _NEAREST, cutoff=0.5)
    near = near or [known for known in EXPLANATIONS if id_ and id_ in known][:_NEAREST]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(f"{option} {id_}: no finding has this id; {hint}`onnxledger explain` lists all")


def load_explanations() -> tuple[Explanation, ...]:
    """The explanations of every kind of finding, in the order of the page of findings."""
    return tuple(EXPLANATIONS.values())


def _read() -> dict[str, Explanation]:
    text = resources.files(__package__).joinpath("catalog.toml").read_text(encoding="utf-8")
    return {
        id_: Explanation(
            id=id_,
            severities=tuple(table.pop("severities")),
            **{key: _join_lines(value) for key, value in table.items()},
        )
        for id_, table in tomllib.loads(text).items()
    }


def list_paragraphs(text: str) -> tuple[tuple[bool, str], ...]:
    r"""The paragraphs of an explanation's text: whether each is code, and what it says, code without its indent.

    >>> list_paragraphs("Do:\n\n    import a\n\n    a.b()\n\nThen c.")
    ((False, 'Do:'), (True, 'import a\n\na.b()'), (False, 'Then c.'))
    """
    parts = itertools.groupby(text.split("\n\n"), lambda part: part.startswith(_INDENT) or id(part))
    return tuple(
        (is_code is True, textwrap.dedent("\n\n".join(found)) if is_code is True else next(found))
        for is_code, found in parts
    )


_INDENT = "    "


def _join_lines(text: str) -> str:
    """Paragraphs without the line breaks that only made them fit; code keeps its own."""
    paragraphs = text.strip("\n").split("\n\n")
    return "\n\n".join(
        part if part.startswith(_INDENT) else " ".join(part.split("\n")) for part in paragraphs
    )


EXPLANATIONS: Mapping[str, Explanation] = MappingProxyType(_read())
"""By id, in the order of catalog.toml."""
