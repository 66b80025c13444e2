"""Configs: their places, the message for each mistake, and the precedence of groups."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from commands import run_here
from models import ramp, save, text_model

from analyzer.account.group.patterns import MAX_LENGTH, find_groups
from analyzer.budget.config import MAX_BYTES, Config, load_config
from analyzer.budget.config.rules import FLAWS
from analyzer.budget.measuring import METRICS
from analyzer.budget.record import Among, AtMost, Growth, Over, Rule, Unit
from analyzer.commands.run import SEARCH_SECONDS
from analyzer.errors import ConfigError
from analyzer.schemas import load_schema


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str | bytes, name: str = "onnxledger.toml") -> Path:
    path = Path(name)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def mistakes(text: str | bytes, name: str = "onnxledger.toml") -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_config(write(text, name))
    return caught.value.mistakes


GROUPS = """
match = "first"

[groups]
words = 'word_embeddings'
others = ['^encoder', "pooler"]
"""


# places


def test_without_a_file_there_is_nothing() -> None:
    config = load_config()

    assert config == Config()
    assert (config.origin, dict(config.groups), config.match) == ("", {}, None)


def test_groups_keep_their_order_and_a_list_is_any_of_its_patterns() -> None:
    write(GROUPS)

    config = load_config()

    assert (config.origin, list(config.groups), config.match) == (
        "onnxledger.toml",
        ["words", "others"],
        "first",
    )
    assert find_groups(["encoder.layer"], config.groups, "all") == ["others"]
    assert find_groups(["my.pooler"], config.groups, "all") == ["others"]
    assert find_groups(["my.encoder"], config.groups, "all") == []


def test_the_section_of_a_project_is_read_where_there_is_no_file_of_ours() -> None:
    write("[tool.onnxledger.groups]\nenc = 'enc'\n", "pyproject.toml")

    assert (load_config().origin, list(load_config().groups)) == ("pyproject.toml", ["enc"])

    write("[groups]\nown = 'own'\n")

    assert (load_config().origin, list(load_config().groups)) == ("onnxledger.toml", ["own"])


@pytest.mark.parametrize(
    "content",
    [
        "[project]\nname = 'x'",
        "[tool.other]\nonnxledger = 1",
        "not toml at all [",
        b"\xff\xfe",
        "tool = 3 # onnxledger",
    ],
)
def test_a_project_without_our_section_is_not_judged(content: str | bytes) -> None:
    write(content, "pyproject.toml")

    assert load_config() == Config()


def test_a_file_may_have_any_name_and_place() -> None:
    Path("ci").mkdir()
    path = write(GROUPS, "ci/groups.toml")

    assert load_config(path).origin == "ci/groups.toml"


def test_a_file_is_found_through_a_link() -> None:
    write(GROUPS, "shared.toml")
    Path("onnxledger.toml").symlink_to("shared.toml")

    assert load_config().match == "first"


# mistakes


def test_all_mistakes_are_reported_at_once_each_with_its_line() -> None:
    text = """\
# what a user may get wrong
mach = "first"
match = "fisrst"

[group]
x = 1

[groups]
"[x]" = "a"
enc = "("
"" = 'b'
lists = [
  'a',   # one
  '[[:alpha:]]',
  3,
]
none = []
sub.table = 'x'
empty = ""
day = 2024-01-31
"""

    assert mistakes(text) == (
        "onnxledger.toml:2: 'mach' is not a key here; did you mean 'match'?",
        "onnxledger.toml:3: match: must be 'all' or 'first'; did you mean 'first'?",
        "onnxledger.toml:5: 'group' is not a key here; did you mean 'groups'?",
        "onnxledger.toml:9: groups, '[x]': names in brackets are reserved for the report, such as [ungrouped]",
        "onnxledger.toml:10: groups, 'enc': missing ), unterminated subpattern at position 0 in '('",
        "onnxledger.toml:11: groups, '': a group needs a name",
        "onnxledger.toml:14: groups, 'lists': Possible nested set at position 1 in '[[:alpha:]]'",
        "onnxledger.toml:15: groups, 'lists': must be a regex or a list of them, not a number",
        "onnxledger.toml:17: groups, 'none': has no pattern",
        "onnxledger.toml:18: groups, 'sub': must be a regex or a list of them, not a table",
        "onnxledger.toml:19: groups, 'empty': an empty pattern matches everything; write . if that is meant",
        "onnxledger.toml:20: groups, 'day': must be a regex or a list of them, not a date or a time",
    )


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("groups = 3", "1: groups: must be a table of NAME = 'REGEX', not a number"),
        ("[[groups]]\na = 'b'", "1: groups: must be a table of NAME = 'REGEX', not an array"),
        ("\nmatch = true", "2: match: must be 'all' or 'first'; not a boolean"),
        ("match = ['all']", "1: match: must be 'all' or 'first'; not an array"),
        ("match = ''", "1: match: must be 'all' or 'first'; there are all, first"),
        (
            "colour = 1",
            "1: 'colour' is not a key here; there are groups, match, baseline, baseline-any, rules",
        ),
        (
            "'a\\n\u00e9' = 1",
            "1: 'a\\\\né' is not a key here; there are groups, match, baseline, baseline-any, rules",
        ),
        (
            '"\\u202e" = 1',
            "1: '\\u202e' is not a key here; there are groups, match, baseline, baseline-any, rules",
        ),
        ("[groups]\na = 'x'\na = 'y'", "3: not TOML: Cannot overwrite a value"),
        ('[groups]\na = "\\.x"', "2: not TOML: Unescaped '\\' in a string; write regexes in single quotes"),
        ('match = "all\n', "1: not TOML: Illegal character '\\n'"),
        ("[groups\n", "1: not TOML: Expected ']' at the end of a table declaration"),
        ("a = 1\nb = '\xe9'".encode("latin-1"), "2: not UTF-8: invalid continuation byte; save it as UTF-8"),
        (f"[groups]\na = '{'x' * 1001}'", "2: groups, 'a': a pattern of 1,001 characters; 1,000 are allowed"),
    ],
)
def test_a_mistake_names_its_line(text: str | bytes, mistake: str) -> None:
    (found,) = mistakes(text)

    assert found == f"onnxledger.toml:{mistake}"


def test_a_mistake_in_a_pyproject_is_reported_with_its_line_there() -> None:
    text = "[project]\nname = 'x'\n\n[tool.onnxledger]\nmatch = 'any'\ngroups.a = '('\n"

    first, second = mistakes(text, "pyproject.toml")

    assert first.startswith("pyproject.toml:5: match: must be 'all' or 'first'")
    assert second.startswith("pyproject.toml:6: groups, 'a': missing )")
    assert mistakes("tool.onnxledger = 1", "pyproject.toml") == (
        "pyproject.toml:1: tool.onnxledger: must be a table, not a number",
    )


def test_a_project_that_is_named_must_have_our_section() -> None:
    (found,) = mistakes("[project]", "pyproject.toml")

    assert found.startswith("pyproject.toml: has no [tool.onnxledger]; name another with --config FILE")


def test_only_as_many_mistakes_are_reported_as_a_person_can_read() -> None:
    found = mistakes("".join(f"key{i} = 1\n" for i in range(250)))

    assert len(found) == 101
    assert found[-1] == "onnxledger.toml: and 150 more mistakes"


# hostile files


def test_a_pipe_does_not_hang() -> None:
    os.mkfifo("onnxledger.toml")

    with pytest.raises(ConfigError, match=r"onnxledger\.toml: is not a regular file; name another"):
        load_config()


@pytest.mark.parametrize("name", ["onnxledger.toml", "pyproject.toml"])
def test_a_folder_in_the_place_of_a_file_is_reported(name: str) -> None:
    Path(name).mkdir()

    with pytest.raises(ConfigError, match=f"{name}: is a folder"):
        load_config()


def test_a_device_is_not_read() -> None:
    with pytest.raises(ConfigError, match="/dev/zero: is not a regular file"):
        load_config(Path("/dev/zero"))


def test_a_link_in_a_circle_is_reported() -> None:
    Path("onnxledger.toml").symlink_to("onnxledger.toml")

    with pytest.raises(
        ConfigError, match=r"onnxledger\.toml: cannot be read: Too many levels of symbolic links"
    ):
        load_config()


def test_a_file_that_is_not_there_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: is not there; name another"):
        load_config(Path("nowhere.toml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#" * (MAX_BYTES + 1), "has more than 262,144 bytes"),
        ("\n" + "a." * 100_000 + "a = 1", "onnxledger.toml:2: a key of more than 16 parts"),
        ("[" + "a." * 100_000 + "a]", "a key of more than 16 parts"),
        ("'x'." * 17 + "a = 1", "a key of more than 16 parts"),
        ("a = " + "[" * 100_000, "nested too deep"),
        ("a = " + "{b = " * 20_000, "nested too deep"),
        ("a = " + "9" * 100_000, "not TOML: Exceeds the limit"),
        ("a = \x00", "onnxledger.toml:1: not TOML: Invalid value"),
    ],
)
def test_a_file_that_is_too_much_is_refused(text: str, message: str) -> None:
    (found,) = mistakes(text)

    assert message in found


def test_a_sparse_file_of_a_terabyte_is_refused_without_reading_it() -> None:
    with Path("onnxledger.toml").open("wb") as stream:
        stream.truncate(1 << 40)

    with pytest.raises(ConfigError, match="has more than 262,144 bytes"):
        load_config()


# commands


@pytest.fixture
def model(here: Path) -> Path:
    """Save a model of 7 x 3 + 3 x 3 + 3 x 2 = 36 parameters."""
    proto = text_model(
        """
        g (int64[1,4] ids) => (float[1,4,2] y) {
            h0 = Gather("word_embeddings.weight", ids)
            h1 = MatMul(h0, "encoder.weight")
            y = MatMul(h1, "pooler.weight")
        }
        """,
        {"word_embeddings.weight": ramp(7, 3), "encoder.weight": ramp(3, 3), "pooler.weight": ramp(3, 2)},
    )
    return save(here, proto)


def inspect(*arguments: object) -> dict[str, Any]:
    done = run_here("inspect", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(report, load_schema("inspect"))
    return report


def groups(report: dict[str, Any]) -> dict[str, int]:
    return {group["group"]: group["parameters"] for group in report["groups"]}


def test_the_groups_of_a_config_are_used_and_reported(model: Path) -> None:
    write(GROUPS)

    report = inspect(model)

    assert groups(report) == {"words": 21, "others": 15}
    assert (report["by"], report["match"], report["groups_from"]) == ("group", "first", "onnxledger.toml")
    assert (
        "Groups from onnxledger.toml, each tensor in the first that matches\n"
        in run_here("inspect", model).stdout
    )


@pytest.mark.parametrize(
    ("options", "by", "match", "origin"),
    [
        (("--by", "scope"), "scope", None, None),
        (("--by", "dtype"), "dtype", None, None),
        (("--depth", "1"), "scope", None, None),
        (("--no-config",), "scope", None, None),
        (("--match", "all"), "group", "all", "onnxledger.toml"),
        (("--group", "a=w"), "group", "first", "--group"),
        (("--group", "a=w", "--match", "all"), "group", "all", "--group"),
        (("--group", "a=w", "--no-config"), "group", "all", "--group"),
        (("--preset", "bert"), "group", "first", "preset bert"),
        (("--preset", "bert", "--match", "all"), "group", "all", "preset bert"),
        (("--config", "other.toml"), "group", "all", "other.toml"),
    ],
)
def test_what_is_given_wins_over_the_config(
    model: Path, options: tuple[str, ...], by: str, match: str | None, origin: str | None
) -> None:
    write(GROUPS)
    write("[groups]\nall = '.'\n", "other.toml")

    report = inspect(model, *options)

    assert (report["by"], report["match"], report["groups_from"]) == (by, match, origin)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--by", "op", "--group", "a=b"), "--by and --group: each defines the groups"),
        (("--preset", "bert", "--group", "a=b"), "--group and --preset: each defines"),
        (("--preset", "bert", "--by", "op"), "--by and --preset: each defines"),
        (("--preset", "bert", "--depth", "2"), "--depth: shortens scopes, but --preset defines other groups"),
        (("--no-config", "--config", "x"), "--config and --no-config: give only one of them"),
        (("--match", "all"), "--match: applies only to groups of your own"),
        (("--match", "any", "--group", "a=b"), "'any' is not one of 'all', 'first'"),
        (("--preset", "brt"), "--preset brt: did you mean bert? There are bert, roberta"),
        (("--preset", "auto"), "model.onnx: no preset"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    model: Path, options: tuple[str, ...], message: str
) -> None:
    done = run_here("inspect", model, *options)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize("options", [(), ("--by", "op"), ("--group", "a=b"), ("--preset", "bert")])
def test_a_wrong_config_is_an_error_whatever_is_given(model: Path, options: tuple[str, ...]) -> None:
    write("mach = 1\n[groups]\na = '('\n")

    done = run_here("inspect", model, *options)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "onnxledger: onnxledger.toml:1: 'mach' is not a key here; did you mean 'match'?",
        "onnxledger: onnxledger.toml:3: groups, 'a': missing ), unterminated subpattern at position 0 in '('",
    ]


def test_a_regex_that_would_never_end_is_stopped(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analyzer.commands.run.SEARCH_SECONDS", 0.2)
    name = "a" * 60 + "!.weight"
    model = save(
        here, text_model(f'g (float[2] x) => (float[2] y) {{ y = Add(x, "{name}") }}', {name: ramp(2)})
    )
    write("[groups]\nslow = '(a+)+$'\n")

    done = run_here("inspect", model)

    assert (done.returncode, done.stdout) == (2, "")
    assert "onnxledger.toml: a regex takes too long; write it without nested repeats" in done.stderr


def test_compare_uses_the_groups_of_a_config_on_both_sides(model: Path) -> None:
    write(GROUPS)

    done = run_here("compare", model, model, "--format", "json")

    report = json.loads(done.stdout)
    jsonschema.validate(report, load_schema("compare"))
    assert [group["group"] for group in report["groups"]] == ["words", "others"]
    assert (report["match"], report["groups_from"]) == (
        "first",
        {"a": "onnxledger.toml", "b": "onnxledger.toml"},
    )
    assert (
        "Groups from onnxledger.toml, each tensor in the first that matches"
        in run_here("compare", model, model).stdout
    )


@pytest.mark.child
def test_many_models_have_a_row_each_and_no_groups(model: Path) -> None:
    write(GROUPS)
    write(model.read_bytes(), "second.onnx")

    done = run_here("inspect", model, "second.onnx", "--format", "json")

    assert done.returncode == 0
    assert "groups" not in json.loads(done.stdout)


@pytest.mark.parametrize("option", [("--preset", "bert"), ("--match", "all")])
def test_many_models_refuse_groups_that_are_given(model: Path, option: tuple[str, str]) -> None:
    write(GROUPS)
    write(model.read_bytes(), "second.onnx")

    done = run_here("inspect", model, "second.onnx", *option)

    assert done.returncode == 2
    assert f"{option[0]}: applies to a single model" in done.stderr


# rules

RULES = """
baseline = "main.json"

[[rules]]
name = "size"
metric = "bytes"
limit = "at most +2 % and +5 MB"
message = "ask ops"

[[rules]]
name = "tables"
match = "out/*.onnx"
group = "embeddings"
metric = "parameters"
limit = 24_000_000
enabled = false

[[rules]]
name = "types"
metric = "dtypes"
limit = ["FLOAT16", "INT64"]
"""


def test_rules_are_read_with_the_line_that_each_stands_in() -> None:
    write(RULES)

    config = load_config()

    assert config.baseline == "main.json"
    assert config.rules == (
        Rule(
            "size",
            "bytes",
            Over((Growth(fraction=Fraction(2, 100)), Growth(amount=5_000_000))),
            message="ask ops",
            origin="onnxledger.toml:4",
        ),
        Rule(
            "tables",
            "parameters",
            AtMost(24_000_000),
            match="out/*.onnx",
            group="embeddings",
            origin="onnxledger.toml:10",
            is_enabled=False,
        ),
        Rule("types", "dtypes", Among(frozenset({"FLOAT16", "INT64"})), origin="onnxledger.toml:18"),
    )


@pytest.mark.parametrize(
    ("path_in_config", "found"),
    [("main.json", "ci/main.json"), ("/data/main.json", "/data/main.json"), ("https://x/m", "https://x/m")],
)
def test_files_that_a_config_names_are_seen_from_its_folder(path_in_config: str, found: str) -> None:
    Path("ci").mkdir()
    rule = f"[[rules]]\nname = 'a'\nmetric = 'bytes'\nlimit = '+0 over {path_in_config}'\n"
    path = write(f"baseline = '{path_in_config}'\n{rule}", "ci/budget.toml")

    config = load_config(path, needs_baseline=True)

    assert config.baseline == found
    assert config.rules[0].limit == Over((Growth(amount=0),), found)


def test_rules_may_stand_in_one_array_and_in_a_project() -> None:
    tables = ("{name = 'a', metric = 'nodes', limit = 3}", "{nme = 'b', metric = 'nodes', limit = 3}")
    text = f"[tool.onnxledger]\nrules = [\n  {tables[0]},\n  {tables[1]},\n]\n"

    assert mistakes(text, "pyproject.toml") == (
        "pyproject.toml:4: rule 2: 'nme' is not a key of a rule; did you mean 'name'?",
        "pyproject.toml:4: rule 2: has no name; a rule has name, metric and limit",
    )


def test_all_mistakes_of_all_rules_are_reported_at_once() -> None:
    text = """\
baseline = 3
[[rules]]
nme = "size"
metric = "bytes"
limit = "450 MiBB"
[[rules]]
name = "size"
metric = "metadata_bytes"
limit = 3
[[rules]]
name = "size"
metric = "parameters"
limit = "450 MiB"
enabled = "no"
"""

    assert mistakes(text) == (
        "onnxledger.toml:1: baseline: must be a saved report or a model, as 'main.json'; not a number",
        "onnxledger.toml:2: rule 1: has no name; a rule has name, metric and limit",
        "onnxledger.toml:3: rule 1: 'nme' is not a key of a rule; did you mean 'name'?",
        "onnxledger.toml:5: rule 1: limit: '450 MiBB': 'MiBB' is not a unit of bytes; did you mean MiB?",
        "onnxledger.toml:8: rule 'size': 'metadata_bytes' is not a metric; did you mean 'metadata-bytes'?",
        "onnxledger.toml:11: rule 'size': line 7 has the same name; give it another",
        "onnxledger.toml:13: rule 'size': limit: '450 MiB': MiB counts bytes, and these are parameters; "
        "write k, M, G, T, or no unit",
        "onnxledger.toml:14: rule 'size': enabled: must be true or false, without quotes, not a string",
    )


def rule(**keys: str) -> str:
    known = {"name": "'a'", "metric": "'bytes'", "limit": "3", **keys}
    return "[[rules]]\n" + "\n".join(f"{key} = {value}" for key, value in known.items())


@pytest.mark.parametrize(
    ("keys", "mistake"),
    [
        ({"name": "''"}, "2: rule 1: name: is empty; a rule needs one"),
        ({"name": "3"}, "2: rule 1: name: must be a string, not a number"),
        ({"metric": "'byte'"}, "3: rule 'a': 'byte' is not a metric; did you mean 'bytes'?"),
        ({"metric": "['bytes']"}, "3: rule 'a': metric: must be a string, not an array"),
        (
            {"limit": "true"},
            "4: rule 'a': limit: must be a whole number or a string, as 110_000_000 or '1.5G', not True",
        ),
        (
            {"limit": "1.5"},
            "4: rule 'a': limit: must be a whole number or a string, as 110_000_000 or '1.5G', not 1.5",
        ),
        (
            {"limit": "-3"},
            "4: rule 'a': limit: -3: a limit cannot be negative; to go below a baseline, write a string such as '-1 %'",
        ),
        (
            {"limit": "['a']"},
            "4: rule 'a': limit: bytes is a number; an array is only for metrics that list names",
        ),
        (
            {"metric": "'ops'"},
            "4: rule 'a': limit: must be an array of operators, as ['MatMul', 'com.microsoft:Gelu']; not a number",
        ),
        (
            {"metric": "'ops'", "limit": "[]"},
            "4: rule 'a': limit: must be an array of operators, as ['MatMul', 'com.microsoft:Gelu']; "
            "an empty array allows nothing",
        ),
        (
            {"metric": "'dtypes'", "limit": "[\n'FLOAT',\n'FLAOT16']"},
            "6: rule 'a': limit: 'FLAOT16' is not a dtype of ONNX; did you mean FLOAT16?",
        ),
        (
            {"metric": "'findings'", "limit": "'at least 3'"},
            "4: rule 'a': limit: findings is best at 0, so it takes no minimum; write at most",
        ),
        (
            {"metric": "'opset'", "limit": "'17M'"},
            "4: rule 'a': limit: '17M': a version has no unit, and 'M' is one; write the number alone",
        ),
        (
            {"metric": "'opset'", "group": "'enc'"},
            "5: rule 'a': group: opset is one number of the whole model; leave group out",
        ),
        ({"match": "''"}, "5: rule 'a': match: is empty; leave it out to include everything"),
        ({"group": "' '"}, "5: rule 'a': group: is empty; leave it out to include everything"),
        ({"message": "2024-01-31"}, "5: rule 'a': message: must be a string, not a date or a time"),
        (
            {"'\u202e'": "1"},
            "5: rule 'a': '\\u202e' is not a key of a rule; there are name, metric, limit, match, group, message, "
            "enabled",
        ),
    ],
)
def test_a_mistake_in_a_rule_names_its_line(keys: dict[str, str], mistake: str) -> None:
    assert mistakes(rule(**keys)) == (f"onnxledger.toml:{mistake}",)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            "[rules]\nname = 'a'",
            "1: rules: must be tables, each below a [[rules]] of its own; "
            "write [[rules]], with two brackets, above each",
        ),
        ("rules = ['a']", "1: rules: must be tables, each below a [[rules]] of its own; an array"),
        ("rules = 3", "1: rules: must be tables, each below a [[rules]] of its own; a number"),
        ("[[rules]]", "1: rule 1: has no name, metric and limit; a rule has name, metric and limit"),
        (
            "baseline = ' '",
            "1: baseline: must be a saved report or a model, as 'main.json'; not an empty name",
        ),
        ("[[rule]]\na = 1", "1: 'rule' is not a key here; did you mean 'rules'?"),
    ],
)
def test_malformed_rules_are_reported(text: str, mistake: str) -> None:
    assert mistakes(text) == (f"onnxledger.toml:{mistake}",)


@pytest.mark.parametrize(
    "value",
    [
        "0x" + "f" * 10_000,
        "inf",
        "nan",
        "[[[[1]]]]",
        "{a = {b = {c = 1}}}",
        "'" + "9" * 10_000 + "'",
        "'\\u0000'",
    ],
)
@pytest.mark.parametrize("key", ["name", "metric", "limit", "match", "group", "message", "enabled", "x"])
def test_a_hostile_value_is_reported_in_a_readable_line(key: str, value: str) -> None:
    reported: tuple[str, ...] = ()
    try:
        load_config(write(rule(**{key: value})))
    except ConfigError as error:
        reported = error.mistakes

    assert all(len(mistake) < 1_000 for mistake in reported)


def test_a_growth_needs_a_baseline_where_one_is_required() -> None:
    path = write(rule(limit="'+2 %'") + "\n" + rule(name="'b'", limit="'+2 % over b.json'"))

    assert [each.name for each in load_config(path).rules] == ["a", "b"]
    with pytest.raises(ConfigError) as caught:
        load_config(path, needs_baseline=True)

    (mistake,) = caught.value.mistakes
    assert mistake.startswith(
        "onnxledger.toml:4: rule 'a': limit: a growth needs a baseline: end it in 'over main.json'"
    )
    write("baseline = 'main.json'\n" + rule(limit="'+2 %'"))
    assert load_config(path, needs_baseline=True).rules


def test_thousands_of_wrong_rules_are_reported_soon_and_in_part() -> None:
    begun = time.process_time()

    reported = mistakes("[[rules]]\nx=1\n" * 18_000)

    assert len(reported) == 101
    assert reported[-1] == "onnxledger.toml: and 35,900 more mistakes"
    assert time.process_time() - begun < 10


def test_rules_change_nothing_for_other_commands_but_their_mistakes_are_reported(model: Path) -> None:
    before = run_here("inspect", model)
    write(rule(metric="'nodes'", limit="0"))

    assert run_here("inspect", model).stdout == before.stdout

    write(rule(metric="'node'"))
    done = run_here("inspect", model)

    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "onnxledger: onnxledger.toml:3: rule 'a': 'node' is not a metric; did you mean 'nodes'?\n"
    )


def test_every_metric_that_counts_flaws_is_one() -> None:
    assert set(METRICS) >= FLAWS
    assert {metric.name for metric in METRICS.values() if metric.unit is Unit.FINDINGS} <= FLAWS


# the page

PAGE = (Path(__file__).parents[1] / "docs" / "groups.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["onnxledger.toml", "pyproject.toml"])
def test_the_configs_of_the_page_can_be_used(name: str) -> None:
    (block,) = re.findall(rf"```toml\n(# {name}\n.*?)```", PAGE, re.DOTALL)
    write(block, name)

    config = load_config()

    assert (config.origin, config.match) == (name, "first")
    assert find_groups(["embeddings.word_embeddings.weight"], config.groups, "first") == ["embeddings"]


def test_the_page_has_every_key_and_every_limit() -> None:
    rows = set(re.findall(r"^\| `([\w-]+)` \| (?:table|string|boolean|`)", PAGE, re.MULTILINE))

    assert rows == {field.name.replace("_", "-") for field in dataclasses.fields(Config)} - {"origin"}
    assert f"{MAX_BYTES:,} bytes" in PAGE
    assert f"{MAX_LENGTH:,} characters" in PAGE
    assert f"{SEARCH_SECONDS} seconds of CPU time" in PAGE
