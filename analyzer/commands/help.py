"""What `--help` and a shell's completion say: commands by question, options in sections, examples, what comes next."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from analyzer.errors import UsageError

if TYPE_CHECKING:  # what only a shell needs that completes
    from click.shell_completion import CompletionItem

_RANGE = re.compile(r"\s*\[[^\[\]]*x[<>][^\[\]]*\]$")
"""What click says of the numbers that an option takes; its error says it too."""

OWN = "Options"
"""The section of a command's own options, which stand first."""

_SECTIONS = (OWN, "PyTorch's side", "Groups", "Findings", "Reading", "Report")
"""The sections of shared options, in the order in which they stand below a command's own."""

_QUESTIONS = {
    "Look": {
        "inspect": "What is in MODEL: parameters, subgraphs, bytes, findings?",
        "graph": "What does the graph of MODEL look like?",
        "compare": "What changed from OLD to NEW, group by group, tensor by tensor?",
        "show": "Show saved reports again, without their models.",
    },
    "Prove": {
        "reconcile": "Does MODEL hold the PyTorch model's parameters, and nothing else?",
        "verify": "Does MODEL compute what PyTorch, or another file, computes?",
        "recover": "Write the PyTorch state dict that MODEL holds.",
        "formula": "How many parameters does a config stand for, term by term?",
    },
    "Gate": {
        "check": "Is MODEL within its budgets?",
        "explain": "What does a finding mean, what does it cost, how is it mended?",
    },
    "Measure": {
        "time": "How many milliseconds does each group of MODEL take?",
        "cost": "How much work and memory does MODEL take, per subgraph?",
    },
    "Make": {
        "export": "Export a PyTorch model to ONNX, count it, and reconcile the two.",
    },
    "Many models": {
        "survey": "Read thousands of models into tables that sql asks.",
        "sql": "Ask the tables that survey has written.",
    },
}
"""The commands by what somebody wants, with the line that each has in the list of all."""

NAMES = tuple(name for named in _QUESTIONS.values() for name in named)
"""The commands in that order."""

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
        ("verify model.onnx", "does it also compute what PyTorch computes?"),
    ),
    "verify": (
        ("graph model.onnx --mark verify.json -o g.svg", "where it differs"),
        ("check model.onnx --max-drift 40dB", "keep it that close"),
    ),
    "recover": (("reconcile model.onnx --against model.safetensors", "prove it"),),
    "formula": (("reconcile model.onnx", "which tensor is missing, or too many?"),),
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
"""What somebody may ask after each command, and the command that answers it."""

_EXIT_CODES = "0 the question is answered; 1 the answer is bad news; 2 there is no answer"


class AuditCommand(click.Command):
    """A command whose help has its options in sections, and examples at the end, and the next commands."""

    def __init__(self, *args: Any, examples: Iterable[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an empty name before click takes it for the working folder: it came from a variable that is not set.

        Raises:
            UsageError: an argument, or an option that names a file or a source, is empty.
        """
        if not ctx.resilient_parsing and any(not each or each.endswith("=") for each in args):
            given = self.make_parser(ctx).parse_args(list(args))[0]
            for parameter in self.params:
                value = given.get(parameter.name or "")
                if _names_something(parameter) and "" in (
                    value if isinstance(value, (list, tuple)) else [value]
                ):
                    name = (
                        parameter.opts[0]
                        if isinstance(parameter, click.Option)
                        else parameter.make_metavar(ctx)
                    )
                    name = name.strip("[].")
                    raise UsageError(
                        f"{name}: an empty name names nothing; is the variable that it came from set?"
                    )
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in _SECTIONS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                names, text = record
                title = section_of(parameter)
                if "--help" in parameter.opts and sections["Report"]:
                    title = "Report"  # the last of all, where the command has such a section
                sections.setdefault(title, []).append((names, _RANGE.sub("", text)))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, and what to ask next."""
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
"""Options that name what need not be a file here."""


def _names_something(parameter: click.Parameter) -> bool:
    is_named = isinstance(parameter, click.Argument) and parameter.name != "query"
    return is_named or isinstance(parameter.type, click.Path) or parameter.opts[0] in _SOURCES


class AuditGroup(click.Group):
    """Commands under the questions that they answer."""

    command_class = AuditCommand

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Tell whoever names a model, and no command, which command reads it."""
        if args and args[0].lower().endswith(".onnx"):
            ctx.fail(f"No such command {args[0]!r}. Did you mean inspect {args[0]}?")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the questions."""
        return list(NAMES)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each question, each command on one whole line; none is loaded for it."""
        for title, named in _QUESTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:9}", short) for name, short in named.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write where to begin, and what the exit codes say."""
        _write_commands(
            formatter,
            "Begin with",
            (("inspect model.onnx", "what is in it?"), ("COMMAND --help", "the options, and examples")),
        )
        with formatter.section("Exit codes"):
            formatter.write(f"{'':{formatter.current_indent}}{_EXIT_CODES}\n")


def command(name: str, *, examples: Iterable[str]) -> Callable[[Callable[..., Any]], AuditCommand]:
    """A decorator that makes a command of a function.

    Args:
        name: one of `NAMES`.
        examples: command lines that work.
    """
    short = next(named[name] for named in _QUESTIONS.values() if name in named)
    return click.command(name, cls=AuditCommand, examples=tuple(examples), short_help=short)


def section_of(parameter: click.Parameter) -> str:
    """The section of an option."""
    return getattr(parameter, "section", OWN)


def put_in_section(function: Any, title: str, count: int) -> None:
    """Let the options that a decorator has just added to a function stand in a section, unless they do in another.

    Args:
        function: what click's decorators have noted their options at.
        title: the section.
        count: how many were added last.
    """
    for parameter in function.__click_params__[-count:]:
        if not hasattr(parameter, "section"):
            parameter.section = title


Completion: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]"


def complete_from(names: Callable[[], Iterable[str]], *, files: bool = False) -> Completion:
    """What a shell completes: names that are asked for when somebody presses the key, and files where these do too.

    Of `a,b` the last part is completed.
    """

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        kept, comma, start = incomplete.rpartition(",")
        found = [CompletionItem(f"{kept}{comma}{name}") for name in names() if name.startswith(start)]
        return [*found, CompletionItem(incomplete, type="file")] if files else found

    return complete


def complete_files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What a shell completes of an argument that may also be a URL: files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]
