"""A forward pass -> every call of a function of PyTorch in it: what it is, in which module, and of which values.

Calls are seen as they are written (`layer_norm`, `matmul`, `+`), without a trace: a model that runs can be recorded. A
value is known by the call that made it, past all views. One call of a pass may be exchanged for another, so that one
sees what the pass would give then.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  as all of PyTorch's documentation has it
from torch.overrides import TorchFunctionMode, resolve_name

from analyzer.model.dtypes import round_to_half

_TAG = "_onnxledger_call"
_QUIET = frozenset(
    {
        *("size", "dim", "numel", "stride", "is_contiguous", "storage_offset", "type", "get_device", "item"),
        *("tolist", "is_floating_point", "is_complex", "data_ptr", "element_size", "nelement", "ndimension"),
        *("__len__", "__bool__", "__int__", "__float__", "__index__", "__repr__", "__format__", "__hash__"),
        *("requires_grad_", "_version", "is_same_size", "result_type", "is_nonzero", "equal", "allclose"),
    }
)
_SHORT = 64
"""Characters of a word among a call's arguments that are kept."""
_MOST = 1e30
"""What is beyond is a mask, and no number to be rounded."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function of PyTorch."""

    number: int
    module: str
    """The path of the module that makes it; with `#2` behind it in the module's second call."""
    class_name: str
    operator: str
    """`layer_norm`, `matmul`, `add`, ..."""
    ordinal: int
    """Its place among the calls of that call of the module."""
    parents: tuple[int, ...]
    """The calls that made what it is given."""
    parameters: tuple[str, ...]
    """The parameters and buffers that it is given."""
    numbers: tuple[float, ...]
    """Among its arguments."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a call is given, for those who want to compute something else."""

    call: Call
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any
    settings: Mapping[str, object]
    """Of the module."""
    names: Mapping[int, str]
    """Of parameters and buffers, by their identity."""


@dataclass(frozen=True, slots=True)
class Change:
    """Another value in the place of one call's."""

    number: int
    make: Callable[[Given], Any]


class StoppedError(Exception):
    """Enough was seen."""


def tensors_in(given: Any) -> Iterator[torch.Tensor]:
    """The tensors of a nest of lists, tuples and mappings."""
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, (list, tuple)):
        for each in given:
            yield from tensors_in(each)
    elif isinstance(given, Mapping):
        for each in given.values():
            yield from tensors_in(each)


@dataclass(slots=True)
class _Frame:
    """A call of a module that has not ended."""

    label: str
    module: nn.Module
    calls: int = 0


class Recorder(TorchFunctionMode):
    """Tells of each call, as long as it is entered and the module's hooks are there."""

    def __init__(
        self,
        model: nn.Module,
        told: Callable[[Call, Sequence[torch.Tensor]], None],
        change: Change | None = None,
        until: int | None = None,
    ) -> None:
        super().__init__()
        self._told, self._change, self._until = told, change, until
        self._names = {
            id(tensor): name
            for named in (model.named_buffers(), model.named_parameters())
            for name, tensor in named
        }
        self._stack = [_Frame("", model)]
        self._count = 0
        self._silent = 0

    def enter(self, label: str, module: nn.Module) -> None:
        """A module is called."""
        self._stack.append(_Frame(label, module))

    def leave(self) -> None:
        """The module that was called last has ended."""
        self._stack.pop()

    @property
    def is_silent(self) -> bool:
        """Whether something is done that is not recorded."""
        return bool(self._silent)

    @property
    def count(self) -> int:
        """Calls so far."""
        return self._count

    def tag(self, value: torch.Tensor, number: int | None) -> None:
        """Say which call made a tensor."""
        if number is not None and id(value) not in self._names:
            setattr(value, _TAG, number)

    def made_by(self, value: torch.Tensor) -> int | None:
        """The call that made a tensor."""
        found: int | None = getattr(value, _TAG, None)
        return found

    def untold(self, function: Callable[[], Any]) -> Any:
        """Do something that is not recorded."""
        self._silent += 1
        try:
            return function()
        finally:
            self._silent -= 1

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function of PyTorch, and tell."""
        kwargs = kwargs or {}
        name = _name(func)
        if self._silent or name in _QUIET:
            return func(*args, **kwargs)
        if name in _INSIDE:
            with self, _opened():
                return func(*args, **kwargs)
        sources = [*tensors_in(args), *tensors_in(kwargs)]
        parents = tuple(dict.fromkeys(n for each in sources if (n := self.made_by(each)) is not None))
        result = func(*args, **kwargs)
        made = [args[0]] if name == "setitem" else [*tensors_in(result)]
        if not made:
            return result
        frame = self._stack[-1]
        call = Call(
            number=self._count,
            module=frame.label,
            class_name=type(frame.module).__name__,
            operator=name,
            ordinal=frame.calls,
            parents=parents,
            parameters=tuple(
                dict.fromkeys(self._names[id(each)] for each in sources if id(each) in self._names)
            ),
            numbers=tuple(_numbers(args, kwargs)),
        )
        self._count += 1
        frame.calls += 1
        if self._change is not None and self._change.number == call.number:
            given = Given(call, func, args, kwargs, result, settings_of(frame.module), self._names)
            self._silent += 1
            try:
                result = self._change.make(given)
            finally:
                self._silent -= 1
            made = [*tensors_in(result)]
        for each in made:
            self.tag(each, call.number)
        self._told(call, made)
        if self._until is not None and self._count > self._until:
            raise StoppedError
        return result


class RoundedNumbers(TorchFunctionMode):
    """Rounds the numbers among arguments as a file of half precision stores them, but for those that it has exactly.

    The scale of an attention is in no argument, and exporters store its root, which queries and keys are multiplied by.
    """

    def __init__(self, half: str, exact: Collection[float], stored: Collection[float]) -> None:
        super().__init__()
        self._half, self._exact, self._stored = half, exact, stored

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function of PyTorch with rounded numbers."""
        given = {} if kwargs is None else kwargs
        if _name(func) in _INSIDE:
            with self, _opened():
                return func(*args, **given)
        if _name(func) == "scaled_dot_product_attention" and args:
            return func(*args, **{**given, "scale": self._scale(args[0], given.get("scale"))})
        if _name(func) not in ("dropout", "full", "arange", "linspace"):
            args = tuple(self._round(each) for each in args)
            given = {name: self._round(each) for name, each in given.items()}
        return func(*args, **given)

    def _scale(self, query: torch.Tensor, said: float | None) -> float:
        """Of an attention, as the file has it: rounded, or the square of its rounded root, whichever it stores."""
        scale = query.shape[-1] ** -0.5 if said is None else said
        if scale > 0:
            root = round_to_half(math.sqrt(scale), self._half)
            if root in self._stored and root * root != scale:
                return root * root
        return float(self._round(scale))

    def _round(self, value: Any) -> Any:
        if not isinstance(value, float) or not abs(value) < _MOST:
            return value
        is_exact = struct.unpack("<f", struct.pack("<f", value))[0] in self._exact
        return value if is_exact else round_to_half(value, self._half)


@contextlib.contextmanager
def _opened() -> Iterator[None]:
    """While it runs: a function of `_INSIDE` does not hand itself to the mode that calls it, again and again."""
    names = vars(F)
    asked = names["has_torch_function"]
    names["has_torch_function"] = lambda _: False
    try:
        yield
    finally:
        names["has_torch_function"] = asked


_INSIDE = frozenset({"multi_head_attention_forward"})
"""Functions whose own calls are told, for they are written in Python and long."""
_SAME = {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div", "truediv": "div", "radd": "add"}
_SAME |= {"rmul": "mul", "rsub": "rsub", "rtruediv": "reciprocal_mul", "true_divide": "div", "pow_": "pow"}
_SAME |= {"rpow": "rpow", "rmatmul": "matmul", "imatmul": "matmul", "multiply": "mul", "divide": "div"}
_SAME |= {"subtract": "sub", "swish": "silu", "special_erf": "erf", "conv_transpose": "conv_transpose2d"}


def _name(func: Callable[..., Any]) -> str:
    name = getattr(func, "__name__", "") or str(resolve_name(func))
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", "get")
    if name in _QUIET:
        return name
    plain = name.strip("_")
    return _SAME.get(plain, plain)


def _numbers(args: Any, kwargs: Any) -> Iterator[float]:
    for each in [*args, *kwargs.values()]:
        if isinstance(each, (int, float)) and not isinstance(each, bool):
            yield float(each)


def settings_of(module: nn.Module) -> dict[str, object]:
    """What a module was told, as far as it is numbers and words."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and name != "training"
        and (isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= _SHORT))
    }


@dataclass(slots=True)
class Labels:
    """How often each module was called."""

    counts: dict[str, int] = field(default_factory=dict)

    def of(self, name: str) -> str:
        """The label of its next call."""
        self.counts[name] = count = self.counts.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"
