"""The corpus of hostile files, made anew by the external cases' generator, and contents that no answer may have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CANARY", "Case", "generator", "make_corpus", "state", "unsafe_characters"]

CANARY = b"CANARY-DO-NOT-READ"
"""First bytes of the file that nobody may read."""


@dataclass(frozen=True, slots=True)
class Case:
    """One file of the corpus."""

    id: str
    path: Path
    group: str
    what: str
    expect: str

    @property
    def is_big(self) -> bool:
        """Whether it is made only with `--big`."""
        return self.id in ("sparse_100gb", "ext_sparse_100gb", "nodes_1e7")


def generator() -> Path | None:
    """Return the path of the generator, which is never copied here; None if it is missing."""
    beside = Path(__file__).resolve().parent.parent.parent / "shared"
    path = Path(os.environ.get("ONNXLEDGER_CASES", beside)) / "hostile" / "make.py"
    return path if path.is_file() else None


def make_corpus(folder: Path, *, big: bool = False) -> list[Case]:
    """Make all cases, including FIFOs and links to devices; `big` adds sparse files of 100 GB.

    Raises:
        FileNotFoundError: the generator is missing.
    """
    script = generator()
    if script is None:
        raise FileNotFoundError("hostile/make.py is not there; set ONNXLEDGER_CASES to the folder of cases")
    command = [sys.executable, str(script), str(folder), "--special", *(["--big"] if big else [])]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    found = json.loads((folder / "cases.json").read_text(encoding="utf-8"))
    return [Case(c["id"], folder / c["path"], c["group"], c["what"], c["expect"]) for c in found]


def state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return the files in and below a folder: mode, size and modification time, without following links."""
    return {str(path.relative_to(folder)): _look(path) for path in _below(folder)}


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))


def _look(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_mode, status.st_size, status.st_mtime_ns


def unsafe_characters(lines: Iterable[str] | str) -> set[str]:
    """Return characters that control a terminal, hide text, or end a line."""
    return {c for c in set("".join(lines)) if c != "\n" and unicodedata.category(c) in _UNSAFE}


_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
