"""The page of `explain`: the meaning of findings, their cost, and their remedy."""

from __future__ import annotations

from posixpath import relpath

from analyzer.account.findings.catalog import EXPLANATIONS
from analyzer.documents.explain import ExplainDocument, Explanation
from analyzer.pages.page import Block, Column, Detail, Kind, Link, Page, Passage, Row, Table


def describe_explanations(document: ExplainDocument) -> Page:
    """Describe one finding in full; several findings begin with a table."""
    findings = document.findings
    if len(findings) == 1:
        (only,) = findings
        return Page(
            kind="explain",
            question="What it means",
            subject=only.id,
            answer=_lead(only),
            blocks=(_passage(only, "", Detail.SHOWN),),
        )
    is_all = {each.id for each in findings} >= {*EXPLANATIONS}
    blocks: list[Block] = [Passage("", "", (("", _ABOUT),), detail=Detail.MORE)] if is_all else []
    blocks.append(_table(findings))
    blocks += [_passage(each, each.id, Detail.MORE) for each in findings]
    return Page(kind="explain", question="Findings", subject="", blocks=tuple(blocks))


_ABOUT = (
    "Findings are the errors, warnings and notes that `inspect`, `reconcile` and `export` print beside their "
    "counts. An id stays the same in later versions. With `--strict` the exit code is 1 if there is a finding "
    "that no `--ignore ID` names. `onnxledger explain ID` prints one section of this page, `onnxledger explain "
    "--format markdown` all of it.\n\n"
    "`bytes` of a finding, its cost in text reports, is the size that the files lose once it is fixed: payload that "
    "no other tensor claims, each byte once. The lengths and names around the payload go too, but are not counted. Two "
    "findings may concern the same bytes, such as a transposed copy that PyTorch ties; their costs do not add up."
)


def _lead(explanation: Explanation) -> str:
    return f"{explanation.title} ({_severities(explanation)})"


def _severities(explanation: Explanation) -> str:
    return " or ".join(explanation.severities)


def _table(findings: list[Explanation]) -> Table:
    columns = (Column("finding"), Column("severity", room=6), Column("what", Kind.PROSE, room=9))
    rows = tuple(Row(((Link(each.id, f"#{each.id}"),), _severities(each), each.title)) for each in findings)
    hint = "onnxledger explain ID shows its meaning, its cost, and how to fix it"
    return Table(columns, rows, title="finding", notes=(hint,), is_whole=True)


_FOLDER = "docs/reference"
"""Folder of the page with all findings, to which links to other pages are relative."""


def _passage(explanation: Explanation, title: str, detail: Detail) -> Passage:
    name = explanation.docs.partition("#")[0].rpartition("/")[2]
    return Passage(
        title,
        f"{_lead(explanation)}." if title else "",
        (
            ("What it means", explanation.meaning),
            ("What it costs", explanation.cost),
            ("How to fix it", explanation.mend),
            ("What finds it", f"{explanation.seen_by}."),
        ),
        more=Link(explanation.docs, relpath(explanation.docs, _FOLDER), name),
        detail=detail,
    )
