"""`onnxledger.toml`, or `[tool.onnxledger]` of `pyproject.toml` -> Config, or the list of all mistakes in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from analyzer.errors import ConfigError
from analyzer.records import Frozen, field

if TYPE_CHECKING:  # only an existing config file needs them
    from analyzer.account.group.patterns import Searcher
    from analyzer.account.ledger import Match
    from analyzer.budget.record import Rule

__all__ = ["FILE", "MAX_BYTES", "PROJECT", "Config", "load_config"]

FILE = "onnxledger.toml"
PROJECT = "pyproject.toml"

MAX_BYTES = 1 << 18
"""Maximum size of a config, in bytes; reading stops there."""

_SECTION = ("tool", "onnxledger")


class Config(Frozen):
    """Settings of a project for all of its commands; empty without a config file."""

    origin: str = ""
    """Path of the file as the user wrote it; "" without a file."""
    groups: Mapping[str, Searcher] = field(default_factory=lambda: MappingProxyType({}))
    """Patterns by the group's name, in the order of the file."""
    match: Match | None = None
    rules: tuple[Rule, ...] = ()
    """Budget of `check`, in the order of the file."""
    baseline: str | None = None
    """Path, relative to the working directory, of the baseline for limits on growth."""
    baseline_any: bool = False
    """Whether a baseline of another model is accepted."""


def load_config(path: Path | str | None = None, *, needs_baseline: bool = False) -> Config:
    """Read the named config; else `onnxledger.toml` here; else, if it has the section, `pyproject.toml` here.

    Args:
        path: a TOML file; in one named `pyproject.toml`, only the section is read.
        needs_baseline: whether a limit on growth is a mistake where the config names no baseline for it.

    Raises:
        ConfigError: the file cannot be read, or has mistakes; the error lists all of them, each with its line.
    """
    if path is not None:
        path = Path(path)
        found = _load(path, needs_baseline, is_requested=True)
        if found is None:
            problem = "has no [tool.onnxledger]" if path.exists() else "is not there"
            raise ConfigError([f"{path}: {problem}; {_ADVICE}"])
        return found
    return _load(Path(FILE), needs_baseline) or _load(Path(PROJECT), needs_baseline) or Config()


def _load(path: Path, needs_baseline: bool, *, is_requested: bool = False) -> Config | None:
    """Return the config in a file; None where the file is missing, or is a project file without our section."""
    content = _read(path)
    is_project = path.name == PROJECT
    if content is None or (is_project and not is_requested and b"onnxledger" not in content):
        return None  # a project file that does not mention onnxledger is not checked
    if len(content) > MAX_BYTES:
        raise ConfigError([f"{path}: has more than {MAX_BYTES:,} bytes; {_ADVICE}"])
    from analyzer.budget.config.parsing import parse

    found = parse(path, content, _SECTION if is_project else (), _ADVICE, needs_baseline=needs_baseline)
    return None if found is None else Config(str(path), **found)


def _read(path: Path) -> bytes | None:
    """Return the file's content, or one byte more than the maximum of a longer one; None where the file is missing."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would hang, and a device may never end
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise ConfigError([f"{path}: is {kind}; {_ADVICE}"])
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError([f"{path}: cannot be read: {reason}; {_ADVICE}"]) from error


_ADVICE = "name another with --config FILE, or do without it: --no-config"
