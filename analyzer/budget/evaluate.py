"""Rules + ledgers, some with baselines -> a verdict of each rule for each model it applies to: `check`'s report."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType

from analyzer.account.group.patterns import Searcher
from analyzer.account.ledger import Entry, Evidence, Ledger, Role
from analyzer.budget.amounts import NAMES
from analyzer.budget.measuring import CONTENT_MATTERS, METRICS, Metric
from analyzer.budget.outcomes import (
    Outcome,
    compare_with_limit,
    describe_failure,
    describe_success,
    list_contributors,
)
from analyzer.budget.record import (
    Among,
    AtLeast,
    AtMost,
    BudgetReport,
    Contributor,
    Over,
    Rule,
    Skipped,
    Status,
    Unit,
    Verdict,
)
from analyzer.budget.selecting import Infinite, Selection, Unknown, Whole, select
from analyzer.errors import OnnxLedgerError, UsageError
from analyzer.model.content import ContentMode
from analyzer.records import replace
from analyzer.text import format_count, format_many, printable_name


def matches(path: str, pattern: str | None) -> bool:
    """Whether a glob matches a path: part by part from the right, as `pathlib` does; `**` is any number of folders.

    A pattern that begins with a slash, or with `**`, matches the whole path; None matches every path. Matching is case
    sensitive on every platform.

    >>> matches("./models/bert.onnx", "*.onnx"), matches("models/bert.onnx", "models/*.onnx")
    (True, True)
    >>> matches("out/a/b/model.onnx", "out/**/*.onnx"), matches("out/a/model.onnx", "out/*.onnx")
    (True, False)
    """
    if pattern is None:
        return True
    parts, pattern_parts = _split(path), _split(pattern)
    if not pattern_parts:
        return False
    if pattern_parts[0] != "/":
        pattern_parts = ["**", *pattern_parts]
    reached = {0}  # numbers of path parts that the pattern so far can match
    for part in pattern_parts:
        if part == "**":
            reached = set(range(min(reached), len(parts) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(parts) and fnmatch.fnmatchcase(parts[at], part)}
        if not reached:
            return False
    return len(parts) in reached


def _split(path: str) -> list[str]:
    return list(PurePosixPath(path.replace("\\", "/")).parts)


STEM = "{stem}"
"""Placeholder in a baseline's name for the checked model's name, without its folder and `.onnx` or `.json`."""


def name_baseline(limit: Over, default: str | None, path: str) -> str | None:
    """Return the name of the limit's own baseline, or of the default, for one model; None where there is neither.

    >>> name_baseline(Over((), "saved/{stem}.json"), None, "models/bert.onnx")
    'saved/bert.json'
    """
    name = default if limit.baseline is None else limit.baseline
    if name is None or STEM not in name:
        return name
    last = PurePosixPath(path.partition("?")[0].replace("\\", "/")).name
    return name.replace(STEM, last.removesuffix(".json").removesuffix(".onnx"))


class Baselines:
    """Baselines of relative limits, each read once."""

    def __init__(
        self, default: str | None, read: Callable[[str], Ledger], *, is_any_allowed: bool = False
    ) -> None:
        self._default, self._read, self._is_any_allowed = default, read, is_any_allowed
        self._known: dict[str, Whole | Unknown] = {}

    def name(self, limit: Over, path: str) -> str | None:
        """Return the baseline's name, as `name_baseline` does."""
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
        """Select the parts of the baseline that correspond to a rule's parts of the model."""
        name = self.name(limit, path)
        whole = self._load(name)
        if isinstance(whole, Unknown):
            return whole
        ledger = whole.ledger
        differs = "" if self._is_any_allowed else _find_difference(model, path, ledger)
        if differs:
            advice = "give one of this model, or accept it with --baseline-any"
            return Unknown(f"the baseline {name} is of another model, {differs}; {advice}")
        if metric.name in CONTENT_MATTERS and (ledger.content == "none") != (model.content == "none"):
            which = "the baseline" if ledger.content == "none" else "the model"
            return Unknown(f"contents of {which} were not read; --content sampled makes both comparable")
        found = select(whole, group, groups)
        if isinstance(found, Unknown):
            return Unknown(f"the baseline {name} does not have it: {found.reason}")
        return found

    def _load(self, name: str | None) -> Whole | Unknown:
        if name is None:
            return Unknown(
                "a growth needs a baseline: write 'over FILE' in the limit, or give --baseline FILE"
            )
        if name not in self._known:
            try:
                self._known[name] = Whole(self._read(name))
            except OnnxLedgerError as error:
                self._known[name] = Unknown(f"the baseline cannot be read: {error}")
        return self._known[name]


def _find_difference(model: Ledger, path: str, baseline: Ledger) -> str:
    """Return a reason why two ledgers are not of the same model; "" where they are, or may be.

    Versions of a model keep the PyTorch modules of their parameters: adding layers, widening, quantization, fusion or
    renaming the file leaves most of them. The sides must share half of the modules of the side with more, so that a
    model does not pass as a part of a larger one. Parameters that an optimizer left without a module may be those of
    modules that only the other side has. Where one side has no modules, half of the tensor names, or the graph's inputs
    and outputs, or the name of the file must be the same.
    """
    modules, baseline_modules = _list_modules(model), _list_modules(baseline)
    common = len(modules & baseline_modules)
    most = max(len(modules), len(baseline_modules))
    if modules and baseline_modules:
        fewer, side = (
            (len(modules), model)
            if len(modules) < len(baseline_modules)
            else (len(baseline_modules), baseline)
        )
        is_part = 2 * common >= fewer and 2 * (common + _count_without_module(side)) >= most
        if 2 * common >= most or is_part or _agree_without_wrapper(modules, baseline_modules):
            return ""
        baseline_name = printable_name(str(baseline.model.path))
        return f"{baseline_name}: {format_count(common)} of {format_count(most)} modules with parameters are in both"
    tensors, baseline_tensors = _list_tensors(model), _list_tensors(baseline)
    if tensors and 2 * len(tensors & baseline_tensors) >= max(len(tensors), len(baseline_tensors)):
        return ""
    files = {_name_file(path), _name_file(str(model.model.path))}
    ends = _list_ends(model)
    if (ends is not None and ends == _list_ends(baseline)) or _name_file(str(baseline.model.path)) in files:
        return ""
    return f"{printable_name(str(baseline.model.path))}, which has no name in common with it"


def _list_modules(ledger: Ledger) -> frozenset[str]:
    """Return the PyTorch modules of parameters: exporters rename transposed tensors, but keep the names of nodes."""
    learned = (entry for entry in ledger.entries if entry.role is Role.PARAMETER)
    return frozenset(entry.scope for entry in learned if entry.scope and not _lacks_module(entry))


def _count_without_module(ledger: Ledger) -> int:
    """Count the parameters without a known module."""
    return sum(entry.role is Role.PARAMETER and _lacks_module(entry) for entry in ledger.entries)


def _lacks_module(entry: Entry) -> bool:
    """Whether a tensor has no module, or only the one that its surrounding nodes have in common."""
    return entry.scoped_by.partition(":")[0] in (Evidence.NONE, Evidence.STRUCTURE)


def _list_tensors(ledger: Ledger) -> frozenset[str]:
    return frozenset(entry.tensor.key[1] for entry in ledger.entries if entry.role is Role.PARAMETER)


def _list_ends(ledger: Ledger) -> tuple[tuple[str, ...], ...] | None:
    """Return inputs and outputs of the main graphs; None for a saved report, which has no graphs."""
    roots = {part.path for part in ledger.model.parts}
    graphs = [graph for graph in ledger.model.graphs if graph.path in roots]
    return tuple(ends for graph in graphs for ends in (graph.inputs, graph.outputs)) or None


_FEW = 4
"""Minimum number of names that are compared without their common prefix: fewer prove nothing."""


def _agree_without_wrapper(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """Whether half of the names agree without the module around one side, as in an export of `Wrapper(model)`."""
    if min(len(ours), len(theirs)) < _FEW:
        return False
    inner, others = ({name[_common(names) :] for name in names} for names in (ours, theirs))
    return 2 * len(inner & others) >= max(len(inner), len(others))


def _common(names: frozenset[str]) -> int:
    """Return the length, in characters, of the prefix of modules that enclose everything."""
    first, last = min(names), max(names)  # all names between them share their common prefix
    alike = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first.rfind(".", 0, alike) + 1


def _name_file(path: str) -> str:
    return name_baseline(Over((), STEM), None, path) or ""


_NO_GROUPS: Mapping[str, Searcher] = MappingProxyType({})


def check_budget(
    rules: Iterable[Rule],
    models: Mapping[str, Ledger],
    *,
    baseline: str | None = None,
    read: Callable[[str], Ledger],
    groups: Mapping[str, Searcher] = _NO_GROUPS,
    is_any_baseline: bool = False,
) -> tuple[Verdict, ...]:
    """Evaluate every rule on every model that its glob matches: rules in their order, then models in theirs.

    A rule that should be evaluated and cannot be is SKIP with `not-evaluated` and a reason; it never passes.

    Args:
        rules: the lines of the budget.
        models: ledgers by the path as the user wrote it.
        baseline: saved report or model for relative limits that name none.
        read: function that audits a model, or loads a saved report, by its name; called once for each name.
        groups: the project's own groups, by name.
        is_any_baseline: whether a baseline of another model is accepted.

    Raises:
        UsageError: a rule names a metric that does not exist.
    """
    judge = _Evaluator(Baselines(baseline, read, is_any_allowed=is_any_baseline), groups)
    return tuple(verdict for rule in rules for verdict in judge.evaluate(rule, models))


def applies_to(rule: Rule, path: str) -> bool:
    """Whether a rule's glob matches a model's path, as the user wrote it."""
    return matches(path, rule.match)


class _Evaluator:
    """Evaluator of all rules, with the baselines and groups that they share."""

    def __init__(self, baselines: Baselines, groups: Mapping[str, Searcher]) -> None:
        self._baselines, self._groups = baselines, groups
        self._wholes: dict[str, Whole] = {}

    def evaluate(self, rule: Rule, models: Mapping[str, Ledger]) -> Iterable[Verdict]:
        metric = METRICS.get(rule.metric)
        if metric is None:
            raise UsageError(
                f"rule {rule.name!r}: {rule.metric!r} is not a metric; there are {', '.join(METRICS)}"
            )
        if rule.overridden_by:
            reason = f"{rule.overridden_by} overrides it"
            return [skip(rule, metric.unit, None, Skipped.OVERRIDDEN, reason)]
        if not rule.is_enabled:
            return [skip(rule, metric.unit, None, Skipped.DISABLED, "disabled")]
        applicable = {path: ledger for path, ledger in models.items() if applies_to(rule, path)}
        if not applicable:
            what = "no model is checked"
            reason = what if rule.match is None else f"no checked model matches {rule.match!r}"
            return [skip(rule, metric.unit, None, Skipped.NOT_MATCHED, reason)]
        return [self._evaluate_model(rule, metric, path, ledger) for path, ledger in applicable.items()]

    def _evaluate_model(self, rule: Rule, metric: Metric, path: str, ledger: Ledger) -> Verdict:
        misfit = _find_misfit(rule, metric)
        if path not in self._wholes:
            self._wholes[path] = Whole(ledger)
        parts = Unknown(misfit) if misfit else select(self._wholes[path], rule.group, self._groups)
        if isinstance(parts, Unknown):
            return skip(rule, metric.unit, path, Skipped.NOT_EVALUATED, parts.reason)
        found = self._compare_parts(rule, metric, path, ledger, parts)
        if isinstance(found, Unknown):
            return skip(rule, metric.unit, path, Skipped.NOT_EVALUATED, found.reason)
        failed = [(part, one) for part, one in found if isinstance(one, Outcome) and one.has_failed]
        if failed:
            return self._fail(rule, metric, path, failed, len(found))
        infinite = [one for _, one in found if isinstance(one, Infinite)]
        if infinite and isinstance(rule.limit, AtMost | Over):
            return replace(skip(rule, metric.unit, path, None, infinite[0].reason), status=Status.FAIL)
        unknown = [(part, one.reason) for part, one in found if isinstance(one, Unknown)]
        if unknown:
            part, reason = unknown[0]
            others = f" (and {format_many(len(unknown) - 1, 'group')} more)" if len(unknown) > 1 else ""
            text = f"{part.name}: {reason}" if part.kind != "all" else reason
            return skip(rule, metric.unit, path, Skipped.NOT_EVALUATED, text + others)
        known = [(part, one) for part, one in found if isinstance(one, Outcome)]
        part, worst = max(known, key=lambda pair: pair[1].excess)
        return _verdict(rule, metric, path, worst, Status.PASS, describe_success(rule, metric, part, worst))

    def _compare_parts(
        self, rule: Rule, metric: Metric, path: str, ledger: Ledger, parts: Sequence[Selection]
    ) -> list[tuple[Selection, Outcome | Unknown]] | Unknown:
        """Compare each part of the model with the limit.

        A part that only the model has is Unknown: without a baseline number, there is no growth. A part that only the
        baseline has is not evaluated where a glob selects it: nothing is left of it that could exceed the limit.
        """
        if not isinstance(rule.limit, Over):
            return [(part, compare_with_limit(metric, rule.limit, part)) for part in parts]
        baseline_parts = self._baselines.select(rule.limit, rule.group, metric, path, ledger, self._groups)
        if isinstance(baseline_parts, Unknown):
            return baseline_parts
        known = {(part.kind, part.name): part for part in baseline_parts}
        unknown_growth = Unknown(
            f"the baseline {self._baselines.name(rule.limit, path)} does not have it, so its growth is unknown"
        )
        found: list[tuple[Selection, Outcome | Unknown]] = []
        for part in parts:
            other = known.get((part.kind, part.name))
            found.append(
                (
                    part,
                    unknown_growth if other is None else compare_with_limit(metric, rule.limit, part, other),
                )
            )
        return found

    def _fail(
        self,
        rule: Rule,
        metric: Metric,
        path: str,
        failed: Sequence[tuple[Selection, Outcome]],
        evaluated: int,
    ) -> Verdict:
        part, worst = max(failed, key=lambda pair: pair[1].excess)
        baseline_name = self._baselines.name(rule.limit, path) if isinstance(rule.limit, Over) else None
        message = describe_failure(rule, metric, part, worst, baseline_name, (len(failed), evaluated))
        contributors = list_contributors(metric, rule.limit, failed, evaluated)
        return _verdict(rule, metric, path, worst, Status.FAIL, message, contributors)


def _find_misfit(rule: Rule, metric: Metric) -> str:
    """Return a reason why a rule makes no sense; "" where it does."""
    if rule.group is not None and not metric.has_groups:
        return f"{metric.name} is a number of the whole model; leave the group out"
    if isinstance(rule.limit, Among) != (metric.unit in NAMES):
        wanted = "a list of allowed names" if metric.unit in NAMES else "a number"
        return f"the limit of {metric.name} must be {wanted}"
    if isinstance(rule.limit, Over) and metric.unit is Unit.VERSION:
        return "a version does not grow; limit it by a number"
    return ""


def skip(rule: Rule, unit: Unit, path: str | None, skipped: Skipped | None, reason: str) -> Verdict:
    """Return the verdict of a rule that was not evaluated, with the limit where it needs no baseline."""
    limit: int | tuple[str, ...] | None = None
    match rule.limit:
        case AtMost(value) | AtLeast(value):
            limit = value
        case Among(names):
            limit = tuple(sorted(names))
    return Verdict(rule, path, Status.SKIP, unit, limit=limit, skipped=skipped, message=reason)


def _verdict(
    rule: Rule,
    metric: Metric,
    path: str,
    outcome: Outcome,
    status: Status,
    message: str,
    contributors: tuple[Contributor, ...] = (),
) -> Verdict:
    return Verdict(
        rule,
        path,
        status,
        metric.unit,
        observed=outcome.observed,
        least=None if outcome.range is None else outcome.range.least,
        most=None if outcome.range is None else outcome.range.most,
        limit=outcome.limit,
        baseline=outcome.baseline,
        exceeded_by=outcome.excess if status is Status.FAIL else None,
        contributors=contributors,
        message=message,
    )


STRICT = Rule("strict", "findings", AtMost(0), origin="--strict")
"""Rule of `--strict`: every finding fails, unless it is ignored."""

_NONE: Mapping[str, Searcher] = MappingProxyType({})


def check_models(
    rules: Sequence[Rule],
    models: Mapping[str, Ledger],
    unreadable: Mapping[str, str] = MappingProxyType({}),
    *,
    baseline: str | None = None,
    read: Callable[[str], Ledger],
    groups: Mapping[str, Searcher] = _NONE,
    is_any_baseline: bool = False,
    stamp: str | None = None,
) -> BudgetReport:
    """Evaluate every rule on every model that it applies to; rules on unreadable models are not evaluated.

    Args:
        rules: as `check_budget` takes them.
        models: ledgers, by the path as the user wrote it.
        unreadable: reason why a model could not be read, by its path.
        baseline, read, groups, is_any_baseline: as `check_budget` takes them.
        stamp: time of the report, if it is to be shown.

    Raises:
        UsageError: as `check_budget` does.
    """
    verdicts = check_budget(
        rules, models, baseline=baseline, read=read, groups=groups, is_any_baseline=is_any_baseline
    )
    verdicts_by_rule = {id(rule): [each for each in verdicts if each.rule is rule] for rule in rules}
    joined: list[Verdict] = []
    for rule in rules:
        unreadable_verdicts = [
            skip(rule, METRICS[rule.metric].unit, path, Skipped.NOT_EVALUATED, "the model cannot be read")
            for path in unreadable
            if rule.is_asked and applies_to(rule, path)
        ]
        kept = [
            each
            for each in verdicts_by_rule[id(rule)]
            if not (unreadable_verdicts and each.skipped is Skipped.NOT_MATCHED)
        ]
        joined += [*kept, *unreadable_verdicts]
    return BudgetReport(
        models=(*models, *unreadable),
        verdicts=tuple(joined),
        findings={path: ledger.findings for path, ledger in models.items()},
        unreadable=dict(unreadable),
        stamp=stamp,
    )


def find_content_shortfall(ledger: Ledger, content: ContentMode | None) -> str:
    """Return a reason why a ledger has examined tensor contents less than requested; "" where it has not.

    Args:
        ledger: the ledger of a saved report or a lake.
        content: the requested mode, if there is one.
    """
    ranks = ("none", "sampled", "full")
    if content is None or ranks.index(ledger.content) >= ranks.index(content):
        return ""
    return f"contents were read with --content {ledger.content}, less than the {content} asked for"


def judge_findings(path: str, ledger: Ledger, ignore: Sequence[str]) -> Verdict:
    """Return the verdict of `--strict` for one model.

    Args:
        path: the model, as the user wrote it.
        ledger: the ledger of the model.
        ignore: ids of findings that do not count.
    """
    counts = Counter(finding.id for finding in ledger.findings if finding.id not in ignore)
    number = counts.total()
    if not number and ledger.content == "none":
        reason = "contents were not read, so there may be findings; add --content sampled"
        return Verdict(
            STRICT, path, Status.SKIP, Unit.FINDINGS, limit=0, skipped=Skipped.NOT_EVALUATED, message=reason
        )
    listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return Verdict(
        STRICT,
        path,
        Status.FAIL if number else Status.PASS,
        Unit.FINDINGS,
        observed=number,
        limit=0,
        exceeded_by=number or None,
        contributors=tuple(Contributor(name, count) for name, count in listed),
        message="any finding fails under --strict; fix it, or name it with --ignore" if number else "",
    )
