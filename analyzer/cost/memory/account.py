"""A described graph + sizes of its axes -> the memory of a run, line by line, and the tensors at its peak."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from analyzer.cost.memory.inference import Inference
from analyzer.cost.memory.packing import NOT_PACKED, Packed, pack
from analyzer.cost.memory.planner import Buffer, Plan, live_nbytes, peak_at
from analyzer.cost.memory.polynomials import Polynomial, fit_size, sample_points
from analyzer.cost.memory.steps import Program, Step
from analyzer.cost.memory.walked import Walked
from analyzer.errors import CostError
from analyzer.model.dtypes import DType
from analyzer.read.described import Described, DescribedValue, Dim
from analyzer.records import Frozen, Mutable, field

_HALF = DType.FLOAT16.value

_CHUNK = 256
"""Chunk size of onnxruntime's arena, in bytes: it hands out whole chunks, and at least one."""

_SMALL = 127
"""Largest tensor, in bytes, that onnxruntime copies into its arena; larger ones stay where they were read."""

_CACHE = re.compile(r"past|present|cache", re.IGNORECASE)


class Basis(StrEnum):
    """Origin of a number."""

    EXACT = "exact"
    MODELLED = "modelled"
    MEASURED = "measured"


class Item(Frozen):
    """One kind of memory."""

    line: str
    value: int | None
    """Bytes; None where they are not known."""

    basis: Basis
    polynomial: Polynomial | None = None
    note: str = ""


class Live(Frozen):
    """Tensor that is live at the peak."""

    value: str
    op_type: str
    """Operator of the node that produces it."""

    nbytes: int
    """Bytes in use."""
    saves: int | None = None
    """Bytes by which the peak of the whole run would be lower without it; None for small tensors."""


class Peak(Frozen):
    """Step with the most live bytes after it, in the main graph."""

    position: int
    """Position in the order of the run, from 0."""

    step: Step
    nbytes: int
    """Bytes in use."""
    polynomial: Polynomial | None
    live: tuple[Live, ...]
    """Live tensors, the largest first."""

    lives: tuple[int, ...] = ()
    """Live bytes after each step, in the order of the run."""


class Needed(Frozen):
    """Memory of a run at one point."""

    lines: tuple[Item, ...]
    peak: Peak | None
    """Peak; None where a buffer's size is not known."""

    unknown: tuple[str, ...]
    """Values of unknown size."""

    initial_nbytes: int = 0
    """Bytes that a session requests from its arena before it runs: packed weights, and copies of small tensors."""

    @property
    def total(self) -> int | None:
        """Sum of the known lines, in bytes; None without the peak."""
        if self.peak is None:
            return None
        return sum(line.value for line in self.lines if line.value is not None)


class Account(Mutable):
    """Graph with the plan of its buffers, and the sources of its values' shapes."""

    inference: Inference
    program: Program
    plan: Plan
    walked: Walked | None = None
    """Sizes that inference cannot tell; None for a graph that onnxruntime wrote."""
    uncertain_halves: int = 0
    """Number of nodes that read FLOAT16 and may or may not have a kernel for it."""
    on_gpu: bool = False
    """Whether the kernels are a GPU's, whose packing of weights is not known."""
    packed: Packed = NOT_PACKED
    makers: Mapping[str, Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.packed = NOT_PACKED if self.on_gpu else pack(self.described)
        self.makers = {name: step for step in reversed(self.program.steps) for name in step.outputs}

    @property
    def described(self) -> Described:
        return self.inference.described

    def needed(self, sizes: Mapping[str, int], *, formulas: bool = False) -> Needed:
        """Return the memory of a run at these sizes of the axes.

        Args:
            sizes: sizes of all axes of the inputs.
            formulas: whether to add the polynomial of each line, which takes inference at a few other sizes.

        Raises:
            CostError: the process that infers shapes has ended.
        """
        known_sizes = self.sizes(sizes)
        unknown = [name for name, size in known_sizes.items() if size is None]
        nbytes = {name: size for name, size in known_sizes.items() if size is not None}
        fits = _Formulas(self, sizes) if formulas and len(sizes) <= _MOST_AXES else None
        fixed = tuple(self._fixed(sizes, fits))
        if refused := self.inference.refused(sizes):
            note = f"the inputs of {refused} do not fit each other at these sizes"
            return Needed(
                (*fixed, Item("activations", None, Basis.MODELLED, note=note)),
                None,
                tuple(unknown),
                self.initial_nbytes,
            )
        if unknown:
            note = f"{len(unknown):,} of {len(self.plan.buffers):,} buffers have sizes that are unknown before the run"
            return Needed(
                (*fixed, Item("activations", None, Basis.MODELLED, note=note)),
                None,
                tuple(unknown),
                self.initial_nbytes,
            )
        peak = self._peak(nbytes, fits)
        return Needed(
            (*fixed, *self._at_peak(peak, nbytes, fits), *self._unmodelled()), peak, (), self.initial_nbytes
        )

    @property
    def initial_nbytes(self) -> int:
        """Bytes that a session requests from its arena before it runs."""
        sizes = [
            DType.from_onnx(each.dtype).nbytes(math.prod(each.dims))
            for name, each in self.described.tensors.items()
            if name not in self.packed.packed
        ]
        small = sum(size for size in sizes if size <= _SMALL)
        return self.packed.exact + self.packed.modelled + small

    def sizes(self, sizes: Mapping[str, int]) -> Mapping[str, int | None]:
        """Return the bytes of every buffer by its owner, None where they are not known.

        Raises:
            CostError: the process that infers shapes has ended.
        """
        return {buffer.owner: self.nbytes(buffer.owner, sizes) for buffer in self.plan.buffers}

    def _fixed(self, at: Mapping[str, int], fits: _Formulas | None) -> Iterator[Item]:
        """Yield the memory that exists as long as the session."""
        stored = {True: 0, False: self.described.nested_nbytes}
        for tensor in self.described.tensors.values():
            stored[tensor.is_external] += DType.from_onnx(tensor.dtype).nbytes(math.prod(tensor.dims))
        for is_external, line in WEIGHTS:
            if stored[is_external]:
                yield _constant(line, stored[is_external], Basis.EXACT)
        if not self.on_gpu:
            yield _constant("prepacked weights", self.packed.exact, Basis.EXACT)
        if self.packed.modelled:
            note = "as measured on a processor with VNNI instructions"
            yield _constant(
                "prepacked weights of other operators", self.packed.modelled, Basis.MODELLED, note
            )
        fed = [name for name, value in self.described.inputs.items() if value.is_tensor]
        cache = [name for name in fed if _CACHE.search(name)]
        rest = [name for name in fed if not _CACHE.search(name)]
        for line, names in (("inputs", rest), ("key-value cache, past", cache)):
            sizes = [self.nbytes(name, at) for name in names]
            if names:
                known = None if None in sizes else sum(size or 0 for size in sizes)
                yield Item(line, known, Basis.EXACT, _polynomial(fits, names))

    def _at_peak(self, peak: Peak, nbytes: Mapping[str, int], fits: _Formulas | None) -> Iterator[Item]:
        """Yield the memory that is requested during the run."""
        outputs = frozenset(self.program.outputs)
        buffers = self.plan.live(peak.position)
        cache = [each.owner for each in buffers if each.owner in outputs and _CACHE.search(each.owner)]
        kept = [each.owner for each in buffers if each.owner in outputs and not _CACHE.search(each.owner)]
        inner = [each.owner for each in buffers if each.owner not in outputs]
        lines = [("activations", inner), ("outputs", kept), ("key-value cache, present", cache)]
        for line, names in lines:
            if names or line == "activations":
                total = sum(nbytes[name] for name in names)
                yield Item(line, total, Basis.MODELLED, _polynomial(fits, names))
        rounded = sum(-nbytes[each.owner] % _CHUNK for each in buffers)
        yield Item("arena rounding", rounded, Basis.MODELLED, note=f"whole chunks of {_CHUNK} bytes")

    def _unmodelled(self) -> Iterator[Item]:
        """Yield a line for each kind of memory that is not modelled."""
        yield Item(
            "scratch of kernels",
            None,
            Basis.MODELLED,
            note="not modelled: memory that kernels request during the run",
        )
        yield Item(
            "growth of the arena",
            None,
            Basis.MODELLED,
            note="not modelled: the arena takes more from the system than it hands out",
        )
        if self.packed.unknown_operators:
            operators = ", ".join(self.packed.unknown_operators)
            note = f"not modelled: copies of the weights of these operators: {operators}"
            yield Item("prepacked weights that are not known", None, Basis.MODELLED, note=note)
        if self.uncertain_halves:
            note = (
                f"not modelled: Casts around {self.uncertain_halves:,} node{'s' * (self.uncertain_halves != 1)} "
                "that read FLOAT16, if onnxruntime has no kernel for them; --optimization none plans them"
            )
            yield Item("casts of FLOAT16", None, Basis.MODELLED, note=note)
        cast = self._cast_in_advance()
        if cast:
            note = (
                f"not modelled: by default, onnxruntime casts {cast:,} FLOAT16 tensor{'s' * (cast != 1)} to FLOAT "
                "when it loads the model, and packs them; --optimization all plans that"
            )
            yield Item("FLOAT16 weights in FLOAT", None, Basis.MODELLED, note=note)
        nested = sum(node.nested for node in self.described.nodes)
        if nested:
            note = f"not modelled: memory of {nested:,} nodes in graphs of If, Loop and Scan"
            yield Item("nested graphs", None, Basis.MODELLED, note=note)

    def _cast_in_advance(self) -> int:
        """Count FLOAT16 tensors that Casts read in a file as it stands: optimizers compute these Casts in advance."""
        if self.walked is None or self.on_gpu:
            return 0
        read = {node.inputs[0] for node in self.described.nodes if node.op_type == "Cast" and node.inputs}
        tensors = self.described.tensors
        return sum(1 for name in read if name in tensors and tensors[name].dtype == _HALF)

    def _peak(self, nbytes: Mapping[str, int], fits: _Formulas | None) -> Peak:
        lives = live_nbytes(self.plan, nbytes)
        position = peak_at(lives)
        if position is None:
            raise CostError(f"{self.inference.name}: the main graph has no nodes that run")
        buffers: Sequence[Buffer] = self.plan.live(position)
        large = sorted(buffers, key=lambda each: -nbytes[each.owner])[:_MOST_SAVINGS]
        saves = {
            each.owner: lives[position] - _peak_without(each, lives, nbytes[each.owner]) for each in large
        }
        made = {
            name: place
            for place, index in enumerate(self.plan.order)
            for name in self.program.steps[index].outputs
        }
        tenants = [(_last(each, made, position), each.owner) for each in buffers]
        live = sorted(
            (
                Live(
                    name.partition("\0")[0],
                    self.makers[name].op_type if name in self.makers else "",
                    nbytes[owner],
                    saves.get(owner),
                )
                for name, owner in tenants
            ),
            key=lambda tensor: (-tensor.nbytes, tensor.value),
        )
        return Peak(
            position,
            self.program.steps[self.plan.order[position]],
            lives[position],
            _polynomial(fits, [each.owner for each in buffers]),
            tuple(live),
            lives,
        )

    def nbytes(self, name: str, sizes: Mapping[str, int]) -> int | None:
        """Return the bytes of a value; for a sequence from SplitToSequence, those of the tensor that is split.

        Raises:
            CostError: the process that infers shapes has ended.
        """
        value = self._value(name)
        if value is not None and not value.is_tensor:
            split = self.makers.get(name)
            is_split = split is not None and split.op_type == "SplitToSequence"
            return self.nbytes(split.inputs[0], sizes) if split is not None and is_split else None
        dtype, dims = self.typed(name, sizes)
        if not dtype or dims is None or any(not isinstance(dim, int) for dim in dims):
            return None
        numel = math.prod(dim for dim in dims if isinstance(dim, int))
        return _STRING * numel if dtype is DType.STRING else dtype.nbytes(numel)

    def typed(self, name: str, sizes: Mapping[str, int]) -> tuple[DType, tuple[Dim, ...] | None]:
        """Return the type and the shape of a value, from inference, or else from the walk.

        Raises:
            CostError: the process that infers shapes has ended.
        """
        own = name.partition("\0")[0]  # the name without the suffix of an inserted copy
        value = self._value(name)
        dtype, dims = self.inference.types(sizes).get(own, (0, None))
        known = None if value is None else value.dims
        if known is not None:
            bound = tuple(sizes.get(dim) if isinstance(dim, str) else dim for dim in known)
            if dims is None:
                dims = bound
            elif len(dims) == len(bound):
                dims = tuple(a if a is not None else b for a, b in zip(dims, bound, strict=True))
        if self.walked is not None and (dims is None or not all(isinstance(dim, int) for dim in dims)):
            found = self.walked.typed(own, sizes)
            if found is not None and (dims is None or len(dims) == len(found[1])):
                return DType.from_onnx(value.dtype) if value is not None and value.dtype else found[0], found[
                    1
                ]
        return DType.from_onnx((0 if value is None else value.dtype) or dtype), dims

    def _value(self, name: str) -> DescribedValue | None:
        own = name.partition("\0")[0]
        values = self.described.values
        return values.get(name) or values.get(own) or self.described.inputs.get(own)


WEIGHTS = ((True, "weights, mapped"), (False, "weights, copied"))
"""Lines of stored weights, by whether a file beside the model holds them."""

_STRING = 32
"""Bytes of an element of a string tensor, without its characters."""


_MOST_SAVINGS = 20
"""Number of largest tensors at the peak for which `saves` is computed."""


def _peak_without(buffer: Buffer, lives: Sequence[int], size: int) -> int:
    """Return the peak of a run, in bytes, if a buffer took no memory."""
    last = len(lives) - 1 if buffer.last is None else buffer.last
    return max(each - (size if buffer.first <= place <= last else 0) for place, each in enumerate(lives))


def _last(buffer: Buffer, made: Mapping[str, int], position: int) -> str:
    """Return the tenant of a buffer after a step: the last one produced by then."""
    return max(
        (name for name in buffer.tenants if made.get(name, 0) <= position),
        key=lambda name: made.get(name, 0),
        default=buffer.owner,
    )


def _constant(line: str, nbytes: int, basis: Basis, note: str = "") -> Item:
    return Item(line, nbytes, basis, Polynomial.constant(nbytes), note)


_MOST_AXES = 256
"""Maximum number of axes for which formulas are made: each takes one more sample point."""


def _polynomial(fits: _Formulas | None, names: Sequence[str]) -> Polynomial | None:
    return None if fits is None else fits.total(names)


class _Formulas:
    """Polynomials of values, from their sizes at a few points."""

    def __init__(self, account: Account, sizes: Mapping[str, int]) -> None:
        self.account = account
        self.points = sample_points(sizes)

    def total(self, names: Sequence[str]) -> Polynomial | None:
        """Return the sum of the bytes of several values; None where one has no polynomial."""
        total = Polynomial()
        for name, count in self._alike(names):
            made = self._of(name)
            if made is None:
                return None
            total = total + made * Polynomial.constant(count)
        return total

    def _alike(self, names: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Yield one value for each type that is the same at all points, with the number of such values."""
        counted: dict[object, tuple[str, int]] = {}
        for name in names:
            typed = tuple(self.account.typed(name, point) for point in self.points)
            key = name if typed[0][1] is None else typed
            counted[key] = (counted[key][0] if key in counted else name, counted.get(key, ("", 0))[1] + 1)
        yield from counted.values()

    def _of(self, name: str) -> Polynomial | None:
        typed = [self.account.typed(name, point) for point in self.points]
        bits, first = typed[0][0].bits, typed[0][1]
        if first is None or not bits or bits % 8:
            return self._whole(name)
        product = Polynomial.constant(bits // 8)
        for place in range(len(first)):
            column = [dims[place] for _, dims in typed if dims is not None and len(dims) == len(first)]
            sizes = [dim for dim in column if isinstance(dim, int)]
            fitted = fit_size(sizes, self.points) if len(sizes) == len(self.points) else None
            if fitted is None:
                return None
            product = product * fitted
        return product

    def _whole(self, name: str) -> Polynomial | None:
        """Fit the bytes directly, for a value that is no tensor, or whose elements are no whole bytes."""
        sizes = [self.account.nbytes(name, point) for point in self.points]
        known = [size for size in sizes if size is not None]
        return fit_size(known, self.points) if len(known) == len(sizes) else None
