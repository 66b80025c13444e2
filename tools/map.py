"""The import contracts in pyproject.toml -> docs/images/house.svg, the picture of the rooms that CONTRIBUTING shows."""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from xml.sax.saxutils import escape

Contracts: TypeAlias = Sequence[Mapping[str, Any]]

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "house.svg"

FLOORS = {
    "cli": "asked",
    "fleet": "shown",
    "documents": "written",
    "verify": "answered",
    "reconciliation": "beside PyTorch",
    "account": "entered",
    "manifest": "read",
    "near": "the ground",
}
"""Label of each floor, by its first room."""

_WIDTH, _ROW, _GAP, _EDGE = 1190, 26, 6, 16
_LABEL = 110
_LETTER = 6.7  # pixels of a letter, at 12 pixels a line; bold ones are wider

_STYLE = """\
svg { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
.page { fill: #ffffff; }
.name { fill: #1f2328; font-weight: 600; }
.dim { fill: #59636e; }
.room { fill: #f6f8fa; stroke: #c4ccd4; }
.outside { fill: #ddf4ff; stroke: #54aeff; }
.arrow { fill: none; stroke: #8c959f; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117; }
.name { fill: #f0f6fc; }
.dim { fill: #9198a1; }
.room { fill: #161b22; stroke: #3d444d; }
.outside { fill: #10243e; stroke: #1f6feb; }
}"""


def draw() -> str:
    """Return the picture: a row for each layer, a box for each room with the libraries that only it may import."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: Contracts = document["tool"]["importlinter"]["contracts"]
    (flow,) = (contract for contract in contracts if contract.get("containers") == ["analyzer"])
    floors: list[list[str]] = []
    for room in (room for layer in flow["layers"] for room in re.split(r"\s*[|:]\s*", layer)):
        if room in FLOORS:
            floors.append([])
        floors[-1].append(room)
    libraries = _libraries(contracts)
    top = 2 * _EDGE + 24
    height = top + len(floors) * (_ROW + 2 * _GAP) + _EDGE
    parts = [
        f'<rect class="page" width="{_WIDTH}" height="{height}"/>',
        f'<text class="dim" x="{_EDGE}" y="{_EDGE + 12}">'
        "analyzer: a room imports only what stands below it, or at its right</text>",
        f'<path class="arrow" d="M {_EDGE + 4} {top} V {height - _EDGE} m -4 -6 l 4 6 l 4 -6"/>',
    ]
    for number, rooms in enumerate(floors):
        parts += _row(rooms, libraries, top + number * (_ROW + 2 * _GAP))
    parts += _exporter(contracts, height - _EDGE)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
            f'height="{height}" role="img">',
            "<title>The rooms of onnxledger, from the command line down to what all build on</title>",
            f"<style>\n{_STYLE}\n</style>",
            *parts,
            "</svg>\n",
        ]
    )


def _row(rooms: Sequence[str], libraries: Mapping[str, Sequence[str]], y: int) -> Iterator[str]:
    x = 2.0 * _EDGE
    yield f'<text class="dim" x="{x:.0f}" y="{y + 17}">{escape(FLOORS[rooms[0]])}</text>'
    x += _LABEL
    for room in rooms:
        beside = ", ".join(libraries.get(room, ()))
        width = 2 * _GAP + _LETTER * (len(room) * 1.25 + (len(beside) + 2 if beside else 0))
        yield f'<rect class="room" x="{x:.0f}" y="{y}" width="{width:.0f}" height="{_ROW}" rx="4"/>'
        yield f'<text x="{x + _GAP:.0f}" y="{y + 17}"><tspan class="name">{escape(room)}</tspan>' + (
            f'<tspan class="dim" dx="8">{escape(beside)}</tspan></text>' if beside else "</text>"
        )
        x += width + _GAP


def _libraries(contracts: Contracts) -> dict[str, list[str]]:
    """Return, for each room, the libraries that a contract forbids to all others."""
    found: dict[str, set[str]] = defaultdict(set)
    for contract in contracts:
        if contract["type"] == "forbidden" and contract["source_modules"] == ["analyzer"]:
            for arrow in contract.get("ignore_imports", ()):
                source, _, target = arrow.partition(" -> ")
                if target in contract["forbidden_modules"] and target != "exporter":
                    found[source.split(".")[1]].add("protobuf" if target == "google" else target)
    return {room: sorted(names) for room, names in found.items()}


def _exporter(contracts: Contracts, bottom: int) -> Iterator[str]:
    """Yield the box of the other package: its libraries, and the analyzer's rooms that it may import."""
    (contract,) = (each for each in contracts if each.get("source_modules") == ["exporter"])
    arrows = (arrow.partition(" -> ")[2] for arrow in contract["ignore_imports"])
    rooms = sorted({target.split(".")[1] for target in arrows})
    lines = ["torch, transformers, onnxscript", "of analyzer only:", *rooms]
    x, width, height = _WIDTH - 230, 214, 30 + 17 * len(lines)
    y = bottom - height
    yield f'<rect class="outside" x="{x}" y="{y}" width="{width}" height="{height}" rx="4"/>'
    yield f'<text class="name" x="{x + 10}" y="{y + 20}">exporter</text>'
    for number, line in enumerate(lines):
        yield f'<text class="dim" x="{x + 10}" y="{y + 38 + 17 * number}">{escape(line)}</text>'


def main() -> None:
    """Draw the picture."""
    described = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tools.map", description=described)
    parser.add_argument("--into", type=Path, default=PICTURE, metavar="FILE", help="the picture")
    into = parser.parse_args().into
    into.write_text(draw(), encoding="utf-8")
    sys.stdout.write(f"{into}\n")


if __name__ == "__main__":
    main()
