"""Rule: data that computes and that is nothing of PyTorch's.

Parameters are explained, and buffers whose values were compared, and the scales and zero points of codes that are held.
What a name, a note or an annotation says of anything else is no explanation, once it reaches arithmetic.
"""

from __future__ import annotations

import re
from dataclasses import replace

from analyzer.model import Key
from analyzer.opaque import find_opaque
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.lines import MEANINGS, Line
from analyzer.reconciliation.worked_out import known_values

__all__ = ["settle_opaque"]

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
        is_known=known_values(books),
        tables={  # indices and counts: what is made of them is exact, and of rounded numbers it is not
            key
            for key, value in books.evaluated.items()
            if not value.parameters and not value.dtype.is_floating
        },
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
