"""Names on the command line -> a ledger: what every command that reads a model does first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.errors import UsageError
from analyzer.options import Bounded
from analyzer.terminal import progress

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.content import ContentMode
    from analyzer.ledger import Ledger

__all__ = ["SEARCH_SECONDS", "audit", "check_artifact", "list_inputs"]

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
