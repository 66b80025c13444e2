"""A traced program -> its values that depend on no input: each with its expression, parameters and readers.

Parameters, buffers and lifted constants are known. A call whose inputs are all known is evaluated, and is then known
too. An exporter may compute such a value in advance and store it (docs/reference/bridge.md, `evaluated`). Expressions
are written as in code: `1 - time_mix`, `exp(logit_scale)`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._decomp import decomposition_table
from torch.export import default_decompositions

from analyzer.manifest import FOLDED, FOLDED_BIAS, PRODUCT
from exporter.folding import FUSION, find_folding
from exporter.nodes import module_of, operator_name, written_by

# expressions

_LONGEST = 120
"""Most characters of an expression with all its parts."""

_DIGITS = 15
"""Most digits of an index in a slice; a longer one means the end."""

_SIGNS = {
    "add": "+",
    "add_": "+",
    "sub": "-",
    "sub_": "-",
    "mul": "*",
    "mul_": "*",
    "div": "/",
    "div_": "/",
    "pow": "**",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "floor_divide": "//",
    "remainder": "%",
    "matmul": "@",
    "mm": "@",
    "bmm": "@",
    "bitwise_and": "&",
    "logical_and": "&",
    "__and__": "&",
    "bitwise_or": "|",
    "logical_or": "|",
    "__or__": "|",
}


@dataclass(frozen=True, slots=True)
class Text:
    """An expression, and its short form inside a longer one."""

    whole: str
    brief: str = ""
    is_open: bool = False
    """Whether it needs parentheses beside an operator."""

    def __str__(self) -> str:
        return self.whole if len(self.whole) <= 2 * _LONGEST else f"{self.whole[: 2 * _LONGEST - 3]}..."


def write_tensor(tensor: torch.Tensor) -> Text:
    """Write a constant of the program: its number, if it has one element."""
    if tensor.numel() == 1 and not tensor.is_complex():
        return Text(_digits(tensor.reshape(-1)[0].item()))
    return Text("constant")


def write_call(node: fx.Node, name: str, text: Callable[[fx.Node], Text]) -> Text:
    """Write the expression of a call from those of its inputs; if it is too long, from their short forms."""
    found = _write(node, name, lambda each: _part_of(text(each), is_brief=False))
    if len(found) > _LONGEST:
        found = _write(node, name, lambda each: _part_of(text(each), is_brief=True))
    is_open = name in _SIGNS or name in ("rsub", "neg")
    return Text(found, f"({found.partition(' ')[0]} ...)" if is_open else f"{name}(...)", is_open)


def _part_of(text: Text, *, is_brief: bool) -> str:
    whole = text.brief if is_brief and text.brief else text.whole
    return f"({whole})" if text.is_open and not whole.startswith("(") else whole


def _write(node: fx.Node, name: str, part: Callable[[fx.Node], str]) -> str:
    def show(value: Any) -> str:
        if isinstance(value, fx.Node):
            return part(value)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(show, value))}]" if len(value) <= 8 else f"[{len(value)} parts]"
        return _digits(value) if isinstance(value, (int, float)) else str(value)

    args = list(node.args)
    scaled = node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("rounding_mode") is not None
    if name in _SIGNS and len(args) == 2 and not scaled:
        return f"{show(args[0])} {_SIGNS[name]} {show(args[1])}"
    if name == "rsub" and len(args) == 2 and not scaled:
        return f"{show(args[1])} - {show(args[0])}"
    if name == "neg":
        return f"-{show(args[0])}"
    if name == "index" and len(args) == 2 and isinstance(args[1], (list, tuple)):
        return (
            f"{show(args[0])}[{', '.join(':' if each is None else _unwrap(show(each)) for each in args[1])}]"
        )
    if name in ("select", "getitem", "slice") and len(args) >= 2:
        return f"{show(args[0])}[{_write_place(name, args)}]"
    return f"{name.rstrip('_')}({', '.join(_unwrap(show(each)) for each in args)})"


def _unwrap(text: str) -> str:
    """Remove the outer parentheses of an expression, which are needed only beside an operator."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth and place < len(text) - 1:
            return text
    return text[1:-1] if text.startswith("(") else text


def _write_place(name: str, args: list[Any]) -> str:
    if name == "getitem":
        return str(args[1])
    axis: int | None = args[1] if isinstance(args[1], int) and args[1] >= 0 else None
    before = "..., " if axis is None else ":, " * axis
    if name == "select":
        return f"{before}{args[2]}"
    start, stop = (str(each) if isinstance(each, int) else "" for each in (*args[2:4], None, None)[:2])
    first = "" if start == "0" else start
    last = "" if len(stop) > _DIGITS else stop  # to the end
    step = f":{args[4]}" if len(args) > 4 and args[4] != 1 else ""
    return f"{before}{first}:{last}{step}"


def _digits(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# values

_MOST_ELEMENTS = 1 << 26
"""Most elements of an evaluated value, and of all kept values together."""

_MOST_SECONDS = 60.0
"""Seconds after which no further value is evaluated."""


@dataclass(frozen=True, slots=True)
class ProgramValue:
    """A value of the program that depends on no input."""

    name: str
    """Unique in its program."""
    expression: str
    tensor: torch.Tensor | None
    """None for a value that is too large to keep or was overwritten; only its origins are known."""
    parameters: tuple[str, ...]
    """Parameters that it depends on."""
    origins: tuple[str, ...]
    """Parameters and values that it is computed from, and that depend on parameters."""
    is_read: bool
    """Whether a node that depends on an input reads it, or it is an output."""
    uses: tuple[tuple[str, str], ...]
    """Readers of the value: module and operator."""


@dataclass(frozen=True, slots=True)
class Program:
    """Values of one program, or of several programs of one model."""

    values: tuple[ProgramValue, ...] = ()
    direct: frozenset[str] = frozenset()
    """Parameters that are read by a node that depends on an input."""
    computed: frozenset[str] = frozenset()
    """Parameters that values are computed from."""
    notes: tuple[str, ...] = ()
    """Values that were left out, and the reason: one sentence each."""

    def reads_through(self, names: Iterable[str]) -> bool:
        """Whether the program reads a parameter of these names, and only through these values."""
        known = frozenset(names)
        return bool(known & self.computed) and not known & self.direct


def merge_programs(programs: Sequence[Program]) -> Program:
    """Merge the values of several programs of one model, under distinct names."""

    def rename(program: Program, number: int) -> Iterator[ProgramValue]:
        own = {value.name for value in program.values}
        for value in program.values:
            origins = tuple(f"{number}.{name}" if name in own else name for name in value.origins)
            yield dataclasses.replace(value, name=f"{number}.{value.name}", origins=origins)

    return Program(
        values=tuple(value for number, program in enumerate(programs) for value in rename(program, number)),
        direct=frozenset().union(*(program.direct for program in programs)),
        computed=frozenset().union(*(program.computed for program in programs)),
        notes=tuple(dict.fromkeys(note for program in programs for note in program.notes)),
    )


def evaluate_program(program: torch.export.ExportedProgram) -> Program:
    """Walk a program once and evaluate all values that depend on no input, within bounds of size and time.

    If forward mutates values that it computed from parameters (`bias[n:].zero_()`), the functional form of the program
    is used instead: each state is a separate value there.
    """
    walk = _Walk(program)
    with torch.no_grad():
        walk.run()
        if walk.writes:
            with contextlib.suppress(Exception):  # torch may raise anything; then these states are not known
                pure = _Walk(program.run_decompositions({}))
                pure.run()
                return _with_opened(pure.result(), program)
        return _with_opened(walk.result(), program)


def _with_opened(found: Program, program: torch.export.ExportedProgram) -> Program:
    """Add the values inside operators that an exporter has to decompose.

    Adaptive pools divide by the sizes of their windows. `affine_grid` multiplies by a grid. `cdist` with a codebook is
    a product with the codebook, extended by ones and by its squared norms. A normalization of instances repeats its
    statistics for each example; the first step of a recurrent layer multiplies a state of zeros.
    """
    calls = [node for node in program.graph.nodes if node.op == "call_function" and _is_opened(node.target)]
    if not calls or any(map(_is_long, calls)):
        return found
    with contextlib.suppress(Exception):  # torch may raise anything; then these tables are not known
        every = {**default_decompositions(), **decomposition_table}
        table = {op: made for op, made in every.items() if _is_opened(op)}
        opened = _Walk(program.run_decompositions(table))
        opened.run()
        known = {value.name for value in found.values}
        same = {value.expression: value.name for value in found.values if value.parameters}
        results = dict[tuple[object, ...], list[ProgramValue]]()
        for value in found.values if any(_is_resized(node) for node in program.graph.nodes) else ():
            if value.parameters and value.tensor is not None:
                results.setdefault((value.parameters, value.tensor.shape), []).append(value)
        names = dict[str, str]()
        inner = list[ProgramValue]()
        inside = opened.result()
        for value in inside.values:
            if value.parameters and value.expression in same:
                names[value.name] = same[value.expression]
                continue
            if value.parameters and (result := _same_result(value, results)) is not None:
                names[value.name] = result
                continue
            names[value.name] = f"{value.name}.opened" if value.name in known else value.name
            inner.append(value)
        renamed = [
            dataclasses.replace(
                value,
                name=names[value.name],
                origins=tuple(dict.fromkeys(names.get(origin, origin) for origin in value.origins)),
            )
            for value in inner
        ]
        return dataclasses.replace(
            found,
            values=(*found.values, *renamed),
            direct=found.direct & inside.direct,  # read by an operator, but not inside it
            computed=found.computed | inside.computed,
        )
    return found


_CLOSE = 1e-5
"""Largest difference between an operator's result and that of its decomposition, relative to the largest element."""


_MOST_STEPS = 256
"""Most steps of a recurrent layer whose decomposition is evaluated: it repeats the operators for each step."""


def _is_long(node: fx.Node) -> bool:
    if not operator_name(node.target).startswith("rnn_"):
        return False
    output = next(iter(_tensors(node.meta.get("val"))))
    sizes = [_fixed(size) for size in output.shape[:-1]]  # steps, and examples if there are several
    return any(size is not None and size > _MOST_STEPS for size in sizes)


def _is_resized(node: fx.Node) -> bool:
    """Whether a node resizes a value; the sums of its decomposition are in another order than its own."""
    return node.op == "call_function" and operator_name(node.target).startswith(("upsample_", "_upsample_"))


def _same_result(
    value: ProgramValue, results: Mapping[tuple[object, ...], Sequence[ProgramValue]]
) -> str | None:
    """Return the name of the value with the same elements, up to rounding, that the program has without decomposition.

    A parameter that is read through it alone is held by it, and its decomposition is no other path to a reader.
    """
    tensor = value.tensor
    if tensor is None or not tensor.is_floating_point() or not tensor.numel():
        return None
    slack = _CLOSE * float(tensor.abs().max())
    for result in results.get((value.parameters, tensor.shape), ()):
        other = result.tensor
        if (
            other is not None
            and other.dtype == tensor.dtype
            and bool(((other - tensor).abs() <= slack).all())
        ):
            return result.name
    return None


def _is_opened(target: Any) -> bool:
    name = operator_name(target)
    return name.startswith(_WITH_TABLES) or name in _DISTANCES


@dataclass(slots=True)
class _Known:
    """Result of a node that depends on no input."""

    value: Any
    text: Text
    identity: str | None
    """Parameter or value that it equals, up to layout and type; None for a small one that depends on no parameter."""
    parameters: frozenset[str] = frozenset()
    origins: tuple[str, ...] = ()
    """Origins of a call's several results together, as `_Kept` has them for one."""


@dataclass(slots=True)
class _Kept:
    """A value when it is found; its readers are added later."""

    name: str
    text: Text
    tensor: torch.Tensor | None
    """None for a value that is too large to keep, or was overwritten."""
    parameters: frozenset[str]
    origins: tuple[str, ...]
    is_read: bool = False
    uses: dict[tuple[str, str], None] = field(default_factory=dict)


_LAYOUT = frozenset(
    {
        *("view", "_unsafe_view", "reshape", "view_as", "flatten", "unflatten", "squeeze", "unsqueeze"),
        *("transpose", "permute", "t", "numpy_T", "mT", "movedim", "moveaxis", "swapaxes", "swapdims"),
        *("contiguous", "clone", "detach", "detach_", "alias", "lift_fresh", "lift_fresh_copy"),
        *("to", "_to_copy", "type_as", "float", "expand", "expand_as", "slice", "narrow", "select"),
        *("split", "split_with_sizes", "chunk", "unbind", "dropout", "dropout_", "feature_dropout"),
    }
)
"""Operators that return their input, if the number of elements stays."""

_REORDERINGS = frozenset(
    {"transpose", "permute", "t", "numpy_T", "mT", "movedim", "moveaxis", "swapaxes", "swapdims"}
)
"""Operators of `_LAYOUT` that may reorder elements."""

_WITH_TABLES = (
    *("adaptive_", "_adaptive_", "affine_grid_generator", "grid_sampler", "upsample_", "_upsample_"),
    *("im2col", "col2im", "unfold", "fft_", "_fft_", "stft", "istft", "quantile", "nanquantile", "bilinear"),
    *("reflection_pad", "replication_pad", "_pad_circular", "pad", "linalg_vander", "vander", "max_unpool"),
    *("instance_norm", "rnn_tanh", "rnn_relu"),
)
"""Prefixes of the operators whose decompositions (torch/_decomp) create constants."""

_DISTANCES = frozenset({"cdist", "_cdist_forward", "_euclidean_dist"})
"""Operators that an exporter writes as a product with a value computed from one operand."""

CHECKS = frozenset(
    {
        *("_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range"),
        *("sym_constrain_range_for_size", "_functional_assert_async", "_functional_sym_constrain_range"),
    }
)
"""Operators that compute nothing."""

_UNINITIALIZED = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "empty_permuted", "resize_"})
"""Operators that return uninitialized memory."""

_DROPOUT_OPERATORS = frozenset({"scaled_dot_product_attention", "dropout", "dropout_", "feature_dropout"})
"""Operators that are tagged as random, but are deterministic without dropout."""


_FILLED: Mapping[str, Any] = {
    **dict.fromkeys(("new_zeros", "zeros_like"), 0),
    **dict.fromkeys(("new_ones", "ones_like"), 1),
    "full_like": lambda args: args[1] if len(args) > 1 else None,
    "new_full": lambda args: args[2] if len(args) > 2 else None,
}
"""Operators that use only the shape and type of their first input -> their fill value."""

SHAPED = frozenset(
    {*_FILLED, "empty_like", "new_empty", "rand_like", "randn_like", "sym_numel", "sym_size", "sym_stride"}
)
"""Operators that use only the shape and type of their first input."""


_MOST_CAST = 4096
"""Most elements of a buffer of integers or booleans that is kept as a value."""

_ARITHMETIC = frozenset({"add", "sub", "rsub", "mul", "div", "pow"})


def _is_arithmetic(kept: _Kept) -> bool:
    return any(operator.rstrip("_") in _ARITHMETIC for _, operator in kept.uses)


class _Walk:
    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self.program = program
        self.known: dict[fx.Node, _Known] = {}
        self.kept: dict[str, _Kept] = {}
        self.direct: set[str] = set()
        self.computed: set[str] = set()
        self.overwritten: dict[int, torch.Tensor] = {}
        """Storages written by a node that depends on an input; kept alive, so that no other storage gets the same
        identity."""
        self.protected: set[int] = set()
        self.writes = False
        """Whether a node has written into a value that depends on no input."""
        self.buffers: set[str] = set()
        """Buffers of integers or booleans, kept if arithmetic reads them, because a file may have them cast."""
        self.elements = 0
        self.skipped: dict[str, int] = {}
        self.folded: set[fx.Node] = set()
        """Layers and the normalizations behind them, whose values together were kept."""

    def run(self) -> None:
        started = time.monotonic()
        left = {node: len(node.users) for node in self.program.graph.nodes}
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self._add_placeholder(node)
            elif node.op == "call_function":
                known = None
                if time.monotonic() - started < _MOST_SECONDS:
                    known = self._call(node)
                else:
                    self._skip(f"not evaluated after {_MOST_SECONDS:.0f} seconds")
                if known is None:
                    self._forget_written(node)
                    self._fold(node)
                else:
                    self.known[node] = known
            self._read(node)
            for source in node.all_input_nodes:  # a value without further readers needs no memory
                left[source] -= 1
                if not left[source]:
                    self.known.pop(source, None)

    def result(self) -> Program:
        values = tuple(
            ProgramValue(
                name=kept.name,
                expression=str(kept.text),
                tensor=kept.tensor,
                parameters=tuple(sorted(kept.parameters)),
                origins=kept.origins,
                is_read=kept.is_read,
                uses=tuple(kept.uses),
            )
            for kept in self.kept.values()
            if (kept.tensor is not None or kept.parameters)
            and (kept.name not in self.buffers or _is_arithmetic(kept))
        )
        notes = tuple(f"{count:,} values {reason}" for reason, count in sorted(self.skipped.items()))
        return Program(values, frozenset(self.direct), frozenset(self.computed), notes)

    def _add_placeholder(self, node: fx.Node) -> None:
        signature, name = self.program.graph_signature, node.name
        tensor: torch.Tensor | None = None
        if name in signature.inputs_to_parameters:
            own = signature.inputs_to_parameters[name]
            tensor = self.program.state_dict.get(own)
            parameters = frozenset((own,))
        elif name in signature.inputs_to_buffers:
            own = signature.inputs_to_buffers[name]
            tensor = self.program.state_dict.get(own, self.program.constants.get(own))
            parameters = frozenset()
        elif name in signature.inputs_to_lifted_tensor_constants:
            own = signature.inputs_to_lifted_tensor_constants[name]
            tensor = self.program.constants.get(own)
            parameters = frozenset()
        if not isinstance(tensor, torch.Tensor) or tensor.device.type == "meta":
            return
        is_named = name not in signature.inputs_to_lifted_tensor_constants
        text = Text(own) if is_named else write_tensor(tensor)
        identity = own if is_named else None
        if not is_named and 1 < tensor.numel() <= _MOST_ELEMENTS and not _is_one_value(tensor):
            identity = node.name  # no state dict has it, so it is a separate value
            self.kept[identity] = _Kept(identity, text, tensor.detach(), parameters, ())
        is_whole = not tensor.is_floating_point() and not tensor.is_complex()
        if name in signature.inputs_to_buffers and is_whole and 1 < tensor.numel() <= _MOST_CAST:
            identity = node.name
            self.buffers.add(identity)
            self.kept[identity] = _Kept(identity, text, tensor.detach(), parameters, ())
        self.known[node] = _Known(tensor.detach(), text, identity, parameters)
        self.protected.add(_storage(tensor))

    def _call(self, node: fx.Node) -> _Known | None:
        target: Any = node.target
        schema = getattr(target, "_schema", None)
        is_item = getattr(target, "__name__", "") == "getitem"
        number = _number(node)
        if number is not None:
            return _Known(number, Text(str(number)), None)
        if any(source not in self.known for source in node.all_input_nodes):
            return self._fill(node)
        sources = [self.known[source] for source in node.all_input_nodes]
        if any(self._is_overwritten(source.value) for source in sources):
            return None
        if schema is None and not is_item:
            return None  # bodies of loops and conditions: unknown
        name = operator_name(target)
        if name in CHECKS or name in _UNINITIALIZED or not self._is_deterministic(node, name):
            return None
        written = written_by(node, schema) if schema is not None and schema.is_mutable else []
        stored = [_storage(self.known[each].value) for each in written if each in self.known]
        if self.protected.intersection(stored) and name != "detach_":
            return None
        size = _size(node.meta.get("val"))
        if size is None or size > _MOST_ELEMENTS:
            if size is not None:
                self._skip(f"of more than {_MOST_ELEMENTS:,} elements")
            return None
        try:
            args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda each: self.known[each].value)
            value = target(*args, **kwargs)
        except Exception:  # noqa: BLE001  an operator may raise anything; then the value is not known
            self._skip("that could not be evaluated")
            return None
        self.writes |= name != "detach_" and bool(written)
        for kept in self.kept.values() if written and name != "detach_" else ():
            if kept.tensor is not None and _storage(kept.tensor) in stored:
                kept.tensor = None
        return self._name(node, name, value, sources)

    def _fill(self, node: fx.Node) -> _Known | None:
        """Return zeros, ones or a constant with the shape of an input, if that shape is fixed."""
        name, shaped = operator_name(node.target), node.meta.get("val")
        filled = _FILLED.get(name)
        if filled is None or not isinstance(shaped, torch.Tensor):
            return None
        size = _size(shaped)
        if size is None or size > _MOST_ELEMENTS:
            return None
        if callable(filled):
            fill = node.kwargs.get("fill_value", filled(node.args))
            if not isinstance(fill, (bool, float, int)):
                return None
        else:
            fill = filled
        value = torch.full(tuple(map(int, shaped.shape)), fill, dtype=shaped.dtype)
        return _Known(value, Text(f"{name}({fill})"), None)

    def _name(self, node: fx.Node, name: str, value: Any, sources: Sequence[_Known]) -> _Known:
        parameters = frozenset().union(*(source.parameters for source in sources)) if sources else frozenset()
        first = sources[0] if sources else None
        is_same = (
            first is not None
            and name in _LAYOUT | {"getitem"}
            and isinstance(value, torch.Tensor)
            and isinstance(first.value, torch.Tensor)
            and value.numel() == first.value.numel()
            and (value.dtype == first.value.dtype or not _changes_numbers(first.value.dtype, value.dtype))
        )
        if first is not None and is_same and not self._is_reordered(name, first, value):
            return _Known(value, first.text, first.identity, parameters)
        if not isinstance(value, torch.Tensor):
            # each of several results is a separate value
            identity = first.identity if first is not None and name in _LAYOUT else None
            origins = tuple(dict.fromkeys(self._origins(node)))
            return _Known(value, write_call(node, name, self._text), identity, parameters, origins)
        text = write_call(node, name, self._text)
        origins = tuple(dict.fromkeys(self._origins(node)))
        self.computed.update(origin for origin in origins if origin in parameters)
        if name == "linear" and len(sources) == 3 and parameters:
            origins = self._multiply(node, sources, origins)
        if not parameters and (value.numel() < 2 or _is_one_value(value)):
            return _Known(value, text, None, parameters)
        tensor: torch.Tensor | None = value
        if self.elements + value.numel() > _MOST_ELEMENTS:
            tensor = None
            self._skip(f"beyond {_MOST_ELEMENTS:,} elements together")
        else:
            self.elements += value.numel()
        self.kept[node.name] = _Kept(node.name, text, tensor, parameters, origins)
        return _Known(value, text, node.name, parameters)

    def _is_reordered(self, name: str, first: _Known, value: torch.Tensor) -> bool:
        """Whether an operator reordered the elements of a computed value; a later reshape may build on this order."""
        if name not in _REORDERINGS or first.identity not in self.kept:
            return False
        return not torch.equal(value.reshape(-1), first.value.reshape(-1))

    def _multiply(
        self, node: fx.Node, sources: Sequence[_Known], origins: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Keep a linear layer's product without its bias, which ONNX adds separately; return the sum's origins."""
        factor, weight, bias = sources
        product = torch.nn.functional.linear(factor.value, weight.value)
        own = tuple(origin for origin in origins if origin != bias.identity)
        if not own or self.elements + product.numel() > _MOST_ELEMENTS:
            return origins
        self.elements += product.numel()
        name = f"{node.name}.{PRODUCT}"
        text = Text(f"linear({factor.text}, {weight.text})", "linear(...)")
        kept = _Kept(name, text, product, factor.parameters | weight.parameters, own)
        kept.uses[module_of(node), "add"] = None
        self.kept[name] = kept
        return tuple(dict.fromkeys((name, *(o for o in origins if o == bias.identity))))

    def _fold(self, node: fx.Node) -> None:
        """Keep a layer's weight and bias together with the batch normalization behind, if one is no parameter.

        If all are parameters, rules of their own explain the file's (analyzer/reconciliation/batchnorm.py).
        """
        folding = find_folding(node)
        if folding is None or any(each not in self.known for each in folding.nodes):
            return
        known = {each: self.known[each] for each in folding.nodes}
        learned = (folding.layer_weight, folding.layer_bias, folding.weight, folding.bias)
        operands = [known[each] for each in learned if each is not None]
        size = known[folding.layer_weight].value.numel()
        if (
            all(each.identity in each.parameters for each in operands)
            or self.elements + size > _MOST_ELEMENTS
            or any(self._is_overwritten(each.value) for each in known.values())
        ):
            return
        self.folded |= {node, folding.norm}
        modules = dict.fromkeys((module_of(node), module_of(folding.norm)))
        values = folding.fold({each: found.value for each, found in known.items()})
        for value, part, sources in zip(values, (FOLDED, FOLDED_BIAS), folding.sources, strict=True):
            from_parameters = [known[each] for each in sources if known[each].parameters]
            origins = tuple(
                dict.fromkeys(each.identity for each in from_parameters if each.identity is not None)
            )
            parameters = frozenset().union(*(each.parameters for each in from_parameters))
            self.computed.update(origin for origin in origins if origin in parameters)
            self.elements += value.numel()
            name = f"{folding.norm.name}.{part}"
            text = Text(f"{FUSION}({', '.join(str(known[each].text) for each in sources)})", f"{FUSION}(...)")
            kept = _Kept(name, text, value, parameters, origins, is_read=True)
            kept.uses.update(dict.fromkeys((module, operator_name(node.target)) for module in modules))
            self.kept[name] = kept

    def _text(self, node: fx.Node) -> Text:
        return self.known[node].text

    def _origins(self, node: fx.Node) -> Iterator[str]:
        """Yield the identities of a node's learned inputs; for results of several tensors, their origins."""
        for source in node.all_input_nodes:
            known = self.known[source]
            if known.parameters and known.identity is not None:
                yield known.identity
            elif known.parameters:
                yield from known.origins or sorted(known.parameters)

    def _read(self, node: fx.Node) -> None:
        """Add a node to the readers of its known inputs."""
        if node.op not in ("call_function", "output"):
            return
        name = "output" if node.op == "output" else operator_name(node.target)
        if name in CHECKS:
            return
        found = self.known.get(node)
        module = module_of(node)
        for source in node.all_input_nodes:
            known = self.known.get(source)
            if known is None:
                continue
            if found is not None and found.identity is not None and found.identity == known.identity:
                continue  # the node passes it on unchanged
            names = [known.identity] if known.identity is not None else list(known.parameters)
            for own in names:
                kept = self.kept.get(own)
                is_read = found is None and node not in self.folded
                if kept is not None:
                    kept.uses[module, name] = None
                    kept.is_read = kept.is_read or is_read
                elif is_read and own in known.parameters:
                    self.direct.add(own)

    def _is_deterministic(self, node: fx.Node, name: str) -> bool:
        """Whether an operator is deterministic."""
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded not in tags:
            return True
        if name not in _DROPOUT_OPERATORS:
            return False
        place, key = (4, "dropout_p") if name == "scaled_dot_product_attention" else (2, "train")
        option = node.args[place] if place < len(node.args) else node.kwargs.get(key)
        return not option

    def _forget_written(self, node: fx.Node) -> None:
        """Forget the values that an unknown node writes into."""
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.is_mutable:
            return
        for source in written_by(node, schema):
            known = self.known.get(source)
            if known is not None and isinstance(known.value, torch.Tensor):
                storage = _storage(known.value)
                self.overwritten[storage] = known.value
                for kept in self.kept.values():
                    if kept.tensor is not None and _storage(kept.tensor) == storage:
                        kept.tensor = None

    def _is_overwritten(self, value: Any) -> bool:
        return (
            any(_storage(tensor) in self.overwritten for tensor in _tensors(value))
            if self.overwritten
            else False
        )

    def _skip(self, reason: str) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata) if isinstance(tensor, torch.Tensor) else 0


def _number(node: fx.Node) -> int | None:
    """Return a number that the trace has fixed: a size of an axis that could have varied, or one computed from sizes.

    The node still reads the input, but its number is as certain as a constant in the program.
    """
    value = node.meta.get("val")
    return _fixed(value) if isinstance(value, torch.SymInt) else None


def _fixed(size: Any) -> int | None:
    """Return a size as a number, also under a symbol that the trace has fixed; None for a size that varies."""
    if isinstance(size, torch.SymInt):
        fixed = size.node.maybe_as_int()
        return None if fixed is None else int(fixed)
    return size if isinstance(size, int) else None


def _size(value: Any) -> int | None:
    """Return the number of elements of a result; None if an input decides it."""
    total = 0
    for tensor in _tensors(value):
        sizes = [_fixed(size) for size in tensor.shape]
        if None in sizes:
            return None
        total += math.prod(size for size in sizes if size is not None)
    return total


def _changes_numbers(before: torch.dtype, after: torch.dtype) -> bool:
    """Whether a cast changes numbers: from floating point to integers or booleans."""
    return (before.is_floating_point and not after.is_floating_point) or after is torch.bool


def _is_one_value(tensor: torch.Tensor) -> bool:
    return bool((tensor == tensor.reshape(-1)[0]).all())
