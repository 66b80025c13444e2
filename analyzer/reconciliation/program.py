"""Rules: stored tensors that PyTorch's program computes without inputs, and data that nothing in PyTorch explains.

`1 - time_mix`, tables of positions, a perceptron of coordinates, products of parameters: the manifest lists each such
value with its expression, its evidence and its readers. A stored tensor is explained if it equals a value and is read
where the program reads it. A parameter that the program reads in no other way is held by the values computed from it.

A file that keeps a computation as nodes stores few numbers of it: it counts positions from a mask of ones, for example,
and makes sines of them. The result that meets an activation is then compared with the program's values.

Parameters count as explained, and so do buffers whose values were compared, and scales and zero points of held codes.
For other data a name, a note or an annotation is no explanation once the data reaches arithmetic.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from analyzer.account.decoding import LEAST_LIKENESS
from analyzer.account.ledger import Entry, Role
from analyzer.account.opaque import find_opaque
from analyzer.account.scopes import module_of
from analyzer.manifest import FOLDED, FOLDED_BIAS, Parameter, Program, Traced
from analyzer.model import GraphPath, Key, Node, is_runtime_domain
from analyzer.model.content import Array, decode_values, digest, run_starts, run_sums, sample_positions
from analyzer.model.dtypes import HALF_STEPS, DType
from analyzer.model.liveness import Live
from analyzer.model.operators import DECODES, MOVES, Kind, Slot, operator_of
from analyzer.model.tables import count_free, counts_one_axis, is_known_table
from analyzer.model.wiring import Reader
from analyzer.reconciliation.books import Books, Holding, is_near
from analyzer.reconciliation.closeness import Reals
from analyzer.reconciliation.layouts import AxisLayout, joins
from analyzer.reconciliation.lines import MEANINGS, Line, Piece
from analyzer.reconciliation.tables import ROTARY
from analyzer.records import Frozen, Mutable, field, replace

# values computed in advance

_TOLERANCE = {DType.DOUBLE: 1e-9, DType.FLOAT: 4e-6, DType.FLOAT16: 2e-3, DType.BFLOAT16: 1.6e-2}
"""Tolerance of an element, relative to itself and to the largest: the rounding of a few operators in sequence."""

_TURNED = 2e-4
"""Tolerance of a table of waves, relative to the largest: a sine of a large angle errs as much as the angle."""

_WAVES = re.compile(r"\b(?:sin|cos|tan|constant)\b|\.\.\.")
"""Expressions of tables of waves, and abbreviated expressions, which may contain one."""

_ROUNDING = 2.4e-7
"""Rounding error of float32 relative to 1: the value may be a difference from 1."""

_MASKED = -1e4
"""Upper bound of a mask's numbers: the lowest number of the type, or minus infinity, which count as equal here."""

_LEAST_BITS = 40
"""Least evidence that rules out chance, in bits."""

_FEW = 2
"""Most distinct nonzero numbers of a value that is only recognized if the file stores it once."""

_LEAST_TABLE = 8
"""Least number of elements of a table without parameters. A smaller one proves nothing, unless it is bit-exact and has
odd numbers or is a known table."""


class _Match(Frozen):
    entry: Entry
    value: Traced
    chain: tuple[Line, ...]
    evidence: str
    error: float
    layout: AxisLayout | None = None


def match_evaluated(books: Books) -> None:
    """Settle stored values of the program as `evaluated`, and hold the parameters that only such values hold."""
    program = books.manifest.program
    if program is None or not program.values or books.contents.mode == "none":
        return
    read = _find_read(program)
    found = [
        match
        for entry in unexplained(books)
        if (match := _find_value(books, program, entry, read) or _find_places(books, program, entry))
        is not None
    ]
    done = {match.entry.tensor.key for match in found}
    found += [match for match in _find_folded(books, program, read) if match.entry.tensor.key not in done]
    matches = _without_doubtful(found)
    done |= {match.entry.tensor.key for match in found}
    whole = [each for each in _of_whole_numbers(program) if len(each.shape) > 1]
    rest = [entry for entry in unexplained(books) if entry.tensor.key not in done] if whole else []
    for value in whole:
        _settle_pieces(books, _find_pieces(books, value, rest))
    for match in matches:
        key = match.entry.tensor.key
        books.release(match.entry)
        books.settle(match.entry, Line.EVALUATED, f"{match.evidence}:evaluated")
        layout = match.layout
        books.entries[key] = replace(
            books.entries[key],
            expression=match.value.expression,
            value=match.value.name,
            value_piece=None if layout is None else Piece(key, layout.shape, layout.axes),
        )
        books.evaluated[key] = match.value
    _assign_parameters(books, program, matches)
    _name_rotary_tables(books, program)


def match_cut_values(books: Books) -> None:
    """Settle the slices of a parameter that forward repeats: initial states of several layers, for each example.

    A slice alone may look like a row of the parameter.
    """
    program = books.manifest.program
    if program is None or books.contents.mode != "full":
        return
    sizes = {parameter.name: parameter.numel for parameter in books.free_parameters()}
    for value in program.values:
        own = sizes.get(value.parameters[0], 0) if len(value.parameters) == 1 else 0
        is_repeated = own > 0 and value.numel > own and value.numel % own == 0 and value.is_read
        if not is_repeated or value.whole is None or len(value.shape) < 2:
            continue
        found = _find_pieces(books, value, list(unexplained(books)))
        _settle_pieces(books, found)
        _assign_parameters(books, program, found)


def _find_pieces(books: Books, value: Traced, entries: Sequence[Entry]) -> list[_Match]:
    """Return the entries that hold a value end to end along its first axis, in the order of the nodes that read them.

    Nothing else tells the place of a slice: in another order the slices are exchanged.
    """
    whole = None if value.whole is None else _decode(value, value.whole)
    if whole is None or not value.shape[0] or value.content is None or value.content.constant_filled:
        return []
    width = value.numel // value.shape[0]
    order = {}
    for entry in entries:
        numel = books.contents.numel(entry)
        if width and numel % width == 0 and 0 < numel < value.numel and _is_of_kind(books, entry, value):
            readers = books.ledger.wiring.readers(entry.tensor, past=MOVES | DECODES)
            paths = {reader.node.graph_path for reader in readers}
            if len(paths) == 1:
                order[entry.tensor.key] = min(reader.node.position for reader in readers), entry
    found: list[_Match] = []
    done = 0
    for _, entry in sorted(order.values(), key=lambda item: item[0]):
        array = books.contents.array(entry) if is_read_alike(books, entry, value) else None
        if array is None or books.contents.encoding(entry) is not None or done == value.numel:
            continue
        stored, expected = array.reshape(-1).astype(np.float64), whole[done : done + array.size]
        if stored.size != expected.size:
            continue
        if _is_like(stored, expected, _element_tolerances(books, entry, value, expected)):
            match = _Match(entry, value, (Line.SLICED,), "content", _largest_error(stored, expected))
            if _is_evidence(books, match):
                found.append(match)
                done += array.size
    return found if done == value.numel else []


def _settle_pieces(books: Books, found: Sequence[_Match]) -> None:
    for number, match in enumerate(found):
        key = match.entry.tensor.key
        books.release(match.entry)
        books.settle(match.entry, Line.EVALUATED, "content:evaluated+pieces")
        expression = f"{match.value.expression}, part {number + 1} of {len(found)}"
        books.entries[key] = replace(books.entries[key], expression=expression, value=match.value.name)
        if not match.value.parameters:
            books.evaluated[key] = match.value


def _name_rotary_tables(books: Books, program: Program) -> None:
    """Assign to each known table of cosines or sines the program's value that it equals."""
    for key, line in list(books.entries.items()):
        is_derived = line.decided_by == ROTARY or line.decided_by.endswith("+derived")
        if line.line is not Line.BUFFER or line.piece is not None or not is_derived:
            continue
        entry = books.entry(key)
        candidates = _near_values(books, program, entry, books.contents.numel(entry))
        match = next((each for value in candidates if (each := _compare_value(books, entry, value))), None)
        if match is not None and match.layout is not None:
            value_piece = Piece(key, match.layout.shape, match.layout.axes)
            books.entries[key] = replace(line, value=match.value.name, value_piece=value_piece)


# candidates among stored tensors


def _find_folded(books: Books, program: Program, read: Collection[str]) -> Iterator[_Match]:
    """Yield matches of tensors under a layer's own names into which an exporter folded a batch normalization."""
    folded = [value for value in program.values if _is_folded(value)]
    for suspect in books.suspects if folded else ():
        name = suspect.tensor.name
        layer = module_of(name)
        values = [
            value
            for value in folded
            if name in value.parameters or any(module == layer for module, _ in value.uses)
        ]
        if values and (
            match := _find_value(books, replace(program, values=tuple(values)), suspect.entry, read)
        ):
            yield match


def unexplained(books: Books) -> Iterator[Entry]:
    """Yield the entries without an explanation: nameless ones, and those whose name is of a tensor they derive from."""
    live = books.ledger.live
    for suspect in books.suspects:
        own = suspect.entry.tensor.name
        if own not in suspect.tensor.names and books.aligned(own) not in suspect.tensor.names:
            yield suspect.entry
    claimed = [  # only a note says that it is computed from a buffer
        books.entry(key)
        for key, line in books.entries.items()
        if line.line is Line.BUFFER and line.decided_by.endswith("+derived")
    ]
    for entry in (*books.free_entries(), *claimed):
        if entry.role is Role.QUANTIZATION or not entry.uses:
            continue
        if live is not None and entry.tensor.key not in live.tensors:
            continue
        yield entry


def _is_explained_by_note(books: Books, entry: Entry) -> bool:
    """Whether the note on an entry explains it: it is a constant or claimed, and all one number or a known table."""
    is_claimed = entry.tensor.key in books.entries
    if entry.role is not Role.CONSTANT and not is_claimed:
        return False
    array = books.contents.array(entry)
    return array is None or count_free(array) <= 1


# the value that an entry holds


def _find_value(books: Books, program: Program, entry: Entry, read: Collection[str]) -> _Match | None:
    """Return the program's value that an entry equals; it may meet an input here only if it does in the program."""
    numel = books.contents.numel(entry)
    if not numel:
        return None
    found = []
    for value in _near_values(books, program, entry, numel):
        if not is_read_alike(books, entry, value):
            continue
        if value.parameters and value.name not in read and _meets_an_input(books, entry):
            continue
        match = _compare_value(books, entry, value)
        if match is None or not _is_evidence(books, match):
            continue
        if value.parameters or not _is_explained_by_note(books, entry):
            found.append(match)
    return min(found, key=lambda match: (len(match.chain), match.error), default=None)


_MOST = 1 << 62
"""Most elements that an index can count; a file may claim more."""


def _near_values(books: Books, program: Program, entry: Entry, numel: int) -> Iterator[Traced]:
    """Yield values with equal size, first and last element: no layout moves these two."""
    if numel > _MOST:
        return
    ends = books.contents.at(entry, np.array([0, numel - 1], dtype=np.int64))
    if ends is None or ends[0].dtype.kind not in "biufV":
        return
    stored = ends[0].astype(np.float64)
    steps = np.zeros(2) if ends[1] is None else ends[1]
    for value in program.values:
        if value.numel != numel or value.content is None:
            continue
        samples = _decode(value, value.content.samples)
        if samples is None or not _is_of_kind(books, entry, value):
            continue
        tolerances = _element_tolerances(books, entry, value, samples)
        if bool(_within(stored, samples[[0, -1]], tolerances[[0, -1]] + steps * 1.01).all()):
            yield value


def _find_places(books: Books, program: Program, entry: Entry) -> _Match | None:
    """Return the match of a `GatherND` index, along whose last axis the exporter joined the coordinates of an element.

    The exporter broadcasts the index of each axis to a common shape, and stacks them. Each must be a value of the
    program, or count along one axis.
    """
    if (
        entry.tensor.dtype not in (DType.INT64, DType.INT32)
        or not 1 < len(entry.tensor.shape) <= _MOST_PLACES
    ):
        return None
    readers = books.ledger.wiring.readers(entry.tensor)
    if not readers or any(reader.node.op_type not in _PLACING or reader.slot != 1 for reader in readers):
        return None
    array = books.contents.array(entry)
    if array is None or not array.size or array.shape[-1] > _MOST_PLACES:
        return None
    largest: Traced | None = None
    for column in np.moveaxis(array, -1, 0):
        if counts_one_axis(column.astype(np.float64)):
            continue
        wanted = _narrowed(column)
        value = next((each for each in _of_whole_numbers(program) if _equals(each, wanted)), None)
        if value is None or not is_read_alike(books, entry, value):
            return None
        match = _Match(entry, value, (), "content", 0.0)
        if not _is_evidence(books, match):
            return None
        largest = value if largest is None or value.numel > largest.numel else largest
    return None if largest is None else _Match(entry, largest, (), "content", 0.0)


_PLACING = frozenset({"GatherND", "ScatterND"})
_MOST_PLACES = 8
"""Most axes of an index, and of the tensor that it indexes."""


def _of_whole_numbers(program: Program) -> Iterator[Traced]:
    return (
        each
        for each in program.values
        if each.whole is not None and not each.parameters and each.dtype in (DType.INT64, DType.INT32)
    )


def _equals(value: Traced, wanted: Array) -> bool:
    """Whether a value equals an array once both are narrowed."""
    whole = None if value.whole is None else _decode(value, value.whole)
    return whole is not None and np.array_equal(_narrowed(whole.reshape(value.shape)), wanted)


def _narrowed(array: Array) -> Array:
    """Return an array without the axes along which it repeats one element, which undoes a broadcast."""
    for axis in range(array.ndim - 1, -1, -1):
        first = array.take([0], axis)
        if bool((array == first).all()):
            array = first.squeeze(axis)
    return array


def _is_of_kind(books: Books, entry: Entry, value: Traced) -> bool:
    """Whether the types agree in kind: floating point, integer or bool.

    Arithmetic with an activation casts integers and booleans: a cast value must be read as the program reads it.
    """
    if entry.tensor.dtype.is_floating and not value.dtype.is_floating:
        is_plain = books.contents.encoding(entry) is None and not value.parameters
        return is_plain and is_read_alike(books, entry, value, is_strict=True)
    if books.contents.encoding(entry) is not None or entry.tensor.dtype.is_floating:
        return value.dtype.is_floating
    return not value.dtype.is_floating and (entry.tensor.dtype is DType.BOOL) == (value.dtype is DType.BOOL)


def _decode(value: Traced, text: str) -> Reals | None:
    element = value.dtype.to_numpy()
    return None if element is None else decode_values(text, element).astype(np.float64)


def _element_tolerances(books: Books, entry: Entry, value: Traced, expected: Reals) -> Reals:
    """Return the tolerance of each element; 0 for integers."""
    if not value.dtype.is_floating:
        return np.zeros(expected.shape)
    dtype = _rounded_type(books, entry, value) if value.parameters else entry.tensor.dtype
    if dtype in HALF_STEPS and value.dtype not in HALF_STEPS and not value.parameters:
        tolerance = 1.1 * HALF_STEPS[dtype]  # computed in full precision, and rounded once
    else:
        stored = _TOLERANCE.get(dtype, _TOLERANCE[DType.FLOAT])
        tolerance = max(stored, _TOLERANCE.get(value.dtype, stored))
    finite = expected[np.isfinite(expected) & (expected > _MASKED)]
    scale = float(np.abs(finite).max(initial=0.0))
    with np.errstate(invalid="ignore"):
        if value.parameters:
            return tolerance * (np.abs(expected) + scale / 4) + min(_ROUNDING, scale / 100)
        if _WAVES.search(value.expression):
            return np.full(expected.shape, max(tolerance, _TURNED) * scale)
        return tolerance * np.abs(expected) + 2 * _ROUNDING * scale


def _rounded_type(books: Books, entry: Entry, value: Traced) -> DType:
    """Return the type to which a value's operands were rounded: half precision if the file holds its parameters so.

    A model that was converted to half precision before the export computes with rounded parameters, though perhaps in
    float32.
    """
    if entry.tensor.dtype is not DType.FLOAT or value.dtype is not DType.FLOAT:
        return entry.tensor.dtype
    return books.half_type() or entry.tensor.dtype


def _within(stored: Reals, expected: Reals, tolerances: Reals) -> npt.NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        masked = (stored <= _MASKED) & (expected <= _MASKED)
        near: npt.NDArray[np.bool_] = (
            (np.abs(stored - expected) <= tolerances) | masked | (stored == expected)
        )
    return near


def _compare_value(books: Books, entry: Entry, value: Traced) -> _Match | None:
    """Return the match of an entry with a value, in any order of axes; samples first, then all elements if required."""
    content = value.content
    samples = None if content is None else _decode(value, content.samples)
    if samples is None:
        return None
    for layout in _layouts_of(books, entry, value):
        look = books.contents.look(entry, layout)
        if look is None:
            continue
        stored, steps = look[0].astype(np.float64), look[1]
        tolerances = _element_tolerances(books, entry, value, samples)
        if not _is_like(stored, samples, tolerances if steps is None else tolerances + steps * 1.01):
            continue
        error = _largest_error(stored, samples)
        evidence = "sampled"
        if books.contents.mode == "full" or not layout.is_plain:
            if not _is_whole(books, entry, value, layout, error):
                continue
            evidence = "content"
        return _Match(entry, value, layout.chain, evidence, error, layout)
    return None


def _layouts_of(books: Books, entry: Entry, value: Traced) -> Iterator[AxisLayout]:
    """Yield the layouts in which an entry may hold a value, and last those that join neighbouring axes first."""
    yield from books.contents.layouts(entry, value.shape, is_computed=True)
    stored = books.contents.shape(entry)
    if not 1 < len(stored) < len(value.shape) or books.contents.mode != "full":
        return
    for joined in dict.fromkeys(itertools.permutations(stored)):
        if joined != stored and joins(value.shape, joined):
            yield from books.contents.layouts(entry, joined, is_computed=True)


def _is_like(stored: Reals, expected: Reals, tolerances: Reals) -> bool:
    """Whether each element is within its tolerance, and the direction is similar: near zero the first proves little."""
    if not bool(_within(stored, expected, tolerances).all()):
        return False
    plain = np.isfinite(stored) & np.isfinite(expected) & (expected > _MASKED)
    stored_numbers, expected_numbers = stored[plain], expected[plain]
    sizes = float(np.linalg.norm(stored_numbers) * np.linalg.norm(expected_numbers))
    if not sizes:
        return bool(np.array_equal(stored_numbers, expected_numbers)) and plain.sum() < plain.size
    return float(stored_numbers @ expected_numbers) >= LEAST_LIKENESS * sizes


def _largest_error(stored: Reals, expected: Reals) -> float:
    with np.errstate(invalid="ignore"):
        differences = np.abs(stored - expected)
    plain = np.isfinite(differences) & (expected > _MASKED)
    return float(differences[plain].max(initial=0.0))


def _is_whole(books: Books, entry: Entry, value: Traced, layout: AxisLayout, error: float) -> bool:
    """Whether every element matches the value: by digest, by the values, or by the sums of each run of elements."""
    array = books.contents.array(entry)
    content = value.content
    if array is None or content is None:
        return False
    restored = np.ascontiguousarray(layout.restore(array))
    if restored.dtype == value.dtype.to_numpy() and digest(restored) == content.digest:
        return True
    flat = restored.reshape(-1).astype(np.float64)
    encoded = books.contents.encoding(entry)
    steps = np.zeros(0) if encoded is None else _steps(books, entry, layout)
    whole = None if value.whole is None else _decode(value, value.whole)
    if whole is not None:
        tolerances = _element_tolerances(books, entry, value, whole)
        return _is_like(flat, whole, tolerances if not steps.size else tolerances + steps * 1.01)
    if value.sums is None:
        return False
    if not value.dtype.is_floating:
        return bool((run_sums(flat) == _sums(value)).all())
    # The error of the samples predicts that of the others; a larger one shows in the sums of its run.
    scale = float(np.abs(flat[np.isfinite(flat) & (flat > _MASKED)]).max(initial=0.0))
    if not bool(np.isfinite(flat).all()) or not scale:
        return False
    tolerances = np.minimum(_element_tolerances(books, entry, value, flat), 4 * error + 2.0**-21 * scale)
    if steps.size:
        tolerances = tolerances + steps
    starts = run_starts(flat.size)
    slack = np.sqrt(np.add.reduceat(tolerances * tolerances, np.array(starts)))
    projections, norms = np.abs(run_sums(flat) - _sums(value))
    return bool((norms <= slack + 1e-12).all() and (projections <= 6 * slack + 1e-12).all())


def _steps(books: Books, entry: Entry, layout: AxisLayout) -> Reals:
    encoded = books.contents.encoding(entry)
    assert encoded is not None
    flat = np.concatenate([steps for _, steps in encoded.bands()])
    return np.ascontiguousarray(layout.restore(flat.reshape(encoded.shape))).reshape(-1).astype(np.float64)


def _sums(value: Traced) -> Reals:
    assert value.sums is not None
    return decode_values(value.sums, np.dtype("<f8")).reshape(2, -1).astype(np.float64)


# strength of the evidence, and agreement of the readers


_ODD = {DType.FLOAT16: (0x1F << 13, 8), DType.BFLOAT16: (0x7 << 16, 4)}
"""Half-precision type -> mask of a number's last bits, as a float32, and the bits of evidence of an odd number."""


def _is_evidence(books: Books, match: _Match) -> bool:
    """Whether the numbers are so many and so odd that a match by chance is ruled out.

    A value computed from parameters must have odd numbers; another value may be any table, and its place counts too. A
    single number is evidence if its last bits are not zero.
    """
    value, content = match.value, match.value.content
    samples = None if content is None else _decode(value, content.samples)
    if samples is None:
        return False
    numbers = np.unique(samples[np.isfinite(samples)])
    mask, bits_per_number = _ODD.get(value.dtype, (0xFF, 16))
    odd = int((np.abs(numbers).astype(np.float32).view(np.uint32) & mask != 0).sum())
    if not value.parameters:
        is_distinctive = (
            value.numel >= _LEAST_TABLE
            or (
                not match.error
                and (16 * odd >= _LEAST_BITS or is_known_table(samples))
                and value.dtype.is_floating
            )
            or is_read_alike(books, match.entry, value, is_strict=True)
        )
        return numbers.size >= 2 and is_distinctive
    if books.contents.encoding(match.entry) is not None and match.error > _ROUNDING * float(
        np.abs(samples).max()
    ):
        return 4 * odd >= _LEAST_BITS
    bits = (
        bits_per_number
        if match.entry.tensor.dtype in (DType.FLOAT, DType.DOUBLE)
        else min(bits_per_number, 8)
    )
    return bits * odd >= (_LEAST_BITS if np.count_nonzero(numbers) > _FEW else bits)


def _without_doubtful(found: Sequence[_Match]) -> list[_Match]:
    """Drop matches of values with few distinct numbers that the file stores more than once: they prove nothing."""
    by_value: dict[str, list[_Match]] = defaultdict(list)
    for match in found:
        by_value[match.value.name].append(match)
    return [
        match
        for match in found
        if not match.value.parameters or not _is_few(match.value) or len(by_value[match.value.name]) == 1
    ]


def _is_few(value: Traced) -> bool:
    samples = None if value.content is None else _decode(value, value.content.samples)
    return samples is None or int(np.count_nonzero(np.unique(samples))) <= _FEW


_FAMILIES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("add", "sub", "rsub"), frozenset({"add"})),
    **dict.fromkeys(("mul", "div", "pow"), frozenset({"mul"})),
    **dict.fromkeys(
        ("linear", "mm", "bmm", "matmul", "addmm", "baddbmm", "einsum"), frozenset({"product", "add"})
    ),
    **dict.fromkeys(("embedding", "index", "index_select", "gather", "take"), frozenset({"index", "logic"})),
    **dict.fromkeys(
        ("where", "masked_fill", "eq", "ne", "lt", "le", "gt", "ge"), frozenset({"logic", "add", "mul"})
    ),
    "scaled_dot_product_attention": frozenset({"add", "mul", "logic", "product"}),
    "layer_norm": frozenset({"norm", "add", "mul"}),
}
"""PyTorch operator -> its uses of an operand, in the words of `_family`; other operators may do anything."""

_NODES: Mapping[str, str] = {
    **dict.fromkeys(("Add", "Sub", "Sum"), "add"),
    **dict.fromkeys(("Mul", "Div", "Pow"), "mul"),
    **dict.fromkeys(
        ("Where", "And", "Or", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"), "logic"
    ),
}


def _family(node: Node) -> str | None:
    """Return the family of a node's operation; None if it may be any."""
    if node.op_type in _NODES:
        return _NODES[node.op_type]
    known = operator_of(node)
    kind = None if known is None else known.kind
    if kind in (Kind.PRODUCT, Kind.CONVOLUTION):
        return "product"
    if kind is Kind.LOOKS_UP:
        return "index"
    return "norm" if kind is Kind.NORMALIZES else None


def is_read_alike(books: Books, entry: Entry, value: Traced, *, is_strict: bool = False) -> bool:
    """Whether the nodes that read an entry do the same as the program does with the value, in the same modules.

    Unknown modules and operators count as agreement, unless `is_strict`: then both must be known and agree.
    """
    modules = books.reader_modules(entry)
    program_modules = {module for module, _ in value.uses}
    if is_strict and not modules & program_modules:
        return False
    if (
        modules
        and program_modules
        and not any(is_near(one, other) for one in modules for other in program_modules)
    ):
        return False
    nodes = [reader.node for reader in books.ledger.wiring.readers(entry.tensor, past=MOVES | DECODES)]
    families = {_family(node) for node in nodes}
    known = [_FAMILIES.get(operator.rstrip("_")) for _, operator in value.uses]
    if not known or None in known or None in families or not families:
        return not is_strict
    return bool(families & frozenset().union(*(each for each in known if each is not None)))


def _find_read(program: Program) -> set[str]:
    """Return the names of the values that operations on inputs read: directly, in another layout, or times a number.

    An exporter may move a factor behind a product, but not its sign: a negated value is another value. It may fold a
    batch normalization into a layer, or not.
    """
    by_name = {value.name: value for value in program.values}
    alike: dict[str, list[Traced]] = defaultdict(list)
    for value in program.values:
        alike[value.expression].append(value)
    waiting = [value for value in program.values if value.is_read]
    read = {value.name for value in waiting}
    while waiting:
        value = waiting.pop()
        before = value.origins if _PASSED.search(value.expression) or _is_folded(value) else ()
        for each in (
            *alike.pop(value.expression, ()),
            *(by_name[name] for name in before if name in by_name),
        ):
            if each.name not in read:
                read.add(each.name)
                waiting.append(each)
    return read


_PASSED = re.compile(
    r"^(?:_unsafe_view|clone|contiguous|expand|flatten|permute|repeat|reshape|squeeze|t|transpose|unsqueeze|view)\("
    r"|[*/] [\d.]+(?:e[-+]?\d+)?$|^[\d.]+(?:e[-+]?\d+)? \* "
)
"""Expressions that only move a value, or multiply or divide it by a number."""


def _is_folded(value: Traced) -> bool:
    """Whether a value is the weight or bias of a layer together with the batch normalization behind it."""
    return value.name.rpartition(".")[2] in (FOLDED, FOLDED_BIAS)


def _meets_an_input(books: Books, entry: Entry) -> bool:
    readers = books.ledger.wiring.readers(entry.tensor, past=MOVES | DECODES)
    return any(not books.fixed(reader.node) for reader in readers)


# parameters that stored values hold


def _assign_parameters(books: Books, program: Program, matches: Sequence[_Match]) -> None:
    """Hold the parameters that the program reads only through values that the file stores.

    Every path from such a parameter to an operation on inputs must pass a stored value: else the file lacks a part of
    the parameter's use.
    """
    stored: dict[str, list[_Match]] = defaultdict(list)
    for match in matches:
        stored[match.value.name].append(match)
    by_origin: dict[str, list[Traced]] = defaultdict(list)
    for value in program.values:
        for origin in value.origins:
            by_origin[origin].append(value)
    through = set(program.through)
    counted: dict[Key, int] = defaultdict(int)
    for parameter in [parameter for parameter in books.free_parameters() if parameter.name in through]:
        found = _cut_off(parameter.name, by_origin, stored)
        if found:
            _assign_parameter(books, parameter, found, counted)
    factors = _factors(books, program)
    if not factors:
        return
    for parameter in [parameter for parameter in books.free_parameters() if parameter.name in through]:
        if (
            parameter.numel == 1
            and _cut_off(parameter.name, by_origin, {**stored, **dict.fromkeys(factors, ())}) is not None
        ):
            books.assign_parts(parameter, [], (Line.EVALUATED,), "content:evaluated+attribute", 0.0)


def _factors(books: Books, program: Program) -> set[str]:
    """Return the names of single numbers of the program that became an attribute of a fused product, or their inverse.

    A number is evidence only if exactly one value of the program equals it in the module that reads it.
    """
    found: set[str] = set()
    for number, module in numbers_of_products(books):
        fits = [
            value
            for value, _ in numbers_near(program, number)
            if module is None or any(is_near(module, reading_module) for reading_module, _ in value.uses)
        ]
        if len(fits) == 1 and fits[0].parameters:
            found.add(fits[0].name)
    return found


def numbers_of_products(books: Books) -> list[tuple[float, str | None]]:
    """Return the number that scales each fused product, with the module of its node; None if no module is known.

    A fusion removes a stored factor of a product and keeps it as `alpha` (onnxruntime's MatMulScaleFusion).
    """
    scopes = books.ledger.traced_scopes
    return [
        (float(value), None if node.place not in scopes else books.aligned.module(scopes[node.place]))
        for node in books.ledger.model.nodes()
        if node.op_type == "FusedMatMul"
        and is_runtime_domain(node.domain)
        and isinstance(value := node.settings.get("alpha"), float)
        and value not in (0.0, 1.0)
    ]


def numbers_near(program: Program, number: float) -> Iterator[tuple[Traced, bool]]:
    """Yield the single values of a program that equal a number up to rounding, and whether their inverse does."""
    for value in program.values:
        known = _single(value)
        if known is not None and min(abs(known / number - 1), abs(known * number - 1)) <= _ROUNDING:
            yield value, abs(known * number - 1) < abs(known / number - 1)


def _single(value: Traced) -> float | None:
    """Return the number of a value of one element; None if it has more, or if the number's last bits are zero."""
    if value.numel != 1 or value.content is None or not value.dtype.is_floating:
        return None
    samples = _decode(value, value.content.samples)
    if samples is None or not np.isfinite(samples[0]) or not samples[0]:
        return None
    number = float(samples[0])
    return number if np.float32(abs(number)).view(np.uint32) & 0xFF else None


def _cut_off(
    name: str, by_origin: Mapping[str, Sequence[Traced]], stored: Mapping[str, Sequence[_Match]]
) -> list[_Match] | None:
    """Return the stored values between a parameter and all operations on inputs; None if some path passes none."""
    found: list[_Match] = []
    seen: set[str] = set()
    equal = {_numbers_of(matches[0].value): matches for matches in stored.values() if matches}
    pending = list(by_origin.get(name, ()))
    while pending:
        value = pending.pop()
        if value.name in seen:
            continue
        seen.add(value.name)
        if value.name in stored:
            found.extend(stored[value.name])
        elif value.content is not None and _numbers_of(value) in equal:
            found.extend(equal[_numbers_of(value)])  # forward computes it twice, and the file stores it once
        elif value.is_read:
            return None
        else:
            pending.extend(by_origin.get(value.name, ()))
    return found


def _numbers_of(value: Traced) -> tuple[object, ...]:
    """Return the key of equal values: same parameters, type and size, and same content."""
    return value.parameters, value.dtype, value.numel, None if value.content is None else value.content.digest


def _assign_parameter(
    books: Books, parameter: Parameter, found: Sequence[_Match], counted: dict[Key, int]
) -> None:
    """Count a parameter in the first tensor computed from it, up to the elements that remain there."""
    first, keys = found[0], tuple(dict.fromkeys(match.entry.tensor.key for match in found))
    key, numel = first.entry.tensor.key, first.entry.tensor.numel
    remaining = books.contents.numel(first.entry) - counted[key]
    learned = max(0, min(parameter.numel, remaining))
    is_counted = counted[key] > 0 or any(
        holding.key == key for each in books.holdings.values() for holding in each
    )
    counted[key] += learned
    before = books.entries[key]
    error = max(match.error for match in found)
    holding = Holding(key, learned, 0 if is_counted else numel)
    books.assign_parts(parameter, [holding], (*first.chain, Line.EVALUATED), before.decided_by, error)
    settled = books.parameters[parameter.name]
    books.parameters[parameter.name] = replace(settled, entries=keys)
    books.entries[key] = replace(
        books.entries[key],
        parameter=before.parameter or parameter.name,
        expression=before.expression,
        value=before.value,
    )


# values that nodes compute from stored ones

_MOST_AXES = 4
"""Most axes for which other orders are tried."""


def known_values(books: Books) -> Callable[[GraphPath, str, Array], bool]:
    """Return a predicate (graph, name, value): whether the program has a value with these numbers in that module."""
    program = books.manifest.program
    if program is None or books.contents.mode == "none":
        return lambda path, name, value: False
    return _Known(books, [value for value in program.values if not value.parameters]).has


class _Known(Mutable):
    """Values of the program that depend on no parameter."""

    books: Books
    values: Sequence[Traced]
    _answers: dict[tuple[GraphPath, str], bool] = field(default_factory=dict)

    def has(self, path: GraphPath, name: str, value: Array) -> bool:
        if (path, name) not in self._answers:
            self._answers[path, name] = any(
                self._is_near(path, name, traced) and self._is_equal(value, traced) for traced in self.values
            )
        return self._answers[path, name]

    def _is_near(self, path: GraphPath, name: str, traced: Traced) -> bool:
        """Whether a reader of the value may belong to a module in which the program reads it; unknown modules may."""
        ledger = self.books.ledger
        maker = ledger.wiring.find(path, name)
        nodes = [reader.node for reader in ledger.wiring.readers(maker)] if isinstance(maker, Node) else []
        scopes = {ledger.traced_scopes[node.place] for node in nodes if node.place in ledger.traced_scopes}
        modules = {self.books.aligned.module(scope) for scope in scopes}
        program_modules = {module for module, _ in traced.uses}
        return (
            not modules
            or not program_modules
            or any(is_near(one, other) for one, other in itertools.product(modules, program_modules))
        )

    def _is_equal(self, value: Array, traced: Traced) -> bool:
        """Whether each element is the program's, in any order of axes, and with any number of repetitions."""
        if value.size < _LEAST_TABLE or traced.numel < _LEAST_TABLE or value.dtype.kind not in "biuf":
            return False
        is_whole = value.dtype.kind in "biu"
        if is_whole == traced.dtype.is_floating:
            return False
        return any(
            is_value(np.ascontiguousarray(turned), traced, self.books.contents.originals.salt)
            for each in repeated(value, traced.numel)
            for turned in _orders_of(each, traced.shape)
        )


def repeated(value: Array, numel: int) -> Iterator[Array]:
    """Yield a value in the given size: unchanged, or with another count of repetitions along an axis that repeats."""
    if value.size == numel:
        yield value
        return
    for axis, length in enumerate(value.shape):
        rest = value.size // length if length else 0
        first = np.take(value, [0], axis) if length else value
        if rest and numel % rest == 0 and bool((value == first).all()):
            yield np.repeat(first, numel // rest, axis)


def _orders_of(value: Array, shape: tuple[int, ...]) -> Iterator[Array]:
    """Yield a value unchanged, and in each order of its axes that gives a shape, ignoring axes of one element."""
    yield value
    plain = value.squeeze()
    wanted = tuple(dim for dim in shape if dim != 1)
    if 1 < plain.ndim <= _MOST_AXES and sorted(plain.shape) == sorted(wanted):
        for order in itertools.permutations(range(plain.ndim)):
            if tuple(plain.shape[axis] for axis in order) == wanted and order != tuple(range(plain.ndim)):
                yield plain.transpose(order)


def is_value(value: Array, traced: Traced, salt: str) -> bool:
    """Whether an array has the elements of a program's value, in its order, up to the rounding of a few operators."""
    content, element = traced.content, traced.dtype.to_numpy()
    if content is None or element is None or content.constant_filled:
        return False
    flat = value.reshape(-1)
    samples = decode_values(content.samples, element).astype(np.float64)
    if not _are_near(flat[sample_positions(flat.size, salt)].astype(np.float64), samples, traced):
        return False
    if flat.dtype == element and digest(value) == content.digest:
        return True
    if traced.whole is not None:
        whole = decode_values(traced.whole, element).astype(np.float64)
        return _are_near(flat.astype(np.float64), whole, traced)
    if traced.sums is None:
        return False
    actual = flat.astype(np.float64)
    wanted = decode_values(traced.sums, np.dtype("<f8")).reshape(2, -1).astype(np.float64)
    if not bool(np.isfinite(actual).all()):
        return False
    tolerances = np.full(actual.shape, _known_tolerance(actual, traced.dtype))
    slack = np.sqrt(np.add.reduceat(tolerances * tolerances, np.array(run_starts(actual.size))))
    projections, norms = np.abs(run_sums(actual) - wanted)
    return bool((norms <= slack).all() and (projections <= 6 * slack).all())


def _are_near(actual: Reals, expected: Reals, traced: Traced) -> bool:
    if actual.shape != expected.shape:
        return False
    with np.errstate(invalid="ignore"):
        masked = (actual <= _MASKED) & (expected <= _MASKED)
        near = np.abs(actual - expected) <= _known_tolerance(expected, traced.dtype)
    return bool((near | masked | (actual == expected)).all())


def _known_tolerance(expected: Reals, dtype: DType) -> float:
    """Return the tolerance of each element; 0 for integers."""
    if not dtype.is_floating:
        return 0.0
    plain = expected[np.isfinite(expected) & (expected > _MASKED)]
    return _TURNED * float(np.abs(plain).max(initial=0.0))


# data in the computation that nothing in PyTorch explains

_COMPARED = frozenset({"content", "sampled", "rows"})


def settle_opaque(books: Books) -> None:
    """Settle as `opaque` the data that takes part in the computation and has no explanation."""
    ledger = books.ledger
    if ledger.live is None:
        return
    explained = _find_explained(books)
    claims = {key for key, line in books.entries.items() if line.line is Line.BUFFER and key not in explained}
    found = find_opaque(
        ledger.model,
        ledger.wiring,
        ledger.live,
        lambda tensor: tensor.key in explained or tensor.key not in books.entries,
        claims,
        whole=books.contents.mode == "full",
        is_known=known_values(books),
        tables={  # indices and counts: results of integers are exact, those of rounded numbers are not
            key
            for key, value in books.evaluated.items()
            if not value.parameters and not value.dtype.is_floating
        },
    )
    for key in (*found.tensors, *_not_neutral(books, ledger.live)):
        books.entries[key] = replace(
            books.entries[key], line=Line.OPAQUE, decided_by="structure:computes", learned=0
        )
    books.generated = dict(found.made)


def _not_neutral(books: Books, live: Live) -> Iterator[Key]:
    """Yield gains and biases that an exporter added to a normalization, and that are not ones or zeros."""
    for entry in books.ledger.entries:
        key = entry.tensor.key
        line = books.entries.get(key)
        if line is None or line.line is not Line.ADDED or key not in live.tensors:
            continue
        neutral = {number for reader in books.readers(entry) if (number := _neutral(reader)) is not None}
        array = books.contents.array(entry) if neutral and books.contents.mode != "none" else None
        if array is not None and array.dtype.kind == "f" and not all((array == n).all() for n in neutral):
            yield key


def _neutral(reader: Reader) -> float | None:
    """Return the neutral number of a normalization's gain (1) or bias (0); None for another input."""
    known = operator_of(reader.node)
    if known is None or known.kind is not Kind.NORMALIZES:
        return None
    return {Slot.LEARNED: 1.0, Slot.BIAS: 0.0}.get(known.slot(reader.slot))


def _find_explained(books: Books) -> set[Key]:
    """Return the tensors that need no explanation: PyTorch's by their values, their decoders, and reported errors."""
    explained: set[Key] = set()
    for entry in books.ledger.entries:
        key = entry.tensor.key
        line = books.entries.get(key)
        if line is None:
            continue
        meaning = MEANINGS[line.line]
        if line.line is Line.BUFFER:
            is_compared = bool(_COMPARED.intersection(re.split("[+: ]", line.decided_by)))
            is_explained = is_compared or books.contents.mode == "none"
        else:
            is_explained = meaning.values != "none" or bool(meaning.unbalanced)
        if is_explained:
            explained.add(key)
            encoded = books.contents.encoding(entry)
            if encoded is not None:
                explained.update(companion.key for companion in encoded.companions)
    return explained
