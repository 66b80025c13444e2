"""A metric + a part of a model -> the observed value and its parts; the table of all metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from analyzer.account.doubt import COMPARE_HINT, Range, describe_unread
from analyzer.account.findings import ABSENT, HIGHEST_OF_ONNX, UNCOUNTED, UNREAD
from analyzer.account.group.keys import are_modules, choose_key, label_members
from analyzer.account.ledger import Entry, Ledger, Role
from analyzer.budget.amounts import name_operator
from analyzer.budget.record import Unit
from analyzer.budget.selecting import Infinite, Selection, Unknown
from analyzer.model import DEFAULT_DOMAIN, Key, Place, label
from analyzer.read.book import METADATA, NODE_METADATA, ORPHANED, UNKNOWN
from analyzer.text import format_count, printable_name, shorten

Kind: TypeAlias = Literal["most", "least", "among"]
"""Kind of limit where the rule does not say: a maximum, a minimum, or a list of allowed names."""


class Metric(NamedTuple):
    """One countable property of a model."""

    name: str
    unit: Unit
    kind: Kind
    has_groups: bool
    """Whether a single group can be measured."""
    meaning: str
    """One sentence for the user."""


_ALL: tuple[Metric, ...] = (
    Metric("parameters", Unit.PARAMETERS, "most", True, "Learned elements; copies count once."),
    Metric(
        "bytes",
        Unit.BYTES,
        "most",
        True,
        "Bytes of all files on disk, external data included; for a group, the encoded payload of its tensors.",
    ),
    Metric(
        "stored-elements",
        Unit.ELEMENTS,
        "most",
        True,
        "Elements of all stored tensors, copies and constants included.",
    ),
    Metric(
        "stored-bytes",
        Unit.BYTES,
        "most",
        True,
        "Encoded payload of all stored tensors, without the protobuf fields around it.",
    ),
    Metric("tensors", Unit.TENSORS, "most", True, "Stored tensors, of every role and every carrier."),
    Metric(
        "nodes",
        Unit.NODES,
        "most",
        True,
        "Nodes of all graphs, nested ones and bodies of functions included.",
    ),
    Metric(
        "calls",
        Unit.CALLS,
        "most",
        False,
        "Copies of local functions' bodies after all calls are inlined; functions that call themselves, or are "
        "called more than 2^128 times, exceed every limit.",
    ),
    Metric(
        "metadata-bytes",
        Unit.BYTES,
        "most",
        False,
        "Bytes that no run needs: the accounts [node metadata] and [model metadata], which are the metadata_props "
        "and doc_strings of nodes, graphs, functions and the model.",
    ),
    Metric(
        "orphaned-bytes",
        Unit.BYTES,
        "most",
        False,
        "Bytes without a use: the accounts [orphaned] and [unknown fields].",
    ),
    Metric("external-bytes", Unit.BYTES, "most", False, "Bytes of the files of external data."),
    Metric(
        "quantization-bytes",
        Unit.BYTES,
        "most",
        True,
        "Payload of scales, zero points and other bookkeeping of quantization.",
    ),
    Metric("largest-tensor-bytes", Unit.BYTES, "most", True, "Payload of the largest stored tensor."),
    Metric("unattributed", Unit.ELEMENTS, "most", True, "Stored elements of tensors that no rule explains."),
    Metric(
        "opaque",
        Unit.ELEMENTS,
        "most",
        True,
        "Elements that nodes compute with and no rule explains, so they may be learned: the finding opaque.",
    ),
    Metric(
        "duplicates",
        Unit.BYTES,
        "most",
        True,
        "Bytes of tensors whose content is also stored elsewhere: unchanged, transposed, cast or quantized. Two "
        "tensors with PyTorch names of their own in the provenance are two parameters, even if equal.",
    ),
    Metric(
        "unused-bytes",
        Unit.BYTES,
        "most",
        True,
        "Payload of initializers that no output depends on: the finding unused-initializer.",
    ),
    Metric(
        "unused-tensors",
        Unit.TENSORS,
        "most",
        True,
        "Initializers that no output depends on, empty ones included.",
    ),
    Metric(
        "external-outside",
        Unit.TENSORS,
        "most",
        False,
        "Tensors whose external data is outside the model's folder: the finding external-escapes.",
    ),
    Metric(
        "opset",
        Unit.VERSION,
        "least",
        False,
        "Version of ONNX's own operators, ai.onnx; the lowest of all files and of local functions' imports, or for "
        "an `at most` the highest.",
    ),
    Metric(
        "ir-version",
        Unit.VERSION,
        "most",
        False,
        "Version of the file format; of several files the highest, or for an `at least` the lowest.",
    ),
    Metric("findings", Unit.FINDINGS, "most", False, "Findings of every severity."),
    Metric(
        "ops",
        Unit.OPERATORS,
        "among",
        True,
        "Operators that nodes use, in nested graphs and functions too: OP_TYPE of ONNX's own, else DOMAIN:OP_TYPE. "
        "A call of a local function does not count; the nodes of its body do.",
    ),
    Metric(
        "domains",
        Unit.DOMAINS,
        "among",
        True,
        "Domains of the operators that nodes use, as for ops; ONNX's own is ai.onnx.",
    ),
    Metric("dtypes", Unit.DTYPES, "among", True, "Types of the stored tensors' elements."),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
"""Metrics by name, in the order of listings."""


Parts = Mapping[str, int]
"""Parts of an observed value: groups, tensors, operators, accounts."""


class Measured(NamedTuple):
    """Observed value of a metric."""

    observed: int | tuple[str, ...]
    lacking: str = ""
    """Reason why the value may be larger by an unknown amount; "" where it is complete."""
    range: Range | None = None
    """Range of the true value, where the observed one may be too high or too low."""


CONTENT_MATTERS = frozenset({"duplicates", "findings", "parameters"})
"""Metrics whose values depend on whether tensor contents were examined."""

_COPIES = ("copy", "duplicated-file")
"""Suffixes of the rules that find content stored more than once."""

_LACKING: Mapping[str, frozenset[str]] = {
    "parameters": UNCOUNTED | {"packed-mismatch"},
    "stored-elements": UNCOUNTED,
    "unattributed": UNCOUNTED,
    "opaque": UNCOUNTED,
    "bytes": UNREAD - {"payload-mismatch"},  # a file's bytes are all counted, whatever a shape says
    "stored-bytes": UNREAD,
    "largest-tensor-bytes": UNREAD,
    "quantization-bytes": UNREAD,
    "duplicates": UNREAD,
    "unused-bytes": UNREAD,
    "findings": UNREAD,
    "external-bytes": ABSENT,
    "orphaned-bytes": ABSENT,
    "dtypes": frozenset({"unknown-dtype"}),
}
"""Ids of findings on unmeasurable tensors, by the metrics whose values they may make too low."""


def measure(metric: str, part: Selection, *, lowest: bool, is_hidden: bool = True) -> Measured | Unknown:
    """Measure a metric on a part of a model.

    Args:
        metric: a key of `analyzer.budget.measuring.METRICS`.
        part: all of a model, or a group of it.
        lowest: whether the lowest of several versions is taken instead of the highest.
        is_hidden: whether the range of parameters includes those of PyTorch that tensors hide; else it covers only the
            contents of the file.
    """
    found = _observe(metric, part, lowest)
    if isinstance(found, Unknown):
        return found
    lacking = _find_lacking(metric, part)
    if metric != "parameters":
        return Measured(found, lacking)
    doubt = part.whole.doubt
    return Measured(found, lacking, doubt.of(part.entries, is_whole=part.kind == "all", is_hidden=is_hidden))


def _observe(metric: str, part: Selection, lowest: bool) -> int | tuple[str, ...] | Unknown:
    ledger = part.ledger
    if metric in _NAMES:
        names = _NAMES[metric](part)
        return names if isinstance(names, Unknown) else tuple(sorted(names))
    if metric in _VERSIONS:
        versions, lacking = _VERSIONS[metric](ledger)
        if not versions:
            return Unknown(lacking)
        return min(versions.values()) if lowest else max(versions.values())
    if metric in _WHOLE:
        if metric == "calls" and (infinite := _find_infinite(ledger)):
            return infinite
        parts = _WHOLE[metric](ledger)
        return parts if isinstance(parts, Unknown) else sum(parts.values())
    if metric == "nodes":
        return _count_nodes(part)
    if metric == "bytes" and part.kind == "all":
        return ledger.file_nbytes
    if metric in ("duplicates", "opaque") and ledger.content == "none":
        what = "copies" if metric == "duplicates" else "opaque elements"
        return Unknown(f"contents were not read, so {what} are unknown; {COMPARE_HINT}")
    if metric == "duplicates" and not ledger.model.graphs and ledger.shared_nbytes:
        return Unknown(
            "the saved report does not say which tensors share their bytes; check the model itself"
        )
    amounts = map(_choose_measure(metric, part), part.entries)
    if metric == "opaque":
        return sum(amounts) + sum(_made_in(part).values())
    return max(amounts, default=0) if metric == "largest-tensor-bytes" else sum(amounts)


def _key_of(ledger: Ledger) -> str:
    """Return the default key of groups: modules where the file names them, as they tell more than block numbers."""
    return "scope" if are_modules(ledger) else choose_key(ledger)


def list_parts(
    metric: str, part: Selection, by: str | None = None, depth: int | None = None
) -> Parts | Unknown:
    """Return the parts of a value: operators, accounts or files; else groups for a whole model, tensors for a group.

    Args:
        metric: a key of `analyzer.budget.measuring.METRICS`.
        part: the measured part.
        by: the key of the groups; None takes the default, as `analyzer.account.group.group_by` does.
        depth: depth of the groups, as `analyzer.account.group.group_by` takes it.

    Raises:
        UsageError: as `analyzer.account.group.group_by` does.
    """
    if metric in _NAMES:
        return _NAMES[metric](part)
    if metric in _VERSIONS:
        return _VERSIONS[metric](part.ledger)[0]
    if metric in _WHOLE:
        return _WHOLE[metric](part.ledger)
    if metric == "nodes":
        if part.nodes is None:
            return Unknown(_NO_GRAPH)
        return Counter(name_operator(node.domain, node.op_type) for node in part.nodes)
    found: Counter[str] = Counter()
    measure_entry = _choose_measure(metric, part)
    if part.kind != "all" or metric not in _BY_GROUP:
        for entry in part.entries:
            found[label(entry.tensor.key)] += measure_entry(entry)
        if metric == "opaque":
            for place, count in _made_in(part).items():
                found[_name_made(part, place)] += count
        return found
    labels = label_members(part.ledger, by or _key_of(part.ledger), depth)
    for entry, name in zip(part.ledger.entries, labels.entries, strict=True):
        found[" / ".join(name)] += measure_entry(entry)
    return found + _list_accounts(part.ledger) if metric == "bytes" else found


_BY_GROUP = frozenset({"parameters", "bytes", "stored-elements", "stored-bytes", "tensors"})
"""Metrics listed by group for a whole model, because it has too many tensors to list."""

_NO_GRAPH = "a saved report does not hold the graph; check the model itself"


def _list_accounts(ledger: Ledger) -> Counter[str]:
    """Return the bytes of accounts that are not tensors."""
    roles = {role.value for role in Role}
    return Counter({account.name: account.nbytes for account in ledger.accounts if account.name not in roles})


def _choose_measure(metric: str, part: Selection) -> Callable[[Entry], int]:
    """Return the function that computes one tensor's share of a metric."""
    match metric:
        case "parameters":
            return lambda entry: entry.parameters
        case "stored-elements":
            return lambda entry: entry.tensor.numel
        case "tensors":
            return lambda entry: 1
        case "unattributed":
            return lambda entry: entry.tensor.numel if entry.role is Role.UNATTRIBUTED else 0
        case "opaque":
            opaque_keys = part.whole.opaque
            return lambda entry: entry.capacity if entry.tensor.key in opaque_keys else 0
        case "quantization-bytes":
            return lambda entry: entry.tensor.nbytes if entry.role is Role.QUANTIZATION else 0
        case "unused-bytes":
            return lambda entry: entry.tensor.nbytes if label(entry.tensor.key) in part.whole.unused else 0
        case "unused-tensors":
            return lambda entry: int(label(entry.tensor.key) in part.whole.unused)
        case "duplicates":
            stored_again = _find_stored_again(part)
            return lambda entry: entry.tensor.nbytes if entry.tensor.key in stored_again else 0
    return lambda entry: entry.tensor.nbytes  # bytes, stored-bytes, largest-tensor-bytes


def _made_in(part: Selection) -> Mapping[Place, int]:
    """Return the nodes of a part that make opaque numbers when the model runs, and how many; 0 if that is not known."""
    made = part.ledger.made
    if not made or part.kind == "all":
        return made
    return {node.place: made[node.place] for node in part.nodes or () if node.place in made}


def _find_made_in_report(part: Selection) -> str:
    """Return the reason why a saved report may have more opaque elements than its tensors; "" where it has no more."""
    tensors = {label(entry.tensor.key) for entry in part.ledger.entries}
    for finding, subjects in part.whole.findings:
        if finding.id == "opaque" and (made := sorted(subjects - tensors)):
            return f"the report does not say how many elements {printable_name(made[0])} has; check the model itself"
    return ""


def _name_made(part: Selection, place: Place) -> str:
    node = part.ledger.wiring.node_at(place)
    return label((place[0], next(filter(None, node.outputs), node.name or node.op_type)))


def _find_stored_again(part: Selection) -> set[Key]:
    """Return the tensors of a part whose content is also stored elsewhere, in other bytes."""
    return {
        entry.tensor.key
        for entry in part.entries
        if entry.copy_of is not None
        and entry.decided_by.endswith(_COPIES)
        and (entry.tensor.extent is None or part.whole.extents.get(entry.copy_of) != entry.tensor.extent)
    }


def _count_nodes(part: Selection) -> int | Unknown:
    found = part.ledger.nodes if part.kind == "all" else None if part.nodes is None else len(part.nodes)
    return Unknown(_NO_GRAPH) if found is None else found


def _find_lacking(metric: str, part: Selection) -> str:
    """Return a reason why the true value may be larger than the observed one; "" where it cannot be."""
    if metric in _VERSIONS:
        return _VERSIONS[metric](part.ledger)[1]
    if metric == "findings" and part.ledger.content == "none":
        return f"contents were not read, so there may be more findings; {COMPARE_HINT}"
    ids = UNREAD if metric == "bytes" and part.kind != "all" else _LACKING.get(metric, frozenset())
    own = None if part.kind == "all" else {label(entry.tensor.key) for entry in part.entries}
    for finding, subjects in part.whole.findings:
        if finding.id in ids and (own is None or not own.isdisjoint(subjects)):
            return describe_unread(finding)
    if metric == "opaque":
        if not part.ledger.model.graphs:
            return _find_made_in_report(part)
        uncounted = (place for place, count in _made_in(part).items() if not count)
        place = next(uncounted, None)
        return (
            ""
            if place is None
            else f"{printable_name(_name_made(part, place))} makes an unknown number of elements"
        )
    if metric != "duplicates":
        return ""
    doubt = part.whole.doubt  # a tensor of a group may be a copy of one outside it
    return doubt.fewer if any(entry.tensor.key in doubt.keys for entry in part.entries) else ""


# metrics of the model as a whole


def _account_finder(*names: str) -> Callable[[Ledger], Parts | Unknown]:
    def find(ledger: Ledger) -> Parts | Unknown:
        nbytes = {account.name: account.nbytes for account in ledger.accounts}
        if any(name not in nbytes for name in names):
            return Unknown("the report does not count these bytes apart; make it again with this version")
        return {name: nbytes[name] for name in names}

    return find


def _list_external(ledger: Ledger) -> Parts:
    found: Counter[str] = Counter()
    for file in ledger.model.external:
        found[file.path] += file.nbytes
    return found


def _list_outside(ledger: Ledger) -> Parts:
    escaping = (finding for finding in ledger.findings if finding.id == "external-escapes")
    return Counter(subject for finding in escaping for subject in finding.subjects)


def _list_findings(ledger: Ledger) -> Parts:
    return Counter(finding.id for finding in ledger.findings)


def _find_infinite(ledger: Ledger) -> Infinite | None:
    uncounted = [call for call in ledger.calls if call.calls is None]
    if not uncounted:
        return None
    recursive = [call for call in uncounted if call.is_recursive]
    names = sorted({printable_name("/".join(call.function.path)) for call in recursive or uncounted})
    others = f" and {format_count(len(names) - 1)} more" if len(names) > 1 else ""
    problem = (
        "calls itself, so that its body is inserted without end" if recursive else "is called without end"
    )
    problem = (
        problem
        if recursive or any(finding.id == "recursive-function" for finding in ledger.findings)
        else "is called more than 2^128 times"
    )
    return Infinite(f"{shorten(names[0], _LONGEST)}{others} {problem}")


_LONGEST = 100


def _list_calls(ledger: Ledger) -> Parts | Unknown:
    """Return the number of inlinings of each function; 0 for one that is recursive, or called more than 2^128 times."""
    if not ledger.model.graphs and len(ledger.calls) != len(ledger.model.functions):
        return Unknown(
            "the report does not say how often functions are called; make it again with this version"
        )
    return {"/".join(each.function.path): each.calls or 0 for each in ledger.calls}


_WHOLE: Mapping[str, Callable[[Ledger], Parts | Unknown]] = {
    "calls": _list_calls,
    "metadata-bytes": _account_finder(NODE_METADATA, METADATA),
    "orphaned-bytes": _account_finder(ORPHANED, UNKNOWN),
    "external-bytes": _list_external,
    "external-outside": _list_outside,
    "findings": _list_findings,
}


# versions


def _list_opsets(ledger: Ledger) -> tuple[Parts, str]:
    """Return the known opset versions, and a reason why there may be others."""
    found: dict[str, int] = {}
    lacking = ""
    for component in ledger.model.parts:
        versions = [version for domain, version in component.opsets if domain == DEFAULT_DOMAIN]
        if not component.opsets:
            lacking = f"{component.name or ledger.model.path} imports no opset"
        elif versions and (low := min(versions)) != max(versions):
            lacking = f"{component.name or ledger.model.path} imports {DEFAULT_DOMAIN} {low} and another"
        elif versions and not 0 < low < HIGHEST_OF_ONNX:
            lacking = f"{component.name or ledger.model.path} imports {DEFAULT_DOMAIN} {low}, which is not a version"
        elif versions:
            found[component.name or DEFAULT_DOMAIN] = low
    for function in ledger.model.functions:  # a function's nodes use the function's own imports
        for domain, version in function.opsets:
            if domain == DEFAULT_DOMAIN:
                name = f"{function.domain}:{function.name}"
                found[name] = min(version, found.get(name, version))
    return found, lacking or ("" if found else f"the model imports no opset of {DEFAULT_DOMAIN}")


def _list_ir_versions(ledger: Ledger) -> tuple[Parts, str]:
    parts: dict[str, int] = {}
    lacking = ""
    for each in ledger.model.parts:
        name, version = each.name or ledger.model.path, each.ir_version
        if version <= 0:
            lacking = f"{name} has no IR version"
        elif version >= HIGHEST_OF_ONNX:
            lacking = f"{name} has IR version {version}, which does not exist"
        else:
            parts[each.name or "IR version"] = version
    return parts, lacking


_VERSIONS: Mapping[str, Callable[[Ledger], tuple[Parts, str]]] = {
    "opset": _list_opsets,
    "ir-version": _list_ir_versions,
}


# names, with the number of nodes or tensors of each


def _list_used(part: Selection, name: Callable[[str, str], str]) -> Parts | Unknown:
    """Count operators of nodes, without calls of local functions; a saved report has them for the whole model only."""
    if part.nodes is None:
        operator_counts = part.ledger.told_operators
        if operator_counts is None or part.name:
            return Unknown(_NO_GRAPH)
        found: Counter[str] = Counter()
        for (domain, op_type), count in operator_counts.items():
            found[name(domain, op_type)] += count
        return found
    calls = part.ledger.wiring.calls
    return Counter(name(node.domain, node.op_type) for node in part.nodes if node.place not in calls)


def _list_ops(part: Selection) -> Parts | Unknown:
    return _list_used(part, name_operator)


def _list_domains(part: Selection) -> Parts | Unknown:
    return _list_used(part, lambda domain, _: domain or DEFAULT_DOMAIN)


def _list_dtypes(part: Selection) -> Parts:
    return Counter(entry.tensor.dtype.name for entry in part.entries)


_NAMES: Mapping[str, Callable[[Selection], Parts | Unknown]] = {
    "ops": _list_ops,
    "domains": _list_domains,
    "dtypes": _list_dtypes,
}
