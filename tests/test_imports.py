"""The analyzer starts without the libraries that only exporting and timing need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"jinja2", "matplotlib", "onnx_ir", "onnxruntime", "onnxscript", "sympy", "torch", "transformers"}


@pytest.mark.parametrize("module", ["analyzer", "analyzer.cli"])
def test_importing_the_analyzer_imports_nothing_heavy(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert HEAVY.isdisjoint(json.loads(done.stdout))


def test_python_dash_m_analyzer_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "analyzer", "--help"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: ")
    assert "inspect" in done.stdout
