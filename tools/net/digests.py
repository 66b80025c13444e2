"""Cases -> digests, in one committed file."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.net.cases import find_cases

__all__ = ["PATH", "compare", "digest_all", "load", "write"]

PATH = Path(__file__).parents[2] / "tests" / "golden" / "net.json"

_DIGITS = 16


def digest_all(folder: Path, *, show: str | None = None) -> dict[str, str]:
    """Return the digest of each case by name; `show` instead prints the cases whose names contain it."""
    found: dict[str, str] = {}
    for case in find_cases(folder):
        if show is not None:
            if show in case.name:
                sys.stdout.write(f"==== {case.name}\n{case.render()}\n")
            continue
        assert case.name not in found, case.name
        found[case.name] = hashlib.sha256(case.render().encode("utf-8", "surrogatepass")).hexdigest()[
            :_DIGITS
        ]
    return found


def compare(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return a line for each case that is new, gone or different."""
    return [
        f"{'new' if name not in before else 'gone' if name not in after else 'differs'}  {name}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def load() -> dict[str, str]:
    """Return the committed digests."""
    return dict(json.loads(PATH.read_text(encoding="utf-8")))


def write(found: Mapping[str, str]) -> None:
    """Write these digests to the committed file."""
    PATH.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n", encoding="utf-8")
