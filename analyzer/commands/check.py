"""`onnxledger check`: is a model within its budgets?"""

from __future__ import annotations

import click

__all__ = ["check"]


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
def check(models: tuple[str, ...]) -> None:
    """Is MODEL within its budgets?"""
