"""Rules for the leftovers of all other rules: suspects differ, parameters are unused or missing, entries have a role.

A parameter may belong to a head that this file's task does not have, or be read in training only. The rule for these
applies if no export's trace tells which parameters are read. The file must have nothing of the head: no tensor of its
parameters, and no node with a scope inside it. Other absent parameters are `missing`.
"""

from __future__ import annotations

import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from analyzer.account.classify.structure import find_origin
from analyzer.account.ledger import Entry, Evidence, Role
from analyzer.account.scopes import is_dotted
from analyzer.manifest import OF_CLASS, Buffer, Manifest, Parameter, Traced, split_name
from analyzer.model import Node, StoredTensor
from analyzer.model.content import Array, decode_values, is_constant_filled
from analyzer.model.liveness import find_live
from analyzer.model.operators import DECODES, MEASURES, MOVES, Kind, Slot, kind_of, operator_of
from analyzer.model.pyramids import are_cells, are_levels, strides_of
from analyzer.model.tables import (
    are_slopes,
    is_affine,
    is_known_table,
    is_mask,
    is_published,
    is_sinusoidal,
    slack_of,
)
from analyzer.model.waves import are_frequencies_of_axes, begin_at_zero
from analyzer.model.wiring import Reader
from analyzer.reconciliation.books import Books, Suspect
from analyzer.reconciliation.closeness import find_masked
from analyzer.reconciliation.lines import MEANINGS, Line, Piece
from analyzer.reconciliation.meetings import Follower
from analyzer.reconciliation.tables import is_only_rotary
from analyzer.reconciliation.unread import is_cut_off
from analyzer.records import replace

_BY_ROLE = {
    Role.CONSTANT: Line.ADDED,
    Role.QUANTIZATION: Line.QUANTIZATION,
    Role.PARAMETER: Line.UNEXPECTED,
    Role.UNATTRIBUTED: Line.UNEXPLAINED,
}


def settle_suspects(books: Books) -> None:
    """Settle suspects as `differing`: a PyTorch name with unreadable content, or content that no formula explains.

    The rule tells if the values are in the file in another order or under another name, or cannot be read
    (`analyzer.reconciliation.lines.WHY`).
    """
    for suspect in books.suspects:
        entry, tensor = suspect.entry, suspect.tensor
        rule = _explain_suspect(books, suspect)
        is_unread = rule == "none:unreadable"
        layout = None if is_unread else books.contents.closest(entry, tensor)
        piece = None if layout is None else Piece(entry.tensor.key, layout.shape, layout.axes)
        if isinstance(tensor, Parameter) and tensor.name not in books.parameters:
            error = books.contents.error(entry, tensor)
            pieces = () if piece is None else (piece,)
            books.assign(tensor, entry, (Line.DIFFERING,), rule, error, pieces=pieces)
        else:
            books.settle(entry, Line.DIFFERING, rule, tensor.name, piece=piece)
    books.suspects.clear()


def _explain_suspect(books: Books, suspect: Suspect) -> str:
    """Return the rule for a suspect, which tells what became of the values of its name."""
    entry, tensor, contents = suspect.entry, suspect.tensor, books.contents
    if contents.compares(tensor) and not contents.is_readable(entry):
        return "none:unreadable"
    if contents.fits_turned(entry, tensor):
        return f"{contents.evidence}:turned"
    if _is_reordered(books, entry, tensor):
        return "content:reordered"
    is_code = entry.tensor.dtype.is_integer and contents.encoding(entry) is None
    if is_code and tensor.dtype.is_floating and contents.compares(tensor):
        return "none:undecoded"
    settled = books.parameters.get(tensor.name)
    is_held = settled is not None and settled.line is not Line.DIFFERING
    if is_held or _is_stored_elsewhere(books, suspect):
        return f"{contents.evidence}:held-elsewhere"
    return f"name+{contents.evidence}"


def _is_reordered(books: Books, entry: Entry, tensor: Parameter | Buffer) -> bool:
    """Whether an entry has all values of a tensor, each as often, in another order; constant tensors do not count."""
    if (
        entry.tensor.numel != tensor.numel
        or tensor.numel > _MOST_FILLER
        or not books.contents.compares(tensor)
    ):
        return False
    if entry.tensor.dtype is not tensor.dtype or not tensor.dtype.is_floating:
        return False
    values, array = books.contents.originals.values(tensor), books.contents.array(entry)
    if values is None or array is None or is_constant_filled(array):
        return False
    return bool(np.array_equal(np.sort(array.reshape(-1)), np.sort(values.reshape(-1))))


def _is_stored_elsewhere(books: Books, suspect: Suspect) -> bool:
    """Whether another suspect holds the values of this suspect's name, as if two names were exchanged."""
    tensor, contents = suspect.tensor, books.contents
    others = [
        other.entry
        for other in books.suspects
        if other.entry is not suspect.entry and contents.numel(other.entry) == tensor.numel
    ]
    if not contents.compares(tensor) or contents.originals.is_constant(tensor):
        return False
    return any(contents.fit(entry, tensor, is_named=False) is not None for entry in others[:_MOST_SUSPECTS])


_MOST_SUSPECTS = 64
"""Most other suspects of equal size that are searched for a tensor's values."""


def settle_fillers(books: Books) -> None:
    """Settle fillers that operators require as `added`: constant-filled tensors, masks and known tables.

    Constant-filled tensors and tables count only if no PyTorch parameter of that size is left. Among inputs that look
    like weights only neutral ones count: zeros that are added, ones that multiply, and an identity matrix as a factor
    of a product (TabNet's groups). LayerNormalization without a bias gets zeros, a norm without a gain ones. A bias
    that somebody has set to zero does not count, because its parameter is still missing. The zero state of an unrolled
    loop counts if the loop's other steps multiply the same weights by the result of the previous step.
    """
    if books.contents.mode == "none" and not books.contents.is_local:
        return  # values of a remote file are read only on request
    sizes: dict[int, list[Parameter]] = defaultdict(list)
    for parameter in books.free_parameters():
        if parameter.read is not False:  # the file lacks a parameter that forward does not read
            sizes[parameter.numel].append(parameter)
    zeroed = find_zeroed(books.manifest)
    for entry in [*books.free_entries(), *(suspect.entry for suspect in books.suspects)]:
        is_left = any(
            not _is_another_norms(books, entry, parameter)
            for parameter in sizes.get(books.contents.numel(entry), ())
        )
        if not is_left and (_is_first_state(books, entry) or _is_first_product(books, entry)):
            books.settle(entry, Line.ADDED, "content:first-state")
            continue
        if _is_empty_row(books, entry, is_left=is_left):
            books.settle(entry, Line.ADDED, "content:zeros-of-branch")
            continue
        if zeroed and _is_zero_factor(books, entry, zeroed):
            books.settle(entry, Line.ADDED, "content:zeros-of-program")
            continue
        data = None if is_left else _data_of_weights(books, entry)
        if data is not None:
            books.settle(entry, Line.ADDED, "content:table" if data.any() else "content:constant-filled")
            continue
        is_unknown = entry.role in (Role.PARAMETER, Role.UNATTRIBUTED) or _is_cache(entry)
        if not is_unknown or is_dotted(entry.tensor.name) or entry.tensor.numel > _MOST_FILLER:
            continue
        if not entry.uses:  # no operator requires it
            continue
        array = books.contents.array(entry)
        if array is None or not array.size or array.dtype.kind != "f":
            continue
        is_computed = _is_of_unlisted(books, entry)
        encoded = books.contents.encoding(entry)
        if encoded is not None:
            step = max((float(steps.max(initial=0.0)) for _, steps in encoded.bands()), default=0.0)
            if is_computed and not is_left and array.size >= _LEAST_TABLE and is_known_table(array, step):
                books.settle(entry, Line.ADDED, "content:table")
                continue
        if is_computed and _is_low_factor(books, entry, array):
            continue
        is_unclaimed = not is_left and (not entry.sources or is_computed)
        is_weight = entry.role is Role.PARAMETER
        if entry.role is Role.BUFFER:
            if is_unclaimed and _is_computed_table(books, entry, array):
                books.settle(entry, Line.ADDED, "content:table")
        elif (
            is_unclaimed
            and is_constant_filled(array)
            and (not is_weight or _is_neutral(entry, array) or _is_joined(books, entry, array))
        ):
            if array.size > 1 and is_only_rotary(books, entry):
                continue  # rotary frequencies that somebody has overwritten with one number
            books.settle(entry, Line.ADDED, "content:constant-filled")
        elif is_unclaimed and is_weight and encoded is None and _is_identity(books, entry, array):
            books.settle(entry, Line.ADDED, "content:identity")
        elif (_is_mask(array) and (not is_weight or entry.decided_by in _MAY_BE_MASKS)) or (
            is_unclaimed and not is_weight and _is_preference(books, entry, array)
        ):
            books.settle(entry, Line.ADDED, "content:mask")
        elif is_unclaimed and (
            (
                (is_computed or not is_weight)
                and not _are_other_strides(books, array)
                and (_is_table(array) or _are_places(books, entry, array) or _are_strides(books, array))
            )
            or _is_computed_table(books, entry, array)
            or _is_meshed(books, entry, array)
            or is_published(np.squeeze(array.astype(np.float64)))
        ):
            books.settle(entry, Line.ADDED, "content:table")
    books.suspects = [s for s in books.suspects if s.entry.tensor.key not in books.entries]


def _is_of_unlisted(books: Books, entry: Entry) -> bool:
    """Whether the exporter notes that an entry was computed only from tensors that a state dict does not list.

    A non-persistent buffer has a name only in the file, and some modules call a mask `bias`.
    """
    is_computed = entry.decided_by in ("provenance:folded-from", "provenance:folded-with")
    is_open = is_computed and not books.manifest.lists_all_buffers and bool(entry.sources)
    return is_open and all(books.tensor(source) is None for source in entry.sources)


def _is_joined(books: Books, entry: Entry, array: Array) -> bool:
    """Whether zeros are only concatenated with computed values: an initial state, or padding."""
    readers = books.ledger.wiring.readers(entry.tensor, past=_SAME) if not array.any() else ()
    return bool(readers) and all(
        reader.node.op_type == "Concat"
        and reader.node.is_standard
        and any(isinstance(part, Node) for part in books.ledger.wiring.producers(reader.node))
        for reader in readers
    )


def _is_low_factor(books: Books, entry: Entry, array: Array) -> bool:
    """Whether a tensor with numbers below -1 multiplies a value, as a mask before it is added."""
    readers = books.ledger.wiring.readers(entry.tensor, past=_SAME)
    return bool((array.astype(np.float64) < -1).any()) and any(
        reader.node.op_type == "Mul" for reader in readers
    )


def _is_another_norms(books: Books, entry: Entry, parameter: Parameter) -> bool:
    """Whether only normalizations read an entry, in known modules, none of which owns the parameter."""
    readers = books.ledger.wiring.readers(entry.tensor, past=_SAME)
    if not readers or not all(kind_of(reader.node) is Kind.NORMALIZES for reader in readers):
        return False
    modules = books.reader_modules(entry)
    return bool(modules) and not modules & {split_name(name)[0] for name in parameter.names}


def _is_table(array: Array) -> bool:
    """Whether numbers are a known table, and enough of them that this is no accident."""
    if array.size >= _LEAST_TABLE:
        return is_known_table(array)
    values = np.squeeze(array.astype(np.float64))
    if values.ndim == 1 and are_levels(values):
        return True
    is_positive = bool((values > 0).all())
    return array.size >= _LEAST_SLOPES and is_positive and are_slopes(values, slack_of(array))


_LEAST_SLOPES = 3
"""Least number of ALiBi slopes: their number determines them, so that three are no accident."""


def _are_places(books: Books, entry: Entry, array: Array) -> bool:
    """Whether numbers that only operators of ONNX read are evenly spaced, such as the centers of an image's patches."""
    values = np.squeeze(array.astype(np.float64))
    is_even = values.ndim == 1 and values.size >= _LEAST_PLACES and values[0] != values[-1]
    readers = books.ledger.wiring.readers(entry.tensor)
    return is_even and is_affine(values) and all(operator_of(reader.node) is not None for reader in readers)


def _is_meshed(books: Books, entry: Entry, array: Array) -> bool:
    """Whether numbers are a row of cells that is only repeated for all rows or columns of a grid, as by `meshgrid`."""
    values = np.squeeze(array.astype(np.float64))
    if values.ndim != 1 or values.size < _LEAST_PLACES or not are_cells(values):
        return False
    readers = books.ledger.wiring.readers(entry.tensor, past=_SAME)
    return bool(readers) and all(
        reader.node.is_standard and reader.node.op_type == "Expand" and reader.slot == 0 for reader in readers
    )


def _are_strides(books: Books, array: Array) -> bool:
    """Whether numbers are the strides of a detector's cells, for the images that the file takes.

    A grid of stride s has ceil(height / s) rows and ceil(width / s) columns.
    """
    levels = strides_of(np.squeeze(array.astype(np.float64)))
    signature = (value for graph in books.ledger.model.graphs for value in graph.signature)
    images = [[side for side in value.sizes[-2:] if isinstance(side, int)] for value in signature]
    return bool(levels) and any(
        all(count == math.prod(math.ceil(side / stride) for side in image) for stride, count in levels)
        for image in images
        if len(image) == 2
    )


def _are_other_strides(books: Books, array: Array) -> bool:
    """Whether numbers look like strides of cells, and are not those for the images that the file takes."""
    return bool(strides_of(np.squeeze(array.astype(np.float64)))) and not _are_strides(books, array)


_LEAST_PLACES = 4
"""Least number of evenly spaced numbers that are no accident: two determine the others."""


def _is_cache(entry: Entry) -> bool:
    """Whether only an operator's slot tells that an entry is a buffer: attention's tables of cosines and sines."""
    return entry.role is Role.BUFFER and entry.evidence is Evidence.STRUCTURE and not entry.sources


def _data_of_weights(books: Books, entry: Entry) -> Array | None:
    """Return the numbers of a known table (Swin V2) or of zeros (DETR) that only weights of PyTorch multiply.

    Zeros in place of a layer's input make its weight `dead`.
    """
    if (
        entry.sources
        or entry.role not in (Role.PARAMETER, Role.CONSTANT)
        or entry.tensor.numel > _MOST_FILLER
    ):
        return None
    wiring = books.ledger.wiring
    every = wiring.readers(entry.tensor, past=MOVES)
    readers = [reader for reader in every if reader.node.op_type not in MEASURES]
    if not readers or not all(_is_operand(reader) and not reader.slot for reader in readers):
        return None
    weights = [wiring.find(reader.node.graph_path, reader.node.inputs[1]) for reader in readers]
    held = {key for settled in books.parameters.values() for key in settled.entries}
    if not all(isinstance(weight, StoredTensor) and weight.key in held for weight in weights):
        return None
    array = books.contents.array(entry)
    if array is None or array.dtype.kind != "f" or books.contents.encoding(entry) is not None:
        return None
    is_known = not array.any() or (not is_constant_filled(array) and _is_table(array))
    return array if is_known else None


def _is_computed_table(books: Books, entry: Entry, array: Array) -> bool:
    """Whether an entry is a table that `forward` makes of positions: waves, their frequencies, or a mask.

    This applies only if PyTorch's side does not list all buffers, as with a state dict; a complete manifest has the
    frequencies.
    """
    if books.manifest.lists_all_buffers:
        return False
    values = np.squeeze(array.astype(np.float64))
    readers = books.ledger.wiring.readers(entry.tensor, past=_SAME | DECODES)
    is_looked_up = all(_looks_up(reader) for reader in readers)
    if _is_cache(entry) or is_looked_up:
        slack = slack_of(array)
        if is_looked_up and array.size >= _LEAST_TABLE and is_mask(values):
            return True
        return (
            values.ndim == 2
            and array.size >= _LEAST_TABLE
            and begin_at_zero(values, slack)
            and is_sinusoidal(values, slack)
        )
    return are_frequencies_of_axes(values, slack_of(array)) and is_only_rotary(books, entry)


def _looks_up(reader: Reader) -> bool:
    known = operator_of(reader.node)
    return known is not None and known.kind is Kind.LOOKS_UP and known.slot(reader.slot) is Slot.TABLE


def find_zeroed(manifest: Manifest) -> frozenset[str]:
    """Return the parameters that PyTorch's program only multiplies by zeros, so that no output depends on them."""
    if manifest.program is None:
        return frozenset()
    by_origin: dict[str, list[Traced]] = defaultdict(list)
    for value in manifest.program.values:
        for origin in value.origins:
            by_origin[origin].append(value)
    return frozenset(
        name
        for name in manifest.program.through
        if name in by_origin and all(_is_zeros(value) for value in by_origin[name])
    )


def _is_zeros(value: Traced) -> bool:
    """Whether a value of the program is all zeros."""
    element = value.dtype.to_numpy()
    if value.content is None or element is None or not value.content.constant_filled:
        return False
    return not decode_values(value.content.samples, element).any()


def _is_zero_factor(books: Books, entry: Entry, zeroed: frozenset[str]) -> bool:
    """Whether an entry is zeros that multiply only parameters that the program multiplies by zeros too."""
    if not entry.tensor.dtype.is_floating or not 0 < entry.tensor.numel <= _MOST_FILLER:
        return False
    readers = books.ledger.wiring.readers(entry.tensor, past=MOVES)
    if not readers or not all(_is_operand(reader) for reader in readers):
        return False
    for node, slot in readers:
        factor = find_origin(books.ledger.wiring, node, 1 - slot)
        line = books.entries.get(factor.key) if isinstance(factor, StoredTensor) else None
        if line is None or line.parameter not in zeroed:
            return False
    array = books.contents.array(entry)
    return array is not None and not array.any()


def _is_empty_row(books: Books, entry: Entry, *, is_left: bool) -> bool:
    """Whether an entry is zeros that a branch only outputs, computed from parameters that the file holds elsewhere.

    Exporters write an empty bag of an `EmbeddingBag` this way: the notes name the table, but only its shape was read.
    A tool may have removed the notes; then no parameter of this size may be left.
    """
    if entry.uses or not 0 < entry.tensor.numel <= _MOST_FILLER:
        return False
    graph = next((each for each in books.ledger.model.graphs if each.path == entry.tensor.graph_path), None)
    if graph is None or not graph.path or entry.tensor.name not in graph.outputs:
        return False
    if entry.sources:
        return _is_zeros_of_stored(books, entry)
    array = None if is_left else books.contents.array(entry)
    return array is not None and not array.any()


def _is_zeros_of_stored(books: Books, entry: Entry) -> bool:
    """Whether an entry is zeros computed from parameters of other sizes, which other tensors hold."""
    lines = [books.parameters.get(source) for source in entry.sources]
    if any(line is None or MEANINGS[line.line].unbalanced for line in lines):
        return False
    if any(parameter.numel == entry.tensor.numel for parameter in _sources(books, entry)):
        return False
    array = books.contents.array(entry)
    return array is not None and not array.any()


def _sources(books: Books, entry: Entry) -> Iterable[Parameter]:
    return (parameter for parameter in books.manifest.parameters if parameter.name in entry.sources)


def _is_first_product(books: Books, entry: Entry) -> bool:
    """Whether an entry is zeros that are only added: the product of an initial state and a weight held elsewhere."""
    if not entry.sources or not entry.tensor.dtype.is_floating or not 0 < entry.tensor.numel <= _MOST_FILLER:
        return False
    readers = books.ledger.wiring.readers(entry.tensor, past=_SAME)
    if not readers or any(reader.node.op_type != "Add" or not reader.node.is_standard for reader in readers):
        return False
    return _is_zeros_of_stored(books, entry)


def _is_first_state(books: Books, entry: Entry) -> bool:
    """Whether an entry is zeros in products whose weights other products multiply by an activation."""
    if not entry.tensor.dtype.is_floating or not 0 < entry.tensor.numel <= _MOST_FILLER:
        return False
    readers = books.ledger.wiring.readers(entry.tensor, past=_SAME)
    products = [reader for reader in readers if _is_operand(reader)]
    if not products or not all(_is_repeated(books, reader) for reader in products):
        return False
    array = books.contents.array(entry)
    return array is not None and not array.any()


_SAME = frozenset({"Cast", "CastLike", "Identity"})


def _is_operand(reader: Reader) -> bool:
    return reader.slot < 2 and reader.node.op_type in ("Gemm", "MatMul") and reader.node.is_standard


def _is_repeated(books: Books, reader: Reader) -> bool:
    """Whether another product multiplies this product's stored weight, or its transpose, by a computed value."""
    wiring, node = books.ledger.wiring, reader.node
    weight = wiring.find(node.graph_path, node.inputs[1 - reader.slot])
    if not isinstance(weight, (StoredTensor, Node)):
        return False
    if isinstance(weight, Node) and weight.op_type != "Transpose":
        return False
    return any(
        isinstance(wiring.find(other.node.graph_path, other.node.inputs[1 - other.slot]), Node)
        for other in wiring.readers(weight)
        if other.node.place != node.place and other.slot == 1 - reader.slot and _is_operand(other)
    )


_MOST_FILLER = 1 << 24
"""Most elements of an unexplained entry that is examined as a filler."""

_LEAST_TABLE = 8
"""Least number of elements of a known table: two or three numbers form a sequence by accident."""

_MAY_BE_MASKS = ("structure:Add-vector", "provenance:folded-from", "provenance:folded-with")
"""Rules of entries that seem learned, but may be masks: added vectors, and tensors folded from a weight's shape."""


_SCALES = re.compile(r"structure:(?:(?:Mul|Div)-vector|\w*Norm\w*\[\d\])")
"""Rules by which an entry is a factor of each channel; the shifts of normalizations are in `_SHIFTS`."""

_SHIFTS = {
    "BatchNormalization[2]",
    "GroupNorm[2]",
    "GroupNormalization[2]",
    "InstanceNormalization[2]",
    "LayerNormalization[2]",
    "SkipLayerNormalization[3]",
    "SkipLayerNormalization[4]",
    "SkipSimplifiedLayerNormalization[3]",
}


def _is_neutral(entry: Entry, array: Array) -> bool:
    """Whether a vector is neutral: zeros that are added, or ones that multiply."""
    is_vector = sum(dim != 1 for dim in array.shape) <= 1
    is_shift = entry.decided_by.removeprefix("structure:") in _SHIFTS
    neutral = 1.0 if _SCALES.fullmatch(entry.decided_by) and not is_shift else 0.0
    return is_vector and bool(array.flat[0] == neutral)


def _is_identity(books: Books, entry: Entry, array: Array) -> bool:
    """Whether an array is an identity matrix, and nothing but matrix products reads it: they have no effect."""
    is_square = array.ndim == 2 and array.shape[0] == array.shape[1] > 1
    readers = books.readers(entry)
    is_factor = all(reader.node.is_standard and reader.node.op_type == "MatMul" for reader in readers)
    return is_square and bool(readers) and is_factor and bool((array == np.eye(len(array))).all())


def _is_mask(array: Array) -> bool:
    """Whether an array has only zeros and one large negative number, as a mask that is added to scores."""
    values = array.astype(np.float64)
    masked = find_masked(values)
    return bool(masked.any()) and bool((masked | (values == 0)).all()) and np.unique(values[masked]).size == 1


def _is_preference(books: Books, entry: Entry, array: Array) -> bool:
    """Whether one large whole number among zeros makes one of several results the first (Segment Anything's masks)."""
    others = array[array != 0]
    is_one = others.size == 1 and array.size >= _LEAST_PLACES
    is_large = is_one and float(others[0]).is_integer() and float(others[0]) >= _LEAST_PREFERENCE
    return is_large and not is_only_rotary(books, entry)


_LEAST_PREFERENCE = 100
"""Least number that outweighs all scores."""


def settle_parameters(books: Books) -> None:
    """Settle absent parameters: empty, unused by the export's trace, a dropped bias of zeros, else missing."""
    for parameter in list(books.free_parameters()):
        if not parameter.numel:
            books.settle_absent(parameter, Line.UNUSED, "none:no-elements")
        elif parameter.read is False and books.manifest.trace is not None:
            books.settle_absent(parameter, Line.UNUSED, f"provenance:{books.manifest.trace}")
        elif books.is_dropped_zero(parameter):
            books.settle_absent(parameter, Line.REMOVED_ZERO, "provenance:traced-zero")
        elif books.is_zero(parameter) and books.has_weight_of(parameter):
            books.settle_absent(parameter, Line.REMOVED_ZERO, "content:zero-bias")
        else:
            books.settle_absent(parameter, Line.MISSING, "none:not-in-file")


def settle_entries(books: Books) -> None:
    """Settle entries that hold no PyTorch parameter by their role in the file."""
    for entry in list(books.free_entries()):
        if entry.role is not Role.PARAMETER and _is_noted_weight(books, entry):
            # A note may claim any tensor for the exporter, but exporters make no matrices to multiply by.
            books.settle(entry, Line.UNEXPLAINED, "structure:multiplied")
        elif entry.role is Role.BUFFER:
            known = [name for name in entry.sources if books.tensor(name) is not None]
            # A state dict lacks non-persistent buffers: then the file's own note counts.
            is_noted = not books.manifest.lists_all_buffers and bool(entry.sources)
            line = Line.BUFFER if known or is_noted else Line.UNEXPLAINED
            books.settle(entry, line, entry.decided_by, known[0] if known else None)
        else:
            is_learned = entry.role is Role.PARAMETER
            books.settle(entry, _BY_ROLE[entry.role], entry.decided_by, is_counted=is_learned)


def _is_noted_weight(books: Books, entry: Entry) -> bool:
    is_matrix = entry.tensor.dtype.is_floating and sum(dim > 1 for dim in entry.tensor.shape) > 1
    is_noted = entry.evidence in (
        Evidence.PROVENANCE,
        Evidence.NAME,
    )  # evidence of an operator's slot is trusted
    return is_noted and is_matrix and books.is_multiplied(entry) and not _is_one_number(books, entry)


def _is_one_number(books: Books, entry: Entry) -> bool:
    """Whether all elements are equal, as in an initial state that a quantizer keeps."""
    array = books.contents.array(entry) if books.contents.mode != "none" else None
    return array is not None and bool(array.size) and bool((array == array.reshape(-1)[0]).all())


def settle_not_compared(books: Books) -> None:
    """Settle held parameters whose values PyTorch's side lacks as `not-compared`, in a comparison of contents."""
    contents = books.contents
    if contents.mode == "none":
        return
    for parameter in books.manifest.parameters:
        settled = books.parameters[parameter.name]
        is_reported = not settled.entries or bool(MEANINGS[settled.line].unbalanced)
        if is_reported or not parameter.numel or contents.originals.has(parameter):
            continue
        chain = (*settled.chain, Line.NOT_COMPARED)
        books.parameters[parameter.name] = replace(settled, line=Line.NOT_COMPARED, chain=chain)
        for key in settled.entries:
            entry_line = books.entries.get(key)
            if entry_line is not None and entry_line.parameter == parameter.name:
                books.entries[key] = replace(entry_line, line=Line.NOT_COMPARED)


def settle_dead(books: Books) -> None:
    """Settle parameters as `dead` if no output depends on their tensors: the model computes with something else.

    A parameter that PyTorch's program does not read, or multiplies by zeros, may be idle, and so may a recurrent cell's
    weight of the state, which is zeros in a first step. A parameter in several pieces needs all of them.
    """
    parameter_keys = {key for line in books.parameters.values() for key in line.entries}
    buffer_keys = {key for key, line in books.entries.items() if line.line is Line.BUFFER}
    drawn_keys = parameter_keys | buffer_keys
    find = functools.partial(
        find_live, books.ledger.model, books.ledger.wiring, lambda tensor: tensor.key in parameter_keys
    )
    live = find(lambda tensor: tensor.key in drawn_keys)
    names = {name for parameter in books.manifest.parameters for name in parameter.names}
    of_states = {name for name in names if _OF_STATE in name and name.replace(_OF_STATE, _OF_INPUT) in names}
    reached = find().tensors if of_states else live.tensors
    zeroed = find_zeroed(books.manifest)
    follower = Follower(books)
    for parameter in books.manifest.parameters:
        settled = books.parameters[parameter.name]
        if not settled.entries or MEANINGS[settled.line].unbalanced or parameter.read is False:
            continue
        if parameter.name in zeroed:
            continue
        pieces = {piece.key for piece in settled.pieces}
        tensors = live.tensors if of_states.isdisjoint(parameter.names) else reached
        dead = {key for key in (*pieces, *settled.entries) if key not in tensors}
        is_dead = bool(pieces & dead) if len(pieces) > 1 else dead.issuperset(settled.entries)
        if not is_dead and len(parameter.shape) > 1 and len(pieces) == len(settled.entries) == 1:
            is_dead = is_cut_off(follower, live, books.entry(settled.pieces[0].key), settled.pieces[0])
        if not is_dead:
            continue
        chain = (*settled.chain, Line.DEAD)
        books.parameters[parameter.name] = replace(settled, line=Line.DEAD, chain=chain)
        for key in dead & books.entries.keys():
            books.entries[key] = replace(books.entries[key], line=Line.DEAD)


_OF_STATE, _OF_INPUT = "weight_hh", "weight_ih"
"""PyTorch's names for the weights of a recurrent layer's state and of its input."""


def mark_ties(books: Books) -> None:
    """Settle parameters of several names that are stored once, whole, as `tied`; the old line stays in the chain."""
    storing = {Line.IDENTICAL, Line.NAMED, Line.RENAMED, Line.TRANSPOSED, Line.RESHAPED}
    for parameter in books.manifest.parameters:
        settled = books.parameters[parameter.name]
        if parameter.tied and settled.line in storing and len(settled.entries) == 1:
            chain = (*settled.chain, Line.TIED)
            books.parameters[parameter.name] = replace(settled, line=Line.TIED, chain=chain)
            entry_line = books.entries[settled.entries[0]]
            books.entries[entry_line.key] = replace(entry_line, line=Line.TIED)


# heads of other tasks

HEADS = (
    "classifier",
    "cls",
    "cls.predictions",
    "cls.seq_relationship",
    "decoder_pred",
    "discriminator_predictions",
    "generator_lm_head",
    "generator_predictions",
    "lm_head",
    "pooler",
    "pre_classifier",
    "predictions",
    "project_hid",
    "project_q",
    "qa_outputs",
    "quantizer",
    "score",
    "sop_classifier",
    "vocab_layer_norm",
    "vocab_projector",
    "vocab_transform",
)
"""Heads that transformers adds to a bare model for one task (`modeling_*.py`), at the top or in the base model."""

TRAINING_ONLY = ("mask_token", "masked_spec_embed")
"""Leaf names of parameters that `forward` reads in training only (`modeling_vit.py`, `modeling_wav2vec2.py`)."""


_NEVER_READ = re.compile(
    r"(?:.*\.)?(?:fusion_stage\.layers\.0\.residual_layer1"
    r"|refinenet4\.resConfUnit1"
    r"|wav2vec2_conformer\.encoder\.pos_conv_embed)\."
)
"""Modules that a class creates but its `forward` never calls: in DPT and Depth Anything, whose first fusion has nothing
to add (transformers `modeling_dpt.py`, MiDaS `dpt_depth.py`), and Wav2Vec2-Conformer's convolution of positions."""


def settle_outside(books: Books) -> None:
    """Settle whole absent heads as `outside`, and parameters that only training reads as `unused`.

    Parameters that the `forward` of their class never reads are `unused` too, and so is the attention to an encoder
    that is not there. The rule is skipped if an export's trace tells which parameters are read; a class's own trace
    tells nothing about the file.
    """
    if books.manifest.trace not in (None, OF_CLASS):
        return
    heads: dict[str, list[Parameter]] = defaultdict(list)
    for parameter in books.manifest.parameters:
        head = _head(parameter.names)
        if head is not None:
            heads[head].append(parameter)
    scopes = {books.aligned.module(scope) for scope in books.ledger.traced_scopes.values()}
    for head, parameters in sorted(heads.items()):
        is_absent = all(parameter.name not in books.parameters for parameter in parameters)
        if is_absent and not any(f"{scope}.".startswith(f"{head}.") for scope in scopes):
            for parameter in parameters:
                books.settle_absent(parameter, Line.OUTSIDE, f"name:head {head}")
    for parameter in list(books.free_parameters()):
        if parameter.name.rpartition(".")[2] in TRAINING_ONLY:
            books.settle_absent(parameter, Line.UNUSED, "name:training-only")
    unread: dict[str, list[Parameter]] = defaultdict(list)
    for parameter in books.manifest.parameters:
        found = _NEVER_READ.match(parameter.name)
        if found is not None:
            unread[found.group()].append(parameter)
    for module, parameters in sorted(unread.items()):
        is_absent = all(parameter.name not in books.parameters for parameter in parameters)
        if is_absent and not any(f"{scope}.".startswith(module) for scope in scopes):
            for parameter in parameters:
                books.settle_absent(parameter, Line.UNUSED, f"name:never-read {module.rstrip('.')}")
    across = _find_cross_attention(books)
    if all(parameter.name not in books.parameters for parameter in across):
        for parameter in across:
            books.settle_absent(parameter, Line.UNUSED, "name:no-encoder")


_CROSS = re.compile(
    r"(.*?)\.?(?:layers?|h|block)\.\d+\.(?:encoder_attn|encoder_attn_layer_norm|cross_?attention|ln_cross_attn)\."
)
"""Attention of a decoder to an encoder (transformers `modeling_bart.py`, `modeling_bert.py`, `modeling_gpt2.py`)."""


def _find_cross_attention(books: Books) -> list[Parameter]:
    """Return the attention to an encoder, of a decoder that has none, and whose file takes no encoder's states.

    `forward` skips it without such states, as in `BartForCausalLM`.
    """
    if any("encoder" in name for graph in books.ledger.model.graphs for name in graph.inputs):
        return []
    decoders: dict[str, list[Parameter]] = defaultdict(list)
    for parameter in books.manifest.parameters:
        found = _CROSS.match(parameter.name)
        if found is not None:
            decoders[found.group(1)].append(parameter)
    if len(decoders) != 1:
        return []
    [(decoder, across)] = decoders.items()
    others = [each.name for each in books.manifest.parameters if not each.name.startswith(decoder)]
    has_encoder = any("encoder" in part for name in others for part in name.split("."))
    return [] if has_encoder else across


def _head(names: Iterable[str]) -> str | None:
    """Return the head that contains all names of a parameter; None if a tied name is outside of it."""
    found = {_head_of(name) for name in names}
    return found.pop() if len(found) == 1 else None


def _head_of(name: str) -> str | None:
    """Return the head at the start of a name, or after the base model's prefix; None if there is none."""
    parts = name.split(".")
    for start in (0, 1):
        for length in (2, 1):
            if len(parts) > start + length and ".".join(parts[start : start + length]) in HEADS:
                return ".".join(parts[: start + length])
    return None
