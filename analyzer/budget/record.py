"""The nouns of the gate: rules, their limits, what was observed, and the report of all."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias

from analyzer.account.ledger import Finding
from analyzer.records import Frozen, field


class Status(enum.StrEnum):
    """What became of a rule. A rule that could not be evaluated is never PASS."""

    PASS = "PASS"
    FAIL = "FAIL"
    SKIP = "SKIP"


class Unit(enum.StrEnum):
    """What a metric counts."""

    PARAMETERS = "parameters"
    ELEMENTS = "elements"
    BYTES = "bytes"
    TENSORS = "tensors"
    NODES = "nodes"
    CALLS = "calls"
    MACS = "macs"
    DECIBELS = "decibels"
    VERSION = "version"
    FINDINGS = "findings"
    OPERATORS = "operators"
    """`op_type` of ONNX's own, else `domain:op_type`."""
    DOMAINS = "domains"
    DTYPES = "dtypes"


UNSUMMED = frozenset({"drift", "ir-version", "largest-tensor-bytes", "opset"})
"""Metrics whose contributors are no summands."""


class AtMost(Frozen):
    """Not more than a `value`, in the unit of the metric."""

    value: int


class AtLeast(Frozen):
    """Not less than a `value`, in the unit of the metric."""

    value: int


class Growth(Frozen):
    """How much more than a baseline is allowed, which may be less than nothing.

    Either a `fraction` of it, or an `amount` in the unit of the metric.
    """

    fraction: Fraction | None = None
    amount: int | None = None


class Over(Frozen):
    """Not more than a baseline and each of these growths: the strictest decides."""

    growths: tuple[Growth, ...]
    baseline: str | None = None
    """The saved report or model; None for the one that the command, or the config, names for all rules."""


class Among(Frozen):
    """None but these names."""

    names: frozenset[str]


Limit: TypeAlias = "AtMost | AtLeast | Over | Among"


class Rule(Frozen):
    """One line of a budget."""

    name: str
    """Unique in its budget."""
    metric: str
    """A key of `analyzer.budget.measuring.METRICS`."""
    limit: Limit
    match: str | None = None
    """A glob over the model's path as it was named; None: every model."""
    group: str | None = None
    """What of the model is measured: a group of the config, a scope, a block, or a glob over these; None: all."""
    message: str = ""
    """What the project wants to be said when it fails."""
    origin: str = ""
    """Where it stands: `--max-bytes`, or `onnxledger.toml:12`."""
    is_enabled: bool = True
    overridden_by: str = ""
    """The flag that limits the same, so that this rule of a config is not asked."""

    @property
    def is_asked(self) -> bool:
        return self.is_enabled and not self.overridden_by


class Skipped(enum.StrEnum):
    """Why a rule was not evaluated."""

    DISABLED = "disabled"
    OVERRIDDEN = "overridden"
    """A flag limits the same, and wins over the config."""
    NOT_MATCHED = "not-matched"
    """No model that is checked has a path that its glob matches."""
    NOT_EVALUATED = "not-evaluated"
    """It should have been: the group, the baseline or what is measured is not there. The gate does not pass."""


class Contributor(Frozen):
    """Part of what was observed: a group, a tensor, an operator.

    `value` and `baseline`, what it was there, are in the unit of the metric; of names, how often they are used.
    """

    name: str
    value: int
    baseline: int | None = None


class Verdict(Frozen):
    """What one rule says of one model. Numbers are in its unit."""

    rule: Rule
    model: str | None
    """The model's path as it was named; None where the rule was asked of none."""
    status: Status
    unit: Unit
    observed: int | tuple[str, ...] | None = None
    """A number, or names, sorted; None where the rule was not evaluated, or failed for there is no end of it."""
    limit: int | tuple[str, ...] | None = None
    """What was allowed: of a limit over a baseline the number that follows. None where that is not known."""
    baseline: int | None = None
    """What was observed of the baseline."""
    exceeded_by: int | None = None
    """How much too much, or too little, or how many names; None unless the rule failed."""
    contributors: tuple[Contributor, ...] = ()
    """The largest parts, largest first; beside a baseline the largest changes. Only of what failed."""
    skipped: Skipped | None = None
    message: str = ""
    """One sentence for people: what is wrong, or why it was not evaluated."""


class BudgetReport(Frozen):
    """`check`: every rule's verdict on every model that it is about."""

    models: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    """In the order of the rules, then of the models."""
    findings: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    """What was found in each model, by its path."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Why a model could not be read, by its path; the rules that are about it are not evaluated."""
    stamp: str | None = None

    @property
    def failed(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.status is Status.FAIL)

    @property
    def unevaluated(self) -> tuple[Verdict, ...]:
        """Those that should have been evaluated and could not be."""
        return tuple(verdict for verdict in self.verdicts if verdict.skipped is Skipped.NOT_EVALUATED)

    @property
    def passed(self) -> bool:
        """Whether every model was read, no rule failed or went without its answer, and at least one passed."""
        some = any(verdict.status is Status.PASS for verdict in self.verdicts)
        return some and not self.failed and not self.unevaluated and not self.unreadable
