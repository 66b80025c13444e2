"""Record how the kernels of the installed onnxruntime reuse the memory of inputs: `python -m tools.kernels`.

The table is by minor version. It needs onnxruntime 1.31 or newer, whose profiles record each node's memory requests.
"""

from __future__ import annotations

import datetime
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import onnx

from tools.kernels.learn import Learnt, learn, learn_functions, learn_halves

TABLE = Path(__file__).parents[2] / "analyzer" / "cost" / "memory" / "kernels.toml"
_HEAD = """\
# Which kernels of onnxruntime's CPU provider take the memory of an input, by minor version: `input->output`.
# `aliases` give it on in any case; `in_place` take it where nobody else reads it and it has the same type and shape.
# `halves` compute in FLOAT16, by the version since which an operator is as it is; `widened` run in FLOAT between Casts.
# `functions` are ONNX's operators that have no kernel: a session puts the nodes of their functions in their place.
# Written by `python -m tools.kernels`, from models of one node; operators that ran and are not here do neither.
"""
_OPSETS = (11, 13, 17, 21, 23)
_OPSETS_OF_HALVES = range(11, onnx.defs.onnx_opset_version() + 1)


def main() -> None:
    """Learn, and write the table again with the entries of other versions."""
    import onnxruntime

    version = ".".join(onnxruntime.__version__.split(".")[:2])
    table: dict[str, Any] = tomllib.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {}
    aliases: Learnt = {}
    in_place: Learnt = {}
    ran: set[tuple[str, str]] = set()
    for opset in _OPSETS:
        aliased, reused, tried = learn(opset)
        for whole, part in ((aliases, aliased), (in_place, reused)):
            for key, pairs in part.items():
                whole.setdefault(key, set()).update(pairs)
        ran |= tried
    halves, widened = set[str](), set[str]()
    for opset in _OPSETS_OF_HALVES:
        own, others = learn_halves(opset)
        halves |= own
        widened |= others
    if not ran:
        sys.exit(f"onnxruntime {onnxruntime.__version__} does not tell what nodes ask for")
    table[version] = {
        "learnt_on": datetime.datetime.now(tz=datetime.UTC).date(),
        "release": onnxruntime.__version__,
        "operators": len(ran),
        "functions": learn_functions(),
        "aliases": _format_pairs(aliases),
        "in_place": _format_pairs(in_place),
        "halves": sorted(halves - widened),
        "widened": sorted(widened),
    }
    TABLE.write_text(_HEAD + "".join(_section(name, table[name]) for name in sorted(table)), encoding="utf-8")


def _format_pairs(learnt: Learnt) -> dict[str, list[str]]:
    return {
        f"{domain}::{op_type}" if domain else op_type: [
            f"{source}->{target}" for source, target in sorted(pairs)
        ]
        for (domain, op_type), pairs in sorted(learnt.items())
    }


def _section(name: str, entry: dict[str, Any]) -> str:
    lines = [f'\n["{name}"]']
    lines += [f"learnt_on = {entry['learnt_on']}", f'release = "{entry["release"]}"']
    lines += [f"operators = {entry['operators']}"]
    for key in ("functions", "halves", "widened"):
        listed = ", ".join(f'"{kernel}"' for kernel in entry.get(key, ()))
        lines += [f"{key} = [", *textwrap.wrap(listed, 118, initial_indent="  ", subsequent_indent="  "), "]"]
    for key in ("aliases", "in_place"):
        lines.append(f'\n["{name}".{key}]')
        for operator, pairs in entry[key].items():
            quoted = operator if operator.isidentifier() else f'"{operator}"'
            lines.append(f"{quoted} = [{', '.join(f'{pair!r}'.replace(chr(39), chr(34)) for pair in pairs)}]")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
