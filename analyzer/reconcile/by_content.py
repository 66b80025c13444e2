"""Rules: what has no name is known by its content, and what PyTorch has twice may be stored once, or the reverse."""

from __future__ import annotations

from collections import defaultdict

from analyzer.ledger import Entry, Role
from analyzer.manifest import Buffer, Parameter
from analyzer.model import Key
from analyzer.reconcile.books import Books
from analyzer.reconcile.contents import Relation
from analyzer.reconcile.lines import Line
from analyzer.scopes import module_of

__all__ = ["match_by_content", "match_by_reader", "match_copies", "match_deduplicated"]

_LINES = {
    Relation.SAME: Line.RENAMED,
    Relation.TRANSPOSED: Line.TRANSPOSED,
    Relation.RESHAPED: Line.RESHAPED,
}


def match_by_content(books: Books) -> None:
    """Give each nameless entry the PyTorch tensor of the same content.

    Among several of equal content, the one whose module reads the entry goes first. Constant-filled contents are equal
    by nature, so there the module must read it, or the file have no scopes at all.
    """
    index = _index(books)
    for entry in books.free_entries():
        if entry.tensor.numel <= 1 or entry.role is Role.QUANTIZATION:
            continue
        modules = books.reader_modules(entry)
        candidates = [
            item for item in _related(books, index, entry) if _is_free_for(books, entry, item[0], modules)
        ]
        candidates.sort(key=lambda item: not _is_read_in(item[0], modules))
        for tensor, relation in candidates[:1]:
            if isinstance(tensor, Buffer):
                books.settle(entry, Line.BUFFER, books.contents.evidence, tensor.name)
            else:
                books.hold(tensor, entry, _LINES[relation], books.contents.evidence, 0.0)


def _is_free_for(books: Books, entry: Entry, tensor: Parameter | Buffer, modules: frozenset[str]) -> bool:
    """Whether equal content may make `entry` the place of `tensor`."""
    if tensor.name in books.parameters:
        return False
    if tensor.content is None or not tensor.content.constant_filled:
        return True
    is_like = isinstance(tensor, Parameter) == (entry.role is Role.PARAMETER)
    return is_like and (not modules or _is_read_in(tensor, modules))


def match_by_reader(books: Books) -> None:
    """Where contents were not compared: the one nameless matrix that a module reads is its weight.

    TorchScript exports rename a transposed weight to `onnx::MatMul_123`, but name the node after the module.
    """
    if books.contents.mode != "none":
        return
    read: dict[str, list[Entry]] = defaultdict(list)
    for entry in books.free_entries():
        modules = books.reader_modules(entry)
        is_matrix = entry.role is Role.PARAMETER and len(entry.tensor.shape) == 2 and entry.copy_of is None
        if is_matrix and len(modules) == 1:
            read[next(iter(modules))].append(entry)
    for module, entries in read.items():
        tensor = books.tensor(f"{module}.weight")
        if len(entries) != 1 or not isinstance(tensor, Parameter) or tensor.name in books.parameters:
            continue
        if entries[0].tensor.shape in (tensor.shape, tensor.shape[::-1]):
            books.hold(tensor, entries[0], Line.TRANSPOSED, "structure:reader-module+shape")


def match_copies(books: Books) -> None:
    """What repeats a parameter that is already held is its copy, if the content says so (or said so to the audit)."""
    index = _index(books)
    for entry in books.free_entries():
        held = None if entry.copy_of is None else books.entries.get(entry.copy_of)
        if held is not None and held.parameter is not None:
            tensor = books.tensor(held.parameter)
            if isinstance(tensor, Parameter) and tensor.name in books.parameters:
                books.copy(tensor, entry, entry.decided_by)
                continue
        if entry.tensor.numel <= 1:
            continue
        for candidate, _ in _related(books, index, entry):
            # Equal zero biases are different parameters: a constant-filled tensor is nobody's copy.
            if (
                isinstance(candidate, Parameter)
                and candidate.content
                and not candidate.content.constant_filled
            ):
                books.copy(candidate, entry, books.contents.evidence)
                break


def match_deduplicated(books: Books) -> None:
    """A parameter without a tensor of its own, whose content another one's tensor has: merged by the exporter.

    Equal content alone is no proof, or a bias that was cut out would pass. It takes a node of the parameter's own
    module that reads the tensor; in a file without scopes, as many readers as there are parameters in the tensor; for
    a zero bias, which the optimizer also takes from the node, a traced node that still names it.
    """
    holders: dict[str, list[Entry]] = defaultdict(list)
    load: dict[Key, int] = defaultdict(int)
    for line in books.parameters.values():
        if line.entries:
            entry = books.entry(line.entries[0])
            load[line.entries[0]] += 1
            for print_ in books.contents.fingerprints(entry):
                holders[print_].append(entry)
    for parameter in list(books.free_parameters()):
        content = parameter.content
        if content is None or books.contents.mode == "none":
            _match_deduplicated_by_reader(books, parameter)
            continue
        prints = (content.digest, content.digest_transposed, content.samples)
        for entry in (entry for print_ in prints if print_ for entry in holders.get(print_, ())):
            evidence = _reads(books, entry, parameter, load[entry.tensor.key])
            if evidence is None and books.is_dropped_zero(parameter):
                evidence = "traced-zero"
            if evidence and books.contents.relation(entry, parameter) in _LINES:
                books.merge(parameter, entry, Line.DEDUPLICATED, f"{books.contents.evidence}+{evidence}", 0.0)
                load[entry.tensor.key] += 1
                break


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
    is_constant = parameter.content is None or parameter.content.constant_filled
    parents = {module_of(module_of(name)) for name in parameter.names}
    return "reader-parent" if not is_constant and parents & modules else None


def _is_read_in(tensor: Parameter | Buffer, modules: frozenset[str]) -> bool:
    return any(module_of(name) in modules for name in tensor.names)


def _index(books: Books) -> dict[str, list[Parameter | Buffer]]:
    """PyTorch tensors by what `Contents.fingerprints` may give for an entry that holds them."""
    index: dict[str, list[Parameter | Buffer]] = defaultdict(list)
    for tensor in books.manifest.tensors:
        if tensor.content is None or tensor.numel <= 1:
            continue
        prints = {tensor.content.samples}
        if books.contents.mode == "full":
            prints = {tensor.content.digest, tensor.content.digest_transposed or tensor.content.digest}
        for print_ in prints:
            index[print_].append(tensor)
    return index


def _related(
    books: Books, index: dict[str, list[Parameter | Buffer]], entry: Entry
) -> list[tuple[Parameter | Buffer, Relation]]:
    """PyTorch tensors with this entry's content, in PyTorch's order."""
    found: list[tuple[Parameter | Buffer, Relation]] = []
    for print_ in books.contents.fingerprints(entry):
        for tensor in index.get(print_, ()):
            relation = books.contents.relation(entry, tensor)
            # A few equal elements in another shape prove nothing without a name.
            is_proof = relation is not Relation.RESHAPED or books.contents.mode == "full"
            if relation in _LINES and is_proof:
                found.append((tensor, relation))
    return found
