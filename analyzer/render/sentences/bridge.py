"""Reconciliation -> sentences: what was compared with what, whether it balances, and how far it was looked at."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.checkpoints.statedict import BY_NAMES
from analyzer.content import SAMPLES
from analyzer.reconciliation.lines import Line, Reconciliation
from analyzer.units import format_count, format_many, printable

__all__ = ["tell_balance", "tell_extent", "tell_factory", "tell_sides", "tell_wiring"]


def tell_sides(result: Reconciliation) -> str:
    """The file, and what stands for PyTorch's side."""
    source = result.manifest.source
    weights = source.get("weights")
    if weights == "factory" and "seed" in source:
        weights = f"weights as the factory makes them, seed {source['seed']}"
    names = ", ".join(value for value in (source.get("class"), source.get("source"), weights) if value)
    return printable(f"{result.ledger.model.path}{f' against {names}' if names else ''}")


def tell_factory(result: Reconciliation) -> Iterator[str]:
    """Where weights differ that a factory made: what it may have left out."""
    is_differing = any(settled.line is Line.DIFFERING for settled in result.parameters)
    if is_differing and result.manifest.source.get("weights") == "factory":
        yield "PyTorch's weights are those that the factory makes: does it load the checkpoint?"


def tell_balance(result: Reconciliation) -> str:
    """The answer in a few words; of what was not compared whole it says so first."""
    if not result.balanced:
        return "DOES NOT BALANCE"
    if result.content == "none":
        return "balanced by names and shapes only, unexplained 0"
    where = f" at {SAMPLES} positions of each tensor" if result.content == "sampled" else ""
    return f"balanced{where}, unexplained 0"


def tell_wiring(reads: str | None, first: str | None) -> str:
    """Whether the file computes with its weights as it was exported to; nothing where that was not compared.

    Args:
        reads: as the document has it, `as-exported`, `differs` or `not-compared`.
        first: the first module that computes something else, where one can be named.
    """
    if reads == "as-exported":
        return "wired as exported"
    if reads == "differs":
        return printable(f"wiring differs from the export{f', first in {first}' if first else ''}")
    return ""


def tell_extent(result: Reconciliation) -> str:
    """How far contents were compared, beside what the answer itself says of it."""
    told = {
        "none": "contents not compared",
        "sampled": "sampled contents compared"
        + f" at {SAMPLES} positions of each tensor" * (not result.balanced),
        "full": "whole contents compared",
    }[result.content]
    if result.content != "none" and result.undescribed:
        told += f", except {format_count(result.undescribed)} that PyTorch's side does not describe"
    sampled = result.compared["sampled"]
    if result.content == "full" and sampled:
        told += f"; {format_many(sampled, 'element')} at {SAMPLES} positions and by sums, as no values are at hand"
    if result.manifest.source.get("parameters_by") == BY_NAMES:
        told += "; parameters told from buffers by their names"
    return told
