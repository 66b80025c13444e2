"""Rules: what has no name is known by its content, and what PyTorch has twice may be stored once, or the reverse."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from analyzer.content import Array
from analyzer.ledger import Entry, Role
from analyzer.manifest import Buffer, Parameter
from analyzer.model import Key
from analyzer.reconciliation.axes import PACKS_TRANSPOSE
from analyzer.reconciliation.books import Books, piece_of
from analyzer.reconciliation.closeness import was_narrower
from analyzer.reconciliation.contents import Contents, Fit
from analyzer.reconciliation.layouts import Layout, layouts
from analyzer.reconciliation.lines import SAMPLED, Line
from analyzer.reconciliation.stacks import Stacks, Tensor
from analyzer.scopes import module_of

__all__ = [
    "Index",
    "match_by_content",
    "match_by_reader",
    "match_copies",
    "match_deduplicated",
    "match_numbers",
]


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
        if samples is not None and _is_odd(samples):
            numbers[_key(samples)].append(parameter)
    stored: dict[bytes, list[Entry]] = defaultdict(list)
    for entry in books.free_entries() if numbers else ():
        is_number = entry.tensor.numel == 1 and entry.tensor.dtype.is_floating and not entry.sources
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


def _is_odd(number: npt.NDArray[np.generic]) -> bool:
    """Whether the last byte of its mantissa is not empty, as of a number that training left."""
    return number.dtype == np.float32 and bool(number.view(np.uint32)[0] & 0xFF)


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
            layout = Layout(tensor.shape, axes, stored)
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
    """Without contents: a node of the parameter's module reads a tensor of its shape that is another's."""
    for line in list(books.parameters.values()):
        for key in line.entries[:1]:
            entry = books.entry(key)
            # The module that owns both says nothing: its node reads its own tensor.
            other = module_of(line.name) != module_of(parameter.name)
            if (
                other
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

    def _near(self, entry: Entry, layout: Layout) -> list[Tensor]:
        """Tensors whose samples agree: exactly, or where the entry is in another type, within its step."""
        look = self._contents.look(entry, layout)
        if look is None:
            return []
        values, steps = look
        exact = self._exact.get((layout.shape, _key(values)), []) if steps is None else []
        if exact:
            return exact
        tensors = [tensor for tensor in self._stacks.of(layout.shape)[0] if tensor.dtype.is_floating]
        is_of_one_type = all(tensor.dtype is entry.tensor.dtype for tensor in tensors)
        if steps is None and is_of_one_type and not was_narrower(values):
            return []
        return [tensor for tensor in self._stacks.near(layout.shape, look) if tensor.dtype.is_floating]


def _key(samples: npt.NDArray[np.generic]) -> bytes:
    return samples.dtype.str.encode() + samples.tobytes()
