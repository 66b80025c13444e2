"""Answers of onnxledger to the external cases, one row each.

Run it with `python benchmarks/cases.py --markdown docs/evidence/cases.md`.

The cases are third-party files in `../shared/models`, or below `$ONNXLEDGER_CASES`, and not in this repository.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from analyzer.account.audit import audit_model  # noqa: E402
from analyzer.account.ledger import Ledger, Role  # noqa: E402
from analyzer.errors import OnnxLedgerError  # noqa: E402

INTRODUCTION = """# Files of others

The answers of `onnxledger inspect` to {cases} public files, each with a trap for counting. The files are not in this
repository; `expected.json` beside them has the facts that `tests/test_cases.py` compares. Written by `python
benchmarks/cases.py --markdown docs/evidence/cases.md`.

*Parameters* are logical learned elements: a packed 4-bit weight counts its logical elements, a copy counts none.
*Stored* are elements by role: {roles}; roles without elements are omitted. Findings are those of `inspect` with default
options.
"""
COLUMNS = ("case", "trap", "parameters", "stored elements", "findings")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    options = parser.parse_args()
    folder = Path(os.environ.get("ONNXLEDGER_CASES", ROOT.parent / "shared")) / "models"
    if not (folder / "expected.json").is_file():
        raise SystemExit(f"{folder}: no expected.json; set ONNXLEDGER_CASES to the folder of external cases")
    cases = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["cases"]
    roles = ", ".join(f"{short} {role.value}" for role, short in SHORT.items())
    document = (
        INTRODUCTION.format(cases=len(cases), roles=roles) + "\n" + "\n".join(table(cases, folder)) + "\n"
    )
    if options.markdown:
        options.markdown.write_text(document, encoding="utf-8")
    else:
        print(document)


SHORT = {
    Role.PARAMETER: "P",
    Role.BUFFER: "B",
    Role.QUANTIZATION: "Q",
    Role.CONSTANT: "C",
    Role.UNATTRIBUTED: "U",
}


def table(cases: list[dict[str, Any]], folder: Path) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield "| --- | --- | --: | --- | --- |"
    for case in sorted(cases, key=lambda case: case["case"]):
        cells = (f"`{case['case']}`", escaped(case["trait"]), *inspect_cells(folder / case["file"]))
        yield f"| {' | '.join(cells)} |"


def inspect_cells(path: Path) -> tuple[str, str, str]:
    """Return the parameters, the stored elements by role, and the findings."""
    try:
        ledger = audit_model(path)
    except OnnxLedgerError as error:
        return "", "refused", escaped(str(error).removeprefix(f"{path}: "))
    ids = Counter(finding.id for finding in ledger.findings)
    return f"{ledger.parameters:,}", count_by_role(ledger), ", ".join(ids) or "none"


def count_by_role(ledger: Ledger) -> str:
    counts: Counter[Role] = Counter()
    for entry in ledger.entries:
        counts[entry.role] += entry.tensor.numel
    return ", ".join(f"{short} {counts[role]:,}" for role, short in SHORT.items() if counts[role]) or "none"


def escaped(text: str) -> str:
    """Escape third-party text for a table cell."""
    return (
        re.sub(r"([\\`*_\[\]|~])", r"\\\1", text)
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
    )


if __name__ == "__main__":
    main()
