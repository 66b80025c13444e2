"""Installed packages equal the repository."""

from __future__ import annotations

import email
import importlib.metadata
import itertools
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

pytestmark = pytest.mark.child

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a wheel and a source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    hatch(ROOT, folder)
    return folder


def hatch(root: Path, folder: Path, *options: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def kept() -> set[str]:
    """Return every file of the repository that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or not (ROOT / ".git").exists():
        pytest.skip("this is no checkout of the repository")
    return {name for name in done.stdout.split("\0") if (ROOT / name).is_file()}


def test_the_installed_version_is_that_of_pyproject() -> None:
    assert importlib.metadata.version("onnxledger") == PROJECT["version"]


def test_a_wheel_holds_every_file_of_both_packages_and_no_other(built: Path) -> None:
    expected = {name for name in kept() if name.startswith(("analyzer/", "exporter/"))}

    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())

    assert {name for name in names if ".dist-info/" not in name} == expected
    assert {"analyzer/py.typed", "exporter/py.typed"} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_metadata_of_a_wheel_is_that_of_pyproject(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(packed.read(name))

    assert metadata["License-Expression"] == PROJECT["license"]
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert metadata.get_all("Classifier") == PROJECT["classifiers"]
    assert set(metadata.get_all("Provides-Extra", [])) == PROJECT["optional-dependencies"].keys()
    assert metadata["Description-Content-Type"] == "text/markdown"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert metadata.get_payload(decode=True).decode().strip() == readme.strip()


def test_a_source_distribution_holds_every_file_of_the_repository(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as packed:
        names = {member.name.partition("/")[2] for member in packed.getmembers()}

    assert names == kept() | {"PKG-INFO"}


def test_a_source_distribution_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as packed:
        packed.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()

    hatch(source, tmp_path / "again", "-t", "wheel")

    (wheel,), (again,) = built.glob("*.whl"), (tmp_path / "again").glob("*.whl")
    assert again.read_bytes() == wheel.read_bytes()


def test_the_oldest_tested_versions_are_the_lower_bounds() -> None:
    pins = dict(re.findall(r"^([\w.-]+)==(.+)$", (ROOT / "constraints-lowest.txt").read_text(), re.MULTILINE))
    pins = {canonicalize_name(name): Version(version) for name, version in pins.items()}
    extras = (PROJECT["optional-dependencies"][extra] for extra in ("time", "report", "remote"))

    for text in itertools.chain(PROJECT["dependencies"], *extras):
        requirement = Requirement(text)
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        assert pins[canonicalize_name(requirement.name)] == Version(bound.version), text


@pytest.mark.parametrize("tool", ["ruff", "codespell", "validate-pyproject"])
def test_pre_commit_and_make_check_run_the_same_version(tool: str) -> None:
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")

    (pinned,) = re.findall(rf"^{tool}==(.+)$", constraints, re.MULTILINE)
    (hooked,) = re.findall(rf"/{tool}(?:-pre-commit)?\n\s+rev: v(.+)$", hooks, re.MULTILINE)

    assert hooked == pinned
