"""`onnxledger explain`: the meaning of a finding, its cost, and its remedy."""

from __future__ import annotations

import click

from analyzer.commands.help import command, complete_from
from analyzer.commands.run import print_text, screen_options
from analyzer.process import load_numpy


def _list_ids() -> list[str]:
    from analyzer.account.findings.catalog import EXPLANATIONS

    return list(EXPLANATIONS)


@command(
    "explain",
    examples=(
        "onnxledger explain",
        "onnxledger explain duplicate-content unattributed",
    ),
)
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=complete_from(_list_ids))
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    help="Print the explanations in this format.",
)
def explain(ids: tuple[str, ...], style: str) -> None:
    """What does a finding mean, what does it cost, how is it fixed?

    ID is the text in brackets after a finding or in an error. Without an ID, the
    command lists all findings; as JSON or Markdown it explains all.
    """
    load_numpy()
    from analyzer.account.findings.catalog import explain as look_up
    from analyzer.account.findings.catalog import load_explanations
    from analyzer.formats.json.explain import document_explanations
    from analyzer.pages.kinds import describe

    found = tuple(look_up(id_) for id_ in dict.fromkeys(ids)) or load_explanations()
    document = document_explanations(found)
    if style == "json":
        from analyzer.formats.json import write_json

        print_text(write_json(document))
    elif style == "markdown":
        from analyzer.formats.markdown.pages import write_markdown

        print_text(write_markdown(describe(document), verbose=True, longest=_WHOLE))
    else:
        from analyzer.formats import RenderOptions
        from analyzer.formats.text.writer import write_text

        screen = screen_options(RenderOptions())
        print_text(
            write_text(
                describe(document),
                width=screen.width,
                color=screen.color,
                verbose=bool(ids),
                ascii=screen.ascii,
            )
        )


_WHOLE = 10**9
"""Most characters, practically unbounded: the page is no comment on GitHub."""
