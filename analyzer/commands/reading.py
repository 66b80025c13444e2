"""Names on the command line -> a ledger: what every command that reads a model does first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.commands.options import Bounded, Grouped
from analyzer.commands.terminal import progress
from analyzer.errors import UsageError
from analyzer.process.deadline import within

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.content import ContentMode
    from analyzer.ledger import Grouping, Ledger, Trainability

__all__ = ["SEARCH_SECONDS", "audit", "check_artifact", "group_ledger", "list_inputs"]

SEARCH_SECONDS = 5
"""CPU time that the user's own regexes may take."""


def check_artifact(bounded: Bounded, models: Sequence[str]) -> None:
    """Refuse `--artifact` where none of the models is a folder.

    Raises:
        UsageError: as said.
    """
    if bounded.artifact and not any(Path(model).is_dir() for model in models):
        raise UsageError("--artifact: says what one folder holds; name that folder and nothing else")


def list_inputs(model: str) -> list[Path]:
    """What is read of a model before its files are known."""
    from analyzer.artifact import EXPORT_NOTE

    return [Path(model), Path(model, EXPORT_NOTE)]


def group_ledger(ledger: Ledger, grouped: Grouped, known: Trainability | None = None) -> Grouping:
    """The groups that the options ask for.

    Raises:
        UsageError: they fit no model like this one, or a regex takes too long.
    """
    from analyzer.group import group_by
    from analyzer.group.patterns import group_by_patterns

    own = grouped.own_groups(ledger, known)
    if own is None:
        return group_by(ledger, grouped.by, grouped.depth, known)
    with within(SEARCH_SECONDS, f"{own.origin}: a regex takes too long; write it without nested repeats"):
        return group_by_patterns(ledger, own.patterns, known, match=own.match, origin=own.origin)


def audit(
    path: Path | str,
    bounded: Bounded | None = None,
    content: ContentMode | None = None,
    *,
    quiet: bool = False,
) -> Ledger:
    """The ledger of a model, with a bar while it is read."""
    from analyzer.audit import audit_model

    limit = bounded.max_objects if bounded is not None else None
    is_artifact = bounded is not None and bounded.artifact and Path(path).is_dir()
    with progress(f"reading {Path(path).name or path}", quiet) as tick:
        return audit_model(path, artifact=is_artifact, content=content, max_objects=limit, progress=tick)
