"""`onnxledger explain`: what a finding means, what it costs, and how to mend it."""

from __future__ import annotations

import click

__all__ = ["explain"]


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
def explain(ids: tuple[str, ...]) -> None:
    """What a finding means, what it costs, and how to mend it."""
