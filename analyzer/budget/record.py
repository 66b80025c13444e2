"""Records of the gate: rules, limits, verdicts, and the report over all of them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias

from analyzer.account.ledger import Finding
from analyzer.records import Frozen, field


class Status(enum.StrEnum):
    """Result of a rule. A rule that could not be evaluated is never PASS."""

    PASS = "PASS"
    FAIL = "FAIL"
    SKIP = "SKIP"


class Unit(enum.StrEnum):
    """Unit of a metric."""

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
    """Operators, named `op_type` for ONNX's own and `domain:op_type` for others."""
    DOMAINS = "domains"
    DTYPES = "dtypes"


UNSUMMED = frozenset({"drift", "ir-version", "largest-tensor-bytes", "opset"})
"""Metrics whose contributors do not add up to the observed number."""


class AtMost(Frozen):
    """Maximum: at most `value`, in the unit of the metric."""

    value: int


class AtLeast(Frozen):
    """Minimum: at least `value`, in the unit of the metric."""

    value: int


class Growth(Frozen):
    """Growth allowed over a baseline; a negative one asks for a reduction.

    It is either a `fraction` of the baseline, or an `amount` in the unit of the metric.
    """

    fraction: Fraction | None = None
    amount: int | None = None


class Over(Frozen):
    """Maximum relative to a baseline. Where there are several growths, the strictest decides."""

    growths: tuple[Growth, ...]
    baseline: str | None = None
    """Path of the saved report or model; None takes the baseline that the command or the config names for all rules."""


class Among(Frozen):
    """Allowlist: no names but these."""

    names: frozenset[str]


Limit: TypeAlias = "AtMost | AtLeast | Over | Among"


class Rule(Frozen):
    """One line of a budget."""

    name: str
    """Name, unique in its budget."""
    metric: str
    """Key of `analyzer.budget.measuring.METRICS`."""
    limit: Limit
    match: str | None = None
    """Glob over the model's path as the user wrote it; None applies the rule to every model."""
    group: str | None = None
    """Part of the model to measure: a group of the config, a scope, a block, or a glob over these; None: all of it."""
    message: str = ""
    """Text that the project shows when the rule fails."""
    origin: str = ""
    """Place where the rule is defined: `--max-bytes`, or `onnxledger.toml:12`."""
    is_enabled: bool = True
    overridden_by: str = ""
    """Flag that limits the same metric and replaces this rule of a config; empty where there is none."""

    @property
    def is_asked(self) -> bool:
        return self.is_enabled and not self.overridden_by


class Skipped(enum.StrEnum):
    """Reason why a rule was not evaluated."""

    DISABLED = "disabled"
    OVERRIDDEN = "overridden"
    """A flag limits the same metric, and wins over the config."""
    NOT_MATCHED = "not-matched"
    """The rule's glob matches the path of no checked model."""
    NOT_EVALUATED = "not-evaluated"
    """The rule applies, but the group, the baseline or the measured data is missing. The gate does not pass."""


HIDDEN = "[more in PyTorch]"
"""Name of the part of a number that tensors hide, such as the parameters of norms folded into them."""


class Contributor(Frozen):
    """Part of the observed number: a group, a tensor, an operator.

    `value`, and `baseline` for the same part of the baseline, are in the unit of the metric. For a metric of names,
    they count the uses of each name.
    """

    name: str
    value: int
    baseline: int | None = None


class Verdict(Frozen):
    """Result of one rule for one model. Numbers are in the rule's unit."""

    rule: Rule
    model: str | None
    """The model's path as the user wrote it; None where the rule applied to no model."""
    status: Status
    unit: Unit
    observed: int | tuple[str, ...] | None = None
    """Number, or sorted names; None where the rule was not evaluated, or failed because the number is infinite."""
    limit: int | tuple[str, ...] | None = None
    """Allowed number or names; for a limit over a baseline, the resulting number. None where it is not known."""
    baseline: int | None = None
    """Number observed in the baseline."""
    exceeded_by: int | None = None
    """Amount above a maximum or below a minimum, or number of names not allowed; None unless the rule failed."""
    contributors: tuple[Contributor, ...] = ()
    """Largest parts, or largest changes against a baseline, in descending order. Only for a failed rule."""
    skipped: Skipped | None = None
    message: str = ""
    """One sentence for the user: the violation, or the reason why the rule was not evaluated."""
    least: int | None = None
    """Lower end of the number's range, of which `observed` is the end nearest to the limit; None if it is exact."""
    most: int | None = None
    """Upper end of that range; None if the number is exact, or has no upper bound."""


class BudgetReport(Frozen):
    """Report of `check`: the verdict of every rule for every model that it applies to."""

    models: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    """Verdicts in the order of the rules, then of the models."""
    findings: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    """Findings of each model, by its path."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Reason why a model could not be read, by its path; rules that apply to it are not evaluated."""
    stamp: str | None = None

    @property
    def failed(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.status is Status.FAIL)

    @property
    def unevaluated(self) -> tuple[Verdict, ...]:
        """Verdicts of rules that apply and could not be evaluated."""
        return tuple(verdict for verdict in self.verdicts if verdict.skipped is Skipped.NOT_EVALUATED)

    @property
    def passed(self) -> bool:
        """Whether every model was read, no rule failed or went unevaluated, and at least one passed."""
        some = any(verdict.status is Status.PASS for verdict in self.verdicts)
        return some and not self.failed and not self.unevaluated and not self.unreadable
