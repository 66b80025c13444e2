"""Closed books -> findings that keep nothing from balancing: undone ties, wider types, other wiring, unknown code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from analyzer.checkpoints.statedict import listed
from analyzer.findings.freed import count_freed
from analyzer.ledger import Entry, Finding, Severity
from analyzer.manifest import Manifest, Parameter, Unreached
from analyzer.model import Key, label
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.lines import MEANINGS, EntryLine, Line
from analyzer.scopes import is_dotted, module_of
from analyzer.units import format_doing, format_many, format_share

__all__ = ["find_remarks", "remark_wiring"]

_AS_THEY_ARE = frozenset(line for line, meaning in MEANINGS.items() if meaning.values in ("kept", "cast"))
"""Lines of values that PyTorch's own type holds as well: what was computed from a parameter may need the wider one."""


def find_remarks(books: Books) -> tuple[Finding, ...]:
    """What an account may be told of beside its lines."""
    return (
        *_find_unreached(books.manifest),
        *_find_untied(books),
        *_find_wider(books),
        *_find_unknown(books),
    )


def remark_wiring(first: str) -> Finding:
    """What is told of a file that is wired otherwise than its export; `first` is a module, or "" where none is."""
    where = f", first in {first}" if first else ""
    message = f"the file computes with its weights otherwise than the exported one did{where}"
    return Finding("wiring-differs", Severity.WARNING, message, (first,) if first else ())


def _find_unreached(manifest: Manifest) -> Iterator[Finding]:
    """Modules that the example inputs of the export left unused, by the inputs that would reach them."""
    by_inputs: dict[tuple[str, ...], list[Unreached]] = defaultdict(list)
    for idle in manifest.unreached:
        by_inputs[idle.inputs].append(idle)
    for inputs, found in by_inputs.items():
        elements = sum(idle.elements for idle in found)
        said = f"{format_many(elements, 'parameter')} ({format_share(elements, manifest.numel)})"
        modules = listed(idle.module for idle in found)
        hint = f"; {' or '.join(inputs)} would" if inputs else ""
        whom = "it" if len(found) == 1 else "them"
        message = f"{said} of {modules} are not in the file: no example input reaches {whom}{hint}"
        yield Finding(
            "unreached-module",
            Severity.WARNING if inputs else Severity.NOTE,
            message,
            tuple(sorted(idle.module for idle in found)),
        )


def _find_untied(books: Books) -> Iterator[Finding]:
    """Parameters of several names that the file stores more than once, with the same values or with others."""
    tied = {parameter.name: parameter for parameter in books.manifest.parameters if parameter.tied}
    same: dict[Key, str] = {}
    other: dict[Key, str] = {}
    for key, line in books.entries.items() if tied else ():
        parameter = tied.get(line.parameter or "") or _find_place(books, key, line, tied.values())
        held = books.parameters[parameter.name].entries if parameter is not None else ()
        if parameter is not None and held:
            names = f"{label(held[0])} ({', '.join(parameter.names)})"
            if line.line is Line.COPIED:
                same[key] = f"{label(key)} = {names}"
            elif line.line in (Line.DIFFERING, Line.UNEXPECTED) and key not in held:
                other[key] = f"{label(key)} is not {names}"
    for found, words in ((same, "stored again"), (other, "stored with values of their own")):
        if found:
            entries = [books.entry(key) for key in found]
            freed = count_freed(entries, books.ledger.entries, books.ledger.model)
            elements = sum(entry.tensor.numel for entry in entries)
            message = (
                f"{format_many(elements, 'element')} ({format_many(freed, 'byte')}) that PyTorch ties to others "
                f"{'is' if elements == 1 else 'are'} {words}"
            )
            subjects = tuple(sorted(found.values()))
            yield Finding("untied-weights", Severity.WARNING, message, subjects, freed or None)


def _find_place(books: Books, key: Key, line: EntryLine, tied: Iterable[Parameter]) -> Parameter | None:
    """The parameter in whose place an unexpected tensor is read: by a module of one of its names, in its shape."""
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
    """Weights that PyTorch has in fewer bits than the file, though nothing was computed from them."""
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
        said = format_doing(sum(entry.tensor.numel for entry in found), "learned element", "are")
        message = (
            f"{said} stored in more bits than in PyTorch ({types}); its own types would take "
            f"{format_many(saved, 'byte')} less"
        )
        subjects = tuple(sorted(label(entry.tensor.key) for entry in found))
        yield Finding("wider-than-checkpoint", Severity.NOTE, message, subjects, saved or None)


def _needed_bits(books: Books) -> dict[Key, int]:
    """Of each stored tensor, the bits of the widest parameter in it; 0 where one was not stored as it is."""
    bits: dict[Key, int] = {}
    for parameter in books.manifest.parameters:
        settled = books.parameters[parameter.name]
        is_plain = parameter.dtype.is_floating and _AS_THEY_ARE.issuperset(settled.chain)
        for key in settled.entries:
            before = bits.get(key)
            mine = parameter.dtype.bits if is_plain else 0
            bits[key] = mine if before is None else max(before, mine) if before and mine else 0
    return bits


_LEFT = frozenset({Line.DIFFERING, Line.MISSING, Line.OPAQUE, Line.UNEXPECTED, Line.UNEXPLAINED})
"""Lines of what PyTorch's own program may explain."""


def _find_unknown(books: Books) -> Iterator[Finding]:
    """What is left over, where PyTorch's side does not know what forward computes, and reads."""
    manifest = books.manifest
    is_at_hand = (
        manifest.lists_all_buffers and manifest.trace is None
    )  # its class, which whoever has it can ask
    if manifest.program is not None or is_at_hand or books.contents.mode == "none":
        return
    sizes = {
        label(key): books.entry(key).tensor.numel
        for key, line in books.entries.items()
        if line.line in _LEFT and not is_dotted(books.entry(key).tensor.name)
    }
    numels = {parameter.name: parameter.numel for parameter in manifest.parameters}
    absent = {line.name: numels[line.name] for line in books.parameters.values() if line.line is Line.MISSING}
    if sizes or (absent and not manifest.lists_all_buffers):
        size = format_many(sum(sizes.values()) + sum(absent.values()), "element")
        message = (
            f"{size} may be computed from others in advance, or not be read: a state dict does not say what forward "
            "does; reconcile against the class (a folder with its config.json, or module:factory) or the manifest of "
            "an export"
            if not manifest.lists_all_buffers
            else f"{size} may be computed from others in advance: the manifest was written without the values of "
            "PyTorch's program; export again, or reconcile against the class"
        )
        yield Finding("program-unknown", Severity.NOTE, message, tuple(sorted((*sizes, *absent))))
