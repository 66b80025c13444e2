"""`--help` answers users' questions: commands by question, examples that parse, names that a shell completes."""

from __future__ import annotations

import shlex

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from analyzer.cli import command

NAMES = sorted(command.commands)


def test_every_command_stands_under_a_question_on_one_whole_line() -> None:
    output = CliRunner().invoke(command, ["--help"]).output

    lines = {line.split()[0]: line for line in output.splitlines() if line.startswith("  ")}
    assert set(NAMES) <= set(lines)
    assert not any("..." in lines[name] for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_example_parses(name: str) -> None:
    examples = command.commands[name].examples

    assert examples
    for example in examples:
        program, called, *arguments = shlex.split(example.rpartition("| ")[2], comments=True)
        context = click.Context(command.commands[name], info_name=called)
        command.commands[name].make_parser(context).parse_args(arguments)
        assert (program, called) == ("onnxledger", name)


@pytest.mark.parametrize("name", NAMES)
def test_help_names_the_commands_that_come_next(name: str) -> None:
    output = CliRunner().invoke(command, [name, "--help"]).output

    lines = output.partition("\nNext:\n")[2].splitlines()
    assert lines
    assert all(len(line) <= 80 for line in lines)
    for line in lines:
        program, called, *arguments = shlex.split(line, comments=True)
        context = click.Context(command.commands[called], info_name=called)
        command.commands[called].make_parser(context).parse_args(arguments)
        assert program == "onnxledger"


def test_help_says_where_to_begin_and_what_an_exit_code_means() -> None:
    output = CliRunner().invoke(command, ["--help"]).output

    assert "onnxledger inspect model.onnx" in output
    assert "Exit codes:" in output


@pytest.mark.parametrize("name", NAMES)
def test_no_help_text_is_without_a_verb(name: str) -> None:
    """A help text such as `Of each measurement.` makes no sense alone."""
    for parameter in command.commands[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help is not None
            assert parameter.help.split()[0] not in ("Of", "As", "Who", "What", "That", "Which"), (
                parameter.opts
            )


@pytest.mark.parametrize(
    ("line", "start", "found"),
    [
        (["inspect", "--by"], "scope,ro", "scope,role"),
        (["inspect", "--preset"], "gpt", "gpt2"),
        (["inspect", "--ignore"], "duplicate-c", "duplicate-content"),
        (["explain"], "unattr", "unattributed"),
        (["formula"], "bert-base-u", "bert-base-uncased"),
        (["sql", "--question"], "fam", "families"),
    ],
)
def test_a_shell_completes_names_that_we_know(line: list[str], start: str, found: str) -> None:
    items = ShellComplete(command, {}, "onnxledger", "_ONNXLEDGER_COMPLETE").get_completions(line, start)

    assert found in [item.value for item in items]


def test_a_shell_completes_a_model_with_files() -> None:
    items = ShellComplete(command, {}, "onnxledger", "_ONNXLEDGER_COMPLETE").get_completions(["inspect"], "m")

    assert [item.type for item in items] == ["file"]
