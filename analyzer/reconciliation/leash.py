"""Where a formula of each element may stand at all: what reads the result, and what else PyTorch's side says.

An exporter computes `1 + w`, `exp(w)`, `-exp(w)`, `softplus(w)` or `w / sqrt(d)` in advance because PyTorch's own
program has that expression. Anywhere else a tensor that happens to be one of them is another model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from analyzer.classify.structure import scales_norm
from analyzer.ledger import Entry
from analyzer.manifest import Parameter
from analyzer.model import Node, StoredTensor
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.lines import MEANINGS, Line
from analyzer.scopes import module_of

__all__ = ["is_allowed", "is_offset"]

_SHIFTED_CLASSES = re.compile(
    r"Gemma|Nemotron|Qwen3Next|Qwen3_5|Qwen4|Muse|Step3p|MiniMaxM3|VideoPrism|1P(?![a-z])|OnePlus|UnitOffset"
)
"""Classes of norms that scale by 1 + w: those of transformers whose forward says so, and NeMo's and JAX's names."""

_EXPONENTIATED = frozenset({"logit_scale"})
"""Leaves of several elements of which forward takes exp (Swin V2: a temperature for each head)."""

_STATE_MATRIX = "A_log"
"""The leaf of state-space models (Gu and Dao 2023, arXiv:2312.00752, section 3.6: A = -exp(A_log))."""

_GATE = "recurrent_param"
"""The leaf of real-gated recurrences (De et al. 2024, arXiv:2402.19427, equation 6: a = exp(-c softplus(w) r))."""

_NUMBER = re.compile(r"\d+")


def is_allowed(books: Books, entry: Entry, tensor: Parameter, rule: str) -> bool:
    """Whether an exporter may have stored what `rule` makes of `tensor` in `entry`."""
    leaf = tensor.name.rpartition(".")[2]
    if rule == "exp(w)":
        return tensor.numel == 1 or leaf in _EXPONENTIATED
    if rule == "-exp(w)":
        return leaf == _STATE_MATRIX
    if rule == "softplus(w)":
        return leaf == _GATE
    if rule == "1+w":
        return _is_shifted(books, entry, tensor)
    return not _stands_plain(books, tensor) and _is_query(books, entry, float(rule.partition("*")[0]))


def _is_shifted(books: Books, entry: Entry, tensor: Parameter) -> bool:
    """Whether it is the gain of a norm whose class scales by 1 + w, as far as PyTorch's side tells, and all are."""
    if not scales_norm(books.ledger.wiring, entry.tensor) or _stands_plain(books, tensor):
        return False
    module = module_of(tensor.name)
    if books.manifest.modules:
        return _SHIFTED_CLASSES.search(books.manifest.modules.get(module, "")) is not None
    has_bias = isinstance(books.tensor(f"{module}.bias"), Parameter)
    return not has_bias  # a LayerNorm's gain is no shift of one


_NOT_POSITIVE = 1 / 16
"""The part of a norm's gains that are 0 or below only where they are offsets from 1: plain ones keep their sign."""


def is_offset(books: Books, tensor: Parameter) -> bool:
    """Whether PyTorch's side says that a norm's gain is what is added to 1: by its class, or by all gains' values.

    Without classes, gains of this name in all layers (its numbers aside) must lie around 0, not around 1.
    """
    module = module_of(tensor.name)
    if books.manifest.modules:
        return _SHIFTED_CLASSES.search(books.manifest.modules.get(module, "")) is not None
    pattern = _NUMBER.sub("#", tensor.name)
    gains = [p for p in books.manifest.parameters if _NUMBER.sub("#", p.name) == pattern]
    values = [books.contents.originals.vector(gain.name) for gain in gains]
    known = [value.reshape(-1) for value in values if value is not None]
    if len(known) < len(gains) or len(known) < _FEWEST:
        return False
    every = np.concatenate(known)
    return bool((every <= 0).mean() >= _NOT_POSITIVE) and float(np.median(np.abs(every))) < _NEAR_ONE


_FEWEST = 2
"""Gains without which nothing says that it is the way of the whole model."""

_NEAR_ONE = 0.75
"""The size that most plain gains of a norm exceed."""


def _stands_plain(books: Books, tensor: Parameter) -> bool:
    """Whether a parameter of its name in another layer, or the other one of its module, stands as PyTorch has it."""
    pattern = _NUMBER.sub("#", tensor.name)
    module = module_of(tensor.name)
    for name, line in books.parameters.items():
        is_like = _NUMBER.sub("#", name) == pattern or module_of(name) == module
        if is_like and Line.FOLDED_POINTWISE not in line.chain and MEANINGS[line.line].values != "none":
            return True
    return False


_MOST_STEPS = 16
"""Nodes from a query's product to the softmax of its attention."""

_CARRIES = frozenset(
    {
        *(
            "Add",
            "Cast",
            "Concat",
            "Expand",
            "Flatten",
            "Gather",
            "Identity",
            "Mul",
            "Neg",
            "Reshape",
            "Slice",
        ),
        *("Split", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where", "Max", "Min", "Clip", "Gemm"),
    }
)


def _is_query(books: Books, entry: Entry, factor: float) -> bool:
    """Whether it multiplies what is compared in an attention that has no other scale, with heads of 1 / factor^2."""
    width = round(factor**-2)
    wiring = books.ledger.wiring
    layer: list[Node] = [
        node for node in books.users(entry) if node.op_type in _PRODUCTS or node.op_type == "Add"
    ]
    seen: set[tuple[tuple[str, ...], int]] = set()
    has_width, is_scored = False, False
    for _ in range(_MOST_STEPS):
        following: list[Node] = []
        for node in layer:
            if node.place in seen:
                continue
            seen.add(node.place)
            if node.op_type == "Softmax":
                return has_width and is_scored
            operands = [part for part in wiring.producers(node) if isinstance(part, StoredTensor)]
            if node.op_type in ("Mul", "Div") and any(_is_scale(part) for part in operands):
                return False
            if node.op_type == "Reshape":
                has_width = has_width or width in _sizes(books, node)
            for reader, _slot in wiring.readers(node):
                if reader.op_type in ("MatMul", "Einsum"):
                    is_scored = True
                    following.append(reader)
                elif reader.op_type in _CARRIES or reader.op_type in ("Softmax", "Div"):
                    following.append(reader)
        layer = following
    return False


_PRODUCTS = frozenset(
    {"Gemm", "MatMul", "MatMulInteger", "MatMulNBits", "FusedMatMul", "QLinearMatMul", "FusedGemm"}
)


def _is_scale(tensor: StoredTensor) -> bool:
    """Whether it is one number other than 1."""
    if tensor.numel != 1 or not tensor.dtype.is_floating:
        return False
    array = tensor.payload.array()
    return array is None or float(array.reshape(-1)[0]) != 1.0


def _sizes(books: Books, node: Node) -> set[int]:
    """The stored sizes in the shape that a Reshape is given."""
    found: set[int] = set()
    layer = [node]
    for _ in range(3):
        parts = [part for each in layer for part in _shape_parts(books, each, is_first=each is node)]
        for part in parts:
            array = part.payload.array() if isinstance(part, StoredTensor) and part.numel <= 16 else None
            if array is not None and array.dtype.kind == "i":
                found.update(int(number) for number in array.reshape(-1))
        layer = [part for part in parts if isinstance(part, Node)]
    return found


def _shape_parts(books: Books, node: Node, *, is_first: bool) -> Iterator[StoredTensor | Node]:
    parts = list(books.ledger.wiring.producers(node))
    yield from parts[-1:] if is_first else parts
