"""Rule: parallel convolutions, each with a BatchNorm, that a model made one before its export.

A block adds the results of convolutions of several sizes, and perhaps its input through a BatchNorm of its own. Each
branch is linear, so their sum is one convolution: W' = sum of pad(W_i * s_i) and b' = the sum of the shifts, with the
scale and the shift of folding a BatchNorm. The input is a convolution by the identity (Ding et al. 2021,
arXiv:2101.03697, section 3.3: RepVGG; MobileOne, YOLOv6 to 10). The checkpoint has the branches, the file their sum.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from analyzer.account.ledger import Entry, Role
from analyzer.manifest import BatchNorm, Parameter, split_name
from analyzer.model.content import Array
from analyzer.model.operators import Kind, kind_of
from analyzer.reconciliation.batchnorm import (
    COMMON_EPSILONS,
    bias_name,
    find_shifted_bias,
    is_eps_open,
    merge_name,
    scale_and_shift,
    settle_shift,
)
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.closeness import Reals
from analyzer.reconciliation.factors import fit_sum
from analyzer.reconciliation.lines import Computed, Line, Piece
from analyzer.records import Frozen, replace

_LEAST = 2
"""Fewest branches: one convolution with its BatchNorm is a plain fold."""
_MOST_ELEMENTS = 1 << 26
"""Most elements of a sum that is computed."""


class _Branch(Frozen):
    """A convolution with its BatchNorm; the input itself if there is no weight."""

    norm: BatchNorm
    weight: Parameter | None = None


class _Sum(Frozen):
    """Weight and bias of all branches, and the sizes of their terms."""

    weight: Reals
    weight_sizes: Reals
    shift: Reals
    shift_sizes: Reals


def match_branches(books: Books) -> None:
    """Explain convolutions that are the sum of all branches of one block, weight and bias."""
    if books.contents.mode == "none":
        return
    blocks = _blocks(books)
    entries = [entry for entry in books.open_entries() if _is_convolved(books, entry)] if blocks else []
    for block, branches in blocks.items():
        wide = max((branch.weight for branch in branches if branch.weight), key=lambda weight: weight.numel)
        for entry in entries:
            is_open = entry.tensor.key not in books.entries and entry.tensor.shape == wide.shape
            is_here = is_open and _block_of(books, entry, blocks) in (block, None)
            if is_here and _match(books, entry, block, branches, wide):
                break


def _block_of(books: Books, entry: Entry, blocks: Collection[str]) -> str | None:
    """Return the innermost block that an entry's name, or the module that reads it, lies in; None if none is known."""
    name = books.aligned(entry.tensor.name) or entry.tensor.name
    places = [name, *entry.sources, *books.reader_modules(entry)]
    found = [block for block in blocks for place in places if f"{place}.".startswith(f"{block}.") and block]
    return max(found, key=len, default=None)


def _match(books: Books, entry: Entry, block: str, branches: list[_Branch], wide: Parameter) -> bool:
    epsilons = dict.fromkeys((None, *COMMON_EPSILONS) if is_eps_open(books) else (None,))
    for eps in epsilons:
        total = _add(books, branches, wide, eps)
        error = None if total is None else fit_sum(books.contents, entry, total.weight, total.weight_sizes)
        if total is None or error is None:
            continue
        bias = find_shifted_bias(books, entry, total.shift, total.shift_sizes)
        if bias is not None or not np.any(total.shift):
            _settle(books, entry, bias, block, branches, wide, error)
            return True
    return False


def _blocks(books: Books) -> dict[str, list[_Branch]]:
    """Return the branches of each block that has several, none of which the file holds by itself.

    A branch is a module with one convolution and one BatchNorm, in the block or in a list in it. If a block has no such
    modules, a branch is a convolution in it with the next BatchNorm that no convolution before it takes (docTR's FAST).
    """
    norms: dict[str, list[BatchNorm]] = defaultdict(list)
    for norm in books.manifest.batch_norms:
        is_free = norm.weight is None or norm.weight not in books.parameters
        if norm.running_mean and norm.running_var and is_free:
            norms[_parent(norm.module)].append(norm)
    weights: dict[str, list[Parameter]] = defaultdict(list)
    for parameter in books.free_parameters():
        if len(parameter.shape) > 2 and parameter.numel <= _MOST_ELEMENTS:
            weights[_parent(split_name(parameter.name)[0])].append(parameter)
    blocks: dict[str, list[_Branch]] = defaultdict(list)
    for module, found in weights.items():
        if len(found) == len(norms[module]) == 1:
            block = _parent(module)
            is_listed = module.rpartition(".")[2].isdigit()
            blocks[_parent(block) if is_listed else block].append(_Branch(norms[module][0], found[0]))
    order = {parameter.name: number for number, parameter in enumerate(books.manifest.parameters)}
    for module, found in weights.items():
        if module not in blocks and len(norms[module]) > 1:
            blocks[module] = _pair_siblings(found, norms[module], order)
    for block, branches in blocks.items():
        width = {branch.weight.shape[0] for branch in branches if branch.weight}
        paired = {branch.norm.module for branch in branches}
        rest = [norm for norm in norms[block] if norm.module not in paired]
        own = [norm for norm in rest if {_width(books, norm)} == width]
        branches += [_Branch(norm) for norm in own if len(own) == 1]
    return {block: branches for block, branches in blocks.items() if len(branches) >= _LEAST}


def _pair_siblings(
    weights: list[Parameter], norms: list[BatchNorm], order: Mapping[str, int]
) -> list[_Branch]:
    """Return convolutions of one module, each with its BatchNorm, in the order in which the module has them."""
    children: list[Parameter | BatchNorm] = [*weights, *(norm for norm in norms if norm.weight in order)]
    children.sort(key=lambda each: order[each.name if isinstance(each, Parameter) else each.weight or ""])
    waiting: deque[Parameter] = deque()
    branches = []
    for child in children:
        if isinstance(child, Parameter):
            waiting.append(child)
        elif waiting:
            branches.append(_Branch(child, waiting.popleft()))
    return [] if waiting else branches


def _parent(module: str) -> str:
    return module.rpartition(".")[0]


def _width(books: Books, norm: BatchNorm) -> int | None:
    variance = books.contents.originals.vector(norm.running_var)
    return None if variance is None else variance.size


def _is_convolved(books: Books, entry: Entry) -> bool:
    is_weight = entry.role is Role.PARAMETER and len(entry.tensor.shape) > 2
    is_plain = is_weight and books.contents.encoding(entry) is None
    return is_plain and any(kind_of(node) is Kind.CONVOLUTION for node in books.users(entry))


def _add(books: Books, branches: list[_Branch], wide: Parameter, eps: float | None) -> _Sum | None:
    """Add the branches with their BatchNorms folded; None if one does not fit the widest weight."""
    values = books.contents.originals.values
    total, sizes = np.zeros(wide.shape), np.zeros(wide.shape)
    shift, shift_sizes = np.zeros(wide.shape[0]), np.zeros(wide.shape[0])
    for branch in branches:
        norm = branch.norm if eps is None else replace(branch.norm, eps=eps)
        fold = scale_and_shift(books, norm, branch.weight)
        kernel = _kernel(values(branch.weight) if branch.weight else None, branch, wide)
        if fold is None or kernel is None or fold[0].size != wide.shape[0]:
            return None
        term = kernel * fold[0].reshape(-1, *[1] * (kernel.ndim - 1))
        total += term
        sizes += np.abs(term)
        shift += fold[1]
        shift_sizes += fold[2]
    return _Sum(total, sizes, shift, shift_sizes)


def _kernel(values: Array | None, branch: _Branch, wide: Parameter) -> Reals | None:
    """Return a branch's kernel, padded to the widest on all sides alike; that of the identity without a weight."""
    shape = wide.shape
    if branch.weight is None:
        if not all(side % 2 for side in shape[2:]):
            return None
        found = np.zeros((shape[0], shape[1], math.prod(shape[2:])))
        channels = np.arange(shape[0])
        found[channels, channels % shape[1], found.shape[2] // 2] = 1.0
        return found.reshape(shape)
    if values is None or values.shape[:2] != shape[:2]:
        return None
    gaps = [large - small for large, small in zip(shape[2:], values.shape[2:], strict=False)]
    if len(values.shape) != len(shape) or any(gap < 0 or gap % 2 for gap in gaps):
        return None
    return np.pad(values.astype(np.float64), [(0, 0), (0, 0), *((gap // 2, gap // 2) for gap in gaps)])


def _settle(
    books: Books,
    entry: Entry,
    bias: Entry | None,
    block: str,
    branches: list[_Branch],
    wide: Parameter,
    error: float,
) -> None:
    """Settle the widest weight in the sum, and all other parameters of the branches as parts of it."""
    rule = f"branches of {block}"
    decided_by = f"content:{rule}"
    books.release(entry, *(() if bias is None else (bias,)))
    pieces = (Piece(entry.tensor.key, wide.shape, tuple(range(len(wide.shape))), computed=Computed(rule)),)
    books.assign(wide, entry, (Line.FOLDED_BATCHNORM,), decided_by, error, pieces=pieces)
    for branch in branches:
        if branch.weight is not None and branch.weight is not wide:
            merge_name(books, branch.weight.name, entry, decided_by)
        merge_name(books, branch.norm.weight, entry, decided_by)
    names = [name for branch in branches for name in _shifts(branch)]
    settle_shift(books, names, entry, bias, decided_by)


def _shifts(branch: _Branch) -> Iterator[str]:
    if branch.norm.bias:
        yield branch.norm.bias
    if branch.weight is not None:
        yield bias_name(branch.weight)
