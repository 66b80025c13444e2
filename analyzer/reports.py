"""Reports: the record that a command returns and every format renders, without columns, colours and flags."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from analyzer.account.artifact.components import ComponentTotals, count_components
from analyzer.account.findings import OPAQUE, UNATTRIBUTED, WEIGHTLESS
from analyzer.account.group.patterns import find_overlap
from analyzer.account.ledger import Finding, Grouping, Ledger, Severity
from analyzer.records import Frozen, field

if TYPE_CHECKING:  # keeps rules and other commands out of the import of a record
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
    """Time at which the report was made, if a stamp was requested."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the model, and of the groups."""
        return _sorted(self.ledger.findings, find_overlap(self.grouping))

    @property
    def components(self) -> tuple[ComponentTotals, ...]:
        """Totals of each file of an artifact; empty where the model is one file."""
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
        """Findings of the model, of the reconciliation, and of the groups."""
        result = self.reconciliation
        # The reconciliation has a line for each tensor, and knows more of it than the file alone.
        known = {OPAQUE, UNATTRIBUTED}
        alone = [each for each in result.ledger.findings if each.id not in known]
        if result.onnx_parameters:
            alone = [each for each in alone if (each.id, each.severity) != (WEIGHTLESS, Severity.NOTE)]
        return _sorted(tuple(alone), result.findings, find_overlap(self.grouping))


class ExportReport(Frozen):
    """`export`: the files that were written, and their reconciliation."""

    files: tuple[str, ...]
    reconcile: ReconcileReport


class RecoverReport(Frozen):
    """`recover`: the part of the state dict that the file holds, and the path where it was written."""

    recovery: Recovery
    output: str | None
    """The state dict's file; None where none was written."""
    lossless: bool = False
    """Whether tensors that lost bits were refused."""
    stamp: str | None = None


GraphMetric: TypeAlias = Literal["parameters", "stored_elements", "bytes"]
"""Number that a drawing can show for each of its vertices."""


class GraphReport(Frozen):
    """`graph`: a model as a graph, whole or collapsed; it has its own formats (`analyzer.formats.graph`)."""

    graph: nx.MultiDiGraph[Any]
    """Result of `analyzer.graph.build_graph` or `analyzer.graph.collapse.collapse_graph`."""
    metric: GraphMetric = "parameters"
    """Number that node data for Model Explorer give for each node."""


def _sorted(*findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(sorted(itertools.chain(*findings), key=lambda finding: finding.id))


Report: TypeAlias = (
    "Inspection | SurveyReport | ReconcileReport | ExportReport | RecoverReport | Comparison"
    " | BudgetReport | VerifyReport | CostReport | FormulaReport | Timing | TimingComparison | GenerationTiming"
)
