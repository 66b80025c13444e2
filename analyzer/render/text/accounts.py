"""Every element and every byte of a model -> its tables by role and by account."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table

from analyzer.group.tree import sum_groups
from analyzer.ledger import Group, Grouping, Ledger, Role
from analyzer.read.book import GRAPH_STRUCTURE, INSIDE
from analyzer.render.text.tables import make_table, show_name
from analyzer.units import format_count, format_share

__all__ = ["show_accounts", "show_roles"]


def show_roles(ledger: Ledger) -> Table:
    """Every element by its role, and every byte on disk: payload by role, then the rest of the files."""
    table = make_table("role", "parameters", "stored", "tensors", "bytes on disk")
    booked = {account.name: account.nbytes for account in ledger.accounts}
    for role in Role:
        entries = [entry for entry in ledger.entries if entry.role is role]
        table.add_row(
            role.value,
            format_count(sum(entry.parameters for entry in entries)),
            format_count(sum(entry.tensor.numel for entry in entries)),
            format_count(len(entries)),
            format_count(booked.pop(role.value, 0)),
        )
    rest = {GRAPH_STRUCTURE: sum(booked.pop(name, 0) for name in INSIDE)} | booked
    for name, nbytes in rest.items():
        if nbytes:
            table.add_row(name, "", "", "", format_count(nbytes))
    table.add_section()
    table.add_row(
        "total",
        format_count(ledger.parameters),
        format_count(ledger.stored_elements),
        format_count(len(ledger.entries)),
        format_count(ledger.file_nbytes),
        style="bold",
    )
    return table


def show_accounts(grouping: Grouping, ledger: Ledger) -> Table:
    """Every byte on disk, and what is stored in it."""
    table = make_table("bytes", "bytes on disk", "share", "stored", "tensors")
    for group in grouping.groups:
        if group.nbytes or group.tensors:
            table.add_row(*_account_row(group, ledger.file_nbytes))
    table.add_section()
    total = sum_groups("total", grouping.groups)
    table.add_row(*_account_row(total, ledger.file_nbytes), style="bold")
    if ledger.shared_nbytes:
        table.add_row("[shared, booked once]", format_count(ledger.shared_nbytes), "", "", "")
    return table


def _account_row(group: Group, nbytes: int) -> list[RenderableType]:
    elements = (
        (format_count(group.stored_elements), format_count(group.tensors)) if group.tensors else ("", "")
    )
    return [show_name(group.name), format_count(group.nbytes), format_share(group.nbytes, nbytes), *elements]
