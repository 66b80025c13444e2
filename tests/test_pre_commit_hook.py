"""The pre-commit hook: a commit of a model over its budget is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from models import ramp, save, text_model

ROOT = Path(__file__).parent.parent
MANIFEST = ROOT / ".pre-commit-hooks.yaml"

pytest.importorskip("pre_commit")


def hook() -> Any:
    (only,) = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))
    return only


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Make a repository with this hook, run from the source tree instead of its own environment."""
    shim = tmp_path / "onnxledger"
    shim.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m analyzer "$@"\n')
    shim.chmod(0o755)
    folder = tmp_path / "repository"
    folder.mkdir()
    local = hook() | {"language": "system", "args": ["--max-bytes", "20 KiB"]}
    config = {"repos": [{"repo": "local", "hooks": [local]}]}
    (folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    for command in (
        ["git", "init", "-q", "-b", "main"],
        [sys.executable, "-m", "pre_commit", "install"],
        ["git", "add", ".pre-commit-config.yaml"],
    ):
        run(folder, *command, check=True)
    return folder


def run(folder: Path, *command: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {
        "PATH": f"{folder.parent}{os.pathsep}{os.environ['PATH']}",
        "PRE_COMMIT_HOME": str(folder.parent / "cache"),
        "HOME": str(folder.parent),
        **{
            f"GIT_{who}_{what}": "test@example.com"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
    }
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=check)


def commit(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    run(folder, "git", "add", "--", *names, check=True)
    return run(folder, "git", "commit", "-m", "a model")


def model(width: int) -> Any:
    text = f"m (float[1,{width}] x) => (float[1,{width}] y) {{ y = MatMul(x, weight) }}"
    return text_model(text, {"weight": ramp(width, width)})


@pytest.mark.child
def test_the_manifest_is_what_pre_commit_takes_for_one():
    done = run(ROOT, sys.executable, "-m", "pre_commit", "validate-manifest", str(MANIFEST))

    assert done.returncode == 0, done.stdout


def test_the_hook_runs_a_command_that_the_package_installs():
    import tomllib

    from analyzer.cli import command

    program, name = hook()["entry"].split()

    assert (
        program in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    )
    assert name in command.commands
    assert hook()["language"] == "python"


def test_it_sees_models_and_nothing_else():
    pattern = re.compile(hook()["files"])

    assert [bool(pattern.search(name)) for name in ("a/b.onnx", "a.onnx.data", "onnx.py")] == [
        True,
        False,
        False,
    ]


@pytest.mark.child
def test_a_commit_over_budget_is_refused_and_one_within_is_made(repository):
    save(repository, model(100))

    refused = commit(repository, "model.onnx")
    save(repository, model(50))
    made = commit(repository, "model.onnx")

    assert refused.returncode == 1
    assert "max-bytes" in refused.stdout + refused.stderr
    assert made.returncode == 0, made.stdout + made.stderr
    assert run(repository, "git", "log", "--format=%s").stdout == "a model\n"


@pytest.mark.child
def test_a_commit_without_a_model_asks_nothing(repository):
    (repository / "notes.md").write_text("nothing\n")

    made = commit(repository, "notes.md")

    assert made.returncode == 0
    assert "Skipped" in made.stdout + made.stderr


@pytest.mark.child
def test_a_pointer_of_git_lfs_is_refused_with_what_to_do(repository):
    save(repository, b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 4\n")

    refused = commit(repository, "model.onnx")

    assert refused.returncode == 1
    assert "git lfs pull" in refused.stdout + refused.stderr
