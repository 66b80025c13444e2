"""Graph -> the values that do not depend on all that their nodes read, found by trying other numbers.

Each node with a formula in this module is joined with the nodes before it into one expression of a few values. The
expression is computed with drawn numbers, of both signs and of sizes from 1e-3 to 1e10, in tensors of as many axes as
the values have. Then one value at a time is drawn anew: a result that stays the same in every draw does not depend on
this value. That covers x - x, a clip to one number and a factor of 0, whatever nodes they consist of. What a softmax or
a normalization takes from all numbers of a row alike is lost in PyTorch too: these have stand-ins that keep it.

Expressions of one form are computed once, so that the layers of a model share their answers. Everything without a
formula, or that cannot be computed with drawn shapes, counts as dependent on all that it reads.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from analyzer.model import DEFAULT_DOMAIN, Graph, Node, Place, StoredTensor
from analyzer.model.content import Array
from analyzer.model.evaluation import KERNELS, SELECTS, Call
from analyzer.model.wiring import Provider
from analyzer.records import Mutable, field

_MOST_NODES = 40
"""Most nodes in one expression, each counted as often as its value is used."""
_MOST_DRAWN = 12
"""Most uses of drawn values in one expression."""
_MOST_FORMS = 4000
"""Most forms of expressions that are computed for one graph."""
_MOST_ELEMENTS = 1 << 14
"""Most elements of a value computed with drawn numbers."""
_ROUNDING = 1e-12
"""Most relative change of a result that is taken for rounding: the drawn numbers have 16 digits."""
_MOST_SCALE = 1e11
"""Most size of a number whose rounding counts: it is far above that of ordinary values, and far below a mask's."""
_NEAR_WHOLE = 1e-10
"""Most distance of a constant from the whole number that it is taken for."""
_SIZES = (2, 3, 2, 3, 5, 7)
"""Lengths of the last axes of the drawn tensors; none is 1, so that nothing is constant by accident."""
_SENTINELS = (-math.inf, *(-float(np.finfo(each).max) for each in ("f2", "f4", "f8")), -3.3895313892515355e38)
"""Numbers that masks write for "not": with these, a comparison tells what a mask excludes."""
_RANKS = (3, 2, 4)
"""Numbers of axes that are tried for a value of which it is not known."""
_MOST_STEPS = 60
"""Most nodes back to a value whose number of axes is known."""
_TURNS = 6
"""Kinds of draws: ordinary numbers, all sizes, zeros and ones, whole numbers, numbers of one sign, one number."""


class Cut(NamedTuple):
    """The part of what leads to a value on which the value depends."""

    wanted: tuple[str, ...]
    """Values of the same graph on which it depends; none if it is constant."""
    nodes: frozenset[int]
    """Positions of the nodes that compute it from these values."""


class _Expression(NamedTuple):
    """A value: drawn, known, or computed by a node from other expressions."""

    form: int
    """Number of its form, without the names of drawn values."""
    drawn: tuple[str, ...]
    """Names of the drawn values, in the order of their use; a value that is used twice occurs twice."""
    size: int = 0
    value: Array | None = None
    """The numbers of a known value."""
    node: Node | None = None
    output: int = 0
    """Position of the output of the node."""
    operands: tuple[_Expression | None, ...] = ()
    kind: tuple[bool, int | None] = (False, None)
    """Kind of a drawn value: whether it is a parameter or the result of a product, never exactly 0 and not huge; and
    the number of its axes, if known."""


class _Verdict(NamedTuple):
    """Answer for one form of expression."""

    relevant: tuple[int, ...]
    """Numbers of the distinct drawn values on which the result depends, in the order of their first use."""
    constant: Array | None
    """The one number that a constant result consists of."""


def find_cuts(
    graph: Graph,
    providers: Mapping[str, Provider],
    known: Callable[[str], Array | None],
    is_learned: Callable[[StoredTensor], bool],
    has_axes: bool,
    calls: Container[Place],
    beginnings: Container[Place],
) -> dict[str, Cut]:
    """Return the outputs of a graph's nodes that depend on a part of what leads to them only.

    Args:
        graph: the graph. Values from elsewhere are drawn.
        providers: providers of its values.
        known: function that returns the numbers of a stored value that is no parameter; a single number if all its
            elements are equal.
        is_learned: whether a stored tensor is a parameter, so that it holds ordinary numbers.
        has_axes: whether Softmax and its kin work along one axis, as since opset 13.
        calls: nodes that call local functions, of whatever names.
        beginnings: layers that PyTorch applies to zeros, too.
    """
    search = _Search(graph, providers, known, is_learned, has_axes, beginnings)
    for node in graph.nodes:
        kernel = _FORMULAS.get(node.op_type)
        if kernel is not None and node.domain in _DOMAINS and node.place not in calls:
            search.take(node)
    return search.cuts


class _Search(Mutable):
    """Search through one graph, in the order of its nodes."""

    graph: Graph
    providers: Mapping[str, Provider]
    known: Callable[[str], Array | None]
    is_learned: Callable[[StoredTensor], bool]
    has_axes: bool
    beginnings: Container[Place]
    cuts: dict[str, Cut] = field(default_factory=dict)
    _expressions: dict[str, _Expression] = field(default_factory=dict)
    _forms: dict[object, int] = field(default_factory=dict)
    _verdicts: dict[tuple[int, tuple[int, ...]], _Verdict | None] = field(default_factory=dict)
    _ranks: dict[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for declared in self.graph.signature:
            self._ranks[declared.name] = None if declared.dims is None else len(declared.dims)

    def take(self, node: Node) -> None:
        """Add a node's outputs to the expressions, and to the cuts what does not depend on all of them."""
        if not self.has_axes and node.op_type in ("Hardmax", "LogSoftmax", "Softmax"):
            return
        if any(isinstance(setting, str) and setting.startswith("@") for setting in node.settings.values()):
            return  # the caller of the function sets it
        operands = tuple(self._expression(name) if name else None for name in node.inputs)
        if node.op_type == "CastLike":
            operands = operands[:1]
        is_local = node.op_type in _LINEAR
        if is_local and not node.settings and all(each is None or each.value is None for each in operands):
            return
        if node.place in self.beginnings:
            return
        chosen = operands[0] if operands and node.op_type in SELECTS else None
        if chosen is not None and chosen.value is not None and not chosen.value.ndim:
            # Of equal elements any choice is the same, whatever chooses.
            for name in node.outputs:
                self._expressions[name] = chosen
            return
        for index, name in enumerate(node.outputs if node.op_type == "Split" else node.outputs[:1]):
            if name:
                self._take_output(node, index, name, operands, is_local)

    def _take_output(
        self, node: Node, index: int, name: str, operands: tuple[_Expression | None, ...], is_local: bool
    ) -> None:
        expression = self._join(node, index, operands)
        if expression is None:
            operands = tuple(
                each if each is None or each.value is not None else self._draw(source)
                for source, each in zip(node.inputs, operands, strict=False)
            )
            expression = self._join(node, index, operands)
            if expression is None:
                return
        order = {each: number for number, each in enumerate(dict.fromkeys(expression.drawn))}
        key = (expression.form, tuple(order[each] for each in expression.drawn))
        if key not in self._verdicts:
            if len(self._verdicts) >= _MOST_FORMS:
                return
            self._verdicts[key] = _judge(expression, len(order))
        verdict = self._verdicts[key]
        if verdict is None:
            return
        skipped = node.op_type == "CastLike" and len(node.inputs) > 1
        if len(verdict.relevant) < len(order) or skipped:
            names = tuple(order)
            stored = (each for each in node.inputs if self._is_known(each))
            wanted = (*(names[number] for number in verdict.relevant), *stored)
            self.cuts[name] = Cut(wanted, frozenset(_positions(expression)))
        if not verdict.relevant:
            if verdict.constant is not None:
                self._expressions[name] = self._constant(verdict.constant)
        elif len(verdict.relevant) == len(order) and not is_local:
            self._expressions[name] = expression

    def _is_known(self, name: str) -> bool:
        found = self._expressions.get(name)
        return found is not None and found.value is not None and not found.node

    def _join(self, node: Node, index: int, operands: tuple[_Expression | None, ...]) -> _Expression | None:
        """Return the expression of a node's output; None if it is too large."""
        drawn = tuple(name for each in operands if each is not None for name in each.drawn)
        size = 1 + sum(each.size for each in operands if each is not None)
        if size > _MOST_NODES or len(drawn) > _MOST_DRAWN:
            return None
        words = (
            (node.op_type, node.domain == "com.microsoft", index, len(node.outputs)),
            tuple(sorted(node.integers.items())) if node.integers else (),
            tuple(sorted(node.settings.items())) if node.settings else (),
            *(None if each is None else each.form for each in operands),
        )
        return _Expression(self._number(words), drawn, size, None, node, index, operands)

    def _number(self, words: object) -> int:
        return self._forms.setdefault(words, len(self._forms))

    def _expression(self, name: str) -> _Expression:
        found = self._expressions.get(name)
        if found is None:
            value = self.known(name)
            found = self._draw(name) if value is None else self._constant(value)
            self._expressions[name] = found
        return found

    def _draw(self, name: str) -> _Expression:
        maker = self.providers.get(name)
        is_dense = (
            self.is_learned(maker)
            if isinstance(maker, StoredTensor)
            else isinstance(maker, Node) and _adds_up(maker)
        )
        kind = (is_dense, self._rank(name, _MOST_STEPS))
        return _Expression(self._number(("drawn", kind)), (name,), kind=kind)

    def _rank(self, name: str, steps: int) -> int | None:
        """Return the number of a value's axes, if the nodes before it tell."""
        if not name or name in self._ranks:
            return self._ranks.get(name)
        maker = self.providers.get(name)
        if isinstance(maker, StoredTensor):
            return len(maker.shape)
        if not isinstance(maker, Node) or maker.domain not in _DOMAINS or not steps:
            return None
        self._ranks[name] = None  # a cycle has none
        self._ranks[name] = self._rank_of(maker, steps - 1)
        return self._ranks[name]

    def _rank_of(self, node: Node, steps: int) -> int | None:
        if node.op_type in ("Flatten", "Gemm"):
            return 2
        first = self._rank(node.inputs[0], steps) if node.inputs else None
        if first is None:
            return None
        if node.op_type in _SAME_RANK:
            return first
        if node.op_type in _BROADCASTS:
            ranks = [first, *(self._rank(name, steps) for name in node.inputs[1:])]
            return None if None in ranks else max(rank for rank in ranks if rank is not None)
        if node.op_type in ("Squeeze", "Unsqueeze"):
            stored = self.known(node.inputs[1]) if len(node.inputs) > 1 else None
            count = len(node.axes("axes")) if stored is None else stored.size
            return None if not count else first + (count if node.op_type == "Unsqueeze" else -count)
        return None

    def _constant(self, value: Array) -> _Expression:
        form = self._number(("known", value.dtype.str, value.shape, value.tobytes()))
        return _Expression(form, (), value=value)


def _adds_up(node: Node) -> bool:
    """Whether a node's results are sums, or norms: ordinary numbers, never exactly 0. One operand may be a mask's."""
    is_moved = node.op_type == "Einsum" and len(node.inputs) == 1
    return not is_moved and (node.op_type in _LINEAR or node.op_type in _NORMS)


def _positions(expression: _Expression) -> set[int]:
    found: set[int] = set()
    waiting = [expression]
    while waiting:
        each = waiting.pop()
        if each.node is not None:
            found.add(each.node.position)
            waiting += [operand for operand in each.operands if operand is not None]
    return found


def _judge(expression: _Expression, count: int) -> _Verdict | None:
    """Compute an expression with drawn numbers; None if no drawn shape fits."""
    names = tuple(dict.fromkeys(expression.drawn))
    kinds: dict[str, tuple[bool, int | None]] = {}
    _note_kinds(expression, kinds)
    if any(rank is not None and rank > len(_SIZES) for _, rank in kinds.values()):
        return None
    open_names = set(range(count))
    results: list[Any] = []
    probes = _probes(expression)

    def narrow(first: Mapping[str, Any], before: tuple[Any, dict[int, Any]], others: Sequence[_Draw]) -> None:
        """Discard the names on which the result depends: it changes if one of them is drawn otherwise."""
        result, inner = before
        for number in tuple(open_names):
            for draw in others:
                other = draw(number)
                after = _compute(expression, {**first, names[number]: other})
                if after is None or _differ(
                    result, after[0], (*inner.values(), *first.values(), *after[1].values(), other)
                ):
                    open_names.discard(number)
                    break

    def drawer(again: int, turn: int, rank: int) -> _Draw:
        return lambda number: _drawn(number, again, turn, kinds[names[number]], rank)

    with np.errstate(all="ignore"):
        for rank in _RANKS:
            for turn in range(_TURNS):
                first = {name: drawer(0, turn, rank)(number) for number, name in enumerate(names)}
                before = _compute(expression, first)
                if before is None and turn:
                    return None
                if before is None:
                    break  # the shape does not fit
                result = before[0]
                finite = np.isfinite(result)
                if result.size and not finite.any():
                    if not turn:
                        return None
                    continue
                if not turn:
                    results.append(result[finite])
                # A value of the same kind, and one of another kind: of the largest of many numbers only the kind
                # tells the size.
                narrow(first, before, (drawer(1, turn, rank), drawer(0, (turn + 1) % _TURNS, rank)))
                if not open_names and count:
                    return _Verdict(tuple(range(count)), None)
            else:
                for probe in probes:
                    first = {
                        name: np.full_like(drawer(0, 0, rank)(number), probe)
                        for number, name in enumerate(names)
                    }
                    before = _compute(expression, first)
                    if before is not None and before[0].size and np.isfinite(before[0]).any():
                        results.append(before[0][np.isfinite(before[0])])
                        narrow(first, before, (drawer(0, 0, rank),))
                if probes and not open_names and count:
                    return _Verdict(tuple(range(count)), None)
    if not results:
        return None
    relevant = tuple(number for number in range(count) if number not in open_names)
    constant = None
    if not relevant:
        whole = np.concatenate(results)
        if whole.size and np.ptp(whole) <= _ROUNDING * max(1.0, float(np.abs(whole).max())):
            first_number = float(whole.flat[0])
            nearest = float(np.rint(first_number))
            constant = np.asarray(nearest if abs(first_number - nearest) < _NEAR_WHOLE else first_number)
    return _Verdict(relevant, constant)


_Draw = Callable[[int], Array]
"""Function that draws the value of a number."""

_COMPARES = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})

_MOST_PROBES = 8
"""Most known numbers with which an expression compares others."""
_MOST_BOUND = 1e4
"""Largest size of such a number; a larger one excludes all ordinary values."""
_LEAST_WIDTH = 0.5
"""Least width of an interval, relative to its larger bound; in a narrower one no ordinary value lies."""


def _probes(expression: _Expression) -> list[float]:
    """Return the middles of the intervals between known numbers with which an expression compares others.

    Of many drawn numbers seldom all lie in one interval, such as that of RT-DETR's valid anchors, 0.01 to 0.99.
    """
    bounds: set[float] = set()
    waiting = [expression]
    while waiting:
        each = waiting.pop()
        operands = [operand for operand in each.operands if operand is not None]
        waiting += operands
        if each.node is not None and each.node.op_type in _COMPARES:
            known = [operand.value for operand in operands if operand.value is not None]
            bounds.update(float(number) for value in known if value.size == 1 for number in value.flat)
    ordered = sorted(bound for bound in bounds if abs(bound) < _MOST_BOUND)
    return [
        (low + high) / 2
        for low, high in itertools.pairwise(ordered if len(ordered) <= _MOST_PROBES else ())
        if high - low >= _LEAST_WIDTH * max(abs(low), abs(high))
    ]


def _differ(first: Any, second: Any, inner: Iterable[Any]) -> bool:
    """Whether two results differ by more than rounding, or no number says that they do not.

    Args:
        first: one result.
        second: the other result.
        inner: all numbers from which they are computed: the largest decides how much is rounding.
    """
    if first.shape != second.shape:
        return True
    numbers = ~(np.isnan(first) | np.isnan(second))  # infinity minus infinity says nothing
    if first.size and not numbers.any():
        return True
    bound = _ROUNDING * np.maximum(np.abs(first), np.abs(second))
    is_other = np.where(np.isfinite(bound), np.abs(first - second) > bound, first != second)[numbers]
    if not is_other.any():
        return False
    change = np.abs(first - second)[numbers][is_other].max()
    if change > _ROUNDING * _MOST_SCALE:
        return True
    sizes = (
        np.abs(each[np.abs(each) < _MOST_SCALE]).max(initial=0) for each in inner if each.dtype.kind in "iuf"
    )
    return bool(change > _ROUNDING * max(sizes, default=0))


def _note_kinds(expression: _Expression, found: dict[str, tuple[bool, int | None]]) -> None:
    if expression.node is None and expression.value is None:
        found[expression.drawn[0]] = expression.kind
    for operand in expression.operands:
        if operand is not None:
            _note_kinds(operand, found)


def _compute(expression: _Expression, drawn: Mapping[str, Any]) -> tuple[Any, dict[int, Any]] | None:
    """Return the numbers of an expression, and those of all expressions in it."""
    done: dict[int, Any] = {}
    try:
        result = np.asarray(_value(expression, drawn, done), np.float64)
    except (ArithmeticError, IndexError, KeyError, MemoryError, RuntimeError, TypeError, ValueError):
        return None
    return result, done


def _value(expression: _Expression, drawn: Mapping[str, Any], done: dict[int, Any]) -> Any:
    if expression.value is not None:
        return expression.value
    if expression.node is None:
        return drawn[expression.drawn[0]]
    key = id(expression)
    if key not in done:
        operands = [None if each is None else _value(each, drawn, done) for each in expression.operands]
        node = expression.node
        done[key] = np.asarray(
            _FORMULAS[node.op_type](Call(node, operands, None, _MOST_ELEMENTS, expression.output))
        )
    return done[key]


@functools.cache
def _drawn(number: int, again: int, turn: int, kind: tuple[bool, int | None], rank: int) -> Array:
    """Return the numbers of a drawn value: of the same kind in each draw, and different in each."""
    is_dense, own_rank = kind
    shape = _SIZES[-(rank if own_rank is None else max(1, own_rank)) :]
    random = np.random.default_rng([number, again, turn, is_dense, rank, len(shape)])
    normal = random.standard_normal(shape)
    if turn == 0:
        found = normal
    elif turn == 1:
        found = normal * 10.0 ** random.integers(-3, 6 if is_dense else 11, shape)
        if not is_dense:
            found = np.where(random.random(shape) < 0.25, random.choice(_SENTINELS, shape), found)
    elif turn == 5:
        found = np.full(shape, normal.flat[0] if is_dense else 0.0 if again else _SENTINELS[2])
    elif turn == 4:
        found = np.abs(normal + 5) * (4 if again else -4)
    elif turn == 2:
        found = normal * 30 if is_dense else random.integers(0, 2, shape).astype(np.float64)
    elif is_dense:
        found = normal * 1000
    else:
        found = np.rint(normal * 2.0 ** random.integers(0, 41, shape))
    found.setflags(write=False)
    return found


# formulas

_Numbers = Any
"""Numbers of any type of NumPy, with arithmetic, which `Array` does not promise."""


def _operand(call: Call, slot: int) -> _Numbers:
    return call.array(slot)


def _optional(call: Call, slot: int) -> _Numbers:
    return call.optional(slot)


def _float(node: Node, name: str, default: float) -> float:
    found = node.settings.get(name, node.integers.get(name, default))
    if not isinstance(found, (int, float)):
        raise TypeError(name)
    return float(found)


def _equal(call: Call) -> _Numbers:
    """Equality of values that are always equal; drawn numbers say nothing of others, such as a token's number."""
    first, second = np.broadcast_arrays(_operand(call, 0), _operand(call, 1))
    if not bool((first == second).all()):
        raise ValueError("equal or not")
    return np.ones(first.shape)


def _same_bits(call: Call) -> _Numbers:
    return np.zeros_like(_equal(call))


def _masked(call: Call) -> _Numbers:
    for slot in (0, 1):
        if not _operand(call, slot).any():
            return np.zeros(np.broadcast_shapes(_operand(call, 0).shape, _operand(call, 1).shape))
    raise ValueError("bits")


def _shifted(call: Call) -> _Numbers:
    if _operand(call, 1).min() < 64:
        raise ValueError("bits")
    return np.zeros(np.broadcast_shapes(_operand(call, 0).shape, _operand(call, 1).shape))


def _clip(call: Call) -> _Numbers:
    found, settings = _operand(call, 0), call.node.settings
    for slot, name, bound in ((1, "min", np.maximum), (2, "max", np.minimum)):
        limit: Any = _optional(call, slot)
        if limit is None and (name in settings or name in call.node.integers):
            limit = _float(call.node, name, 0)
        found = found if limit is None else bound(found, limit)
    return np.asarray(found)


def _cast(call: Call) -> _Numbers:
    found, to = _operand(call, 0), call.node.integers.get("to", 1)
    if to == _BOOL:
        return found != 0
    if to == _STRING:
        raise TypeError("text")
    return np.trunc(found) if to in _WHOLE else found.astype(np.float64)


_BOOL, _STRING = 9, 8
_WHOLE = frozenset({2, 3, 4, 5, 6, 7, 12, 13, 21, 22})
"""Numbers of the whole types in `Cast.to` (onnx.proto, TensorProto.DataType)."""


def _slice(call: Call) -> _Numbers:
    """A slice of nothing. Of any other the drawn shape does not say which elements it takes."""
    starts, ends, steps = (
        call.ints(1, "starts") or (),
        call.ints(2, "ends") or (),
        call.ints(4, "steps") or (),
    )
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        step = steps[number] if number < len(steps) else 1
        if (start < 0) == (end < 0) and step > 0 and start >= end:
            return _operand(call, 0)[..., :0]
    raise ValueError("a part of the drawn shape")


def _gather(call: Call) -> _Numbers:
    if _operand(call, 1).size:
        raise ValueError("a part of the drawn shape")
    return KERNELS["Gather"](call)


def _reshape(call: Call) -> _Numbers:
    found = KERNELS["Reshape"](call)
    wanted = call.ints(1, "shape") or ()
    if -1 in wanted and found.shape[wanted.index(-1)] == 1:
        raise ValueError("an axis of length 1 by accident")
    return found


def _split(call: Call) -> _Numbers:
    sizes = call.ints(1, "split")
    if sizes is None or sizes[call.index]:
        raise ValueError("a part of the drawn shape")
    return _operand(call, 0)[..., :0]


def _trilu(call: Call) -> _Numbers:
    shift = _optional(call, 1)
    if shift is not None and abs(int(shift.reshape(-1)[0])) > _FEW:
        raise ValueError("beyond the drawn shape")
    return KERNELS["Trilu"](call)


_FEW = 2
"""Most diagonals by which a triangle is shifted within the last axes of a drawn tensor."""


def _cumsum(call: Call) -> _Numbers:
    data, axis = _operand(call, 0), int(_operand(call, 1).reshape(-1)[0])
    turned = np.flip(data, axis) if call.node.integers.get("reverse") else data
    found = np.cumsum(turned, axis=axis)
    found = found - turned if call.node.integers.get("exclusive") else found
    return np.flip(found, axis) if call.node.integers.get("reverse") else found


def _softmax(call: Call) -> _Numbers:
    """Stand-in without shares: a bias that all numbers of a row have in common is lost in PyTorch too."""
    return np.exp(np.minimum(_operand(call, 0), _MOST_POWER))


_MOST_POWER = 50.0


def _extreme(function: Callable[..., Any]) -> Callable[[Call], Array]:
    def apply(call: Call) -> _Numbers:
        settings = call.node.integers
        found = function(
            _operand(call, 0), axis=settings.get("axis", 0), keepdims=bool(settings.get("keepdims", 1))
        )
        return np.asarray(found)

    return apply


def _affine(call: Call, data: _Numbers, scale: int) -> Array:
    """Multiply with the operand at a position, and add the one after it."""
    gain, shift = _optional(call, scale), _optional(call, scale + 1)
    found = data if gain is None else data * gain
    return np.asarray(found if shift is None else found + shift)


def _skip_norm(call: Call) -> _Numbers:
    total = _operand(call, 0) + _operand(call, 1)
    extra = _optional(call, 4)
    return _affine(call, total if extra is None else total + extra, 2)


def _batch_norm(call: Call) -> _Numbers:
    mean, variance = _operand(call, 3), _operand(call, 4)
    return _affine(call, (_operand(call, 0) - mean) / np.sqrt(np.abs(variance) + 1e-5), 1)


def _product(call: Call) -> _Numbers:
    """Stand-in for products, convolutions and norms: each has the zeros of a plain product.

    A norm takes away the mean and the size, which are lost in PyTorch too.
    """
    return _affine(call, _operand(call, 0), 1)


def _einsum(call: Call) -> _Numbers:
    """A sum of products with zeros. Of any other the drawn shapes may not fit the equation."""
    if all(_operand(call, slot).any() for slot in range(len(call.operands))):
        raise ValueError("no zeros")
    return np.zeros(1)


def _gemm(call: Call) -> _Numbers:
    found = _float(call.node, "alpha", 1) * _operand(call, 0) * _operand(call, 1)
    shift = _optional(call, 2)
    return np.asarray(found if shift is None else found + _float(call.node, "beta", 1) * shift)


def _dropout(call: Call) -> _Numbers:
    training, ratio = _optional(call, 2), _optional(call, 1)
    if training is None or not training.any():
        return _operand(call, 0)
    if ratio is None or ratio.min() < _ALL_DROPPED or ratio.size != 1:
        raise ValueError("random")
    return _operand(call, 0) * 0


_ALL_DROPPED = 0.9999


def _scalar(function: Callable[[Any, Node], Any]) -> Callable[[Call], Array]:
    return lambda call: np.asarray(function(_operand(call, 0), call.node))


_erf = np.vectorize(math.erf, otypes=[np.float64])

_NORMS: Mapping[str, Callable[[Call], Array]] = {
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _product,
    "RMSNormalization": _product,
    "SimplifiedLayerNormalization": _product,
}

_LINEAR: Mapping[str, Callable[[Call], Array]] = {
    "Conv": _product,
    "ConvTranspose": _product,
    "Einsum": _einsum,
    "FusedMatMul": _gemm,
    "Gemm": _gemm,
    "GroupNormalization": _product,
    "InstanceNormalization": _product,
    "MatMul": _product,
    "SkipLayerNormalization": _skip_norm,
}
"""Stand-ins: they depend on what the operator depends on, but they are not its numbers."""

_AS_STORED = frozenset(
    {"Abs", "Add", "And", "Ceil", "Concat", "Cos", "Div", "Exp", "Expand", "Flatten", "Floor"}
    | {"Gather", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Log", "Max", "Min"}
    | {"Mod", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceMax"}
    | {"ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape"}
    | {"Round", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt", "Squeeze", "Sub", "Tanh", "Tile"}
    | {"Transpose", "Unsqueeze", "Where", "Xor"}
)
"""Operators that are computed from drawn numbers as from stored ones."""

_PLAIN: Mapping[str, Callable[[Call], Array]] = {
    **{name: KERNELS[name] for name in _AS_STORED},
    **_NORMS,
    **_LINEAR,
    "Affine": _scalar(lambda x, node: _float(node, "alpha", 1) * x + _float(node, "beta", 0)),
    "ArgMax": _extreme(np.argmax),
    "ArgMin": _extreme(np.argmin),
    "BitShift": _shifted,
    "BitwiseAnd": _masked,
    "BitwiseXor": _same_bits,
    "Cast": _cast,
    "CastLike": lambda call: _operand(call, 0),
    "Celu": _scalar(
        lambda x, node: (
            np.maximum(x, 0)
            + np.minimum(0, _float(node, "alpha", 1) * np.expm1(x / _float(node, "alpha", 1)))
        )
    ),
    "Clip": _clip,
    "CumSum": _cumsum,
    "Dropout": _dropout,
    "Elu": _scalar(lambda x, node: np.where(x < 0, _float(node, "alpha", 1) * np.expm1(np.minimum(x, 0)), x)),
    "Equal": _equal,
    "Erf": _scalar(lambda x, _: _erf(x)),
    "Gather": _gather,
    "Gelu": _scalar(lambda x, _: x * (1 + _erf(x / math.sqrt(2))) / 2),
    "HardSigmoid": _scalar(
        lambda x, node: np.clip(_float(node, "alpha", 0.2) * x + _float(node, "beta", 0.5), 0, 1)
    ),
    "Hardmax": _softmax,
    "HardSwish": _scalar(lambda x, _: x * np.clip(x / 6 + 0.5, 0, 1)),
    "IsInf": _scalar(lambda x, _: np.zeros(x.shape, bool)),
    "IsNaN": _scalar(lambda x, _: np.zeros(x.shape, bool)),
    "LeakyRelu": _scalar(lambda x, node: np.where(x < 0, _float(node, "alpha", 0.01) * x, x)),
    "LogSoftmax": lambda call: _operand(call, 0),
    "Mish": _scalar(lambda x, _: x * np.tanh(np.logaddexp(0, x))),
    "PRelu": lambda call: np.where(
        _operand(call, 0) < 0, _operand(call, 0) * _operand(call, 1), _operand(call, 0)
    ),
    "ParametricSoftplus": _scalar(
        lambda x, node: _float(node, "alpha", 1) * np.logaddexp(0, _float(node, "beta", 1) * x)
    ),
    "Reshape": _reshape,
    "ScaledTanh": _scalar(lambda x, node: _float(node, "alpha", 1) * np.tanh(_float(node, "beta", 1) * x)),
    "Shrink": _scalar(
        lambda x, node: np.where(
            np.abs(x) > _float(node, "lambd", 0.5), x - np.sign(x) * _float(node, "bias", 0), 0
        )
    ),
    "Slice": _slice,
    "Softmax": _softmax,
    "Softsign": _scalar(lambda x, _: x / (1 + np.abs(x))),
    "Split": _split,
    "Sum": lambda call: np.asarray(
        functools.reduce(np.add, [_operand(call, slot) for slot in range(len(call.operands))])
    ),
    "Swish": _scalar(lambda x, node: x / (1 + np.exp(-_float(node, "alpha", 1) * x))),
    "ThresholdedRelu": _scalar(lambda x, node: np.where(x > _float(node, "alpha", 1), x, 0)),
    "Trilu": _trilu,
}
"""Function that computes each operator, but for reductions."""

_REDUCTIONS = ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Sum", "SumSquare")


def _bent(kernel: Callable[[Call], Array]) -> Callable[[Call], Array]:
    """Return a stand-in for a sum, a mean, a norm or a maximum, for which x - mean(x) and x / norm(x) are ordinary."""

    def compute(call: Call) -> Array:
        found: _Numbers = kernel(call)
        return np.asarray(found / 2 + found * np.abs(found) / 16)

    return compute


_FORMULAS: Mapping[str, Callable[[Call], Array]] = {
    **_PLAIN,
    **{name: _bent(_PLAIN[name]) for each in _REDUCTIONS if (name := f"Reduce{each}") in _PLAIN},
}
"""Function that computes each operator."""

LAYERS = _LINEAR.keys()
"""Operators that apply a weight."""

_DOMAINS = frozenset({"", DEFAULT_DOMAIN, "com.microsoft"})

_BROADCASTS = frozenset(
    {"Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "MatMul"}
    | {"Max", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor"}
)
"""Operators whose result has as many axes as the operand with the most."""

_SAME_RANK = frozenset(
    {"Abs", "BatchNormalization", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Concat", "Conv"}
    | {"ConvTranspose", "Cos", "CumSum", "Dropout", "Elu", "Erf", "Exp", "Floor", "FusedMatMul"}
    | {"Gelu", "GroupNormalization", "HardSigmoid", "HardSwish", "Identity", "InstanceNormalization"}
    | {"IsInf", "IsNaN", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "Mish", "Neg", "Not"}
    | {"Pad", "RMSNormalization", "Reciprocal", "Relu", "Resize", "Round", "Shrink", "Sigmoid", "Sign"}
    | {"SimplifiedLayerNormalization", "Sin", "SkipLayerNormalization", "Slice", "Softmax", "Softplus"}
    | {"Softsign", "Split", "Sqrt", "Swish", "Tanh", "ThresholdedRelu", "Transpose", "Trilu"}
)
"""Operators whose results have as many axes as their first operand."""
