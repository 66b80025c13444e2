"""The reports that are rendered: those of the tests, larger ones that tables cut, and one with hostile names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import models
import onnx
import reports
import timings
from onnx import numpy_helper

from analyzer.account.findings.catalog import explain, load_explanations
from analyzer.account.group import group_by
from analyzer.account.group.keys import label_members
from analyzer.comparison import compare_ledgers
from analyzer.formats import FORMATS, RenderOptions, find_suffixes, render_report
from analyzer.formats.graph import FORMATS as GRAPH_FORMATS
from analyzer.formats.json import write_json
from analyzer.formats.json.explain import document_explanations
from analyzer.formats.markdown.pages import write_markdown
from analyzer.formats.text.writer import write_text
from analyzer.graph import build_graph
from analyzer.graph.collapse import collapse_graph
from analyzer.pages.kinds import describe
from analyzer.reports import GraphReport, Inspection, ReconcileReport, Report
from analyzer.version import version

__all__ = ["Case", "find_cases"]

HOSTILE = "a|b $x$ \\input{f}_<i>`c`*\x1b[31m\u202e\n& # ~^%"
"""Text that would end a cell, begin mathematics, be a command or a tag, or control the terminal."""

_SIZES = ((20, 80), (3, 60), (0, 140))
"""Rows of a long table and columns of a terminal."""

_PICTURES = frozenset({"png", "svg"})
"""Formats that matplotlib draws, differently in each version."""


@dataclass(frozen=True)
class Case:
    """One report in one format at one size."""

    name: str
    """`kind/format` and, if the size matters, the rows and columns."""
    render: Callable[[], str]


def find_cases(folder: Path) -> Iterator[Case]:
    """Yield every case. Models are written into the folder, which must be the working one, so that no path appears."""
    for make in (*reports.REPORTS, *_LARGER):
        kind = make.__name__.lstrip("_")
        yield from _of_report(kind, make(_folder(folder, kind)))
    for name, graph in _graphs(folder):
        for style, form in GRAPH_FORMATS.items():
            is_whole = not graph.graph.graph.get("collapsed")
            if style != "png" and not (style == "svg" and is_whole):
                yield Case(f"{name}/{style}", _scrubbed(partial(form, graph)))
    yield from _explanations()


def _folder(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


def _of_report(name: str, report: Report) -> Iterator[Case]:
    styles = [
        style for style, form in FORMATS.items() if form in find_suffixes(type(report).__name__).values()
    ]
    for style in styles:
        if style in _PICTURES:
            continue
        for rows, width in _SIZES if style in ("text", "markdown", "html") else _SIZES[:1]:
            if style != "text" and width == 140:
                continue
            for color in (False, True) if style == "text" and width == 80 else (False,):
                options = RenderOptions(rows=rows, width=width, color=color, verbose=rows == 3)
                size = (
                    f"@{rows}x{width}{'c' if color else ''}" if style in ("text", "markdown", "html") else ""
                )
                yield Case(f"{name}/{style}{size}", _scrubbed(partial(render_report, report, style, options)))


def _scrubbed(render: Callable[[], str | bytes]) -> Callable[[], str]:
    def rendered() -> str:
        made = render()
        return (made if isinstance(made, str) else made.decode()).replace(version(), "<version>")

    return rendered


def _explanations() -> Iterator[Case]:
    some, every = (
        document_explanations(each)
        for each in (map(explain, ("opaque", "duplicate-content")), load_explanations())
    )
    yield Case("explain/text", lambda: write_text(describe(some), verbose=True))
    yield Case("explain/list", lambda: write_text(describe(every)))
    yield Case("explain/markdown", lambda: write_markdown(describe(some), verbose=True))
    yield Case("explain/json", _scrubbed(lambda: write_json(some)))


def _chain(count: int, name: str = "layer") -> onnx.ModelProto:
    """Return `count` layers in sequence, and a head that is stored twice, in scopes of that name."""
    weights = {f"w{i}": models.ramp(4, 4, start=i) for i in range(count)}
    weights |= {"head": models.ramp(4, 6), "twin": models.ramp(4, 6)}
    steps = " ".join(f"[n{i}] x{i + 1} = MatMul(x{i}, w{i})" for i in range(count))
    ends = f"[head] a = MatMul(x{count}, head) [twin] b = MatMul(x{count}, twin) [sum] y = Add(a, b)"
    proto = models.text_model(f"g (float[n,4] x0) => (float[n,6] y) {{ {steps} {ends} }}", weights)
    names = {f"w{i}": f"{name}.{i}.weight" for i in range(count)} | {
        "head": "head.weight",
        "twin": "head.twin",
    }
    for tensor in proto.graph.initializer:
        tensor.name = names[tensor.name]
    for node in proto.graph.node:
        node.input[:] = [names.get(value, value) for value in node.input]
    scopes = {f"n{i}": f"{name}.{i}" for i in range(count)} | {"head": "head", "twin": "head", "sum": ""}
    scoped: onnx.ModelProto = models.with_scopes(proto, scopes)
    return scoped


def _many_layers(folder: Path) -> Report:
    ledger = models.audit(folder, _chain(30))
    return Inspection(ledger, group_by(ledger, "scope", 2))


def _hostile(folder: Path) -> Report:
    ledger = models.audit(folder, _chain(3, HOSTILE))
    return Inspection(ledger, group_by(ledger, "scope", 2))


def _quantized(folder: Path) -> Report:
    head = '<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>'
    node = "com.microsoft.MatMulNBits <K = 32, N = 16, bits = 4, block_size = 16> (x, w, s)"
    weights = dict(zip(("w", "s"), models.packed("w", models.noise(32, 16)).values(), strict=False))
    proto = models.text_model(f"{head} g (float[1,32] x) => (float[1,16] y) {{ y = {node} }}", weights)
    ledger = models.audit(folder, proto)
    return Inspection(ledger, group_by(ledger, "dtype"))


def _unbalanced(folder: Path, name: str = "layer") -> Report:
    proto = _chain(24, name)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    first, second = list(weights)[:2]
    weights[first] = weights[first].T.copy()
    weights[second] = weights[second] + 1
    weights["pooler.weight"] = models.noise(4, 4)
    result = models.reconcile(folder, proto, models.manifest_of(*models.parameters_of(weights)))
    return ReconcileReport(result, group_by(result.in_pytorch_terms(), known=result.trainability))


def _hostile_reconciliation(folder: Path) -> Report:
    return _unbalanced(folder, HOSTILE)


def _grown(folder: Path) -> Report:
    a, b = (models.audit(_folder(folder, name), _chain(count)) for name, count in (("a", 24), ("b", 27)))
    return compare_ledgers(a, b, group_by(a, "scope", 2), group_by(b, "scope", 2), content="full")


def _same(folder: Path) -> Report:
    a = models.audit(folder, _chain(3))
    return compare_ledgers(a, a, group_by(a), group_by(a))


_LARGER: tuple[Callable[[Path], Report], ...] = (
    _many_layers,
    _hostile,
    _quantized,
    _unbalanced,
    _hostile_reconciliation,
    _grown,
    _same,
)


def _graphs(folder: Path) -> Iterator[tuple[str, GraphReport]]:
    for name, proto in (
        ("graph", models.dynamo_like(models.text_model(timings.NET), scopes=timings.SCOPES)),
        ("hostile_graph", _chain(3, HOSTILE)),
    ):
        ledger = models.audit(_folder(folder, name), proto)
        yield name, GraphReport(build_graph(ledger))
        labels = label_members(ledger, "scope", 2)
        yield f"{name}_by_scope", GraphReport(collapse_graph(ledger, labels, fold=True, learned=False))
