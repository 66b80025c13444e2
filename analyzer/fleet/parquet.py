"""The rows that answer a question -> a Parquet file."""

from __future__ import annotations

import io

from analyzer.answer import Answer
from analyzer.errors import UsageError

__all__ = ["answer_as_parquet"]


def answer_as_parquet(answer: Answer) -> bytes:
    """All rows, with the types that their values have.

    Raises:
        UsageError: the values of a column have no type in common.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        columns = {name: pa.array([row[at] for row in answer.rows]) for at, name in enumerate(answer.columns)}
        table = pa.table(columns)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise UsageError(
            f"QUERY: cannot be written as Parquet: {error}; cast the column, or write .csv"
        ) from error
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd")
    return stream.getvalue()
