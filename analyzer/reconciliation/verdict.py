"""Settled books -> Reconciliation: sums of the bridge, findings, nearest tensors, and a verdict on the wiring.

Wiring is compared by the digest of `model.fingerprint`, with each weight under its PyTorch name. The digest is
meaningful only for files as exported: a tool that optimizes a file or encodes its weights changes it, and then nothing
is compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from analyzer.account.findings.facts import count_freed
from analyzer.account.ledger import Entry, Finding, Ledger, Severity
from analyzer.account.scopes import is_dotted, module_of
from analyzer.checkpoints.statedict import listed
from analyzer.errors import LedgerError
from analyzer.manifest import Manifest, Parameter, Unreached, Wired, save_manifest
from analyzer.model import Key, Place, StoredTensor, label
from analyzer.model.fingerprint import Fingerprint, take_fingerprint
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.lines import (
    MEANINGS,
    RETYPED,
    UNBALANCED,
    WHY,
    BridgeRow,
    EntryLine,
    Line,
    Nearest,
    Reads,
    Reconciliation,
    why_differing,
)
from analyzer.reconciliation.siblings import find_odd_layers
from analyzer.records import replace
from analyzer.text import format_doing, format_many, format_share

# sums, and errors of the account


def close_books(books: Books, ledger: Ledger) -> Reconciliation:
    """Sum the settled lines, and collect the findings.

    Raises:
        LedgerError: the bridge does not lead from one side to the other, a defect of onnxledger.
    """
    manifest = books.manifest
    parameters = tuple(books.parameters[parameter.name] for parameter in manifest.parameters)
    entries = tuple(books.entries[entry.tensor.key] for entry in ledger.entries)
    bridge = _bridge(books)
    trainable = {parameter.name: parameter.trainable for parameter in manifest.parameters}
    result = Reconciliation(
        ledger=ledger,
        manifest=manifest,
        content=books.contents.mode,
        bridge=bridge,
        parameters=parameters,
        entries=entries,
        onnx_parameters=_count_parameters(books),
        findings=(*_findings(books), *find_remarks(books)),
        nearest=find_nearest(books),
        trainability={
            line.key: (line.parameter, trainable[line.parameter])
            for line in entries
            if line.parameter is not None and line.parameter in trainable
        },
        checked_places=len(books.placed | {each.name for each in parameters if each.line is Line.MISPLACED}),
    )
    _check(result)
    reads, first = compare_wiring(result)
    wiring_findings: tuple[Finding, ...] = ()
    if first is not None:
        wiring_findings = (remark_wiring(first),)
    elif result.balanced and reads != "as-exported":  # an unbalanced account may lack weights to compare
        wiring_findings = tuple(find_odd_layers(books))
    return replace(result, reads=reads, differs_from=first, findings=(*result.findings, *wiring_findings))


def _bridge(books: Books) -> tuple[BridgeRow, ...]:
    """Sum the lines.

    A parameter adds the difference between its share of stored tensors and its own size. Tensors, and padding, that
    belong to no parameter add their elements.
    """
    rows = {line: [0, 0, 0, 0, 0] for line in Line}
    numels = {parameter.name: parameter.numel for parameter in books.manifest.parameters}
    assigned: dict[Key, int] = Counter()
    for settled in books.parameters.values():
        numel = numels[settled.name]
        learned, stored, nbytes = 0, 0, 0
        for holding in books.holdings.get(settled.name, ()):
            learned, stored = learned + holding.learned, stored + holding.stored
            nbytes += _share(books.entry(holding.key).tensor, assigned[holding.key], holding.stored)
            assigned[holding.key] += holding.stored
        _add(rows[settled.line], 1, numel, learned - numel, stored - numel, nbytes)
    for line in books.entries.values():
        tensor = books.entry(line.key).tensor
        if line.key not in assigned:
            _add(rows[line.line], 1, tensor.numel, line.learned, tensor.numel, tensor.nbytes)
        elif assigned[line.key] < tensor.numel:  # padding of a tensor beside the parameters in it
            rest = tensor.numel - assigned[line.key]
            _add(rows[Line.ADDED], 0, rest, 0, rest, _share(tensor, assigned[line.key], rest))
    for numel in books.generated.values():  # stored in no file, so they change no count
        _add(rows[Line.OPAQUE], 1, numel, 0, 0, 0)
    return tuple(BridgeRow(line, *rows[line]) for line in Line)


def _share(tensor: StoredTensor, start: int, count: int) -> int:
    """Return the bytes of a run of elements; the bytes of all runs sum to those of the tensor."""
    size = max(tensor.numel, 1)
    return tensor.nbytes * (start + count) // size - tensor.nbytes * start // size


def _add(row: list[int], *numbers: int) -> None:
    """Add numbers to a row of tensors, elements, parameter_delta, stored_delta and bytes."""
    for index, number in enumerate(numbers):
        row[index] += number


def _count_parameters(books: Books) -> int:
    """Count the learned elements of the file with the PyTorch side known, from the file's entries alone.

    An entry that holds parameters counts once; copies, buffers and tensors made by the exporter never count.
    """
    return sum(line.learned for line in books.entries.values())


def _check(result: Reconciliation) -> None:
    parameters = result.manifest.numel + sum(row.parameter_delta for row in result.bridge)
    stored = result.manifest.numel + sum(row.stored_delta for row in result.bridge)
    if (parameters, stored) != (result.onnx_parameters, result.ledger.stored_elements):
        raise LedgerError(
            f"{result.ledger.model.path}: the bridge leads to {parameters:,} parameters and {stored:,} stored "
            f"elements, the file has {result.onnx_parameters:,} and {result.ledger.stored_elements:,}"
        )


def _name_of(books: Books, place: Place) -> str:
    """Return the name that findings give to a node's result."""
    graph = next(graph for graph in books.ledger.model.graphs if graph.path == place[0])
    node = graph.nodes[place[1]]
    return label((place[0], node.outputs[0] if node.outputs else node.name))


def _findings(books: Books) -> Iterator[Finding]:
    """Yield a finding with its tensors for each line that unbalances the account; for `differing` one per reason."""
    numels = {parameter.name: parameter.numel for parameter in books.manifest.parameters}
    lines = [(line, None) for line in UNBALANCED]
    reasons: list[tuple[Line, str | None]] = [*lines, *((Line.DIFFERING, why) for why in sorted(WHY))]
    for line, why in sorted(reasons, key=lambda reason: UNBALANCED.index(reason[0])):
        found = {
            each.name: numels[each.name]
            for each in books.parameters.values()
            if each.line is line and why_differing(line, each.decided_by) == why
        }
        for entry in books.entries.values():
            if entry.line is line and why_differing(line, entry.decided_by) == why:
                name = label(entry.key) if line is Line.OPAQUE else entry.parameter or label(entry.key)
                found.setdefault(name, books.entry(entry.key).tensor.numel)
        if line is Line.OPAQUE:
            found.update((_name_of(books, place), numel) for place, numel in books.generated.items())
        if found:
            size = f"{format_many(len(found), 'tensor')}, {format_many(sum(found.values()), 'element')}"
            words = MEANINGS[line].unbalanced if why is None else WHY[why]
            message = f"{size}: {words[len(found) > 1]}"
            yield Finding(line.value, Severity.ERROR, message, tuple(sorted(found)))


# remarks

_KEPT_OR_CAST = frozenset(line for line, meaning in MEANINGS.items() if meaning.values in ("kept", "cast"))
"""Lines whose values PyTorch's own type holds as well; values computed from a parameter may need a wider type."""


def find_remarks(books: Books) -> tuple[Finding, ...]:
    """Return the findings beside those of unbalanced lines."""
    return (
        *_find_unreached(books.manifest),
        *_find_absent_modules(books),
        *_find_untied(books),
        *_find_wider(books),
        *_find_unknown(books),
        *_find_changed(books),
        *_find_turned(books),
    )


def remark_wiring(first: str) -> Finding:
    """Return the finding for a file wired differently from its export; `first` is a module, or "" if none is known."""
    where = f", first in {first}" if first else ""
    message = f"the file's computation differs from that of its export{where}"
    return Finding("wiring-differs", Severity.WARNING, message, (first,) if first else ())


def remark_program(module: str | None, node: str, reason: str, severity: Severity) -> Finding:
    """Return the finding for a file that computes another program than PyTorch's, starting at a node."""
    where = f", from {node} on" if module else ""
    message = f"{module or node} computes something else than PyTorch{where}: {reason}"
    return Finding("computes-otherwise", severity, message, (module or node,))


def _find_changed(books: Books) -> Iterator[Finding]:
    """Report parameters that nodes change at run time, if no program tells whether PyTorch does the same."""
    if books.manifest.program is not None:
        return
    found: dict[tuple[str, Severity], list[str]] = defaultdict(list)
    for name, change in books.changed.items():
        found[change].append(name)
    for (operator, severity), names in found.items():
        does = format_doing(len(names), "parameter", "are")
        message = (
            f"{does} changed by {operator} before {'it is' if len(names) == 1 else 'they are'} used; "
            "it is unknown whether PyTorch does the same"
        )
        yield Finding("changed-alike", severity, message, tuple(sorted(names)))


def _find_turned(books: Books) -> Iterator[Finding]:
    """Report square weights read transposed relative to a `Linear`, if nothing tells how PyTorch reads them."""
    if books.turned and books.manifest.program is None:
        message = (
            f"{format_doing(len(books.turned), 'square weight', 'are')} multiplied untransposed, unlike a Linear's; "
            "it is unknown whether PyTorch does the same"
        )
        yield Finding("turned-alike", Severity.WARNING, message, tuple(books.turned))


def _find_unreached(manifest: Manifest) -> Iterator[Finding]:
    """Report modules that the export's example inputs left unused, grouped by the inputs that would reach them."""
    by_inputs: dict[tuple[str, ...], list[Unreached]] = defaultdict(list)
    for idle in manifest.unreached:
        by_inputs[idle.inputs].append(idle)
    for inputs, found in by_inputs.items():
        elements = sum(idle.elements for idle in found)
        size = f"{format_many(elements, 'parameter')} ({format_share(elements, manifest.numel)})"
        modules = listed(idle.module for idle in found)
        hint = f"; {' or '.join(inputs)} would" if inputs else ""
        message = f"{size} are not in the file: no example input reaches {modules}{hint}"
        yield Finding(
            "unreached-module",
            Severity.WARNING if inputs else Severity.NOTE,
            message,
            tuple(sorted(idle.module for idle in found)),
        )


def _find_absent_modules(books: Books) -> Iterator[Finding]:
    """Report modules of which the file has nothing, if it has all of the others and nothing else is wrong.

    Of nested modules the outermost is reported. A module that lacks a parameter of its own, but not all inside it, is
    something wrong.
    """
    lines = {line.line for line in books.parameters.values()} | {line.line for line in books.entries.values()}
    if Line.MISSING not in lines or any(line in UNBALANCED and line is not Line.MISSING for line in lines):
        return
    absent: list[str] = []
    present: list[str] = []
    has_own = False
    waiting = deque([("", [parameter.name for parameter in books.manifest.parameters])])
    while waiting:
        prefix, inside = waiting.popleft()
        children: dict[str, list[str]] = defaultdict(list)
        for name in inside:
            head, dot, _ = name[len(prefix) :].partition(".")
            children[head if dot else ""].append(name)
        for head, names in children.items():
            found = {books.parameters[name].line is not Line.MISSING for name in names}
            if not head and False in found:
                return
            if not head:
                has_own = True
            elif len(found) > 1:
                waiting.append((f"{prefix}{head}.", names))
            else:
                (present if True in found else absent).append(prefix + head)
    if not absent or not (present or has_own):
        return
    options = " ".join(f"--part {module}" for module in present)
    message = f"the file has nothing of {format_many(len(absent), 'module')}, and all of the others"
    if not has_own and len(options) <= _MOST_OPTIONS:
        message = f"{options} compares with all that the file holds; it has nothing of {listed(absent)}"
    yield Finding("absent-module", Severity.NOTE, message, tuple(absent))


_MOST_OPTIONS = 120
"""Most characters of the options that a finding suggests."""


def _find_untied(books: Books) -> Iterator[Finding]:
    """Report tied parameters that the file stores more than once, with the same values or with others."""
    tied = {parameter.name: parameter for parameter in books.manifest.parameters if parameter.tied}
    same: dict[Key, str] = {}
    other: dict[Key, str] = {}
    for key, line in books.entries.items() if tied else ():
        parameter = tied.get(line.parameter or "") or _find_place(books, key, line, tied.values())
        stored_keys = books.parameters[parameter.name].entries if parameter is not None else ()
        if parameter is not None and stored_keys:
            names = f"{label(stored_keys[0])} ({', '.join(parameter.names)})"
            if line.line is Line.COPIED:
                same[key] = f"{label(key)} = {names}"
            elif line.line in (Line.DIFFERING, Line.UNEXPECTED) and key not in stored_keys:
                other[key] = f"{label(key)} is not {names}"
    for found, words in ((same, "stored again"), (other, "stored with different values")):
        if found:
            entries = [books.entry(key) for key in found]
            freed = count_freed(entries, books.ledger.entries, books.ledger.model)
            elements = sum(entry.tensor.numel for entry in entries)
            message = (
                f"{format_many(elements, 'element')} ({format_many(freed, 'byte')}) that PyTorch ties to other names "
                f"{'is' if elements == 1 else 'are'} {words}"
            )
            subjects = tuple(sorted(found.values()))
            yield Finding("untied-weights", Severity.WARNING, message, subjects, freed or None)


def _find_place(books: Books, key: Key, line: EntryLine, tied: Iterable[Parameter]) -> Parameter | None:
    """Return the tied parameter that an unexpected tensor replaces, by its readers and its shape, also reversed."""
    if line.line is not Line.UNEXPECTED:
        return None
    entry = books.entry(key)
    shapes, modules = {entry.tensor.shape, entry.tensor.shape[::-1]}, books.reader_modules(entry)
    return next(
        (
            each
            for each in tied
            if each.shape in shapes and modules & {module_of(name) for name in each.names}
        ),
        None,
    )


def _find_wider(books: Books) -> Iterator[Finding]:
    """Report weights that have fewer bits in PyTorch than in the file, though their values were only moved or cast."""
    needed = _needed_bits(books)
    wider: dict[tuple[int, int], list[Entry]] = defaultdict(list)
    for key, bits in needed.items():
        entry = books.entry(key)
        dtype = entry.tensor.dtype
        if bits and dtype.is_floating and dtype.bits > bits:
            wider[dtype.bits, bits].append(entry)
    found = [entry for entries in wider.values() for entry in entries]
    if found:
        saved = sum(
            count_freed(entries, books.ledger.entries, books.ledger.model) * (has - needs) // has
            for (has, needs), entries in wider.items()
        )
        types = ", ".join(f"{has} bits for {needs}" for has, needs in sorted(wider))
        size = format_doing(sum(entry.tensor.numel for entry in found), "learned element", "are")
        message = (
            f"{size} stored in more bits than in PyTorch ({types}); PyTorch's types would take "
            f"{format_many(saved, 'byte')} less"
        )
        subjects = tuple(sorted(label(entry.tensor.key) for entry in found))
        yield Finding("wider-than-checkpoint", Severity.NOTE, message, subjects, saved or None)


def _needed_bits(books: Books) -> dict[Key, int]:
    """Return for each stored tensor the bits of its widest parameter; 0 if one of them was not just moved or cast."""
    bits: dict[Key, int] = {}
    for parameter in books.manifest.parameters:
        settled = books.parameters[parameter.name]
        is_plain = parameter.dtype.is_floating and _KEPT_OR_CAST.issuperset(settled.chain)
        for key in settled.entries:
            before = bits.get(key)
            own_bits = parameter.dtype.bits if is_plain else 0
            bits[key] = own_bits if before is None else max(before, own_bits) if before and own_bits else 0
    return bits


_EXPLAINABLE = frozenset({Line.DIFFERING, Line.MISSING, Line.OPAQUE, Line.UNEXPECTED, Line.UNEXPLAINED})
"""Lines of tensors that PyTorch's program, if it were known, might explain."""


def _find_unknown(books: Books) -> Iterator[Finding]:
    """Report unexplained tensors, if PyTorch's side does not know what `forward` computes and reads."""
    manifest = books.manifest
    is_class_known = (
        manifest.lists_all_buffers and manifest.trace is None
    )  # the class is at hand, and tells what forward computes
    if manifest.program is not None or is_class_known or books.contents.mode == "none":
        return
    sizes = {
        label(key): books.entry(key).tensor.numel
        for key, line in books.entries.items()
        if line.line in _EXPLAINABLE and not is_dotted(books.entry(key).tensor.name)
    }
    numels = {parameter.name: parameter.numel for parameter in manifest.parameters}
    absent = {line.name: numels[line.name] for line in books.parameters.values() if line.line is Line.MISSING}
    if sizes or (absent and not manifest.lists_all_buffers):
        size = format_many(sum(sizes.values()) + sum(absent.values()), "element")
        message = (
            f"{size} may be computed in advance, or unused: a state dict does not contain the code of forward; "
            "reconcile against the class (a folder with its config.json, or module:factory) or the manifest of an "
            "export"
            if not manifest.lists_all_buffers
            else f"{size} may be computed in advance: the manifest was written without the values of PyTorch's "
            "program; export again, or reconcile against the class"
        )
        yield Finding("program-unknown", Severity.NOTE, message, tuple(sorted((*sizes, *absent))))


# the nearest PyTorch tensors

_MOST_ENTRIES = 64
_MOST_CANDIDATES = 64


def find_nearest(books: Books) -> tuple[Nearest, ...]:
    """Return the nearest PyTorch tensors of the first entries on unbalanced lines; none if contents are not compared.

    A candidate has as many elements as the entry, in a shape that can be permuted to the entry's. The best one has the
    most elements in common, then the smallest maximum difference; parameters that the file lacks are tried first.
    """
    culprits = [line for line in books.entries.values() if line.line in UNBALANCED]
    found = (_nearest_of(books, books.entry(line.key)) for line in culprits[:_MOST_ENTRIES])
    return tuple(nearest for nearest in found if nearest is not None)


def _nearest_of(books: Books, entry: Entry) -> Nearest | None:
    numel = books.contents.numel(entry)
    candidates = [p for p in books.manifest.parameters if p.numel == numel and books.contents.compares(p)]
    candidates.sort(key=lambda parameter: parameter.name in books.holdings)
    best: tuple[tuple[int, float], Nearest, Parameter] | None = None
    for parameter in candidates[:_MOST_CANDIDATES]:
        equal, compared = books.contents.agreement(entry, parameter)
        if not compared:
            continue
        largest = books.contents.error(entry, parameter)
        candidate = Nearest(entry.tensor.key, parameter.name, equal, compared, largest)
        rank = (-equal, float("inf") if largest is None else largest)
        if best is None or rank < best[0]:
            best = rank, candidate, parameter
    if best is None:
        return None
    _, nearest, parameter = best
    equal, compared = books.contents.agreement_of_all(entry, parameter)
    return replace(nearest, equal=equal, compared=compared)


# the computation with the weights


def wiring_of(result: Reconciliation) -> Wired | None:
    """Return the digests of the file's computation with its parameters; None for a remote file or unknown liveness."""
    taken = _take(result)
    if taken is None:
        return None
    return Wired(taken.outputs, taken.scopes, result.ledger.model.producer, _domains(result))


def keep_wiring(result: Reconciliation, path: Path) -> None:
    """Write the file's wiring into the manifest at `path`, so that `reconcile` can detect later changes.

    It writes nothing for a file that computes another program than PyTorch's: to be unchanged is then no merit.
    """
    wired = None if result.computes == "differs" else wiring_of(result)
    if wired is not None:
        save_manifest(replace(result.manifest, wiring=wired), path)


def compare_wiring(result: Reconciliation) -> tuple[Reads, str | None]:
    """Compare the file's wiring with the export's in the manifest; return the result and the first different module.

    The module is "" if none can be named.
    """
    known = result.manifest.wiring
    taken = _take(result) if known is not None else None
    if known is None or taken is None:
        return "not-compared", None
    if taken.outputs == known.outputs:
        return "as-exported", None
    if _is_rewritten(result, known):
        return "not-compared", None
    return "differs", Fingerprint(known.outputs, known.scopes).first_difference(taken) or ""


def _is_rewritten(result: Reconciliation, known: Wired) -> bool:
    """Whether a tool has rewritten the file: its producer, domains or types changed, or its scope notes are gone."""
    ledger = result.ledger
    return (
        ledger.model.producer != known.producer
        or not set(_domains(result)) <= set(known.domains)
        or any(line.line in RETYPED for line in result.parameters)
        or (bool(known.scopes) and not ledger.traced_scopes)
    )


def _domains(result: Reconciliation) -> tuple[str, ...]:
    return tuple(sorted({node.domain for node in result.ledger.model.nodes()}))


def _take(result: Reconciliation) -> Fingerprint | None:
    ledger = result.ledger
    if ledger.live is None or ledger.model.traffic is not None:
        return None
    return take_fingerprint(
        ledger.model, ledger.wiring, ledger.live, _name_weights(result), ledger.traced_scopes
    )


def _name_weights(result: Reconciliation) -> dict[Key, str]:
    """Return a text for each stored tensor that holds parameters or a buffer: their names, and their layout in it.

    Parameters of equal content share one name, so that merging them leaves the digest unchanged.
    """
    names = _canonical_names(result.manifest)
    words: dict[Key, set[str]] = defaultdict(set)
    for settled in result.parameters:
        name = names.get(settled.name, settled.name)
        for piece in settled.pieces:
            rule = "" if piece.computed is None else piece.computed.rule
            words[piece.key].add(f"{name} {piece.axes} {piece.taken} {piece.put} {piece.viewed} {rule}")
        pieces = {piece.key for piece in settled.pieces}
        for key in settled.entries:
            if key not in pieces:
                words[key].add(name)
    for entry in result.entries:
        if entry.line is Line.BUFFER and entry.parameter is not None and entry.piece is not None:
            words[entry.key].add(f"{entry.parameter} {entry.piece.axes}")
        elif entry.piece is not None and entry.piece.computed is not None:
            words[entry.key].add(f"{entry.piece.axes} {entry.piece.computed.rule}")
        elif entry.line is Line.EVALUATED and entry.value is not None and entry.value_piece is not None:
            words[entry.key] = {f"{entry.value} {entry.value_piece.axes}"}
        elif entry.order:
            words[entry.key].add(f"rows {entry.order}")
        elif entry.line in _BY_CONTENT and entry.piece is None:
            words.pop(entry.key, None)
    shapes = {entry.tensor.key: entry.tensor.shape for entry in result.ledger.entries}
    return {key: f"{shapes[key]} {sorted(found)}" for key, found in words.items()}


_BY_CONTENT = frozenset({Line.SLICED, Line.GATHERED, Line.BROADCAST, Line.COPIED})
"""Lines of tensors that hold a parameter in an unknown order: the digest takes their numbers, not a name."""


def _canonical_names(manifest: Manifest) -> dict[str, str]:
    first: dict[tuple[tuple[int, ...], str], str] = {}
    return {
        parameter.name: first.setdefault((parameter.shape, parameter.content.digest), parameter.name)
        for parameter in manifest.parameters
        if parameter.content is not None
    }
