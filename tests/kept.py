"""Results that take long to make, and depend only on versions and sources -> a folder on disk, made once.

The first test that needs an export makes it, in any process; all others and the next run find it. The folder is
`build/kept`, or the one in `ONNXLEDGER_KEPT`; results of other versions or sources are deleted after a while.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

LIBRARIES = (
    "torch",
    "transformers",
    "onnx",
    "onnxscript",
    "onnx-ir",
    "onnxruntime",
    "onnxslim",
    "safetensors",
    "numpy",
)

IMPORT = re.compile(
    r"^\s*(?:from|import) ((?:analyzer|exporter|tools|exports|kept)[\w.]*)(?: import (\([^)]*\)|.*))?",
    re.MULTILINE,
)
"""Imports of our own modules in a source, also inside functions."""

UNUSED = 14 * 24 * 3600
"""Seconds after which unused results are deleted."""


@functools.cache
def home(*recipes: str) -> Path:
    """Return the folder for results of the installed versions, and of the sources that these modules need."""
    digest = hashlib.sha256(f"{platform.machine()} {platform.python_version()}".encode())
    for library in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            digest.update(f" {library} {version(library)}".encode())
    for path in sources(*recipes):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    kept = Path(os.environ.get("ONNXLEDGER_KEPT", ROOT / "build" / "kept")).resolve()
    digest.update(str(kept).encode())  # exports contain the path of their folder, which may have moved
    found = kept / f"{recipes[0].replace('.', '-')}-{digest.hexdigest()[:16]}"
    found.mkdir(parents=True, exist_ok=True)
    os.utime(found)
    for failure in found.rglob("*.failed.txt"):  # timeouts are tried again
        failure.unlink(missing_ok=True)
    for other in kept.iterdir():
        if other != found and time.time() - other.stat().st_mtime > UNUSED:
            shutil.rmtree(other, ignore_errors=True)
    return found


def sources(*recipes: str) -> list[Path]:
    """Return the files of our modules and all their imports, with the data files beside them."""
    found: set[Path] = set()
    left = list(recipes)
    while left:
        name = left.pop()
        for folder in (ROOT, ROOT / "tests"):
            stem = folder.joinpath(*name.split("."))
            for path in (stem.with_suffix(".py"), stem / "__init__.py"):
                if path.is_file() and path not in found:
                    found.add(path)
                    for module, names in IMPORT.findall(path.read_text(encoding="utf-8")):
                        left += [module, *(f"{module}.{each}" for each in re.findall(r"\w+", names))]
    found |= {data for path in found for kind in ("*.toml", "*.json") for data in path.parent.glob(kind)}
    return sorted(found)


def keep(recipe: str, name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of this name, which `make` of the module `recipe` fills at the first request.

    The rest of a failed or killed attempt is deleted and made again. Callers must not change the folder.
    """
    folder = home(recipe) / name
    done = folder / ".made"
    if not done.exists():
        with alone(folder):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                make(folder)
                done.touch()
    return folder


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other process works at this folder; the system releases the lock of a process that dies."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
