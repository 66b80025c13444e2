"""Model + ledger -> findings, by all rules.

A rule takes the facts and yields findings. Add a new rule next to those of its subject and to `RULES`, and explain its
findings in catalog.toml.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from operator import attrgetter

from analyzer.account.classify.structure import Structure
from analyzer.account.decoding.encodings import find_packing
from analyzer.account.findings import (
    ABSENT,
    HIGHEST_OF_ONNX,
    HIGHEST_VERSION,
    OPAQUE,
    UNATTRIBUTED,
    UNREAD,
    WEIGHTLESS,
)
from analyzer.account.findings.facts import Facts, labels, sum_elements, sum_nbytes
from analyzer.account.ledger import Entry, Finding, Role, Severity
from analyzer.model import (
    DEFAULT_DOMAIN,
    ONNX_DOMAINS,
    Carrier,
    Component,
    Key,
    Node,
    NoPayload,
    Place,
    StoredTensor,
    is_runtime_domain,
    is_training,
    label,
)
from analyzer.model.dtypes import DType
from analyzer.model.operators import STANDARD
from analyzer.model.versions import Versions
from analyzer.model.wiring import Wiring
from analyzer.read.book import NODE_METADATA, UNKNOWN
from analyzer.read.protos import IR_VERSION
from analyzer.text import format_count, format_doing, format_many, printable_name

# the file as a whole

NOTED = dict.fromkeys(sorted(UNREAD), Severity.ERROR) | {
    "undefined-input": Severity.WARNING,
    "unknown-fields": Severity.WARNING,
}
"""Severities of the findings that the reader reports for single tensors."""

_PROTOBUF_DEPTH = 32
"""Nested graphs that protobuf parsers can read: they stop at 100 nested messages, and a graph takes three."""

_OLD_OPSET = 7
"""First opset that onnxruntime runs (its docs/Versioning.md)."""


def find_unread(facts: Facts) -> Iterator[Finding]:
    """Yield findings for tensors that could not be read."""
    tensors = {entry.tensor.key: entry.tensor for entry in facts.entries}
    grouped: dict[tuple[str, str], list[Key]] = defaultdict(list)
    for finding, key, sentence in facts.model.unread:
        grouped[finding, sentence].append(key)
    for (finding, sentence), keys in grouped.items():
        if finding in ABSENT:
            extent = _describe_extent(len(keys), [tensors[key] for key in set(keys) if key in tensors])
        else:
            extent = "1 tensor" if len(keys) == 1 else f"each of {format_many(len(keys), 'tensor')}"
        yield Finding(finding, NOTED[finding], f"{sentence} ({extent})", tuple(sorted(map(label, keys))))


def _describe_extent(count: int, absent: Sequence[StoredTensor]) -> str:
    """Say how large tensors are by their shapes, if their data cannot be read."""
    nbytes = sum(tensor.logical_nbytes for tensor in absent)
    parts = [format_many(count, "tensor"), format_many(sum(tensor.numel for tensor in absent), "element")]
    return ", ".join([*parts, format_many(nbytes, "byte")] if nbytes else parts)


def find_empty(facts: Facts) -> Iterator[Finding]:
    """Yield a finding if there is nothing to count."""
    model, entries = facts.model, facts.entries
    nodes = sum(len(graph.nodes) for graph in model.graphs)
    if not nodes and not entries:
        yield Finding("empty-model", Severity.WARNING, "no nodes and no stored tensors")
    elif not any(entry.role is Role.PARAMETER for entry in entries):
        message = f"{format_many(nodes, 'node')}, {'but' if nodes else 'and'} no stored tensor is a parameter"
        yield Finding(WEIGHTLESS, Severity.NOTE, message)
    mismatched = {key for finding, key, _ in model.unread if finding == "payload-mismatch"}
    mismatched -= {key for finding, key, _ in model.unread if finding.startswith("external-")}
    stripped = [e for e in entries if e.tensor.key in mismatched and e.tensor.numel and not e.tensor.nbytes]
    if stripped:
        message = (
            f"{format_many(sum_elements(stripped), 'element')} in {format_many(len(stripped), 'tensor')} have a "
            "shape and no data: the weights are not in the file"
        )
        yield Finding(WEIGHTLESS, Severity.WARNING, message, labels(stripped))


def find_names(facts: Facts) -> Iterator[Finding]:
    """Yield findings for names that repeat, hold odd characters, or belong to a graph input too."""
    model = facts.model
    twice = {(tensor.graph_path, tensor.name) for tensor in model.tensors() if tensor.occurrence > 1}
    for id_, names, verb, words in (
        ("duplicate-name", map(label, twice), "are", "stored more than once in one graph"),
        ("non-utf8-name", model.not_utf8, "are", "not UTF-8; shown with bytes escaped"),
        ("control-characters", model.odd_names, "have", "control or invisible characters; shown escaped"),
    ):
        subjects = tuple(sorted(names))
        if subjects:
            message = f"{format_doing(len(subjects), 'name', verb)} {words}"
            yield Finding(id_, Severity.WARNING, message, subjects)
    for part, graphs in model.by_part():
        overridable = tuple(sorted(label((g.path, name)) for g in graphs for name in g.overridable))
        if overridable:
            reason = (
                "as this IR version requires"
                if part.ir_version < 4
                else "so a caller may replace their values"
            )
            phrase = format_doing(len(overridable), "initializer", "are")
            message = f"{phrase} among the graph's inputs too, {reason}"
            yield Finding("initializer-is-input", Severity.NOTE, _with_part_name(part, message), overridable)


def _with_part_name(part: Component, sentence: str) -> str:
    """Return a sentence about one model file, which is named if there are several."""
    return f"{part.name}: {sentence}" if part.path else sentence


def find_versions(facts: Facts) -> Iterator[Finding]:
    """Yield findings on the IR version and opsets, for each model file by itself."""
    model = facts.model
    for part in model.parts:
        yield from _find_versions(part)
    versions = Versions(model)
    undecided = {
        f"{label((node.graph_path, node.op_type))}: {' and '.join(map(str, found))}"
        for graph in (model.graphs if model.functions else ())
        for node in graph.nodes
        if (found := versions.contradicting(node))
    }
    if undecided:
        message = (
            "functions import a version in which an operator means something else than in the model's; "
            "runtimes differ in which they take"
        )
        yield Finding("invalid-version", Severity.WARNING, message, tuple(sorted(undecided)))


def _find_versions(part: Component) -> Iterator[Finding]:
    versions: dict[str, list[int]] = defaultdict(list)
    for domain, version in part.opsets:
        versions[domain].append(version)
    if not part.opsets:
        message = (
            "the model imports no opset, so its operators have no version; the end of the file may be cut off"
        )
        yield Finding("no-opset", Severity.WARNING, _with_part_name(part, message))
    newest = versions.get(DEFAULT_DOMAIN, [])
    if newest and 0 < max(newest) < _OLD_OPSET:
        message = f"opset {max(newest)} is older than {_OLD_OPSET}, the first that onnxruntime runs"
        yield Finding("old-opset", Severity.WARNING, _with_part_name(part, message))
    invalid = [
        f"{domain} {', '.join(map(str, sorted(found)))}"
        for domain, found in sorted(versions.items())
        if len(set(found)) > 1
        or not all(
            0 < version < (HIGHEST_OF_ONNX if domain == DEFAULT_DOMAIN else HIGHEST_VERSION)
            for version in found
        )
    ]
    if invalid:
        message = "opset imports that contradict each other, or are not valid versions"
        yield Finding("invalid-version", Severity.WARNING, _with_part_name(part, message), tuple(invalid))
    if not 0 < part.ir_version <= IR_VERSION:
        import onnx  # few files need it

        message = f"IR version {part.ir_version} is unknown to onnx {onnx.__version__}, which knows 1 to {IR_VERSION}"
        yield Finding("invalid-version", Severity.WARNING, _with_part_name(part, message))


def find_functions(facts: Facts) -> Iterator[Finding]:
    """Yield findings for local functions that call themselves, or exist twice in one file."""
    calls, root = facts.calls, facts.model.root
    circular = tuple(sorted(label((c.function.path, "")).rstrip("/") for c in calls if c.is_recursive))
    if circular:
        phrase = format_doing(len(circular), "function", "call")
        pronoun = "itself" if len(circular) == 1 else "themselves"
        message = f"{phrase} {pronoun}, directly or through other functions; no runtime can inline that"
        yield Finding("recursive-function", Severity.WARNING, message, circular)
    counted = Counter(
        (root(c.function.path), (c.function.domain, c.function.name, c.function.overload)) for c in calls
    )
    repeated = (key for key, times in counted.items() if times > 1)
    twice = tuple(sorted(label((path, ".".join(filter(None, names)))) for path, names in repeated))
    if twice:
        phrase = format_doing(len(twice), "function", "are")
        message = f"{phrase} defined more than once; calls are taken to mean the first definition"
        yield Finding("duplicate-function", Severity.WARNING, message, twice)


def find_depth(facts: Facts) -> Iterator[Finding]:
    """Yield a finding for graphs nested deeper than other tools read."""
    model = facts.model
    nested = (graph.path for graph in model.graphs if graph.parent is not None)
    depth = max((len(path) - len(model.root(path)) for path in nested), default=0)
    if depth > _PROTOBUF_DEPTH:
        message = f"graphs are nested {depth} deep; protobuf parsers stop at {_PROTOBUF_DEPTH}"
        yield Finding("deep-nesting", Severity.WARNING, message)


def find_wiring(facts: Facts) -> Iterator[Finding]:
    """Yield findings for values that are undefined, read too early, or provided twice."""
    wiring = facts.wiring
    for values, id_, words in (
        (wiring.undefined, "undefined-input", "read, but never provided"),
        (wiring.unsorted, "not-sorted", "read before being computed, or part of a cycle"),
        (
            wiring.repeated,
            "duplicate-output",
            "computed by more than one node, or also an input or a stored tensor",
        ),
    ):
        if values:
            subjects = tuple(sorted({label(value) for value in values}))
            message = f"{format_doing(len(subjects), 'value', 'are')} {words}"
            yield Finding(id_, Severity.WARNING, message, subjects)


def find_operators(facts: Facts) -> Iterator[Finding]:
    """Yield findings for operators that ONNX does not define."""
    calls = facts.wiring.calls
    every = facts.model.nodes()
    own = (node for node in every if node.place not in calls) if calls else every
    used = Counter(map(attrgetter("domain", "op_type"), own))
    foreign: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for (domain, op_type), nodes in used.items():
        if domain in ("", DEFAULT_DOMAIN):
            if op_type not in STANDARD and not _is_new(op_type):
                unknown[op_type] += nodes
        elif domain not in ONNX_DOMAINS:
            foreign[domain] += nodes
    if foreign:
        where = "onnxruntime's own" if all(map(is_runtime_domain, foreign)) else "not ONNX's own"
        description = "an operator that is" if foreign.total() == 1 else "operators that are"
        message = f"{format_doing(foreign.total(), 'node', 'use')} {description} {where}"
        yield Finding("custom-domain", Severity.NOTE, message, _count_nodes(foreign))
    if unknown:
        noun = "an operator" if unknown.total() == 1 else "operators"
        message = f"{format_doing(unknown.total(), 'node', 'name')} {noun} that ONNX does not define"
        yield Finding("unknown-operator", Severity.WARNING, message, _count_nodes(unknown))


def _is_new(op_type: str) -> bool:
    """Whether the installed ONNX defines an operator that the tables here lack."""
    import onnx.defs  # few files need it

    return onnx.defs.has(op_type)


def _count_nodes(counted: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{name}: {format_many(nodes, 'node')}" for name, nodes in sorted(counted.items()))


# storage

_STRIPPABLE = 1 << 10
"""Bytes of metadata that are worth a finding."""


def find_entries(facts: Facts) -> Iterator[Finding]:
    """Yield findings about single entries."""
    for id_, severity, find_members, sentence in _ENTRY_RULES:
        members = find_members(facts)
        if members:
            freed = facts.freed(members) or 0
            yield Finding(
                id_,
                severity,
                sentence(members),
                labels(members),
                int(freed * _SAVED_SHARES.get(id_, Fraction(0))) or None,
            )


def _unattributed(facts: Facts) -> list[Entry]:
    return [entry for entry in facts.entries if entry.role is Role.UNATTRIBUTED]


def _unused(facts: Facts) -> list[Entry]:
    """Return initializers that no output depends on; in a training graph, which has its own outputs, unread ones."""
    needed = facts.live.needed
    return [
        entry
        for entry in facts.entries
        if entry.tensor.carrier is Carrier.INITIALIZER
        and entry.tensor.key not in needed
        and not (entry.uses and is_training(entry.tensor.graph_path))
    ]


_NODE_CARRIERS = (Carrier.CONSTANT, Carrier.SPARSE_CONSTANT, Carrier.CONSTANT_LIST)


def _hidden_in_constants(facts: Facts) -> list[Entry]:
    return [e for e in facts.entries if e.tensor.carrier in _NODE_CARRIERS and e.role is Role.PARAMETER]


_DOUBLES = (DType.DOUBLE, DType.COMPLEX128)


def _doubles(facts: Facts) -> list[Entry]:
    return [e for e in facts.entries if e.tensor.dtype in _DOUBLES and e.role is Role.PARAMETER]


def _describe_size(entries: Sequence[Entry]) -> str:
    return f"{format_many(sum_elements(entries), 'element')} ({format_many(sum_nbytes(entries), 'byte')})"


_Rule = tuple[str, Severity, Callable[[Facts], list[Entry]], Callable[[Sequence[Entry]], str]]

_ENTRY_RULES: tuple[_Rule, ...] = (
    (
        UNATTRIBUTED,
        Severity.WARNING,
        _unattributed,
        lambda found: f"{format_many(sum_elements(found), 'element')} that no rule explains",
    ),
    (
        "unused-initializer",
        Severity.WARNING,
        _unused,
        lambda found: (
            f"{_describe_size(found)} in {format_many(len(found), 'initializer')} that no output depends on"
        ),
    ),
    (
        "constant-weights",
        Severity.NOTE,
        _hidden_in_constants,
        lambda found: (
            f"{format_doing(sum(entry.parameters for entry in found), 'parameter', 'are')} in Constant nodes, which "
            "tools that count initializers miss"
        ),
    ),
    (
        "fp64-weights",
        Severity.WARNING,
        _doubles,
        lambda found: (
            f"{format_doing(sum_elements(found), 'learned element', 'are')} stored in 64 bits; 32 bits would take "
            f"{format_many(sum_nbytes(found) // 2, 'byte')} less"
        ),
    ),
)
"""(id, severity, function that selects the entries, function that makes the sentence)."""

_SAVED_SHARES = {"unused-initializer": Fraction(1), "fp64-weights": Fraction(1, 2)}
"""Part of its entries' bytes that fixing a finding saves; the other findings save none."""


def find_bytes(facts: Facts) -> Iterator[Finding]:
    """Yield findings for bytes that could be saved, and for external data that is claimed twice or by no tensor."""
    model, booked = facts.model, facts.booked
    nbytes = {account.name: account.nbytes for account in booked.accounts}
    metadata = nbytes[NODE_METADATA]
    if metadata >= _STRIPPABLE:
        message = (
            f"{format_many(metadata, 'byte')} could be stripped: stack traces and notes on nodes, which no "
            "run needs (the notes tell subgraphs apart, so audit before you strip)"
        )
        yield Finding("strippable-metadata", Severity.NOTE, message, nbytes=metadata)
    if nbytes[UNKNOWN]:
        phrase = format_doing(nbytes[UNKNOWN], "byte", "are")
        message = f"{phrase} in fields that the ONNX format does not define: no reader sees them"
        yield Finding("unknown-fields", Severity.WARNING, message, nbytes=nbytes[UNKNOWN])
    if booked.overlaps:
        pairs = tuple(sorted(f"{label(a.tensor.key)} and {label(b.tensor.key)}" for a, b in booked.overlaps))
        phrase = format_doing(len(pairs), "tensor", "begin")
        message = f"{phrase} within the external data of another; their bytes are booked once"
        yield Finding("external-overlap", Severity.WARNING, message, pairs)
    if booked.orphans:
        names = {file.key: file.path for file in model.files}
        places = tuple(
            f"{names[gap.file]}: {format_many(gap.length, 'byte')} at offset {gap.offset:,}"
            for gap in booked.orphans
        )
        orphaned = sum(gap.length for gap in booked.orphans)
        verb = "belongs" if orphaned == 1 else "belong"
        message = f"{format_many(orphaned, 'byte')} of external files {verb} to no tensor"
        yield Finding("external-orphaned", Severity.WARNING, message, places, orphaned)


def find_copies(facts: Facts) -> Iterator[Finding]:
    """Yield findings for tensors that repeat the content of another, in the same file or in another component's."""
    by_rule: dict[str, list[Entry]] = {rule: [] for rule, _, _ in _COPIES}
    for entry in facts.entries:
        if entry.decided_by in by_rule:
            by_rule[entry.decided_by].append(entry)
    for rule, finding, words in _COPIES:
        copies = by_rule[rule]
        if copies:
            pairs = [f"{label(e.tensor.key)} = {label(e.copy_of)}" for e in copies if e.copy_of is not None]
            freed = facts.freed(copies)
            elements = sum_elements(copies)
            verb = "is" if elements == 1 else "are"
            phrase = f"{format_many(elements, 'element')} {verb} stored again"
            nbytes = format_doing(freed or 0, "byte", "are")
            message = (
                f"{phrase}{words}{'' if rule.startswith('name:') else ', in the same bytes'}"
                if not freed
                else f"{nbytes} in more than one file: {phrase} for another component{words}"
                if copies[0].is_duplicate
                else f"{format_many(elements, 'element')} ({format_many(freed, 'byte')}) {verb} stored again{words}"
            )
            yield Finding(finding, Severity.WARNING, message, tuple(sorted(pairs)), freed)


_COPIES = (
    ("content:copy", "duplicate-content", ", unchanged"),
    ("content:transposed-copy", "transposed-copy", ", transposed"),
    ("content:cast-copy", "duplicate-content", ", cast to another type"),
    ("content:quantized-copy", "duplicate-content", ", as codes, within their quantization step"),
    ("content:duplicated-file", "duplicate-content", ""),
    ("content:cast-duplicated-file", "duplicate-content", ", cast to another type"),
    ("content:quantized-duplicated-file", "duplicate-content", ", as codes, within their quantization step"),
    ("content:transposed-duplicated-file", "transposed-copy", ", transposed"),
    ("name:duplicated-file", "duplicate-content", ", judged by name (--content sampled compares contents)"),
)
"""(rule, id of the finding, form of the copy)."""


# values, and data made when the model runs

_PACKED = frozenset({"MatMulBnb4", "MatMulNBits"})
"""Operators whose attributes give the number of elements that they unpack."""


def find_packed(facts: Facts) -> Iterator[Finding]:
    """Yield a finding for packed weights whose codes do not match the number that their operator gives."""
    if not any(node.op_type in _PACKED for node in facts.model.nodes()):
        return
    pairs = ((entry, find_packing(entry.tensor, facts.wiring)) for entry in facts.entries)
    wrong = [(entry, found) for entry, found in pairs if found is not None and not found.is_sound]
    if wrong:
        entry, found = wrong[0]
        needed = f"take {format_count(found.least // 8)}"
        needed += f" to {format_count(found.most // 8)}" if found.most > found.least else ""
        phrase = f"{format_many(found.numel, 'element')} of {format_many(found.bits, 'bit')}"
        message = (
            f"{format_doing(len(wrong), 'packed weight', 'disagree')} with the operator: "
            f"{printable_name(label(entry.tensor.key))} has {format_many(found.stored // 8, 'byte')}, {phrase} {needed}"
        )
        yield Finding("packed-mismatch", Severity.ERROR, message, labels(entry for entry, _ in wrong))


_FEW = 64
"""Most elements of a shape that is read to know the output of ConstantOfShape."""


def find_values(facts: Facts) -> Iterator[Finding]:
    """Yield findings for weights that hold one value only, and for NaN or infinity."""
    values = facts.values
    constant = _among(facts.entries, values.constant)
    if constant:
        message = f"{format_doing(sum_elements(constant), 'learned element', 'are')} in tensors of one value throughout"
        is_most = _are_most(facts.entries, constant)
        message += (
            ", most of the model: it was never trained, or its weights were not loaded" if is_most else ""
        )
        nbytes = None if values.sampled else _count_repeated(facts, constant)
        severity = Severity.WARNING if is_most else Severity.NOTE
        yield Finding("constant-filled", severity, message, labels(constant), nbytes)
    broken = _among(facts.entries, values.not_finite)
    if broken:
        message = f"{format_doing(len(broken), 'tensor', 'hold')} NaN or infinity"
        yield Finding("nan-or-inf", Severity.WARNING, message, labels(broken))


def _among(entries: Sequence[Entry], keys: Collection[Key]) -> list[Entry]:
    return [entry for entry in entries if entry.tensor.key in keys] if keys else []


def _are_most(entries: Sequence[Entry], constant: Sequence[Entry]) -> bool:
    """Whether matrices of one value are over half of the learned elements; vectors of one value are usual when new."""
    matrices = sum_elements(entry for entry in constant if len(entry.tensor.shape) > 1)
    return 2 * matrices > sum_elements(entry for entry in entries if entry.role is Role.PARAMETER)


def _count_repeated(facts: Facts, constant: Sequence[Entry]) -> int | None:
    """Return the bytes that would be saved if each tensor stored its single value only once."""
    once = sum(entry.tensor.nbytes // entry.tensor.numel for entry in constant)
    return max(0, (facts.freed(constant) or 0) - once) or None


def find_opaque_data(facts: Facts) -> Iterator[Finding]:
    """Yield a finding for data that flows into arithmetic and is no parameter, scale of codes, or known table."""
    opaque = facts.opaque
    if opaque is None or not (opaque.tensors or opaque.made):
        return
    entries = [entry for entry in facts.entries if entry.tensor.key in opaque.tensors]
    stored = f"{format_many(sum_elements(entries), 'element')} ({format_many(sum_nbytes(entries), 'byte')})"
    made = f"the output of {format_many(len(opaque.made), 'node')}"
    phrase = " and ".join((stored,) * bool(entries) + (made,) * bool(opaque.made))
    message = (
        f"{phrase}: data that feeds the computation, but is no known parameter, quantization scale or table"
    )
    names = {label((place[0], name)) for place in opaque.made for name in _made_by(facts, place)}
    yield Finding(OPAQUE, Severity.WARNING, message, tuple(sorted({*labels(entries), *names})))


def _made_by(facts: Facts, place: Place) -> tuple[str, ...]:
    graph = next(graph for graph in facts.model.graphs if graph.path == place[0])
    return graph.nodes[place[1]].outputs[:1]


def find_runtime_weights(facts: Facts) -> Iterator[Finding]:
    """Yield a finding for outputs of ConstantOfShape with a stored shape that nodes read as weights."""
    made: dict[str, int] = {}
    structure = Structure(facts.wiring)
    for node in facts.model.nodes():
        if node.op_type == "ConstantOfShape" and node.domain in ("", "ai.onnx") and node.outputs:
            shape = _stored_shape(facts.wiring, node)
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
                decided = structure.role(node, tensor)
                if decided is not None and decided[0] is Role.PARAMETER:
                    made[label((node.graph_path, node.outputs[0]))] = numel
    if made:
        phrase = format_doing(sum(made.values()), "element", "are")
        message = (
            f"{phrase} made by ConstantOfShape when the model runs, in place of stored weights; they are not "
            "counted"
        )
        yield Finding("runtime-weights", Severity.WARNING, message, tuple(sorted(made)))


def _stored_shape(wiring: Wiring, node: Node) -> tuple[int, ...] | None:
    """Return the shape that a ConstantOfShape node reads, if it is a stored tensor."""
    for source in wiring.producers(node):
        is_short = isinstance(source, StoredTensor) and source.numel <= _FEW
        if isinstance(source, StoredTensor) and is_short and source.dtype is DType.INT64:
            array = source.payload.array()
            shape = () if array is None else tuple(map(int, array.reshape(-1)))
            if array is not None and array.ndim <= 1 and min(shape, default=0) >= 0:
                return shape
    return None


# all rules

RULES: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
    find_unread,
    find_empty,
    find_names,
    find_versions,
    find_functions,
    find_depth,
    find_wiring,
    find_operators,
    find_bytes,
    find_entries,
    find_copies,
    find_values,
    find_runtime_weights,
    find_packed,
    find_opaque_data,
)


def find(facts: Facts) -> tuple[Finding, ...]:
    """Return all findings of one file, sorted by id."""
    found = [finding for rule in RULES for finding in rule(facts)]
    return tuple(sorted(found, key=lambda finding: (finding.id, finding.message, finding.subjects)))
