"""The container's recipe, checked without an engine: no test here builds it."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RECIPE = (ROOT / "Containerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
KEYWORDS = {"FROM", "WORKDIR", "RUN", "COPY", "USER", "ENTRYPOINT", "CMD"}


@dataclass(frozen=True)
class Instruction:
    keyword: str
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)


def instructions() -> list[Instruction]:
    """Return the instructions, each on one line, without comments."""
    lines = "\n".join(line for line in RECIPE.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", lines)
    return [Instruction(*line.split(" ", 1)) for line in joined.splitlines() if line]


def stages() -> list[tuple[list[str], list[Instruction]]]:
    """Return the words of each FROM, and the instructions after it."""
    found: list[tuple[list[str], list[Instruction]]] = []
    for each in instructions():
        if each.keyword == "FROM":
            found.append((each.words, []))
        else:
            found[-1][1].append(each)
    return found


def last_stage(keyword: str) -> list[Instruction]:
    return [each for each in stages()[-1][1] if each.keyword == keyword]


def ignored(name: str) -> bool:
    """Whether .dockerignore excludes a file of the top folder; the last pattern that matches decides."""
    out = False
    for pattern in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if fnmatch.fnmatch(name, pattern.removeprefix("!").removeprefix("**/")):
            out = not pattern.startswith("!")
    return out


def test_every_instruction_is_one_that_engines_know():
    assert {each.keyword for each in instructions()} == KEYWORDS
    assert instructions()[0].keyword == "FROM"


def test_every_stage_that_is_named_comes_before_its_use():
    known: set[str] = set()
    for words, body in stages():
        for each in body:
            for found in re.findall(r"--from=(\S+)", each.text):
                assert found in known
        known |= {words[2]} if len(words) == 3 and words[1] == "AS" else set()
    assert known == {"build"}


def test_both_stages_are_of_one_python_that_the_project_supports():
    (image,) = {words[0] for words, _ in stages()}

    version = re.fullmatch(r"docker\.io/library/python:(3\.\d+)-slim", image)

    assert version
    assert f"Programming Language :: Python :: {version[1]}" in PROJECT["project"]["classifiers"]


def test_whatever_is_copied_is_there_and_not_ignored():
    copied = [
        word
        for _, body in stages()
        for each in body
        if each.keyword == "COPY" and "--from" not in each.text
        for word in each.words[:-1]
    ]

    assert set(copied) >= {
        *PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
        "constraints.txt",
    }
    for name in copied:
        assert (ROOT / name).exists()
        assert not ignored(name)
    assert ignored(".git")
    assert ignored("build")
    assert ignored("__pycache__")


def test_the_wheel_has_all_that_its_metadata_names():
    project = PROJECT["project"]
    needed = {project["readme"], *project["license-files"], "pyproject.toml"}

    assert all(re.search(rf"^COPY .*\b{re.escape(name)}\b", RECIPE, re.MULTILINE) for name in needed)


def test_what_builds_the_wheel_is_what_the_project_requires():
    (build,) = [each for each in instructions() if "hatchling" in each.text]

    assert build.words[-1] in PROJECT["build-system"]["requires"]
    assert any("--no-build-isolation" in each.text for each in stages()[0][1])


def test_it_installs_extras_that_exist_under_the_constraints_and_no_pytorch():
    (install,) = [each for each in last_stage("RUN") if "pip install" in each.text]

    extras = re.search(r"\.whl\)\[([\w,-]+)\]", install.text)

    assert extras
    assert extras[1].split(",") == ["report", "remote"]
    assert set(extras[1].split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    assert "-c /tmp/constraints.txt" in install.text
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower()
    for requirement in PROJECT["project"]["dependencies"]:
        assert f"\n{re.split('[<>=~[]', requirement)[0]}==".lower() in pinned


def test_it_runs_the_console_script_as_somebody_who_is_not_root():
    (entry,), (user,) = last_stage("ENTRYPOINT"), last_stage("USER")

    assert json.loads(entry.text) == list(PROJECT["project"]["scripts"])
    assert user.text not in ("root", "0")
    assert f"useradd --create-home --uid 10001 {user.text}" in " ".join(
        each.text for each in last_stage("RUN")
    )


@pytest.mark.parametrize("keyword", ["ENTRYPOINT", "CMD"])
def test_no_shell_stands_between(keyword):
    (each,) = last_stage(keyword)

    assert isinstance(json.loads(each.text), list)


@pytest.mark.child
def test_its_shell_commands_are_shell():
    import subprocess

    for each in instructions():
        if each.keyword == "RUN":
            done = subprocess.run(["sh", "-n", "-c", each.text], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
