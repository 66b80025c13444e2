"""Rules: a stored tensor that is a whole PyTorch tensor, identified by its name, content, reader or shape.

A name match is not a value match: if contents can be compared and differ, the pair becomes a suspect for the formulas
that follow, and is `differing` if none explains it. A nameless tensor is identified by its content. A tensor that
PyTorch has twice may be stored once, or the reverse.

If values are not compared, shapes, roles and order decide. They tell how many parameters of a shape the file has,
which is the account's question. Among several of one shape they only presume an assignment, in the order of PyTorch's
names and of the file's nodes. `decided_by` begins with `structure`.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from analyzer.account.ledger import Entry, Evidence, Role
from analyzer.account.scopes import module_of
from analyzer.manifest import BatchNorm, Buffer, Parameter, split_name
from analyzer.model import Carrier, Key
from analyzer.model.content import Array, digest
from analyzer.model.dtypes import DType
from analyzer.model.operators import DECODES
from analyzer.reconciliation.books import Books, Holding, Suspect, is_inside, piece_of
from analyzer.reconciliation.closeness import was_narrower
from analyzer.reconciliation.contents import Contents, Fit, Stacks, Tensor
from analyzer.reconciliation.layouts import PACKS_TRANSPOSE, AxisLayout, layouts
from analyzer.reconciliation.lines import SAMPLED, Line, Piece
from analyzer.reconciliation.program import is_read_alike, unexplained

# by content


def match_by_content(books: Books) -> None:
    """Match each nameless entry with the PyTorch tensor of the same content.

    Among several of equal content, the one whose module reads the entry goes first. Constant-filled tensors are often
    equal, so for them the module must read the entry, or the entry's readers have no known module.
    """
    index = Index(books.contents, books.manifest.tensors)
    found = [
        (entry, list(index.find(entry)))
        for entry in books.free_entries()
        if books.contents.numel(entry) > 1 and entry.role is not Role.QUANTIZATION
    ]
    # The copy with the fewest changes counts as the original, wherever it is in the file.
    found.sort(key=lambda pair: min((len(fit.chain) for _, fit in pair[1]), default=0))
    for entry, fits in found:
        modules = books.reader_modules(entry)
        candidates = [item for item in fits if _is_free_for(books, entry, item[0], modules)]
        candidates.sort(key=lambda item: not is_read_in(item[0], modules))
        for tensor, fit in candidates[:1]:
            if isinstance(tensor, Buffer):
                books.settle(entry, Line.BUFFER, fit.evidence, tensor.name, piece=piece_of(entry, fit))
            else:
                chain = fit.chain or (Line.RENAMED,)
                books.assign(tensor, entry, chain, fit.evidence, fit.error, pieces=(piece_of(entry, fit),))


def match_cast_buffers(books: Books) -> None:
    """Match each nameless tensor with the buffer of integers or booleans that arithmetic with an activation casts.

    Every element must be the buffer's, in the stored type. Small numbers are often equal: if nodes name their modules,
    one around or inside the buffer's module must read the tensor; of several equal buffers the module itself. If the
    program is known, the nodes must do the same as it does.
    """
    program = books.manifest.program
    if program is None and books.manifest.lists_all_buffers:
        return  # the module is at hand: its program is traced if something is left
    values = {value.expression: value for value in (() if program is None else program.values)}
    whole = [
        buffer
        for buffer in books.manifest.buffers
        if not buffer.dtype.is_floating and buffer.numel > 1 and books.contents.compares(buffer)
    ]
    for entry in list(unexplained(books)) if whole and books.contents.mode == "full" else ():
        if books.contents.encoding(entry) is not None or entry.tensor.dtype is DType.BOOL:
            continue
        found = [
            (buffer, layout)
            for buffer in whole
            if buffer.numel == books.contents.numel(entry)
            and buffer.dtype is not entry.tensor.dtype
            and all(is_read_alike(books, entry, values[name]) for name in buffer.names if name in values)
            and (layout := _cast_layout(books, entry, buffer)) is not None
        ]
        modules = books.reader_modules(entry)
        near = [item for item in found if is_read_in(item[0], modules)]
        is_sure = len(found) == 1 and not books.contents.originals.is_constant(found[0][0])
        if not near and is_sure:
            owners = {module_of(name) for name in found[0][0].names}
            is_near = any(is_inside(a, b) or is_inside(b, a) for a in modules for b in owners)
            near = found if is_near or not modules else []
        for buffer, layout in near[:1]:
            books.release(entry)
            piece = Piece(entry.tensor.key, layout.shape, layout.axes)
            books.settle(entry, Line.BUFFER, "content:cast", buffer.name, piece=piece)


def _cast_layout(books: Books, entry: Entry, buffer: Buffer) -> AxisLayout | None:
    """Return the layout in which an entry holds a buffer's elements in another type; None if some element differs."""
    array, element = books.contents.array(entry), buffer.dtype.to_numpy()
    if array is None or element is None or array.dtype.kind not in "iufV":
        return None
    values = books.contents.originals.values(buffer)
    if values is None:
        back = array.astype(element)
        if not np.array_equal(back.astype(array.dtype), array):
            return None
    for layout in books.contents.layouts(entry, buffer.shape, is_computed=True):
        if values is not None:
            restored = np.ascontiguousarray(layout.restore(array))
            is_equal = np.array_equal(restored, values.astype(array.dtype))
        else:
            restored = np.ascontiguousarray(layout.restore(back))
            is_equal = digest(restored) == books.contents.originals.digest(buffer)
        if is_equal:
            return layout
    return None


def _is_free_for(books: Books, entry: Entry, tensor: Tensor, modules: frozenset[str]) -> bool:
    """Whether equal content suffices to match `entry` with `tensor`."""
    if tensor.name in books.parameters or books.is_elsewhere(entry, tensor):
        return False
    if not books.contents.originals.is_constant(tensor):
        return True
    is_like = isinstance(tensor, Buffer) or entry.role is Role.PARAMETER
    if isinstance(tensor, Buffer) and entry.role is Role.PARAMETER:
        is_like = entry.tensor.shape == tensor.shape  # a buffer of zeros that is added looks like a bias
    is_read = is_read_in(tensor, modules)
    if not is_like:
        return is_read and entry.role is Role.UNATTRIBUTED and _is_read_by_owners(books, entry, tensor)
    return not modules or is_read


def _is_read_by_owners(books: Books, entry: Entry, tensor: Tensor) -> bool:
    """Whether only modules with free tensors of this repeated number read an entry, each as often as it has them.

    A buffer in a state dict counts as a parameter, though nodes do not read it in a parameter's place, and an exporter
    stores those of several modules once. It makes such numbers itself, too: a reader of any other module rules the
    entry out, and a module with more of these tensors than readers does not show which of them the file lacks.
    """
    originals = books.contents.originals
    number = originals.samples(tensor)
    owners = Counter(
        module_of(name)
        for free in books.free_parameters()
        if free.numel == tensor.numel
        and free.dtype is tensor.dtype
        and originals.is_constant(free)
        and number is not None
        and (samples := originals.samples(free)) is not None
        and np.array_equal(samples, number)
        for name in free.names
    )
    readers = books.ledger.wiring.readers(entry.tensor, past=DECODES | {"Identity"})
    scopes = [books.ledger.traced_scopes.get(place) for place in {reader.node.place for reader in readers}]
    modules = Counter(None if scope is None else books.aligned.module(scope) for scope in scopes)
    return all(module is not None and 0 < owners[module] <= count for module, count in modules.items())


def match_by_reader(books: Books) -> None:
    """Match the one nameless matrix that a module reads with the module's weight, if contents are not compared.

    TorchScript exports rename a transposed weight to `onnx::MatMul_123`, but name the node after the module. Packed
    codes represent its transpose, which is PyTorch's order again.
    """
    if books.contents.mode != "none":
        return
    read: dict[str, list[Entry]] = defaultdict(list)
    for entry in books.free_entries():
        modules = books.reader_modules(entry)
        is_matrix = len(books.contents.shape(entry)) == 2 and entry.copy_of is None
        if entry.role is Role.PARAMETER and is_matrix and len(modules) == 1:
            read[next(iter(modules))].append(entry)
    for module, entries in read.items():
        tensor = books.tensor(f"{module}.weight")
        if len(entries) != 1 or not isinstance(tensor, Parameter) or tensor.name in books.parameters:
            continue
        entry, changed = entries[0], books.contents.changes(entries[0], tensor)
        stored, orders = books.contents.shape(entry), [(1, 0), (0, 1)]
        if entry.read_by in PACKS_TRANSPOSE:
            orders.reverse()
        axes = next(
            (order for order in orders if tuple(tensor.shape[axis] for axis in order) == stored), None
        )
        if changed is not None and axes is not None and len(tensor.shape) == 2:
            layout = AxisLayout(tensor.shape, axes, stored)
            fit = Fit(layout, (*layout.chain, *changed), "shape", None)
            chain = fit.chain or (Line.RENAMED,)
            pieces = (piece_of(entry, fit),)
            books.assign(tensor, entry, chain, "structure:reader-module+shape", pieces=pieces)


def match_copies(books: Books) -> None:
    """Settle an entry as a copy if its content equals that of a held parameter, by comparison or by the audit."""
    index = Index(books.contents, books.manifest.parameters)
    for entry in books.free_entries():
        original_line = None if entry.copy_of is None else books.entries.get(entry.copy_of)
        if original_line is not None and original_line.parameter is not None:
            tensor = books.tensor(original_line.parameter)
            if isinstance(tensor, Parameter) and tensor.name in books.parameters:
                books.copy(tensor, entry, entry.decided_by)
                continue
        if books.contents.numel(entry) <= 1:
            continue
        for candidate, fit in index.find(entry):
            # Equal zero biases are different parameters: a constant-filled tensor does not count as a copy.
            is_constant = books.contents.originals.is_constant(candidate)
            if not isinstance(candidate, Parameter) or candidate.name not in books.parameters or is_constant:
                continue
            is_sampled = fit.evidence in SAMPLED and books.contents.mode == "full"
            values = _stored_values(books, candidate) if is_sampled else None
            if values is None:
                books.copy(candidate, entry, fit.evidence)
                break
            if books.contents.repeats(entry, fit.layout, values):
                books.copy(candidate, entry, "content")
                break


def _stored_values(books: Books, parameter: Parameter) -> Array | None:
    """Return a parameter's numbers from a tensor in the file of which every element was compared; None without one."""
    settled = books.parameters[parameter.name]
    if settled.compared != "whole" or not settled.entries:
        return None
    entry = books.entry(settled.entries[0])
    fit = books.contents.fit(entry, parameter) if books.contents.encoding(entry) is None else None
    array = None if fit is None or fit.evidence != "content" else books.contents.array(entry)
    return None if fit is None or array is None else fit.layout.restore(array)


def match_deduplicated(books: Books) -> None:
    """Match parameters that the exporter merged with another parameter of equal content.

    Equal content alone is no proof, or a bias that was cut out would pass. A node of the parameter's own module must
    read the tensor; in a file without scopes, the tensor must have a reader for each parameter in it. For a zero bias,
    which the optimizer also removes from the node, a traced node must still name it.
    """
    originals = books.contents.originals
    holders: dict[tuple[int, bytes], list[Entry]] = defaultdict(list)
    parameter_counts: dict[Key, int] = defaultdict(int)
    for line in books.parameters.values():
        tensor = books.tensor(line.name)
        if line.entries and tensor is not None:
            entry = books.entry(line.entries[0])
            parameter_counts[line.entries[0]] += 1
            for sample_key in _sample_keys(books, entry, tensor):
                holders[tensor.numel, sample_key].append(entry)
    for parameter in list(books.free_parameters()):
        samples = originals.samples(parameter) if books.contents.compares(parameter) else None
        if samples is None:
            _match_deduplicated_by_reader(books, parameter)
            continue
        for entry in holders.get((parameter.numel, samples.tobytes()), ()):
            evidence = _find_reading_evidence(books, entry, parameter, parameter_counts[entry.tensor.key])
            if evidence is None and books.is_dropped_zero(parameter):
                evidence = "traced-zero"
            fit = books.contents.fit(entry, parameter) if evidence else None
            if fit is not None:
                books.merge(parameter, entry, Line.DEDUPLICATED, f"{fit.evidence}+{evidence}", fit.error)
                parameter_counts[entry.tensor.key] += 1
                break


def _sample_keys(books: Books, entry: Entry, tensor: Tensor) -> set[bytes]:
    """Return the samples, as bytes, of an entry's tensor and its transpose, to look up tensors of equal content."""
    if not books.contents.compares(tensor):
        return set()
    samples = books.contents.originals.samples(tensor)
    keys = set() if samples is None else {samples.tobytes()}
    shape = books.contents.shape(entry)
    for turned in {shape, shape[::-1]} if len(shape) == 2 else ():
        for layout in layouts(turned, shape):
            look = books.contents.look(entry, layout)
            if look is not None and look[1] is None:
                keys.add(look[0].tobytes())
    return keys


def _match_deduplicated_by_reader(books: Books, parameter: Parameter) -> None:
    """Merge a parameter with another one's tensor of equal shape that its module reads, if contents are unknown.

    Both must have the same leaf name, as a weight is no bias. For a BatchNorm's parameter, a BatchNormalization must
    read the tensor: the notes also name the norm for the layer that it was folded into.
    """
    is_norms = any(parameter.name in (norm.weight, norm.bias) for norm in books.manifest.batch_norms)
    for line in list(books.parameters.values()):
        if split_name(line.name)[1] != split_name(parameter.name)[1]:
            continue
        for key in line.entries[:1]:
            entry = books.entry(key)
            # A module that owns both is no evidence: its node reads its own tensor.
            other = module_of(line.name) != module_of(parameter.name)
            if (
                other
                and (not is_norms or entry.read_by == "BatchNormalization")
                and entry.tensor.shape == parameter.shape
                and is_read_in(parameter, books.reader_modules(entry))
            ):
                books.merge(parameter, entry, Line.DEDUPLICATED, "provenance:reader-module+shape", None)
                return


def _find_reading_evidence(
    books: Books, entry: Entry, parameter: Parameter, parameter_count: int
) -> str | None:
    """Return the evidence that the file reads `entry` as `parameter`; None without any.

    TorchScript passes a merged tensor on through an `Identity` whose output bears the parameter's name. A module whose
    child owns the weight (MultiheadAttention's `out_proj`) reads it in its own scope; that is no evidence for a
    constant-filled tensor, because the module may have other equal ones. A node that no output needs reads nothing.
    """
    live = books.ledger.live
    readers = [each for each in books.readers(entry) if live is None or each.node.place in live.nodes]
    identities = (reader.node for reader in readers if reader.node.op_type == "Identity")
    if any(books.aligned(node.outputs[0]) in parameter.names for node in identities if node.outputs):
        return "identity-name"
    modules = books.reader_modules(entry)
    if is_read_in(parameter, modules):
        return "reader-module"
    if is_read_in(parameter, books.user_modules(entry)):  # only the split of a packed weight was merged
        return "reader-behind"
    if len(readers) > parameter_count and not all(map(books.has_module, readers)):
        return "reader-count"
    parents = {module_of(module_of(name)) for name in parameter.names}
    is_constant = books.contents.originals.is_constant(parameter)
    return "reader-parent" if not is_constant and parents & modules else None


def is_read_in(tensor: Tensor, modules: frozenset[str]) -> bool:
    """Whether one of these modules has a tensor."""
    return any(module_of(name) in modules for name in tensor.names)


class Index:
    """Index of PyTorch tensors by shape and by sampled elements."""

    def __init__(self, contents: Contents, tensors: Iterable[Tensor]) -> None:
        self._contents = contents
        known = [tensor for tensor in tensors if tensor.numel > 1 and contents.compares(tensor)]
        self._stacks = Stacks(contents, known)
        self._exact: dict[tuple[tuple[int, ...], bytes], list[Tensor]] = defaultdict(list)
        self._types_of: dict[tuple[int, ...], frozenset[DType]] = {}
        for tensor in known:
            samples = contents.originals.samples(tensor)
            if samples is not None:
                self._exact[tensor.shape, _key(samples)].append(tensor)

    def find(self, entry: Entry) -> Iterator[tuple[Tensor, Fit]]:
        """Yield the PyTorch tensors with an entry's content, in PyTorch's order for each layout."""
        for shape in self._stacks.shapes(self._contents.numel(entry)):
            for layout in self._contents.layouts(entry, shape, is_computed=True):
                if not layout.is_plain and self._contents.mode != "full":
                    continue  # a few equal elements in another shape prove nothing without a name
                for tensor in self._near(entry, layout):
                    fit = self._contents.fit_layout(entry, tensor, layout, is_named=False)
                    if fit is not None:
                        yield tensor, fit

    def _types(self, shape: tuple[int, ...]) -> frozenset[DType]:
        """Return the types of the floating-point tensors of a shape."""
        if shape not in self._types_of:
            tensors = self._stacks.of(shape)[0]
            self._types_of[shape] = frozenset(each.dtype for each in tensors if each.dtype.is_floating)
        return self._types_of[shape]

    def _near(self, entry: Entry, layout: AxisLayout) -> list[Tensor]:
        """Return the tensors whose samples agree: exactly, or within rounding for another type or codes."""
        look = self._contents.look(entry, layout)
        if look is None:
            return []
        values, steps = look
        exact = self._exact.get((layout.shape, _key(values)), []) if steps is None else []
        if exact:
            return exact
        if steps is None and self._types(layout.shape) <= {entry.tensor.dtype} and not was_narrower(values):
            return []
        return [tensor for tensor in self._stacks.near(layout.shape, look) if tensor.dtype.is_floating]


def _key(samples: npt.NDArray[np.generic]) -> bytes:
    return samples.dtype.str.encode() + samples.tobytes()


# by name


def match_by_name(books: Books) -> None:
    """Match every named entry; an unchanged tensor is the original, and its transposed versions are copies."""
    named_entries = list(_find_named(books))
    ranked = sorted(named_entries, key=lambda item: 2 if item[2] is None else len(item[2].chain) > 0)
    for entry, tensor, fit in ranked:
        if isinstance(tensor, Buffer):
            _match_buffer(books, entry, tensor, fit)
        elif fit is None:
            # Unreadable contents are suspects too: they prove nothing.
            books.suspects.append(Suspect(entry, tensor))
        else:
            _match_parameter(books, entry, tensor, fit)


def _find_named(books: Books) -> Iterator[tuple[Entry, Parameter | Buffer, Fit | None]]:
    """Yield the entries with one known PyTorch name, the tensor of that name, and their fit, None if there is none."""
    for entry in books.ledger.entries:
        name = _pytorch_name(entry)
        tensor = books.tensor(name) if name is not None else None
        if tensor is not None:
            yield entry, tensor, books.contents.fit(entry, tensor)


def _pytorch_name(entry: Entry) -> str | None:
    """Return the one PyTorch name of an entry; None for a tensor computed from several."""
    if entry.decided_by == "name:folded-bias":
        return None  # named after a weight, but it is the bias of a BatchNorm folded into it
    if len(entry.sources) == 1:
        return entry.sources[0]
    return entry.tensor.name if not entry.sources and entry.tensor.carrier is Carrier.INITIALIZER else None


def _match_parameter(books: Books, entry: Entry, parameter: Parameter, fit: Fit) -> None:
    evidence = entry.evidence if entry.sources else Evidence.NAME
    if evidence is Evidence.CONTENT:
        evidence = Evidence.PROVENANCE  # a copy: its evidence replaced that of the note
    decided_by = f"{evidence}+{fit.evidence}"
    if parameter.name in books.parameters:
        books.copy(parameter, entry, decided_by)
        return
    unchanged_line = Line.RENAMED
    if entry.tensor.name in parameter.names:
        unchanged_line = Line.NAMED if fit.evidence == "shape" else Line.IDENTICAL
    chain = fit.chain or (unchanged_line,)
    books.assign(parameter, entry, chain, decided_by, fit.error, pieces=(piece_of(entry, fit),))


def _match_buffer(books: Books, entry: Entry, buffer: Buffer, fit: Fit | None) -> None:
    """Match a buffer: an entry under its own name must equal it; one folded from it may be cut or broadcast."""
    own_name = books.aligned(entry.tensor.name) in buffer.names
    if fit is None and (own_name or _is_other_weight(books, entry, buffer)):
        books.suspects.append(Suspect(entry, buffer))
        return
    how = "derived" if fit is None else fit.evidence
    piece = None if fit is None else piece_of(entry, fit)
    books.settle(entry, Line.BUFFER, f"{entry.evidence}+{how}", buffer.name, piece=piece)


def _is_other_weight(books: Books, entry: Entry, buffer: Buffer) -> bool:
    """Whether a node multiplies by a matrix that, against its note, is not made of the buffer's numbers."""
    is_matrix = entry.tensor.dtype.is_floating and sum(dim > 1 for dim in entry.tensor.shape) > 1
    if not is_matrix or not books.contents.compares(buffer) or not books.is_multiplied(entry):
        return False
    values, array = books.contents.originals.values(buffer), books.contents.array(entry)
    return values is None or array is None or not bool(np.isin(array, values).all())


# by shape

Class = tuple[int, ...]
"""Sorted sizes of a tensor's axes, without axes of size 1."""

_BY_SHAPE = "structure:shape"


def match_by_shape(books: Books) -> None:
    """Settle nameless entries whose shapes allow one assignment, up to order."""
    if books.contents.mode != "none":
        return
    _fold_norms(books)
    _pair_in_order(books)
    _split_by_size(books)
    _match_stacked(books)
    _pair_in_order(books)
    _settle_buffers(books)


def _class(shape: tuple[int, ...]) -> Class:
    return tuple(sorted(dim for dim in shape if dim != 1))


def _learned_in_order(books: Books) -> list[Entry]:
    """Return the nameless learned entries in the order in which nodes first read them."""
    order = {
        (node.graph_path, node.position): number for number, node in enumerate(books.ledger.model.nodes())
    }

    def place(entry: Entry) -> int:
        readers = (order[reader.node.graph_path, reader.node.position] for reader in books.readers(entry))
        return min(readers, default=len(order))

    roles = (Role.PARAMETER, Role.UNATTRIBUTED)
    free = (entry for entry in books.free_entries() if entry.role in roles and entry.copy_of is None)
    real = (e for e in free if e.tensor.dtype.is_floating or books.contents.encoding(e) is not None)
    return sorted(real, key=place)


def _pair_in_order(books: Books) -> None:
    """Pair the entries with the parameters of a class of shapes in order, if there are as many of both."""
    entries: dict[Class, list[Entry]] = defaultdict(list)
    for entry in _learned_in_order(books):
        entries[_class(books.contents.shape(entry))].append(entry)
    parameters: dict[Class, list[Parameter]] = defaultdict(list)
    for parameter in books.free_parameters():
        parameters[_class(parameter.shape)].append(parameter)
    for class_, found in entries.items():
        learned = [entry for entry in found if entry.role is Role.PARAMETER]
        for alike in (found, learned):  # if only the learned ones are as many, the others stay open
            if len(alike) == len(parameters[class_]):
                for entry, parameter in zip(alike, parameters[class_], strict=True):
                    changed = books.contents.changes(entry, parameter)
                    layout = next(iter(layouts(parameter.shape, books.contents.shape(entry))), None)
                    if changed is not None and layout is not None:
                        fit = Fit(layout, (*layout.chain, *changed), "shape", None)
                        chain, pieces = fit.chain or (Line.RENAMED,), (piece_of(entry, fit),)
                        books.assign(parameter, entry, chain, _BY_SHAPE, pieces=pieces)
                break


def _split_by_size(books: Books) -> None:
    """Settle entries that neighbouring parameters of one module fill: packed query, key and value; gate and up."""
    for entry in _learned_in_order(books):
        shape = [dim for dim in books.contents.shape(entry) if dim != 1]
        for run in _runs(books, shape):
            changed = [books.contents.changes(entry, parameter) for parameter in run]
            if any(change is None for change in changed):
                continue
            total, done = sum(parameter.numel for parameter in run), 0
            for parameter, change in zip(run, changed, strict=True):
                stored = (
                    entry.tensor.numel * (done + parameter.numel) // total
                    - entry.tensor.numel * done // total
                )
                done += parameter.numel
                holding = Holding(entry.tensor.key, parameter.numel, stored)
                books.assign_parts(
                    parameter, [holding], (Line.CONCATENATED, *(change or ())), f"{_BY_SHAPE}-sum", None
                )
            break


def _runs(books: Books, shape: list[int]) -> Iterator[list[Parameter]]:
    """Yield runs of neighbouring free parameters whose sizes along one axis sum to the entry's, the others equal."""
    free = [p for p in books.free_parameters() if len(_class(p.shape)) == len(shape)]
    for axis in range(len(shape)):
        rest = sorted(shape[:axis] + shape[axis + 1 :])
        candidates = [(p, length) for p in free if (length := _length(p, rest)) is not None]
        blocks = itertools.groupby(candidates, key=lambda item: module_of(module_of(item[0].name)))
        for _, block in blocks:
            yield from _runs_of_length(list(block), shape[axis])
        if len(candidates) > 1 and sum(length for _, length in candidates) == shape[axis]:
            yield [parameter for parameter, _ in candidates]  # of several modules, and no other is left


def _length(parameter: Parameter, rest: list[int]) -> int | None:
    """Return the size of the one axis that is not among `rest`; None if the other axes differ."""
    sizes = list(_class(parameter.shape))
    for size in rest:
        if size not in sizes:
            return None
        sizes.remove(size)
    return sizes[0] if len(sizes) == 1 else None


def _runs_of_length(candidates: list[tuple[Parameter, int]], length: int) -> Iterator[list[Parameter]]:
    for start in range(len(candidates)):
        sums = list(itertools.accumulate(map(itemgetter(1), candidates[start:])))
        if length in sums[1:]:
            yield [parameter for parameter, _ in candidates[start : start + sums.index(length) + 1]]


def _match_stacked(books: Books) -> None:
    """Settle parameters that stack a matrix for each expert, if as many entries have that matrix's shape."""
    entries: dict[Class, list[Entry]] = defaultdict(list)
    for entry in _learned_in_order(books):
        entries[_class(books.contents.shape(entry))].append(entry)
    stacked: dict[Class, list[Parameter]] = defaultdict(list)
    for parameter in books.free_parameters():
        if len(parameter.shape) >= 3:
            stacked[_class(parameter.shape[1:])].append(parameter)
    for class_, parameters in stacked.items():
        found = entries.get(class_, [])
        if found and len(found) == sum(parameter.shape[0] for parameter in parameters):
            supply = iter(found)
            for parameter in parameters:
                pieces = list(itertools.islice(supply, parameter.shape[0]))
                changed = books.contents.changes(pieces[0], parameter)
                holdings = [Holding(e.tensor.key, books.contents.numel(e), e.tensor.numel) for e in pieces]
                if changed is not None:
                    chain = (Line.SLICED, *changed)
                    books.assign_parts(parameter, holdings, chain, f"{_BY_SHAPE}-pieces", None)


def _fold_norms(books: Books) -> None:
    """Settle BatchNorms that the file lacks as folded, if it has one vector of that size for each: the folded bias."""
    norms = [norm for norm in books.manifest.batch_norms if norm.weight and norm.bias]
    free = [
        norm for norm in norms if norm.weight not in books.parameters and norm.bias not in books.parameters
    ]
    by_size: dict[int, list[BatchNorm]] = defaultdict(list)
    for norm in free:
        tensor = books.tensor(norm.weight or "")
        if isinstance(tensor, Parameter):
            by_size[tensor.numel].append(norm)
    vectors: dict[int, list[Entry]] = defaultdict(list)
    for entry in _learned_in_order(books):
        if len(_class(books.contents.shape(entry))) <= 1:
            vectors[books.contents.numel(entry)].append(entry)
    sizes = Counter(parameter.numel for parameter in books.free_parameters() if len(parameter.shape) == 1)
    for size, group in by_size.items():
        if len(vectors[size]) == len(group) and sizes[size] == 2 * len(group):
            for norm, entry in zip(group, vectors[size], strict=True):
                weight, bias = books.tensor(norm.weight or ""), books.tensor(norm.bias or "")
                if isinstance(weight, Parameter) and isinstance(bias, Parameter):
                    decided_by = f"{_BY_SHAPE}-batchnorm {norm.module}"
                    books.assign(bias, entry, (Line.FOLDED_BATCHNORM,), decided_by)
                    books.merge(weight, entry, Line.FOLDED_BATCHNORM, decided_by, None)


def _settle_buffers(books: Books) -> None:
    """Settle nameless state as a buffer of that shape that the file does not name."""
    settled_names = {line.parameter for line in books.entries.values()}
    shapes: dict[Class, list[str]] = defaultdict(list)
    for buffer in books.manifest.buffers:
        if buffer.name not in settled_names:
            shapes[_class(buffer.shape)].append(buffer.name)
    roles = (Role.UNATTRIBUTED, Role.BUFFER)
    unknown = [entry for entry in books.free_entries() if entry.role in roles and not entry.sources]
    for entry in unknown:
        names = shapes.get(_class(entry.tensor.shape))
        if names and entry.tensor.numel > 1:
            books.settle(entry, Line.BUFFER, _BY_SHAPE, names.pop(0))
