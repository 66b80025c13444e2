"""The command line: arguments, files, exit codes; no counting.

Exit codes: 0 answered and clean, 1 a finding, 2 could not answer.
"""

from __future__ import annotations

import io
import sys
import traceback

import click

from analyzer.commands.annotations import annotate_error
from analyzer.commands.check import check
from analyzer.commands.compare import compare
from analyzer.commands.cost import cost
from analyzer.commands.explain import explain
from analyzer.commands.export import export
from analyzer.commands.formula import formula
from analyzer.commands.graph import graph
from analyzer.commands.help import AuditGroup
from analyzer.commands.inspect import inspect
from analyzer.commands.reconcile import reconcile
from analyzer.commands.recover import recover
from analyzer.commands.run import EXIT_NO_ANSWER
from analyzer.commands.show import show
from analyzer.commands.sql import sql
from analyzer.commands.survey import survey
from analyzer.commands.terminal import drop, drop_unwritten, say
from analyzer.commands.time import time
from analyzer.commands.verify import verify
from analyzer.errors import ConfigError, OnnxLedgerError


def main() -> None:
    """Run the command; the only place that turns an exception into an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # An encoding that lacks a character is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        # Not standalone: click hands back the code of an Exit, and None after a command that ran to its end.
        sys.exit(command(prog_name="onnxledger", standalone_mode=False) or 0)
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        _say_lines(said.getvalue())  # it may quote the name of a file
        annotate_error(error.format_message())
        sys.exit(EXIT_NO_ANSWER)
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has left
        drop(sys.stdout)
        sys.exit(EXIT_NO_ANSWER)
    except ConfigError as error:
        _explain(*(f"onnxledger: {mistake}" for mistake in error.mistakes))
    except OnnxLedgerError as error:
        _explain(f"onnxledger: {error}")
    except OSError as error:
        drop_unwritten(sys.stdout)
        _explain(f"onnxledger: {error.filename or 'the report'}: {error.strerror or error}")
    except Exception as error:  # noqa: BLE001 - a defect of ours must not look like a finding, nor print a traceback
        _explain(
            f"onnxledger: internal error: {type(error).__name__}: {error}; run with --verbose and report it"
        )
    sys.exit(EXIT_NO_ANSWER)


def _explain(*messages: str) -> None:
    for message in messages:
        say(message)
        annotate_error(message.removeprefix("onnxledger: "))
    if {"--verbose", "-v"} & {*sys.argv}:
        _say_lines(traceback.format_exc())


def _say_lines(text: str) -> None:
    for line in text.splitlines():
        say(line)


def _tell_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    """Looked up when it is asked for: the list of what is installed takes as long to load as click."""
    if value and not context.resilient_parsing:
        from analyzer.version import version

        click.echo(f"{context.command_path} {version()}")
        context.exit()


@click.group(
    cls=AuditGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_version,
    help="Show the version and exit.",
)
def command() -> None:
    """Account for every parameter and every byte of an exported ONNX model."""


for _each in (
    export,
    inspect,
    reconcile,
    recover,
    compare,
    check,
    formula,
    cost,
    verify,
    time,
    graph,
    survey,
    sql,
    show,
    explain,
):
    command.add_command(_each)
