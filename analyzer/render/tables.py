"""What the text reports are built of: tables within their width, and names that cannot escape."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from analyzer.render.units import printable, shorten

__all__ = ["make_table", "show_name"]


def make_table(*columns: str) -> Table:
    """The first column holds names and takes the room that is left; the others hold numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for position, column in enumerate(columns):
        if position:
            table.add_column(column, justify="right", no_wrap=True)
        else:
            table.add_column(column, overflow="fold")
    return table


def show_name(name: str, style: str = "") -> Text:
    """A name from a file, escaped, and no longer than anybody reads."""
    return Text(printable(shorten(name, _LONGEST_NAME)), style=style)


_LONGEST_NAME = 400
"""Characters of a name that are shown: nobody reads more, and a file may have names of megabytes."""
