"""The enums of the code -> the values that the schemas allow: a `$def` for each, which every key that has it refers to.

`python -m schema_values` rewrites them in the schemas that have them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from analyzer.budget import metrics
from analyzer.budget import record as budget
from analyzer.compare import record as compare
from analyzer.content import ContentMode
from analyzer.dtypes import DType
from analyzer.findings.catalog import load_explanations
from analyzer.formulas import memory
from analyzer.formulas import record as formulas
from analyzer.ledger import Evidence, Match, Role, Severity
from analyzer.model import Carrier
from analyzer.reconcile.lines import Compared, Line, Reads
from analyzer.schemas import SCHEMAS
from analyzer.timing import growth, request

FOLDER = Path(__file__).parents[1] / "analyzer" / "schemas"

VALUES: Mapping[str, Iterable[str | None]] = {
    "carrier": Carrier,
    "certainty": formulas.Certainty,
    "change": compare.Change,
    "compared": get_args(Compared),
    "content_mode": get_args(ContentMode),
    "dtype": [dtype.name for dtype in DType],
    "evidence": Evidence,
    "field_origin": formulas.FieldOrigin,
    "fill": request.Fill,
    "finding_id": [explanation.id for explanation in load_explanations()],
    "formula_kind": formulas.Kind,
    "kernel_clock": get_args(request.Clock),
    "limit_kind": get_args(metrics.Kind),
    "line": Line,
    "match": [*get_args(Match), None],
    "measuring_order": get_args(request.MeasuringOrder),
    "optimization": request.Optimization,
    "order": growth.Order,
    "part_matched_by": formulas.MatchedBy,
    "precision": [precision.label for precision in memory.Precision],
    "reads": get_args(Reads),
    "rule_status": budget.Status,
    "severity": Severity,
    "skipped": [*budget.Skipped, None],
    "status": compare.Status,
    "tensor_matched_by": [*compare.MatchedBy, None],
    "tensor_role": Role,
    "unit": budget.Unit,
}
"""By the name of the `$def`."""


def allowed(name: str) -> list[str | None]:
    """The values of a `$def`, as JSON has them."""
    return [None if value is None else str(value) for value in VALUES[name]]


def enums(schema: Any) -> Iterator[dict[str, Any]]:
    """Every part of a schema that lists values."""
    if isinstance(schema, dict) and "enum" in schema:
        yield schema
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from enums(value)


def rewrite(text: str) -> str:
    """A schema with the values that the code has now."""
    schema = json.loads(text)
    for name, part in schema["$defs"].items():
        if name in VALUES:
            part["enum"] = allowed(name)
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    for name in SCHEMAS:
        path = FOLDER / f"{name}.schema.json"
        path.write_text(rewrite(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
