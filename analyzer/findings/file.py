"""What the reader saw of a file as a whole: its names, versions, operators and wiring -> findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import onnx.defs

from analyzer.findings.evidence import Evidence, labels, sum_elements
from analyzer.ledger import Finding, Role, Severity
from analyzer.model import Component, label

__all__ = [
    "UNREAD",
    "find_depth",
    "find_empty",
    "find_functions",
    "find_names",
    "find_operators",
    "find_unread",
    "find_versions",
    "find_wiring",
]

UNREAD = {
    "external-escapes": Severity.ERROR,
    "external-missing": Severity.ERROR,
    "external-short": Severity.ERROR,
    "invalid-dims": Severity.ERROR,
    "payload-mismatch": Severity.ERROR,
    "undefined-input": Severity.WARNING,
    "unknown-dtype": Severity.ERROR,
    "unknown-fields": Severity.WARNING,
}
"""What the reader notes of single tensors."""

_PROTOBUF_DEPTH = 32
"""Nested graphs that protobuf's parsers read: 100 messages in each other, three for each graph."""

_OLD_OPSET = 7
"""The first opset that onnxruntime runs (its docs/Versioning.md)."""

_HIGHEST = 1 << 16
"""No domain counts that far: ONNX itself is at 27 after nine years."""

_RUNTIME_DOMAINS = ("com.microsoft", "com.ms.")


def find_unread(evidence: Evidence) -> Iterator[Finding]:
    """What could not be read of single tensors."""
    model = evidence.model
    grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for finding, key, sentence in model.unread:
        grouped[finding, sentence].append(label(key))
    for (finding, sentence), subjects in grouped.items():
        tensors = "1 tensor" if len(subjects) == 1 else f"{len(subjects):,} tensors"
        yield Finding(finding, UNREAD[finding], f"{sentence} ({tensors})", tuple(sorted(subjects)))


def find_empty(evidence: Evidence) -> Iterator[Finding]:
    """Whether there is anything to count."""
    model, entries = evidence.model, evidence.entries
    nodes = sum(len(graph.nodes) for graph in model.graphs)
    if not nodes and not entries:
        yield Finding("empty-model", Severity.WARNING, "no nodes and no stored tensors")
    elif not any(entry.role is Role.PARAMETER for entry in entries):
        yield Finding("weightless", Severity.NOTE, f"{nodes:,} nodes, but no stored tensor is a parameter")
    misfits = {key for finding, key, _ in model.unread if finding == "payload-mismatch"}
    stripped = [e for e in entries if e.tensor.key in misfits and e.tensor.numel and not e.tensor.nbytes]
    if stripped:
        message = (
            f"{sum_elements(stripped):,} elements are in tensors that have a shape and no data: the weights are "
            "not in the file"
        )
        yield Finding("weightless", Severity.WARNING, message, labels(stripped))


def find_names(evidence: Evidence) -> Iterator[Finding]:
    """Names that repeat, hide what they are, or are a caller's too."""
    model = evidence.model
    twice = {(tensor.graph_path, tensor.name) for tensor in model.tensors() if tensor.occurrence > 1}
    for id_, names, words in (
        ("duplicate-name", map(label, twice), "names are stored more than once in one graph"),
        ("non-utf8-name", model.not_utf8, "names are no UTF-8; they are shown with their bytes escaped"),
        (
            "control-characters",
            model.odd_names,
            "names have control or invisible characters; they are shown escaped",
        ),
    ):
        subjects = tuple(sorted(names))
        if subjects:
            yield Finding(id_, Severity.WARNING, f"{len(subjects):,} {words}", subjects)
    for part, graphs in model.by_part():
        overridable = tuple(sorted(label((g.path, name)) for g in graphs for name in g.overridable))
        if overridable:
            why = (
                "as this IR version demands"
                if part.ir_version < 4
                else "so whoever runs the model may replace them"
            )
            message = f"{len(overridable):,} initializers are inputs of the graph too, {why}"
            yield Finding("initializer-is-input", Severity.NOTE, _of(part, message), overridable)


def _of(part: Component, sentence: str) -> str:
    """A sentence on one model file, which is named where there are several."""
    return f"{part.name}: {sentence}" if part.path else sentence


def find_versions(evidence: Evidence) -> Iterator[Finding]:
    """IR version and opsets, of each model file by itself."""
    for part in evidence.model.parts:
        yield from _find_versions(part)


def _find_versions(part: Component) -> Iterator[Finding]:
    versions: dict[str, list[int]] = defaultdict(list)
    for domain, version in part.opsets:
        versions[domain].append(version)
    if not part.opsets:
        message = (
            "imports no opset, so nothing says what its operators mean; the end of the file may be cut off"
        )
        yield Finding("no-opset", Severity.WARNING, _of(part, message))
    newest = versions.get("ai.onnx", [])
    if newest and 0 < max(newest) < _OLD_OPSET:
        message = f"opset {max(newest)} is older than {_OLD_OPSET}, the first that onnxruntime runs"
        yield Finding("old-opset", Severity.WARNING, _of(part, message))
    odd = [
        f"{domain} {', '.join(map(str, found))}"
        for domain, found in sorted(versions.items())
        if len(set(found)) > 1 or not all(0 < version < _HIGHEST for version in found)
    ]
    if odd:
        message = "opsets that contradict each other or are no version"
        yield Finding("invalid-version", Severity.WARNING, _of(part, message), tuple(odd))
    if not 0 < part.ir_version <= onnx.IR_VERSION:
        message = f"IR version {part.ir_version} is none that onnx {onnx.__version__} knows (1 to {onnx.IR_VERSION})"
        yield Finding("invalid-version", Severity.WARNING, _of(part, message))


def find_functions(evidence: Evidence) -> Iterator[Finding]:
    """Local functions that call themselves, or exist twice in one file."""
    calls, root = evidence.calls, evidence.model.root
    circular = tuple(sorted(label((c.function.path, "")).rstrip("/") for c in calls if c.is_recursive))
    if circular:
        message = (
            f"{len(circular):,} functions call themselves, directly or by others: no runtime can inline them"
        )
        yield Finding("recursive-function", Severity.WARNING, message, circular)
    counted = Counter(
        (root(c.function.path), (c.function.domain, c.function.name, c.function.overload)) for c in calls
    )
    repeated = (key for key, times in counted.items() if times > 1)
    twice = tuple(sorted(label((path, ".".join(filter(None, names)))) for path, names in repeated))
    if twice:
        message = f"{len(twice):,} functions are defined more than once; the first of each is taken for the called one"
        yield Finding("duplicate-function", Severity.WARNING, message, twice)


def find_depth(evidence: Evidence) -> Iterator[Finding]:
    """Graphs nested deeper than others read."""
    model = evidence.model
    nested = (graph.path for graph in model.graphs if graph.parent is not None)
    depth = max((len(path) - len(model.root(path)) for path in nested), default=0)
    if depth > _PROTOBUF_DEPTH:
        message = (
            f"graphs are nested {depth} deep; what reads ONNX through protobuf stops at {_PROTOBUF_DEPTH}"
        )
        yield Finding("deep-nesting", Severity.WARNING, message)


def find_wiring(evidence: Evidence) -> Iterator[Finding]:
    """Values that come from nowhere, too late, or twice."""
    wiring = evidence.wiring
    for values, id_, words in (
        (wiring.undefined, "undefined-input", "are read and nothing provides them"),
        (wiring.unsorted, "not-sorted", "are read before they are computed, or in a circle"),
        (
            wiring.repeated,
            "duplicate-output",
            "are computed by more than one node, or by a node and given besides",
        ),
    ):
        if values:
            subjects = tuple(sorted({label(value) for value in values}))
            yield Finding(id_, Severity.WARNING, f"{len(subjects):,} values {words}", subjects)


def find_operators(evidence: Evidence) -> Iterator[Finding]:
    """Operators that ONNX does not define."""
    model = evidence.model
    local = {(model.root(f.path), f.domain, f.name) for f in model.functions}
    used = Counter(
        (model.root(graph.path), node.domain, node.op_type) for graph in model.graphs for node in graph.nodes
    )
    foreign: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for (root, domain, op_type), nodes in used.items():
        if (root, domain, op_type) in local:
            continue
        if domain in ("", "ai.onnx"):
            if not onnx.defs.has(op_type):
                unknown[op_type] += nodes
        elif not domain.startswith("ai.onnx."):
            foreign[domain] += nodes
    if foreign:
        where = (
            "onnxruntime's own" if all(d.startswith(_RUNTIME_DOMAINS) for d in foreign) else "not ONNX's own"
        )
        message = f"{sum(foreign.values()):,} nodes use operators that are {where}"
        subjects = tuple(f"{domain}: {nodes:,} nodes" for domain, nodes in sorted(foreign.items()))
        yield Finding("custom-domain", Severity.NOTE, message, subjects)
    if unknown:
        message = f"{sum(unknown.values()):,} nodes name operators that ONNX does not define"
        subjects = tuple(f"{op_type}: {nodes:,} nodes" for op_type, nodes in sorted(unknown.items()))
        yield Finding("unknown-operator", Severity.WARNING, message, subjects)
