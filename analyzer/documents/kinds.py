"""Names of schemas -> document records of every kind; for code that needs all kinds, as a report needs one alone."""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.documents.base import Head
from analyzer.documents.check import CheckDocument
from analyzer.documents.compare import CompareDocument
from analyzer.documents.compare_time import CompareSweepDocument, CompareTimeDocument
from analyzer.documents.cost import CostDocument
from analyzer.documents.explain import ExplainDocument
from analyzer.documents.formula import FormulaDocument
from analyzer.documents.generation import GenerationDocument
from analyzer.documents.graph import GraphDocument
from analyzer.documents.inspect import InspectDocument
from analyzer.documents.lake import LakeDocument
from analyzer.documents.reconcile import ExportDocument, ReconcileDocument
from analyzer.documents.recover import RecoverDocument
from analyzer.documents.survey import SurveyDocument
from analyzer.documents.time import SweepDocument, TimeDocument
from analyzer.documents.verify import VerifyDocument

DOCUMENTS: Mapping[str, type[Head]] = {
    "check": CheckDocument,
    "compare": CompareDocument,
    "compare_sweep": CompareSweepDocument,
    "compare_time": CompareTimeDocument,
    "cost": CostDocument,
    "explain": ExplainDocument,
    "export": ExportDocument,
    "formula": FormulaDocument,
    "generation": GenerationDocument,
    "graph": GraphDocument,
    "inspect": InspectDocument,
    "lake": LakeDocument,
    "reconcile": ReconcileDocument,
    "recover": RecoverDocument,
    "survey": SurveyDocument,
    "sweep": SweepDocument,
    "time": TimeDocument,
    "verify": VerifyDocument,
}
"""Record of each kind of document, by the name of its schema."""
