"""File with rounded weights and quantizers, PyTorch's own weights -> cost of rounding at the outputs, by layer.

Each layer is rounded alone, and the effect on the outputs is measured: its weights in PyTorch, which otherwise computes
with its own weights, its quantizers in the float twin, which otherwise has none.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from analyzer.checkpoints.statefile import FileTensor, write_state_file
from analyzer.errors import ExportError
from analyzer.model.content import Array
from analyzer.model.dtypes import DType
from analyzer.records import Frozen
from analyzer.verify.messages import QuantizerAnswer
from analyzer.verify.record import Costs, KeptFloat, LayerCost
from analyzer.verify.running import Runner, Subject
from analyzer.verify.side import Side

_MOST_SECONDS = 60.0
"""Seconds for rounding the layers one by one."""
_KEPT = 3
"""Number of costliest layers whose cost is also measured together, as if these stayed in float."""


class ModuleTensors(Frozen):
    """Tensors of one module as the file holds them, decoded, where PyTorch has other numbers."""

    module: str
    tensors: Mapping[str, Array]
    """Values, by PyTorch's names."""
    nbytes: int
    """Bytes as the file stores them."""
    float_nbytes: int
    """Bytes in single precision."""


class Exchange(Frozen):
    """Tensors of the file that were loaded into a module, and the module as it was before."""

    tensors: tuple[ModuleTensors, ...] = ()
    original: Side | None = None
    """Side before the exchange; None where nothing was exchanged, or SOURCE has no weights of its own."""
    is_made_up: bool = False
    """Whether SOURCE has no weights of its own, so that its results are unknown."""


def load_tensors(side: Side, exchanged: Iterable[ModuleTensors]) -> None:
    """Load the file's tensors into a module.

    Raises:
        UsageError: the disk has no room for them.
    """
    found = {name: value for each in exchanged for name, value in each.tensors.items()}
    if not found:
        return
    with tempfile.TemporaryDirectory(prefix="onnxledger-") as folder:
        path = Path(folder, "state.safetensors")
        slots = [FileTensor(name, DType.FLOAT, value.shape) for name, value in found.items()]
        write_state_file(path, slots, lambda slot: iter([found[slot.name].astype(np.float32).reshape(-1)]))
        side.load(path)


Outputs = Mapping[str, Array]
"""Outputs of the file, by name."""


def drift_between(wanted: Outputs, made: Outputs) -> float | None:
    """Return the signal to error, in dB, of the output that is off the most; inf if none is, None without floats."""
    error = _Error(wanted, made)
    found = error.decibel
    return None if not error.signal else math.inf if found is None else found


class _Error:
    """Power of each output's error, and of the right output."""

    def __init__(self, wanted: Outputs, made: Outputs | None = None) -> None:
        self.signal = {name: _power(value) for name, value in wanted.items() if value.dtype.kind == "f"}
        self.power = dict.fromkeys(self.signal, 0.0)
        for name in self.power if made is not None else ():
            assert made is not None
            self.power[name] = _off(wanted[name], made.get(name))

    def plus(self, other: _Error | None) -> _Error:
        """Return the sum of two independent errors."""
        found = _Error({})
        found.signal = dict(self.signal)
        found.power = {
            name: power + (0.0 if other is None else other.power.get(name, 0.0))
            for name, power in self.power.items()
        }
        return found

    @property
    def decibel(self) -> float | None:
        """Signal to error, in dB, of the output with the most error; None where there is no error."""
        found = [
            10 * math.log10(self.signal[name] / power)
            if self.signal[name] and power < math.inf
            else -math.inf
            for name, power in self.power.items()
            if power
        ]
        return min(found, default=None)


def _power(value: Array) -> float:
    flat = value.astype(np.float64).reshape(-1)
    flat = flat[np.isfinite(flat)]
    return float(flat @ flat)


def _off(wanted: Array, made: Array | None) -> float:
    if made is None or made.shape != wanted.shape:
        return math.inf
    a, b = wanted.astype(np.float64).reshape(-1), made.astype(np.float64).reshape(-1)
    finite = np.isfinite(a)
    if not np.isfinite(b[finite]).all():
        return math.inf
    off = a[finite] - b[finite]
    return float(off @ off)


class Sides(Frozen):
    """Everything that computes in a measurement of costs."""

    runner: Runner
    own: Subject
    """File as it stands."""
    twin: Subject
    """Float twin of the file; the file itself where it has no codes."""
    quantizers: Mapping[str, Sequence[QuantizerAnswer]]
    """Quantizers of the twin, by module."""
    exchange: Exchange
    outputs: Sequence[str]
    feeds: Mapping[str, Array]
    match: Callable[[Sequence[tuple[str, Array]], Outputs], dict[str, Array]]
    """Function that returns PyTorch's outputs under the names of the file's."""
    is_coded: bool
    """Whether the file has codes, and not only half precision."""

    def rounded(self, quantizers: Sequence[QuantizerAnswer]) -> Outputs:
        """Return the outputs of the twin when these quantizers round."""
        return self.runner.run(self.twin, self.outputs, self.feeds, rounds=quantizers)


def measure_costs(sides: Sides) -> Costs:
    """Measure the cost of rounding on one set of inputs: as a whole, and by layer, the costliest first.

    Raises:
        TimingError: the file no longer runs, or not within the limits.
        UsageError: the disk has no room for the weights.
    """
    start = time.monotonic()
    plain = sides.rounded(())
    theirs = sides.runner.run(sides.own, sides.outputs, sides.feeds)
    codes = _Error(plain, theirs)
    weights, alone, missing = _weigh_layers(sides, plain, start)
    each: dict[str, _Error] = {}
    for module, quantizers in sides.quantizers.items():
        if time.monotonic() - start > _MOST_SECONDS:
            missing.add(module)
            continue
        each[module] = _Error(plain, sides.rounded(quantizers))
    layers = [_layer(module, sides, alone.get(module), each.get(module)) for module in {**alone, **each}]
    layers = [
        layer for layer in layers if layer.module not in missing and layer.signal_to_error_db is not None
    ]
    layers.sort(key=lambda layer: (layer.signal_to_error_db or 0.0, layer.module))
    return Costs(
        weights_db=None if weights is None else weights.decibel,
        codes_db=codes.decibel,
        layers=tuple(layers),
        kept=_keep(sides, plain, [layer.module for layer in layers[:_KEPT]]) if layers else None,
        unmeasured=len(missing),
    )


def _weigh_layers(
    sides: Sides, plain: Outputs, start: float
) -> tuple[_Error | None, dict[str, _Error], set[str]]:
    """Return the error of all weights, the error of each module's, and the modules for which no time was left."""
    original, exchanged = sides.exchange.original, sides.exchange.tensors
    alone: dict[str, _Error] = {}
    missing: set[str] = set()
    if original is None:
        return None, alone, missing
    wanted = sides.match(original.run(sides.feeds), plain)
    for each in exchanged:
        if time.monotonic() - start > _MOST_SECONDS:
            missing.add(each.module)
            continue
        error = _with(sides, original, [each], wanted, plain)
        if error is not None:
            alone[each.module] = error
    return _with(sides, original, exchanged, wanted, plain), alone, missing


def _with(
    sides: Sides, original: Side, exchanged: Sequence[ModuleTensors], wanted: Outputs, plain: Outputs
) -> _Error | None:
    """Return the error of loading these tensors of the file into the module; None where it does not run then."""
    side = original.apart()
    load_tensors(side, exchanged)
    try:
        return _Error(wanted, sides.match(side.run(sides.feeds), plain))
    except ExportError:
        return None


def _layer(module: str, sides: Sides, weights: _Error | None, codes: _Error | None) -> LayerCost:
    both = codes if weights is None else weights.plus(codes)
    exchanged = [each for each in sides.exchange.tensors if each.module == module]
    return LayerCost(
        module=module,
        signal_to_error_db=None if both is None else both.decibel,
        weights_db=None if weights is None else weights.decibel,
        codes_db=None if codes is None else codes.decibel,
        quantizers=len(sides.quantizers.get(module, ())),
        nbytes=sum(each.nbytes for each in exchanged),
        float_nbytes=sum(each.float_nbytes for each in exchanged),
    )


def _keep(sides: Sides, plain: Outputs, modules: Sequence[str]) -> KeptFloat | None:
    """Return the gain of leaving these modules in float; None where it cannot be measured."""
    original = sides.exchange.original
    if not sides.is_coded:
        return None
    all_quantizers = [each for some in sides.quantizers.values() for each in some]
    quantizers = [each for name, some in sides.quantizers.items() if name not in modules for each in some]
    error, before = _Error(plain, sides.rounded(quantizers)), _Error(plain, sides.rounded(all_quantizers))
    exchanged = [each for each in sides.exchange.tensors if each.module not in modules]
    left_float = [each for each in sides.exchange.tensors if each.module in modules]
    if original is not None:
        wanted = sides.match(original.run(sides.feeds), plain)
        weights = _with(sides, original, exchanged, wanted, plain)
        whole = _with(sides, original, sides.exchange.tensors, wanted, plain)
        if weights is None or whole is None:
            return None
        error, before = weights.plus(error), whole.plus(before)
    more = sum(each.float_nbytes - each.nbytes for each in left_float)
    return KeptFloat(tuple(modules), more, before.decibel, error.decibel)
