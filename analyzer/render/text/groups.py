"""Groups -> the table of their tree, with what there is to say of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from analyzer.group.branches import fold_names
from analyzer.group.keys import choose_key
from analyzer.group.tree import TreeRow, build_tree, cut_rows, find_reuse, sum_groups
from analyzer.ledger import Blocks, Group, Grouping, Ledger
from analyzer.render.options import RenderOptions
from analyzer.render.sentences.groups import heading, tell_rule
from analyzer.render.text.tables import make_table, show_name
from analyzer.units import format_bytes, format_count, format_doing, format_many, format_share

__all__ = ["show_groups"]


def show_groups(
    grouping: Grouping, ledger: Ledger, options: RenderOptions, *, is_pytorch: bool = False
) -> list[RenderableType]:
    """The table of groups, of a ledger whose parameters are all, and the sentences below it."""
    is_own = grouping.by == "group"
    # Groups of nodes alone have nothing to count; JSON lists them.
    counted = replace(grouping, groups=tuple(g for g in grouping.groups if g.tensors or is_own))
    shown, closed = cut_rows(build_tree(counted), 0 if is_own else options.rows)
    is_wide = options.width >= _WIDE or not any(row.level or row.count > 1 for row in shown)
    parts: list[RenderableType] = [
        *map(Text, tell_rule(grouping.match, grouping.origin)),
        _table(grouping, shown, ledger.parameters, heading(grouping, is_pytorch=is_pytorch), is_wide=is_wide),
    ]
    lines = [*_closed(closed), *_blocks(grouping, ledger), *_reuse(find_reuse(ledger), options.rows)]
    if lines:
        parts += [Text(""), *lines]
    return parts


_WIDE = 100
"""Columns of a terminal from which on a tree has room for every number; below it one makes room for the names."""


def _table(
    grouping: Grouping, rows: Sequence[TreeRow], parameters: int, title: str, *, is_wide: bool
) -> Table:
    known = any(group.trainable is not None for group in grouping.groups)
    columns = (("trainable", "frozen") if known else ("share", "stored"))[: 2 if is_wide else 1]
    table = make_table(title, "parameters", *columns, "bytes", "tensors")
    for row in rows:
        name = Padding(show_name(row.title), (0, 0, 0, _INDENT * min(row.level, _DEEPEST_INDENT)))
        table.add_row(name, _count(row), *_columns(row.total, parameters, is_wide))
    if grouping.by == "group":
        for group, sign in ((grouping.ungrouped, 1), (grouping.overlap, -1)):
            counts = _columns(group, parameters, is_wide, sign)
            table.add_row(show_name(group.name), format_count(sign * group.parameters), *counts)
    table.add_section()
    total = sum_groups("total", (*grouping.groups, grouping.ungrouped), grouping.overlap)
    table.add_row(
        "total", format_count(total.parameters), *_columns(total, parameters, is_wide), style="bold"
    )
    return table


_INDENT, _DEEPEST_INDENT = 2, 6
"""Columns of a level, and how many levels are told apart: names need room."""


def _count(row: TreeRow) -> str:
    """Parameters; of a row that stands for several groups how many there are, and the parameters of each."""
    if row.count == 1 or not row.parameters:
        return format_count(row.total.parameters)
    return f"{format_count(row.count)} x {format_count(row.parameters)}"


def _columns(group: Group, parameters: int, is_wide: bool, sign: int = 1) -> tuple[str, ...]:
    """The columns after the first count."""
    if group.trainable is None or group.frozen is None:
        share, stored = format_share(sign * group.parameters, parameters), sign * group.stored_elements
        parts = (share, format_count(stored))
    else:
        parts = (format_count(sign * group.trainable), format_count(sign * group.frozen))
    return (
        *parts[: 2 if is_wide else 1],
        format_bytes(sign * group.nbytes),
        format_count(sign * group.tensors),
    )


def _closed(closed: int) -> Iterator[Text]:
    if closed:
        yield Text(
            f"{format_many(closed, 'row')} under these {'is' if closed == 1 else 'are'} not shown; -n 0 shows all"
        )


def _blocks(grouping: Grouping, ledger: Ledger) -> Iterator[Text]:
    """Why groups are blocks where nobody asked for them, and which modules they are."""
    if "block" not in grouping.by.split(",") or ledger.blocks is None:
        return
    if choose_key(ledger) == "block":
        yield Text("no parameter has a scope, so they are grouped by block")
    if not ledger.blocks.count:
        yield Text("no repeated blocks found")
    yield from _modules(ledger.blocks)


def _modules(blocks: Blocks) -> Iterator[Text]:
    for run in blocks.runs:
        if run.modules:
            last = run.first + run.count - 1
            modules = tuple(dict.fromkeys(run.modules))
            verb = "is" if run.count == 1 else "are all" if len(modules) == 1 else "are"
            numbers = f"{run.first}-{last}" if run.count > 1 else f"{run.first}"
            yield show_name(f"block.{numbers} {verb} {', '.join(fold_names(modules))}")


def _reuse(reused: Sequence[TreeRow], rows: int) -> Iterator[Text]:
    """What is used more than once, and what it would take if it were not."""
    saved = sorted(reused, key=lambda row: row.total.parameters - row.total.unshared_parameters)
    shown = saved[: min(rows, _FEW)] if rows else saved
    for row in shown:
        total = row.total
        times = f"is used {format_count(total.applications)} times"
        if row.count > 1:
            times = f"are each used {format_count(total.applications)} times"
        yield show_name(
            f"{total.name} {times}: {format_many(total.parameters, 'parameter')}, "
            f"{format_count(total.unshared_parameters)} if each use had its own"
        )
    if len(shown) < len(saved):
        yield Text(f"[{format_doing(len(saved) - len(shown), 'other', 'are')} used more than once]")


_FEW = 5
"""Sentences on reuse, unless all rows are asked for: a table follows."""
