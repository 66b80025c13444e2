"""Rule: a function of each element that an exporter computed in advance, and the places where it is legitimate.

1 + w is the gain of the Gemma models' RMSNorm; -exp(w) is the state matrix of Mamba (A_log); exp(w) is the logit scale
of CLIP, or the temperature of attention scores, one for each head; softplus(w), which is log(1 + exp(w)), is the decay
of RecurrentGemma's recurrence; -w is the exponent of a step that is undone, (x - m) exp(-w), as in VITS and Glow, and
exp(-w) its factor; w / sqrt(d) is a query's weight or bias multiplied by attention's scale (d is a head's width).

No other factor is attributed to an exporter: a layer times two is another layer. Each function is accepted only where
PyTorch's program has that expression, judged by the readers of the result and by PyTorch's side.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from analyzer.account.classify.structure import scales_norm
from analyzer.account.ledger import Entry, Role
from analyzer.account.scopes import module_of
from analyzer.manifest import Parameter
from analyzer.model import Node, StoredTensor
from analyzer.model.wiring import Reader, Wiring
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.closeness import Reals, is_like, least_difference
from analyzer.reconciliation.contents import Stacks, Tensor
from analyzer.reconciliation.factors import tolerance_of
from analyzer.reconciliation.layouts import AxisLayout, layouts
from analyzer.reconciliation.lines import MEANINGS, Computed, Line, Piece
from analyzer.records import Frozen

FUNCTIONS: Mapping[str, tuple[Callable[[Reals], Reals], Callable[[Reals], Reals]]] = {
    "1+w": (lambda w: 1.0 + w, lambda x: x - 1.0),
    "-exp(w)": (lambda w: -np.exp(w), lambda x: np.log(-x)),
    "exp(w)": (np.exp, np.log),
    "-w": (np.negative, np.negative),
    "exp(-w)": (lambda w: np.exp(-w), lambda x: -np.log(x)),
    "softplus(w)": (lambda w: np.logaddexp(0.0, w), lambda x: np.log(np.expm1(x))),
}
"""Rule -> function and its inverse."""

_SHIFTED = "1+w"
_NEGATIVE = "-w"
_OF_VECTORS = frozenset({_SHIFTED, "softplus(w)"})
"""Functions of vectors only: a norm's gain; the step of a recurrence (RecurrentGemma's gate, a state space's)."""

_TIMES = "*w"
"""End of a rule that multiplies by a constant."""


def undo(rule: str) -> Callable[[Reals], Reals] | None:
    """Return the inverse function of a rule; None for rules of other modules.

    >>> undo("0.125*w")(np.array([1.0])).tolist()
    [8.0]
    """
    if rule in FUNCTIONS:
        return FUNCTIONS[rule][1]
    factor = _constant_factor(rule)
    return None if factor is None else lambda x: x / factor


def _constant_factor(rule: str) -> float | None:
    """Return the constant by which a rule multiplies each element; None for other rules."""
    if rule == _NEGATIVE:
        return -1.0
    try:
        return float(rule.removesuffix(_TIMES)) if rule.endswith(_TIMES) else None
    except ValueError:
        return None


_FEW = 4
"""Least number of elements for which a constant factor is evidence."""

LEAST_HEAD = 8
"""Least width of a head."""

_MOST_SAMPLED = 1 << 16
"""Most elements for which all are compared even if the mode is `sampled`."""


class FoundFunction(Frozen):
    """Function of a parameter that an entry stores."""

    layout: AxisLayout
    rule: str
    error: float
    is_whole: bool


def match_folded_pointwise(books: Books) -> None:
    """Explain suspects and nameless vectors that are a known function of one free PyTorch parameter."""
    if books.contents.mode == "none":
        return
    for entry, tensors in list(_pairs(books)):
        for tensor in tensors:
            if tensor.name in books.parameters or entry.tensor.key in books.entries:
                continue
            found = find_function(books, entry, tensor)
            if found is not None:
                assign_function(books, entry, tensor, found)


def assign_function(books: Books, entry: Entry, tensor: Parameter, found: FoundFunction) -> None:
    """Explain an entry as a function of a parameter."""
    evidence = "content" if found.is_whole and books.contents.mode == "full" else "sampled"
    changed = books.contents.changes(entry, tensor) or ()
    chain = (*found.layout.chain, Line.FOLDED_POINTWISE, *changed)
    function = Computed(found.rule, undo(found.rule), _constant_factor(found.rule))
    piece = Piece(entry.tensor.key, found.layout.shape, found.layout.axes, computed=function)
    books.release(entry)
    books.assign(tensor, entry, chain, f"{evidence}:{found.rule}", found.error, pieces=(piece,))


def _pairs(books: Books) -> Iterator[tuple[Entry, list[Parameter]]]:
    """Yield suspects with their tensor, and nameless entries with the free tensors of their size.

    A tensor under the parameter's own name is no function of it: an exporter renames a computed tensor. But builders
    that load a checkpoint write the gain 1 + w under the name of w (onnxruntime-genai's, of Gemma).
    """
    for suspect in books.suspects:
        is_renamed = not _has_own_name(books, suspect.entry, suspect.tensor)
        is_vector = sum(dim != 1 for dim in suspect.tensor.shape) <= 1
        if isinstance(suspect.tensor, Parameter) and (is_renamed or is_vector):
            yield suspect.entry, [suspect.tensor]
    stacks = Stacks(books.contents, (p for p in books.free_parameters() if p.dtype.is_floating))
    images: dict[tuple[int, ...], _Images] = {}
    for entry in books.free_entries():
        is_real = entry.tensor.dtype.is_floating or books.contents.encoding(entry) is not None
        if entry.role not in (Role.PARAMETER, Role.UNATTRIBUTED, Role.CONSTANT) or not is_real:
            continue
        sources = (tensor for name in entry.sources if (tensor := books.tensor(name)) is not None)
        named_tensors = [tensor for tensor in sources if isinstance(tensor, Parameter)]
        if named_tensors or books.contents.numel(entry) > 1:
            modules = books.reader_modules(entry)
            candidates = named_tensors or [
                p for p in _find_similar(books, entry, stacks, images) if isinstance(p, Parameter)
            ]
            candidates = [tensor for tensor in candidates if not books.is_elsewhere(entry, tensor)]
            yield entry, sorted(candidates, key=lambda p: module_of(p.name) not in modules)


def _has_own_name(books: Books, entry: Entry, tensor: Tensor) -> bool:
    own = entry.tensor.name
    return own in tensor.names or books.aligned(own) in tensor.names


class _Images:
    """Samples of tensors of one shape, and their images under each function, sorted by first element."""

    def __init__(self, rows: Reals) -> None:
        self.rows = rows  # (tensors, samples)
        self.sizes = np.linalg.norm(rows, axis=1)
        self._images: list[tuple[Reals, Reals, npt.NDArray[np.intp]]] = []
        with np.errstate(all="ignore"):
            for function, _ in FUNCTIONS.values():
                images = function(rows)
                order = np.argsort(images[:, 0], kind="stable")
                self._images.append((images[order], np.abs(images[order]).max(axis=1), order))

    def near(self, stored: Reals, steps: Reals, tolerance: float) -> npt.NDArray[np.intp]:
        """Return the indices of the tensors that some function, or a constant factor, maps to these samples."""
        found = np.zeros(len(self.rows), dtype=bool)
        with np.errstate(all="ignore"):
            for images, most, order in self._images:
                finite = most[np.isfinite(most)]
                margin = tolerance * finite.max(initial=0.0) + steps[0] + _LEAST_TOLERANCE
                start = np.searchsorted(images[:, 0], stored[0] - margin, "left")
                stop = np.searchsorted(images[:, 0], stored[0] + margin, "right")
                each = tolerance * most[start:stop, None] + steps + _LEAST_TOLERANCE
                found[order[start:stop]] |= (np.abs(images[start:stop] - stored) <= each).all(axis=1)
            sizes = self.sizes * np.linalg.norm(stored)
            found |= np.abs(self.rows @ stored) >= sizes * (1 - 1e-4) - np.linalg.norm(steps) * sizes
        return np.flatnonzero(found)


_LEAST_TOLERANCE = 1e-12


def _find_similar(
    books: Books, entry: Entry, stacks: Stacks, images: dict[tuple[int, ...], _Images]
) -> Iterator[Tensor]:
    """Yield the tensors whose samples some function maps to the entry's; all tensors are compared at once."""
    tolerance = 2 * tolerance_of(books.contents, entry)
    for shape in stacks.shapes(books.contents.numel(entry)):
        tensors, rows = stacks.of(shape)
        if shape not in images:
            images[shape] = _Images(rows)
        for layout in layouts(shape, books.contents.shape(entry)):
            look = books.contents.look(entry, layout) if layout.is_plain else None
            if look is None or (look[0].dtype.kind not in "fV" and look[1] is None):
                continue
            stored = look[0].astype(np.float64)
            steps = np.zeros_like(stored) if look[1] is None else look[1] * 1.01
            yield from (tensors[number] for number in images[shape].near(stored, steps, tolerance))


def find_function(books: Books, entry: Entry, tensor: Parameter) -> FoundFunction | None:
    """Return the function of a parameter that an entry stores, if an exporter may have stored it there."""
    originals = books.contents.originals
    samples = originals.samples(tensor)
    if samples is None or not tensor.dtype.is_floating:
        return None
    found = [
        layout for layout in books.contents.layouts(entry, tensor.shape, is_computed=True) if layout.is_plain
    ]
    is_open = any(books.contents.is_open(entry, tensor, layout) for layout in found)
    is_whole = books.contents.mode == "full" or tensor.numel <= _MOST_SAMPLED or is_open
    values = originals.values(tensor) if is_whole else None
    if is_open and values is None:
        return None  # a few elements do not tell the order of axes
    expected = (samples if values is None else values.reshape(-1)).astype(np.float64)
    for layout in found:
        if values is None:
            look = books.contents.look(entry, layout)
        else:
            look = books.contents.at(entry, layout.positions(np.arange(tensor.numel)))
        if look is None or (look[0].dtype.kind not in "fV" and look[1] is None):
            continue
        stored = look[0].astype(np.float64)
        tolerance = tolerance_of(books.contents, entry)
        least = least_difference(look[0])
        is_own = _has_own_name(books, entry, tensor)
        for rule, function in _list_functions(expected, stored, tensor.shape):
            if is_own and (rule != _SHIFTED or not is_offset(books, tensor)):
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                wanted = function(expected)
                # The tolerance is relative; but 1 + w rounds as 1 does, and exp(w) errs by w's absolute error.
                growth = np.abs(expected) if "exp(" in rule else 1.0
                tolerances = tolerance * np.abs(wanted) * np.maximum(1.0, growth) + least
                tolerances += tolerance if rule == _SHIFTED else 0.0
                error = np.abs(stored - wanted)
                near = error <= (tolerances if look[1] is None else tolerances + look[1] * 1.001)
            if (
                bool(near.all())
                and bool(np.isfinite(wanted).all())
                and is_allowed(books, entry, tensor, rule)
            ):
                if look[1] is not None and not _varies_alike(rule, stored, expected):
                    continue
                return FoundFunction(layout, rule, float(error.max(initial=0.0)), values is not None)
    return None


def _varies_alike(rule: str, stored: Reals, expected: Reals) -> bool:
    """Whether decoded numbers, mapped back, vary like the parameter: codes of ones are 1 + w for any small w."""
    back = undo(rule)
    assert back is not None
    with np.errstate(divide="ignore", invalid="ignore"):
        found = back(stored)
    found = np.where(np.isfinite(found), found, 0.0)
    return is_like(found, expected, np.full(found.shape, np.inf))


def _list_functions(
    expected: Reals, stored: Reals, shape: tuple[int, ...]
) -> Iterator[tuple[str, Callable[[Reals], Reals]]]:
    is_vector = sum(dim != 1 for dim in shape) <= 1
    yield from (
        (rule, function) for rule, (function, _) in FUNCTIONS.items() if is_vector or rule not in _OF_VECTORS
    )
    size = float(expected @ expected)
    if (
        len(shape) not in (1, 2)
        or expected.size < _FEW
        or not 0 < size < np.inf
        or float(np.ptp(expected)) == 0
    ):
        return
    factor = float(stored @ expected / size)
    widths = (width for width in range(LEAST_HEAD, shape[0] + 1) if shape[0] % width == 0)
    scale = min((width**-0.5 for width in widths), key=lambda scale: abs(scale - factor), default=0.0)
    if scale:
        yield f"{scale:.9g}{_TIMES}", lambda w: scale * w


# legitimate places of such a function

_SHIFTED_CLASSES = re.compile(
    r"Gemma|Nemotron|Qwen3Next|Qwen3_5|Qwen4|Muse|Step3p|MiniMaxM3|VideoPrism|1P(?![a-z])|OnePlus|UnitOffset"
)
"""Classes of norms that scale by 1 + w: those of transformers with such a `forward`, and names of NeMo and JAX."""

_EXPONENTIATED = frozenset({"logit_scale"})
"""Leaf names of parameters with several elements to which `forward` applies exp (Swin V2: a temperature per head)."""

_STATE_MATRIX = "A_log"
"""Leaf name in state-space models (Gu and Dao 2023, arXiv:2312.00752, section 3.6: A = -exp(A_log))."""

_GATE = "recurrent_param"
"""Leaf name in real-gated recurrences (De et al. 2024, arXiv:2402.19427, equation 6: a = exp(-c softplus(w) r))."""

_NUMBER = re.compile(r"\d+")


def is_allowed(books: Books, entry: Entry, tensor: Parameter, rule: str) -> bool:
    """Whether an exporter may have applied `rule` to `tensor` and stored the result in `entry`."""
    leaf = tensor.name.rpartition(".")[2]
    if rule == "exp(w)":
        return tensor.numel == 1 or leaf in _EXPONENTIATED or _is_temperature(books, entry)
    if rule == "-exp(w)":
        return leaf == _STATE_MATRIX
    if rule == "softplus(w)":
        return leaf == _GATE
    if rule == "1+w":
        return _is_shifted(books, entry, tensor)
    if rule == _NEGATIVE:
        return _is_exponent(books, entry, tensor)
    if rule == "exp(-w)":
        return _undo_step(books, books.readers(entry), tensor)
    return not _is_stored_unchanged(books, tensor) and _is_query(books, entry, float(rule.partition("*")[0]))


def _is_temperature(books: Books, entry: Entry) -> bool:
    """Whether an entry only multiplies scores of attention on their way to a softmax, with one number for each head."""
    if books.manifest.program is not None:
        return False  # it tells which values PyTorch computes
    wiring = books.ledger.wiring
    readers = list(wiring.readers(entry.tensor))
    is_by_head = len(entry.tensor.shape) >= _AXES_OF_HEADS and entry.tensor.shape[-2:] == (1, 1)
    return is_by_head and bool(readers) and all(_scales_scores(wiring, reader.node) for reader in readers)


_AXES_OF_HEADS = 3
"""Least number of axes of factors for heads, queries and keys."""


def _scales_scores(wiring: Wiring, node: Node) -> bool:
    """Whether a node multiplies a product of two activations, of which a softmax is taken next, perhaps after a sum."""
    if node.op_type != "Mul" or not any(
        isinstance(source, Node)
        and source.op_type in ("Einsum", "FusedMatMul", "MatMul")
        and all(not isinstance(factor, StoredTensor) for factor in wiring.producers(source))
        for source in wiring.producers(node)
    ):
        return False
    layer = [node]
    for _ in range(_MOST_SUMS):
        layer = [reader.node for each in layer for reader in wiring.readers(each)]
        if layer and all(each.op_type == "Softmax" for each in layer):
            return True
        if any(each.op_type not in ("Add", "Where", "Sub") for each in layer):
            return False
    return False


_MOST_SUMS = 3
"""Most nodes from scaled scores to their softmax."""


def _is_exponent(books: Books, entry: Entry, tensor: Parameter) -> bool:
    """Whether only `Exp` reads an entry, and the exponential only undoes a step with the entry's parameter."""
    exponentials = [reader.node for reader in books.readers(entry)]
    scaled = [reader for node in exponentials for reader in books.ledger.wiring.readers(node)]
    return all(node.op_type == "Exp" and node.is_standard for node in exponentials) and _undo_step(
        books, scaled, tensor
    )


def _undo_step(books: Books, readers: Sequence[Reader], tensor: Parameter) -> bool:
    """Whether readers only multiply x - m, where m is another parameter of the same module.

    This undoes m + exp(w) x, a step of a flow (Kingma and Dhariwal 2018, arXiv:1807.03039, table 1). The difference
    tells the sign of w.
    """
    if books.manifest.program is not None:
        return False  # it tells which values PyTorch computes
    wiring = books.ledger.wiring
    for node, slot in readers:
        if node.op_type != "Mul" or not node.is_standard or books.fixed(node):
            return False
        factor = wiring.find(node.graph_path, node.inputs[1 - slot])
        if not isinstance(factor, Node) or factor.op_type != "Sub":
            return False
        mean = wiring.find(factor.graph_path, factor.inputs[1])
        line = books.entries.get(mean.key) if isinstance(mean, StoredTensor) else None
        if line is None or line.parameter is None or module_of(line.parameter) != module_of(tensor.name):
            return False
    return bool(readers)


def _is_shifted(books: Books, entry: Entry, tensor: Parameter) -> bool:
    """Whether a tensor is the gain of a norm that scales by 1 + w, and no gain of that name is stored unchanged.

    The norm's class tells, or without classes the lack of a bias.
    """
    if not scales_norm(books.ledger.wiring, entry.tensor) or _is_stored_unchanged(books, tensor):
        return False
    module = module_of(tensor.name)
    if books.manifest.modules:
        return _SHIFTED_CLASSES.search(books.manifest.modules.get(module, "")) is not None
    has_bias = isinstance(books.tensor(f"{module}.bias"), Parameter)
    return not has_bias  # a LayerNorm's gain is no shift of one


_NOT_POSITIVE = 1 / 16
"""Least share of gains at or below 0 that marks them as offsets from 1: plain gains stay positive."""


def is_offset(books: Books, tensor: Parameter) -> bool:
    """Whether a norm's gain is an offset from 1, by its class, or by the values of all gains of this name.

    Without classes, the gains of this name in all layers (up to numbers) must lie around 0, not around 1.
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
"""Least number of gains that are evidence for the whole model."""

_NEAR_ONE = 0.75
"""Magnitude that most plain gains of a norm exceed."""


def _is_stored_unchanged(books: Books, tensor: Parameter) -> bool:
    """Whether a parameter of the same name in another layer, or of the same module, is stored without a function."""
    pattern = _NUMBER.sub("#", tensor.name)
    module = module_of(tensor.name)
    for name, line in books.parameters.items():
        is_like = _NUMBER.sub("#", name) == pattern or module_of(name) == module
        if is_like and Line.FOLDED_POINTWISE not in line.chain and MEANINGS[line.line].values != "none":
            return True
    return False


_MOST_STEPS = 16
"""Most steps from a query's product to the softmax of its attention."""

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
    """Whether an entry makes a query of an attention without another scale, with heads of width 1 / factor^2."""
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
    """Whether a tensor is a single number other than 1."""
    if tensor.numel != 1 or not tensor.dtype.is_floating:
        return False
    array = tensor.payload.array()
    return array is None or float(array.reshape(-1)[0]) != 1.0


def _sizes(books: Books, node: Node) -> set[int]:
    """Return the stored sizes in the shape input of a Reshape."""
    found: set[int] = set()
    layer = [node]
    for _ in range(3):
        parts = [
            part
            for each in layer
            for part in list(books.ledger.wiring.producers(each))[-1 if each is node else 0 :]
        ]
        for part in parts:
            array = part.payload.array() if isinstance(part, StoredTensor) and part.numel <= 16 else None
            if array is not None and array.dtype.kind == "i":
                found.update(int(number) for number in array.reshape(-1))
        layer = [part for part in parts if isinstance(part, Node)]
    return found
