"""The examples of docs/reference/rules.md and docs/counting.md print their real answers, and every rule has one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import (
    FOLDED_FROM,
    INPUT_KIND,
    NAME_SCOPES,
    Array,
    audit,
    noise,
    packed,
    quantized,
    set_metadata,
    text_model,
)

from analyzer.account.ledger import Entry, Evidence, Ledger

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "docs" / "reference" / "rules.md", ROOT / "docs" / "counting.md")
BLOCK = re.compile(r"(?<=^```ledger\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
NOTES = {"is": INPUT_KIND, "folded from": FOLDED_FROM}

_STORED = re.compile(r"stored (\S+) (\w+)\[([\d,]*)\](?: = (.+))?")
_TYPES = {"float": np.float32, "float16": np.float16, "int64": np.int64, "int32": np.int32, "bool": np.bool_}


@dataclass(frozen=True)
class Example:
    """A block of the page: its input, and its printed answer."""

    text: str

    @property
    def source(self) -> list[str]:
        return self.text.partition("\n\n")[0].splitlines()

    @property
    def answer(self) -> str:
        return self.text.partition("\n\n")[2]


def examples() -> list[Example]:
    return [Example(text) for page in PAGES for text in BLOCK.findall(page.read_text(encoding="utf-8"))]


def weights_of(lines: list[str]) -> dict[str, Array]:
    """Return the stored tensors: by default numbers that all differ, or the value after the equals sign."""
    made: dict[str, Array] = {}
    for number, line in enumerate(lines):
        match = _STORED.fullmatch(line)
        assert match, line
        name, dtype, dims, value = match.groups()
        shape = tuple(int(size) for size in dims.split(",") if size)
        made |= _values(name, np.dtype(_TYPES.get(dtype, np.float32)), shape, value, made, number)
    return made


def _values(
    name: str, dtype: np.dtype, shape: tuple[int, ...], value: str | None, made: dict[str, Array], seed: int
) -> dict[str, Array]:
    words = (value or "").split()
    match words:
        case []:
            drawn = (
                noise(*shape, seed=seed) if dtype.kind == "f" else np.arange(np.prod(shape, dtype=int)) + 1
            )
            return {name: drawn.reshape(shape).astype(dtype)}
        case [other] if other in made:
            return {name: made[other]}
        case [other, "transposed"]:
            return {name: np.ascontiguousarray(made[other].T)}
        case [other, "cast"]:
            return {name: made[other].astype(dtype)}
        case ["codes", "of", other]:
            real = made.pop(other) if f"{other}_quantized" == name else made[other]
            return {
                key.replace(other, name.removesuffix("_quantized")): array
                for key, array in quantized(other, real).items()
            }
        case ["4-bit", "codes", "of", other]:
            return packed(other, made.pop(other).T)
        case _:
            return {name: np.array([float(word) for word in words], dtype).reshape(shape)}


def quote(line: str, names: Iterable[str]) -> str:
    """Quote the names in a node, as ONNX's text format requires for dotted names."""
    for name in sorted(names, key=len, reverse=True):
        line = re.sub(rf'(?<![\w.:/"]){re.escape(name)}(?![\w.:/"])', f'"{name}"', line)
    return line


def make(example: Example) -> onnx.ModelProto:
    """Return the model of an example."""
    lines = example.source
    inputs = ", ".join(
        f"{kind} {name}" for name, kind in (line.split()[1:] for line in lines if line.startswith("given "))
    )
    stored = weights_of([line for line in lines if line.startswith("stored ")])
    known = ("given ", "stored ", "note ", "node ", "scale ", "written by ")
    nodes = [quote(line, stored) for line in lines if not line.startswith(known)]
    last = re.match(r"(?:\[[^]]*\] )?(\w+)", nodes[-1])[1]
    proto = text_model(f"example ({inputs}) => (float[n] {last}) {{ {' '.join(nodes)} }}", stored)
    for line in lines:
        if line.startswith("written by "):
            proto.producer_name = line.removeprefix("written by ")
        elif line.startswith("scale "):
            _, name, _, _, value = line.split()
            annotation = proto.graph.quantization_annotation.add(tensor_name=value)
            annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value=name)
        elif line.startswith("note "):
            name, key, value = re.fullmatch(r"note (\S+) (is|folded from) (.+)", line).groups()
            text = value if key == "is" else repr(value.split(", "))
            set_metadata(proto.graph.value_info.add(name=name), {NOTES[key]: text})
        elif line.startswith("node "):
            name, key, value = re.fullmatch(r"node (\S+) (in|under) (.+)", line).groups()
            (node,) = (node for node in proto.graph.node if node.name == name)
            set_metadata(
                node, {NAME_SCOPES: repr(["", value, name])} if key == "in" else {"namespace": value}
            )
    return proto


def answer(ledger: Ledger) -> str:
    """Return a line for each stored tensor: its role, rule, counted elements and, if known, scope."""
    rows = [tuple(cells(entry)) for entry in ledger.entries]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([*lines, f"parameters: {ledger.parameters}", ""])


def cells(entry: Entry) -> list[str]:
    scope = f"in {entry.scope or 'the root'} ({entry.scoped_by})" if entry.has_scope else "in no module"
    return [
        entry.tensor.name,
        entry.role.value,
        entry.decided_by,
        f"{entry.parameters} of {entry.tensor.numel}",
        scope,
    ]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_page_says_what_is_answered(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest, golden: object
) -> None:
    page = path.read_text(encoding="utf-8")
    found = page
    for example in map(Example, BLOCK.findall(page)):
        text = "\n".join(example.source) + "\n\n" + answer(audit(tmp_path, make(example)))
        found = found.replace(f"```ledger\n{example.text}```", f"```ledger\n{text}```")

    if request.config.getoption("--update-golden"):
        path.write_text(found, encoding="utf-8")
    assert found == page or request.config.getoption("--update-golden"), "make golden"


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.source[-1][:40])
def test_the_parameters_of_an_example_are_the_sum_of_its_lines(example: Example) -> None:
    *lines, total = example.answer.splitlines()

    assert sum(int(re.search(r" (\d+) of \d+", line)[1]) for line in lines) == int(
        total.removeprefix("parameters: ")
    )


def rules_of(*modules: str) -> set[str]:
    """Return the texts `evidence:rule` in the sources."""
    kinds = tuple(f"{evidence.value}:" for evidence in Evidence)
    found: set[str] = set()
    for path in (path for module in modules for path in sorted((ROOT / "analyzer" / module).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and node.value.startswith(kinds)
            ):
                found.add(node.value)
    return {rule for rule in found if re.fullmatch(r"[a-z]+:[\w-]+", rule) and not rule.endswith("-")}


def test_every_rule_that_decides_a_role_a_copy_or_a_scope_has_an_example() -> None:
    answers = "\n".join(example.answer for example in examples())
    rules = rules_of("account/classify", "account/copies", "account/scopes")

    assert len(rules) > 20
    assert not sorted(rule for rule in rules - ELSEWHERE if rule not in answers)


ELSEWHERE = {
    "content:cast-duplicated-file",  # needs several files: the page explains it in words
    "content:duplicated-file",
    "content:quantized-duplicated-file",
    "content:shared-data",
    "content:transposed-duplicated-file",
    "name:duplicated-file",
}
"""Rules that need more than one file, which a small example cannot show."""
