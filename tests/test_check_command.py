"""`onnxledger check`: its rules, answers and exit codes; a rule that cannot be evaluated never passes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import onnx.parser
import pytest
from commands import run_here
from models import dynamo_like, external, ramp, save, text_model

from analyzer.budget.config import load_config
from analyzer.budget.config.rules import KEYS
from analyzer.budget.flags import METRICS_OF
from analyzer.budget.measuring import METRICS
from analyzer.commands.check import check as command
from analyzer.schemas import load_schema

NET = 'net (float[1,4] x) => (float[1,3] y) { [a] h = MatMul(x, "enc.w") [b] y = MatMul(h, "dec.w") }'


def make(folder: Path, name: str = "model.onnx", width: int = 8, seed: float = 1.0) -> Path:
    """Save two layers, `enc` and `dec`, of 4 x width and width x 3 parameters."""
    weights = {"enc.w": ramp(4, width, start=seed), "dec.w": ramp(width, 3, start=500 + seed)}
    proto = dynamo_like(
        text_model(NET, weights), scopes={"a": "enc", "b": "dec"}, parameters=("enc.w", "dec.w")
    )
    return save(folder, proto, name)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make(tmp_path)
    return tmp_path


def check(*arguments: object, code: int) -> dict[str, Any]:
    """Return the JSON document of a run with that exit code, after checking it against the schema."""
    done = run_here("check", *arguments, "--format", "json")
    assert done.returncode == code, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(document, load_schema("check"))
    assert document["passed"] is (code == 0)
    return document


def states(document: dict[str, Any]) -> dict[str, str]:
    return {rule["name"]: rule["skipped"] or rule["status"] for rule in document["rules"]}


def rules(*tables: str, head: str = "") -> None:
    text = "\n".join(f"[[rules]]\n{table}\n" for table in tables)
    Path("onnxledger.toml").write_text(f"{head}\n{text}", encoding="utf-8")


def saved(model: Path | str = "model.onnx", name: str = "main.json", *options: str) -> Path:
    assert run_here("inspect", model, "-o", name, "--quiet", "--no-config", *options).returncode == 0
    return Path(name)


# exit codes


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("--max-parameters", "56"), 0),
        (("--max-parameters", "55"), 1),
        (("--max-parameters", "+2 % over nowhere.json"), 2),
        (("--max-bytes", "1 MB"), 0),
        (("--max-bytes", "100"), 1),
        (("--max-metadata-bytes", "10 kB"), 0),
        (("--max-metadata-bytes", "0"), 1),
        (("--max-nodes", "2"), 0),
        (("--max-nodes", "1"), 1),
        (("--min-opset", "18"), 0),
        (("--min-opset", "19"), 1),
        (("--allowed-domains", "ai.onnx"), 0),
        (("--allowed-domains", "com.microsoft"), 1),
        (("--allowed-dtypes", "FLOAT,INT64"), 0),
        (("--allowed-dtypes", "FLOAT16"), 1),
        (("--no-external-outside",), 0),
        (("--no-unattributed",), 0),
        (("--no-duplicates",), 0),
        (("--max-nodes", "1", "--max-parameters", "+2 % over nowhere.json"), 1),
        (("--strict",), 0),
    ],
)
def test_the_exit_code_is_0_within_1_beyond_and_2_without_an_answer(
    flags: tuple[str, ...], code: int
) -> None:
    found = states(check("model.onnx", *flags, code=code))

    assert ("FAIL" in found.values()) is (code == 1)
    assert ("not-evaluated" in found.values()) is ("nowhere.json" in flags[-1])


def test_operators_are_compared_with_those_of_a_file() -> None:
    Path("ops.txt").write_text("MatMul\n")
    check("model.onnx", "--allowed-ops", "ops.txt", code=0)

    Path("ops.txt").write_text("ai.onnx;18;Add,Gelu\n")
    (rule,) = check("model.onnx", "--allowed-ops", "ops.txt", code=1)["rules"]

    assert (rule["observed"], rule["limit"], rule["bound"]) == (["MatMul"], ["Add", "Gelu"], "among")
    assert (rule["exceeded_by"], rule["contributors"]) == (
        1,
        [{"name": "MatMul", "value": 2, "baseline": None}],
    )


def test_initializers_that_nothing_needs_are_counted_of_a_model_a_group_and_a_report(here: Path) -> None:
    """Unused tensors include one that only a dead node reads, and one without elements."""
    text = 'g (float[1,4] x) => (float[1,4] y) { z = MatMul(x, "block.b") y = MatMul(x, "block.a") }'
    arrays = {"block.a": ramp(4, 4), "block.b": ramp(4, 4) + 1, "left": ramp(3, 1), "none": ramp(0, 4)}
    model = save(here, text_model(text, arrays), "left.onnx")
    assert run_here("inspect", model, "-o", here / "left.json", "--quiet").returncode == 0
    (here / "unused.toml").write_text(
        "[[rules]]\nname = 'bytes'\nmetric = 'unused-bytes'\nlimit = 75\n"
        "[[rules]]\nname = 'of a group'\nmetric = 'unused-bytes'\ngroup = 'block'\nlimit = '64'\n"
    )

    for name in ("left.onnx", "left.json"):
        total, group, tensors = check(name, "--no-unused", "--config", "unused.toml", code=1)["rules"]
        assert (total["status"], total["observed"]) == ("FAIL", 76)
        assert (group["status"], group["observed"]) == ("PASS", 64)
        assert (tensors["status"], tensors["observed"], tensors["unit"]) == ("FAIL", 3, "tensors")
        assert {each["name"] for each in tensors["contributors"]} == {"block.b", "left", "none"}
    check("model.onnx", "--no-unused", code=0)


def test_a_copy_and_external_data_outside_are_found(here: Path) -> None:
    twin = text_model(
        "g (float[1,4] x) => (float[1,4] y) { h = MatMul(x, a) y = MatMul(h, b) }",
        {"a": ramp(4, 4), "b": ramp(4, 4)},
    )
    save(here, twin, "twin.onnx")
    far = text_model("g (float[4] x) => (float[4] y) { y = Add(x, w) }")
    far.graph.initializer.append(external("w", [4], location="../far.bin", offset=0, length=16))
    save(here, far, "far.onnx")

    copies, strict = check("twin.onnx", "--no-duplicates", "--strict", code=1)["rules"]
    (outside,) = check("far.onnx", "--no-external-outside", code=1)["rules"]

    assert (copies["observed"], copies["exceeded_by"], copies["unit"]) == (64, 64, "bytes")
    assert strict["contributors"][0] == {"name": "duplicate-content", "value": 1, "baseline": None}
    ignored = [option for each in strict["contributors"] for option in ("--ignore", each["name"])]
    check("twin.onnx", "--strict", *ignored, code=0)
    check("twin.onnx", "--strict", *ignored[2:], code=1)
    check("twin.onnx", "--max-nodes", "2", code=0)
    assert (outside["observed"], outside["contributors"][0]["name"]) == (1, "w")


DOUBLING = """
    <ir_version: 10, opset_import: ["" : 18, "f" : 1]>
    g (float[1] x) => (float[1] y) {{ y = f.a0(x) }}
"""


def chain(length: int, last: str = "Neg") -> onnx.ModelProto:
    """Return functions that each call the next one twice: 1, 2, 4, ... calls."""
    bodies = []
    for at in range(length):
        then = f"f.a{at + 1}" if at + 1 < length else last
        body = f"{{{{ h = {then} (x) y = {then} (h) }}}}"
        bodies.append(f'<domain: "f", opset_import: ["" : 18, "f" : 1]> a{at} (x) => (y) {body}')
    return onnx.parser.parse_model((DOUBLING + "\n".join(bodies)).format())


def test_calls_of_functions_have_a_budget(here: Path) -> None:
    save(here, chain(5), "chain.onnx")

    (rule,) = check("chain.onnx", "--max-calls", "30", code=1)["rules"]

    assert (rule["observed"], rule["unit"], rule["exceeded_by"]) == (31, "calls", 1)
    assert rule["contributors"][0] == {"name": "function:f:a4", "value": 16, "baseline": None}
    check("chain.onnx", "--max-calls", "31", code=0)
    check(saved("chain.onnx"), "--max-calls", "30", code=1)
    check("model.onnx", "--max-calls", "0", code=0)


@pytest.mark.parametrize(
    ("length", "last", "message"), [(130, "Neg", "more than 2^128 times"), (2, "f.a0", "calls itself")]
)
def test_calls_without_end_are_beyond_every_budget(here: Path, length: int, last: str, message: str) -> None:
    save(here, chain(length, last), "chain.onnx")

    (rule,) = check("chain.onnx", "--max-calls", "1T", code=1)["rules"]

    assert (rule["status"], rule["observed"], rule["exceeded_by"], rule["skipped"]) == (
        "FAIL",
        None,
        None,
        None,
    )
    assert message in rule["message"]
    for style in ("text", "markdown", "csv"):
        assert message in run_here("check", "chain.onnx", "--max-calls", "1T", "--format", style).stdout
    for suffix in ("xml", "sarif", "html"):
        file = Path(f"out.{suffix}")
        assert run_here("check", "chain.onnx", "--max-calls", "1T", "-o", file).returncode == 1
        assert message in file.read_text()


# rules of a config


def test_flags_and_rules_are_all_evaluated_the_config_first() -> None:
    rules("name = 'size'\nmetric = 'bytes'\nlimit = '1 MB'\nmessage = 'ask ops'")

    document = check("model.onnx", "--max-nodes", "2", code=0)

    assert [(rule["name"], rule["origin"], rule["advice"]) for rule in document["rules"]] == [
        ("size", "onnxledger.toml:2", "ask ops"),
        ("max-nodes", "--max-nodes", ""),
    ]
    assert list(states(check("model.onnx", "--max-nodes", "2", "--no-config", code=0))) == ["max-nodes"]


def test_a_rule_may_be_about_some_models_and_a_part_of_them(here: Path) -> None:
    (here / "out").mkdir()
    make(here / "out", "b.onnx", width=9)
    rules(
        "name = 'enc'\nmetric = 'parameters'\ngroup = 'enc'\nlimit = 32",
        "name = 'own'\nmetric = 'parameters'\ngroup = 'mine'\nlimit = 26\nmatch = 'out/*.onnx'",
        head="[groups]\nmine = '^dec'\n",
    )

    document = check("model.onnx", "out", code=1)

    assert document["models"] == ["model.onnx", "out/b.onnx"]
    assert [
        (rule["name"], rule["model"], rule["observed"], rule["status"]) for rule in document["rules"]
    ] == [
        ("enc", "model.onnx", 32, "PASS"),
        ("enc", "out/b.onnx", 36, "FAIL"),
        ("own", "out/b.onnx", 27, "FAIL"),
    ]


def test_what_does_not_apply_is_skipped_and_harmless_beside_what_passes() -> None:
    rules(
        "name = 'off'\nmetric = 'nodes'\nlimit = 0\nenabled = false",
        "name = 'other'\nmetric = 'nodes'\nlimit = 0\nmatch = 'nowhere/*.onnx'",
        "name = 'on'\nmetric = 'nodes'\nlimit = 2",
    )

    assert states(check("model.onnx", code=0)) == {"off": "disabled", "other": "not-matched", "on": "PASS"}


def test_a_glob_that_fits_no_model_is_reported_below_the_verdict() -> None:
    rules(
        "name = 'on'\nmetric = 'nodes'\nlimit = 2",
        "name = 'other'\nmetric = 'nodes'\nlimit = 0\nmatch = 'nowhere/*.onnx'",
    )
    sentence = "1 rule matches no model that was checked: see whether the glob is right"

    text, markdown = (
        run_here("check", "model.onnx", "--format", style).stdout for style in ("text", "markdown")
    )

    assert text.splitlines()[1:3] == ["PASS: 1 passed, 1 skipped", sentence]
    assert f"\n{sentence}\n" in markdown


def test_where_nothing_was_evaluated_there_is_no_answer() -> None:
    rules(
        "name = 'off'\nmetric = 'nodes'\nlimit = 9\nenabled = false",
        "name = 'other'\nmetric = 'nodes'\nlimit = 9\nmatch = 'nowhere/*.onnx'",
    )

    check("model.onnx", code=2)

    lines = run_here("check", "model.onnx").stdout.splitlines()
    assert lines[1] == "NO ANSWER (not a pass): 0 passed, 2 skipped"


# rules that cannot be evaluated


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("metric = 'parameters'\nlimit = 99\ngroup = 'encoder'", "no group, scope or block of the model"),
        (
            "metric = 'parameters'\nlimit = 99\ngroup = 'nothing'",
            "no tensor and no node of the model is in the group",
        ),
        ("metric = 'bytes'\nlimit = '+2 % over nowhere.json'", "nowhere.json"),
        ("metric = 'bytes'\nlimit = '+2 % over onnxledger.toml'", "onnxledger.toml"),
        ("metric = 'nodes'\nlimit = '+2 % over empty.onnx'", "a baseline of 0"),
        ("metric = 'nodes'\nlimit = '-5'\n", "less than the required decrease"),
    ],
)
def test_what_cannot_be_evaluated_is_never_green(here: Path, table: str, reason: str) -> None:
    save(here, text_model("g (float[1] x) => (float[1] x) {}"), "empty.onnx")
    rules(
        f"name = 'a'\n{table}",
        head="baseline = 'model.onnx'\nbaseline-any = true\n[groups]\nnothing = '^zzz'\n",
    )

    (rule,) = check("model.onnx", code=2)["rules"]

    assert (rule["status"], rule["skipped"], rule["observed"]) == ("SKIP", "not-evaluated", None)
    assert reason in rule["message"]


@pytest.mark.parametrize("flag", [("--no-duplicates",), ("--strict",)])
def test_where_contents_were_not_looked_at_nothing_that_rests_on_them_passes(flag: tuple[str, ...]) -> None:
    check("model.onnx", *flag, code=0)

    (rule,) = check("model.onnx", *flag, "--content", "none", code=2)["rules"]

    assert rule["skipped"] == "not-evaluated"


def test_what_a_saved_report_does_not_hold_is_not_evaluated() -> None:
    report = saved()
    Path("ops.txt").write_text("MatMul\n")

    document = check(report, "--max-bytes", "1MB", "--allowed-ops", "ops.txt", "--max-macs", "1M", code=2)

    assert states(document) == {"max-bytes": "PASS", "allowed-ops": "PASS", "max-macs": "not-evaluated"}


@pytest.mark.parametrize("content", [b"", b"\x00\x01garbage", b"<html>"])
def test_a_model_that_cannot_be_read_is_no_pass_and_the_others_are_judged(content: bytes) -> None:
    Path("bad.onnx").write_bytes(content)

    document = check("bad.onnx", "nowhere.onnx", "model.onnx", "--max-nodes", "2", code=2)

    assert document["models"] == ["model.onnx", "bad.onnx", "nowhere.onnx"]
    assert [row["model"] for row in document["unreadable"]] == ["bad.onnx", "nowhere.onnx"]
    assert [(rule["model"], rule["status"], rule["skipped"]) for rule in document["rules"]] == [
        ("model.onnx", "PASS", None),
        ("bad.onnx", "SKIP", "not-evaluated"),
        ("nowhere.onnx", "SKIP", "not-evaluated"),
    ]
    assert check("bad.onnx", "model.onnx", "--max-nodes", "1", code=1)["unreadable"]


def test_an_unreadable_model_that_no_rule_is_about_is_no_pass_either() -> None:
    Path("bad.onnx").write_bytes(b"")
    rules("name = 'a'\nmetric = 'nodes'\nlimit = 2\nmatch = 'model.onnx'")

    document = check("bad.onnx", "model.onnx", code=2)

    assert states(document) == {"a": "PASS"}


def test_a_rule_on_an_unreadable_model_alone_is_not_reported_as_matching_none() -> None:
    Path("bad.onnx").write_bytes(b"")
    rules(
        "name = 'a'\nmetric = 'nodes'\nlimit = 2\nmatch = 'bad.onnx'",
        "name = 'off'\nmetric = 'nodes'\nlimit = 2\nenabled = false",
    )

    assert states(check("bad.onnx", "model.onnx", code=2)) == {"a": "not-evaluated", "off": "disabled"}


def test_a_folder_without_models_is_no_pass(here: Path) -> None:
    (here / "none").mkdir()

    (row,) = check("none", "model.onnx", "--max-nodes", "2", code=2)["unreadable"]

    assert row == {
        "model": "none",
        "error": "the folder has no .onnx file; name a model, or a folder with models",
    }


# baselines


def test_a_growth_is_over_the_report_that_is_named_nearest(here: Path) -> None:
    wide = make(here, "wide.onnx", width=9)
    saved(wide, "wide.json")
    saved()
    rules(
        "name = 'usual'\nmetric = 'parameters'\nlimit = '+0'",
        "name = 'own'\nmetric = 'parameters'\nlimit = '+0 over wide.json'",
        head="baseline = 'main.json'",
    )

    by_config = check("wide.onnx", code=1)
    by_flag = check("wide.onnx", "--baseline", "wide.json", code=0)

    assert [(rule["name"], rule["baseline"], rule["status"]) for rule in by_config["rules"]] == [
        ("usual", 56, "FAIL"),
        ("own", 63, "PASS"),
    ]
    assert [rule["baseline"] for rule in by_flag["rules"]] == [63, 63]


def test_contributors_beside_a_baseline_are_the_largest_changes(here: Path) -> None:
    saved()
    make(here, width=10)

    (rule,) = check("model.onnx", "--max-parameters", "+2 % over main.json", code=1)["rules"]

    assert (rule["observed"], rule["baseline"], rule["limit"], rule["exceeded_by"]) == (70, 56, 57, 13)
    assert rule["contributors"] == [
        {"name": "enc", "value": 40, "baseline": 32},
        {"name": "dec", "value": 30, "baseline": 24},
    ]


def test_a_model_may_be_the_baseline_and_a_report_the_model() -> None:
    report = saved()

    check(report, "--max-parameters", "+0", "--baseline", "model.onnx", code=0)


BERT = ("embeddings.words", "encoder.0.query", "encoder.0.key", "pooler.dense")
ALBERT = ("embeddings.words", "encoder.group.query", "encoder.group.key", "encoder.mapping")


def tower(folder: Path, names: tuple[str, ...], file: str, width: int = 4, ends: str = "xy") -> Path:
    """Save a chain of matrices, one for each name."""
    reads, *_ = (ends[0], *range(9))
    nodes, previous = [], reads
    for at, name in enumerate(names):
        then = ends[1] if at + 1 == len(names) else f"h{at}"
        nodes.append(f'{then} = MatMul({previous}, "{name}.weight")')
        previous = then
    text = f"g (float[1,{width}] {ends[0]}) => (float[1,{width}] {ends[1]}) {{ {' '.join(nodes)} }}"
    weights = {f"{name}.weight": ramp(width, width, start=40 * at) for at, name in enumerate(names)}
    folder.mkdir(exist_ok=True)
    return save(folder, text_model(text, weights), file)


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_baseline_of_another_model_is_used_only_with_its_flag(here: Path, is_saved: bool) -> None:
    tower(here, BERT, "bert.onnx", width=8)
    tower(here, ALBERT, "albert.onnx")
    base = saved("bert.onnx", "bert.json") if is_saved else "bert.onnx"
    arguments = ("albert.onnx", "--max-parameters", "+2 %", "--baseline", base)

    (rule,) = check(*arguments, code=2)["rules"]

    assert (rule["status"], rule["skipped"]) == ("SKIP", "not-evaluated")
    assert "is of another model, bert.onnx: 1 of 4 modules with parameters are in both" in rule["message"]
    assert "--baseline-any" in rule["message"]
    check(*arguments, "--baseline-any", code=0)
    rules(
        "name = 'a'\nmetric = 'parameters'\nlimit = '+2 %'", head=f"baseline = '{base}'\nbaseline-any = true"
    )
    check("albert.onnx", code=0)


def test_a_part_of_a_larger_model_does_not_pass_under_its_budget(here: Path) -> None:
    tower(here, BERT, "whole.onnx")
    tower(here, BERT[:1], "part.onnx")

    check("part.onnx", "--max-parameters", "+0", "--baseline", saved("whole.onnx"), code=2)
    check(
        "whole.onnx", "--max-nodes", "9", "--max-parameters", "+0", "--baseline", saved("part.onnx"), code=2
    )


@pytest.mark.parametrize("wrap", ["", "model.backbone."])
def test_a_version_of_one_model_is_judged_wherever_it_lies_and_however_it_grew(here: Path, wrap: str) -> None:
    base = saved(tower(here, BERT, "old.onnx"))
    grown = (*BERT, "encoder.1.query", "encoder.1.key")
    tower(here / "elsewhere", tuple(f"{wrap}{name}" for name in grown), "new.onnx", width=6)

    (rule,) = check("elsewhere/new.onnx", "--max-parameters", "+2 %", "--baseline", base, code=1)["rules"]

    assert (rule["observed"], rule["baseline"]) == (216, 64)


def test_without_pytorch_names_tensors_ends_or_the_file_say_that_it_is_one_model(here: Path) -> None:
    def bare(folder: str, file: str, weight: str, ends: str = "xy") -> Path:
        Path(folder).mkdir(exist_ok=True)
        text = f"g (float[1,4] {ends[0]}) => (float[1,4] {ends[1]}) {{ {ends[1]} = MatMul({ends[0]}, {weight}) }}"
        return save(Path(folder), text_model(text, {weight: ramp(4, 4)}), file)

    bare("a", "m.onnx", "w")
    saved("a/m.onnx")
    for path, code in (
        (bare("b", "other.onnx", "w", "pq"), 0),
        (bare("c", "other.onnx", "v", "xy"), 0),
        (bare("d", "m.onnx", "v", "pq"), 0),
        (bare("e", "other.onnx", "v", "pq"), 2),
    ):
        check(path, "--max-nodes", "+0", "--baseline", "a/m.onnx", code=code)
    check("b/other.onnx", "--max-nodes", "+0", "--baseline", "main.json", code=0)


def test_each_model_of_several_has_the_baseline_of_its_name(here: Path) -> None:
    for file, names in (("bert.onnx", BERT), ("albert.onnx", ALBERT)):
        saved(tower(here / "models", names, file), f"{file.removesuffix('.onnx')}.json")
    rules("name = 'own'\nmetric = 'parameters'\nlimit = '+0 over {stem}.json'")

    for flags in ((), ("--no-config", "--max-parameters", "+0", "--baseline", "{stem}.json")):
        document = check("models", *flags, code=0)
        assert [(rule["model"], rule["baseline"]) for rule in document["rules"]] == [
            ("models/albert.onnx", 64),
            ("models/bert.onnx", 64),
        ]

    Path("albert.json").unlink()
    assert [rule["status"] for rule in check("models", code=2)["rules"]] == ["SKIP", "PASS"]
    done = run_here("check", "models", "-o", "bert.json")
    assert done.returncode == 2
    assert "is an input of this command" in done.stderr


def test_a_flag_wins_over_the_rule_of_the_config_that_limits_the_same() -> None:
    rules(
        "name = 'size'\nmetric = 'parameters'\nlimit = 10",
        "name = 'grown'\nmetric = 'parameters'\nlimit = '+0 over gone.json'",
        "name = 'least'\nmetric = 'parameters'\nlimit = 'at least 56'",
        "name = 'part'\nmetric = 'parameters'\nlimit = 32\ngroup = 'enc'",
    )

    document = check("model.onnx", "--max-parameters", "56", code=0)

    assert states(document) == {
        "size": "overridden",
        "grown": "overridden",
        "least": "PASS",
        "part": "PASS",
        "max-parameters": "PASS",
    }
    assert document["rules"][0]["message"] == "--max-parameters overrides it"
    check("model.onnx", code=1)


@pytest.mark.parametrize("limit", ["9", "'+0'"])
def test_a_baseline_that_is_named_and_is_not_there_is_no_answer_though_no_rule_needs_it(limit: str) -> None:
    rules(
        f"name = 'a'\nmetric = 'nodes'\nlimit = {limit}\nmatch = 'nowhere/*.onnx'",
        "name = 'b'\nmetric = 'nodes'\nlimit = 9",
        head="baseline = 'gone.json'",
    )

    done = run_here("check", "model.onnx")

    assert (done.returncode, done.stdout) == (2, "")
    assert "gone.json: the baseline does not exist" in done.stderr
    saved(name="gone.json")
    check("model.onnx", code=0)


# usage


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("model.onnx",), "no rules: neither onnxledger.toml nor [tool.onnxledger] of pyproject.toml in "),
        (
            ("model.onnx", "--no-config"),
            "no rules: --no-config reads no [[rules]]; give one, such as --max-bytes",
        ),
        (("",), "MODEL: the name is empty"),
        (("model.onnx", "--max-bytes", "3x"), "--max-bytes 3x: '3x': 'x' is not a unit of bytes"),
        (
            ("model.onnx", "--max-bytes", "+2 %"),
            "--max-bytes: the limit on growth has no baseline; end it in 'over main.json'",
        ),
        (("model.onnx", "--baseline", "", "--max-nodes", "2"), "--baseline: the name is empty"),
        (("model.onnx", "--max-nodes", "2", "--no-config", "--config", "x"), "give only one of them"),
        (("model.onnx", "--max-nodes", "2", "--config", "x.toml"), "x.toml: is not there"),
        (("model.onnx", "--max-nodes", "2", "--artifact"), "--artifact: describes a single folder"),
        (("model.onnx", "--allowed-ops", "nowhere"), "nowhere: cannot be read: No such file"),
        (("model.onnx", "--max-nodes", "2", "-o", "model.onnx"), "no format for the suffix"),
        (("main.json", "--max-nodes", "2", "-o", "main.json"), "is an input of this command"),
        (("model.onnx", "--max-nodes", "+0 over b.json", "-o", "b.json"), "is an input of this command"),
        (("model.onnx", "--baseline", "b.json", "--max-nodes", "2"), "--baseline: no rule limits growth"),
    ],
)
def test_wrong_arguments_give_no_answer(arguments: tuple[str, ...], message: str) -> None:
    done = run_here("check", *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_the_baseline_of_a_config_is_not_written_over_where_no_rule_needs_it() -> None:
    rules("name = 'a'\nmetric = 'nodes'\nlimit = 2", head="baseline = 'main.json'")
    before = saved().read_text()

    done = run_here("check", "model.onnx", "-o", "main.json")

    assert (done.returncode, Path("main.json").read_text()) == (2, before)
    assert "is an input of this command" in done.stderr


@pytest.mark.child
def test_a_closed_stdout_ends_with_no_answer_and_no_message() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    arguments = [sys.executable, "-m", "analyzer", "check", "model.onnx", "--max-nodes", "2"]

    with os.fdopen(writer, "wb") as stdout:
        done = subprocess.run(arguments, stdout=stdout, stderr=subprocess.PIPE, check=False)

    assert (done.returncode, done.stderr) == (2, b"")


def tamper(document: dict[str, Any], *path: str | int, value: object = None) -> None:
    """Set the value at a path, or remove it if none is given."""
    at: Any = document
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("tensors", 0), None, "totals, stored_tensors: 2, and its parts are 1"),
        (("tensors", 0, "parameters"), 1, "totals, parameters: 56, and its parts are 33"),
        (("tensors", 0, "stored_elements"), 1, "totals, stored_elements"),
        (("tensors", 0, "bytes"), 1, "totals, stored_bytes"),
        (("totals", "parameters"), True, "Expected `int`, got `bool` - at `$.totals.parameters`"),
        (("model", "files", 0, "bytes"), 1, "totals, file_bytes"),
        (("accounts", 0), None, "totals, file_bytes"),
        (("findings",), None, "missing required field `findings`"),
        (("model", "opsets", "ai.onnx"), 99.5, "Expected `int`, got `float` - at `$.model.opsets[...]`"),
        (("model", "opsets", "ai.onnx"), "99", "Expected `int`, got `str` - at `$.model.opsets[...]`"),
        (("model", "ir_version"), True, "Expected `int`, got `bool` - at `$.model.ir_version`"),
        (("model", "functions"), 10**30, "functions"),
        pytest.param(("model", "nodes"), 10**600, "a number of 1,994 bits", id="huge"),
        (("tensors", 0, "copy_of"), 5, "Expected `str | null`, got `int` - at `$.tensors[0].copy_of`"),
        (("tensors", 0, "sources"), "x", "Expected `array`, got `str` - at `$.tensors[0].sources`"),
        (("tensors", 0, "shape"), "x", "Expected `array`, got `str` - at `$.tensors[0].shape`"),
        (("tensors", 0, "shape", 0), float("nan"), "at `$.tensors[0].shape[0]`"),
        (("tensors", 0, "uses"), "x", "at `$.tensors[0].uses`"),
        (("accounts", 0, "account"), ["x"], "at `$.accounts[0].account`"),
        (("model", "files", 0, "path"), 3, "at `$.model.files[0].path`"),
    ],
)
def test_a_report_that_contradicts_itself_is_neither_a_model_nor_a_baseline(
    path: tuple[str | int, ...], value: object, reason: str
) -> None:
    document = json.loads(saved().read_text())
    tamper(document, *path, value=value)
    Path("main.json").write_text(json.dumps(document))

    report = check("main.json", "--max-nodes", "2", "--min-opset", "17", code=2)
    beside = check("model.onnx", "--max-nodes", "+0 over main.json", code=2)

    assert reason in report["unreadable"][0]["error"]
    assert reason in beside["rules"][0]["message"]
    compared = run_here("compare", "main.json", "model.onnx")
    assert (compared.returncode, compared.stdout) == (2, "")
    assert reason in compared.stderr


def test_a_growth_over_nothing_is_reported_with_the_other_mistakes_of_the_config() -> None:
    rules("name = 'a'\nmetric = 'bytes'\nlimit = '+2 %'", "name = 'b'\nmetric = 'byte'\nlimit = 3")

    done = run_here("check", "model.onnx")

    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("onnxledger: onnxledger.toml:5: rule 'a': limit: a growth needs a baseline")
    assert second.startswith("onnxledger: onnxledger.toml:9: rule 'b': 'byte' is not a metric")


def test_an_artifact_is_one_model(here: Path) -> None:
    parts = here / "parts"
    parts.mkdir()
    for name in ("a.onnx", "b.onnx"):
        make(parts, name)

    many = check("parts", "--max-parameters", "56", code=0)
    one = check("parts", "--max-parameters", "56", "--artifact", code=0)
    (parts / "export.json").write_text(json.dumps({"components": {n: {"file": f"{n}.onnx"} for n in "ab"}}))
    noted = check("parts", "model.onnx", "--max-parameters", "56", code=0)

    assert many["models"] == ["parts/a.onnx", "parts/b.onnx"]
    assert one["models"] == ["parts"]
    assert noted["models"] == ["parts", "model.onnx"]


def test_a_model_that_is_named_twice_is_judged_once() -> None:
    assert check("model.onnx", "./model.onnx", "--max-nodes", "2", code=0)["models"] == ["model.onnx"]


def test_a_regex_that_would_never_end_is_stopped(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analyzer.commands.run.SEARCH_SECONDS", 0.2)
    name = "a" * 60 + "!.weight"
    save(here, text_model(f'g (float[2] x) => (float[2] y) {{ y = Add(x, "{name}") }}', {name: ramp(2)}))
    rules("name = 'a'\nmetric = 'parameters'\ngroup = 'slow'\nlimit = 2", head="[groups]\nslow = '(a+)+$'\n")

    done = run_here("check", "model.onnx")

    assert (done.returncode, done.stdout) == (2, "")
    assert "a regex takes too long" in done.stderr


# output


def test_the_text_has_the_verdict_first_and_a_line_for_each_rule(golden: Any, here: Path) -> None:
    saved()
    make(here, width=300)
    Path("bad.onnx").write_bytes(b"")
    rules(
        "name = 'size'\nmetric = 'bytes'\nlimit = '+2 % and +5 kB'\nmessage = 'The phone has no more room.'",
        "name = 'each part, by a rather long name that has to be folded'\n"
        "metric = 'parameters'\ngroup = '*'\nlimit = 1000",
        "name = 'lost'\nmetric = 'parameters'\ngroup = 'encoder'\nlimit = 1000",
        "name = 'off'\nmetric = 'nodes'\nlimit = 0\nenabled = false",
        head="baseline = 'main.json'",
    )

    done = run_here(
        "check", "model.onnx", "bad.onnx", "--allowed-dtypes", "FLOAT16", "--min-opset", "17", "-n", "1"
    )

    assert done.returncode == 1
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.splitlines()[1].startswith("FAIL: ")
    assert done.stderr == "onnxledger: 1 of 2 cannot be read\n"
    golden("check", done.stdout)


def test_a_clean_check_begins_with_pass() -> None:
    done = run_here("check", "model.onnx", "--max-nodes", "2", "--min-opset", "17")

    assert done.stdout.splitlines()[1] == "PASS: 2 passed"


def test_quiet_prints_nothing() -> None:
    Path("bad.onnx").write_bytes(b"")
    done = run_here(
        "check", "model.onnx", "bad.onnx", "--max-nodes", "1", "--quiet", "-o", "r.json", "-o", "r.xml"
    )

    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    assert json.loads(Path("r.json").read_text())["passed"] is False
    assert Path("r.xml").read_text().startswith("<?xml")


def test_a_second_run_writes_the_same_and_a_stamp_says_when() -> None:
    first, second = (run_here("check", "model.onnx", "--max-nodes", "1", "--format", "json") for _ in "ab")

    assert first.stdout == second.stdout
    assert "generated_at" not in json.loads(first.stdout)
    assert "generated_at" in check("model.onnx", "--max-nodes", "2", "--stamp", code=0)


def test_names_that_are_hostile_are_escaped(here: Path) -> None:
    name = "w\x1b[2J\u202e<b>&\"'"
    weights = {name: np.arange(4, dtype=np.float32) + 1}
    proto = text_model("g (float[4] x) => (float[4] y) { y = Add(x, w) }")
    proto.graph.node[0].input[1] = name
    save(here, proto, "plain.onnx")
    save(here, _with(proto, weights), "a\x1b]0;x\x07.onnx")
    rules('name = "r\\u001b[2J"\nmetric = "unattributed"\nlimit = 0\nmessage = "m\\u001b[31m"')

    done = run_here("check", "a\x1b]0;x\x07.onnx", "--allowed-dtypes", "INT8", "-n", "0")

    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "a\\x1b]0;x\\x07.onnx" in done.stdout
    check("a\x1b]0;x\x07.onnx", code=1)


def _with(proto: Any, weights: dict[str, Any]) -> Any:
    made = text_model("g (float[1] x) => (float[1] x) {}", weights)
    proto.graph.initializer.extend(made.graph.initializer)
    return proto


@pytest.mark.skipif(os.name == "nt", reason="names of files are Unicode there")
def test_a_path_that_is_not_utf8_is_reported(here: Path) -> None:
    path = os.fsdecode(b"m\xff.onnx")
    make(here, path)

    assert check(path, "--max-nodes", "2", code=0)["models"] == ["m\\xff.onnx"]


# the page

PAGE = (Path(__file__).parents[1] / "docs" / "budgets.md").read_text(encoding="utf-8")


def test_the_page_has_every_metric_with_what_it_counts() -> None:
    rows = [
        f"| `{each.name}` | {each.unit} | {each.kind} | {'yes' if each.has_groups else ''} | {each.meaning} |"
        for each in METRICS.values()
    ]

    assert "|---|---|---|---|---|\n" + "\n".join(rows) + "\n\n" in PAGE


def test_the_page_has_every_flag_with_its_metric_and_every_other_option() -> None:
    rows = dict(re.findall(r"^\| `(--[\w-]+)[^`]*` \| `([\w-]+)`,", PAGE, re.MULTILINE))

    assert rows == METRICS_OF
    options = [option for parameter in command.params for option in parameter.opts if option[0] == "-"]
    assert len(options) > 20
    for option in options:
        assert re.search(rf"`{option}[ `]", PAGE), option


def test_the_page_has_every_key_of_a_rule() -> None:
    section = PAGE.partition("## A budget file")[2].partition("## Limits")[0]

    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(KEYS)


def test_the_budget_of_the_page_can_be_used_and_its_wrong_ones_cannot(here: Path) -> None:
    files = re.findall(r"^\$ cat > \S*/(\S+\.toml) <<'END'\n(.*?)^> END$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(files) > 1

    for name, text in files:
        path = here / name
        path.write_text(text.replace("\n> ", "\n").removeprefix("> "), encoding="utf-8")
        done = run_here("check", "model.onnx", "--config", path.name)
        if name == "onnxledger.toml":
            assert [rule.name for rule in load_config(path).rules] == [
                "growth",
                "word tables",
                "layers",
                "types",
                "nodes",
            ]
        else:
            assert (done.returncode, done.stdout) == (2, ""), name
            assert all(f"onnxledger: build/gate/{line}" in PAGE for line in _messages_of(done.stderr)), (
                done.stderr
            )


def _messages_of(messages: str) -> list[str]:
    return [line.removeprefix("onnxledger: ") for line in messages.splitlines()]


def test_of_many_models_the_first_screen_has_few_verdicts_and_v_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(8):
        save(tmp_path, text_model("g (float[2] x) => (float[2] y) { y = Relu(x) }"), f"m{number}.onnx")

    brief = run_here("check", ".", "--max-nodes", "0").stdout
    whole = run_here("check", ".", "--max-nodes", "0", "-v").stdout

    assert len(re.findall(r"^max-nodes .* FAIL ", brief, re.M)) == 5
    assert "[4 others]" in brief
    assert len(re.findall(r"^max-nodes .* FAIL ", whole, re.M)) == 9
