"""Text of `--help` and completion in a shell: commands by question, options in sections, examples, next commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from analyzer.errors import UsageError

if TYPE_CHECKING:  # only completion in a shell needs this
    from click.shell_completion import CompletionItem

_RANGE = re.compile(r"\s*\[[^\[\]]*x[<>][^\[\]]*\]$")
"""Range that click appends to the help of a numeric option; removed, because click's error tells it too."""

OWN = "Options"
"""Section of a command's own options, which comes first."""

_SECTIONS = (OWN, "PyTorch's side", "Groups", "Findings", "Reading", "Report")
"""Sections of options in the order of `--help`: a command's own, then the shared ones."""

_QUESTIONS = {
    "Look": {
        "inspect": "What is in MODEL: parameters, subgraphs, bytes, findings?",
        "graph": "What does the graph of MODEL look like?",
        "compare": "What changed from OLD to NEW, group by group, tensor by tensor?",
        "show": "Show saved reports again, without their models.",
    },
    "Prove": {
        "reconcile": "Does MODEL hold the PyTorch model's parameters, and nothing else?",
        "verify": "Does MODEL compute the same as PyTorch, or as another file?",
        "recover": "Write the PyTorch state dict that MODEL holds.",
        "formula": "How many parameters does a config stand for, term by term?",
    },
    "Gate": {
        "check": "Is MODEL within its budgets?",
        "explain": "What does a finding mean, what does it cost, how is it fixed?",
    },
    "Measure": {
        "time": "How many milliseconds does each group of MODEL take?",
        "cost": "How much work and memory does MODEL take, per subgraph?",
    },
    "Make": {
        "export": "Export a PyTorch model to ONNX, count it, and reconcile the two.",
    },
    "Many models": {
        "survey": "Read thousands of models into tables for sql.",
        "sql": "Query the tables that survey has written.",
    },
}
"""Commands by purpose, each with its line in the list of all commands."""

NAMES = tuple(name for descriptions in _QUESTIONS.values() for name in descriptions)
"""Names of the commands in the order of the list."""

_NEXT = {
    "inspect": (
        ("explain ID", "what is this finding?"),
        ("reconcile model.onnx", "is it PyTorch's model?"),
        ("check model.onnx --max-bytes 450MiB", "keep it that small"),
    ),
    "graph": (("inspect model.onnx", "the numbers behind the picture"),),
    "compare": (
        ("verify NEW --against OLD", "the same outputs?"),
        ("check NEW --baseline OLD --max-bytes '+2 %'", "limit the growth"),
    ),
    "show": (("compare old.json new.json", "what changed between two reports"),),
    "reconcile": (
        ("explain ID", "what is this finding?"),
        ("verify model.onnx", "does it also compute the same?"),
    ),
    "verify": (
        ("graph model.onnx --mark verify.json -o g.svg", "where it differs"),
        ("check model.onnx --max-drift 40dB", "keep it that close"),
    ),
    "recover": (("reconcile model.onnx --against model.safetensors", "prove it"),),
    "formula": (("reconcile model.onnx", "which tensor is missing or extra?"),),
    "check": (
        ("explain ID", "what is this finding?"),
        ("compare main.onnx model.onnx", "what grew?"),
    ),
    "explain": (("inspect model.onnx -v", "the findings of a model"),),
    "time": (
        ("compare before.json after.json", "is it faster?"),
        ("cost model.onnx", "the work behind the milliseconds"),
    ),
    "cost": (
        ("check model.onnx --max-memory 'batch=8: 6GiB'", "keep it that small"),
        ("time model.onnx", "the milliseconds"),
    ),
    "export": (
        ("verify DIR/model.onnx", "does it compute the same?"),
        ("inspect DIR/model.onnx", "where are its parameters and bytes?"),
    ),
    "survey": (
        ("sql lake --question list", "what can be asked?"),
        ("check lake --max-bytes 1GiB", "is each model within its budget?"),
    ),
    "sql": (("inspect MODEL", "all about one model of the lake"),),
}
"""Next commands after each command, with the question that each answers."""

_EXIT_CODES = "0 the question is answered; 1 the answer is bad news; 2 there is no answer"


class AuditCommand(click.Command):
    """A command whose help has options in sections, then examples and next commands."""

    def __init__(self, *args: Any, examples: Iterable[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an empty name, which often comes from an unset variable: click would take it for the working folder.

        Raises:
            UsageError: an argument, or an option that names a file or a source, is empty.
        """
        if not ctx.resilient_parsing and any(not each or each.endswith("=") for each in args):
            values = self.make_parser(ctx).parse_args(list(args))[0]
            for parameter in self.params:
                value = values.get(parameter.name or "")
                if _names_something(parameter) and "" in (
                    value if isinstance(value, (list, tuple)) else [value]
                ):
                    name = (
                        parameter.opts[0]
                        if isinstance(parameter, click.Option)
                        else parameter.make_metavar(ctx)
                    )
                    name = name.strip("[].")
                    raise UsageError(f"{name}: the name is empty; is the variable behind it set?")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in their sections."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in _SECTIONS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                names, text = record
                title = section_of(parameter)
                if "--help" in parameter.opts and sections["Report"]:
                    title = "Report"  # the last section, if the command has it
                sections.setdefault(title, []).append((names, _RANGE.sub("", text)))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and the next commands."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")
        _write_commands(formatter, "Next", _NEXT[self.name or ""])


def _write_commands(formatter: click.HelpFormatter, title: str, lines: Iterable[tuple[str, str]]) -> None:
    lines = [(f"onnxledger {line}", reason) for line, reason in lines]
    width = max(len(line) for line, _ in lines)
    with formatter.section(title):
        for line, reason in lines:
            formatter.write(f"{'':{formatter.current_indent}}{line:{width}}  # {reason}\n")


_SOURCES = ("--against", "--baseline")
"""Options whose value need not be a local file, so that their type is no path."""


def _names_something(parameter: click.Parameter) -> bool:
    is_name = isinstance(parameter, click.Argument) and parameter.name != "query"
    return is_name or isinstance(parameter.type, click.Path) or parameter.opts[0] in _SOURCES


class AuditGroup(click.Group):
    """Group of all commands, listed by purpose."""

    command_class = AuditCommand

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest `inspect` to a user who names a model and no command."""
        if args and args[0].lower().endswith(".onnx"):
            ctx.fail(f"No such command {args[0]!r}. Did you mean inspect {args[0]}?")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the list."""
        return list(NAMES)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each purpose, with one whole line for each command; this imports no command."""
        for title, descriptions in _QUESTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:9}", short) for name, short in descriptions.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands to begin with, and the meaning of the exit codes."""
        _write_commands(
            formatter,
            "Begin with",
            (("inspect model.onnx", "what is in it?"), ("COMMAND --help", "the options, and examples")),
        )
        with formatter.section("Exit codes"):
            formatter.write(f"{'':{formatter.current_indent}}{_EXIT_CODES}\n")


def command(name: str, *, examples: Iterable[str]) -> Callable[[Callable[..., Any]], AuditCommand]:
    """Return a decorator that makes a command from a function.

    Args:
        name: one of `NAMES`.
        examples: command lines that work.
    """
    short = next(descriptions[name] for descriptions in _QUESTIONS.values() if name in descriptions)
    return click.command(name, cls=AuditCommand, examples=tuple(examples), short_help=short)


def section_of(parameter: click.Parameter) -> str:
    """Return the section of an option."""
    return getattr(parameter, "section", OWN)


def put_in_section(function: Any, title: str, count: int) -> None:
    """Put the options that were last added to a function into a section, unless they are in another already.

    Args:
        function: the function with the parameters that click's decorators added.
        title: the section.
        count: number of options that were added last.
    """
    for parameter in function.__click_params__[-count:]:
        if not hasattr(parameter, "section"):
            parameter.section = title


Completion: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]"


def complete_from(names: Callable[[], Iterable[str]], *, files: bool = False) -> Completion:
    """Return a shell completion of names, which are computed on demand, and of files if these are valid too.

    In `a,b` it completes the last part.
    """

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        kept, comma, start = incomplete.rpartition(",")
        found = [CompletionItem(f"{kept}{comma}{name}") for name in names() if name.startswith(start)]
        return [*found, CompletionItem(incomplete, type="file")] if files else found

    return complete


def complete_files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete an argument that may be a file or a URL: as a file."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]
