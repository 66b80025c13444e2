"""The script of CI: it installs a browser if there is none, and then runs the README's command for every test."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import chromium
import pytest

pytestmark = pytest.mark.child

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "run"
INSTALL = ["apt-get update -qq", "apt-get install -y -qq --no-install-recommends chromium"]


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """Return a folder for the PATH, with stand-ins that only record how they were called."""
    for name in ("apt-get", "make"):
        stub(tmp_path, name, f'echo "{name} $*" >> "{tmp_path}/calls"')
    stub(tmp_path, "id", "echo 0")
    for name in ("bash", "dirname"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    return tmp_path


def stub(folder: Path, name: str, line: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def calls(commands: Path) -> list[str]:
    """Return the script's calls on a machine that has these commands and no others."""
    kept = {key: value for key, value in os.environ.items() if key != chromium.VARIABLE}
    subprocess.run([SCRIPT], env=kept | {"PATH": str(commands)}, check=True)
    return (commands / "calls").read_text().splitlines()


def test_root_gets_a_browser_and_then_the_tests_run(commands: Path) -> None:
    assert calls(commands) == [*INSTALL, "make test"]


@pytest.mark.parametrize("name", chromium.NAMES)
def test_a_browser_that_is_there_is_taken(commands: Path, name: str) -> None:
    stub(commands, name, "exit 0")

    assert calls(commands) == ["make test"]


def test_whoever_is_not_root_installs_nothing(commands: Path) -> None:
    stub(commands, "id", "echo 1000")

    assert calls(commands) == ["make test"]


def test_the_readme_names_the_same_command() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()

    assert any(line.split("#")[0].strip() == "make test" for line in lines)
