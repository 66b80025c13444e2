"""A source file -> its mutants: the file with one place changed by one of mutmut's operators."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import islice
from pathlib import Path

import libcst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider, WhitespaceInclusivePositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string

MODULE = "<module>"
_TABLE = re.compile(r"_?[A-Z][A-Z0-9_]*")
_ASSERTION = "strict=True"  # in zip: no user input can violate it
_UNTOUCHED_CALLS = {"len", "isinstance"}  # their mutants only raise


@dataclass(frozen=True, slots=True)
class Mutant:
    """A file with one place changed.

    `function` is the function that contains the place, or `MODULE` for a table of the module. `lines` are those of the
    statement around the place: a test that runs none of them cannot notice the change.
    """

    name: str
    path: Path
    function: str
    lines: range
    source: str
    diff: str


@dataclass(frozen=True, slots=True)
class _Place:
    node: libcst.CSTNode
    changed: libcst.CSTNode
    span: CodeRange
    function: str
    lines: range


class _Places(libcst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider, WhitespaceInclusivePositionProvider)

    def __init__(self) -> None:
        self.found: list[_Place] = []
        self._names: list[str] = []
        self._functions: list[str] = []
        self._statements: list[range] = []

    def on_visit(self, node: libcst.CSTNode) -> bool:
        if isinstance(
            node, libcst.Annotation | libcst.Decorator | libcst.Param | libcst.Import | libcst.ImportFrom
        ):
            return False
        if isinstance(node, libcst.Call) and getattr(node.func, "value", None) in _UNTOUCHED_CALLS:
            return False
        if isinstance(node, libcst.FunctionDef | libcst.ClassDef):
            self._names.append(node.name.value)
        if isinstance(node, libcst.FunctionDef):
            self._functions.append(".".join(self._names))
        if isinstance(node, libcst.SimpleStatementLine | libcst.BaseCompoundStatement):
            self._statements.append(self._own_lines(node))
        if self._functions or (not self._names and self._statements):
            self._change(node)
        return True

    def on_leave(self, original_node: libcst.CSTNode) -> None:
        if isinstance(original_node, libcst.FunctionDef | libcst.ClassDef):
            self._names.pop()
        if isinstance(original_node, libcst.FunctionDef):
            self._functions.pop()
        if isinstance(original_node, libcst.SimpleStatementLine | libcst.BaseCompoundStatement):
            self._statements.pop()

    def _change(self, node: libcst.CSTNode) -> None:
        function = self._functions[0] if self._functions else MODULE
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                for changed in islice(operator(node), 1 if operator is operator_string else None):
                    span = self.get_metadata(WhitespaceInclusivePositionProvider, node)
                    self.found.append(_Place(node, changed, span, function, self._statements[-1]))

    def _own_lines(self, node: libcst.CSTNode) -> range:
        """Return the lines of a simple statement, or of the head of a compound one."""
        position = self.get_metadata(PositionProvider, node)
        last = position.end.line
        body = getattr(node, "body", None)
        if isinstance(body, libcst.IndentedBlock):
            first_inside = self.get_metadata(PositionProvider, body.body[0]).start.line
            last = max(position.start.line, first_inside - 1)
        return range(position.start.line, last + 1)


def mutants_of(path: Path, module: str) -> Iterator[Mutant]:
    """Yield every mutant of a file, in order; their names are `<module>.<function>#<number>`."""
    source = path.read_text(encoding="utf-8")
    wrapper = MetadataWrapper(libcst.parse_module(source))
    places = _Places()
    wrapper.visit(places)
    lines = source.splitlines(keepends=True)
    numbers: Counter[str] = Counter()
    for place in places.found:
        if place.function == MODULE and not _is_table(lines[place.lines[0] - 1]):
            continue
        changed = _with(wrapper.module, lines, place)
        if changed != source and changed.count(_ASSERTION) == source.count(_ASSERTION):
            numbers[place.function] += 1
            name = f"{module}.{place.function}#{numbers[place.function]}"
            yield Mutant(name, path, place.function, place.lines, changed, _diff(source, changed))


def _is_table(line: str) -> bool:
    name = re.match(r"\w+", line)
    return name is not None and _TABLE.fullmatch(name[0]) is not None


def _with(module: libcst.Module, lines: Sequence[str], place: _Place) -> str:
    start, end = place.span.start, place.span.end
    before = "".join(lines[: start.line - 1]) + lines[start.line - 1][: start.column]
    after = lines[end.line - 1][end.column :] + "".join(lines[end.line :])
    head = lines[place.lines[0] - 1]
    indent = head[: len(head) - len(head.lstrip())]

    def written(node: libcst.CSTNode) -> str:
        return module.code_for_node(node).replace("\n", f"\n{indent}")

    assert "".join(lines) == before + written(place.node) + after, place.lines
    return before + written(place.changed) + after


def _diff(before: str, after: str) -> str:
    lines: Sequence[str] = list(unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))
    return "\n".join(lines[2:])
