"""Names of models, folders and saved reports -> a ledger for each, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.commands.options import Bounded
from analyzer.commands.reading import audit
from analyzer.errors import OnnxLedgerError, UsageError

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.content import ContentMode
    from analyzer.ledger import Ledger

__all__ = ["ModelReader", "find_models"]


class ModelReader:
    """What reads models and saved reports, each once."""

    def __init__(self, bounded: Bounded, content: ContentMode | None, quiet: bool) -> None:
        self._bounded, self._content, self._quiet = bounded, content, quiet
        self._known: dict[str, Ledger | OnnxLedgerError] = {}

    def read(self, name: str) -> Ledger:
        """The ledger of a model, or of a saved report.

        Raises:
            OnnxLedgerError: it cannot be read.
        """
        if name not in self._known:
            self._known[name] = self._try(name)
        found = self._known[name]
        if isinstance(found, OnnxLedgerError):
            raise found
        return found

    def read_all(self, names: Iterable[str], lost: dict[str, str]) -> dict[str, Ledger]:
        """The ledgers of all models; of one that cannot be read, `lost` says why."""
        ledgers = {}
        for name in names:
            try:
                ledgers[name] = self.read(name)
            except OnnxLedgerError as error:
                lost[name] = str(error).removeprefix(f"{name}: ")
        return ledgers

    def _try(self, name: str) -> Ledger | OnnxLedgerError:
        from analyzer.saved import load_report

        try:
            if _is_report(name):
                return load_report(name)
            return audit(name, self._bounded, self._content, quiet=self._quiet)
        except OnnxLedgerError as error:
            return error
        except OSError as error:
            return UsageError(f"{name}: cannot be read: {error.strerror or error}")


def _is_report(name: str) -> bool:
    from analyzer.saved import is_saved_report

    return is_saved_report(Path(name)) and not Path(name).is_dir()


def find_models(models: Sequence[str], bounded: Bounded) -> tuple[list[str], dict[str, str]]:
    """The models that are meant, each once, and why there is none in a folder."""
    from analyzer.artifact import is_artifact
    from analyzer.survey import find_models as list_models

    names: dict[str, None] = {}
    lost: dict[str, str] = {}
    for model in models:
        is_one = bounded.artifact or is_artifact(model)
        for found in [model] if is_one else list_models([model]):
            if isinstance(found, str):
                names[found] = None
            else:
                lost[found.path] = found.error.removeprefix(f"{found.path}: ")
    return list(names), lost
