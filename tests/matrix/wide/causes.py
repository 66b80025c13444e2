"""Why a cell does not balance, where that is known."""

from __future__ import annotations

from matrix.wide.account import Outcome


def cause_of(outcome: Outcome) -> str:
    """A sentence; what is said of a cell that nobody has looked into yet says so."""
    return "not known yet"
