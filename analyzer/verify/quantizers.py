"""Effect of quantizers on the values of a twin -> the cost of each, and those that are certainly wrong.

A wrong quantizer does not show in the twin, which has none. Whether a quantizer fits depends on the values that it was
calibrated with, and nobody has these. So the file is its own witness, in three ways.

- An integer bias counts in steps of activation scale x weight scale. Where the other biases of a file do and one does
  not, the scale of its activation was changed afterwards, whatever the values are.
- The outputs of Softmax and Sigmoid end at 1. Codes that reach far beyond are wrong, whatever the values are, unless
  the scale is shared with a neighbour that needs it.
- Where nearly all ranges of a file fit the values of these runs, it was calibrated with similar values. A range is then
  wrong if it is off by a factor of its own and loses precision that a range of the values would keep. This needs
  witnesses: all ranges before it fit, or the next range behind it fits and all operators between are linear. Where the
  ranges of a file do not fit these values in general, or there are no witnesses, other inputs are the better
  explanation: no range is called wrong, and the report says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from analyzer.model import Graph, StoredTensor
from analyzer.model.content import Array
from analyzer.records import Frozen
from analyzer.verify.messages import QuantizerAnswer, Rounded
from analyzer.verify.prints import HUGE

Edge = tuple[list[str], list[str], str]
"""Inputs, outputs and operator of a node of the twin."""

_FITS = 0.75
"""Largest distance, in powers of two, of a fitting range from its values: two draws of a hundred numbers differ by
less in their largest, and so do calibrators that leave out rare values."""
_MOST_FIT = 0.8
"""Least share of the ranges that fit, in a file that was calibrated with similar values."""
_LEAST_FIT = 4
"""Least number of ranges that fit, in such a file."""
_BEYOND = 1.0
"""Powers of two by which values exceed a range that is too narrow, more than those of its neighbours: a calibrator
that leaves out outliers cuts so far, but at most one number in a hundred."""
_CUT = 0.02
"""Least share of numbers that a range which is too narrow cuts off."""
_SPREAD = 0.1
"""Least share of rows in which it cuts numbers off: a wrong range does so everywhere. Rows that are cut alone have
unusual content, such as padding, which may be in no calibration."""
_COARSE = 1.5
"""Powers of two by which a range is too wide, more than those of its neighbours."""
_INPUT_OFF = 3.0
"""Powers of two by which the range of a graph input is off, on either side: the next layer adds up a picture, and
noise cancels."""
_LOSS = 6.0
"""Decibels lost against codes over the range of the values: one bit."""
_MASKED = 6.0
"""Powers of two by which a range before Softmax may be too wide: it includes a mask that no run has."""
_FEW = 16
"""Fewest numbers for which a range can be judged."""
_MANY_BIASES = 3
_EXACT = 1e-3
_BOUNDED = frozenset({"Softmax", "Sigmoid", "HardSigmoid", "Tanh"})
"""Operators whose output is at most 1, for any input."""
_MOVERS = frozenset(
    {
        *("Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Split", "Expand"),
        *("Cast", "Gather", "DequantizeLinear"),
    }
)
_LINEAR = frozenset(
    {*_MOVERS, "Conv", "ConvTranspose", "MatMul", "Gemm", "Add", "Sub", "Concat", "Pad", "Relu", "LeakyRelu"}
)
"""Operators that double their output when their input doubles."""


class QuantizerEffect(Frozen):
    """Quantizer, and its effect in all runs."""

    quantizer: QuantizerAnswer
    count: int
    """Number of its input numbers, without masks."""
    cut: float
    """Share of numbers that are cut off."""
    beyond: float
    """Powers of two by which the largest number exceeds the range of the codes; negative where the codes reach
    further."""
    low: float
    high: float
    least: float
    most: float
    signal_to_error_db: float | None
    """Signal to error of the rounded values, in dB; None where nothing is lost."""
    fitting_db: float | None
    """Signal to error, in dB, of codes over the range of these values."""
    masks: int
    """Number of mask elements that are cut off."""
    spread: float = 1.0
    """Share of rows in which a number is cut off."""

    @property
    def lost_db(self) -> float:
        """Decibels lost against codes over the range of the values."""
        if self.signal_to_error_db is None or self.fitting_db is None:
            return 0.0
        return self.fitting_db - self.signal_to_error_db

    @property
    def is_comparable(self) -> bool:
        """Whether values and range can be compared."""
        return (
            bool(self.quantizer.scale)
            and self.count >= _FEW
            and math.isfinite(self.beyond)
            and not self.holds_mask
        )

    @property
    def holds_mask(self) -> bool:
        """Whether codes reach as far as a mask, so that one step is larger than all other numbers."""
        return max(self.most, -self.least) > HUGE


class Wrong(Frozen):
    """Quantizer that is wrong."""

    quantizer: QuantizerAnswer
    expected: str
    found: str


def combine_runs(
    quantizers: Iterable[QuantizerAnswer], runs: Sequence[Mapping[str, Rounded]]
) -> tuple[QuantizerEffect, ...]:
    """Add up the effect of each quantizer in several runs; leave out those that no run has reached."""
    found = []
    for quantizer in quantizers:
        each = [run[quantizer.place] for run in runs if quantizer.place in run]
        count = sum(one.count for one in each)
        if not count:
            continue
        power, error = sum(one.power for one in each), sum(one.error for one in each)
        low, high = min(one.low for one in each), max(one.high for one in each)
        step = (max(high, 0.0) - min(low, 0.0)) / each[0].levels
        beyond = max(one.beyond for one in each)
        found.append(
            QuantizerEffect(
                quantizer,
                count,
                sum(one.cut for one in each) / count,
                math.log2(beyond) if beyond else -math.inf,
                low,
                high,
                each[0].least,
                each[0].most,
                _decibel(power, error),
                _decibel(power, count * step * step / 12),
                sum(one.masks for one in each),
                sum(one.cut_rows for one in each) / max(1, sum(one.rows for one in each)),
            )
        )
    return tuple(found)


def _decibel(power: float, error: float) -> float | None:
    return 10 * math.log10(power / error) if power and error else None


class Judge:
    """Judge of the quantizers of a twin: finds those that are wrong."""

    def __init__(
        self, effects: Sequence[QuantizerEffect], edges: Sequence[Edge], inputs: Iterable[str]
    ) -> None:
        self._inputs = frozenset(inputs)
        self.effects = {each.quantizer.place: each for each in effects}
        self._makers = {name: (inputs, op_type) for inputs, outputs, op_type in edges for name in outputs}
        self._readers: dict[str, list[Edge]] = {}
        for edge in edges:
            for name in edge[0]:
                self._readers.setdefault(name, []).append(edge)
        self._next = {place: frozenset(self._behind(place, _LINEAR)) for place in self.effects}
        self._all_next = {place: frozenset(self._behind(place)) for place in self.effects}
        self._before = {place: self._sources(place) for place in self.effects}
        self._clusters = self._cluster()

    @property
    def is_alike(self) -> bool:
        """Whether the file was calibrated with values like those of these runs."""
        comparable = [
            each for each in self.effects.values() if each.is_comparable and not self._is_bounded(each)
        ]
        fitting = [each for each in comparable if abs(each.beyond) <= _FITS]
        return len(fitting) >= max(_LEAST_FIT, _MOST_FIT * len(comparable))

    def find(self) -> Iterator[Wrong]:
        """Yield the quantizers that are certainly wrong, in the order of the file."""
        for each in self.doubtful(_LOSS):
            if self._exceeds_bound(each) or (self.is_alike and self._is_off(each)):
                yield Wrong(each.quantizer, _expected(each), _found(each))

    def doubtful(self, decibels: float) -> tuple[QuantizerEffect, ...]:
        """Return the quantizers that lose so many dB against a range of the values, if no mask or bound explains it."""
        return tuple(
            each
            for each in self.effects.values()
            if each.is_comparable and each.lost_db >= decibels and not self._is_whole(each)
        )

    def _is_whole(self, each: QuantizerEffect) -> bool:
        """Whether the range covers just the operator's possible outputs, of which values may well use a part."""
        return self._is_bounded(each) and not each.cut and max(each.most, -each.least) <= 1 + _EXACT

    def _exceeds_bound(self, each: QuantizerEffect) -> bool:
        """Whether codes reach far beyond any possible output."""
        if not self._is_bounded(each) or len(self._clusters[each.quantizer.place]) > 1:
            return False
        return bool(max(each.most, -each.least) > 2.0**_COARSE)

    def _is_off(self, each: QuantizerEffect) -> bool:
        """Whether a range is off by a factor that no neighbour shares."""
        cluster = self._clusters[each.quantizer.place]
        near = [self.effects[name].beyond for name in self._witnesses(cluster)]
        if not near:
            return False
        if self._is_input(each):
            size, reach = max(each.high, -each.low), max(each.most, -each.least)
            excess = math.log2(size / reach) if size and reach else 0.0
            return excess - max(*near, 0.0) >= _INPUT_OFF or min(*near, 0.0) - excess >= _INPUT_OFF
        if each.cut >= _CUT and each.beyond >= _BEYOND:
            return each.spread >= _SPREAD and each.beyond - max(*near, 0.0) >= _BEYOND
        beyond = max(self.effects[place].beyond for place in cluster)
        if beyond < -_MASKED and self._is_scores(each):
            return False
        if self._is_bounded(each):  # a range of all possible outputs is no waste
            beyond = max(beyond, -math.log2(max(each.most, -each.least, 1e-30)))
        return beyond <= -_COARSE and min(*near, 0.0) - beyond >= _COARSE

    def _witnesses(self, cluster: frozenset[str]) -> set[str]:
        """Return the quantizers whose ranges show how wide a cluster's should be; none where these are too few."""
        behind = {name for place in cluster for name in self._next[place]} - cluster
        behind = {name for name in behind if self._is_witness(self.effects[name])}
        before = set[str]()
        for place in cluster:
            sources = self._before[place]
            if sources is None:
                return behind
            before |= sources - cluster
        if before and all(self._is_witness(self.effects[name]) for name in before):
            return behind | before
        return behind

    def _is_witness(self, each: QuantizerEffect) -> bool:
        return each.is_comparable and not self._is_bounded(each) and each.signal_to_error_db is not None

    # The twin around a quantizer

    def _is_bounded(self, each: QuantizerEffect) -> bool:
        """Whether the values are made by an operator whose output is at most 1."""
        name = each.quantizer.place
        for _ in range(16):
            inputs, op_type = self._makers.get(name, ([], ""))
            if op_type in _BOUNDED:
                return True
            if op_type not in _MOVERS or not inputs:
                return False
            name = inputs[0]
        return False

    def _is_scores(self, each: QuantizerEffect) -> bool:
        """Whether Softmax reads the values."""
        waiting = [each.quantizer.place]
        for name in waiting:
            for _, outputs, op_type in self._readers.get(name, ()):
                if op_type == "Softmax":
                    return True
                if op_type in _MOVERS and len(waiting) < 64:
                    waiting += outputs
        return False

    def _is_input(self, each: QuantizerEffect) -> bool:
        """Whether the quantizer reads an unprocessed input of the graph, whose magnitude is unknown."""
        name = each.quantizer.place
        for _ in range(16):
            inputs, op_type = self._makers.get(name, ([], ""))
            if op_type not in _MOVERS or not inputs:
                return not op_type
            name = inputs[0]
        return False

    def _behind(self, place: str, past: frozenset[str] | None = None) -> Iterator[str]:
        """Yield the next quantizers behind a place, across the operators of `past` only, or across all."""
        waiting, done = [place], {place}
        while waiting:
            for _, outputs, op_type in self._readers.get(waiting.pop(), ()):
                for name in outputs:
                    if name in done:
                        continue
                    done.add(name)
                    if past is not None and op_type not in past:
                        continue
                    if name in self.effects:
                        yield name
                    else:
                        waiting.append(name)

    def _sources(self, place: str) -> frozenset[str] | None:
        """Return the quantizers of all values from which a value is computed; None if graph inputs are among them."""
        found, waiting, done = set[str](), [place], {place}
        while waiting:
            inputs, op_type = self._makers.get(waiting.pop(), ([], ""))
            for name in inputs if op_type not in ("Shape", "Size") else ():
                if name in self._inputs:
                    return None
                if name in self.effects:
                    found.add(name)
                elif name not in done:
                    done.add(name)
                    waiting.append(name)
        return frozenset(found)

    def _reach(self, place: str) -> tuple[float, float, bool]:
        each = self.effects[place]
        return each.least, each.most, bool(each.quantizer.scale)

    def _cluster(self) -> dict[str, frozenset[str]]:
        """Group neighbours with the same range, which are set together."""
        found: dict[str, frozenset[str]] = {}
        for place in self.effects:
            if place in found:
                continue
            waiting, group = [place], {place}
            while waiting:
                name = waiting.pop()
                for other in self._all_next[name] | {
                    each for each in self.effects if name in self._all_next[each]
                }:
                    if other not in group and self._reach(name) == self._reach(other):
                        group.add(other)
                        waiting.append(other)
            found.update(dict.fromkeys(group, frozenset(group)))
        return found


def _expected(each: QuantizerEffect) -> str:
    return f"numbers from {each.low:.3g} to {each.high:.3g}"


def _found(each: QuantizerEffect) -> str:
    text = f"codes from {each.least:.3g} to {each.most:.3g}"
    if each.cut >= _CUT and each.beyond >= _BEYOND:
        return f"{text}, which cut off {each.cut:.0%} of the numbers"
    return f"{text}, of which the numbers use one in {2.0**-each.beyond:.3g}"


def contradicted(each: QuantizerEffect, factor: float) -> Wrong:
    """Return a quantizer as wrong, whose scale a bias contradicts by a factor."""
    expected = f"codes from {each.least * factor:.3g} to {each.most * factor:.3g}, by the scale of the bias"
    return Wrong(each.quantizer, expected, f"codes from {each.least:.3g} to {each.most:.3g}")


def find_odd_biases(graph: Graph) -> Iterator[tuple[str, float]]:
    """Yield the scales of activations that an integer bias contradicts, with the factor, if other biases agree."""
    makers = {name: node for node in graph.nodes for name in node.outputs}
    stored = {tensor.name: tensor for tensor in graph.tensors}

    def decoder(name: str) -> tuple[str, Array, str] | None:
        node = makers.get(name)
        if node is None or node.op_type != "DequantizeLinear" or len(node.inputs) < 2:
            return None
        scale = _numbers(stored.get(node.inputs[1]))
        return None if scale is None else (node.inputs[0], scale, node.inputs[1])

    agreeing, disagreeing = 0, list[tuple[str, float]]()
    for node in graph.nodes:
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm") or len(node.inputs) < 3:
            continue
        activation, weight, bias = (decoder(name) for name in node.inputs[:3])
        if activation is None or weight is None or bias is None or weight[0] not in stored:
            continue
        codes = stored.get(bias[0])
        if codes is None or codes.dtype.name != "INT32" or activation[0] in stored or activation[1].size != 1:
            continue
        product = activation[1].reshape(-1)[0] * weight[1].reshape(-1)
        if bias[1].size not in (1, product.size) or not product.all():
            continue
        factors = bias[1].reshape(-1) / product
        factor = float(np.median(factors))
        if np.abs(factors - factor).max() > _EXACT * abs(factor):
            continue
        if abs(factor - 1) <= _EXACT:
            agreeing += 1
        else:
            disagreeing.append((activation[2], factor))
    if agreeing >= max(_MANY_BIASES, 2 * len(disagreeing)):
        yield from disagreeing


_BIASES = {"QLinearConv": (1, 4, 8), "QGemm": (1, 4, 6)}
"""Input slots: the scales of activation and weight, and the bias, whose scale is the product of the two."""


def find_shared_biases(graph: Graph) -> dict[str, tuple[float, float]]:
    """Find integer biases that several products read at different scales, at most one of which is right.

    A tool that quantizes a module which is called twice rounds its bias for the first call.

    Returns:
        By the name of the stored tensor, the least and the greatest scale.
    """
    stored = {tensor.name: tensor for tensor in graph.tensors}
    found: dict[str, list[float]] = {}
    for node in graph.nodes:
        slots = _BIASES.get(node.op_type)
        if slots is None or len(node.inputs) <= slots[2] or node.inputs[slots[2]] not in stored:
            continue
        activation, weight = (_numbers(stored.get(node.inputs[slot])) for slot in slots[:2])
        if activation is not None and weight is not None and activation.size == 1 and weight.size:
            scale = float(activation.reshape(-1)[0] * weight.reshape(-1)[0])
            found.setdefault(node.inputs[slots[2]], []).append(scale)
    return {
        name: (min(scales), max(scales))
        for name, scales in found.items()
        if max(scales) - min(scales) > _EXACT * abs(max(scales))
    }


def _numbers(tensor: StoredTensor | None) -> Array | None:
    array = None if tensor is None or tensor.numel > 1 << 16 else tensor.payload.array()
    return None if array is None else array.astype(np.float64)
