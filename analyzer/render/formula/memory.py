"""FormulaReport -> sections: the bytes of its terms, and of a decoder's key-value cache."""

from __future__ import annotations

from analyzer.formulas.algebra import Algebra
from analyzer.formulas.record import CacheSize, FormulaReport
from analyzer.formulas.rows import CacheBytes, cache_bytes, weigh
from analyzer.render.formula.math import show_math
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Column, Line, Piece, Row, Section, Table
from analyzer.units import format_bytes, format_count, format_many, format_others

__all__ = ["cache_section", "memory_section"]


def memory_section(report: FormulaReport, options: RenderOptions) -> Section:
    """Each term at each precision."""
    if report.is_symbolic:
        return ()
    footprints = weigh(report.formula, report.block)
    columns = (Column("memory"), *(Column(each.precision.label, is_number=True) for each in footprints))
    names = [name for name, _ in footprints[0].terms]
    table = [[nbytes for _, nbytes in each.terms] for each in footprints]
    shown = min(options.rows or len(names), len(names))
    rows = [
        Row(((name,), *((format_bytes(column[at]),) for column in table)))
        for at, name in enumerate(names[:shown])
    ]
    if left := len(names) - shown:
        others = ((format_bytes(sum(column[shown:])),) for column in table)
        rows.append(Row(((format_others(left),), *others)))
    totals = ((format_bytes(each.nbytes),) for each in footprints)
    rows.append(Row((("total",), *totals), is_total=True))
    sentence = (
        f"weights alone; int8 and 4-bit: every {format_many(report.block, 'element')} of a matrix share an fp16 scale, "
        "biases and norms stay fp16"
    )
    return (Table(columns, tuple(rows)), Line((sentence,)))


def cache_section(report: FormulaReport, algebra: Algebra) -> Section:
    """What the cache of one sequence takes; nothing where there is none."""
    cache = report.formula.cache
    if cache is None:
        told = "no key-value cache: nothing is decoded token by token"
        return (Line((told,)),) if report.tokens is not None else ()
    nbytes = cache_bytes(cache, report.tokens)
    pieces: list[Piece] = ["key-value cache: ", show_math(algebra.token_cache(cache)), " elements a token"]
    source = algebra.source_cache(cache)
    if report.is_symbolic:
        if source is not None:
            pieces += [", and ", show_math(source), " for each position of the encoder"]
        return (Line(tuple(pieces)),)
    pieces.append(f", {format_bytes(nbytes.token)} at fp16")
    if source is not None:
        pieces += [
            ", and ",
            show_math(source),
            f", {format_bytes(nbytes.source_token)}, for each position of the encoder",
        ]
    if report.tokens is None and cache.context is None:
        return (Line(tuple(pieces)),)
    return (Line((*pieces, f"; {_whole(cache, nbytes)}")), Line((_together(report, nbytes),)))


def _together(report: FormulaReport, cache: CacheBytes) -> str:
    """What has to fit: the weights at each precision, and the cache beside them."""
    sums = (
        f"{format_bytes(each.nbytes + cache.nbytes)} at {each.precision.label}"
        for each in weigh(report.formula, report.block)
    )
    return f"weights and cache: {', '.join(sums)}"


def _whole(cache: CacheSize, nbytes: CacheBytes) -> str:
    """The cache of one sequence."""
    told = f"{format_bytes(nbytes.nbytes)} for {format_many(nbytes.tokens, 'token')}"
    if nbytes.source_tokens:
        told += f" and {format_many(nbytes.source_tokens, 'position')}"
    if nbytes.kept < nbytes.tokens:
        told += f", of which the last {format_count(nbytes.kept)} are kept"
    if cache.context is not None and nbytes.tokens > cache.context:
        told += f"; the model is made for {format_count(cache.context)} at most"
    return told
