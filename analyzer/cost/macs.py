"""Ledger + sizes of axes -> the multiply-accumulates of each node, for reports on other subjects."""

from __future__ import annotations

from analyzer.account.group.keys import Labels
from analyzer.account.ledger import Ledger, Macs
from analyzer.cost.account import measure_cost
from analyzer.timing.inputs.feeds import plan_feeds
from analyzer.timing.inputs.sizes import Shapes


def count_macs(ledger: Ledger, shapes: Shapes | None = None) -> Macs:
    """Count the multiply-accumulates of one run, without running it; sizes not given are those that `time` takes.

    Raises:
        UsageError: sizes contradict each other or name nothing, an input cannot be made, or there are several models.
    """
    axes = plan_feeds(ledger, shapes)[0].axes
    places = {str(number): node.place for number, node in enumerate(ledger.model.nodes())}
    each = Labels("node", None, (), {place: (number,) for number, place in places.items()})
    sizes = {f"{axis.input}.{axis.position}": axis.size for axis in axes}
    report = measure_cost(ledger, sizes=sizes, labels=each, is_lenient=True)
    known = {group.name: report.at(group.sums.macs) for group in report.groups}
    uncounted = {row.group for row in report.unknown} | {name for name, macs in known.items() if macs is None}
    return Macs(
        at={
            axis.name or f"{axis.input}.{axis.position}": axis.size for axis in axes if axis.reason != "file"
        },
        nodes={places[number]: macs for number, macs in known.items() if macs},
        unknown=frozenset(places[number] for number in uncounted if number in places),
        choices=sum(not row.group for row in report.unknown),
    )
