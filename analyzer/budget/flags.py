"""The flags of `check`, and files that list operators -> rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from analyzer.budget.amounts import parse_limit, parse_names
from analyzer.budget.measuring import METRICS
from analyzer.budget.record import Among, AtLeast, AtMost, Limit, Rule, Unit
from analyzer.errors import ConfigError, UsageError
from analyzer.records import replace
from analyzer.text import shown

METRICS_OF: Mapping[str, str] = {
    "--max-parameters": "parameters",
    "--max-bytes": "bytes",
    "--max-metadata-bytes": "metadata-bytes",
    "--max-nodes": "nodes",
    "--max-opaque": "opaque",
    "--max-calls": "calls",
    "--min-opset": "opset",
    "--allowed-ops": "ops",
    "--allowed-domains": "domains",
    "--allowed-dtypes": "dtypes",
    "--no-external-outside": "external-outside",
    "--no-unattributed": "unattributed",
    "--no-duplicates": "duplicates",
    "--no-unused": "unused-tensors",
}
"""Metric that each flag limits."""


def make_rules(flags: Mapping[str, str | Path | bool]) -> tuple[Rule, ...]:
    """Make a rule for each flag, named after the flag without its dashes.

    >>> make_rules({"--max-nodes": "1k"})[0].limit
    AtMost(value=1000)

    Args:
        flags: values by the flag's name with its dashes: a limit, names separated by commas, a file, or True.

    Raises:
        UsageError: some values are no limits; the error lists all of them.
        ConfigError: a file of operators cannot be used; the error lists all of its mistakes.
    """
    rules: list[Rule] = []
    mistakes: list[str] = []
    for flag, value in flags.items():
        metric = METRICS_OF[flag]
        try:
            limit = _read_limit(flag, value)
        except ValueError as error:
            mistakes.append(f"{flag} {value}: {error}")
            continue
        rules.append(Rule(flag.removeprefix("--"), metric, limit, origin=flag))
    if mistakes:
        raise UsageError("; ".join(mistakes))
    return tuple(rules)


def override(rules: Iterable[Rule], flags: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules of a config, then those of the flags; a flag overrides a config's rule with the same limit.

    Two limits are the same if they are on the same side of one metric: `at least` and `at most` differ. A config's rule
    about a group stays, because no flag can limit a group.
    """
    flag_rules = tuple(flags)
    origins = {(rule.metric, _side(rule.limit)): rule.origin for rule in flag_rules}
    config_rules = (
        replace(rule, overridden_by=origins.get((rule.metric, _side(rule.limit)), ""))
        if rule.group is None and rule.is_enabled
        else rule
        for rule in rules
    )
    return (*config_rules, *flag_rules)


def _side(limit: Limit) -> str:
    return "least" if isinstance(limit, AtLeast) else "among" if isinstance(limit, Among) else "most"


def _read_limit(flag: str, value: str | Path | bool) -> Limit:
    metric = METRICS[METRICS_OF[flag]]
    if isinstance(value, bool):
        return AtMost(0)
    if isinstance(value, Path):
        return Among(read_operators(value))
    if metric.kind == "among":
        if not all(name.strip() for name in value.split(",")):
            raise ValueError(f"an empty name; write {metric.unit} with commas between, as {_EXAMPLES[flag]}")
        return parse_limit(value, metric.unit)
    is_least = flag.startswith("--min-")
    limit = parse_limit(value, metric.unit, least=is_least)
    if isinstance(limit, AtLeast) is not is_least:
        requested_side, flag_side = ("most", "least") if is_least else ("least", "most")
        raise ValueError(
            f"the flag means at {flag_side}; for at {requested_side}, write a rule in onnxledger.toml"
        )
    return limit


_EXAMPLES = {"--allowed-domains": "ai.onnx,com.microsoft", "--allowed-dtypes": "FLOAT16,INT64"}

MAX_BYTES = 1 << 20
"""Maximum size of a file of operators, in bytes."""

_SHOWN = 100


def read_operators(path: Path) -> frozenset[str]:
    """Return the operators that a file lists.

    A line has one operator, `MatMul` or `com.microsoft:Gelu`, or follows onnxruntime's format for required operators,
    `ai.onnx;17,18;MatMul,Add`, whose opsets and types are ignored. A `#` begins a comment.

    Raises:
        ConfigError: the file cannot be read, or has other lines; the error lists all of them.
    """
    names: set[str] = set()
    mistakes: list[str] = []
    for number, line in enumerate(_read(path).splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if not text or text.startswith("!"):  # onnxruntime's directives, such as !globally_allowed_types
            continue
        try:
            names |= parse_names(_list_operators(text), Unit.OPERATORS).names
        except ValueError as error:
            mistakes.append(f"{path}:{number}: {error}")
    if len(mistakes) > _SHOWN:
        mistakes[_SHOWN:] = [f"{path}: and {len(mistakes) - _SHOWN:,} more mistakes"]
    if not mistakes and not names:
        mistakes.append(f"{path}: lists no operator; write one on a line, as MatMul or com.microsoft:Gelu")
    if mistakes:
        raise ConfigError(mistakes)
    return frozenset(names)


def _read(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():  # reading a pipe would hang, and a device may never end
            raise ConfigError([f"{path}: is not a regular file; name a file with an operator on each line"])
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError([f"{path}: cannot be read: {reason}; name a list of operators"]) from error
    if len(content) > MAX_BYTES:
        raise ConfigError([f"{path}: has more than {MAX_BYTES:,} bytes; name a list of operators"])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}: not UTF-8: {error.reason}; save it as UTF-8"]) from error


# Types of an operator in that format, as in Add{"inputs": {"0": ["float"]}}: JSON objects nested up to three deep.
_TYPES = re.compile(r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}")
_OPERATOR = re.compile(r"(?:[^\s,:;]+:)?[^\s,:;]+")


def _list_operators(text: str) -> list[str]:
    """Return the operators of one line.

    >>> _list_operators('com.microsoft;1;Gelu{"inputs": {"0": ["float"]}},FusedMatMul')
    ['com.microsoft:Gelu', 'com.microsoft:FusedMatMul']
    """
    names = [text]
    if ";" in text:
        domain, *rest = (part.strip() for part in _TYPES.sub("", text).split(";"))
        if len(rest) != 2 or not all(opset.strip().isdecimal() for opset in rest[0].split(",")):
            raise ValueError("write domain;opset;operators, as ai.onnx;17;MatMul,Add")
        listed = [name.strip() for name in rest[1].split(",")]
        names = [f"{domain}:{name}" if domain else name for name in listed]
    for name in names:
        if not _OPERATOR.fullmatch(name):
            raise ValueError(f"{shown(name)} is not an operator; write one, as MatMul or com.microsoft:Gelu")
    return names
