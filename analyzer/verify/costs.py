"""A file with rounded weights and quantizers, PyTorch's own weights -> what rounding costs at the outputs, by layer.

Each layer is rounded alone, and what that does to the outputs is measured: its weights in PyTorch, which otherwise
computes with its own, its quantizers in the float twin, which otherwise has none.
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
from analyzer.verify.asked import QuantizerAnswer
from analyzer.verify.record import Costs, KeptFloat, LayerCost
from analyzer.verify.running import Runner, Subject
from analyzer.verify.side import Side

_MOST_SECONDS = 60.0
"""Of rounding layers one by one."""
_KEPT = 3
"""Layers whose cost is known together, as those that would stay in float."""


class Held(Frozen):
    """What the file holds of one module, where PyTorch has other numbers, as they are not rounded."""

    module: str
    tensors: Mapping[str, Array]
    """By PyTorch's names."""
    nbytes: int
    """As the file stores them."""
    float_nbytes: int
    """In single precision."""


class Exchange(Frozen):
    """What a module was given of the file, and the module as it was before."""

    held: tuple[Held, ...] = ()
    original: Side | None = None
    """None where nothing was exchanged, or SOURCE has no weights of its own."""
    is_made_up: bool = False
    """Whether SOURCE has none, so that nobody knows what it would compute."""


def put(side: Side, held: Iterable[Held]) -> None:
    """Have a module compute with what the file holds.

    Raises:
        UsageError: there is no room for it on the disk.
    """
    found = {name: value for each in held for name, value in each.tensors.items()}
    if not found:
        return
    with tempfile.TemporaryDirectory(prefix="onnxledger-") as folder:
        path = Path(folder, "state.safetensors")
        slots = [FileTensor(name, DType.FLOAT, value.shape) for name, value in found.items()]
        write_state_file(path, slots, lambda slot: iter([found[slot.name].astype(np.float32).reshape(-1)]))
        side.load(path)


Outputs = Mapping[str, Array]
"""Of the file, by name."""


def drift_between(wanted: Outputs, made: Outputs) -> float | None:
    """Signal to error, in dB, of the output that is off the most; infinite where none is, None without floats."""
    error = _Error(wanted, made)
    found = error.decibel
    return None if not error.signal else math.inf if found is None else found


class _Error:
    """Power of an error, output by output, beside that of what it should be."""

    def __init__(self, wanted: Outputs, made: Outputs | None = None) -> None:
        self.signal = {name: _power(value) for name, value in wanted.items() if value.dtype.kind == "f"}
        self.power = dict.fromkeys(self.signal, 0.0)
        for name in self.power if made is not None else ():
            assert made is not None
            self.power[name] = _off(wanted[name], made.get(name))

    def plus(self, other: _Error | None) -> _Error:
        """Both, as of errors that have nothing to do with each other."""
        found = _Error({})
        found.signal = dict(self.signal)
        found.power = {
            name: power + (0.0 if other is None else other.power.get(name, 0.0))
            for name, power in self.power.items()
        }
        return found

    @property
    def decibel(self) -> float | None:
        """Of the output that has the most error; None where there is none."""
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
    """All that computes."""

    runner: Runner
    own: Subject
    """The file as it stands."""
    twin: Subject
    """Its float twin; the file itself where it has no codes."""
    quantizers: Mapping[str, Sequence[QuantizerAnswer]]
    """Of the twin, by the module that they stand in."""
    exchange: Exchange
    outputs: Sequence[str]
    feeds: Mapping[str, Array]
    match: Callable[[Sequence[tuple[str, Array]], Outputs], dict[str, Array]]
    """Says which of PyTorch's outputs each of the file's is."""
    is_coded: bool
    """Whether it has codes, and not only half precision."""

    def rounded(self, quantizers: Sequence[QuantizerAnswer]) -> Outputs:
        """What the twin puts out where these round."""
        return self.runner.run(self.twin, self.outputs, self.feeds, rounds=quantizers)


def measure_costs(sides: Sides) -> Costs:
    """Measure what rounding costs on one set of inputs: all in all, and by layer, the dearest first.

    Raises:
        TimingError: the file does not run any more, or not within the limits.
        UsageError: there is no room on the disk for the weights.
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
    """What all weights cost, what those of each module do, and which modules no time was left for."""
    original, held = sides.exchange.original, sides.exchange.held
    alone: dict[str, _Error] = {}
    missing: set[str] = set()
    if original is None:
        return None, alone, missing
    wanted = sides.match(original.run(sides.feeds), plain)
    for each in held:
        if time.monotonic() - start > _MOST_SECONDS:
            missing.add(each.module)
            continue
        error = _with(sides, original, [each], wanted, plain)
        if error is not None:
            alone[each.module] = error
    return _with(sides, original, held, wanted, plain), alone, missing


def _with(
    sides: Sides, original: Side, held: Sequence[Held], wanted: Outputs, plain: Outputs
) -> _Error | None:
    """What it costs that the module has these of the file; None where it does not run so."""
    side = original.apart()
    put(side, held)
    try:
        return _Error(wanted, sides.match(side.run(sides.feeds), plain))
    except ExportError:
        return None


def _layer(module: str, sides: Sides, weights: _Error | None, codes: _Error | None) -> LayerCost:
    both = codes if weights is None else weights.plus(codes)
    held = [each for each in sides.exchange.held if each.module == module]
    return LayerCost(
        module=module,
        signal_to_error_db=None if both is None else both.decibel,
        weights_db=None if weights is None else weights.decibel,
        codes_db=None if codes is None else codes.decibel,
        quantizers=len(sides.quantizers.get(module, ())),
        nbytes=sum(each.nbytes for each in held),
        float_nbytes=sum(each.float_nbytes for each in held),
    )


def _keep(sides: Sides, plain: Outputs, modules: Sequence[str]) -> KeptFloat | None:
    """What it would give to leave these modules in float; None where nobody can say."""
    original = sides.exchange.original
    if not sides.is_coded:
        return None
    all_quantizers = [each for some in sides.quantizers.values() for each in some]
    quantizers = [each for name, some in sides.quantizers.items() if name not in modules for each in some]
    error, before = _Error(plain, sides.rounded(quantizers)), _Error(plain, sides.rounded(all_quantizers))
    held = [each for each in sides.exchange.held if each.module not in modules]
    kept = [each for each in sides.exchange.held if each.module in modules]
    if original is not None:
        wanted = sides.match(original.run(sides.feeds), plain)
        weights = _with(sides, original, held, wanted, plain)
        whole = _with(sides, original, sides.exchange.held, wanted, plain)
        if weights is None or whole is None:
            return None
        error, before = weights.plus(error), whole.plus(before)
    more = sum(each.float_nbytes - each.nbytes for each in kept)
    return KeptFloat(tuple(modules), more, before.decibel, error.decibel)
