"""The page of `formula`: the closed form term by term, and whether a file or PyTorch has the same counts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from analyzer.documents.formula import (
    Cache,
    Census,
    FormulaDocument,
    FormulaField,
    FormulaModel,
    FormulaPart,
    FormulaTerm,
    PartChange,
    Reason,
    TermChange,
)
from analyzer.formulas.reasons import NO_TERM
from analyzer.formulas.record import Certainty, FieldOrigin, MatchedBy
from analyzer.pages.page import (
    Block,
    Cell,
    Code,
    Column,
    Detail,
    Fact,
    Facts,
    Figure,
    Formatted,
    Kind,
    Notes,
    Page,
    Piece,
    Prose,
    Row,
    Table,
    Tone,
    pieces_of,
)
from analyzer.pages.shared import abbreviate_count
from analyzer.pages.symbols import Symbols, symbols_in
from analyzer.text import (
    format_bytes,
    format_change,
    format_count,
    format_many,
    format_others,
    format_share,
    format_signed,
)


def describe_formula(document: FormulaDocument, symbols: Symbols | None = None) -> Page:
    """Describe a formula: the verdict and its reasons, fields, terms and their memory.

    Args:
        document: the report.
        symbols: expressions in symbols; None: the document's own expressions over fields.
    """
    symbols = symbols or symbols_in(document)
    names = ", ".join(dict.fromkeys(name for name in (document.family, document.class_) if name))
    return Page(
        kind="formula",
        question="The count in closed form",
        subject=document.source,
        about=names,
        answer=_changed(document),
        figures=tuple(_figures(document)),
        blocks=tuple(_blocks(document, symbols)),
    )


def _changed(document: FormulaDocument) -> str:
    """Return the change that `--set` makes to the count, in words."""
    if document.what_if is None or document.total is None:
        return ""
    before, increase = document.what_if.total, document.what_if.difference
    if not increase:
        return "as many parameters as with the config's own fields"
    share = f" ({format_change(increase / before)})" if before else ""
    word = "more" if increase > 0 else "fewer"
    return f"{format_many(abs(increase), 'parameter')} {word} than with the config's own fields{share}"


def _figures(document: FormulaDocument) -> Iterator[Figure]:
    if document.total is not None:
        total = document.total
        phrase = _many(total, " parameters")
        yield Figure("By the formula", format_count(total), abbreviate_count(total), phrase, total)
    if document.actual is not None:
        who = "ONNX" if document.model is not None else "PyTorch"
        yield Figure(f"In {who}", format_count(document.actual), abbreviate_count(document.actual))
    if document.difference is not None:
        yield Figure("Difference", format_signed(document.difference))


def _many(number: int, what: str) -> str:
    short = abbreviate_count(number)
    return f"{format_count(number)}{what}{f' ({short})' if short else ''}"


def _blocks(document: FormulaDocument, symbols: Symbols) -> Iterator[Block]:
    """Yield blocks in the order of a paper; other formats put those of `Detail.FIRST` above the others."""
    yield Notes(tuple(_head(document)), detail=Detail.FIRST)
    yield from _checked(document)
    legend = _legend(document, symbols)
    yield legend
    yield _terms(document, symbols)
    yield Notes(tuple(_uses(document)))
    yield from _what_if(document)
    # beside a file, bytes by the formula say little
    has_tokens = symbols.tokens is not None
    detail = Detail.SHOWN if has_tokens or document.model is None else Detail.MORE
    if document.cache is None or document.cache.bytes is None:
        yield Notes(tuple(_weights(document)), detail=detail)
    yield from _memory(document, Detail.SHOWN if has_tokens else Detail.MORE)
    title = "key-value cache" if detail is Detail.MORE else ""
    yield Notes(tuple(_cache(document, symbols)), title, detail)
    yield from _more(document, symbols, legend)


def _head(document: FormulaDocument) -> Iterator[Prose]:
    if document.total is not None and document.active is not None and document.active != document.total:
        share = format_share(document.active, document.total)
        active = _many(document.active, " of them")
        yield f"{active}, {share}, are active: each token uses only some of the experts"
    yield from document.notes


# beside PyTorch and a file

_Side = Census | FormulaModel


def _title(side: _Side) -> str:
    return "PyTorch" if isinstance(side, Census) else "ONNX"


def _kind(side: _Side) -> str:
    return "census" if isinstance(side, Census) else "model"


def _count_on(row: FormulaTerm | FormulaPart, side: _Side) -> int:
    return (row.census if isinstance(side, Census) else row.actual) or 0


def _sides(document: FormulaDocument) -> list[_Side]:
    return [side for side in (document.census, document.model) if side is not None]


def _unmatched(document: FormulaDocument, side: _Side) -> list[tuple[str, int]]:
    found = [(row.name, row.elements) for row in document.unmatched if row.side == _kind(side)]
    return sorted(found, key=lambda item: (-item[1], item[0]))


def _checked(document: FormulaDocument) -> Iterator[Block]:
    """Compare each term with the sides: the counts, the verdict, and the reason for each difference."""
    sides = _sides(document)
    if not sides or document.total is None:
        return
    yield Notes(tuple(_describe_side(side) for side in sides), detail=Detail.FIRST)
    columns = (Column("term"), *_counts("formula", *map(_title, sides)))
    unmatched = [sum(elements for _, elements in _unmatched(document, side)) for side in sides]
    total: tuple[Cell, ...] = ("total", *_numbers(document.total, *(side.total for side in sides)))

    def table(is_listed: Callable[[FormulaPart], bool]) -> tuple[Row, ...]:
        rows = [
            row
            for term in document.terms
            for row in _rows(
                term,
                lambda each: _numbers(each.value or 0, *(_count_on(each, side) for side in sides)),
                is_listed,
            )
        ]
        if any(unmatched):
            rows.append(Row((NO_TERM, *_numbers(0, *unmatched))))
        return tuple(rows)

    found = table(lambda part: any(_count_on(part, side) != part.value for side in sides))
    whole = _is_short(document)
    yield Table(columns, found, title="terms compared with the formula", total=total, is_whole=whole)
    for verdict, tone in _verdicts(document, sides):
        yield Notes((verdict,), detail=Detail.FIRST, tone=tone)
    yield Notes(tuple(f"error: {error}" for side in sides for error in side.errors), detail=Detail.FIRST)
    yield Notes((*_reasons(document), *_left(document)), detail=Detail.FIRST)
    every = table(lambda part: True)
    if len(every) > len(found):
        title = "every part compared with the formula"
        yield Table(columns, every, title=title, total=total, detail=Detail.MORE, is_whole=whole)


def _is_short(document: FormulaDocument) -> bool:
    """Whether the terms come from a published closed form, and are not all modules of a program."""
    return document.kind == "closed-form"


def _counts(*titles: str) -> tuple[Column, ...]:
    """Return columns of counts, then one for the difference of the last from the first."""
    return (
        *(Column(title, Kind.COUNT, room=9) for title in titles),
        Column("difference", Kind.SIGNED, room=9),
    )


def _numbers(formula: int, *sides: int) -> tuple[int, ...]:
    """Return the counts of the formula and the sides, then the last side's difference from the formula."""
    return (formula, *sides, sides[-1] - formula)


def _rows(
    term: FormulaTerm | TermChange,
    numbers: Callable[[Any], tuple[int, ...]],
    is_listed: Callable[[Any], bool],
) -> Iterator[Row]:
    """Yield a row for a term, then rows for the parts that `is_listed` selects."""
    yield Row((term.term, *numbers(term)))
    if not _is_alone(term):
        yield from (Row((part.part, *numbers(part)), level=1) for part in term.parts if is_listed(part))


def _is_alone(term: FormulaTerm | TermChange) -> bool:
    """Whether a term has only itself as a part, which needs no row of its own."""
    return len(term.parts) == 1 and term.parts[0].part == term.term


def _describe_side(side: _Side) -> Prose:
    """Return the name of a side, and the evidence that matched a file's tensors to parts."""
    basis = "" if isinstance(side, Census) else f", by {_BASES[side.matched_by]}"
    return (f"{_title(side)}: ", Code(side.name), basis)


_BASES = {
    MatchedBy.NAMES: "the names in it",
    MatchedBy.CONTENTS: "names and contents of PyTorch's tensors",
    MatchedBy.UNBALANCED: "names of PyTorch's tensors, with which it does not balance: see reconcile",
    MatchedBy.SHAPES: "names and shapes of PyTorch's tensors",
}


def _verdicts(document: FormulaDocument, sides: Sequence[_Side]) -> Iterator[tuple[str, Tone]]:
    """Yield a verdict for each side: whether it has the counts of the formula."""
    same = [side for side in sides if _is_same(document, side) and not side.errors]
    if same:
        agree = f"{' and '.join(map(_title, same))} {'agree' if len(same) > 1 else 'agrees'}"
        yield f"{agree} with the formula, part by part", Tone.GOOD
    judged = document.model or document.census
    settled = (Certainty.SETTLED, Certainty.UNDECIDED)
    is_whole = document.model is None or not document.model.errors
    agrees = is_whole and all(reason.certainty in settled for reason in document.reasons)
    for side in sides:
        if side not in same:
            verdict = _difference(document, side, is_settled=side is judged and agrees)
            yield verdict, Tone.BAD if verdict.startswith("DIFFERS") else Tone.GOOD


def _is_same(document: FormulaDocument, side: _Side) -> bool:
    return not _unmatched(document, side) and all(
        part.value == _count_on(part, side) for term in document.terms for part in term.parts
    )


def _difference(document: FormulaDocument, side: _Side, *, is_settled: bool) -> str:
    what, difference = _title(side), side.total - (document.total or 0)
    if side.errors and not difference:
        return f"DIFFERS: {what} has the formula's count, but also errors"
    if not difference and is_settled:
        return f"{what} agrees with the formula, as far as its names show"
    if not difference:
        return f"DIFFERS: {what} has as many parameters, but different ones"
    statement = (
        f"{what} has {format_many(abs(difference), 'parameter')} {'more' if difference > 0 else 'fewer'}"
    )
    return f"{statement}, and the difference is accounted for" if is_settled else f"DIFFERS: {statement}"


def _reasons(document: FormulaDocument) -> Iterator[Prose]:
    """Tell why each part differs; many parts with the same reason share a line."""
    alike: dict[str, list[Reason]] = defaultdict(list)
    for reason in document.reasons:
        alike[reason.sentence].append(reason)
    for each in alike.values():
        yield from _format_reasons(each)
    rest = (document.difference or 0) - sum(reason.elements for reason in document.reasons)
    if rest:
        yield f"{format_signed(rest)}: nothing explains it"


_FEW = 2
"""Most parts with the same reason that have a line each."""


def _format_reasons(reasons: Sequence[Reason]) -> Iterator[Prose]:
    """Yield a line for each part, or one line for all if there are many."""
    if len(reasons) > _FEW:
        terms = dict.fromkeys(reason.part.partition("/")[0] for reason in reasons)
        elements = format_signed(sum(reason.elements for reason in reasons))
        names = tuple(piece for term in terms for piece in (", ", Code(term)))[1:]
        yield (*names, f": {elements}, {reasons[0].sentence}")
        return
    for reason in reasons:
        text = f": {format_signed(reason.elements)}, {reason.sentence}"
        yield (Code(_short(reason.part)), *_where(reason), text)


def _where(reason: Reason) -> tuple[Piece, ...]:
    """Return the group of the ledger that a part stands for, unless the part's name is the same."""
    return () if reason.group in ("", reason.part.partition("/")[2]) else (" (", Code(reason.group), ")")


def _short(key: str) -> str:
    """Return the key of a part, or the name of a term that is its own only part."""
    term, _, part = key.partition("/")
    return term if term == part else key


def _left(document: FormulaDocument) -> Iterator[Prose]:
    """List tensors that belong to no term, the largest first; only a few if they are most of a side."""
    side = document.model or document.census
    if side is None:
        return
    found = _unmatched(document, side)
    is_most = 2 * sum(elements for _, elements in found) > side.total
    shown = found[:_FEW] if is_most else found
    for name, elements in shown:
        yield (f"{NO_TERM} {_title(side)}: ", Code(name), f" {format_count(elements)}")
    if left := found[len(shown) :]:
        elements = sum(each for _, each in left)
        yield f"{NO_TERM} {_title(side)}: {format_others(len(left))} {format_count(elements)}"


# the fields


def _legend(document: FormulaDocument, symbols: Symbols) -> Table:
    """Return the table of symbols: of fields in the expressions, and of fields that the user set."""
    used = _used(document)
    before = _before(document)
    shown = [
        each
        for each in document.fields
        if each.field in used
        or each.field in before
        or (each.symbol is None and each.from_ is FieldOrigin.SET)
    ]
    return _fields(document, symbols, shown)


def _fields(
    document: FormulaDocument, symbols: Symbols, shown: Sequence[FormulaField], detail: Detail = Detail.SHOWN
) -> Table:
    before = _before(document)
    has_values = document.total is not None
    rows = []
    for each in shown:
        letter: Cell = symbols.letters.get(each.field, "")
        value: tuple[Cell, ...] = (Formatted(None, _value(each, before)),) if has_values else ()
        rows.append(Row((letter, each.field, *value, _origin(each, symbols))))
    values = (Column("value", Kind.COUNT, room=9),) if has_values else ()
    columns = (
        Column("symbol", Kind.FORMULA),
        Column("field", Kind.NAME, room=9),
        *values,
        Column("", room=8),
    )
    title = "symbols" if detail is Detail.SHOWN else "fields of the config"
    return Table(columns, tuple(rows), title=title, is_whole=True, detail=detail)


def _before(document: FormulaDocument) -> dict[str, object]:
    """Return the fields that `--set` has changed, with their values in the config."""
    return {} if document.what_if is None else {row.field: row.before for row in document.what_if.set}


def _used(document: FormulaDocument) -> set[str]:
    """Return the fields in the expressions, and the fields that these are computed from."""
    expressions = [
        document.expression,
        document.active_expression,
        *(part.expression for term in document.terms for part in term.parts),
    ]
    if document.cache is not None:
        expressions += [document.cache.expression, document.cache.source_expression]
    used = {name for each in expressions if each for name in re.findall(r"[^\W\d]\w*", each)}
    for field in reversed(document.fields):
        if field.field in used and field.expression is not None:
            used.update(re.findall(r"\w+", field.expression))
    return used


def _value(field: FormulaField, before: dict[str, object]) -> str:
    if field.field in before:
        return f"{_format_value(before[field.field])} -> {_format_value(field.value)}"
    return _format_value(field.value)


def _format_value(value: object) -> str:
    """Return the value of a field as people write it.

    >>> [_format_value(each) for each in (30_522, True, [16, 8], None, "gelu")]
    ['30,522', 'true', '16 x 8', 'none', 'gelu']
    """
    if isinstance(value, list):
        return " x ".join(map(_format_value, value)) or "none"
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    return format_count(value) if isinstance(value, int) else str(value)


def _origin(field: FormulaField, symbols: Symbols) -> Cell:
    """Return the source of a value that is not from the config, and its usual expression."""
    origins: list[tuple[Piece, ...]] = []
    if field.field in symbols.usual:
        origins.append(("= ", symbols.usual[field.field]))
    match field.from_:
        case FieldOrigin.COMPUTED if origins:
            pass  # the usual expression already says it
        case FieldOrigin.DEFAULT:
            origins.append(("default",))
        case FieldOrigin.CLASS:
            origins.append(("the class",))
        case FieldOrigin.SET:
            origins.append(("--set",))
        case FieldOrigin.COMPUTED if field.expression:
            meaning = symbols.meanings.get(field.field)
            origins.append((f"{meaning} = " if meaning else "= ", Code(field.expression)))
        case FieldOrigin.COMPUTED:
            origins.append(("computed",))
    return tuple(
        piece for number, each in enumerate(origins) for piece in ((", ", *each) if number else each)
    )


# the terms


def _counted(document: FormulaDocument) -> Iterator[tuple[FormulaTerm, list[FormulaPart]]]:
    """Yield the terms and parts of the formula, without parts that only another side has."""
    for term in document.terms:
        parts = [part for part in term.parts if part.source is not None]
        if parts:
            yield term, parts


def _terms(document: FormulaDocument, symbols: Symbols) -> Table:
    """Return the table of terms with their parts, expressions and values."""
    has_values = document.total is not None
    has_active = has_values and document.active != document.total
    width = has_values + has_active
    rows = []
    for term, parts in _counted(document):
        values = sum(part.value or 0 for part in parts), sum(part.active or 0 for part in parts)
        rows.append(Row((term.term, _cell(symbols.terms.get(term.term, "")), *values[:width])))
        if len(parts) > 1 or parts[0].part != term.term:
            for part in parts:
                expression = _cell(symbols.parts.get(f"{term.term}/{part.part}", ""))
                cells = (part.part, expression, *(part.value, part.active)[:width])
                rows.append(Row(cells, level=1))
    columns = (
        Column("term"),
        Column("expression", Kind.FORMULA, room=9),
        *(Column(title, Kind.COUNT, room=9) for title in ("value", "active")[:width]),
    )
    total = ("total", _cell(symbols.total), *(document.total, document.active)[:width])
    is_short = _is_short(document)
    brief = (_FEW_TERMS if _sides(document) else _TERMS) if is_short else 0
    return Table(columns, tuple(rows), title="terms", total=total, is_whole=is_short, brief=brief)


_TERMS, _FEW_TERMS = 12, 5
"""Rows of the table of terms without `-v`; fewer if another table has the terms beside PyTorch or a file."""


def _cell(prose: Prose) -> Cell:
    return prose if isinstance(prose, str) else tuple(pieces_of(prose))


def _uses(document: FormulaDocument) -> Iterator[str]:
    """Tell which terms are applied several times, and count once."""
    for term, parts in _counted(document):
        if term.uses is not None and term.uses > 1:
            value = sum(part.value or 0 for part in parts)
            yield (
                f"{term.term}: each is applied {format_many(term.uses, 'time')} and counts once; "
                f"{format_count(value * term.uses)} if each use had its own"
            )


# with other fields, in bytes


def _what_if(document: FormulaDocument) -> Iterator[Block]:
    """Yield the changes by `--set`, term by term."""
    if document.what_if is None or document.total is None:
        return
    terms = document.what_if.terms
    columns = (Column("what if"), *_counts("before", "now"))

    def numbers(row: TermChange | PartChange) -> tuple[int, ...]:
        return row.before, row.after, row.difference

    rows = [row for term in terms for row in _rows(term, numbers, lambda part: part.before != part.after)]
    total = ("total", document.what_if.total, document.total, document.what_if.difference)
    yield Table(columns, tuple(rows), title="what if", total=total, is_whole=_is_short(document))
    if all(term.before == term.after for term in terms):
        yield Notes(("no stored parameter changes",))


def _weights(document: FormulaDocument) -> Iterator[str]:
    if document.memory is not None:
        sizes = (f"{format_bytes(each.bytes)} at {each.precision}" for each in document.memory.precisions)
        yield f"weights alone: {', '.join(sizes)}"


def _memory(document: FormulaDocument, detail: Detail) -> Iterator[Block]:
    """Yield the table of each term's bytes at each precision."""
    if document.memory is None:
        return
    precisions = document.memory.precisions
    columns = (Column("memory"), *(Column(each.precision, Kind.BYTES, room=9) for each in precisions))
    rows = tuple(
        Row((term.term, *(each.terms[at].bytes for each in precisions)))
        for at, term in enumerate(precisions[0].terms)
    )
    total: tuple[Cell, ...] = ("total", *(each.bytes for each in precisions))
    share = format_many(document.memory.block, "element")
    note = (
        f"weights alone; int8 and 4-bit: every {share} of a matrix share an fp16 scale, "
        "biases and norms stay fp16"
    )
    yield Table(columns, rows, title="memory", total=total, notes=(note,), detail=detail)


def _cache(document: FormulaDocument, symbols: Symbols) -> Iterator[Prose]:
    """Tell the size of one sequence's key-value cache; nothing without a cache, unless the user asked for it."""
    cache = document.cache
    if cache is None:
        if symbols.tokens is not None:
            yield "no key-value cache: the model does not decode token by token"
        return
    pieces: list[Piece] = ["key-value cache: ", *pieces_of(symbols.token_cache), " elements a token"]
    if cache.token_bytes is None:
        if symbols.source_cache:
            pieces += [", and ", *pieces_of(symbols.source_cache), " for each position of the encoder"]
        yield tuple(pieces)
        return
    pieces.append(f", {format_bytes(cache.token_bytes)} at fp16")
    if symbols.source_cache:
        size = format_bytes(cache.source_token_bytes or 0)
        pieces += [", and ", *pieces_of(symbols.source_cache), f", {size}, for each position of the encoder"]
    if cache.bytes is None or cache.tokens is None:
        yield tuple(pieces)
        return
    yield (*pieces, f"; {_describe_cache_size(cache, cache.tokens, cache.bytes)}")
    cache_bytes = cache.bytes
    sums = (
        f"{format_bytes(each.bytes + cache_bytes)} at {each.precision}"
        for each in (document.memory.precisions if document.memory else ())
    )
    yield f"weights and cache: {', '.join(sums)}"


def _describe_cache_size(cache: Cache, tokens: int, nbytes: int) -> str:
    """Return the size of one sequence's cache, in words."""
    text = f"{format_bytes(nbytes)} for {format_many(tokens, 'token')}"
    if cache.source_tokens:
        text += f" and {format_many(cache.source_tokens, 'position')}"
    if cache.kept is not None and cache.kept < tokens:
        text += f", of which the last {format_count(cache.kept)} are kept"
    if cache.context is not None and tokens > cache.context:
        text += f"; the model is made for {format_count(cache.context)} at most"
    return text


def _more(document: FormulaDocument, symbols: Symbols, legend: Table) -> Iterator[Block]:
    """Yield all fields, the source of each part's expression, and the formula in Python."""
    if len(document.fields) > len(legend.rows):
        yield _fields(document, symbols, document.fields, Detail.MORE)
    parts: Iterable[FormulaPart] = (part for _, parts in _counted(document) for part in parts)
    rows = tuple(Row((part.part, part.source or "")) for part in parts)
    columns = (Column("part"), Column("source", Kind.PROSE, room=9))
    yield Table(columns, rows, title="sources of the expressions", detail=Detail.MORE)
    expressions = (("total", document.expression), ("active", document.active_expression))
    found = [Fact(name, text) for name, text in expressions if text is not None]
    if document.expression == document.active_expression:
        del found[1:]
    if found:
        yield Facts(tuple(found), title="in Python, over the fields", detail=Detail.MORE)
