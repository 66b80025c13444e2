"""What is installed is what the repository says."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_installed_version_is_that_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert importlib.metadata.version("onnxledger") == project["version"]


def test_a_wheel_holds_every_file_of_both_packages(tmp_path: Path) -> None:
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in ("analyzer", "exporter")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }

    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert {"analyzer/py.typed", "exporter/py.typed"} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.parametrize("tool", ["ruff", "codespell", "validate-pyproject"])
def test_pre_commit_and_make_check_run_the_same_version(tool: str) -> None:
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")

    (pinned,) = re.findall(rf"^{tool}==(.+)$", constraints, re.MULTILINE)
    (hooked,) = re.findall(rf"/{tool}(?:-pre-commit)?\n\s+rev: v(.+)$", hooks, re.MULTILINE)

    assert hooked == pinned
