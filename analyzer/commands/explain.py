"""`onnxledger explain`: what a finding means, what it costs, and how to mend it."""

from __future__ import annotations

import click

from analyzer.commands.help import command, complete_from
from analyzer.commands.run import print_text


def _list_ids() -> list[str]:
    from analyzer.findings.catalog import EXPLANATIONS

    return list(EXPLANATIONS)


@command(
    short="What does a finding mean, what does it cost, how is it mended?",
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
    help="Print the explanations in this form.",
)
def explain(ids: tuple[str, ...], style: str) -> None:
    """What does a finding mean, what does it cost, how is it mended?

    ID stands in brackets behind a finding or in an error. Without an ID all
    are listed; as JSON or Markdown all are explained.
    """
    from analyzer.findings.catalog import explain as look_up
    from analyzer.findings.catalog import load_explanations
    from analyzer.render.text.explain import (
        document_explanations,
        list_explanations,
        markdown_explanations,
        text_explanations,
    )

    found = tuple(look_up(id_) for id_ in dict.fromkeys(ids)) or load_explanations()
    if style == "json":
        from analyzer.render.json import write_json

        text = write_json(document_explanations(found))
    elif style == "markdown":
        text = markdown_explanations(found, is_page=not ids)
    else:
        text = text_explanations(found) if ids else list_explanations(found)
    print_text(text)
