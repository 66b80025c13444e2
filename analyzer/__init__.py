"""Accounts for every parameter and every byte of an exported ONNX model.

The names in `__all__` are the public interface; everything else may change. Each is imported on first use, so that
`import analyzer` costs nothing, and none of them imports torch, transformers, sympy or onnxruntime.

```python
from analyzer import audit_model, group_by, load_manifest, reconcile_ledger

ledger = audit_model("model.onnx")
print(ledger.parameters, {group.name: group.parameters for group in group_by(ledger).groups})
print(reconcile_ledger(ledger, load_manifest("manifest.json")).balanced)
```
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analyzer.audit import audit_model as audit_model
    from analyzer.budget.evaluate import check_budget as check_budget
    from analyzer.budget.limits import parse_limit as parse_limit
    from analyzer.budget.record import BudgetReport as BudgetReport
    from analyzer.budget.record import Rule as Rule
    from analyzer.budget.record import Verdict as Verdict
    from analyzer.collapse import collapse_graph as collapse_graph
    from analyzer.compare import Comparison as Comparison
    from analyzer.compare import compare_ledgers as compare_ledgers
    from analyzer.errors import OnnxLedgerError as OnnxLedgerError
    from analyzer.findings.catalog import Explanation as Explanation
    from analyzer.findings.catalog import explain as explain
    from analyzer.formulas.check import check_formula as check_formula
    from analyzer.formulas.counting import count_config as count_config
    from analyzer.formulas.derived import derive_formula as derive_formula
    from analyzer.formulas.record import Checked as Checked
    from analyzer.formulas.record import Formula as Formula
    from analyzer.graph import build_graph as build_graph
    from analyzer.group import group_by as group_by
    from analyzer.group.keys import label_members as label_members
    from analyzer.group.patterns import group_by_patterns as group_by_patterns
    from analyzer.group.patterns import parse_patterns as parse_patterns
    from analyzer.group.tree import build_tree as build_tree
    from analyzer.ledger import Blocks as Blocks
    from analyzer.ledger import Entry as Entry
    from analyzer.ledger import Finding as Finding
    from analyzer.ledger import Group as Group
    from analyzer.ledger import Grouping as Grouping
    from analyzer.ledger import Ledger as Ledger
    from analyzer.ledger import Role as Role
    from analyzer.manifest import Manifest as Manifest
    from analyzer.manifest import load_manifest as load_manifest
    from analyzer.manifest import save_manifest as save_manifest
    from analyzer.model import Model as Model
    from analyzer.read import read_model as read_model
    from analyzer.reconcile import Reconciliation as Reconciliation
    from analyzer.reconcile import reconcile_ledger as reconcile_ledger
    from analyzer.recover import Recovery as Recovery
    from analyzer.recover import recover_state as recover_state
    from analyzer.recover import save_state as save_state
    from analyzer.saved import load_report as load_report
    from analyzer.survey import Survey as Survey
    from analyzer.survey import Surveyed as Surveyed
    from analyzer.survey import Unreadable as Unreadable
    from analyzer.survey import survey_models as survey_models
    from analyzer.timing.compare import TimingComparison as TimingComparison
    from analyzer.timing.compare import compare_timings as compare_timings
    from analyzer.timing.inputs.shapes import parse_shapes as parse_shapes
    from analyzer.timing.record import Timing as Timing
    from analyzer.timing.record import TimingSettings as TimingSettings
    from analyzer.timing.saved import load_timing as load_timing
    from analyzer.timing.timer import time_model as time_model

__all__ = [
    "Blocks",
    "BudgetReport",
    "Checked",
    "Comparison",
    "Entry",
    "Explanation",
    "Finding",
    "Formula",
    "Group",
    "Grouping",
    "Ledger",
    "Manifest",
    "Model",
    "OnnxLedgerError",
    "Reconciliation",
    "Recovery",
    "Role",
    "Rule",
    "Survey",
    "Surveyed",
    "Timing",
    "TimingComparison",
    "TimingSettings",
    "Unreadable",
    "Verdict",
    "audit_model",
    "build_graph",
    "build_tree",
    "check_budget",
    "check_formula",
    "collapse_graph",
    "compare_ledgers",
    "compare_timings",
    "count_config",
    "derive_formula",
    "explain",
    "group_by",
    "group_by_patterns",
    "label_members",
    "load_manifest",
    "load_report",
    "load_timing",
    "parse_limit",
    "parse_patterns",
    "parse_shapes",
    "read_model",
    "reconcile_ledger",
    "recover_state",
    "save_manifest",
    "save_state",
    "survey_models",
    "time_model",
]

_MODULES = {
    "Blocks": "ledger",
    "BudgetReport": "budget.record",
    "Checked": "formulas.record",
    "Comparison": "compare",
    "Entry": "ledger",
    "Explanation": "findings.catalog",
    "Finding": "ledger",
    "Formula": "formulas.record",
    "Group": "ledger",
    "Grouping": "ledger",
    "Ledger": "ledger",
    "Manifest": "manifest",
    "Model": "model",
    "OnnxLedgerError": "errors",
    "Reconciliation": "reconcile",
    "Recovery": "recover",
    "Role": "ledger",
    "Rule": "budget.record",
    "Survey": "survey",
    "Surveyed": "survey",
    "Timing": "timing.record",
    "TimingComparison": "timing.compare",
    "TimingSettings": "timing.record",
    "Unreadable": "survey",
    "Verdict": "budget.record",
    "audit_model": "audit",
    "build_graph": "graph",
    "build_tree": "group.tree",
    "check_budget": "budget.evaluate",
    "check_formula": "formulas.check",
    "collapse_graph": "collapse",
    "compare_ledgers": "compare",
    "compare_timings": "timing.compare",
    "count_config": "formulas.counting",
    "derive_formula": "formulas.derived",
    "explain": "findings.catalog",
    "group_by": "group",
    "group_by_patterns": "group.patterns",
    "label_members": "group.keys",
    "load_manifest": "manifest",
    "load_report": "saved",
    "load_timing": "timing.saved",
    "parse_limit": "budget.limits",
    "parse_patterns": "group.patterns",
    "parse_shapes": "timing.inputs.shapes",
    "read_model": "read",
    "reconcile_ledger": "reconcile",
    "recover_state": "recover",
    "save_manifest": "manifest",
    "save_state": "recover",
    "survey_models": "survey",
    "time_model": "timing.timer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'analyzer' has no attribute {name!r}")
    return getattr(importlib.import_module(f"analyzer.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
