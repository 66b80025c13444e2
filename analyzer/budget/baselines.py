"""Names of baselines -> their ledgers, each read once, and the part of one that is beside a part of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from analyzer.budget.measuring import CONTENT_MATTERS
from analyzer.budget.metrics import Metric
from analyzer.budget.record import Over
from analyzer.budget.selecting import Selection, Unknown, select
from analyzer.errors import OnnxLedgerError
from analyzer.group.patterns import Searcher
from analyzer.ledger import Ledger

__all__ = ["Baselines"]


class Baselines:
    """What relative limits are over."""

    def __init__(self, default: str | None, read: Callable[[str], Ledger]) -> None:
        self._default, self._read = default, read
        self._known: dict[str, Ledger | Unknown] = {}

    def name(self, limit: Over) -> str | None:
        """The baseline of one limit, its own or that of all; None where there is none."""
        return self._default if limit.baseline is None else limit.baseline

    def select(
        self, limit: Over, group: str | None, metric: Metric, model: Ledger, groups: Mapping[str, Searcher]
    ) -> tuple[Selection, ...] | Unknown:
        """The parts of the baseline that are called as a rule calls those of the model."""
        ledger = self._load(self.name(limit))
        if isinstance(ledger, Unknown):
            return ledger
        if metric.name in CONTENT_MATTERS and (ledger.content == "none") != (model.content == "none"):
            which = "the baseline" if ledger.content == "none" else "the model"
            return Unknown(f"contents of {which} were not looked at; --content sampled makes both comparable")
        found = select(ledger, group, groups)
        if isinstance(found, Unknown):
            return Unknown(f"the baseline {self.name(limit)} lacks it: {found.reason}")
        return found

    def _load(self, name: str | None) -> Ledger | Unknown:
        if name is None:
            return Unknown(
                "a growth, and no baseline: write 'over FILE' in the limit, or give --baseline FILE"
            )
        if name not in self._known:
            try:
                self._known[name] = self._read(name)
            except OnnxLedgerError as error:
                self._known[name] = Unknown(f"the baseline cannot be read: {error}")
        return self._known[name]
