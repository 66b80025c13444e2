"""A forward pass -> every call of a PyTorch function in it: its operator, its module and its inputs.

Calls are seen as they are written (`layer_norm`, `matmul`, `+`), without a trace: any model that runs can be recorded.
The call that made a value identifies it, past all views. One call of a pass may be replaced by another, to see the
result of the pass with that change.
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
from torch._C._functorch import is_functorch_wrapped_tensor
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
"""Most characters of a string setting that is kept."""
_MOST = 1e30
"""Magnitude from which a number is a mask, and is not rounded."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a PyTorch function."""

    number: int
    module: str
    """Path of the calling module; with `#2` appended in the module's second call."""
    class_name: str
    operator: str
    """Name such as `layer_norm`, `matmul`, `add`."""
    ordinal: int
    """Position among the calls in this call of the module."""
    parents: tuple[int, ...]
    """Calls that made the inputs."""
    parameters: tuple[str, ...]
    """Parameters and buffers among the inputs."""
    numbers: tuple[float, ...]
    """Numbers among the arguments."""


@dataclass(frozen=True, slots=True)
class ExecutedCall:
    """Function and arguments of a call, to compute another value from."""

    call: Call
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any
    settings: Mapping[str, object]
    """Settings of the module."""
    names: Mapping[int, str]
    """Names of parameters and buffers, by the identity of the tensor."""


@dataclass(frozen=True, slots=True)
class Change:
    """Another value in the place of one call's result."""

    number: int
    make: Callable[[ExecutedCall], Any]


class StoppedError(Exception):
    """End of a pass of which enough was seen."""


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested lists, tuples and mappings."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from tensors_in(each)


@dataclass(slots=True)
class _Frame:
    """Call of a module that has not ended."""

    label: str
    module: nn.Module
    calls: int = 0


class Recorder(TorchFunctionMode):
    """Reports each call, while it is entered and the module's hooks are registered."""

    def __init__(
        self,
        model: nn.Module,
        report: Callable[[Call, Sequence[torch.Tensor]], None],
        change: Change | None = None,
        until: int | None = None,
    ) -> None:
        super().__init__()
        self._report, self._change, self._until = report, change, until
        self._names = {
            id(tensor): name
            for tensors in (model.named_buffers(), model.named_parameters())
            for name, tensor in tensors
        }
        self._stack = [_Frame("", model)]
        self._count = 0
        self._silent = 0

    def enter(self, label: str, module: nn.Module) -> None:
        """Note that a module is called."""
        self._stack.append(_Frame(label, module))

    def leave(self) -> None:
        """Note that the most recent call of a module has ended."""
        self._stack.pop()

    @property
    def is_silent(self) -> bool:
        """Whether the current calls are not recorded."""
        return bool(self._silent)

    @property
    def count(self) -> int:
        """Number of calls so far."""
        return self._count

    def tag(self, value: torch.Tensor, number: int | None) -> None:
        """Note which call made a tensor."""
        if number is not None and id(value) not in self._names:
            setattr(value, _TAG, number)

    def made_by(self, value: torch.Tensor) -> int | None:
        """Return the call that made a tensor."""
        found: int | None = getattr(value, _TAG, None)
        return found

    def without_recording(self, function: Callable[[], Any]) -> Any:
        """Run a function without recording its calls."""
        self._silent += 1
        try:
            return function()
        finally:
            self._silent -= 1

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a PyTorch function, and report the call."""
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
        if not made or any(map(is_functorch_wrapped_tensor, made)):  # within vmap a value has no numbers
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
            executed = ExecutedCall(call, func, args, kwargs, result, settings_of(frame.module), self._names)
            self._silent += 1
            try:
                result = self._change.make(executed)
            finally:
                self._silent -= 1
            made = [*tensors_in(result)]
        for each in made:
            self.tag(each, call.number)
        self._report(call, made)
        if self._until is not None and self._count > self._until:
            raise StoppedError
        return result


class RoundedNumbers(TorchFunctionMode):
    """Rounds numbers among arguments to half precision, as a file stores them; numbers that the file has exactly stay.

    The scale of an attention is no argument. Exporters store its square root, which multiplies queries and keys.
    """

    def __init__(self, half: str, exact: Collection[float], stored: Collection[float]) -> None:
        super().__init__()
        self._half, self._exact, self._stored = half, exact, stored

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a PyTorch function with rounded numbers."""
        keywords = {} if kwargs is None else kwargs
        if _name(func) in _INSIDE:
            with self, _opened():
                return func(*args, **keywords)
        if _name(func) == "scaled_dot_product_attention" and args:
            return func(*args, **{**keywords, "scale": self._scale(args[0], keywords.get("scale"))})
        if _name(func) not in ("dropout", "full", "arange", "linspace"):
            args = tuple(self._round(each) for each in args)
            keywords = {name: self._round(each) for name, each in keywords.items()}
        return func(*args, **keywords)

    def _scale(self, query: torch.Tensor, requested: float | None) -> float:
        """Return an attention's scale as the file stores it: rounded, or the square of its rounded root."""
        scale = query.shape[-1] ** -0.5 if requested is None else requested
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
    """Keep a function of `_INSIDE` from passing itself to the calling mode again and again, while the block runs."""
    names = vars(F)
    original = names["has_torch_function"]
    names["has_torch_function"] = lambda _: False
    try:
        yield
    finally:
        names["has_torch_function"] = original


_INSIDE = frozenset({"multi_head_attention_forward"})
"""Functions whose inner calls are reported, because they are long Python functions."""
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
    """Return a module's settings that are numbers or short strings."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and name != "training"
        and (isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= _SHORT))
    }


@dataclass(slots=True)
class Labels:
    """Number of calls of each module."""

    counts: dict[str, int] = field(default_factory=dict)

    def of(self, name: str) -> str:
        """Return the label of a module's next call."""
        self.counts[name] = count = self.counts.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"
