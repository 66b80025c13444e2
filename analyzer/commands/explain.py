"""`onnxledger explain`: what a finding means, what it costs, and how to mend it."""

from __future__ import annotations

import click

from analyzer.commands.run import print_text


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    help="Form of stdout.",
)
def explain(ids: tuple[str, ...], style: str) -> None:
    """What a finding means, what it costs, and how to mend it.

    ID is what stands in brackets behind a finding, or in an error. Without
    one, all are listed; as JSON or Markdown all are explained.
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
