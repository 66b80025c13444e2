"""Rules + a lake -> the report of `check` on all its models, whose ledgers are rebuilt as from saved reports."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from analyzer.account.group.patterns import Searcher
from analyzer.account.ledger import Finding, Ledger
from analyzer.budget.evaluate import check_models, find_content_shortfall, judge_findings
from analyzer.budget.record import BudgetReport, Rule, Verdict
from analyzer.documents.inspect import InspectDocument, Model, Totals
from analyzer.documents.saved import rebuild
from analyzer.errors import UsageError
from analyzer.fleet.lake import OF_RUN, Lake
from analyzer.fleet.record import TABLES
from analyzer.model.content import ContentMode

Row = dict[str, Any]


def read_ledgers(lake: Lake) -> Iterator[tuple[str, Ledger | str]]:
    """Yield each model of a lake with its ledger, or with the reason for none; one shard is in memory at a time."""
    for shard in lake.shards:
        for name, rows in _read_shard(lake, shard).items():
            yield name, _ledger(name, rows)


class EarlierLedgers:
    """Models of an earlier lake, found by name."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._shards = {
            name: shard
            for shard in lake.shards
            for name in lake.read("models", shard, ["model"])["model"].to_pylist()
        }
        self._load = functools.lru_cache(maxsize=2)(functools.partial(_read_shard, lake))

    def find(self, name: str) -> Ledger:
        """Return the ledger of a model.

        Raises:
            UsageError: the earlier lake does not have the model, or could not read it.
        """
        if name not in self._shards:
            raise UsageError(f"{name} is not in {self._lake.path}")
        found = _ledger(name, self._load(self._shards[name])[name])
        if isinstance(found, str):
            raise UsageError(f"in {self._lake.path}: {found}")
        return found


Rows = Mapping[str, list[Row]]


def _read_shard(lake: Lake, shard: str) -> dict[str, Rows]:
    """Return the rows of each model of a shard, by the name of their table."""
    found: dict[str, dict[str, list[Row]]] = {}
    for table in TABLES:  # models first
        for row in lake.read(table, shard).to_pylist():
            found.setdefault(row["model"], defaultdict(list))[table].append(row)
    return dict(found)


def _ledger(name: str, rows: Rows) -> Ledger | str:
    (row,) = rows["models"]
    if row["error"] is not None:
        return str(row["error"])
    try:
        return rebuild(name, _document(name, row, rows))
    except UsageError as error:
        if "got `null`" in str(error):  # `analyzer.fleet.reading` writes null for numbers over 64 bits
            return f"{name}: it has numbers above 2^63, which a lake cannot store; check the file itself"
        return str(error)


def _document(name: str, row: Row, rows: Rows) -> Row:
    """Return the document that `inspect` wrote of the model."""
    fields = {key: row[key] for key in InspectDocument.__struct_fields__ if key in row and key not in OF_RUN}
    model = {key: row[key] for key in Model.__struct_fields__ if key in row and key != "path"}
    model["opsets"] = dict(model["opsets"] or ())
    for end in ("inputs", "outputs"):
        model[end] = [{**value, "shape": _shape(value["shape"])} for value in model[end] or ()]
    files = [row for row in rows.get("files", ()) if row["bytes"] is not None]
    components = [{**each, "opsets": dict(each["opsets"] or ())} for each in row["components"] or ()]
    return {
        **fields,
        "schema_version": 1,
        "command": "inspect",
        "tool": {"name": "onnxledger", "version": "lake"},
        "model": {
            **model,
            "path": name,
            "files": [{"path": each["path"], "bytes": each["bytes"]} for each in files],
        },
        "totals": {key: row[key] for key in Totals.__struct_fields__},
        "components": components,
        **{table: rows.get(table, []) for table in ("tensors", "operators", "findings")},
    }


def _shape(shape: list[str | None] | None) -> list[int | str | None] | None:
    """Return sizes as numbers; a table holds them as text beside the names of axes."""
    if shape is None:
        return None
    return [int(size) if size is not None and size.lstrip("-").isdigit() else size for size in shape]


_NONE: Mapping[str, Searcher] = MappingProxyType({})


def check_lake(
    rules: Sequence[Rule],
    lake: Lake,
    *,
    earlier: Lake | None = None,
    read: Callable[[str], Ledger],
    groups: Mapping[str, Searcher] = _NONE,
    is_any_baseline: bool = False,
    strict: bool = False,
    ignore: Sequence[str] = (),
    content: ContentMode | None = None,
    stamp: str | None = None,
) -> BudgetReport:
    """Apply every rule to every model of a lake, as `check_models` does for models in memory.

    Args:
        rules: the lines of the budget.
        lake: its models; for an unreadable model no rule is answered.
        earlier: a lake that is the baseline of relative limits without one: each model is compared with the one of the
            same name.
        read: audits a model, or loads a saved report, that a rule names.
        groups: the project's own groups, by name.
        is_any_baseline: whether another model may be a baseline too.
        strict: whether findings fail too.
        ignore: ids of findings that do not fail.
        content: how far contents must be read; for a model whose contents the survey read less, no rule is answered.
        stamp: time of the report, if it is to state one.

    Raises:
        UsageError: a rule names an unknown metric, no survey has finished the lake, or it cannot be read.
    """
    if not lake.is_complete:
        raise UsageError(
            f"{lake.path}: its survey has not finished, so models may be missing; run the survey to its end"
        )
    before = None if earlier is None else EarlierLedgers(earlier)
    by_rule: dict[int, list[Verdict]] = defaultdict(list)
    strictly: list[Verdict] = []
    findings: dict[str, tuple[Finding, ...]] = {}
    lost: dict[str, str] = {}
    for name, found in read_ledgers(lake):
        if isinstance(found, str):
            lost[name] = found.removeprefix(f"{name}: ")
            continue
        if less := find_content_shortfall(found, content):
            lost[name] = f"{less}; survey again with --content {content}"
            continue
        key = None if earlier is None else f"{earlier.path}: {name}"

        def find_ledger(requested: str, name: str = name, key: str | None = key) -> Ledger:
            return before.find(name) if before is not None and requested == key else read(requested)

        report = check_models(
            rules,
            {name: found},
            baseline=key,
            read=find_ledger,
            groups=groups,
            is_any_baseline=is_any_baseline,
        )
        for verdict in report.verdicts:
            if verdict.model is not None:
                by_rule[id(verdict.rule)].append(verdict)
        findings[name] = found.findings
        if strict:
            strictly.append(judge_findings(name, found, ignore))
    rest = check_models(rules, {}, lost, read=read)
    verdicts = [each for rule in rules for each in _joined(by_rule[id(rule)], rule, rest)]
    return BudgetReport(
        models=(*findings, *lost),
        verdicts=(*verdicts, *strictly),
        findings=findings,
        unreadable=lost,
        stamp=stamp,
    )


def _joined(own: list[Verdict], rule: Rule, rest: BudgetReport) -> list[Verdict]:
    """Return a rule's verdicts on the models that were read, then on the others, or once the reason for no model."""
    others = [each for each in rest.verdicts if each.rule is rule]
    return [*own, *(each for each in others if each.model is not None or not own)]
