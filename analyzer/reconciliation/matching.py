"""Rules: a stored tensor that is a PyTorch tensor, whole, known by its name, its content, its reader or its shape.

A name match is not a value match: where contents can be compared and differ, the pair becomes a suspect for the
formulas that come after, and is `differing` if none explains it. What has no name is known by its content; what
PyTorch has twice may be stored once, or the reverse.

Where values are not compared, shapes, roles and order decide. They tell how many parameters of a shape are there,
which is what the account asks; which of several of one shape is which they only presume, in the order of PyTorch's
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
from analyzer.model.content import Array
from analyzer.model.dtypes import DType
from analyzer.reconciliation.books import Books, Holding, Suspect, piece_of
from analyzer.reconciliation.closeness import is_odd, was_narrower
from analyzer.reconciliation.contents import Contents, Fit, Stacks, Tensor
from analyzer.reconciliation.layouts import PACKS_TRANSPOSE, AxisLayout, layouts
from analyzer.reconciliation.lines import SAMPLED, Line

# by content


def match_by_content(books: Books) -> None:
    """Give each nameless entry the PyTorch tensor of the same content.

    Among several of equal content, the one whose module reads the entry goes first. Constant-filled contents are equal
    by nature, so there the module must read it, or the file have no scopes at all.
    """
    index = Index(books.contents, books.manifest.tensors)
    found = [
        (entry, list(index.find(entry)))
        for entry in books.free_entries()
        if books.contents.numel(entry) > 1 and entry.role is not Role.QUANTIZATION
    ]
    # Of a tensor and its copies the one that took least is the original, wherever it stands in the file.
    found.sort(key=lambda pair: min((len(fit.chain) for _, fit in pair[1]), default=0))
    for entry, fits in found:
        modules = books.reader_modules(entry)
        candidates = [item for item in fits if _is_free_for(books, entry, item[0], modules)]
        candidates.sort(key=lambda item: not _is_read_in(item[0], modules))
        for tensor, fit in candidates[:1]:
            if isinstance(tensor, Buffer):
                books.settle(entry, Line.BUFFER, fit.evidence, tensor.name, piece=piece_of(entry, fit))
            else:
                chain = fit.chain or (Line.RENAMED,)
                books.hold(tensor, entry, chain, fit.evidence, fit.error, pieces=(piece_of(entry, fit),))


def match_numbers(books: Books) -> None:
    """Give each nameless number the one free parameter of one element that is that number.

    A round number is no evidence (an exporter makes many), nor is one that stands in the file or in PyTorch twice.
    """
    if books.contents.mode == "none":
        return
    numbers: dict[bytes, list[Parameter]] = defaultdict(list)
    for parameter in books.free_parameters():
        samples = books.contents.originals.samples(parameter) if parameter.numel == 1 else None
        if samples is not None and is_odd(samples):
            numbers[_key(samples)].append(parameter)
    stored: dict[bytes, list[Entry]] = defaultdict(list)
    for entry in books.free_entries() if numbers else ():
        is_number = books.contents.numel(entry) == 1 and entry.tensor.dtype.is_floating and not entry.sources
        look = books.contents.at(entry, np.zeros(1, dtype=np.int64)) if is_number else None
        if look is not None:
            stored[_key(look[0])].append(entry)
    for key, parameters in numbers.items():
        if len(parameters) == 1 and len(stored[key]) == 1:
            fit = books.contents.fit(stored[key][0], parameters[0])
            if fit is not None:
                pieces = (piece_of(stored[key][0], fit),)
                books.hold(
                    parameters[0],
                    stored[key][0],
                    fit.chain or (Line.RENAMED,),
                    fit.evidence,
                    0.0,
                    pieces=pieces,
                )


def _is_free_for(books: Books, entry: Entry, tensor: Tensor, modules: frozenset[str]) -> bool:
    """Whether equal content may make `entry` the place of `tensor`."""
    if tensor.name in books.parameters or books.is_elsewhere(entry, tensor):
        return False
    if not books.contents.originals.is_constant(tensor):
        return True
    is_like = isinstance(tensor, Buffer) or entry.role is Role.PARAMETER
    if isinstance(tensor, Buffer) and entry.role is Role.PARAMETER:
        is_like = entry.tensor.shape == tensor.shape  # registered zeros that are added look like a bias
    return is_like and (not modules or _is_read_in(tensor, modules))


def match_by_reader(books: Books) -> None:
    """Where contents were not compared: the one nameless matrix that a module reads is its weight.

    TorchScript exports rename a transposed weight to `onnx::MatMul_123`, but name the node after the module. Packed
    codes of it stand for its transpose, which is PyTorch's order again.
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
        stored, ways = books.contents.shape(entry), [(1, 0), (0, 1)]
        if entry.read_by in PACKS_TRANSPOSE:
            ways.reverse()
        axes = next((way for way in ways if tuple(tensor.shape[axis] for axis in way) == stored), None)
        if changed is not None and axes is not None and len(tensor.shape) == 2:
            layout = AxisLayout(tensor.shape, axes, stored)
            fit = Fit(layout, (*layout.chain, *changed), "shape", None)
            chain = fit.chain or (Line.RENAMED,)
            pieces = (piece_of(entry, fit),)
            books.hold(tensor, entry, chain, "structure:reader-module+shape", pieces=pieces)


def match_copies(books: Books) -> None:
    """What repeats a parameter that is already held is its copy, if the content says so (or said so to the audit)."""
    index = Index(books.contents, books.manifest.parameters)
    for entry in books.free_entries():
        held = None if entry.copy_of is None else books.entries.get(entry.copy_of)
        if held is not None and held.parameter is not None:
            tensor = books.tensor(held.parameter)
            if isinstance(tensor, Parameter) and tensor.name in books.parameters:
                books.copy(tensor, entry, entry.decided_by)
                continue
        if books.contents.numel(entry) <= 1:
            continue
        for candidate, fit in index.find(entry):
            # Equal zero biases are different parameters: a constant-filled tensor is nobody's copy.
            is_constant = books.contents.originals.is_constant(candidate)
            if not isinstance(candidate, Parameter) or candidate.name not in books.parameters or is_constant:
                continue
            is_sampled = fit.evidence in SAMPLED and books.contents.mode == "full"
            values = _held_values(books, candidate) if is_sampled else None
            if values is None:
                books.copy(candidate, entry, fit.evidence)
                break
            if books.contents.repeats(entry, fit.layout, values):
                books.copy(candidate, entry, "content")
                break


def _held_values(books: Books, parameter: Parameter) -> Array | None:
    """The numbers of a parameter that a tensor in the file holds, every one of them compared; None where none does."""
    settled = books.parameters[parameter.name]
    if settled.compared != "whole" or not settled.entries:
        return None
    entry = books.entry(settled.entries[0])
    fit = books.contents.fit(entry, parameter) if books.contents.encoding(entry) is None else None
    array = None if fit is None or fit.evidence != "content" else books.contents.array(entry)
    return None if fit is None or array is None else fit.layout.restore(array)


def match_deduplicated(books: Books) -> None:
    """A parameter without a tensor of its own, whose content another one's tensor has: merged by the exporter.

    Equal content alone is no proof, or a bias that was cut out would pass. It takes a node of the parameter's own
    module that reads the tensor; in a file without scopes, as many readers as there are parameters in the tensor; for
    a zero bias, which the optimizer also takes from the node, a traced node that still names it.
    """
    originals = books.contents.originals
    holders: dict[tuple[int, bytes], list[Entry]] = defaultdict(list)
    load: dict[Key, int] = defaultdict(int)
    for line in books.parameters.values():
        tensor = books.tensor(line.name)
        if line.entries and tensor is not None:
            entry = books.entry(line.entries[0])
            load[line.entries[0]] += 1
            for print_ in _prints(books, entry, tensor):
                holders[tensor.numel, print_].append(entry)
    for parameter in list(books.free_parameters()):
        samples = originals.samples(parameter) if books.contents.compares(parameter) else None
        if samples is None:
            _match_deduplicated_by_reader(books, parameter)
            continue
        for entry in holders.get((parameter.numel, samples.tobytes()), ()):
            evidence = _reads(books, entry, parameter, load[entry.tensor.key])
            if evidence is None and books.is_dropped_zero(parameter):
                evidence = "traced-zero"
            fit = books.contents.fit(entry, parameter) if evidence else None
            if fit is not None:
                books.merge(parameter, entry, Line.DEDUPLICATED, f"{fit.evidence}+{evidence}", fit.error)
                load[entry.tensor.key] += 1
                break


def _prints(books: Books, entry: Entry, tensor: Tensor) -> set[bytes]:
    """Samples by which a tensor of the same content, or of the transpose, may be known."""
    if not books.contents.compares(tensor):
        return set()
    samples = books.contents.originals.samples(tensor)
    prints = set() if samples is None else {samples.tobytes()}
    shape = books.contents.shape(entry)
    for turned in {shape, shape[::-1]} if len(shape) == 2 else ():
        for layout in layouts(turned, shape):
            look = books.contents.look(entry, layout)
            if look is not None and look[1] is None:
                prints.add(look[0].tobytes())
    return prints


def _match_deduplicated_by_reader(books: Books, parameter: Parameter) -> None:
    """Without contents: a node of the parameter's module reads a tensor of its shape that is another's.

    One of the same last name, as a weight is no bias; and a BatchNorm's where BatchNormalization reads it: the layer
    that it was folded into is noted as the norm's too.
    """
    is_norms = any(parameter.name in (norm.weight, norm.bias) for norm in books.manifest.batch_norms)
    for line in list(books.parameters.values()):
        if split_name(line.name)[1] != split_name(parameter.name)[1]:
            continue
        for key in line.entries[:1]:
            entry = books.entry(key)
            # The module that owns both says nothing: its node reads its own tensor.
            other = module_of(line.name) != module_of(parameter.name)
            if (
                other
                and (not is_norms or entry.read_by == "BatchNormalization")
                and entry.tensor.shape == parameter.shape
                and _is_read_in(parameter, books.reader_modules(entry))
            ):
                books.merge(parameter, entry, Line.DEDUPLICATED, "provenance:reader-module+shape", None)
                return


def _reads(books: Books, entry: Entry, parameter: Parameter, load: int) -> str | None:
    """The evidence that `entry` is read as `parameter`, if there is any.

    TorchScript hands a merged tensor on through an `Identity` whose output bears the parameter's name. A module whose
    child keeps the weight (MultiheadAttention's `out_proj`) reads it in its own name; that is no evidence for a
    constant-filled tensor, of which the module may have others.
    """
    identities = (reader.node for reader in books.readers(entry) if reader.node.op_type == "Identity")
    if any(books.aligned(node.outputs[0]) in parameter.names for node in identities if node.outputs):
        return "identity-name"
    modules = books.reader_modules(entry)
    if not modules:
        return "reader-count" if len(books.readers(entry)) > load else None
    if _is_read_in(parameter, modules):
        return "reader-module"
    parents = {module_of(module_of(name)) for name in parameter.names}
    is_constant = books.contents.originals.is_constant(parameter)
    return "reader-parent" if not is_constant and parents & modules else None


def _is_read_in(tensor: Tensor, modules: frozenset[str]) -> bool:
    return any(module_of(name) in modules for name in tensor.names)


class Index:
    """PyTorch tensors by their shape and by a few of their elements."""

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
        """PyTorch tensors with this entry's content, in PyTorch's order for each layout."""
        for shape in self._stacks.shapes(self._contents.numel(entry)):
            for layout in self._contents.layouts(entry, shape, is_computed=True):
                if not layout.is_plain and self._contents.mode != "full":
                    continue  # a few equal elements in another shape prove nothing without a name
                for tensor in self._near(entry, layout):
                    fit = self._contents.fit_layout(entry, tensor, layout, is_named=False)
                    if fit is not None:
                        yield tensor, fit

    def _types(self, shape: tuple[int, ...]) -> frozenset[DType]:
        """Those of the floating-point tensors of a shape."""
        if shape not in self._types_of:
            tensors = self._stacks.of(shape)[0]
            self._types_of[shape] = frozenset(each.dtype for each in tensors if each.dtype.is_floating)
        return self._types_of[shape]

    def _near(self, entry: Entry, layout: AxisLayout) -> list[Tensor]:
        """Tensors whose samples agree: exactly, or where the entry is in another type, within its step."""
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
    """Match every named entry; a tensor stored as PyTorch has it is the original of its transposed copies."""
    named = list(_named(books))
    ranked = sorted(named, key=lambda item: 2 if item[2] is None else len(item[2].chain) > 0)
    for entry, tensor, fit in ranked:
        if isinstance(tensor, Buffer):
            _match_buffer(books, entry, tensor, fit)
        elif fit is None:
            # Also where contents are compared, and this one cannot be read: that is no proof of anything.
            books.suspects.append(Suspect(entry, tensor))
        else:
            _match_parameter(books, entry, tensor, fit)


def _named(books: Books) -> Iterator[tuple[Entry, Parameter | Buffer, Fit | None]]:
    """Entries whose one PyTorch name is known, and how each holds the tensor of that name."""
    for entry in books.ledger.entries:
        name = _pytorch_name(entry)
        tensor = books.tensor(name) if name is not None else None
        if tensor is not None:
            yield entry, tensor, books.contents.fit(entry, tensor)


def _pytorch_name(entry: Entry) -> str | None:
    """The one name that the entry has in PyTorch; a tensor computed from several has none."""
    if entry.decided_by == "name:folded-bias":
        return None  # named after the weight whose BatchNorm it comes from; it is not that weight
    if len(entry.sources) == 1:
        return entry.sources[0]
    return entry.tensor.name if not entry.sources and entry.tensor.carrier is Carrier.INITIALIZER else None


def _match_parameter(books: Books, entry: Entry, parameter: Parameter, fit: Fit) -> None:
    evidence = entry.evidence if entry.sources else Evidence.NAME
    if evidence is Evidence.CONTENT:
        evidence = Evidence.PROVENANCE  # a copy, known by the note that the copy's rule replaced
    decided_by = f"{evidence}+{fit.evidence}"
    if parameter.name in books.parameters:
        books.copy(parameter, entry, decided_by)
        return
    as_it_stands = Line.RENAMED
    if entry.tensor.name in parameter.names:
        as_it_stands = Line.NAMED if fit.evidence == "shape" else Line.IDENTICAL
    chain = fit.chain or (as_it_stands,)
    books.hold(parameter, entry, chain, decided_by, fit.error, pieces=(piece_of(entry, fit),))


def _match_buffer(books: Books, entry: Entry, buffer: Buffer, fit: Fit | None) -> None:
    """A buffer under its own name must be that buffer; one that was folded may be cut or broadcast."""
    own_name = books.aligned(entry.tensor.name) in buffer.names
    if fit is None and (own_name or _is_other_weight(books, entry, buffer)):
        books.suspects.append(Suspect(entry, buffer))
        return
    how = "derived" if fit is None else fit.evidence
    piece = None if fit is None else piece_of(entry, fit)
    books.settle(entry, Line.BUFFER, f"{entry.evidence}+{how}", buffer.name, piece=piece)


def _is_other_weight(books: Books, entry: Entry, buffer: Buffer) -> bool:
    """Whether some node multiplies by a matrix that was folded from a buffer, says a note, and is not made of it."""
    is_matrix = entry.tensor.dtype.is_floating and sum(dim > 1 for dim in entry.tensor.shape) > 1
    if not is_matrix or not books.contents.compares(buffer) or not books.is_multiplied(entry):
        return False
    values, array = books.contents.originals.values(buffer), books.contents.array(entry)
    return values is None or array is None or not bool(np.isin(array, values).all())


# by shape

Class = tuple[int, ...]
"""The sizes of a tensor's axes, in no order; axes of 1 are left out."""

_BY_SHAPE = "structure:shape"


def match_by_shape(books: Books) -> None:
    """Settle nameless entries whose shapes leave no choice but of order."""
    if books.contents.mode != "none":
        return
    _fold_norms(books)
    _pair_in_order(books)
    _take_apart_by_size(books)
    _put_together(books)
    _pair_in_order(books)
    _settle_buffers(books)


def _class(shape: tuple[int, ...]) -> Class:
    return tuple(sorted(dim for dim in shape if dim != 1))


def _learned_in_order(books: Books) -> list[Entry]:
    """Nameless learned entries in the order in which nodes first read them."""
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
    """As many entries of a class of shapes as there are parameters of it: one each, in order."""
    entries: dict[Class, list[Entry]] = defaultdict(list)
    for entry in _learned_in_order(books):
        entries[_class(books.contents.shape(entry))].append(entry)
    parameters: dict[Class, list[Parameter]] = defaultdict(list)
    for parameter in books.free_parameters():
        parameters[_class(parameter.shape)].append(parameter)
    for class_, found in entries.items():
        learned = [entry for entry in found if entry.role is Role.PARAMETER]
        for alike in (found, learned):  # where the learned ones alone are as many, the others are left
            if len(alike) == len(parameters[class_]):
                for entry, parameter in zip(alike, parameters[class_], strict=True):
                    changed = books.contents.changes(entry, parameter)
                    layout = next(iter(layouts(parameter.shape, books.contents.shape(entry))), None)
                    if changed is not None and layout is not None:
                        fit = Fit(layout, (*layout.chain, *changed), "shape", None)
                        chain, pieces = fit.chain or (Line.RENAMED,), (piece_of(entry, fit),)
                        books.hold(parameter, entry, chain, _BY_SHAPE, pieces=pieces)
                break


def _take_apart_by_size(books: Books) -> None:
    """Entries that neighbouring parameters of one module fill: packed query, key and value; gate and up."""
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
                books.hold_parts(
                    parameter, [holding], (Line.CONCATENATED, *(change or ())), f"{_BY_SHAPE}-sum", None
                )
            break


def _runs(books: Books, shape: list[int]) -> Iterator[list[Parameter]]:
    """Neighbours among the free parameters whose sizes along one axis sum to the entry's, the others being equal."""
    free = [p for p in books.free_parameters() if len(_class(p.shape)) == len(shape)]
    for axis in range(len(shape)):
        rest = sorted(shape[:axis] + shape[axis + 1 :])
        like = [(p, length) for p in free if (length := _length(p, rest)) is not None]
        blocks = itertools.groupby(like, key=lambda item: module_of(module_of(item[0].name)))
        for _, block in blocks:
            yield from _runs_of_length(list(block), shape[axis])
        if len(like) > 1 and sum(length for _, length in like) == shape[axis]:
            yield [parameter for parameter, _ in like]  # of several modules, and all that is left


def _length(parameter: Parameter, rest: list[int]) -> int | None:
    """The size of the one axis that is not among `rest`; None where the others are different."""
    sizes = list(_class(parameter.shape))
    for size in rest:
        if size not in sizes:
            return None
        sizes.remove(size)
    return sizes[0] if len(sizes) == 1 else None


def _runs_of_length(like: list[tuple[Parameter, int]], length: int) -> Iterator[list[Parameter]]:
    for start in range(len(like)):
        sums = list(itertools.accumulate(map(itemgetter(1), like[start:])))
        if length in sums[1:]:
            yield [parameter for parameter, _ in like[start : start + sums.index(length) + 1]]


def _put_together(books: Books) -> None:
    """Parameters with a matrix for each expert, beside as many entries of that matrix's shape."""
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
                    books.hold_parts(parameter, holdings, chain, f"{_BY_SHAPE}-pieces", None)


def _fold_norms(books: Books) -> None:
    """BatchNorms of which nothing is in the file, beside half as many vectors of that size: the biases they became."""
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
                    books.hold(bias, entry, (Line.FOLDED_BATCHNORM,), decided_by)
                    books.merge(weight, entry, Line.FOLDED_BATCHNORM, decided_by, None)


def _settle_buffers(books: Books) -> None:
    """Nameless state of the shape of a buffer that the file does not name."""
    named = {line.parameter for line in books.entries.values()}
    shapes: dict[Class, list[str]] = defaultdict(list)
    for buffer in books.manifest.buffers:
        if buffer.name not in named:
            shapes[_class(buffer.shape)].append(buffer.name)
    roles = (Role.UNATTRIBUTED, Role.BUFFER)
    unknown = [entry for entry in books.free_entries() if entry.role in roles and not entry.sources]
    for entry in unknown:
        names = shapes.get(_class(entry.tensor.shape))
        if names and entry.tensor.numel > 1:
            books.settle(entry, Line.BUFFER, _BY_SHAPE, names.pop(0))
