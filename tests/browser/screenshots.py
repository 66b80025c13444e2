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
from collections.abc import Iterator
from pathlib import Path

import chromium
from PIL import Image
from reader import Reader

ROOT = Path(__file__).resolve().parents[2]
MODEL = "build/demo/bert/model.onnx"
LARGEST = 200_000
"""Most bytes of one picture."""


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
        pages = {"bert": make(options.folder, ["inspect", MODEL], Path(made, "bert.html"))}
        pages |= dict(make_small(Path(made)))
        for name, page in pages.items():
            shoot(visit(page, calm=True), options.into / f"html-{name}.png")
            shoot(visit(page, calm=True, size=chromium.PHONE), options.into / f"html-{name}-phone.png")
        dark = visit(pages["bert"], calm=True, scheme="dark")
        Reader(dark.page).enter_largest()
        dark.page.mouse.move(0, 0)
        shoot(dark, options.into / "html-dark.png")


_CONFIG = (
    '{"model_type": "bert", "vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 2, '
    '"num_attention_heads": 4, "intermediate_size": 256}'
)
_QUANTIZE = (
    "from onnxruntime.quantization import quantize_dynamic; quantize_dynamic('fp32/model.onnx', 'int8.onnx')"
)


def make_small(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield pages of a small BERT and of files made from it."""
    (folder / "config.json").write_text(_CONFIG)
    run(
        folder,
        [
            "-m",
            "analyzer",
            "export",
            "config.json",
            "--class",
            "AutoModel",
            "--random-weights",
            "-o",
            "fp32",
            "--quiet",
        ],
    )
    run(folder, ["-c", _QUANTIZE])
    budget = ["--max-bytes", "800kB", "--max-parameters", "160k", "--min-opset", "17"]
    commands = {
        "quantized": ["inspect", "int8.onnx"],
        "compare": ["compare", "fp32/model.onnx", "int8.onnx"],
        "check": ["check", "fp32/model.onnx", *budget],
        "survey": ["inspect", "fp32/model.onnx", "int8.onnx"],
        "time": ["time", "fp32/model.onnx", "--shape", "batch=1,sequence=128", "--runs", "20"],
        "reconcile": ["reconcile", "fp32/model.onnx"],
    }
    for name, command in commands.items():
        yield name, make(folder, command, folder / f"{name}.html")


def make(folder: Path, command: list[str], path: Path) -> Path:
    """Run a command in the folder, so that its page shows the paths a user would see, and return the page."""
    run(folder, ["-m", "analyzer", *command, "--quiet", "-o", str(path)])
    return path


def run(folder: Path, arguments: list[str]) -> None:
    """Run Python in a folder; exit code 1, for findings, is accepted."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "ORT_DISABLE_TELEMETRY": "1"}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=False)
    assert done.returncode in (0, 1), arguments


def shoot(visit: chromium.Visit, path: Path) -> None:
    """Save the visible page in few colours, which are enough for charts and text, and take a quarter of the bytes."""
    picture = Image.open(io.BytesIO(visit.page.screenshot())).convert("RGB")
    picture.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.name}: {picture.width}x{picture.height}, {size:,} bytes")  # noqa: T201
    assert size < LARGEST, f"{path} is too large for the documents"


if __name__ == "__main__":
    main()
