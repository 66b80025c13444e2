"""The exports of `make demo` -> docs/images/html-*.png: their HTML reports in Chromium, of one size everywhere.

PYTHONPATH=tests/browser python -m screenshots
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import chromium
from PIL import Image
from reader import Reader

ROOT = Path(__file__).resolve().parents[2]
MODEL = "build/demo/bert/model.onnx"
LARGEST = 200_000
"""Bytes of one picture."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT, help=f"has {MODEL}")
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "images", help="folder of the pictures")
    options = parser.parse_args()
    executable = chromium.find_chromium()
    if executable is None:
        sys.exit("no Chromium is found")
    if not (options.folder / MODEL).is_file():
        sys.exit(f"{options.folder / MODEL} is not there: make demo exports it")
    with tempfile.TemporaryDirectory() as made, chromium.visitor(executable) as visit:
        inspected, reconciled = (
            make(options.folder, command, Path(made)) for command in ("inspect", "reconcile")
        )
        shoot(visit(inspected, calm=True), options.into / "html-bert.png")
        dark = visit(inspected, calm=True, scheme="dark")
        Reader(dark.page).enter_largest()
        dark.page.mouse.move(0, 0)
        shoot(dark, options.into / "html-dark.png")
        shoot(visit(inspected, calm=True, size=chromium.PHONE), options.into / "html-phone.png")
        shoot(visit(reconciled, calm=True), options.into / "html-waterfall.png")


def make(folder: Path, command: str, into: Path) -> Path:
    """Write the page of a command, which names the model as anybody would who ran it in that folder."""
    path = into / f"{command}.html"
    asked = [sys.executable, "-m", "analyzer", command, MODEL, "--quiet", "-o", str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(asked, cwd=folder, env=environment, check=True)
    return path


def shoot(visit: chromium.Visit, path: Path) -> None:
    """Save what is seen, in few colours: charts and text need no more, and take a quarter of the bytes."""
    picture = Image.open(io.BytesIO(visit.page.screenshot())).convert("RGB")
    picture.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.name}: {picture.width}x{picture.height}, {size:,} bytes")  # noqa: T201
    assert size < LARGEST, f"{path} is too large for the documents"


if __name__ == "__main__":
    main()
