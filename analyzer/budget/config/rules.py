"""A config's tables on groups, budgets and baselines -> patterns and rules; every mistake is recorded with its line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.account.group.patterns import MATCHES, AnyOf, Searcher, check_name, compile_pattern
from analyzer.account.ledger import Match
from analyzer.budget.record import Among, AtLeast, Limit, Over, Rule, Unit
from analyzer.model.ranges import is_url
from analyzer.records import replace

if TYPE_CHECKING:
    from analyzer.budget.config import toml_lines
    from analyzer.budget.measuring import Metric


_MAX_SHOWN = 100
"""Maximum number of mistakes listed, and maximum length of a name, in characters."""

_MAX_LISTED = 400
"""Maximum length of a list of valid names, in characters."""


class Page:
    """A config while it is read: mistakes are recorded, and reported together at the end."""

    def __init__(self, path: Path, text: str, root: tuple[str, ...]) -> None:
        self.path, self.text, self.root = path, text, root
        self.needs_baseline = False
        """Whether a limit on growth is a mistake where it names no baseline."""
        self._lines: Mapping[toml_lines.Path, int] | None = None
        self._mistakes: list[tuple[toml_lines.Path, str]] = []

    def refuse(self, where: toml_lines.Path, message: str) -> None:
        """Record a mistake at the path `where` inside the section."""
        self._mistakes.append((where, message))

    def place(self, where: toml_lines.Path) -> str:
        """Return the file and the line of the value at the path `where`."""
        return f"{self.path}:{self._line(where)}"

    def list_mistakes(self) -> list[str]:
        """Return the mistakes in the order of their lines; empty where there are none."""
        numbered = sorted((self._line(where), message) for where, message in self._mistakes)
        lines = [f"{self.path}:{line}: {message}" for line, message in numbered[:_MAX_SHOWN]]
        omitted = len(numbered) - len(lines)
        return [*lines, f"{self.path}: and {omitted:,} more mistakes"] if omitted else lines

    def _line(self, where: toml_lines.Path) -> int:
        if self._lines is None:
            from analyzer.budget.config import toml_lines  # only a rule's place, or a mistake, needs it

            self._lines = toml_lines.find_lines(self.text)
        path: toml_lines.Path = (*self.root, *where)
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)


def nearest(word: str, words: Iterable[str]) -> str:
    """Suggest the closest valid word.

    >>> nearest("limits", ("limit", "match")), nearest("x", ("limit", "match"))
    ("did you mean 'limit'?", 'there are limit, match')
    """
    import difflib  # only a mistake needs it

    near = difflib.get_close_matches(word[:_MAX_SHOWN], words := tuple(words), 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(words)}"[:_MAX_LISTED]


def short(name: str) -> str:
    """Return a name in quotes, cut off where it is long."""
    return repr(name if len(name) <= _MAX_SHOWN else name[:_MAX_SHOWN] + "...")


def kind_of(value: object) -> str:
    """Return the name of a value's type in TOML's terms."""
    kinds = {dict: "a table", list: "an array", str: "a string", bool: "a boolean", int: "a number"}
    return kinds.get(type(value), "a number" if isinstance(value, float) else "a date or a time")


def read_groups(value: object, page: Page) -> dict[str, Searcher]:
    """Read the groups, in the order of the file."""
    groups: dict[str, Searcher] = {}
    if not isinstance(value, dict):
        page.refuse(("groups",), f"groups: must be a table of NAME = 'REGEX', not {kind_of(value)}")
        return groups
    for name, expressions in value.items():
        try:
            check_name(name)
        except ValueError as error:
            page.refuse(("groups", name), f"groups, {short(name)}: {error}")
        is_list = isinstance(expressions, list)
        patterns = [
            _read_pattern(expression, name, ("groups", name, *([i] if is_list else [])), page)
            for i, expression in enumerate(expressions if is_list else [expressions])
        ]
        if not patterns:
            page.refuse(("groups", name), f"groups, {short(name)}: has no pattern")
        groups[name] = AnyOf(tuple(pattern for pattern in patterns if pattern is not None))
    return groups


def _read_pattern(
    expression: object, name: str, where: toml_lines.Path, page: Page
) -> re.Pattern[str] | None:
    if not isinstance(expression, str):
        page.refuse(
            where, f"groups, {short(name)}: must be a regex or a list of them, not {kind_of(expression)}"
        )
        return None
    try:
        return compile_pattern(expression)
    except ValueError as error:
        page.refuse(where, f"groups, {short(name)}: {error}")
        return None


def read_match(value: object, page: Page) -> Match | None:
    """Read the `match` key: an entry that several groups match is in all of them, or in the first."""
    for match in MATCHES:
        if value == match:
            return match
    hint = nearest(value, MATCHES) if isinstance(value, str) else f"not {kind_of(value)}"
    page.refuse(("match",), f"match: must be 'all' or 'first'; {hint}")
    return None


KEYS: Mapping[str, str] = {
    "name": "name of the rule, unique in the file",
    "metric": "quantity that the rule limits",
    "limit": "allowed values of the metric",
    "match": "glob over the paths of models (default: every model)",
    "group": "part of the model: a group, a scope, a block, or a glob over these (default: the whole model)",
    "message": "text to print when the rule fails",
    "enabled": "`false` lists the rule as SKIP",
}
"""Keys of a rule, with their meanings."""

FLAWS = frozenset(
    {
        "duplicates",
        "external-outside",
        "findings",
        "metadata-bytes",
        "opaque",
        "orphaned-bytes",
        "unattributed",
        "unused-bytes",
        "unused-tensors",
    }
)
"""Metrics that count flaws, for which a minimum makes no sense."""

_REQUIRED = ("name", "metric", "limit")


def read_baseline(value: object, page: Page) -> str | None:
    """Read the baseline of all rules, as a path from the working directory."""
    if not isinstance(value, str) or not value.strip():
        problem = "not an empty name" if isinstance(value, str) else f"not {kind_of(value)}"
        page.refuse(("baseline",), f"baseline: must be a saved report or a model, as 'main.json'; {problem}")
        return None
    return _resolve_path(value, page)


def read_baseline_any(value: object, page: Page) -> bool:
    """Read whether a baseline of another model is accepted."""
    if not isinstance(value, bool):
        page.refuse(
            ("baseline-any",), f"baseline-any: must be true or false, without quotes, not {kind_of(value)}"
        )
    return value is True


def _resolve_path(name: str, page: Page) -> str:
    """Resolve a file's name relative to the config's folder."""
    return name if is_url(name) else str(page.path.parent / name)


def read_rules(value: object, page: Page) -> tuple[Rule, ...]:
    """Read the rules, in the order of the file, without those that have mistakes."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        problem = (
            "write [[rules]], with two brackets, above each" if isinstance(value, dict) else kind_of(value)
        )
        page.refuse(("rules",), f"rules: must be tables, each below a [[rules]] of its own; {problem}")
        return ()
    found = [_Reader(number, table, page).read() for number, table in enumerate(value)]
    _refuse_duplicates(value, page)
    return tuple(rule for rule in found if rule is not None)


def _refuse_duplicates(tables: list[Any], page: Page) -> None:
    seen: dict[str, int] = {}
    for number, table in enumerate(tables):
        name = table.get("name")
        if not isinstance(name, str):
            continue
        if name in seen:
            first = page.place(("rules", seen[name], "name")).rpartition(":")[2]
            page.refuse(
                ("rules", number, "name"),
                f"rule {short(name)}: line {first} has the same name; give it another",
            )
        seen.setdefault(name, number)


class _Reader:
    """Reader of one rule."""

    def __init__(self, number: int, table: Mapping[str, object], page: Page) -> None:
        self._number, self._table, self._page = number, table, page
        name = table.get("name")
        is_named = isinstance(name, str) and name.strip()
        self._title = f"rule {short(str(name))}" if is_named else f"rule {number + 1}"
        self._is_valid = True

    def read(self) -> Rule | None:
        """Return the rule; None where it has mistakes."""
        for key in self._table:
            if key not in KEYS:
                self._refuse_key(key)
        missing = [key for key in _REQUIRED if key not in self._table]
        if missing:
            missing_keys = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
            self._refuse(None, f"has no {missing_keys}; a rule has name, metric and limit")
        name, message = self._read_text("name"), self._read_text("message", may_be_empty=True)
        match, group = self._read_text("match"), self._read_text("group")
        enabled = self._table.get("enabled", True)
        if not isinstance(enabled, bool):
            self._refuse("enabled", f"enabled: must be true or false, without quotes, not {kind_of(enabled)}")
        metric = self._read_metric()
        limit = None if metric is None or "limit" not in self._table else self._read_limit(metric)
        if metric is not None and group is not None and not metric.has_groups:
            self._refuse("group", f"group: {metric.name} is one number of the whole model; leave group out")
        if not self._is_valid or name is None or metric is None or limit is None:
            return None
        origin = self._page.place(("rules", self._number))
        return Rule(name, metric.name, limit, match, group, message or "", origin, bool(enabled))

    def _refuse_key(self, key: str) -> None:
        from analyzer.budget.flags import METRICS_OF

        metric = METRICS_OF.get(f"--{key}")
        flag = (
            f"{short(key)} is a flag; the key of a rule is metric = {short(metric or '')}, beside its limit"
        )
        self._refuse(key, flag if metric else f"{short(key)} is not a key of a rule; {nearest(key, KEYS)}")

    def _read_text(self, key: str, *, may_be_empty: bool = False) -> str | None:
        value = self._table.get(key)
        if key not in self._table:
            return None
        if not isinstance(value, str):
            self._refuse(key, f"{key}: must be a string, not {kind_of(value)}")
            return None
        if not may_be_empty and not value.strip():
            advice = "a rule needs one" if key in _REQUIRED else "leave it out to include everything"
            self._refuse(key, f"{key}: is empty; {advice}")
            return None
        return value

    def _read_metric(self) -> Metric | None:
        from analyzer.budget.measuring import METRICS

        name = self._read_text("metric")
        if name is None:
            return None
        if name not in METRICS:
            self._refuse("metric", f"{short(name)} is not a metric; {nearest(name, METRICS)}")
        return METRICS.get(name)

    def _read_limit(self, metric: Metric) -> Limit | None:
        value = self._table["limit"]
        if metric.kind == "among":
            return self._read_names(value, metric)
        from analyzer.budget.amounts import parse_limit

        if isinstance(value, list):
            self._refuse(
                "limit", f"limit: {metric.name} is a number; an array is only for metrics that list names"
            )
            return None
        if not isinstance(value, str | int) or isinstance(value, bool):
            form = "a whole number or a string, as 110_000_000 or '1.5G'"
            self._refuse("limit", f"limit: must be {form}, not {_describe_value(value)}")
            return None
        try:
            limit = parse_limit(value, metric.unit, least=metric.kind == "least")
        except ValueError as error:
            self._refuse("limit", f"limit: {error}")
            return None
        return self._check_limit(limit, metric)

    def _check_limit(self, limit: Limit, metric: Metric) -> Limit:
        if isinstance(limit, AtLeast) and metric.name in FLAWS:
            self._refuse("limit", f"limit: {metric.name} is best at 0, so it takes no minimum; write at most")
        if not isinstance(limit, Over):
            return limit
        if limit.baseline is not None:
            return replace(limit, baseline=_resolve_path(limit.baseline, self._page))
        if self._page.needs_baseline:
            advice = (
                "end it in 'over main.json', or give baseline = 'main.json' above the rules, or --baseline"
            )
            self._refuse("limit", f"limit: a growth needs a baseline: {advice}")
        return limit

    def _read_names(self, value: object, metric: Metric) -> Limit | None:
        from analyzer.budget.amounts import parse_names

        if not isinstance(value, list) or not value:
            problem = "an empty array allows nothing" if value == [] else f"not {_describe_value(value)}"
            self._refuse(
                "limit", f"limit: must be an array of {metric.unit}, as {EXAMPLES[metric.unit]}; {problem}"
            )
            return None
        names: set[str] = set()
        for position, name in enumerate(value):
            try:
                names |= parse_names([name], metric.unit).names
            except ValueError as error:
                self._refuse("limit", f"limit: {error}", position)
        return Among(frozenset(names))

    def _refuse(self, key: str | None, message: str, *position: int) -> None:
        self._is_valid = False
        place: toml_lines.Path = () if key is None else (key, *position)
        self._page.refuse(("rules", self._number, *place), f"{self._title}: {message}")


EXAMPLES: Mapping[Unit, str] = {
    Unit.OPERATORS: "['MatMul', 'com.microsoft:Gelu']",
    Unit.DOMAINS: "['ai.onnx', 'com.microsoft']",
    Unit.DTYPES: "['FLOAT16', 'INT64']",
}
"""Example limits of names, in TOML syntax."""


def _describe_value(value: object) -> str:
    return f"{value!r}" if isinstance(value, float | bool) else kind_of(value)
