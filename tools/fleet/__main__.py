"""Write a fleet: `python -m tools.fleet FOLDER --count 10000`. Files are the same each time, a thousand a folder."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from tools.fleet.variants import make_file

__all__ = ["main", "write_fleet"]

_FOLDER = 1000


def write_fleet(folder: Path, count: int, exports: Sequence[Path] = ()) -> None:
    """Write `count` files; every fifth is a copy of one of the exports, if there are any."""
    for number in range(count):
        place = folder / f"{number // _FOLDER:03}"
        place.mkdir(parents=True, exist_ok=True)
        if exports and number % 5 == 0:
            source = exports[number // 5 % len(exports)]
            shutil.copyfile(source, place / f"export-{source.stem}-{number}.onnx")
            continue
        name, content = make_file(number)
        (place / name).write_bytes(content)


def main() -> None:
    """Write the fleet that the command line describes."""
    parser = argparse.ArgumentParser(description="Make thousands of small models to survey.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument(
        "--exports", type=Path, help="a folder of real exports, of which the small ones are copied"
    )
    options = parser.parse_args()
    small = sorted(options.exports.rglob("*.onnx")) if options.exports else []
    write_fleet(options.folder, options.count, [path for path in small if path.stat().st_size <= 200_000])


if __name__ == "__main__":
    main()
