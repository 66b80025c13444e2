"""Accounts for every parameter and every byte of an exported ONNX model.

The names in `__all__` are the public interface; everything else may change. Each is imported on first use, so that
`import analyzer` costs nothing, and none of them imports torch, transformers, sympy or onnxruntime.

```python
from analyzer import compare, inspect, reconcile

report = inspect("model.onnx")
print(report.ledger.parameters, {group.name: group.parameters for group in report.grouping.groups})
print(reconcile("model.onnx", "manifest.json").balanced)
print(compare("model.onnx", "int8.onnx"))
```
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analyzer.account.artifact import find_components as find_components
    from analyzer.account.audit import audit_model as audit_model
    from analyzer.account.audit import file_digests as file_digests
    from analyzer.account.findings.catalog import Explanation as Explanation
    from analyzer.account.findings.catalog import explain as explain
    from analyzer.account.findings.catalog import load_explanations as load_explanations
    from analyzer.account.group import group_by as group_by
    from analyzer.account.group.keys import label_members as label_members
    from analyzer.account.group.patterns import OwnGroups as OwnGroups
    from analyzer.account.group.patterns import group_by_patterns as group_by_patterns
    from analyzer.account.group.patterns import parse_patterns as parse_patterns
    from analyzer.account.group.presets import find_preset as find_preset
    from analyzer.account.group.tree import build_tree as build_tree
    from analyzer.account.ledger import Blocks as Blocks
    from analyzer.account.ledger import Entry as Entry
    from analyzer.account.ledger import Finding as Finding
    from analyzer.account.ledger import Group as Group
    from analyzer.account.ledger import Grouping as Grouping
    from analyzer.account.ledger import Ledger as Ledger
    from analyzer.account.ledger import Role as Role
    from analyzer.budget.amounts import parse_limit as parse_limit
    from analyzer.budget.config import Config as Config
    from analyzer.budget.config import load_config as load_config
    from analyzer.budget.evaluate import check_budget as check_budget
    from analyzer.budget.evaluate import check_models as check_models
    from analyzer.budget.evaluate import judge_findings as judge_findings
    from analyzer.budget.record import BudgetReport as BudgetReport
    from analyzer.budget.record import Rule as Rule
    from analyzer.budget.record import Unit as Unit
    from analyzer.budget.record import Verdict as Verdict
    from analyzer.checkpoints import Original as Original
    from analyzer.checkpoints.checkpoint import open_checkpoint as open_checkpoint
    from analyzer.comparison import Comparison as Comparison
    from analyzer.comparison import compare_ledgers as compare_ledgers
    from analyzer.comparison import group_alike as group_alike
    from analyzer.cost.account import measure_cost as measure_cost
    from analyzer.cost.record import CostReport as CostReport
    from analyzer.documents.answer import Answer as Answer
    from analyzer.documents.saved import load_report as load_report
    from analyzer.documents.saved import read_any_report as read_any_report
    from analyzer.documents.saved.timing import load_timing as load_timing
    from analyzer.errors import OnnxLedgerError as OnnxLedgerError
    from analyzer.fleet.checking import check_lake as check_lake
    from analyzer.fleet.engines import find_engine as find_engine
    from analyzer.fleet.lake import open_lake as open_lake
    from analyzer.fleet.record import FleetSettings as FleetSettings
    from analyzer.fleet.run import survey_fleet as survey_fleet
    from analyzer.fleet.sql import answer_question as answer_question
    from analyzer.fleet.sql import ask_lake as ask_lake
    from analyzer.fleet.sql import render_lake as render_lake
    from analyzer.formats import render_report as render_report
    from analyzer.formats import render_saved as render_saved
    from analyzer.formats import save_report as save_report
    from analyzer.formats import to_document as to_document
    from analyzer.formats.graph.picture import draw_groups as draw_groups
    from analyzer.formats.lake import answer_as_json as answer_as_json
    from analyzer.formats.lake import answer_as_text as answer_as_text
    from analyzer.formats.lake import summary_as_text as summary_as_text
    from analyzer.formats.options import RenderOptions as RenderOptions
    from analyzer.formulas.check import check_formula as check_formula
    from analyzer.formulas.counting import count_config as count_config
    from analyzer.formulas.derived import derive_formula as derive_formula
    from analyzer.formulas.record import Checked as Checked
    from analyzer.formulas.record import Formula as Formula
    from analyzer.formulas.record import FormulaReport as FormulaReport
    from analyzer.graph import build_graph as build_graph
    from analyzer.graph.collapse import collapse_graph as collapse_graph
    from analyzer.graph.collapse import label_own as label_own
    from analyzer.manifest import Manifest as Manifest
    from analyzer.manifest import load_manifest as load_manifest
    from analyzer.manifest import save_manifest as save_manifest
    from analyzer.model import Model as Model
    from analyzer.process.child import Limits as Limits
    from analyzer.questions import compare as compare
    from analyzer.questions import inspect as inspect
    from analyzer.questions import reconcile as reconcile
    from analyzer.read import read_model as read_model
    from analyzer.reconciliation import Reconciliation as Reconciliation
    from analyzer.reconciliation import reconcile_ledger as reconcile_ledger
    from analyzer.reconciliation.verdict import keep_wiring as keep_wiring
    from analyzer.recover import Recovery as Recovery
    from analyzer.recover import recover_state as recover_state
    from analyzer.recover import save_state as save_state
    from analyzer.recover.ownnames import read_own_names as read_own_names
    from analyzer.reports import ExportReport as ExportReport
    from analyzer.reports import GraphReport as GraphReport
    from analyzer.reports import Inspection as Inspection
    from analyzer.reports import ReconcileReport as ReconcileReport
    from analyzer.reports import RecoverReport as RecoverReport
    from analyzer.reports import SurveyReport as SurveyReport
    from analyzer.survey import Survey as Survey
    from analyzer.survey import Surveyed as Surveyed
    from analyzer.survey import Unreadable as Unreadable
    from analyzer.survey import find_models as find_models
    from analyzer.survey import survey_models as survey_models
    from analyzer.timing.generation import GenerationTiming as GenerationTiming
    from analyzer.timing.generation import time_generation as time_generation
    from analyzer.timing.inputs.sizes import parse_shapes as parse_shapes
    from analyzer.timing.record import Timing as Timing
    from analyzer.timing.record import TimingSettings as TimingSettings
    from analyzer.timing.request import Optimization as Optimization
    from analyzer.timing.request import Schedule as Schedule
    from analyzer.timing.side_by_side import TimingComparison as TimingComparison
    from analyzer.timing.side_by_side import compare_timings as compare_timings
    from analyzer.timing.timer import time_model as time_model
    from analyzer.verify.executions import verify_executions as verify_executions
    from analyzer.verify.files import verify_files as verify_files
    from analyzer.verify.messages import Execution as Execution
    from analyzer.verify.record import VerifyReport as VerifyReport

__all__ = [
    "Answer",
    "Blocks",
    "BudgetReport",
    "Checked",
    "Comparison",
    "Config",
    "CostReport",
    "Entry",
    "Execution",
    "Explanation",
    "ExportReport",
    "Finding",
    "FleetSettings",
    "Formula",
    "FormulaReport",
    "GenerationTiming",
    "GraphReport",
    "Group",
    "Grouping",
    "Inspection",
    "Ledger",
    "Limits",
    "Manifest",
    "Model",
    "OnnxLedgerError",
    "Optimization",
    "Original",
    "OwnGroups",
    "ReconcileReport",
    "Reconciliation",
    "RecoverReport",
    "Recovery",
    "RenderOptions",
    "Role",
    "Rule",
    "Schedule",
    "Survey",
    "SurveyReport",
    "Surveyed",
    "Timing",
    "TimingComparison",
    "TimingSettings",
    "Unit",
    "Unreadable",
    "Verdict",
    "VerifyReport",
    "answer_as_json",
    "answer_as_text",
    "answer_question",
    "ask_lake",
    "audit_model",
    "build_graph",
    "build_tree",
    "check_budget",
    "check_formula",
    "check_lake",
    "check_models",
    "collapse_graph",
    "compare",
    "compare_ledgers",
    "compare_timings",
    "count_config",
    "derive_formula",
    "draw_groups",
    "explain",
    "file_digests",
    "find_components",
    "find_engine",
    "find_models",
    "find_preset",
    "group_alike",
    "group_by",
    "group_by_patterns",
    "inspect",
    "judge_findings",
    "keep_wiring",
    "label_members",
    "label_own",
    "load_config",
    "load_explanations",
    "load_manifest",
    "load_report",
    "load_timing",
    "measure_cost",
    "open_checkpoint",
    "open_lake",
    "parse_limit",
    "parse_patterns",
    "parse_shapes",
    "read_any_report",
    "read_model",
    "read_own_names",
    "reconcile",
    "reconcile_ledger",
    "recover_state",
    "render_lake",
    "render_report",
    "render_saved",
    "save_manifest",
    "save_report",
    "save_state",
    "summary_as_text",
    "survey_fleet",
    "survey_models",
    "time_generation",
    "time_model",
    "to_document",
    "verify_executions",
    "verify_files",
]

_MODULES = {
    "Answer": "documents.answer",
    "Blocks": "account.ledger",
    "BudgetReport": "budget.record",
    "Checked": "formulas.record",
    "Comparison": "comparison",
    "Config": "budget.config",
    "CostReport": "cost.record",
    "Entry": "account.ledger",
    "Execution": "verify.messages",
    "Explanation": "account.findings.catalog",
    "ExportReport": "reports",
    "Finding": "account.ledger",
    "FleetSettings": "fleet.record",
    "Formula": "formulas.record",
    "FormulaReport": "formulas.record",
    "GenerationTiming": "timing.generation",
    "GraphReport": "reports",
    "Group": "account.ledger",
    "Grouping": "account.ledger",
    "Inspection": "reports",
    "Ledger": "account.ledger",
    "Limits": "process.child",
    "Manifest": "manifest",
    "Model": "model",
    "OnnxLedgerError": "errors",
    "Optimization": "timing.request",
    "Original": "checkpoints",
    "OwnGroups": "account.group.patterns",
    "ReconcileReport": "reports",
    "Reconciliation": "reconciliation",
    "RecoverReport": "reports",
    "Recovery": "recover",
    "RenderOptions": "formats.options",
    "Role": "account.ledger",
    "Rule": "budget.record",
    "Schedule": "timing.request",
    "Survey": "survey",
    "SurveyReport": "reports",
    "Surveyed": "survey",
    "Timing": "timing.record",
    "TimingComparison": "timing.side_by_side",
    "TimingSettings": "timing.record",
    "Unit": "budget.record",
    "Unreadable": "survey",
    "Verdict": "budget.record",
    "VerifyReport": "verify.record",
    "answer_as_json": "formats.lake",
    "answer_as_text": "formats.lake",
    "answer_question": "fleet.sql",
    "ask_lake": "fleet.sql",
    "audit_model": "account.audit",
    "build_graph": "graph",
    "build_tree": "account.group.tree",
    "check_budget": "budget.evaluate",
    "check_formula": "formulas.check",
    "check_lake": "fleet.checking",
    "check_models": "budget.evaluate",
    "collapse_graph": "graph.collapse",
    "draw_groups": "formats.graph.picture",
    "compare": "questions",
    "compare_ledgers": "comparison",
    "compare_timings": "timing.side_by_side",
    "count_config": "formulas.counting",
    "derive_formula": "formulas.derived",
    "explain": "account.findings.catalog",
    "file_digests": "account.audit",
    "find_components": "account.artifact",
    "find_engine": "fleet.engines",
    "find_models": "survey",
    "find_preset": "account.group.presets",
    "group_alike": "comparison",
    "group_by": "account.group",
    "group_by_patterns": "account.group.patterns",
    "inspect": "questions",
    "judge_findings": "budget.evaluate",
    "keep_wiring": "reconciliation.verdict",
    "label_members": "account.group.keys",
    "label_own": "graph.collapse",
    "load_config": "budget.config",
    "load_explanations": "account.findings.catalog",
    "load_manifest": "manifest",
    "load_report": "documents.saved",
    "load_timing": "documents.saved.timing",
    "measure_cost": "cost.account",
    "open_checkpoint": "checkpoints.checkpoint",
    "open_lake": "fleet.lake",
    "parse_limit": "budget.amounts",
    "parse_patterns": "account.group.patterns",
    "parse_shapes": "timing.inputs.sizes",
    "read_any_report": "documents.saved",
    "read_model": "read",
    "read_own_names": "recover.ownnames",
    "reconcile": "questions",
    "reconcile_ledger": "reconciliation",
    "recover_state": "recover",
    "render_lake": "fleet.sql",
    "render_report": "formats",
    "render_saved": "formats",
    "save_manifest": "manifest",
    "save_report": "formats",
    "save_state": "recover",
    "summary_as_text": "formats.lake",
    "survey_fleet": "fleet.run",
    "survey_models": "survey",
    "time_generation": "timing.generation",
    "time_model": "timing.timer",
    "to_document": "formats",
    "verify_executions": "verify.executions",
    "verify_files": "verify.files",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("analyzer.version").version()
    if name not in _MODULES:
        raise AttributeError(f"module 'analyzer' has no attribute {name!r}")
    return getattr(importlib.import_module(f"analyzer.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
