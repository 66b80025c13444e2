"""Model + ledger -> findings: what the user of a readable file should know. Ids are the contract's."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx.defs

from analyzer.bytes import Booked
from analyzer.dtypes import DType
from analyzer.functions import Calls
from analyzer.ledger import Entry, Finding, Role, Severity
from analyzer.model import Carrier, Key, Model, Node, NoPayload, StoredTensor, label
from analyzer.read.book import NODE_METADATA, UNKNOWN
from analyzer.structure import role_by_structure
from analyzer.values import Values
from analyzer.wiring import Wiring

__all__ = ["UNREAD", "Evidence", "find"]

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

_STRIPPABLE = 1 << 10
"""Bytes of metadata that are worth a word."""

_FEW = 64
"""Elements of a shape that is read to know what ConstantOfShape makes."""

Outputs = frozenset[Key]
"""What the graphs hand out."""

_RUNTIME_DOMAINS = ("com.microsoft", "com.ms.")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the stages before know of a model."""

    model: Model
    entries: Sequence[Entry]
    wiring: Wiring
    booked: Booked
    values: Values
    calls: Sequence[Calls] = ()


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """All findings of one file, sorted by id."""
    model, entries = evidence.model, evidence.entries
    found = [
        *_unread(model),
        *_empty(model, entries),
        *_names(model),
        *_versions(model),
        *_functions(evidence.calls),
        *_depth(model),
        *_wiring(evidence.wiring),
        *_operators(model),
        *_bytes(model, evidence.booked),
        *_copies(entries),
        *_runtime_weights(evidence),
        *_values(evidence),
    ]
    outputs = frozenset((graph.path, name) for graph in model.graphs for name in graph.outputs)
    for id_, severity, is_one, sentence in _ENTRY_RULES:
        members = [entry for entry in entries if is_one(entry, outputs)]
        if members:
            found.append(Finding(id_, severity, sentence(members), _labels(members)))
    return tuple(sorted(found, key=lambda finding: (finding.id, finding.message, finding.subjects)))


# what single entries are


def _is_unattributed(entry: Entry, _: Outputs) -> bool:
    return entry.role is Role.UNATTRIBUTED


def _is_unused(entry: Entry, outputs: Outputs) -> bool:
    tensor = entry.tensor
    return not entry.uses and tensor.carrier is Carrier.INITIALIZER and tensor.key not in outputs


def _is_hidden_in_constant(entry: Entry, _: Outputs) -> bool:
    carriers = (Carrier.CONSTANT, Carrier.SPARSE_CONSTANT, Carrier.CONSTANT_LIST)
    return entry.role is Role.PARAMETER and entry.tensor.carrier in carriers


def _is_double(entry: Entry, _: Outputs) -> bool:
    return entry.role is Role.PARAMETER and entry.tensor.dtype in (DType.DOUBLE, DType.COMPLEX128)


def _stored(entries: Sequence[Entry]) -> int:
    return sum(entry.tensor.numel for entry in entries)


def _nbytes(entries: Sequence[Entry]) -> int:
    return sum(entry.tensor.nbytes for entry in entries)


_Rule = tuple[str, Severity, Callable[[Entry, Outputs], bool], Callable[[Sequence[Entry]], str]]

_ENTRY_RULES: tuple[_Rule, ...] = (
    (
        "unattributed",
        Severity.WARNING,
        _is_unattributed,
        lambda found: f"{_stored(found):,} elements that no rule explains",
    ),
    (
        "unused-initializer",
        Severity.WARNING,
        _is_unused,
        lambda found: f"{_nbytes(found):,} bytes in initializers that no node reads",
    ),
    (
        "constant-weights",
        Severity.NOTE,
        _is_hidden_in_constant,
        lambda found: (
            f"{sum(entry.parameters for entry in found):,} parameters are in Constant nodes, where tools that count "
            "initializers miss them"
        ),
    ),
    (
        "fp64-weights",
        Severity.WARNING,
        _is_double,
        lambda found: (
            f"{_stored(found):,} learned elements are stored in 64 bits; in 32 bits they would take "
            f"{_nbytes(found) // 2:,} bytes less"
        ),
    ),
)
"""(id, severity, whether an entry is one, the sentence)."""


# what the reader saw


def _unread(model: Model) -> Iterator[Finding]:
    grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for finding, key, sentence in model.unread:
        grouped[finding, sentence].append(label(key))
    for (finding, sentence), subjects in grouped.items():
        tensors = "1 tensor" if len(subjects) == 1 else f"{len(subjects):,} tensors"
        yield Finding(finding, UNREAD[finding], f"{sentence} ({tensors})", tuple(sorted(subjects)))


def _empty(model: Model, entries: Sequence[Entry]) -> Iterator[Finding]:
    nodes = sum(len(graph.nodes) for graph in model.graphs)
    if not nodes and not entries:
        yield Finding("empty-model", Severity.WARNING, "no nodes and no stored tensors")
    elif not any(entry.role is Role.PARAMETER for entry in entries):
        yield Finding("weightless", Severity.NOTE, f"{nodes:,} nodes, but no stored tensor is a parameter")


def _names(model: Model) -> Iterator[Finding]:
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
    overridable = tuple(sorted(label((g.path, name)) for g in model.graphs for name in g.overridable))
    if overridable:
        why = (
            "as this IR version demands"
            if model.ir_version < 4
            else "so whoever runs the model may replace them"
        )
        message = f"{len(overridable):,} initializers are inputs of the graph too, {why}"
        yield Finding("initializer-is-input", Severity.NOTE, message, overridable)


def _versions(model: Model) -> Iterator[Finding]:
    versions: dict[str, list[int]] = defaultdict(list)
    for domain, version in model.opsets:
        versions[domain].append(version)
    if not model.opsets:
        message = (
            "imports no opset, so nothing says what its operators mean; the end of the file may be cut off"
        )
        yield Finding("no-opset", Severity.WARNING, message)
    newest = versions.get("ai.onnx", [])
    if newest and 0 < max(newest) < _OLD_OPSET:
        message = f"opset {max(newest)} is older than {_OLD_OPSET}, the first that onnxruntime runs"
        yield Finding("old-opset", Severity.WARNING, message)
    odd = [
        f"{domain} {', '.join(map(str, found))}"
        for domain, found in sorted(versions.items())
        if len(set(found)) > 1 or not all(0 < version < _HIGHEST for version in found)
    ]
    if odd:
        message = "opsets that contradict each other or are no version"
        yield Finding("invalid-version", Severity.WARNING, message, tuple(odd))
    if not 0 < model.ir_version <= onnx.IR_VERSION:
        message = f"IR version {model.ir_version} is none that onnx {onnx.__version__} knows (1 to {onnx.IR_VERSION})"
        yield Finding("invalid-version", Severity.WARNING, message)


_HIGHEST = 1 << 16
"""No domain counts that far: ONNX itself is at 27 after nine years."""


def _functions(calls: Sequence[Calls]) -> Iterator[Finding]:
    circular = tuple(sorted(label((c.function.path, "")).rstrip("/") for c in calls if c.calls is None))
    if circular:
        message = (
            f"{len(circular):,} functions call themselves, directly or by others: no runtime can inline them"
        )
        yield Finding("recursive-function", Severity.WARNING, message, circular)
    counted = Counter((c.function.domain, c.function.name, c.function.overload) for c in calls)
    twice = tuple(sorted(".".join(filter(None, key)) for key, times in counted.items() if times > 1))
    if twice:
        message = f"{len(twice):,} functions are defined more than once; the first of each is taken for the called one"
        yield Finding("duplicate-function", Severity.WARNING, message, twice)


def _depth(model: Model) -> Iterator[Finding]:
    depth = max((len(graph.path) for graph in model.graphs if graph.parent is not None), default=0)
    if depth > _PROTOBUF_DEPTH:
        message = (
            f"graphs are nested {depth} deep; what reads ONNX through protobuf stops at {_PROTOBUF_DEPTH}"
        )
        yield Finding("deep-nesting", Severity.WARNING, message)


def _wiring(wiring: Wiring) -> Iterator[Finding]:
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


def _operators(model: Model) -> Iterator[Finding]:
    local = {(function.domain, function.name) for function in model.functions}
    used = Counter((node.domain, node.op_type) for node in model.nodes())
    foreign: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for (domain, op_type), nodes in used.items():
        if (domain, op_type) in local:
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


# bytes


def _bytes(model: Model, booked: Booked) -> Iterator[Finding]:
    nbytes = {account.name: account.nbytes for account in booked.accounts}
    metadata = nbytes[NODE_METADATA]
    if metadata >= _STRIPPABLE:
        message = (
            f"{metadata:,} bytes could be stripped: stack traces and notes on nodes, which no runtime reads (the notes "
            "tell subgraphs apart, so audit before you strip)"
        )
        yield Finding("strippable-metadata", Severity.NOTE, message)
    if nbytes[UNKNOWN]:
        message = f"{nbytes[UNKNOWN]:,} bytes are in fields that the ONNX format does not define: no reader sees them"
        yield Finding("unknown-fields", Severity.WARNING, message)
    if booked.overlaps:
        pairs = tuple(sorted(f"{label(a.tensor.key)} and {label(b.tensor.key)}" for a, b in booked.overlaps))
        message = (
            f"{len(pairs):,} tensors begin within the external data of another; their bytes are booked once"
        )
        yield Finding("external-overlap", Severity.WARNING, message, pairs)
    if booked.orphans:
        names = {file.key: file.path for file in model.files}
        places = tuple(
            f"{names[gap.file]}: {gap.length:,} bytes at offset {gap.offset:,}" for gap in booked.orphans
        )
        message = f"{sum(gap.length for gap in booked.orphans):,} bytes of external files belong to no tensor"
        yield Finding("external-orphaned", Severity.WARNING, message, places)


# contents


def _copies(entries: Iterable[Entry]) -> Iterator[Finding]:
    for rule, finding, words in (
        ("content:copy", "duplicate-content", "as it stands"),
        ("content:transposed-copy", "transposed-copy", "transposed"),
    ):
        copies = [entry for entry in entries if entry.decided_by == rule]
        if copies:
            named = [f"{label(e.tensor.key)} = {label(e.copy_of)}" for e in copies if e.copy_of is not None]
            message = f"{_stored(copies):,} elements ({_nbytes(copies):,} bytes) are stored again, {words}"
            yield Finding(finding, Severity.WARNING, message, tuple(sorted(named)))


def _values(evidence: Evidence) -> Iterator[Finding]:
    values = evidence.values
    constant = [entry for entry in evidence.entries if entry.tensor.key in values.constant]
    if constant:
        message = f"{_stored(constant):,} learned elements are in tensors of one value throughout"
        yield Finding("constant-filled", Severity.NOTE, message, _labels(constant))
    broken = [entry for entry in evidence.entries if entry.tensor.key in values.not_finite]
    if broken:
        message = f"{len(broken):,} tensors hold NaN or infinity"
        yield Finding("nan-or-inf", Severity.WARNING, message, _labels(broken))


def _runtime_weights(evidence: Evidence) -> Iterator[Finding]:
    """What ConstantOfShape makes of a stored shape, where it is read as weights are."""
    made: dict[str, int] = {}
    for node in evidence.model.nodes():
        if node.op_type == "ConstantOfShape" and node.domain in ("", "ai.onnx") and node.outputs:
            shape = _stored_shape(evidence.wiring, node)
            if shape is not None:
                numel = math.prod(shape)
                tensor = StoredTensor(
                    node.outputs[0],
                    node.graph_path,
                    Carrier.CONSTANT,
                    DType.FLOAT,
                    shape,
                    numel,
                    0,
                    NoPayload(),
                )
                decided = role_by_structure(evidence.wiring, node, tensor)
                if decided is not None and decided[0] is Role.PARAMETER:
                    made[label((node.graph_path, node.outputs[0]))] = numel
    if made:
        message = (
            f"{sum(made.values()):,} elements are made by ConstantOfShape when the model runs, where weights belong; "
            "they are in no file, and not counted"
        )
        yield Finding("runtime-weights", Severity.WARNING, message, tuple(sorted(made)))


def _stored_shape(wiring: Wiring, node: Node) -> tuple[int, ...] | None:
    """The shape that a ConstantOfShape node is given, if it is a stored tensor."""
    for source in wiring.producers(node):
        is_short = isinstance(source, StoredTensor) and source.numel <= _FEW
        if isinstance(source, StoredTensor) and is_short and source.dtype is DType.INT64:
            array = source.payload.array()
            shape = () if array is None else tuple(map(int, array.reshape(-1)))
            if array is not None and array.ndim <= 1 and min(shape, default=0) >= 0:
                return shape
    return None


def _labels(entries: Iterable[Entry]) -> tuple[str, ...]:
    return tuple(sorted(label(entry.tensor.key) for entry in entries))
