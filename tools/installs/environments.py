"""A wheel and names of extras -> a virtual environment with them, and the output of commands there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Environment", "InstallError", "temporary_environment"]

Answer = subprocess.CompletedProcess[str]


class InstallError(Exception):
    """pip, or another step that should have worked, failed."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment, whose commands see no other environment and no Python settings."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    """Further environment variables for its commands."""

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def call(self, program: str, *arguments: str, folder: Path | None = None) -> Answer:
        """Run a program of the environment from any folder."""
        inherited = {
            name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        inherited["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{inherited.get('PATH', os.defpath)}"
        return subprocess.run(
            [program if "/" in program else str(self.folder / "bin" / program), *arguments],
            cwd=folder or self.folder,
            env={**inherited, **self.settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def check_output(self, program: str, *arguments: str, folder: Path | None = None) -> str:
        """Run a program and return its output.

        Raises:
            InstallError: the program fails.
        """
        done = self.call(program, *arguments, folder=folder)
        if done.returncode:
            raise InstallError(
                f"{program} {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def install(self, *arguments: str) -> None:
        """Install packages with pip, and check that all of them fit together."""
        self.check_output(
            self.python, "-m", "pip", "--disable-pip-version-check", "install", "-qq", *arguments
        )
        self.check_output(self.python, "-m", "pip", "--disable-pip-version-check", "check")

    def packages(self) -> list[str]:
        """Return the installed packages as NAME==VERSION, without pip and those of venv."""
        output = self.check_output(self.python, "-m", "pip", "--disable-pip-version-check", "freeze")
        return [line for line in output.splitlines() if not line.startswith(("pip==", "setuptools=="))]

    def nbytes(self) -> int:
        """Return the size on disk."""
        return sum(
            path.stat().st_size for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink()
        )


@contextmanager
def temporary_environment(
    folder: Path, python: str = sys.executable, **settings: str
) -> Iterator[Environment]:
    """Make a clean environment, which is deleted afterwards.

    Raises:
        InstallError: there is no such Python, or it has no venv.
    """
    shutil.rmtree(folder, ignore_errors=True)
    try:
        made = subprocess.run(
            [python, "-m", "venv", str(folder)], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise InstallError(f"{python}: {error.strerror}") from error
    if made.returncode:
        raise InstallError(f"{python} -m venv: {made.stdout}{made.stderr}")
    try:
        yield Environment(folder, settings)
    finally:
        shutil.rmtree(folder)


def with_torch(environment: Environment, constraints: Path, extras: Sequence[str]) -> None:
    """Install PyTorch alone first: its own index may lack other packages at the pinned versions."""
    if "export" in extras:
        index = os.environ.get("TORCH_INDEX")
        where = ["--index-url", index] if index else []
        environment.check_output(
            environment.python,
            "-m",
            "pip",
            "install",
            "-qq",
            "-c",
            str(constraints),
            *where,
            "--no-deps",
            "torch",
        )
