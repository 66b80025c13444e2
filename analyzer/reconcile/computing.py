"""Rules: data that computes and that is nothing of PyTorch's, and weights that are changed when the model runs.

Parameters are explained, and buffers whose values were compared, and the scales and zero points of codes that are held.
What a name, a note or an annotation says of anything else is no explanation, once it reaches arithmetic.
"""

from __future__ import annotations

import re
from dataclasses import replace

from analyzer.ledger import Entry
from analyzer.manifest import Parameter, split_name
from analyzer.model import Key, Node, StoredTensor
from analyzer.model.operators import DECODES, MOVES, Kind, Slot, operator_of
from analyzer.opaque import find_opaque
from analyzer.reconcile.books import Books
from analyzer.reconcile.lines import MEANINGS, Line

__all__ = ["settle_changed", "settle_opaque"]

_COMPARED = frozenset({"content", "sampled", "rows"})


def settle_opaque(books: Books) -> None:
    """Settle as `opaque` what computes and is not explained."""
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
    )
    for key in found.tensors:
        books.entries[key] = replace(
            books.entries[key], line=Line.OPAQUE, decided_by="structure:computes", learned=0
        )
    books.made = dict(found.made)


def _find_explained(books: Books) -> set[Key]:
    """What needs no other explanation: what is PyTorch's by its values, and what decodes it; what is told already."""
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


_PLAIN = re.compile(
    r"Linear|NonDynamicallyQuantizableLinear|Conv1D|(?:Lazy)?Conv(?:Transpose)?[123]d|Embedding"
)
"""Classes of torch and transformers whose forward computes with `weight` as it is."""

_MOST_STEPS = 4


def settle_changed(books: Books) -> None:
    """Settle as `differing` the weights of plain modules that a node changes before they are multiplied.

    Where no class is known, a matrix is one of a plain module if most others are multiplied as they are.
    """
    if books.contents.mode == "none":
        return
    found: list[tuple[Parameter, str | None]] = []
    for parameter in books.manifest.parameters:
        settled = books.parameters[parameter.name]
        module, leaf = split_name(parameter.name)
        class_ = books.manifest.modules.get(module)
        is_plain = len(parameter.shape) > 1 if class_ is None else _PLAIN.fullmatch(class_) is not None
        if (
            is_plain
            and leaf == "weight"
            and len(settled.entries) == 1
            and not MEANINGS[settled.line].unbalanced
        ):
            found.append((parameter, _find_change(books, books.entry(settled.entries[0]))))
    changed = [(parameter, operator) for parameter, operator in found if operator is not None]
    if not books.manifest.modules and 2 * len(changed) > len(found):
        return
    for parameter, operator in changed:
        settled = books.parameters[parameter.name]
        rule, chain = f"structure:changed-by-{operator}", (*settled.chain, Line.DIFFERING)
        books.parameters[parameter.name] = replace(settled, line=Line.DIFFERING, chain=chain, decided_by=rule)
        held = books.entries[settled.entries[0]]
        books.entries[held.key] = replace(held, line=Line.DIFFERING, decided_by=rule)


def _find_change(books: Books, entry: Entry) -> str | None:
    """The operator that computes something else of a weight alone, if that is what is multiplied."""
    wiring = books.ledger.wiring
    changed: str | None = None
    readers = wiring.readers(entry.tensor, past=MOVES | DECODES)
    for _ in range(_MOST_STEPS):
        if len(readers) != 1:
            return None
        node, slot = readers[0]
        known = operator_of(node)
        if known is None:
            return None
        if known.kind in (Kind.PRODUCT, Kind.CONVOLUTION, Kind.LOOKS_UP, Kind.NORMALIZES):
            return changed if known.slot(slot) in (Slot.LEARNED, Slot.TABLE) else None
        if known.kind is not Kind.ELEMENTWISE or not _is_alone(books, node):
            return None
        changed = node.op_type
        readers = wiring.readers(node, past=MOVES)
    return None


def _is_alone(books: Books, node: Node) -> bool:
    """Whether all else that a node reads are stored numbers of nobody's."""
    wiring = books.ledger.wiring
    held = {key for line in books.parameters.values() for key in line.entries}
    stored = [part for part in wiring.producers(node) if isinstance(part, StoredTensor)]
    given = sum(bool(name) for name in node.inputs)
    others = [part for part in stored if part.key not in held]
    return given - len(others) <= 1
