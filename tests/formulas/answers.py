"""`onnxledger formula`, as the tests call it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from analyzer.cli import command


def answer(*arguments: str | Path) -> tuple[dict[str, Any], int]:
    """Return the JSON report and the exit code."""
    line = ["formula", *map(str, arguments), "--format", "json"]
    result = CliRunner().invoke(command, line, catch_exceptions=False)
    return json.loads(result.stdout), result.exit_code


def differing(report: dict[str, Any]) -> dict[str, int]:
    """Return the nonzero differences from the formula, by part."""
    parts = [(f"{term['term']}/{part['part']}", part) for term in report["terms"] for part in term["parts"]]
    return {key: part["difference"] for key, part in parts if part["difference"]}


def alone(model: Path, folder: Path) -> Path:
    """Copy the file and its data without the other files beside it."""
    for path in model.parent.glob("model.onnx*"):
        shutil.copy(path, folder)
    return folder / model.name
