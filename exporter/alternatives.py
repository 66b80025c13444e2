"""A call of PyTorch, or of a module -> computations that a file may have instead; each is tried, none is assumed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  as all of PyTorch's documentation has it

from analyzer.model.dtypes import is_one_in_half
from exporter.recording import ExecutedCall, tensors_in

Tensor = torch.Tensor
_Instead = Callable[[nn.Module, tuple[Any, ...], Mapping[str, Any], Any], Any]


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another computation in the place of a call."""

    kind: str
    """Kind: `operator`, `attribute`, `constant`, `weight`, `input`, `layer`."""
    expected: str
    """PyTorch's side, in words."""
    found: str
    """Alternative, in words."""
    make: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class ModuleAlternative:
    """Another computation in the place of a module."""

    kind: str
    expected: str
    found: str
    make: _Instead
    """Function of the module, its arguments, and its result."""


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "Relu": F.relu,
    "Gelu": F.gelu,
    "Gelu with approximate tanh": lambda x: F.gelu(x, approximate="tanh"),
    "Silu": F.silu,
    "Tanh": torch.tanh,
    "Sigmoid": torch.sigmoid,
    "LeakyRelu": F.leaky_relu,
    "Elu": F.elu,
    "Selu": F.selu,
    "QuickGelu": lambda x: x * torch.sigmoid(1.702 * x),
    "HardSwish": F.hardswish,
    "HardSigmoid": F.hardsigmoid,
    "HardSigmoid with ONNX's default slope": lambda x: torch.clamp(0.2 * x + 0.5, 0, 1),
    "Mish": F.mish,
    "Softplus": F.softplus,
    "Relu of 6": F.relu6,
    "Celu": F.celu,
    "Softsign": F.softsign,
    "Erf": torch.erf,
    "Relu squared": lambda x: F.relu(x) ** 2,
    "Exp": torch.exp,
    "Neg": torch.neg,
    "Abs": torch.abs,
    "Sin": torch.sin,
    "Cos": torch.cos,
}
_ACTIVE = frozenset(
    {
        *("relu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "elu", "selu", "hardswish", "hardsigmoid"),
        *("mish", "softplus", "relu6", "celu", "softsign", "erf", "exp", "neg", "abs", "sin", "cos"),
        *("hardtanh", "clamp", "prelu", "logsigmoid", "relu_"),
    }
)
_EPSILONS = ("eps", "variance_epsilon", "epsilon", "layer_norm_epsilon")
_WITH_DIM = frozenset(
    {"softmax", "log_softmax", "mean", "sum", "cumsum", "norm", "var", "std", "amax", "normalize"}
)
_MOST_WEIGHTS = 16
_STEPS = {"FLOAT16": 2.0**-9, "BFLOAT16": 2.0**-6}
"""Relative error of the square of a number that is rounded to half precision."""


def call_alternatives(
    executed: ExecutedCall, numbers: Sequence[float], parameters: Mapping[str, Tensor], half: str = ""
) -> Iterator[Alternative]:
    """Yield the alternatives of a call.

    Args:
        executed: the call.
        numbers: epsilons, scales and similar numbers in the file.
        parameters: of the model, by name.
        half: the half-precision type of the file; empty if it has none.
    """
    name, args = executed.call.operator, executed.args
    x = next(tensors_in(args), None)
    if x is None or not any(each.is_floating_point() for each in tensors_in(executed.result)):
        return
    if name in _ACTIVE:
        for other, function in ACTIVATIONS.items():
            if other.lower() != name:
                yield Alternative("operator", _camel_case(name), other, _of(function, x))
        own = _own_numbers(executed).values()
        for number in numbers:
            if half and any(is_one_in_half(number, each, half) for each in own):
                continue
            yield Alternative(
                "attribute", _camel_case(name), f"LeakyRelu alpha {number:g}", _of(F.leaky_relu, x, number)
            )
            yield Alternative("attribute", _camel_case(name), f"Elu alpha {number:g}", _of(F.elu, x, number))
    yield from _other_numbers(executed, numbers, half)
    yield from _other_dims(executed)
    rule = _RULES.get(name)
    if rule is not None:
        yield from _attend(executed, numbers, half) if rule is _attend else rule(executed, numbers)
    yield from _other_weights(executed, parameters)
    if isinstance(executed.result, Tensor) and executed.result.shape == x.shape and name not in _MOVING:
        yield Alternative("operator", _camel_case(name), "nothing: it is left out", lambda: x)
    if isinstance(executed.result, Tensor) and executed.result.is_floating_point():
        y = executed.result
        for dtype in (torch.float16, torch.bfloat16):
            yield Alternative(
                "operator",
                "FLOAT",
                f"a Cast to {str(dtype)[6:]}",
                _of(_rounded, y, dtype),
            )
        yield Alternative("operator", "FLOAT", "a Cast to integers", y.trunc)
        yield Alternative("operator", _camel_case(name), f"{_camel_case(name)}, and Neg", y.neg)


_MOVING = frozenset(
    {
        *(
            "view",
            "reshape",
            "transpose",
            "permute",
            "contiguous",
            "to",
            "float",
            "type_as",
            "expand",
            "squeeze",
        ),
        *("unsqueeze", "flatten", "dropout", "clone", "detach", "getitem", "split", "chunk", "T", "mT"),
    }
)


def _camel_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_") if part)


def _of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[], Any]:
    return lambda: function(*args, **kwargs)


def _same(value: Any) -> Any:
    return value


def _rounded(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype).to(value.dtype)


def _padded(function: Callable[..., Any], pad: tuple[Any, ...], *args: Any, **kwargs: Any) -> Any:
    return function(F.pad(*pad), *args, **kwargs)


def _bound(executed: ExecutedCall) -> inspect.BoundArguments | None:
    """Return the arguments by name; None if the function is not written in Python."""
    try:
        bound = inspect.signature(executed.function).bind(*executed.args, **executed.kwargs)
    except (TypeError, ValueError):
        return None
    bound.apply_defaults()
    return bound


def _other_numbers(executed: ExecutedCall, numbers: Sequence[float], half: str) -> Iterator[Alternative]:
    """Replace each number among the arguments by each of the file's that is not the same number rounded."""
    if executed.call.operator in ("dropout", "getitem", *_MOVING):
        return
    bound = _bound(executed)
    for place, value in _own_numbers(executed).items():
        label = _name_number(executed, place, value)
        for number in numbers:
            if math.isclose(number, value, rel_tol=1e-6) or (half and is_one_in_half(number, value, half)):
                continue

            def make(place: Any = place, number: float = number) -> Any:
                if bound is not None:
                    again = inspect.signature(executed.function).bind(*executed.args, **executed.kwargs)
                    again.apply_defaults()
                    again.arguments[place] = number
                    return executed.function(*again.args, **again.kwargs)
                if isinstance(place, int):
                    args = [*executed.args]
                    args[place] = number
                    return executed.function(*args, **executed.kwargs)
                return executed.function(*executed.args, **{**executed.kwargs, place: number})

            kind = "attribute" if label.startswith("epsilon") else "constant"
            yield Alternative(kind, f"{label} {value:g}", f"{label} {number:g}", make)


def _own_numbers(executed: ExecutedCall) -> dict[Any, float]:
    """Return the numbers among a call's arguments, by name or position."""
    bound = _bound(executed)
    if bound is not None:
        return {key: v for key, v in bound.arguments.items() if isinstance(v, float)}
    places: dict[Any, float] = {at: v for at, v in enumerate(executed.args) if _is_number(v)}
    return places | {key: v for key, v in executed.kwargs.items() if isinstance(v, float)}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _name_number(executed: ExecutedCall, place: object, value: float) -> str:
    """Name a number, after the argument or after the setting of the module that has the value."""
    if place in ("eps", "epsilon") or any(executed.settings.get(key) == value for key in _EPSILONS):
        return "epsilon"
    if isinstance(place, str):
        return "epsilon" if place == "eps" else place
    known = [key for key, own in executed.settings.items() if _is_number(own) and own == value]
    if executed.call.operator in ("mul", "div") and not known:
        return "scale"
    if executed.call.operator == "add" and 0 < value < 1e-3:
        return "epsilon"
    return known[0] if known else f"{_camel_case(executed.call.operator)} by"


def _other_dims(executed: ExecutedCall) -> Iterator[Alternative]:
    if executed.call.operator not in _WITH_DIM:
        return
    x = executed.args[0]
    rank, dim = x.ndim, executed.kwargs.get("dim", executed.args[1] if len(executed.args) > 1 else None)
    if isinstance(dim, (list, tuple)) and len(dim) == 1:
        dim = dim[0]
    if not isinstance(dim, int) or isinstance(dim, bool):
        return
    for other in range(rank):
        if other == dim % rank or x.shape[other] < 2:
            continue

        def make(other: int = other) -> Any:
            if "dim" in executed.kwargs:
                return executed.function(*executed.args, **{**executed.kwargs, "dim": other})
            return executed.function(x, other, *executed.args[2:], **executed.kwargs)

        yield Alternative("attribute", f"axis {dim % rank}", f"axis {other}", make)


def _other_weights(executed: ExecutedCall, parameters: Mapping[str, Tensor]) -> Iterator[Alternative]:
    """Replace each parameter among the arguments by others of its shape, nearest names first."""
    names = executed.names
    for at, value in [*enumerate(executed.args), *executed.kwargs.items()]:
        own = names.get(id(value)) if isinstance(value, Tensor) else None
        if own is None or value.numel() < 2:
            continue

        def make(other: Tensor, at: Any = at) -> Callable[[], Any]:
            def call() -> Any:
                if isinstance(at, int):
                    args = [*executed.args]
                    args[at] = other
                    return executed.function(*args, **executed.kwargs)
                return executed.function(*executed.args, **{**executed.kwargs, at: other})

            return call

        if value.ndim == 2 and value.shape[0] == value.shape[1]:
            yield Alternative("weight", own, f"{own}, transposed", make(value.t()))
        alike = [
            (name, each) for name, each in parameters.items() if name != own and each.shape == value.shape
        ]
        alike.sort(key=lambda pair: -_shared(own, pair[0]))
        for name, each in alike[:_MOST_WEIGHTS]:
            yield Alternative("weight", own, name, make(each))


def _shared(one: str, other: str) -> int:
    """Count the parts that two names have in common, in the same positions."""
    return sum(a == b for a, b in zip(one.split("."), other.split("."), strict=False))


def _linear(executed: ExecutedCall, _: Sequence[float]) -> Iterator[Alternative]:
    x, w, bias = [
        *executed.args,
        *[executed.kwargs.get(k) for k in ("weight", "bias")][len(executed.args) - 1 :],
        None,
    ][:3]
    if isinstance(bias, Tensor):
        name = executed.names.get(id(bias), "bias")
        yield Alternative("weight", name, "no bias", lambda: F.linear(x, w))
        yield Alternative("weight", name, f"{name} twice", lambda: F.linear(x, w, 2 * bias))
        yield Alternative("operator", "Add of the bias", "Sub of the bias", lambda: F.linear(x, w, -bias))


def _normalize(executed: ExecutedCall, _: Sequence[float]) -> Iterator[Alternative]:
    bound = _bound(executed)
    if bound is None:
        return
    a = bound.arguments
    x, shape, weight, bias = (a.get(k) for k in ("input", "normalized_shape", "weight", "bias"))
    eps = float(a.get("eps") or 0)
    if not isinstance(x, Tensor) or shape is None:
        return
    yield Alternative("weight", "weight", "no weight", lambda: F.layer_norm(x, shape, None, bias, eps))
    if bias is not None:
        yield Alternative("weight", "bias", "no bias", lambda: F.layer_norm(x, shape, weight, None, eps))
    if len(shape) == 1:
        scale, shift = (1 if weight is None else weight), (0 if bias is None else bias)
        yield Alternative(
            "operator",
            "LayerNormalization",
            "RMSNormalization: the mean is not subtracted",
            lambda: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * scale + shift,
        )
        for axis in range(x.ndim - 1):
            dims = tuple(range(axis, x.ndim))
            for over, label in ((dims, f"axis {axis}"), ((axis,), f"axis {axis} alone")):

                def make(over: tuple[int, ...] = over) -> Tensor:
                    mean = x.mean(over, keepdim=True)
                    var = ((x - mean) ** 2).mean(over, keepdim=True)
                    return (x - mean) * torch.rsqrt(var + eps) * scale + shift

                yield Alternative("attribute", f"axis {x.ndim - 1}", label, make)


def _add(executed: ExecutedCall, _: Sequence[float]) -> Iterator[Alternative]:
    a, b = _pair(executed)
    if a is None or b is None:
        return
    name = _camel_case(executed.call.operator)
    if executed.call.operator == "add":
        for kept, lost in ((a, "second"), (b, "first")):
            if kept.shape == executed.result.shape:
                found = "a sum without its " + lost + " term: the residual is dropped"
                yield Alternative("input", "Add of two values", found, _of(_same, kept))
    for found, function in (("Add", torch.add), ("Sub", torch.sub), ("Mul", torch.mul), ("Div", torch.div)):
        if found != name:
            yield Alternative("operator", name, found, _of(function, a, b))
    yield Alternative("operator", name, "Sub with its operands exchanged", lambda: b - a)
    yield Alternative("operator", name, "Max", lambda: torch.maximum(a, b))
    if executed.call.operator in ("mul", "div"):
        for kept, lost in ((a, "second"), (b, "first")):
            if kept.shape == executed.result.shape:
                found = f"its {lost} factor left out"
                yield Alternative("input", f"{name} of two values", found, _of(_same, kept))
    if name == "Add":
        yield Alternative("constant", "Add", "Add of the first term twice", lambda: a + a + b)
        yield Alternative("constant", "Add", "Add of the second term twice", lambda: a + b + b)
        yield Alternative("constant", "Add", "Add of half of the second term", lambda: a + b / 2)
        yield Alternative("constant", "Add", "Add of half of the first term", lambda: a / 2 + b)


def _pair(executed: ExecutedCall) -> tuple[Tensor | None, Tensor | None]:
    found = [*executed.args, *executed.kwargs.values()][:2]
    if len(found) < 2 or not all(isinstance(each, Tensor) for each in found):
        return None, None
    return found[0], found[1]


def _multiply(executed: ExecutedCall, _: Sequence[float]) -> Iterator[Alternative]:
    a, b = _pair(executed)
    if a is None or b is None:
        return
    if b.ndim > 1 and b.shape[-1] == b.shape[-2]:
        yield Alternative("input", "MatMul", "MatMul with the second operand transposed", lambda: a @ b.mT)
    if a.ndim > 1 and a.shape[-1] == a.shape[-2]:
        yield Alternative("input", "MatMul", "MatMul with the first operand transposed", lambda: a.mT @ b)


def _attend(executed: ExecutedCall, numbers: Sequence[float], half: str = "") -> Iterator[Alternative]:
    bound_names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    arguments = dict(zip(bound_names, executed.args, strict=False)) | dict(executed.kwargs)
    q, k, v = arguments["query"], arguments["key"], arguments["value"]
    mask, causal = arguments.get("attn_mask"), bool(arguments.get("is_causal"))
    own = arguments.get("scale")
    width = q.shape[-1]
    scale = 1 / math.sqrt(width) if own is None else float(own)
    grouped = bool(arguments.get("enable_gqa")) or k.shape[1] != q.shape[1]
    if grouped and k.ndim == 4:
        k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))

    def attend(
        q: Tensor = q,
        k: Tensor = k,
        v: Tensor = v,
        mask: Any = mask,
        causal: bool = causal,
        scale: float = scale,
        dim: int = -1,
    ) -> Tensor:
        scores = (q @ k.mT) * scale
        if causal:
            rows, columns = scores.shape[-2:]
            ahead = torch.ones(rows, columns, dtype=torch.bool).tril().logical_not()
            scores = scores.masked_fill(ahead, -math.inf)
        if isinstance(mask, Tensor):
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
        return torch.nan_to_num(torch.softmax(scores, dim)) @ v

    scales = [1.0, 1 / width, math.sqrt(width), scale * 2, scale / 2, scale * scale, scale * 10, scale / 10]
    scales += [n * scale for n in numbers] + [n * n for n in numbers] + [1 / n for n in numbers if n]
    for number in dict.fromkeys([*numbers, *scales]):
        if not math.isclose(number, scale, rel_tol=_STEPS.get(half, 1e-5)) and 1e-6 < abs(number) < 1e6:
            yield Alternative(
                "constant",
                f"scale {scale:g}",
                f"scale {number:g}",
                _of(attend, scale=number),
            )
    if mask is not None or causal:
        yield Alternative("input", "a mask", "no mask", lambda: attend(mask=None, causal=False))
        if causal and mask is not None:
            yield Alternative("input", "a mask", "no padding mask", lambda: attend(mask=None))
    if not causal:
        yield Alternative("input", "no causal mask", "a causal mask", lambda: attend(causal=True))
    if isinstance(mask, Tensor):
        if mask.dtype == torch.bool:
            yield Alternative("constant", "the mask", "the mask, inverted", lambda: attend(mask=~mask))
            for number in (-1.0, 0.0, -10.0, -100.0, -1000.0, *[n for n in numbers if n < 0], 1.0):
                yield Alternative(
                    "constant",
                    "the mask",
                    f"the mask, {number:g} at masked positions",
                    _of(attend, mask=torch.where(mask, 0.0, number)),
                )
        rows = mask.shape[-2]
        if rows == mask.shape[-1] > 1:
            yield Alternative("input", "the mask", "the mask, transposed", lambda: attend(mask=mask.mT))
            causal_only = torch.ones(rows, rows, dtype=torch.bool).tril()
            yield Alternative(
                "input", "a padding and causal mask", "a causal mask only", lambda: attend(mask=causal_only)
            )
            if mask.dtype == torch.bool:
                whole = mask | ~causal_only
                last = mask[..., -1:, :]
                yield Alternative(
                    "input",
                    "a causal mask",
                    "a padding mask only",
                    lambda: attend(mask=last.expand_as(whole)),
                )
            for off in (-1, 1, -2, 2):
                moved = torch.ones(rows, rows, dtype=torch.bool).tril(off)
                yield Alternative(
                    "constant", "the mask", f"the mask, shifted by {off:+d}", _of(attend, mask=moved)
                )
        yield Alternative("constant", "the mask", "the mask, twice", lambda: attend(mask=_float(mask) * 2))
    yield Alternative("attribute", "axis 3 of Softmax", "axis 2 of Softmax", lambda: attend(dim=-2))
    if q.shape[1] > 1 and q.ndim == 4:
        yield Alternative("attribute", "axis 3 of Softmax", "axis 1 of Softmax", lambda: attend(dim=1))
    if q.shape == k.shape:
        yield Alternative("input", "query and key", "key and query exchanged", lambda: attend(q=k, k=q))
    if k.shape == v.shape:
        yield Alternative("input", "key and value", "value and key exchanged", lambda: attend(k=v, v=k))
        yield Alternative("input", "value", "key in the place of value", lambda: attend(v=k))
    if q.shape == v.shape:
        yield Alternative("input", "query and value", "value and query exchanged", lambda: attend(q=v, v=q))


def _float(mask: Tensor) -> Tensor:
    return mask if mask.is_floating_point() else torch.where(mask, 0.0, -math.inf)


def _look_up(executed: ExecutedCall, _: Sequence[float]) -> Iterator[Alternative]:
    a, b = executed.args[0], executed.args[1] if len(executed.args) > 1 else executed.kwargs.get("weight")
    ids, table = (a, b) if not a.is_floating_point() else (b, a)
    if not isinstance(ids, Tensor) or not isinstance(table, Tensor) or ids.is_floating_point():
        return
    for off in (1, -1, 2, -2, 3):
        yield Alternative(
            "constant",
            "the ids",
            f"the ids {off:+d}",
            _of(F.embedding, (ids + off).clamp(0, table.shape[0] - 1), table),
        )
        rolled = torch.roll(table, off, 0)
        yield Alternative(
            "weight", "the table", f"the table, rows moved by {off}", _of(F.embedding, ids, rolled)
        )
    yield Alternative("constant", "the ids", "zeros", lambda: table[torch.zeros_like(ids)])
    yield Alternative("weight", "the table", "the table with its rows reversed", lambda: table.flip(0)[ids])
    if ids.ndim and ids.shape[-1] > 1:
        yield Alternative("input", "the ids", "the ids reversed", lambda: table[ids.flip(-1)])
    yield Alternative("weight", "the table", "a table of zeros", lambda: torch.zeros_like(executed.result))


def _join(executed: ExecutedCall, _: Sequence[float]) -> Iterator[Alternative]:
    parts = executed.args[0] if executed.args else executed.kwargs.get("tensors")
    if not isinstance(parts, (list, tuple)) or len(parts) < 2:
        return
    rest = executed.args[1:]
    backwards = [*reversed(parts)]
    yield Alternative(
        "input",
        "Concat",
        "Concat in the other order",
        lambda: executed.function(backwards, *rest, **executed.kwargs),
    )


def _mask(executed: ExecutedCall, _: Sequence[float]) -> Iterator[Alternative]:
    if executed.call.operator == "where" and len(executed.args) == 3:
        c, a, b = executed.args
        if isinstance(c, Tensor):
            yield Alternative("input", "Where", "Where, inverted", lambda: torch.where(~c.bool(), a, b))
    if executed.call.operator == "masked_fill" and len(executed.args) == 3:
        x, m, value = executed.args
        yield Alternative("input", "a mask", "a mask, inverted", lambda: x.masked_fill(~m, value))


def _convolve(executed: ExecutedCall, _: Sequence[float]) -> Iterator[Alternative]:
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    arguments = dict(zip(names, executed.args, strict=False)) | dict(executed.kwargs)
    x, w, bias = arguments["input"], arguments["weight"], arguments.get("bias")
    rest = {k: arguments[k] for k in ("stride", "padding", "dilation", "groups") if k in arguments}
    if isinstance(bias, Tensor):
        name = executed.names.get(id(bias), "bias")
        yield Alternative("weight", name, "no bias", lambda: executed.function(x, w, None, **rest))
    own = executed.names.get(id(w), "weight")
    axes = tuple(range(2, w.ndim))
    if any(w.shape[axis] > 1 for axis in axes):
        yield Alternative(
            "weight", own, f"{own}, flipped", lambda: executed.function(x, w.flip(axes), bias, **rest)
        )
        if len(axes) == 2 and w.shape[2] == w.shape[3]:
            yield Alternative(
                "weight", own, f"{own}, transposed", lambda: executed.function(x, w.mT, bias, **rest)
            )
    if w.shape[0] == w.shape[1]:
        turned = w.transpose(0, 1)
        yield Alternative(
            "weight", own, f"{own}, transposed", lambda: executed.function(x, turned, bias, **rest)
        )
    pads = arguments.get("padding", 0)
    pads = [pads] * len(axes) if isinstance(pads, int) else list(pads) if not isinstance(pads, str) else []
    if any(pads) and w.ndim - 2 == len(pads):
        unpadded = {**rest, "padding": 0}
        for direction, sides in (("to the right", (0, 2)), ("to the left", (2, 0))):
            wide = [side * pad for pad in reversed(pads) for side in sides]
            yield Alternative(
                "attribute",
                f"pads {pads}",
                f"all pads {direction}",
                _of(_padded, executed.function, (x, wide), w, bias, **unpadded),
            )
        for mode in ("reflect", "replicate"):
            wide = [pad for pad in reversed(pads) for _ in (0, 1)]
            yield Alternative(
                "attribute",
                "pads of zeros",
                f"pads by {mode}",
                _of(_padded, executed.function, (x, wide, mode), w, bias, **unpadded),
            )
    if any(size > 1 for size in w.shape[2:]):
        for times in (2, 3):
            wider = [
                pad + (times - 1) * (size - 1) // 2 for pad, size in zip(pads, w.shape[2:], strict=False)
            ]
            again = {**rest, "padding": wider, "dilation": times}
            yield Alternative(
                "attribute",
                "dilations 1",
                f"dilations {times}",
                _of(executed.function, x, w, bias, **again),
            )


def _pool(executed: ExecutedCall, _: Sequence[float]) -> Iterator[Alternative]:
    x = executed.args[0]
    bound = _bound(executed)
    if executed.call.operator.startswith("adaptive_avg_pool"):
        most = getattr(F, executed.call.operator.replace("avg", "max"))
        yield Alternative(
            "operator", "an average", "a maximum", lambda: most(*executed.args, **executed.kwargs)
        )
        return
    names = (
        "input",
        "kernel_size",
        "stride",
        "padding",
        "ceil_mode",
        "count_include_pad",
        "divisor_override",
    )
    if executed.call.operator.startswith("max_pool"):
        if bound is None:
            return
        a = bound.arguments
        kept = {k: a[k] for k in ("kernel_size", "stride", "padding", "ceil_mode") if a.get(k) is not None}
        mean = getattr(F, executed.call.operator.replace("max", "avg").partition("_with")[0])
        for counts in (True, False):
            yield Alternative(
                "operator",
                "MaxPool",
                "AveragePool",
                _of(mean, x, **kept, count_include_pad=counts),
            )
        return
    arguments = dict(zip(names, executed.args, strict=False)) | dict(executed.kwargs)
    counts = bool(arguments.get("count_include_pad", True))
    again = {k: v for k, v in arguments.items() if k != "input"} | {"count_include_pad": not counts}
    yield Alternative(
        "attribute",
        f"count_include_pad {int(counts)}",
        f"count_include_pad {int(not counts)}",
        lambda: executed.function(x, **again),
    )
    if arguments.get("divisor_override"):
        plain = {k: v for k, v in arguments.items() if k not in ("input", "divisor_override")}
        expected = f"divisor_override {arguments['divisor_override']}"
        yield Alternative("attribute", expected, "no divisor_override", lambda: executed.function(x, **plain))
    most = getattr(F, executed.call.operator.replace("avg", "max"), None)
    if most is not None:
        kept = {k: v for k, v in arguments.items() if k in ("kernel_size", "stride", "padding", "ceil_mode")}
        yield Alternative("operator", "AveragePool", "MaxPool", lambda: most(x, **kept))


def _center(executed: ExecutedCall, _: Sequence[float]) -> Iterator[Alternative]:
    """Exchange the statistics of a batch normalization, or use the batch's own."""
    bound = _bound(executed)
    if bound is None:
        return
    a = bound.arguments
    x, mean, var = a.get("input"), a.get("running_mean"), a.get("running_var")
    weight, bias, eps = a.get("weight"), a.get("bias"), float(a.get("eps") or 0)
    if not (isinstance(x, Tensor) and isinstance(mean, Tensor) and isinstance(var, Tensor)):
        return
    yield Alternative(
        "weight",
        "running_mean and running_var",
        "the two exchanged",
        lambda: F.batch_norm(x, var, mean.abs(), weight, bias, eps=eps),
    )
    yield Alternative(
        "operator",
        "BatchNormalization with stored statistics",
        "BatchNormalization in training",
        lambda: F.batch_norm(x, None, None, weight, bias, training=True, eps=eps),
    )
    yield Alternative(
        "weight", "weight", "no weight", lambda: F.batch_norm(x, mean, var, None, bias, eps=eps)
    )
    yield Alternative("weight", "bias", "no bias", lambda: F.batch_norm(x, mean, var, weight, None, eps=eps))


def _scatter(executed: ExecutedCall, _: Sequence[float]) -> Iterator[Alternative]:
    """Combine the values that are scattered to one place in another way, or not at all."""
    names = ("input", "dim", "index", "src", "reduce")
    arguments = dict(zip(names, executed.args, strict=False)) | dict(executed.kwargs)
    x, dim, index, source = (arguments[name] for name in names[:4])
    reduction, whole = str(arguments["reduce"]), bool(arguments.get("include_self", True))
    own = f"reduction {reduction}"
    alone = _of(torch.scatter, x, dim, index, source)
    yield Alternative("attribute", own, "reduction none: the last value stays", alone)
    for other in ("sum", "prod", "mean", "amax", "amin"):
        if other != reduction:
            again = _of(torch.scatter_reduce, x, dim, index, source, other, include_self=whole)
            yield Alternative("attribute", own, f"reduction {other}", again)
    expected, found = f"include_self={whole}", f"include_self={not whole}"
    turned = _of(torch.scatter_reduce, x, dim, index, source, reduction, include_self=not whole)
    yield Alternative("attribute", f"{own} with {expected}", f"{own} with {found}", turned)


_RULES: Mapping[str, Callable[[ExecutedCall, Sequence[float]], Iterator[Alternative]]] = {
    "linear": _linear,
    "layer_norm": _normalize,
    **dict.fromkeys(("add", "sub", "mul", "div"), _add),
    **dict.fromkeys(("matmul", "bmm"), _multiply),
    "scaled_dot_product_attention": _attend,
    **dict.fromkeys(("embedding", "index_select"), _look_up),
    **dict.fromkeys(("cat", "concat", "stack"), _join),
    **dict.fromkeys(("where", "masked_fill"), _mask),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "conv_transpose2d"), _convolve),
    **dict.fromkeys(
        (
            *("avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d", "max_pool2d_with_indices"),
            *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "boolean_dispatch"),
        ),
        _pool,
    ),
    "batch_norm": _center,
    "scatter_reduce": _scatter,
}


def module_alternatives(
    module: nn.Module, label: str, siblings: Mapping[str, nn.Module]
) -> Iterator[ModuleAlternative]:
    """Yield the alternatives of a module: nothing, itself twice, another of its class, another activation.

    Args:
        module: the called module.
        label: its path.
        siblings: others of its class, by path.
    """
    path = label.partition("#")[0]
    yield ModuleAlternative(
        "layer", path, f"nothing: {path} is skipped", lambda m, a, k, y: _exchange(y, _first(a, k))
    )
    yield ModuleAlternative(
        "layer",
        path,
        f"{path}, applied twice",
        lambda m, a, k, y: m(*_again(a, k, y)[0], **_again(a, k, y)[1]),
    )
    names = sorted(siblings, key=lambda name: -_shared(path, name))
    at = list(siblings).index(path) if path in siblings else -1
    near = [*siblings][max(0, at - 1) : at + 2]
    for name in dict.fromkeys([*near, *names][:12]):
        if name != path:
            yield ModuleAlternative("layer", path, name, _replaced_by(siblings[name]))
    yield ModuleAlternative(
        "input",
        "the residual is added",
        "the residual is dropped",
        lambda m, a, k, y: _exchange(y, next(tensors_in(y)) - _first(a, k)),
    )
    if not any(True for _ in module.parameters()):
        name = type(module).__name__
        for activation, function in ACTIVATIONS.items():
            yield ModuleAlternative("operator", name, activation, _activated(function))


def _activated(function: Callable[[Tensor], Tensor]) -> _Instead:
    return lambda m, a, k, y: _exchange(y, function(_first(a, k)))


def _replaced_by(other: nn.Module) -> _Instead:
    return lambda m, a, k, y: other(*a, **k)


def _first(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    return next(each for each in tensors_in([args, kwargs]) if each.is_floating_point())


def _again(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Replace the first tensor of the arguments by the first tensor of the result."""
    made = next(tensors_in(result))
    for at, value in enumerate(args):
        if isinstance(value, Tensor):
            return (*args[:at], made, *args[at + 1 :]), kwargs
    name = next(name for name, value in kwargs.items() if isinstance(value, Tensor))
    return args, {**kwargs, name: made}


def _exchange(result: Any, value: Tensor) -> Any:
    """Replace the first tensor of a module's result by another of the same shape.

    Raises:
        ValueError: the shape differs, or the result holds no tensor that can be replaced.
    """
    own = next(tensors_in(result))
    if own.shape != value.shape:
        raise ValueError("another shape")
    if isinstance(result, Tensor):
        return value
    if isinstance(result, tuple) and type(result) is tuple:
        return (value, *result[1:])
    if isinstance(result, list):
        return [value, *result[1:]]
    if isinstance(result, dict):
        key = next(key for key, each in result.items() if isinstance(each, Tensor))
        made = type(result)(result)
        made[key] = value
        return made
    raise ValueError("no tensor, tuple or mapping")
