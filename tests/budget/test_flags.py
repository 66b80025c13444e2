"""Flags become rules; files that list operators are read, or all their errors are reported."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from analyzer.budget.flags import MAX_BYTES, METRICS_OF, make_rules, read_operators
from analyzer.budget.measuring import METRICS
from analyzer.budget.record import Among, AtLeast, AtMost, Growth, Limit, Over, Rule
from analyzer.commands.check import check
from analyzer.errors import ConfigError, UsageError


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "ops.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def mistakes(folder: Path, text: str | bytes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_operators(write(folder, text))
    return [mistake.removeprefix(f"{folder}/") for mistake in caught.value.mistakes]


@pytest.mark.parametrize(
    ("flag", "value", "limit"),
    [
        ("--max-parameters", "110M", AtMost(110_000_000)),
        ("--max-bytes", "450MiB", AtMost(450 << 20)),
        ("--max-bytes", "at most +5 MB over main.json", Over((Growth(amount=5_000_000),), "main.json")),
        ("--max-metadata-bytes", "0", AtMost(0)),
        ("--max-nodes", "1_000", AtMost(1000)),
        ("--min-opset", "17", AtLeast(17)),
        ("--min-opset", "at least 17", AtLeast(17)),
        ("--allowed-domains", "ai.onnx, com.microsoft", Among(frozenset({"ai.onnx", "com.microsoft"}))),
        ("--allowed-dtypes", "FLOAT16,INT64", Among(frozenset({"FLOAT16", "INT64"}))),
        ("--no-external-outside", True, AtMost(0)),
        ("--no-unattributed", True, AtMost(0)),
        ("--no-duplicates", True, AtMost(0)),
        ("--no-unused", True, AtMost(0)),
    ],
)
def test_a_flag_is_a_rule_of_its_name(flag: str, value: str | bool, limit: Limit) -> None:
    assert make_rules({flag: value}) == (Rule(flag.removeprefix("--"), METRICS_OF[flag], limit, origin=flag),)


def test_every_flag_limits_a_metric_and_the_command_has_it() -> None:
    options = {option for parameter in check.params for option in parameter.opts}

    assert set(METRICS_OF.values()) <= METRICS.keys()
    assert set(METRICS_OF) == {
        option
        for option in options
        if re.match(r"--(max-(?!objects|memory|macs|drift)|min-|allowed-|no-(?!config))", option)
    }


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--max-bytes", "3x", "--max-bytes 3x: '3x': 'x' is not a unit of bytes; write B, kB"),
        ("--max-parameters", "450MiB", "MiB counts bytes, and these are parameters"),
        ("--max-nodes", "5 %", "a growth over a baseline and needs a sign: write '+5 %'"),
        ("--max-nodes", "", "has no number; write one"),
        ("--max-nodes", "at least 3", "the flag means at most; for at least, write a rule"),
        ("--min-opset", "at most 3", "the flag means at least; for at most, write a rule"),
        ("--min-opset", "+1 over main.json", "a version does not grow"),
        ("--allowed-dtypes", "FLAOT16", "'FLAOT16' is not a dtype of ONNX; did you mean FLOAT16?"),
        (
            "--allowed-domains",
            ",",
            "an empty name; write domains with commas between, as ai.onnx,com.microsoft",
        ),
    ],
)
def test_a_bad_value_says_what_to_write(flag: str, value: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        make_rules({flag: value})


def test_all_bad_values_are_reported_at_once() -> None:
    with pytest.raises(UsageError, match=r"--max-bytes x: .*; --max-nodes y: "):
        make_rules({"--max-bytes": "x", "--max-nodes": "y"})


# files that list operators


def test_a_file_lists_operators_by_line_or_as_onnxruntime_does(tmp_path: Path) -> None:
    text = """\
# ours
MatMul
ai.onnx:Add   # the same as Add
com.microsoft:Gelu

!globally_allowed_types;float,int64_t
ai.onnx;17,18;Softmax,Mul
com.microsoft;1;FusedMatMul{"inputs": {"0": ["float", "double"]}},SkipLayerNormalization
;12;Cast
"""

    assert read_operators(write(tmp_path, text)) == {
        "MatMul",
        "Add",
        "Cast",
        "Mul",
        "Softmax",
        "com.microsoft:FusedMatMul",
        "com.microsoft:Gelu",
        "com.microsoft:SkipLayerNormalization",
    }


def test_a_byte_order_mark_and_line_ends_of_windows_are_no_names(tmp_path: Path) -> None:
    assert read_operators(write(tmp_path, b"\xef\xbb\xbfMatMul\r\nAdd\r\n")) == {"MatMul", "Add"}


def test_all_mistakes_of_a_file_are_reported_at_once_each_with_its_line(tmp_path: Path) -> None:
    text = "MatMul\nMat Mul\nai.onnx;x;Add\n;;\ncom.microsoft:\na:b:c\nMatMul,Add\n\x1b[2J;1;Add\n"

    assert mistakes(tmp_path, text) == [
        "ops.txt:2: 'Mat Mul' is not an operator; write one, as MatMul or com.microsoft:Gelu",
        "ops.txt:3: write domain;opset;operators, as ai.onnx;17;MatMul,Add",
        "ops.txt:4: write domain;opset;operators, as ai.onnx;17;MatMul,Add",
        "ops.txt:5: 'com.microsoft:' is not an operator; write one, as MatMul or com.microsoft:Gelu",
        "ops.txt:6: 'a:b:c' is not an operator; write one, as MatMul or com.microsoft:Gelu",
        "ops.txt:7: 'MatMul,Add' is not an operator; write one, as MatMul or com.microsoft:Gelu",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "ops.txt: lists no operator; write one on a line, as MatMul or com.microsoft:Gelu"),
        ("# nothing\n!no_ops_specified_means_all_ops_are_required\n", "ops.txt: lists no operator"),
        (b"MatMul\n\xff\n", "ops.txt:2: not UTF-8: invalid start byte; save it as UTF-8"),
        ("A" * (MAX_BYTES + 1), "ops.txt: has more than 1,048,576 bytes; name a list of operators"),
    ],
)
def test_a_file_that_is_no_list_is_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
    (found,) = mistakes(tmp_path, content)

    assert found.startswith(message)


def test_of_very_many_mistakes_the_first_hundred_are_reported(tmp_path: Path) -> None:
    reported = mistakes(tmp_path, "a b\n" * 1000)

    assert (len(reported), reported[-1]) == (101, "ops.txt: and 900 more mistakes")


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    for name, reason in (
        ("", "not a regular file"),
        ("pipe", "not a regular file"),
        ("nowhere", "No such file"),
    ):
        with pytest.raises(ConfigError, match=reason):
            read_operators(tmp_path / name)
