"""Formula + census + model -> Checked: every term on all sides, and the reasons for the differences."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from analyzer.account.ledger import Entry, Ledger, Severity
from analyzer.account.scopes import float_name
from analyzer.formulas.derived import part_finder
from analyzer.formulas.family import Family, load_family
from analyzer.formulas.reasons import find_reasons
from analyzer.formulas.record import Checked, Formula, MatchedBy, Side
from analyzer.manifest import Manifest, Parameter
from analyzer.model import Key
from analyzer.reconciliation import reconcile_ledger
from analyzer.reconciliation.lines import MEANINGS, Line, ParameterLine, Reconciliation
from analyzer.records import replace
from analyzer.text import format_count

# A parameter belongs to the part whose scope matches its PyTorch name. A reconciled ledger has PyTorch's own names,
# any other ledger the names that the exporter left in the file.


Finder = Callable[[Iterable[str]], str | None]
"""Function from a parameter's names, the likeliest first, to the key of its part; None where it has none."""


def family_finder(family: Family) -> Finder:
    """Return a finder that searches all parts of a family, including those that a class lacks."""

    def find(names: Iterable[str]) -> str | None:
        part = family.find_part(names)
        return None if part is None else part.key

    return find


class _PartSums:
    """Sums by part while they are accumulated."""

    def __init__(self, find: Finder) -> None:
        self.find = find
        self.counts: Counter[str] = Counter()
        self.vectors: Counter[str] = Counter()
        self.unmatched: Counter[str] = Counter()

    def add(self, names: Sequence[str], numel: int, shape: tuple[int, ...]) -> None:
        """Add one parameter to the part that its names match."""
        key = self.find(names)
        if key is None:
            self.unmatched[names[0] if names else ""] += numel
            return
        self.counts[key] += numel
        if len(shape) < 2:
            self.vectors[key] += numel

    def to_side(
        self,
        name: str,
        kind: Literal["census", "model"],
        absent: Mapping[str, Counter[str]] | None = None,
        *,
        matched_by: MatchedBy = MatchedBy.NAMES,
    ) -> Side:
        """Return the sums as a side with this name."""
        counts, vectors, unmatched = dict(self.counts), dict(self.vectors), dict(self.unmatched)
        return Side(name, kind, counts, vectors, unmatched, absent or {}, matched_by)


def settle_ties(side: Side, formula: Formula, family: Family) -> Side:
    """Move the count of a shared matrix to the part that the class ties it to: a file may have only its other name."""
    counts, vectors = dict(side.counts), dict(side.vectors)
    counted = {part.key for part in formula.parts}
    keys = {part.name: part.key for part in family.parts}
    for part in family.parts:
        target = keys.get(part.tied_to or "")
        if target and part.key not in counted and target not in counts and part.key in counts:
            counts[target] = counts.pop(part.key)
            vectors.pop(part.key, None)
    return replace(side, counts=counts, vectors=vectors)


def side_of_manifest(manifest: Manifest, find: Finder, name: str) -> Side:
    """Count PyTorch's parameters, each in the part that the first matching name decides."""
    sums = _PartSums(find)
    for parameter in manifest.parameters:
        sums.add(parameter.names, parameter.numel, parameter.shape)
    return sums.to_side(name, "census")


def side_of_ledger(ledger: Ledger, find: Finder) -> Side:
    """Count a file's parameters by the names in the file; copies do not count."""
    sums = _PartSums(find)
    for entry in ledger.entries:
        if entry.parameters:
            _add_entry(sums, entry, _own_names(entry))
    return replace(sums.to_side(str(ledger.model.path), "model"), errors=_errors(ledger))


def _errors(ledger: Ledger) -> tuple[str, ...]:
    """Return one message for each kind of error finding, which makes the ledger incomplete: missing or cut data."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for finding in ledger.findings:
        if finding.severity is Severity.ERROR:
            kinds[finding.id].append(finding.message)
    return tuple(
        f"{messages[0]}{f'; and {format_count(len(messages) - 1)} more' if len(messages) > 1 else ''} [{kind}]"
        for kind, messages in kinds.items()
    )


def _own_names(entry: Entry) -> tuple[str, ...]:
    """Return the exporter's names, then the tensor's name, then the module that reads it."""
    scope = (entry.scope,) if entry.has_scope else ()
    return (*entry.sources, float_name(entry.tensor.name), *scope)


def _add_entry(sums: _PartSums, entry: Entry, names: Sequence[str]) -> None:
    """Add one stored tensor; one that packs parameters of several parts belongs to no part."""
    keys = {key for source in entry.sources if (key := sums.find([source])) is not None}
    if len(keys) > 1:
        sums.unmatched[entry.tensor.name] += entry.parameters
        return
    sums.add(names, entry.parameters, entry.tensor.shape)


def side_of_reconciliation(result: Reconciliation, find: Finder) -> Side:
    """Count a file's parameters by PyTorch's names, and PyTorch's parameters without a tensor of their own."""
    sums = _PartSums(find)
    learned = {line.key: line.learned for line in result.entries}
    parameters = {parameter.name: parameter for parameter in result.manifest.parameters}
    stored: dict[Key, list[Parameter]] = defaultdict(list)
    for line in result.parameters:
        for key in line.entries if MEANINGS[line.line].has_tensor else ():
            stored[key].append(parameters[line.name])
    own: Counter[str] = Counter()
    for entry in result.ledger.entries:
        count, owners = (
            learned[entry.tensor.key],
            _select_owners(stored[entry.tensor.key], learned[entry.tensor.key]),
        )
        for parameter in owners if count else ():
            share = parameter.numel if len(owners) > 1 else count
            own[parameter.name] += share
            sums.add(parameter.names, share, parameter.shape)
        if count and not owners:
            sums.add(_own_names(entry), count, entry.tensor.shape)
    absent: dict[str, Counter[str]] = defaultdict(Counter)
    for line in result.parameters:
        parameter = parameters[line.name]
        if own[line.name] < parameter.numel:
            part = find(parameter.names) or line.name
            absent[_explaining_line(line).value][part] += parameter.numel - own[line.name]
    matched_by = MatchedBy.CONTENTS if result.balanced else MatchedBy.UNBALANCED
    if result.content == "none":
        matched_by = MatchedBy.SHAPES
    side = sums.to_side(str(result.ledger.model.path), "model", absent, matched_by=matched_by)
    return replace(side, errors=_errors(result.ledger))


def _explaining_line(line: ParameterLine) -> Line:
    """Return the line that explains why a parameter has fewer elements in the file."""
    return next((each for each in line.chain if MEANINGS[each].is_cut), line.line)


def _select_owners(stored: Sequence[Parameter], learned: int) -> Sequence[Parameter]:
    """Return the parameters in a tensor: all that are packed in it, else the one that others were multiplied into."""
    if sum(parameter.numel for parameter in stored) == learned:
        return stored
    return [parameter for parameter in stored if parameter.numel == learned][:1] or stored[:1]


def check_formula(
    formula: Formula, manifest: Manifest | None = None, model: Ledger | Reconciliation | None = None
) -> Checked:
    """Count the same parts on PyTorch's side and in a file.

    Args:
        formula: the formula to verify.
        manifest: PyTorch's side: a census of the meta device, an export's manifest, or the names of a checkpoint.
        model: a file's ledger, whose tensors have the names that the exporter left, or else are found by the shapes of
            the manifest; or its reconciliation, in which they have PyTorch's names.

    Raises:
        LedgerError: the bridge to `manifest` does not lead to the file, a defect of onnxledger.
    """
    find = part_finder(formula) if formula.key is None else family_finder(load_family(formula.key))
    census = (
        None
        if manifest is None
        else _settle(formula, side_of_manifest(manifest, find, _census_name(manifest)))
    )
    file = None
    if isinstance(model, Ledger):
        file = _settle(formula, side_of_ledger(model, find))
        if file.unmatched and manifest is not None:
            model = reconcile_ledger(model, manifest, "none")
    if isinstance(model, Reconciliation):
        file = _settle(formula, side_of_reconciliation(model, find))
    judged = file or census
    return Checked(formula, census, file, () if judged is None else find_reasons(formula, judged))


def _settle(formula: Formula, side: Side) -> Side:
    return side if formula.key is None else settle_ties(side, formula, load_family(formula.key))


def _census_name(manifest: Manifest) -> str:
    candidates: Iterable[str | None] = (manifest.source.get("class"), manifest.source.get("source"))
    return next((name for name in candidates if name), "PyTorch")
