"""A traced program -> its calls of PyTorch operators: the values, the settings and the module of each.

The record holds the program at the sizes of its example inputs. It is small enough for a manifest: it has names of
weights, but no weights.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx

from analyzer.manifest import Call, Calls, ProgramConstant, ProgramInput
from analyzer.model.content import encode_values
from analyzer.model.dtypes import DType
from exporter.dtypes import TORCH_DTYPES, dtype_of
from exporter.nodes import is_writing, module_of, operator_name
from exporter.program import CHECKS

_MOST_CALLS = 50_000
_MOST_INTEGERS = 4_096
"""Largest number of elements that are recorded of an integer input."""
_MOST_NUMBERS = 65_536
"""Largest number of elements that are recorded of a constant, such as a table of positions that is no buffer."""


def without_writes(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return the functional form of a program that writes into values; others, and where torch fails, unchanged.

    The names of its values differ from those of the program, so all records of a program must be made from one form.
    """
    if any(is_writing(node) for node in program.graph.nodes):
        with contextlib.suppress(Exception):  # torch may raise anything; then the records keep the writes
            program = program.run_decompositions({})
    return program


def record_calls(program: torch.export.ExportedProgram) -> Calls:
    """Return the calls of a program, in order; of one that writes into values, pass the functional form."""
    if len(program.graph.nodes) > _MOST_CALLS:
        return Calls(note=f"more than {_MOST_CALLS:,} calls")
    return _Recording(program).record()


class _Recording:
    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self.program = program
        signature = program.graph_signature
        self.tensor_names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self.constants = dict(signature.inputs_to_lifted_tensor_constants)
        self.recorded: dict[str, ProgramConstant] = {}

    def record(self) -> Calls:
        program = self.program
        user = dict(self._inputs())
        calls = []
        for node in program.graph.nodes:
            if node.op == "call_function" and operator_name(node.target) not in CHECKS:
                calls.append(self._call(node))
            elif node.op == "get_attr":
                return Calls(note="it has bodies of conditions or loops")
        outputs = [name for name in program.graph_signature.user_outputs if isinstance(name, str)]
        return Calls(
            inputs=tuple(user.values()),
            calls=tuple(calls),
            constants=tuple(self.recorded.values()),
            outputs=tuple(outputs),
        )

    def _inputs(self) -> Iterator[tuple[str, ProgramInput]]:
        """Yield the user's inputs, with the sizes of the example, and its numbers if they are integers."""
        names = [name for name in self.program.graph_signature.user_inputs if isinstance(name, str)]
        example = self.program.example_inputs
        leaves = torch.utils._pytree.tree_leaves(example) if example is not None else []
        found = dict(zip(names, leaves, strict=False)) if len(names) == len(leaves) else {}
        for node in self.program.graph.nodes:
            value = node.meta.get("val")
            if node.op != "placeholder" or node.name not in names or not isinstance(value, torch.Tensor):
                continue
            leaf = found.get(node.name)
            shape = tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else tuple(map(_hint, value.shape))
            axes = tuple(map(_axis, value.shape))
            yield node.name, ProgramInput(node.name, dtype_of(value), shape, _numbers(leaf), axes)

    def _call(self, node: fx.Node) -> Call:
        return Call(
            name=node.name,
            operator=operator_name(node.target),
            module=module_of(node),
            args=tuple(self._argument(each) for each in node.args),
            kwargs={name: self._argument(each) for name, each in node.kwargs.items() if each is not None},
        )

    def _argument(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self._reference(value)
        if isinstance(value, (list, tuple)):
            return [self._argument(each) for each in value]
        if isinstance(value, torch.dtype):
            return {"dtype": TORCH_DTYPES.get(value, DType.UNDEFINED).name}
        if isinstance(value, float) and not math.isfinite(value):
            return {"number": str(value)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return _hint(value)
        return None  # a device, a layout or a format of memory

    def _reference(self, node: fx.Node) -> Mapping[str, str]:
        if node.name in self.tensor_names:
            return {"tensor": self.tensor_names[node.name]}
        if node.name in self.constants:
            if node.name not in self.recorded:
                tensor = self.program.constants.get(self.constants[node.name])
                shape = tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else ()
                kind = dtype_of(tensor) if isinstance(tensor, torch.Tensor) else DType.FLOAT
                self.recorded[node.name] = ProgramConstant(
                    node.name, kind, shape, _numbers(tensor, whole=False)
                )
            return {"constant": node.name}
        return {"value": node.name}


def _hint(size: Any) -> Any:
    """Return a size as it was in the example."""
    if isinstance(size, (torch.SymInt, torch.SymFloat)):
        hint = size.node.hint
        return int(hint) if isinstance(size, torch.SymInt) else float(hint)
    return size


def _axis(size: Any) -> str:
    """Return the symbol of a size that varies by itself; "" for any other."""
    is_free = isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None
    return str(size) if is_free and str(size).isidentifier() else ""


def _numbers(tensor: Any, *, whole: bool = True) -> str | None:
    """Return the numbers of a small tensor in base64, with `whole` (for inputs) only integers; else None."""
    most = _MOST_INTEGERS if whole else _MOST_NUMBERS
    if not isinstance(tensor, torch.Tensor) or tensor.numel() > most or tensor.device.type == "meta":
        return None
    if whole and (tensor.is_floating_point() or tensor.is_complex()):
        return None
    wide = tensor.detach().float() if tensor.dtype is torch.bfloat16 else tensor.detach()
    return encode_values(wide.contiguous().cpu().numpy())
