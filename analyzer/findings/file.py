"""What the reader saw of a file as a whole: its names, versions, operators and wiring -> findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import onnx.defs

from analyzer.findings.evidence import Evidence, labels, sum_elements
from analyzer.findings.ids import ABSENT, UNREAD
from analyzer.ledger import Finding, Role, Severity
from analyzer.model import (
    DEFAULT_DOMAIN,
    ONNX_DOMAINS,
    Component,
    Key,
    StoredTensor,
    is_runtime_domain,
    label,
)
from analyzer.units import format_doing, format_many

__all__ = [
    "NOTED",
    "find_depth",
    "find_empty",
    "find_functions",
    "find_names",
    "find_operators",
    "find_unread",
    "find_versions",
    "find_wiring",
]

NOTED = dict.fromkeys(sorted(UNREAD), Severity.ERROR) | {
    "undefined-input": Severity.WARNING,
    "unknown-fields": Severity.WARNING,
}
"""What the reader notes of single tensors."""

_PROTOBUF_DEPTH = 32
"""Nested graphs that protobuf's parsers read: 100 messages in each other, three for each graph."""

_OLD_OPSET = 7
"""The first opset that onnxruntime runs (its docs/Versioning.md)."""

_HIGHEST = 1 << 16
"""No domain counts that far: ONNX itself is at 27 after nine years."""


def find_unread(evidence: Evidence) -> Iterator[Finding]:
    """What could not be read of single tensors."""
    tensors = {entry.tensor.key: entry.tensor for entry in evidence.entries}
    grouped: dict[tuple[str, str], list[Key]] = defaultdict(list)
    for finding, key, sentence in evidence.model.unread:
        grouped[finding, sentence].append(key)
    for (finding, sentence), keys in grouped.items():
        if finding in ABSENT:
            extent = _say_extent(len(keys), [tensors[key] for key in set(keys) if key in tensors])
        else:
            extent = "1 tensor" if len(keys) == 1 else f"each of {format_many(len(keys), 'tensor')}"
        yield Finding(finding, NOTED[finding], f"{sentence} ({extent})", tuple(sorted(map(label, keys))))


def _say_extent(count: int, absent: Sequence[StoredTensor]) -> str:
    """How much tensors are by their shapes, whose data cannot be looked at."""
    nbytes = sum(tensor.logical_nbytes for tensor in absent)
    said = [format_many(count, "tensor"), format_many(sum(tensor.numel for tensor in absent), "element")]
    return ", ".join([*said, format_many(nbytes, "byte")] if nbytes else said)


def find_empty(evidence: Evidence) -> Iterator[Finding]:
    """Whether there is anything to count."""
    model, entries = evidence.model, evidence.entries
    nodes = sum(len(graph.nodes) for graph in model.graphs)
    if not nodes and not entries:
        yield Finding("empty-model", Severity.WARNING, "no nodes and no stored tensors")
    elif not any(entry.role is Role.PARAMETER for entry in entries):
        message = f"{format_many(nodes, 'node')}, but no stored tensor is a parameter"
        yield Finding("weightless", Severity.NOTE, message)
    misfits = {key for finding, key, _ in model.unread if finding == "payload-mismatch"}
    misfits -= {key for finding, key, _ in model.unread if finding.startswith("external-")}
    stripped = [e for e in entries if e.tensor.key in misfits and e.tensor.numel and not e.tensor.nbytes]
    if stripped:
        message = (
            f"{format_many(sum_elements(stripped), 'element')} in {format_many(len(stripped), 'tensor')} with a "
            "shape and no data: the weights are not in the file"
        )
        yield Finding("weightless", Severity.WARNING, message, labels(stripped))


def find_names(evidence: Evidence) -> Iterator[Finding]:
    """Names that repeat, hide what they are, or are a caller's too."""
    model = evidence.model
    twice = {(tensor.graph_path, tensor.name) for tensor in model.tensors() if tensor.occurrence > 1}
    for id_, names, verb, words in (
        ("duplicate-name", map(label, twice), "are", "stored more than once in one graph"),
        ("non-utf8-name", model.not_utf8, "are", "no UTF-8; shown with bytes escaped"),
        ("control-characters", model.odd_names, "have", "control or invisible characters; shown escaped"),
    ):
        subjects = tuple(sorted(names))
        if subjects:
            message = f"{format_doing(len(subjects), 'name', verb)} {words}"
            yield Finding(id_, Severity.WARNING, message, subjects)
    for part, graphs in model.by_part():
        overridable = tuple(sorted(label((g.path, name)) for g in graphs for name in g.overridable))
        if overridable:
            why = (
                "as this IR version demands"
                if part.ir_version < 4
                else "so whoever runs the model may give other values"
            )
            said = format_doing(len(overridable), "initializer", "are")
            message = f"{said} among the graph's inputs too, {why}"
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
    newest = versions.get(DEFAULT_DOMAIN, [])
    if newest and 0 < max(newest) < _OLD_OPSET:
        message = f"opset {max(newest)} is older than {_OLD_OPSET}, the first that onnxruntime runs"
        yield Finding("old-opset", Severity.WARNING, _of(part, message))
    odd = [
        f"{domain} {', '.join(map(str, sorted(found)))}"
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
        said = format_doing(len(circular), "function", "call")
        whom = "itself" if len(circular) == 1 else "themselves"
        message = f"{said} {whom}, directly or by others: no runtime can inline that"
        yield Finding("recursive-function", Severity.WARNING, message, circular)
    counted = Counter(
        (root(c.function.path), (c.function.domain, c.function.name, c.function.overload)) for c in calls
    )
    repeated = (key for key, times in counted.items() if times > 1)
    twice = tuple(sorted(label((path, ".".join(filter(None, names)))) for path, names in repeated))
    if twice:
        said = format_doing(len(twice), "function", "are")
        message = f"{said} defined more than once; the first of a name is taken for the called one"
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
        (wiring.undefined, "undefined-input", "read and provided by nothing"),
        (wiring.unsorted, "not-sorted", "read before being computed, or in a circle"),
        (
            wiring.repeated,
            "duplicate-output",
            "computed by more than one node, or by a node and given besides",
        ),
    ):
        if values:
            subjects = tuple(sorted({label(value) for value in values}))
            message = f"{format_doing(len(subjects), 'value', 'are')} {words}"
            yield Finding(id_, Severity.WARNING, message, subjects)


def find_operators(evidence: Evidence) -> Iterator[Finding]:
    """Operators that ONNX does not define."""
    calls = evidence.wiring.calls
    used = Counter(
        (node.domain, node.op_type) for node in evidence.model.nodes() if not calls or node.place not in calls
    )
    foreign: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for (domain, op_type), nodes in used.items():
        if domain in ("", DEFAULT_DOMAIN):
            if not onnx.defs.has(op_type):
                unknown[op_type] += nodes
        elif domain not in ONNX_DOMAINS:
            foreign[domain] += nodes
    if foreign:
        where = "onnxruntime's own" if all(map(is_runtime_domain, foreign)) else "not ONNX's own"
        whose = "an operator that is" if foreign.total() == 1 else "operators that are"
        message = f"{format_doing(foreign.total(), 'node', 'use')} {whose} {where}"
        yield Finding("custom-domain", Severity.NOTE, message, _count_nodes(foreign))
    if unknown:
        named = "an operator" if unknown.total() == 1 else "operators"
        message = f"{format_doing(unknown.total(), 'node', 'name')} {named} that ONNX does not define"
        yield Finding("unknown-operator", Severity.WARNING, message, _count_nodes(unknown))


def _count_nodes(counted: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{name}: {format_many(nodes, 'node')}" for name, nodes in sorted(counted.items()))
