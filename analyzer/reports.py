"""What a command answers: the record that every format renders. Columns, colours and flags are not known here."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from analyzer.account.artifact.components import ComponentTotals, count_components
from analyzer.account.findings import OPAQUE
from analyzer.account.group.patterns import find_overlap
from analyzer.account.ledger import Finding, Grouping, Ledger
from analyzer.records import Frozen, field

if TYPE_CHECKING:  # a record needs no rules, and an inspection none of the others
    import networkx as nx

    from analyzer.budget.record import BudgetReport
    from analyzer.comparison.record import Comparison
    from analyzer.cost.record import CostReport
    from analyzer.formulas.record import FormulaReport
    from analyzer.reconciliation.lines import Reconciliation
    from analyzer.recover import Recovery
    from analyzer.survey import Survey
    from analyzer.timing.generation import GenerationTiming
    from analyzer.timing.record import Timing
    from analyzer.timing.side_by_side import TimingComparison
    from analyzer.verify.record import VerifyReport


class Inspection(Frozen):
    """`inspect`: the ledger of one model or one artifact, grouped."""

    ledger: Ledger
    grouping: Grouping
    digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file, by its path in `ledger.model.files`; empty unless asked for."""
    stamp: str | None = None
    """When the report was made, if it was asked for."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those of the model, and of the groups."""
        return _sorted(self.ledger.findings, find_overlap(self.grouping))

    @property
    def components(self) -> tuple[ComponentTotals, ...]:
        """What each file of an artifact holds; nothing where the model is one file."""
        return count_components(self.ledger)


class SurveyReport(Frozen):
    """`inspect` of many models: a row each."""

    survey: Survey
    stamp: str | None = None


class ReconcileReport(Frozen):
    """`reconcile`: a reconciliation, with its subgraphs in PyTorch's terms."""

    reconciliation: Reconciliation
    grouping: Grouping
    stamp: str | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those of the model, of the reconciliation, and of the groups."""
        result = self.reconciliation
        # What the file alone says of opaque data, PyTorch's side says better.
        alone = tuple(each for each in result.ledger.findings if each.id != OPAQUE)
        return _sorted(alone, result.findings, find_overlap(self.grouping))


class ExportReport(Frozen):
    """`export`: the files that were written, and their reconciliation."""

    files: tuple[str, ...]
    reconcile: ReconcileReport


class RecoverReport(Frozen):
    """`recover`: what of the state dict the file holds, and where it was written."""

    recovery: Recovery
    output: str | None
    """The state dict's file; None where none was written."""
    lossless: bool = False
    """Whether tensors that lost bits were refused."""
    stamp: str | None = None


GraphMetric: TypeAlias = Literal["parameters", "stored_elements", "bytes"]
"""What a drawing can say of each of its vertices."""


class GraphReport(Frozen):
    """`graph`: a model as a graph, whole or collapsed. Its formats are its own (`analyzer.formats.graph`)."""

    graph: nx.MultiDiGraph[Any]
    """What `analyzer.graph.build_graph` or what `analyzer.graph.collapse.collapse_graph` makes."""
    metric: GraphMetric = "parameters"
    """What node data for Model Explorer say of each node."""


def _sorted(*findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(sorted(itertools.chain(*findings), key=lambda finding: finding.id))


Report: TypeAlias = (
    "Inspection | SurveyReport | ReconcileReport | ExportReport | RecoverReport | Comparison"
    " | BudgetReport | VerifyReport | CostReport | FormulaReport | Timing | TimingComparison | GenerationTiming"
)
