"""Explanations of findings -> text, Markdown and a JSON document."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import PurePosixPath
from posixpath import relpath

from analyzer.documents import explain as explain_records
from analyzer.findings.catalog import Explanation, list_paragraphs
from analyzer.render.json.parts import head

__all__ = [
    "document_explanations",
    "list_explanations",
    "markdown_explanations",
    "text_explanations",
]

_WIDTH = 80
_PAGE_WIDTH = 120
_FOLDER = "docs/reference"  # where the page of all findings stands

_PAGE = """\
# Findings

What `inspect`, `reconcile` and `export` tell of a file besides its counts. An id stays what it is; `--strict` fails
where there is one that no `--ignore ID` names. `onnxledger explain ID` prints what stands here, and
`onnxledger explain --format markdown` all of this page.

`bytes` of a finding, which the text calls its cost, is what the files lose once it is mended: payload that no other
tensor claims, each byte once. The lengths and names around it go too, and are not counted. Two findings may be about
the same bytes, as those of a transposed copy that PyTorch ties: their costs do not add up.
"""


def list_explanations(explanations: Iterable[Explanation]) -> str:
    """A line for each: its id and its title."""
    known = list(explanations)
    width = max((len(each.id) for each in known), default=0)
    lines = [f"{each.id:<{width}}  {each.title}" for each in known]
    return (
        "\n".join([*lines, "", "onnxledger explain ID says what one means, costs, and how to mend it"]) + "\n"
    )


def text_explanations(explanations: Iterable[Explanation]) -> str:
    """What there is to say of each, at 80 columns; code keeps its lines."""
    return "\n\n\n".join("\n".join(_text(each)) for each in explanations) + "\n"


def _text(explanation: Explanation) -> Iterator[str]:
    yield f"{explanation.id}: {explanation.title} ({' or '.join(explanation.severities)})"
    for title, text in _sections(explanation):
        yield f"\n{title}"
        yield "\n\n".join(
            textwrap.indent(part, "    ") if is_code else _fill(part, _WIDTH, "  ")
            for is_code, part in list_paragraphs(text)
        )


def _sections(explanation: Explanation) -> tuple[tuple[str, str], ...]:
    return (
        ("what it means", explanation.meaning),
        ("what it costs", explanation.cost),
        ("how to mend it", explanation.mend),
        ("what finds it", explanation.seen_by),
        ("more", explanation.docs),
    )


def markdown_explanations(explanations: Sequence[Explanation], *, is_page: bool = False) -> str:
    """Each under a heading of its own; `is_page` puts what the page of all findings begins with before them."""
    parts = [_PAGE + "\n" + "\n".join(_table(explanations)) + "\n"] if is_page else []
    return "\n".join([*parts, *(_markdown(each) for each in explanations)])


def _table(explanations: Iterable[Explanation]) -> Iterator[str]:
    yield "| id | severity | what |"
    yield "|---|---|---|"
    for each in explanations:
        yield f"| [`{each.id}`](#{each.id}) | {' or '.join(each.severities)} | {each.title} |"


def _markdown(explanation: Explanation) -> str:
    severities = " or ".join(explanation.severities)
    link = f"[{PurePosixPath(explanation.docs.partition('#')[0]).name}]({relpath(explanation.docs, _FOLDER)})"
    return f"""\
## `{explanation.id}`

{explanation.title[:1].upper()}{explanation.title[1:]} ({severities}).

{_blocks(explanation.meaning)}

{_blocks(f"**What it costs.** {explanation.cost}")}

{_blocks(f"**How to mend it.** {explanation.mend}")}

{_blocks(f"**What finds it.** {explanation.seen_by}. More: {link}")}
"""


def _blocks(text: str) -> str:
    """Paragraphs in lines as the other pages have them, code fenced."""
    return "\n\n".join(
        f"```{_language(part)}\n{part}\n```" if is_code else _fill(part, _PAGE_WIDTH)
        for is_code, part in list_paragraphs(text)
    )


def _language(code: str) -> str:
    return "bash" if code.startswith("onnxledger ") else "python"


def _fill(paragraph: str, width: int, indent: str = "") -> str:
    """A paragraph in lines; options and names stay whole."""
    return textwrap.fill(
        paragraph,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def document_explanations(explanations: Iterable[Explanation]) -> explain_records.ExplainDocument:
    """The JSON document: a row for each, with the keys of the record."""
    names = [field.name for field in fields(Explanation)]
    rows = [{name: getattr(each, name) for name in names} for each in explanations]
    findings = [explain_records.Explanation(**{**row, "severities": list(row["severities"])}) for row in rows]
    return explain_records.ExplainDocument(**head(), findings=findings)
