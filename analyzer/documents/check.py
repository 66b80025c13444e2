"""The document of `check`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from analyzer.account.ledger import Severity
from analyzer.budget.record import Skipped, Unit
from analyzer.budget.record import Status as RuleStatus
from analyzer.documents.base import FindingId, LimitKind, Record, Stamped, Text


class CheckDocument(Stamped, frozen=True, kw_only=True):
    """A report of `onnxledger check --format json`."""

    command: Literal["check"] = "check"
    """The command that wrote the document."""
    passed: bool
    """Whether every model was read, every rule that applies was evaluated, none failed, and at least one passed."""
    models: Annotated[list[Text], Meta(min_length=1)]
    """The models, as they were named; those of a folder in natural order, those that cannot be read last."""
    unreadable: list[UnreadableModel]
    """Models that cannot be read; the rules that are about them are not evaluated."""
    rules: list[Verdict]
    """A row for each rule and each model that it is about: rules in the order of the config and of the flags, then
    models."""
    findings: list[ModelFinding]
    """What the users of the models should know; only `--strict` and rules on findings judge them."""


class UnreadableModel(Record, frozen=True, kw_only=True):
    """Models that cannot be read; the rules that are about them are not evaluated."""

    model: Text
    """The model, as in `models`."""
    error: Text
    """Why; its words may change."""


class Contributor(Record, frozen=True, kw_only=True):
    """The parts of what failed, largest first; beside a baseline the largest changes first."""

    name: str
    """A group, a tensor, an operator, an account, a finding."""
    value: Annotated[int, Meta(extra={"unit": "`unit` of the rule"})]
    """What it has of what was observed, in the rule's unit; of names, how often they are used."""
    baseline: Annotated[int, Meta(extra={"unit": "`unit` of the rule"})] | None
    """What it had in the baseline; null where there is none, or it was not there."""


class Verdict(Record, frozen=True, kw_only=True):
    """One rule on one model, and what became of it."""

    name: Text
    """What the rule is called: by the config, or as the flag is without its dashes; `strict` is `--strict`."""
    model: Text | None
    """The model that it was asked of, as in `models`; null where it was asked of none."""
    metric: Text
    """What is measured: one of the metrics of docs/budgets.md."""
    group: Text | None
    """What of the model is measured, as the rule names it; null for all of it."""
    match: Text | None
    """The glob over paths that says which models the rule is about; null for all."""
    status: RuleStatus
    """What became of the rule; what should have been evaluated and could not be is SKIP and does not pass."""
    bound: LimitKind
    """Which side of the limit is allowed: not more, not less, or none but the names."""
    observed: Annotated[int, Meta(extra={"unit": "`unit`"})] | list[Text] | None
    """The number, or the names, sorted; null where the rule was not evaluated, or failed for there is no end of it."""
    limit: Annotated[int, Meta(extra={"unit": "`unit`"})] | list[Text] | None
    """What was allowed; of a limit over a baseline the number that follows, null where it is not known."""
    unit: Unit
    """What the numbers count, or the names name."""
    baseline: Annotated[int, Meta(extra={"unit": "`unit`"})] | None
    """What was observed of the baseline; null where the limit is over none, or it is not known."""
    exceeded_by: Annotated[int, Meta(ge=1, extra={"unit": "`unit`"})] | None
    """How much too much, or too little, or how many names; null unless the rule failed."""
    contributors: list[Contributor]
    """The parts of what failed, largest first; beside a baseline the largest changes first."""
    skipped: Skipped | None
    """Why it was not evaluated; null where it was. Only `not-evaluated` keeps the gate from passing."""
    message: str
    """One sentence for people: what is wrong, or why it was not evaluated; its words may change."""
    advice: str
    """The rule's `message`: what the project wants to be said when it fails."""
    origin: str
    """Where the rule stands: a flag, or a file and its line."""


class ModelFinding(Record, frozen=True, kw_only=True):
    """What the users of the models should know; only `--strict` and rules on findings judge them."""

    model: Text
    """The model that it was found in, as in `models`."""
    id: FindingId
    """Stable identifier of the kind of finding."""
    severity: Severity
    """How much it matters; an error means that the account is incomplete or does not balance."""
    message: Text
    """One sentence for people; its words may change."""
    subjects: list[str]
    """The tensors, parameters or files that it is about, sorted."""
    bytes: Annotated[int, Meta(ge=1, extra={"unit": "bytes"})] | None
    """Bytes on disk that mending it would save; null where it costs none, or nobody can tell."""
