"""What the pages of several reports have in common: findings, groups, precision."""

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
    Kind,
    Problem,
    Row,
    Said,
    Table,
)
from analyzer.text import format_bytes, format_count, format_doing, format_many, short_count, short_share

if TYPE_CHECKING:  # the documents of others
    from analyzer.documents.check import ModelFinding
    from analyzer.documents.survey import SurveyFinding

_RANKS = {"error": 0, "warning": 1, "note": 2}

GROUPS = "groups"
"""What charts call the table of groups by."""


def list_findings(
    findings: Iterable[Finding | ModelFinding], model: str = "", *, is_short: bool = False
) -> Findings:
    """Findings, the worst first; what several of them are about is listed once."""
    problems = []
    first: dict[tuple[str, ...], str] = {}
    for each in sorted(findings, key=lambda finding: _RANKS.get(str(finding.severity), 3)):
        subjects, message = tuple(each.subjects), each.message
        same = first.setdefault(subjects, each.id)
        if len(subjects) > 1 and same != each.id:
            message, subjects = f"{message}: the same {format_count(len(subjects))} as under {same}", ()
        if len(subjects) == 1 and message.startswith(tail := subjects[0].rpartition(": ")[2]) and tail:
            subjects = (
                subjects[0].removesuffix(f": {tail}"),
            )  # the only one, which has all that are counted
        short = _say_short(each)
        problems.append(Problem(each.id, str(each.severity), message, subjects, each.bytes, model, short))
    return Findings(tuple(problems), is_short=is_short)


def _say_short(finding: Finding | ModelFinding) -> str:
    """A finding in a few words: how many, and what is the matter; why, and what to do, `explain` says."""
    words = _SHORT.get(finding.id)
    count = _COUNT.match(finding.message)
    if words is None or count is None:
        return ""
    short = words.format(count=count[0], bytes=format_bytes(finding.bytes or 0))
    return f"{short}, most of the model" if "most of the model" in finding.message else short


_COUNT = re.compile(r"[\d,]+ (?:learned |stored )?\w+")
_SHORT = {
    "constant-filled": "{count} of one value",
    "constant-weights": "{count} in Constant nodes, not initializers",
    "opaque": "{count} of data that computes, and that nothing explains",
    "runtime-weights": "{count} of weights that ConstantOfShape makes",
    "strippable-metadata": "{bytes} of stack traces and notes can be stripped",
    "transposed-copy": "{count} stored again, transposed: {bytes}",
    "untied-weights": "{count} tied in PyTorch, not here: {bytes}",
    "unused-initializer": "{count} that no output depends on",
}
"""By the id of a finding: what a line of a terminal says of it."""


def count_severities(findings: Iterable[Finding | ModelFinding | SurveyFinding]) -> str:
    """How many of each severity there are, the worst first; "" where there are none."""
    counts: dict[str, int] = defaultdict(int)
    for finding in findings:
        counts[str(finding.severity)] += 1
    return ", ".join(format_many(counts[each], each) for each in _RANKS if counts[each])


def natural_list(names: Sequence[str], most: int = 3) -> str:
    """Names with commas, no more than so many.

    >>> natural_list(["a", "b"]), natural_list(["a", "b", "c", "d"])
    ('a, b', 'a, b, c, ...')
    """
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def say_source(source: Mapping[str, str]) -> str:
    """PyTorch's side: the class, where it is from, and which weights it has.

    >>> say_source({"class": "BertModel", "source": "gpt2", "weights": "random"})
    'BertModel, gpt2, random weights'
    """
    weights = source.get("weights", "")
    said = {"random": "random weights", "fresh": "weights as they are initialised"}.get(weights, weights)
    if weights == "factory" and "seed" in source:
        said = f"weights as the factory makes them, seed {source['seed']}"
    return ", ".join(value for value in (source.get("class"), source.get("source"), said) if value)


def say_expression(text: str) -> str:
    """A polynomial as people write it, with separators in its numbers.

    >>> say_expression("7077888*b*s + 1536*b*s**2")
    '7,077,888 b s + 1,536 b s^2'
    """
    said = re.sub(r"(?<![\w.])\d{4,}", lambda found: format_count(int(found[0])), text)
    return said.replace("**", "^").replace("*", " ")


def bytes_said(exact: int, short: str) -> str:
    """Bytes, short and exact.

    >>> bytes_said(2048, "2.00 KiB"), bytes_said(5, "5 B")
    ('2.00 KiB (2,048 bytes)', '5 B')
    """
    return f"{short} ({format_many(exact, 'byte')})" if exact >= 1024 else short


def title_groups(by: str, depth: int | None, tree: Sequence[TreeRow] = ()) -> str:
    """What groups are made by; blocks at depth 1 have no depth to tell, nor have scopes of which layers stand apart.

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
    """The groups under each other, what repeats folded; their sum is the model's."""
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
"""Keys whose groups have a place in the order of the computation."""


def _in_order(rows: Sequence[TreeRow], level: int = 0) -> list[TreeRow]:
    """Rows in the order of the computation, each with what stands below it; stems first, heads and brackets last."""
    families: list[list[TreeRow]] = []
    for row in rows:
        if row.level == level or not families:
            families.append([row])
        else:
            families[-1].append(row)
    ordered = sorted(families, key=lambda family: _place(family[0]))
    return [row for first, *below in ordered for row in (first, *_in_order(below, level + 1))]


def _place(row: TreeRow) -> tuple[bool, int, float]:
    end = {"stem": -1, "head": 1}.get(row.group, 0)
    return row.group.startswith("["), end, math.inf if row.first_node is UNSET else row.first_node


def _split_empty(rows: Sequence[TreeRow], *, is_own: bool) -> tuple[list[TreeRow], list[TreeRow]]:
    """Rows, and those that stand alone at the outermost level and hold no parameter, where there are several."""
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
        count = Said(row.total_parameters, f"{format_count(row.count)} x {format_count(row.parameters)}")
    share = row.total_parameters / parameters if parameters else None
    name = row.group or "[root]"
    cells = (name, count, share, row.stored_elements, row.bytes, row.tensors, row.nodes, *_macs(row))
    return Row(cells, level=row.level)


def _macs(of: TreeRow | Group, sign: int = 1) -> tuple[Cell, ...]:
    """The last cell of a row, where the table has one for it."""
    return () if of.macs is UNSET else (say_macs(sign * of.macs, of.nodes_without_macs),)


def _sum_macs(rows: Sequence[TreeRow | Group], twice: Group | None = None) -> tuple[Cell, ...]:
    """The last cell of a sum, where the table has one for it."""
    known = [row for row in rows if row.macs is not UNSET]
    if not known:
        return ()
    macs = sum(row.macs or 0 for row in known) - ((twice and twice.macs) or 0)
    return (say_macs(macs, sum(row.nodes_without_macs or 0 for row in known)),)


def say_macs(macs: int, unknown: int | UnsetType) -> Cell:
    """Multiply-accumulates; in words where the work of a node is not known."""
    if not unknown:
        return macs
    return Said(macs, f"{format_count(macs)} or more" if macs else "unknown")


def tell_macs(macs: CountedMacs | UnsetType) -> Iterator[str]:
    """At which sizes multiply-accumulates were counted, and of how many nodes they could not be."""
    if macs is UNSET:
        return
    at = ", ".join(f"{axis}={size}" for axis, size in macs.at.items())
    sizes = f"at {at}" if at else "of a run"
    told = [f"MACs: {format_count(macs.total)} {sizes}"]
    if macs.unknown:
        told.append(
            f"without {format_many(macs.unknown, 'node')} of unknown work (`onnxledger cost` names them)"
        )
    if macs.choices:
        told.append(f"of {format_many(macs.choices, 'If')} the branch that works most")
    yield ", ".join(told)


def _without_parameters(rows: Sequence[TreeRow]) -> Row:
    keys = ("stored_elements", "bytes", "tensors", "nodes")
    sums: list[Cell] = [sum(getattr(row, key) for row in rows) for key in keys]
    sums += _sum_macs(rows)
    groups = sum(row.count for row in rows)
    return Row((Said(None, f"[{format_count(groups)} groups with 0]"), 0, 0.0, *sums))


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
    """Rows of a table as they are, without levels."""
    titles = [column.title for column in table.columns]
    known = [[title, titles.index(title)] for title in measures if title in titles]
    data = {"name": 0, "arrangements": [["row", [], ""]], "measures": known, "colours": []}
    summary = "A treemap: each rectangle is a row of the table, as large as its share."
    return Chart(table.key, "Shares", "tree", data, summary)


_FEW = 3


def tell_reuse(groups: Sequence[Group]) -> Iterator[str]:
    """What is used more than once, and what it would take if it were not."""
    reused = [group for group in groups if group.unshared_parameters > group.parameters > 0]
    reused.sort(key=lambda group: group.parameters - group.unshared_parameters)
    alike: dict[int, list[Group]] = defaultdict(list)
    for group in reused:
        alike[group.applications].append(group)
    for applications, found in list(alike.items())[:_FEW]:
        times = f"used {format_count(applications)} times" if applications > 1 else "shared"
        whole = ", ".join(format_count(group.unshared_parameters) for group in found[:_FEW])
        whole += ", ..." if len(found) > _FEW else ""
        names = _without_prefix([group.group or "[root]" for group in found[:_FEW]])
        others = [f"{format_count(len(found) - _FEW)} other groups"] if len(found) > _FEW else []
        verb = "is" if len(found) == 1 else "are each"
        yield f"{', '.join([*names, *others])} {verb} {times}: {whole} parameters if each use had its own"
    left = sum(len(found) for found in list(alike.values())[_FEW:])
    if left:
        yield f"{format_doing(left, 'other group', 'hold')} what is used more than once"


def _without_prefix(names: Sequence[str]) -> list[str]:
    """Names, of which the second and further ones lose the modules that the first names already.

    >>> _without_prefix(["model.mlp.fc1", "model.mlp.fc2"]), _without_prefix(["a", "b.c"])
    (['model.mlp.fc1', 'fc2'], ['a', 'b.c'])
    """
    first, *others = names
    above = first.rpartition(".")[0]
    return [first, *(name.removeprefix(f"{above}.") if above else name for name in others)]


def tell_rule(match: str | None, *origins: str | None) -> Iterator[str]:
    """Where the user's groups come from, and which of them have an entry; nothing where there are none."""
    if match is None:
        return
    rule = {"all": "all that match", "first": "the first that matches"}[match]
    named = " and ".join(origin for origin in dict.fromkeys(origins) if origin is not None)
    yield f"Groups{' from ' if named else ''}{named}, each tensor in {rule}"


def shares_said(parts: Sequence[tuple[str, int]], whole: int, most: int = 4) -> str:
    """Parts with their shares, the largest first.

    >>> shares_said([("FLOAT", 1), ("INT8", 3)], 4)
    'INT8 75.0 %, FLOAT 25.0 %'
    """
    ordered = sorted(parts, key=lambda part: (-part[1], part[0]))
    said = [f"{name} {short_share(count / whole)}" for name, count in ordered[:most] if whole and count]
    return ", ".join(said) + (", ..." if len([part for part in ordered if part[1]]) > most else "")


def count_said(count: int) -> str:
    """A count in short, where that says more; else nothing.

    >>> count_said(109_482_240), count_said(12)
    ('109.48 M', '')
    """
    return short_count(count) if abs(count) >= 1000 else ""
