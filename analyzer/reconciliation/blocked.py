"""Rules: convolutions that onnxruntime blocked for one machine (ORT_ENABLE_ALL, domain com.microsoft.nchwc).

No tensor is settled here. The weight gets PyTorch's order of elements back, so that every other rule compares it, whole
and element by element, with a weight or with one that a BatchNorm scaled. The padding after the last channel has to be
zeros, or ones if a factor of each channel has become a 1x1 convolution. The file does not tell the width of a block: it
is the width in which the channels are parallel to a weight's.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from analyzer.account.ledger import Entry
from analyzer.manifest import Parameter
from analyzer.model import Key, Node, StoredTensor
from analyzer.model.content import Array, channel_statistics, decode_values
from analyzer.model.dtypes import DType
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.layouts import Tiles
from analyzer.reconciliation.lines import MEANINGS, Line, name_of
from analyzer.records import replace

_DOMAIN = "com.microsoft.nchwc"
_BLOCKS = (16, 8)
"""Widths of a block, the float32 lanes of a vector: AVX-512; AVX2, NEON and others (MlasNchwcGetBlockSize)."""
_WEIGHT, _BIAS = 1, 2
_NEAR = 1e-3
"""Relative tolerance of a channel's direction: enough to choose an order; other rules prove the weight."""


def find_tiles(books: Books) -> None:
    """Note the tiling of each blocked weight and its bias: PyTorch's order of elements, and the padding."""
    if books.contents.mode == "none":
        return
    tilings: dict[int, dict[Key, Tiles]] = {block: {} for block in _BLOCKS}
    for entry in books.ledger.entries:
        node = _reader(books, entry, _WEIGHT)
        if node is None or len(entry.tensor.shape) < 3 or entry.tensor.dtype is not DType.FLOAT:
            continue
        array = books.contents.array(entry)
        for block, found in tilings.items() if array is not None else ():
            tiles = None if array is None else _find_tiling(books, entry, node, array, block)
            if tiles is not None:
                found[entry.tensor.key] = tiles
    best = max(_BLOCKS, key=lambda block: len(tilings[block]))  # a file is blocked for one machine
    books.contents.tiles.update(tilings[best])
    for entry in books.ledger.entries:
        node = _reader(books, entry, _BIAS)
        if node is not None and len(entry.tensor.shape) == 1:
            _note_bias_padding(books, entry, node)


def mark_tiles(books: Books) -> None:
    """Mark parameters held in tiles as moved, and add the tiling to their pieces for `recover`."""
    found = books.contents.tiles
    for name, settled in books.parameters.items() if found else ():
        if not found.keys() & {piece.key for piece in settled.pieces}:
            continue
        pieces = tuple(replace(piece, tiles=found.get(piece.key)) for piece in settled.pieces)
        is_blocked = any(piece.tiles is not None and len(piece.shape) > 1 for piece in pieces)
        rest = tuple(
            line for line in settled.chain if line not in (Line.RENAMED, Line.IDENTICAL, Line.NAMED, *_MOVED)
        )
        chain = (*_MOVED, *rest) if is_blocked else settled.chain
        # An unbalanced line (dead, misplaced, changed) stays.
        line = settled.line if MEANINGS[settled.line].unbalanced else name_of(chain)
        books.parameters[name] = replace(settled, pieces=pieces, chain=chain, line=line)
        for key in settled.entries:
            entry_line = books.entries[key]
            if is_blocked and entry_line.parameter == name and entry_line.line is settled.line:
                books.entries[key] = replace(entry_line, line=line)


_MOVED = (Line.TRANSPOSED, Line.RESHAPED)


def _reader(books: Books, entry: Entry, slot: int) -> Node | None:
    """Return the blocked convolution that reads an entry at this slot; None if anything else reads it too."""
    readers = books.readers(entry)
    is_blocked = all(
        reader.node.domain == _DOMAIN and reader.node.op_type == "Conv" and reader.slot == slot
        for reader in readers
    )
    return readers[0].node if readers and is_blocked else None


def _find_tiling(books: Books, entry: Entry, node: Node, array: Array, block: int) -> Tiles | None:
    """Return the tiling in which all channels are parallel to those of a PyTorch weight or a value of its program."""
    for tiles, weights in _find_tilings(books, entry.tensor, max(1, node.integers.get("group", 1)), block):
        is_factor = all(len(weight.shape) < array.ndim for weight in weights)
        if not any(tiles.fills_with(array, number) for number in ((0.0, 1.0) if is_factor else (0.0,))):
            continue
        projections, sizes = channel_statistics(np.ascontiguousarray(tiles.restore(array)))
        for weight in weights:
            known = books.contents.originals.channel_statistics(weight)
            if known is None or known[0].shape != projections.shape:
                continue
            stored_products, expected_products = np.abs(projections * known[1]), np.abs(known[0] * sizes)
            if bool((np.abs(stored_products - expected_products) <= _NEAR * sizes * known[1]).all()):
                return tiles
        if _is_computed(books, np.ascontiguousarray(tiles.restore(array)).reshape(-1), tiles.shape):
            return tiles
    return None


def _is_computed(books: Books, elements: Array, shape: tuple[int, ...]) -> bool:
    """Whether elements are parallel to a value that PyTorch's program computes from a weight (standardized)."""
    program = books.manifest.program
    for value in () if program is None else program.values:
        element = value.dtype.to_numpy()
        if value.shape != shape or value.content is None or element is None or not value.parameters:
            continue
        known = decode_values(value.content.samples, element).astype(np.float64)
        stored = elements[books.contents.originals.positions(elements.size)].astype(np.float64)
        sizes = float(np.linalg.norm(known) * np.linalg.norm(stored))
        if known.shape == stored.shape and sizes and abs(float(known @ stored) / sizes - 1) <= _NEAR:
            return True
    return False


def _find_tilings(
    books: Books, tensor: StoredTensor, groups: int, block: int
) -> Iterator[tuple[Tiles, list[Parameter]]]:
    """Yield each tiling whose shape, padded to blocks, is the stored one, with the weights of that shape."""
    rows, columns, *kernel = tensor.shape
    candidates = [
        p
        for p in books.manifest.parameters
        if len(p.shape) == len(tensor.shape) and list(p.shape[2:]) == kernel
    ]
    if columns * math.prod(kernel) == 1:
        yield from _factors(books, tensor, block)
    is_deep = columns % block == 0
    if rows % block or (groups > 1 and not is_deep and columns > 1):
        return
    shapes = {
        p.shape
        for p in candidates
        if _round_up(p.shape[0], block) == rows
        and (p.shape[1] == columns or (is_deep and _round_up(p.shape[1], block) == columns))
    }
    for shape in sorted(shapes):
        yield Tiles(shape, tensor.shape, block, is_deep), [p for p in candidates if p.shape == shape]


def _factors(books: Books, tensor: StoredTensor, block: int) -> Iterator[tuple[Tiles, list[Parameter]]]:
    """Yield tilings of factors for each channel that have become a 1x1 convolution, and the vectors of that size."""
    vectors: dict[int, list[Parameter]] = defaultdict(list)
    for parameter in books.manifest.parameters:
        is_vector = parameter.shape[:1] == (parameter.numel,) and len(parameter.shape) < len(tensor.shape)
        if is_vector and tensor.shape[0] == _round_up(parameter.numel, block) > parameter.numel:
            vectors[parameter.numel].append(parameter)
    for count, found in sorted(vectors.items()):
        yield Tiles((count, *tensor.shape[1:]), tensor.shape, block, is_deep=False), found


def _round_up(channels: int, block: int) -> int:
    return -(-channels // block) * block


def _note_bias_padding(books: Books, entry: Entry, node: Node) -> None:
    """Note the padding of a bias: it has an element for each channel of its weight, and zeros after them."""
    weights = [part for part in books.ledger.wiring.producers(node) if isinstance(part, StoredTensor)]
    found = [tiles for part in weights if (tiles := books.contents.tiles.get(part.key)) is not None]
    if (
        len(found) != 1
        or entry.tensor.shape != found[0].stored[:1]
        or found[0].shape[0] == found[0].stored[0]
    ):
        return
    tiles = Tiles(found[0].shape[:1], entry.tensor.shape, found[0].block, is_deep=False)
    array = books.contents.array(entry)
    if array is not None and tiles.fills_with(array, 0.0):
        books.contents.tiles[entry.tensor.key] = tiles
