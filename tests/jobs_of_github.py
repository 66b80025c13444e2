"""The steps of action.yml, run in bash as GitHub's runner runs them, without those that need a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

__all__ = ["ROOT", "Finished", "read_action", "run_step", "runner"]

ROOT = Path(__file__).parent.parent

_EXPRESSION = re.compile(r"\$\{\{ (.+?) \}\}")


@dataclass(frozen=True)
class Finished:
    """Results of a step."""

    code: int
    stdout: str
    stderr: str
    outputs: dict[str, str]
    summary: str


def read_action() -> Any:
    return yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


def runner(folder: Path) -> Path:
    """Make a runner's folder for a job, with this source tree in the place where the action installs onnxledger."""
    binaries = folder / "temp" / "onnxledger" / "bin"
    binaries.mkdir(parents=True)
    for name, command in (
        ("onnxledger", f'"{sys.executable}" -m analyzer'),
        ("python", f'"{sys.executable}"'),
    ):
        shim = binaries / name
        shim.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec {command} "$@"\n')
        shim.chmod(0o755)
    (folder / "work").mkdir()
    return folder


def run_step(step: Mapping[str, Any], arguments: Mapping[str, str], folder: Path, **more: str) -> Finished:
    """Run one step with these inputs; all other values in its expressions are empty."""
    inputs = {name: about.get("default", "") for name, about in read_action()["inputs"].items()}
    assert set(arguments) <= set(inputs)
    values = {f"inputs.{name}": value for name, value in (inputs | dict(arguments)).items()}
    values["github.action_path"] = str(folder / "action")
    output, summary, script = (folder / name for name in ("output", "summary.md", "script.sh"))
    for path in (output, summary):
        path.write_text("")
    script.write_text(step["run"])
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
        "GITHUB_ACTIONS": "true",
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
        "RUNNER_TEMP": str(folder / "temp"),
        **{name: _evaluate(text, values) for name, text in step["env"].items()},
        **more,
    }
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    done = subprocess.run(
        bash, cwd=folder / "work", env=environment, capture_output=True, text=True, check=False
    )
    pairs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return Finished(done.returncode, done.stdout, done.stderr, pairs, summary.read_text())


def _evaluate(text: str, values: Mapping[str, str]) -> str:
    """Evaluate an expression of names and `||`, the only kind in action.yml."""

    def value(found: re.Match[str]) -> str:
        names = [name.strip() for name in found[1].split("||")]
        read = (name.strip("'") if name.startswith("'") else values.get(name, "") for name in names)
        return next((each for each in read if each), "")

    return _EXPRESSION.sub(value, text)
