"""Parts that the pages of several reports share: findings, groups, precision."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from analyzer.documents.shared import CountedMacs, Finding, Group, GroupBalance, TreeRow
from analyzer.pages.page import (
    Cell,
    Chart,
    Column,
    Findings,
    Formatted,
    Kind,
    Problem,
    Row,
    Table,
)
from analyzer.text import format_bytes, format_count, format_doing, format_many, short_count, short_share

if TYPE_CHECKING:  # most pages need no other documents
    from analyzer.documents.check import ModelFinding
    from analyzer.documents.survey import SurveyFinding

_RANKS = {"error": 0, "warning": 1, "note": 2}

GROUPS = "groups"
"""Key by which charts refer to the table of groups."""


def list_findings(
    findings: Iterable[Finding | ModelFinding], model: str = "", *, is_short: bool = False
) -> Findings:
    """List findings, the worst first; subjects that several findings share are listed once.

    Data that is opaque and unattributed too is one problem: both say that no rule explains it.
    """
    problems = []
    first: dict[tuple[str, ...], str] = {}
    found = sorted(findings, key=lambda finding: _RANKS.get(str(finding.severity), 3))
    subjects_of = {(getattr(each, "model", model), each.id): tuple(each.subjects) for each in found}
    for each in found:
        opaque, unattributed = (
            subjects_of.get((getattr(each, "model", model), id_)) for id_ in ("opaque", "unattributed")
        )
        is_one = opaque is not None and opaque == unattributed
        if is_one and each.id == "unattributed":
            continue
        subjects, message = tuple(each.subjects), each.message
        same = first.setdefault(subjects, each.id)
        if len(subjects) > 1 and same != each.id:
            message, subjects = f"{message}: the same {format_count(len(subjects))} as under {same}", ()
        if len(subjects) == 1 and message.startswith(tail := subjects[0].rpartition(": ")[2]) and tail:
            subjects = (
                subjects[0].removesuffix(f": {tail}"),
            )  # the message already begins with the count of a single subject
        short = _shorten_finding(each)
        if is_one and each.id == "opaque":
            message, short = f"{message} [unattributed]", short.replace("unexplained data", _UNEXPLAINED)
        problems.append(Problem(each.id, str(each.severity), message, subjects, each.bytes, model, short))
    return Findings(tuple(problems), is_short=is_short)


def _shorten_finding(finding: Finding | ModelFinding) -> str:
    """Return a finding in a few words: a count and the problem; `explain` gives the cause and the remedy."""
    words = _SHORT.get(finding.id)
    count = _COUNT.match(finding.message)
    if words is None or count is None:
        return ""
    short = words.format(count=count[0], bytes=format_bytes(finding.bytes or 0))
    return f"{short}, most of the model" if "most of the model" in finding.message else short


_UNEXPLAINED = "unattributed data"

_COUNT = re.compile(r"[\d,]+ (?:learned |stored )?\w+")
_SHORT = {
    "constant-filled": "{count} of one value",
    "constant-weights": "{count} in Constant nodes, not initializers",
    "opaque": "{count} of unexplained data that nodes use",
    "runtime-weights": "{count} of weights that ConstantOfShape makes",
    "strippable-metadata": "{bytes} of stack traces and notes can be stripped",
    "transposed-copy": "{count} stored again, transposed: {bytes}",
    "untied-weights": "{count} tied in PyTorch, not here: {bytes}",
    "unused-initializer": "{count} that no output depends on",
}
"""Text for one line of a terminal, by the id of a finding."""


def count_severities(findings: Iterable[Finding | ModelFinding | SurveyFinding]) -> str:
    """Count findings of each severity, the worst first; "" if there are none."""
    counts: dict[str, int] = defaultdict(int)
    for finding in findings:
        counts[str(finding.severity)] += 1
    return ", ".join(format_many(counts[each], each) for each in _RANKS if counts[each])


def natural_list(names: Sequence[str], most: int = 3) -> str:
    """Join names with commas, at most `most` of them.

    >>> natural_list(["a", "b"]), natural_list(["a", "b", "c", "d"])
    ('a, b', 'a, b, c, ...')
    """
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def format_source(source: Mapping[str, str]) -> str:
    """Describe PyTorch's side: the class, its source, and the kind of its weights.

    >>> format_source({"class": "BertModel", "source": "gpt2", "weights": "random"})
    'BertModel, gpt2, random weights'
    >>> format_source({"class": "BertModel", "source": "gpt2", "weights": "checkpoint", "part": "encoder"})
    'encoder of BertModel, gpt2, checkpoint'
    """
    weights = source.get("weights", "")
    weights_kind = {"random": "random weights", "fresh": "weights as they are initialised"}.get(
        weights, weights
    )
    if weights == "factory" and "seed" in source:
        weights_kind = f"weights made by the factory, seed {source['seed']}"
    part = f"{source['part']} of " if "part" in source else ""
    names = ", ".join(value for value in (source.get("class"), source.get("source"), weights_kind) if value)
    return f"{part}{names}"


def format_expression(text: str) -> str:
    """Return a polynomial as people write it, with separators in its numbers.

    >>> format_expression("7077888*b*s + 1536*b*s**2")
    '7,077,888 b s + 1,536 b s^2'
    """
    separated = re.sub(r"(?<![\w.])\d{4,}", lambda found: format_count(int(found[0])), text)
    return separated.replace("**", "^").replace("*", " ")


def format_exact_bytes(exact: int, short: str) -> str:
    """Return a number of bytes, short and exact.

    >>> format_exact_bytes(2048, "2.00 KiB"), format_exact_bytes(5, "5 B")
    ('2.00 KiB (2,048 bytes)', '5 B')
    """
    return f"{short} ({format_many(exact, 'byte')})" if exact >= 1024 else short


def title_groups(by: str, depth: int | None, tree: Sequence[TreeRow] = ()) -> str:
    """Return the keys of groups, and their depth, except for blocks at depth 1 and for scopes with deeper rows.

    >>> title_groups("scope,dtype", 2), title_groups("block", 1)
    ('scope, dtype, depth 2', 'block')
    """
    keys = by.replace(",", ", ").replace("stage", "stage (resolution)")
    is_opened = by == "scope" and any(row.group.count(".") >= (depth or 0) for row in tree)
    return keys if depth is None or is_opened or (by, depth) == ("block", 1) else f"{keys}, depth {depth}"


def table_groups(
    tree: Sequence[TreeRow],
    groups: Sequence[Group],
    balance: GroupBalance,
    by: str,
    title: str,
    parameters: int,
) -> Table:
    """Return the table of groups, with repeated ones folded; its rows sum to the model."""
    if by == "bytes":
        return _accounts(tree)
    is_own = by == "group"
    ordered = _in_order(tree) if set(by.split(",")) <= _OF_NODES else tree
    counted = [row for row in ordered if row.tensors or row.nodes or is_own]
    full, empty = _split_empty(counted, is_own=is_own)
    rows = [_group(row, parameters) for row in full]
    if empty:
        rows.append(_without_parameters(empty))
    own = ((balance.ungrouped, 1), (balance.overlap, -1)) if is_own else ()
    has_nodes = any(row.nodes for row in tree)  # by role, no node has a group
    has_macs = any(row.macs is not UNSET for row in tree)
    rows += [_balancing(group, sign, parameters) for group, sign in own]
    return Table(
        (
            Column(title, Kind.NAME),
            Column("parameters", Kind.COUNT, room=9, is_hidden=not parameters),
            Column("share", Kind.SHARE, room=4, is_bar=bool(parameters), is_hidden=not parameters),
            Column("stored elements", Kind.COUNT, room=0 if parameters else 6),
            Column("bytes", Kind.BYTES, room=5),
            Column("tensors", Kind.COUNT, room=2),
            Column("nodes", Kind.COUNT, room=1, is_hidden=not has_nodes),
            *([Column("MACs", Kind.COUNT, room=8)] if has_macs else ()),
        ),
        tuple(rows),
        title=title,
        total=_total(groups, balance, parameters),
        order=1 if parameters else 4,
        is_long=True,
        is_whole=is_own,
        key=GROUPS,
    )


_OF_NODES = frozenset({"scope", "block", "stage", "op"})
"""Keys whose groups consist of nodes, and so have a place in the order of the computation."""


def _in_order(rows: Sequence[TreeRow], level: int = 0) -> list[TreeRow]:
    """Sort rows, each with its children, by order of computation; stem first, then head, bracketed names last."""
    families: list[list[TreeRow]] = []
    for row in rows:
        if row.level == level or not families:
            families.append([row])
        else:
            families[-1].append(row)
    places = dict(_place_blocks([family[0] for family in families]))
    ordered = sorted(families, key=lambda family: places.get(family[0].group) or _place(family[0]))
    return [row for first, *below in ordered for row in (first, *_in_order(below, level + 1))]


_BLOCK = re.compile(r"block\.(\d+)")


def _place_blocks(rows: Sequence[TreeRow]) -> Iterator[tuple[str, tuple[bool, int, float]]]:
    """Yield the places of blocks: those of the blocks in the graph, in the order of their numbers.

    A block may begin with a node that stands early, such as a mask that only a later layer reads.
    """
    numbered = [(int(found[1]), row) for row in rows if (found := _BLOCK.match(row.group))]
    places = sorted(_place(row) for _, row in numbered)
    for place, (_, row) in zip(
        places, sorted(numbered, key=lambda each: (each[0], _place(each[1]))), strict=True
    ):
        yield row.group, place


def _place(row: TreeRow) -> tuple[bool, int, float]:
    end = {"stem": -1, "head": 1}.get(row.group, 0)
    return row.group.startswith("["), end, math.inf if row.first_node is UNSET else row.first_node


def _split_empty(rows: Sequence[TreeRow], *, is_own: bool) -> tuple[list[TreeRow], list[TreeRow]]:
    """Split off rows of the outermost level that have no children and no parameters, if there are several."""
    after = [*(row.level for row in rows[1:]), 0]
    alone = [row for row, next_level in zip(rows, after, strict=False) if not row.level and not next_level]
    empty = [row for row in alone if not is_own and not row.total_parameters]
    if len(empty) < 2 or len(empty) == len(rows):
        return list(rows), []
    left = set(map(id, empty))
    return [row for row in rows if id(row) not in left], empty


def _group(row: TreeRow, parameters: int) -> Row:
    count: Cell = row.total_parameters
    if row.count > 1 and row.parameters:
        count = Formatted(row.total_parameters, f"{format_count(row.count)} x {format_count(row.parameters)}")
    share = row.total_parameters / parameters if parameters else None
    name = row.group or "[root]"
    cells = (name, count, share, row.stored_elements, row.bytes, row.tensors, row.nodes, *_macs(row))
    return Row(cells, level=row.level)


def _macs(of: TreeRow | Group, sign: int = 1) -> tuple[Cell, ...]:
    """Return the last cell of a row, if the table has a column of MACs."""
    return () if of.macs is UNSET else (format_macs(sign * of.macs, of.nodes_without_macs),)


def _sum_macs(rows: Sequence[TreeRow | Group], overlap: Group | None = None) -> tuple[Cell, ...]:
    """Return the last cell of a sum, if the table has a column of MACs."""
    known = [row for row in rows if row.macs is not UNSET]
    if not known:
        return ()
    macs = sum(row.macs or 0 for row in known) - ((overlap and overlap.macs) or 0)
    return (format_macs(macs, sum(row.nodes_without_macs or 0 for row in known)),)


def format_macs(macs: int, unknown: int | UnsetType) -> Cell:
    """Return a count of multiply-accumulates; in words if the work of a node is unknown."""
    if not unknown:
        return macs
    return Formatted(macs, f"{format_count(macs)} or more" if macs else "unknown")


def report_macs(macs: CountedMacs | UnsetType) -> Iterator[str]:
    """Tell the sizes at which multiply-accumulates were counted, and the number of nodes without a count."""
    if macs is UNSET:
        return
    at = ", ".join(f"{axis}={size}" for axis, size in macs.at.items())
    sizes = f"at {at}" if at else "of a run"
    parts = [f"MACs: {format_count(macs.total) if macs.total or not macs.unknown else 'unknown'} {sizes}"]
    if macs.unknown:
        parts.append(
            f"without {format_many(macs.unknown, 'node')} of unknown work (`onnxledger cost` names them)"
        )
    if macs.choices:
        parts.append(f"for {format_many(macs.choices, 'If')} the branch with the most work")
    yield ", ".join(parts)


def _without_parameters(rows: Sequence[TreeRow]) -> Row:
    keys = ("stored_elements", "bytes", "tensors", "nodes")
    sums: list[Cell] = [sum(getattr(row, key) for row in rows) for key in keys]
    sums += _sum_macs(rows)
    groups = sum(row.count for row in rows)
    return Row((Formatted(None, f"[{format_count(groups)} groups with 0]"), 0, 0.0, *sums))


def _balancing(group: Group, sign: int, parameters: int) -> Row:
    share = sign * group.parameters / parameters if parameters else None
    counts = (group.stored_elements, group.bytes, group.tensors, group.nodes)
    cells = (group.group, sign * group.parameters, share, *(sign * count for count in counts))
    return Row((*cells, *_macs(group, sign)))


def _total(groups: Sequence[Group], balance: GroupBalance, parameters: int) -> tuple[Cell, ...]:
    def whole(key: str) -> int:
        own = sum(map(attrgetter(key), groups))
        return int(own + getattr(balance.ungrouped, key) - getattr(balance.overlap, key))

    share = whole("parameters") / parameters if parameters else None
    keys = ("stored_elements", "bytes", "tensors", "nodes")
    macs = _sum_macs([*groups, balance.ungrouped], balance.overlap)
    return ("total", whole("parameters"), share, *map(whole, keys), *macs)


def _accounts(tree: Sequence[TreeRow]) -> Table:
    whole = sum(row.bytes for row in tree if not row.level)
    rows = tuple(
        Row((row.group, row.bytes, row.bytes / whole if whole else None), level=row.level) for row in tree
    )
    columns = (
        Column("account", Kind.NAME),
        Column("bytes", Kind.COUNT, room=9),
        Column("share", Kind.SHARE, room=4, is_bar=True),
    )
    share = 1.0 if whole else None
    return Table(columns, rows, total=("total", whole, share), is_long=True, is_whole=True, key=GROUPS)


def chart_groups(table: Table, measures: Sequence[str] = ("parameters", "bytes", "stored elements")) -> Chart:
    """Make a treemap of a table's rows as they stand, without levels."""
    titles = [column.title for column in table.columns]
    known = [[title, titles.index(title)] for title in measures if title in titles]
    data = {"name": 0, "arrangements": [["row", [], ""]], "measures": known, "colours": []}
    summary = "A treemap: each rectangle is a row of the table, as large as its share."
    return Chart(table.key, "Shares", "tree", data, summary)


_FEW = 3


def report_reuse(groups: Sequence[Group]) -> Iterator[str]:
    """Tell which groups are used more than once, and their parameters if each use had its own."""
    reused = [group for group in groups if group.unshared_parameters > group.parameters > 0]
    reused.sort(key=lambda group: group.parameters - group.unshared_parameters)
    alike: dict[int, list[Group]] = defaultdict(list)
    for group in reused:
        alike[group.applications].append(group)
    for applications, found in list(alike.items())[:_FEW]:
        times = f"{format_count(applications)} times" if applications > 1 else "more than once"
        whole = ", ".join(format_count(group.unshared_parameters) for group in found[:_FEW])
        whole += ", ..." if len(found) > _FEW else ""
        names = _without_prefix([group.group or "[root]" for group in found[:_FEW]])
        others = [f"{format_count(len(found) - _FEW)} other groups"] if len(found) > _FEW else []
        verb = "is" if len(found) == 1 else "are each"
        yield f"{', '.join([*names, *others])} {verb} used {times}: {whole} parameters if each use had its own"
    left = sum(len(found) for found in list(alike.values())[_FEW:])
    if left:
        yield f"{format_doing(left, 'other group', 'are')} also used more than once"


def _without_prefix(names: Sequence[str]) -> list[str]:
    """Return names, all but the first without the prefix of modules that they share with the first.

    >>> _without_prefix(["model.mlp.fc1", "model.mlp.fc2"]), _without_prefix(["a", "b.c"])
    (['model.mlp.fc1', 'fc2'], ['a', 'b.c'])
    """
    first, *others = names
    above = first.rpartition(".")[0]
    return [first, *(name.removeprefix(f"{above}.") if above else name for name in others)]


def report_group_rule(match: str | None, *origins: str | None) -> Iterator[str]:
    """Tell where the user's groups come from, and which of them count an entry; nothing without such groups."""
    if match is None:
        return
    rule = {"all": "all that match", "first": "the first that matches"}[match]
    sources = " and ".join(origin for origin in dict.fromkeys(origins) if origin is not None)
    yield f"Groups{' from ' if sources else ''}{sources}, each tensor in {rule}"


def format_shares(parts: Sequence[tuple[str, int]], whole: int, most: int = 4) -> str:
    """Return parts with their shares, the largest first.

    >>> format_shares([("FLOAT", 1), ("INT8", 3)], 4)
    'INT8 75.0 %, FLOAT 25.0 %'
    """
    ordered = sorted(parts, key=lambda part: (-part[1], part[0]))
    shares = [f"{name} {short_share(count / whole)}" for name, count in ordered[:most] if whole and count]
    return ", ".join(shares) + (", ..." if len([part for part in ordered if part[1]]) > most else "")


def abbreviate_count(count: int) -> str:
    """Return a count in short form if it is 1000 or more; else "".

    >>> abbreviate_count(109_482_240), abbreviate_count(12)
    ('109.48 M', '')
    """
    return short_count(count) if abs(count) >= 1000 else ""
