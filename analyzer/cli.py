"""The command line: arguments, files, exit codes; no counting.

Exit codes: 0 answered and clean, 1 a finding, 2 could not answer.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping

import click

from analyzer.commands.annotations import annotate_error
from analyzer.commands.help import NAMES, AuditGroup
from analyzer.commands.terminal import EXIT_NO_ANSWER, drop, drop_unwritten, print_message
from analyzer.errors import ConfigError, OnnxLedgerError
from analyzer.process import collect_seldom


def main() -> None:
    """Run the command; no other code turns an exception into an exit code."""
    collect_seldom()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the encoding lacks is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        # Without standalone mode, click returns the code of an Exit, and None after a command that ran to its end.
        sys.exit(command(prog_name="onnxledger", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        buffer = io.StringIO()
        error.show(buffer)
        _print_lines(buffer.getvalue())
        sys.exit(EXIT_NO_ANSWER)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        then = "" if context is None else f"; see {context.command_path} --help"
        _print_lines(f"onnxledger: {error.format_message().rstrip('.')}{then}")  # it may quote a file name
        annotate_error(error.format_message())
        sys.exit(EXIT_NO_ANSWER)
    except (click.Abort, KeyboardInterrupt):
        print_message("interrupted")
        sys.exit(130)
    except BrokenPipeError:  # the reader of the output has left
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
        print_message(message)
        annotate_error(message.removeprefix("onnxledger: "))
    if {"--verbose", "-v"} & {*sys.argv}:
        import traceback  # only needed here

        _print_lines(traceback.format_exc())


def _print_lines(text: str) -> None:
    for line in text.splitlines():
        print_message(line)


def _print_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    """Print the version; looked up only on request: the list of installed packages takes as long to load as click."""
    if value and not context.resilient_parsing:
        from analyzer.version import version

        click.echo(f"{context.command_path} {version()}")
        context.exit()


def _load(name: str) -> click.Command:
    """Return a command by its name; loaded on request, because loading all takes longer than most commands.

    Raises:
        KeyError: there is no such command.
    """
    match name:
        case "inspect":
            from analyzer.commands.inspect import inspect

            return inspect
        case "graph":
            from analyzer.commands.graph import graph

            return graph
        case "compare":
            from analyzer.commands.compare import compare

            return compare
        case "show":
            from analyzer.commands.show import show

            return show
        case "reconcile":
            from analyzer.commands.reconcile import reconcile

            return reconcile
        case "verify":
            from analyzer.commands.verify import verify

            return verify
        case "recover":
            from analyzer.commands.recover import recover

            return recover
        case "formula":
            from analyzer.commands.formula import formula

            return formula
        case "check":
            from analyzer.commands.check import check

            return check
        case "explain":
            from analyzer.commands.explain import explain

            return explain
        case "time":
            from analyzer.commands.time import time

            return time
        case "cost":
            from analyzer.commands.cost import cost

            return cost
        case "export":
            from analyzer.commands.export import export

            return export
        case "survey":
            from analyzer.commands.survey import survey

            return survey
        case "sql":
            from analyzer.commands.sql import sql

            return sql
    raise KeyError(name)


class _Commands(Mapping[str, click.Command]):
    """Commands by their names."""

    def __getitem__(self, name: str) -> click.Command:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


@click.group(
    cls=AuditGroup,
    commands=_Commands(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def command() -> None:
    """Account for every parameter and every byte of an exported ONNX model."""
