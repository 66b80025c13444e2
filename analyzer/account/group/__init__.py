"""Entries and nodes -> groups by keys. The user's own groups are in `analyzer.account.group.patterns`.

Totals are logical parameters, stored elements and payload bytes. A tied or copied tensor counts its parameters once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

from analyzer.account.group.keys import (
    ACCOUNTS,
    Label,
    Labels,
    choose,
    label_layers,
    label_members,
    parse_keys,
    sort_labels,
)
from analyzer.account.group.order import find_firsts
from analyzer.account.ledger import (
    Entry,
    Group,
    Grouping,
    Ledger,
    Macs,
    Role,
    Trainability,
    natural_order,
)
from analyzer.errors import LedgerError
from analyzer.model import Place
from analyzer.records import replace

__all__ = ["Trainability", "check_sums", "group_by", "total_by", "total_entries"]


def group_by(
    ledger: Ledger,
    by: str | None = None,
    depth: int | None = None,
    known: Trainability | None = None,
    *,
    layered: bool = True,
) -> Grouping:
    """Partition the ledger by one or more keys: every entry is in exactly one group.

    Args:
        ledger: the account of one model.
        by: one of `group.keys.KEYS`, or several separated by commas; or `bytes` for the accounts. None chooses the
            first key that tells the parts of the model apart (`analyzer.account.group.keys.choose_key`).
        depth: leading parts of the scope, or of the block, that name a group; None takes for scopes the first depth
            with three groups or more, for blocks 1.
        known: facts from the PyTorch side about the entries; groups then count trainable and frozen parameters.
        layered: whether to search scopes for repeated layers, which the tree of groups shows.

    Raises:
        UsageError: `by` names no key, or the same key twice, or `depth` is below 1.
        LedgerError: the groups do not sum to the totals, a defect of onnxledger.
    """
    default_depth: int | None = None
    if by is None:
        by, default_depth = choose(ledger)
    if by == ACCOUNTS:
        return check_sums(ledger, _by_account(ledger, known))
    by = ",".join(parse_keys(by))
    labels = label_members(ledger, by, default_depth if depth is None and by == "scope" else depth)
    nothing = total_entries((), (), 0, known)
    grouping = Grouping(by, labels.depth, _total_labels(ledger, labels, known), nothing, nothing)
    check_sums(ledger, grouping, has_nodes=labels.nodes is not None)
    layers = label_layers(ledger, labels) if layered and depth is None and by == "scope" else None
    if layers is None:
        return grouping
    opened = replace(grouping, groups=_total_labels(ledger, layers, known))
    check_sums(ledger, opened, has_nodes=True)
    return replace(grouping, layers=opened.groups)


def _total_labels(ledger: Ledger, labels: Labels, known: Trainability | None) -> tuple[Group, ...]:
    members: dict[Label, list[Entry]] = defaultdict(list)
    for entry, label in zip(ledger.entries, labels.entries, strict=True):
        members[label].append(entry)
    nodes = Counter(labels.nodes.values()) if labels.nodes is not None else Counter[Label]()
    names = sort_labels(dict.fromkeys((*nodes, *members)))
    firsts = find_firsts(ledger, labels)
    macs, unworked = _total_macs(ledger.macs, labels.nodes)
    return tuple(
        [
            total_entries(
                name,
                members.get(name, ()),
                nodes.get(name, 0),
                known,
                first=firsts.get(name),
                macs=None if macs is None else macs[name],
                unworked=unworked[name] if unworked else 0,
            )
            for name in names
        ]
    )


def _total_macs(
    macs: Macs | None, nodes: Mapping[Place, Label] | None
) -> tuple[Counter[Label] | None, Counter[Label]]:
    """Return multiply-accumulates by label (None if not counted, or nodes have no label), and the uncounted nodes."""
    if macs is None or nodes is None:
        return None, Counter()
    found: Counter[Label] = Counter()
    for place, count in macs.nodes.items():
        found[nodes[place]] += count
    return found, Counter(nodes[place] for place in macs.unknown)


def total_by(entries: Iterable[Entry], key: Callable[[Entry], str]) -> tuple[Group, ...]:
    """Total the entries by a text that they share, in natural order."""
    members: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        members[key(entry)].append(entry)
    return tuple(
        total_entries((name,), members[name], 0, None) for name in sorted(members, key=natural_order)
    )


def _by_account(ledger: Ledger, known: Trainability | None) -> Grouping:
    """Return the accounts of all bytes on disk: payload accounts hold the entries of a role, the others only bytes."""
    members: dict[str, list[Entry]] = defaultdict(list)
    for entry in ledger.entries:
        members[entry.role.value].append(entry)
    groups = tuple(
        replace(
            total_entries((account.name,), members.get(account.name, ()), 0, known), nbytes=account.nbytes
        )
        for account in ledger.accounts
    )
    nothing = total_entries((), (), 0, known)
    return Grouping(ACCOUNTS, None, groups, nothing, nothing)


def total_entries(
    label: Label,
    entries: Sequence[Entry],
    nodes: int,
    known: Trainability | None,
    *,
    first: int | None = None,
    macs: int | None = None,
    unworked: int = 0,
) -> Group:
    """Total these entries and a number of nodes into a group; the other arguments are as in `Group`."""
    trainable = frozen = None
    if known is not None:
        flags = [(entry, known[entry.tensor.key][1]) for entry in entries if entry.tensor.key in known]
        trainable = sum(entry.parameters for entry, is_trainable in flags if is_trainable)
        frozen = sum(entry.parameters for entry, is_trainable in flags if not is_trainable)
    parameters = unshared = stored_elements = nbytes = learned_nbytes = 0
    applications: set[int] = set()
    learned = Role.PARAMETER
    for entry in entries:
        tensor, counted = entry.tensor, entry.parameters
        stored_elements += tensor.numel
        nbytes += tensor.nbytes
        if entry.role is learned:
            learned_nbytes += tensor.nbytes
        if counted:
            parameters += counted
            unshared += counted * entry.applications
            applications.add(entry.applications)
    return Group(
        " / ".join(label),
        label,
        parameters,
        unshared,
        applications.pop() if len(applications) == 1 else 1,
        stored_elements,
        nbytes,
        learned_nbytes,
        len(entries),
        nodes,
        first,
        trainable,
        frozen,
        macs,
        unworked,
    )


def check_sums(ledger: Ledger, grouping: Grouping, *, has_nodes: bool = False) -> Grouping:
    """Return the grouping, if sum(groups) - overlap + ungrouped is the ledger's own total, for every total.

    Raises:
        LedgerError: the sums differ, a defect of onnxledger.
    """
    wanted = {
        "parameters": ledger.parameters,
        "stored_elements": ledger.stored_elements,
        "nbytes": ledger.file_nbytes if grouping.by == ACCOUNTS else ledger.stored_nbytes,
        "tensors": len(ledger.entries),
    }
    if has_nodes and ledger.macs is not None:
        wanted["macs"] = ledger.macs.total
    if has_nodes:
        wanted["nodes"] = sum(len(graph.nodes) for graph in ledger.model.graphs)
    for total, value in wanted.items():
        get_total = attrgetter(total)
        found = sum([get_total(group) or 0 for group in grouping.groups])
        found += (get_total(grouping.ungrouped) or 0) - (get_total(grouping.overlap) or 0)
        if found != value:
            raise LedgerError(
                f"{ledger.model.path}: groups by {grouping.by} do not sum up: {total} {found:,}"
            )
    return grouping
