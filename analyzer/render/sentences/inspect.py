"""Ledger -> sentences: what made the file, what it is made of, and which evidence decided how much."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from analyzer.doubt import Doubt, Range
from analyzer.ledger import Ledger
from analyzer.ranges import Traffic
from analyzer.units import format_bytes, format_count, format_many, format_share, printable

__all__ = ["tell_basis", "tell_facts", "tell_hidden", "tell_range"]


def tell_facts(ledger: Ledger) -> str:
    """What made the file, and what it is made of."""
    model = ledger.model
    versions: dict[str, set[int]] = defaultdict(set)
    for part in model.parts:
        for domain, version in part.opsets:
            versions[domain].add(version)
    opsets = ", ".join(f"{domain} {_each(found)}" for domain, found in versions.items())
    facts = [format_many(len(model.components), "component")] if model.components else []
    facts += [model.producer or "unknown producer", f"IR {_each(part.ir_version for part in model.parts)}"]
    facts.append(f"opset {opsets or 'none'}")
    facts.append(format_many(sum(1 for _ in model.nodes()), "node"))
    if model.nested_graphs:
        facts.append(format_many(model.nested_graphs, "nested graph"))
    if model.functions:
        sites = sum(call.sites for call in ledger.calls)
        facts.append(
            f"{format_many(len(model.functions), 'function')} called by {format_many(sites, 'node')}"
        )
    if model.traffic is None:
        facts.append(f"{format_bytes(ledger.file_nbytes)} on disk")
    else:
        facts.append(f"{format_bytes(ledger.file_nbytes)} in all, {_traffic(model.traffic)}")
    return printable(", ".join(facts))


def _each(numbers: Iterable[int]) -> str:
    return " and ".join(map(str, sorted(set(numbers))))


def _traffic(traffic: Traffic) -> str:
    where = f", sent on to {traffic.redirected_to}" if traffic.redirected_to else ""
    return f"{format_bytes(traffic.nbytes)} of it read in {format_many(traffic.requests, 'request')}{where}"


def tell_basis(ledger: Ledger) -> Iterator[str]:
    """Which evidence decided how much, and whether contents were looked at."""
    shares = [
        f"{evidence.value} {format_share(count, ledger.stored_elements)}"
        for evidence, count in sorted(ledger.basis.items(), key=lambda item: (-item[1], item[0]))
        if count
    ]
    yield f"Elements decided by: {', '.join(shares) or 'nothing, there are none'}"
    if ledger.content == "none":
        names = " under other names" if ledger.model.components else ""
        yield f"Contents were not looked at: what is stored twice{names} counts twice (--content sampled)"


def tell_hidden(doubt: Doubt) -> str:
    """How many more parameters PyTorch had, beside how many there are; "" where the file hides none."""
    finite = [(hides.least, hides.most) for hides in doubt.hidden.values() if hides.most is not None]
    said = []
    if finite:
        least, most = sum(least for least, _ in finite), sum(most for _, most in finite)
        said.append(f"{_say_change(least, most)} in PyTorch")
    if doubt.unknown:
        said.append(f"{format_many(doubt.unknown, 'element')} of which PyTorch had an unknown number")
    return ", ".join(said)


def _say_change(least: int, most: int) -> str:
    """How many more, or fewer, in words."""
    if least >= 0:
        return f"{format_count(least)} to {format_count(most)} more"
    if most <= 0:
        return f"{format_count(-most)} to {format_count(-least)} fewer"
    return f"{format_count(-least)} fewer to {format_count(most)} more"


def tell_range(least: int, most: int | None, reasons: Iterable[str]) -> Iterator[str]:
    """The range in which PyTorch's count is where one number cannot be known, and why; nothing where it can."""
    if least != most:
        said = Range(least, most).tell()
        why = "; ".join(reasons) or "not all could be settled"
        yield f"{said[0].upper()}{said[1:]} in PyTorch: {why}"
