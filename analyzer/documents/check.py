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
    """Models as given; those of a folder in natural order, unreadable ones last."""
    unreadable: list[UnreadableModel]
    """Models that cannot be read; rules about them are not evaluated."""
    rules: list[Verdict]
    """One row for each rule and each of its models: rules in the order of the config and of the flags, then models."""
    findings: list[ModelFinding]
    """Findings in the models; only `--strict` and rules on findings judge them."""


class UnreadableModel(Record, frozen=True, kw_only=True):
    """A model that cannot be read; rules about it are not evaluated."""

    model: Text
    """The model, as in `models`."""
    error: Text
    """Reason why the model cannot be read; its wording may change."""


class Contributor(Record, frozen=True, kw_only=True):
    """One part of a value that failed its rule."""

    name: str
    """Name of a group, tensor, operator, account or finding."""
    value: Annotated[int, Meta(extra={"unit": "`unit` of the rule"})]
    """Contribution to the observed value, in the rule's unit; for names, the number of their uses."""
    baseline: Annotated[int, Meta(extra={"unit": "`unit` of the rule"})] | None
    """Contribution in the baseline; null if there is no baseline, or it lacks this part."""


class Verdict(Record, frozen=True, kw_only=True):
    """One rule on one model, and its outcome."""

    name: Text
    """Name of the rule, from the config, or from its flag without the dashes; `strict` is `--strict`."""
    model: Text | None
    """Model that the rule was applied to, as in `models`; null if it was applied to none."""
    metric: Text
    """Quantity that is measured: one of the metrics of docs/budgets.md."""
    group: Text | None
    """Part of the model that is measured, as the rule names it; null for all of it."""
    match: Text | None
    """Glob over paths that selects the rule's models; null for all."""
    status: RuleStatus
    """Outcome of the rule; a rule that should have been evaluated and could not be is SKIP and does not pass."""
    bound: LimitKind
    """Allowed side of the limit: at most, at least, or only the given names."""
    observed: Annotated[int, Meta(extra={"unit": "`unit`"})] | list[Text] | None
    """Observed number, or names, sorted; null if the rule was not evaluated, or failed because the number has no
    bound. If the file leaves the number open, the end of its range that is nearest to the limit."""
    observed_least: Annotated[int, Meta(extra={"unit": "`unit`"})] | None = None
    """Lower end of the range of the number; null if it is exact, or the rule was not evaluated."""
    observed_most: Annotated[int, Meta(extra={"unit": "`unit`"})] | None = None
    """Upper end of that range; null if the number is exact or has no upper bound, or the rule was not evaluated."""
    limit: Annotated[int, Meta(extra={"unit": "`unit`"})] | list[Text] | None
    """Allowed number or names; for a limit over a baseline, the resulting number, null if unknown."""
    unit: Unit
    """Unit of the numbers, or kind of the names."""
    baseline: Annotated[int, Meta(extra={"unit": "`unit`"})] | None
    """Observed number of the baseline; null if the limit has no baseline, or the number is unknown."""
    exceeded_by: Annotated[int, Meta(ge=1, extra={"unit": "`unit`"})] | None
    """Amount by which the number is too large or too small, or number of names too many; null unless the rule
    failed."""
    contributors: list[Contributor]
    """Parts of the value that failed, largest first; with a baseline, largest changes first."""
    skipped: Skipped | None
    """Reason why the rule was not evaluated; null if it was. Only `not-evaluated` keeps the gate from passing."""
    message: str
    """One sentence for people: the failure, or the reason why the rule was not evaluated; its wording may change."""
    advice: str
    """The rule's `message`: advice of the project for a failure."""
    origin: str
    """Origin of the rule: a flag, or a file and its line."""


class ModelFinding(Record, frozen=True, kw_only=True):
    """A finding in a model; only `--strict` and rules on findings judge it."""

    model: Text
    """Model that has the finding, as in `models`."""
    id: FindingId
    """Stable identifier of the kind of finding."""
    severity: Severity
    """Importance of the finding; an error means that the account is incomplete or does not balance."""
    message: Text
    """One sentence for people; its wording may change."""
    subjects: list[str]
    """Tensors, parameters or files concerned, sorted."""
    bytes: Annotated[int, Meta(ge=1, extra={"unit": "bytes"})] | None
    """Bytes on disk that a fix would save; null if the finding costs none, or the amount is unknown."""
