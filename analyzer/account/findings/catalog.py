"""catalog.toml -> explanation of each finding: its meaning, its cost, and its fix."""

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
"""Most ids that are suggested for an unknown one."""


class Explanation(Frozen):
    """Explanation of one kind of finding: plain text, in which `...` marks code.

    A blank line separates paragraphs, which are lines of any length; a paragraph that begins with four spaces is code.
    """

    id: str
    title: str
    """A few words, starting in lower case."""
    severities: tuple[str, ...]
    """Severities that it can have, the mildest first."""
    meaning: str
    """Observed fact, and why it matters."""
    cost: str
    """Bytes that count as its cost, or another cost."""
    mend: str
    """Steps that remove the finding."""
    seen_by: str
    """Commands that find it, and the options that it depends on."""
    docs: str
    """Further documentation: a page of the repository, and a heading in it."""


def explain(id_: str, option: str = "explain") -> Explanation:
    """Return the explanation of one kind of finding.

    Args:
        id_: id in reports.
        option: command that asks for it, for the message.

    Raises:
        UsageError: no finding has this id; the message suggests the nearest ones.
    """
    if id_ in EXPLANATIONS:
        return EXPLANATIONS[id_]
    near = difflib.get_close_matches(id_, EXPLANATIONS, _NEAREST, cutoff=0.5)
    near = near or [known for known in EXPLANATIONS if id_ and id_ in known][:_NEAREST]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(f"{option} {id_}: no finding has this id; {hint}`onnxledger explain` lists all")


def load_explanations() -> tuple[Explanation, ...]:
    """Return the explanations of every kind of finding, in the order of the page of findings."""
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
    r"""Return the paragraphs of an explanation: whether each is code, and its text, code without its indent.

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
    """Join the lines of each paragraph that were broken only for width; code keeps its line breaks."""
    paragraphs = text.strip("\n").split("\n\n")
    return "\n\n".join(
        part if part.startswith(_INDENT) else " ".join(part.split("\n")) for part in paragraphs
    )


EXPLANATIONS: Mapping[str, Explanation] = MappingProxyType(_read())
"""Explanations by id, in the order of catalog.toml."""
