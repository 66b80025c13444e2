"""Report -> CSV: a row for each of its smallest items, such as tensors, with the numbers of the JSON."""

from __future__ import annotations

import csv
import io

from analyzer.documents.base import Head
from analyzer.formats.csv.cells import write_cell
from analyzer.formats.csv.columns import COLUMNS
from analyzer.formats.csv.rows import list_rows
from analyzer.formats.json import to_document
from analyzer.formats.options import RenderOptions
from analyzer.reports import Report
from analyzer.schemas import schema_name

__all__ = ["COLUMNS", "render_csv"]


def render_csv(report: Report | Head, options: RenderOptions | None = None) -> str:
    """Render the report as CSV by RFC 4180, but with Unix line ends; the first line has the names of the columns.

    It holds every row, whatever the options; docs/reference/report-format.md lists the columns. For a document alone,
    `group` is empty, as the document does not say which group a tensor is in.
    """
    document = to_document(report)
    columns = COLUMNS[schema_name(document)]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in list_rows(report, document):
        writer.writerow([write_cell(row[column]) for column in columns])
    return stream.getvalue()
