"""Verdicts: which limits pass, which fail and by how much; nothing is guessed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import audit, external, ramp, text_model

from analyzer.account.group import group_by
from analyzer.account.group.patterns import Searcher
from analyzer.account.ledger import Ledger
from analyzer.budget.amounts import parse_limit
from analyzer.budget.evaluate import applies_to, check_budget
from analyzer.budget.measuring import METRICS
from analyzer.budget.record import (
    Among,
    AtLeast,
    AtMost,
    BudgetReport,
    Growth,
    Limit,
    Over,
    Rule,
    Skipped,
    Status,
    Verdict,
)
from analyzer.errors import UsageError


def make(folder: Path, widths: Mapping[str, int], layers: int = 2) -> Ledger:
    """Return a model's ledger: embeddings 7 x 3, each layer 3 x 3 x its width, pooler 3 x 2."""
    weights = {"embeddings.word.weight": ramp(7, 3), "pooler.weight": ramp(3, 2)}
    lines = ['["/embeddings/word/Gather"] h0 = Gather("embeddings.word.weight", ids)']
    for layer in range(layers):
        name = f"encoder.layer.{layer}.fc"
        width = widths.get(str(layer), 1)
        weights[f"{name}.weight"] = ramp(3, 3 * width, start=20 * layer + 1)
        weights[f"{name}.out"] = ramp(3 * width, 3, start=500 * layer + 300)
        lines.append(f'["/encoder/layer.{layer}/fc/MatMul"] a{layer} = MatMul(h{layer}, "{name}.weight")')
        lines.append(f'["/encoder/layer.{layer}/fc/MatMul_1"] h{layer + 1} = MatMul(a{layer}, "{name}.out")')
    lines.append(f'["/pooler/MatMul"] y = MatMul(h{layers}, "pooler.weight")')
    folder.mkdir(exist_ok=True)
    text = "g (int64[1,4] ids) => (float[1,4,2] y) {\n" + "\n".join(lines) + "\n}"
    return audit(folder, text_model(text, weights))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Ledger of 21 + 18 + 18 + 6 = 63 parameters."""
    return make(tmp_path_factory.mktemp("small"), {})


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Ledger of 21 + 18 + 36 + 6 = 81 parameters: layer 1 is twice as wide."""
    return make(tmp_path_factory.mktemp("grown"), {"1": 2})


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Ledger with a third layer: 81 parameters."""
    return make(tmp_path_factory.mktemp("deep"), {}, layers=3)


def rule(metric: str, limit: object, **fields: object) -> Rule:
    kind = METRICS[metric]
    made = (
        limit
        if isinstance(limit, AtMost | AtLeast | Over | Among)
        else (parse_limit(limit, kind.unit, least=kind.kind == "least"))
    )
    return dataclasses.replace(Rule("r", metric, made), **fields)


def refuse(name: str) -> Ledger:
    raise UsageError(f"{name}: is not there")


def judge(
    ledger: Ledger,
    metric: str,
    limit: object,
    *,
    over: Ledger | None = None,
    groups: Mapping[str, Searcher] | None = None,
    **fields: object,
) -> Verdict:
    (verdict,) = check_budget(
        [rule(metric, limit, **fields)],
        {"m.onnx": ledger},
        baseline=None if over is None else "main.json",
        read=refuse if over is None else lambda _: over,
        groups=groups or {},
    )
    return verdict


def is_unanswered(verdict: Verdict) -> bool:
    return (
        verdict.status is Status.SKIP
        and verdict.skipped is Skipped.NOT_EVALUATED
        and verdict.observed is None
        and bool(verdict.message)
    )


# absolute limits


def test_a_limit_that_is_reached_passes_and_one_less_does_not(small: Ledger) -> None:
    kept, missed = judge(small, "parameters", 63), judge(small, "parameters", 62)

    assert (kept.status, kept.observed, kept.limit, kept.exceeded_by) == (Status.PASS, 63, 63, None)
    assert (missed.status, missed.observed, missed.exceeded_by) == (Status.FAIL, 63, 1)
    assert missed.message == "63 parameters are 1 more than the 62 allowed"
    assert not kept.contributors


def test_what_fails_names_its_largest_parts(small: Ledger) -> None:
    verdict = judge(small, "parameters", 1)

    assert [(one.name, one.value) for one in verdict.contributors] == [
        ("encoder", 36),
        ("embeddings", 21),
        ("pooler", 6),
    ]


def test_of_a_group_the_parts_are_tensors(small: Ledger) -> None:
    verdict = judge(small, "bytes", 1, group="encoder.layer.1")

    assert [(one.name, one.value) for one in verdict.contributors] == [
        ("encoder.layer.1.fc.out", 36),
        ("encoder.layer.1.fc.weight", 36),
    ]
    assert verdict.message == "encoder.layer.1: 72 bytes are 71 more than the 1 allowed"


def test_a_least_is_missed_from_below(small: Ledger) -> None:
    verdict = judge(small, "opset", 20)

    assert (verdict.status, verdict.observed, verdict.exceeded_by) == (Status.FAIL, 18, 2)
    assert verdict.message == "opset 18 is 2 less than the 20 required"
    assert judge(small, "opset", 18).status is Status.PASS


def test_names_that_are_not_allowed_are_named_with_how_many_nodes_have_them(small: Ledger) -> None:
    verdict = judge(small, "ops", ["Gather", "Relu"])

    assert (verdict.status, verdict.observed, verdict.limit) == (
        Status.FAIL,
        ("Gather", "MatMul"),
        ("Gather", "Relu"),
    )
    assert verdict.exceeded_by == 1
    assert [(one.name, one.value) for one in verdict.contributors] == [("MatMul", 5)]
    assert verdict.message == "1 operator is not allowed: MatMul"
    assert judge(small, "ops", ["Gather", "MatMul", "Relu"]).status is Status.PASS


def test_a_limit_of_zero_is_printed_as_none(small: Ledger) -> None:
    assert judge(small, "nodes", 0).message == "6 nodes, where none is allowed"
    assert judge(small, "unattributed", 0).status is Status.PASS


# groups


def test_each_group_that_a_glob_matches_must_pass_and_the_worst_is_observed(grown: Ledger) -> None:
    verdict = judge(grown, "parameters", 20, group="encoder.layer.*")

    assert (verdict.status, verdict.observed, verdict.exceeded_by) == (Status.FAIL, 36, 16)
    assert [(one.name, one.value) for one in verdict.contributors] == [("encoder.layer.1", 36)]
    assert verdict.message.startswith("encoder.layer.1: 36 parameters are 16 more")
    assert verdict.message.endswith("1 of 2 groups fail")
    assert judge(grown, "parameters", 36, group="encoder.layer.*").observed == 36


def test_a_group_that_is_not_there_is_not_evaluated_and_the_nearest_are_named(small: Ledger) -> None:
    for limit in (10**9, 0):
        verdict = judge(small, "parameters", limit, group="encoder.layer.7")

        assert is_unanswered(verdict)
        assert "'encoder.layer.1'" in verdict.message


def test_the_projects_own_groups_are_known(small: Ledger) -> None:
    verdict = judge(small, "parameters", 5, group="ends", groups={"ends": re.compile("^(embed|pool)")})

    assert verdict.observed == 27
    assert is_unanswered(judge(small, "parameters", 5, group="ends", groups={"ends": re.compile("nothing")}))


def test_a_metric_of_the_model_is_not_evaluated_for_a_group(small: Ledger) -> None:
    assert "leave the group out" in judge(small, "opset", 1, group="encoder").message


# relative limits


def test_growth_is_over_the_baseline_and_rounded_down(small: Ledger, grown: Ledger) -> None:
    verdict = judge(grown, "parameters", "+2 %", over=small)

    assert (verdict.status, verdict.baseline, verdict.limit, verdict.exceeded_by) == (
        Status.FAIL,
        63,
        64,  # floor(64.26)
        17,
    )
    assert verdict.message == (
        "81 parameters (+28.5714 %) are 17 more than the 64 allowed (+2 % over the 63 of main.json)"
    )
    assert judge(grown, "parameters", "+18", over=small).status is Status.PASS
    assert judge(grown, "parameters", "+17", over=small).status is Status.FAIL


def test_the_strictest_growth_decides(small: Ledger, grown: Ledger) -> None:
    assert judge(grown, "parameters", "+100 % and +5", over=small).limit == 68
    assert judge(grown, "parameters", "+1 % and +500", over=small).limit == 63


def test_a_model_may_have_to_shrink(small: Ledger, grown: Ledger) -> None:
    assert judge(small, "parameters", "-1 %", over=grown).status is Status.PASS
    assert judge(small, "parameters", "-1 %", over=small).exceeded_by == 1
    assert is_unanswered(judge(small, "parameters", "-64", over=small))


def test_contributors_over_a_baseline_are_the_largest_changes(small: Ledger, grown: Ledger) -> None:
    verdict = judge(grown, "parameters", "+0", over=small)
    inside = judge(grown, "parameters", "+0", over=small, group="encoder")

    assert [(one.name, one.value, one.baseline) for one in verdict.contributors] == [("encoder", 54, 36)]
    assert [(one.name, one.value, one.baseline) for one in inside.contributors] == [
        ("encoder.layer.1.fc.out", 18, 9),
        ("encoder.layer.1.fc.weight", 18, 9),
    ]


def test_a_percentage_of_nothing_is_never_a_pass(small: Ledger) -> None:
    verdict = judge(small, "unattributed", "+10 %", over=small)

    assert is_unanswered(verdict)
    assert "'+0'" in verdict.message
    assert judge(small, "unattributed", "+0", over=small).status is Status.PASS


def test_a_group_that_only_the_model_has_has_not_grown_and_is_not_evaluated(
    small: Ledger, deep: Ledger
) -> None:
    for group in ("encoder.layer.2", "encoder.layer.*"):
        verdict = judge(deep, "parameters", "+500 %", over=small, group=group)

        assert is_unanswered(verdict), group
        assert "does not have it" in verdict.message


def test_a_group_that_only_the_baseline_has_is_found_by_name_and_not_by_a_glob(
    small: Ledger, deep: Ledger
) -> None:
    assert is_unanswered(judge(small, "parameters", "+0", over=deep, group="encoder.layer.2"))
    assert judge(small, "parameters", "+0", over=deep, group="encoder.layer.*").status is Status.PASS


def test_one_group_that_fails_is_reported_though_another_cannot_be_evaluated(
    small: Ledger, deep: Ledger
) -> None:
    verdict = judge(deep, "parameters", "-1 %", over=small, group="encoder.layer.*")

    assert verdict.status is Status.FAIL
    assert verdict.message.endswith("2 of 3 groups fail")


def test_without_a_baseline_there_is_no_growth(small: Ledger) -> None:
    assert "--baseline FILE" in judge(small, "parameters", "+0").message
    verdict = judge(small, "parameters", "+0 over gone.json")
    assert is_unanswered(verdict)
    assert "gone.json: is not there" in verdict.message


def test_each_baseline_is_read_once_and_a_rule_may_name_its_own(small: Ledger, grown: Ledger) -> None:
    read: list[str] = []

    def note(name: str) -> Ledger:
        read.append(name)
        return {"main.json": small, "other.json": grown}[name]

    rules = [rule("parameters", limit) for limit in ("+0", "+1 %", "+0 over other.json", "+1 over main.json")]
    verdicts = check_budget(rules, {"a": grown, "b": grown}, baseline="main.json", read=note)

    assert sorted(read) == ["main.json", "other.json"]
    assert [verdict.baseline for verdict in verdicts] == [63, 63, 63, 63, 81, 81, 63, 63]


def test_counts_with_and_without_contents_are_not_compared(small: Ledger) -> None:
    unseen = dataclasses.replace(small, content="none")

    for model, over in ((small, unseen), (unseen, small)):
        assert is_unanswered(judge(model, "parameters", "+0", over=over))
        assert judge(model, "bytes", "+0", over=over).status is Status.PASS


# limits that are not evaluated


def test_what_cannot_be_read_whole_may_fail_and_does_not_pass(tmp_path: Path) -> None:
    proto = text_model("g (float[1,2] x) => (float[1,2] y) {\n y = MatMul(x, w)\n}")
    proto.graph.initializer.append(external("w", [2, 2], location="gone.bin"))
    ledger = audit(tmp_path, proto)

    assert is_unanswered(judge(ledger, "bytes", "1 GiB"))
    assert judge(ledger, "bytes", 1).status is Status.FAIL
    assert is_unanswered(judge(ledger, "bytes", "at least 1 GiB"))
    assert is_unanswered(judge(ledger, "bytes", "+1 %", over=ledger))


def test_a_disabled_rule_and_one_that_is_about_no_model_do_no_harm(small: Ledger) -> None:
    off = judge(small, "parameters", 0, is_enabled=False)
    elsewhere = judge(small, "parameters", 0, match="*.txt")
    passed = judge(small, "parameters", 100)

    assert (off.status, off.skipped, off.model) == (Status.SKIP, Skipped.DISABLED, None)
    assert (elsewhere.status, elsewhere.skipped, elsewhere.model) == (Status.SKIP, Skipped.NOT_MATCHED, None)
    assert BudgetReport(("m.onnx",), (off, elsewhere, passed)).passed
    assert not BudgetReport(("m.onnx",), (off, elsewhere)).passed


def test_a_metric_that_there_is_not_is_refused(small: Ledger) -> None:
    with pytest.raises(UsageError, match="'size' is not a metric"):
        check_budget([Rule("r", "size", AtMost(1))], {"m": small}, read=refuse)


@pytest.mark.parametrize(
    ("metric", "limit"),
    [
        ("ops", AtMost(1)),
        ("nodes", Among(frozenset({"Add"}))),
        ("opset", Over((Growth(amount=0),))),
    ],
)
def test_a_limit_of_another_kind_is_not_evaluated(small: Ledger, metric: str, limit: Limit) -> None:
    assert is_unanswered(judge(small, metric, limit, over=small))


def test_rules_are_in_their_order_and_then_models(small: Ledger, grown: Ledger) -> None:
    rules = [
        rule("parameters", 70, name="a"),
        rule("nodes", 9, name="b", match="big.onnx"),
        rule("nodes", 9, name="c", match="no.onnx"),
    ]

    verdicts = check_budget(rules, {"x/small.onnx": small, "x/big.onnx": grown}, read=refuse)

    assert [(verdict.rule.name, verdict.model, verdict.status) for verdict in verdicts] == [
        ("a", "x/small.onnx", Status.PASS),
        ("a", "x/big.onnx", Status.FAIL),
        ("b", "x/big.onnx", Status.PASS),
        ("c", None, Status.SKIP),
    ]


@pytest.mark.parametrize(
    ("path", "pattern", "is_one"),
    [
        ("bert.onnx", "*.onnx", True),
        ("models/bert.onnx", "*.onnx", True),
        ("./models/bert.onnx", "models/*.onnx", True),
        ("/ci/models/bert.onnx", "models/*.onnx", True),
        ("models/a/bert.onnx", "models/*.onnx", False),
        ("models/a/b/bert.onnx", "models/**/*.onnx", True),
        ("models/bert.onnx", "models/**/*.onnx", True),
        ("models/bert.onnx", "/models/*.onnx", False),
        ("/models/bert.onnx", "/models/*.onnx", True),
        ("models/bert.onnx", "**", True),
        ("models/BERT.onnx", "bert.*", False),
        ("out/", "out", True),
        ("windows\\bert.onnx", "windows/*.onnx", True),
        ("a[1].onnx", "a[[]1].onnx", True),
        ("https://host/repo/bert.onnx", "*.onnx", True),
        ("https://host/repo/bert.onnx", "https://host/**", True),
        ("bert.onnx", "", False),
        ("a/" * 300 + "x", "**/*/" * 100 + "y", False),
    ],
)
def test_a_glob_is_matched_from_the_right(path: str, pattern: str, is_one: bool) -> None:
    assert applies_to(Rule("r", "nodes", AtMost(1), match=pattern), path) is is_one


# properties

NUMERIC = st.sampled_from([name for name, metric in METRICS.items() if metric.kind != "among"])
GROUPS = st.sampled_from([None, "encoder", "encoder.layer.*", "encoder.layer.1", "nowhere", "block.*"])
PLAIN = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@PLAIN
@given(metric=NUMERIC, limit=st.integers(0, 2000), group=GROUPS, least=st.booleans())
def test_a_number_passes_where_it_is_within_its_limit_and_only_there(
    grown: Ledger, metric: str, limit: int, group: str | None, least: bool
) -> None:
    verdict = judge(grown, metric, AtLeast(limit) if least else AtMost(limit), group=group)

    if verdict.status is Status.SKIP:
        assert is_unanswered(verdict)
        assert group is not None
        return
    assert isinstance(verdict.observed, int)
    is_within = verdict.observed >= limit if least else verdict.observed <= limit
    assert is_within is (verdict.status is Status.PASS)
    assert verdict.exceeded_by == (None if is_within else abs(verdict.observed - limit))
    assert bool(verdict.contributors) <= (verdict.status is Status.FAIL)


@PLAIN
@given(metric=NUMERIC, limit=st.integers(0, 2000), less=st.integers(0, 2000), group=GROUPS)
def test_a_tighter_limit_never_makes_a_pass_of_a_failure(
    grown: Ledger, metric: str, limit: int, less: int, group: str | None
) -> None:
    wide, tight = (
        judge(grown, metric, AtMost(number), group=group) for number in (limit, max(0, limit - less))
    )

    assert not (wide.status is Status.FAIL and tight.status is not Status.FAIL)


@PLAIN
@given(percent=st.integers(-100, 100), less=st.integers(0, 50), amount=st.none() | st.integers(-40, 40))
def test_a_smaller_growth_never_makes_a_pass_of_a_failure(
    small: Ledger, grown: Ledger, percent: int, less: int, amount: int | None
) -> None:
    def over(number: int) -> Verdict:
        growths = (Growth(fraction=Fraction(max(-100, number), 100)),)
        if amount is not None:
            growths += (Growth(amount=amount),)
        return judge(grown, "parameters", Over(growths), over=small)

    wide, tight = over(percent), over(percent - less)

    assert not (wide.status is Status.FAIL and tight.status is not Status.FAIL)
    assert isinstance(wide.limit, int)
    assert isinstance(wide.observed, int)
    assert (wide.observed <= wide.limit) is (wide.status is Status.PASS)


@PLAIN
@given(allowed=st.frozensets(st.sampled_from(["Gather", "MatMul", "Add"])), group=GROUPS)
def test_names_pass_where_all_are_allowed_and_only_there(
    grown: Ledger, allowed: frozenset[str], group: str | None
) -> None:
    verdict = judge(grown, "ops", Among(allowed), group=group)

    if isinstance(verdict.observed, tuple):
        assert (set(verdict.observed) <= allowed) is (verdict.status is Status.PASS)
    else:
        assert is_unanswered(verdict)


def test_no_contributor_is_left_out(tmp_path: Path) -> None:
    many = make(tmp_path / "many", {}, layers=75)

    verdict = judge(many, "tensors", 0, group="encoder")

    assert len(verdict.contributors) == verdict.observed == 150


@pytest.mark.parametrize(
    "metric", ["parameters", "bytes", "stored-elements", "stored-bytes", "tensors", "nodes"]
)
@pytest.mark.parametrize("group", [None, "encoder", "embeddings"])
def test_contributors_add_up_to_what_is_observed(grown: Ledger, metric: str, group: str | None) -> None:
    verdict = judge(grown, metric, 0, group=group)

    assert sum(one.value for one in verdict.contributors) == verdict.observed


def test_contributors_of_all_parameters_are_the_default_groups(grown: Ledger) -> None:
    found = {group.name: group.parameters for group in group_by(grown).groups if group.parameters}

    assert {one.name: one.value for one in judge(grown, "parameters", 0).contributors} == found
