"""Names of baselines -> their ledgers, each read once, and the part of one that is beside a part of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from analyzer.budget.measuring import CONTENT_MATTERS
from analyzer.budget.metrics import Metric
from analyzer.budget.record import Over
from analyzer.budget.selecting import Selection, Unknown, select
from analyzer.errors import OnnxLedgerError
from analyzer.group.patterns import Searcher
from analyzer.ledger import Entry, Evidence, Ledger, Role
from analyzer.units import format_count, printable_name

__all__ = ["Baselines", "name_baseline"]

STEM = "{stem}"
"""In the name of a baseline: the name of the model that is checked, without its folder and `.onnx` or `.json`."""


def name_baseline(limit: Over, default: str | None, path: str) -> str | None:
    """The baseline of one limit for one model, the limit's own or that of all; None where there is none.

    >>> name_baseline(Over((), "saved/{stem}.json"), None, "models/bert.onnx")
    'saved/bert.json'
    """
    name = default if limit.baseline is None else limit.baseline
    if name is None or STEM not in name:
        return name
    last = PurePosixPath(path.partition("?")[0].replace("\\", "/")).name
    return name.replace(STEM, last.removesuffix(".json").removesuffix(".onnx"))


class Baselines:
    """What relative limits are over."""

    def __init__(
        self, default: str | None, read: Callable[[str], Ledger], *, is_any_allowed: bool = False
    ) -> None:
        self._default, self._read, self._is_any_allowed = default, read, is_any_allowed
        self._known: dict[str, Ledger | Unknown] = {}

    def name(self, limit: Over, path: str) -> str | None:
        """As `name_baseline`."""
        return name_baseline(limit, self._default, path)

    def select(
        self,
        limit: Over,
        group: str | None,
        metric: Metric,
        path: str,
        model: Ledger,
        groups: Mapping[str, Searcher],
    ) -> tuple[Selection, ...] | Unknown:
        """The parts of the baseline that are called as a rule calls those of the model."""
        name = self.name(limit, path)
        ledger = self._load(name)
        if isinstance(ledger, Unknown):
            return ledger
        differs = "" if self._is_any_allowed else _find_difference(model, path, ledger)
        if differs:
            way = "give one of this model, or take it all the same with --baseline-any"
            return Unknown(f"the baseline {name} is of another model, {differs}; {way}")
        if metric.name in CONTENT_MATTERS and (ledger.content == "none") != (model.content == "none"):
            which = "the baseline" if ledger.content == "none" else "the model"
            return Unknown(f"contents of {which} were not looked at; --content sampled makes both comparable")
        found = select(ledger, group, groups)
        if isinstance(found, Unknown):
            return Unknown(f"the baseline {name} lacks it: {found.reason}")
        return found

    def _load(self, name: str | None) -> Ledger | Unknown:
        if name is None:
            return Unknown(
                "a growth, and no baseline: write 'over FILE' in the limit, or give --baseline FILE"
            )
        if name not in self._known:
            try:
                self._known[name] = self._read(name)
            except OnnxLedgerError as error:
                self._known[name] = Unknown(f"the baseline cannot be read: {error}")
        return self._known[name]


def _find_difference(model: Ledger, path: str, baseline: Ledger) -> str:
    """Why two ledgers are no two versions of one model; "" where they are, or may well be.

    Versions keep the PyTorch modules of what is learned: whoever adds layers, widens them, quantizes, fuses or moves
    the file keeps most of them. Half of the modules of the side with more are asked for, so that a model does not pass
    as a part of a larger one; learned tensors that an optimizer left without a module may be those of modules that the
    other side has beyond. Where one side has none, the names of its tensors, the graph's inputs and outputs, or
    the name of the file have to be the same.
    """
    ours, theirs = _list_modules(model), _list_modules(baseline)
    common = len(ours & theirs)
    most = max(len(ours), len(theirs))
    if ours and theirs:
        fewer, side = (len(ours), model) if len(ours) < len(theirs) else (len(theirs), baseline)
        is_part = 2 * common >= fewer and 2 * (common + _count_loose(side)) >= most
        if 2 * common >= most or is_part or _are_alike_below(ours, theirs):
            return ""
        told = printable_name(str(baseline.model.path))
        return f"{told}: of {format_count(most)} modules with parameters both have {format_count(common)}"
    plain, others = _list_tensors(model), _list_tensors(baseline)
    if plain and 2 * len(plain & others) >= max(len(plain), len(others)):
        return ""
    files = {_name_file(path), _name_file(str(model.model.path))}
    ends = _list_ends(model)
    if (ends is not None and ends == _list_ends(baseline)) or _name_file(str(baseline.model.path)) in files:
        return ""
    return f"{printable_name(str(baseline.model.path))}, of which nothing has the same name"


def _list_modules(ledger: Ledger) -> frozenset[str]:
    """PyTorch modules of what is learned: exporters drop names of tensors that they turn, and keep those of nodes."""
    learned = (entry for entry in ledger.entries if entry.role is Role.PARAMETER)
    return frozenset(entry.scope for entry in learned if entry.scope and not _is_loose(entry))


def _count_loose(ledger: Ledger) -> int:
    """Learned tensors of which nothing tells the module."""
    return sum(entry.role is Role.PARAMETER and _is_loose(entry) for entry in ledger.entries)


def _is_loose(entry: Entry) -> bool:
    """Whether a tensor has no module, or but the one that what is around it has in common."""
    return entry.scoped_by.partition(":")[0] in (Evidence.NONE, Evidence.STRUCTURE)


def _list_tensors(ledger: Ledger) -> frozenset[str]:
    return frozenset(entry.tensor.key[1] for entry in ledger.entries if entry.role is Role.PARAMETER)


def _list_ends(ledger: Ledger) -> tuple[tuple[str, ...], ...] | None:
    """Inputs and outputs of the main graphs; None of a saved report, which has no graphs."""
    roots = {part.path for part in ledger.model.parts}
    graphs = [graph for graph in ledger.model.graphs if graph.path in roots]
    return tuple(ends for graph in graphs for ends in (graph.inputs, graph.outputs)) or None


_FEW = 4
"""Names that say nothing once what they have in common is taken away."""


def _are_alike_below(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """Whether half of the names agree but for a module around all of a side's, as an export of `Wrapper(model)` has."""
    if min(len(ours), len(theirs)) < _FEW:
        return False
    inner, others = ({name[_common(names) :] for name in names} for names in (ours, theirs))
    return 2 * len(inner & others) >= max(len(inner), len(others))


def _common(names: frozenset[str]) -> int:
    """Characters of the modules that are around everything."""
    first, last = min(names), max(names)  # what these two begin with alike, all that lie between do
    alike = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first.rfind(".", 0, alike) + 1


def _name_file(path: str) -> str:
    return name_baseline(Over((), STEM), None, path) or ""
