"""Models made for a page -> reports, and their pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.formats import RenderOptions, render_report
from analyzer.reports import Inspection, Report

__all__ = ["HOSTILE", "MANY", "TENSORS", "hostile", "inspect", "layers", "many", "tame", "write"]

TENSORS = ("query.weight", "query.bias", "key.weight", "key.bias", "up.weight", "up.bias", "norm.weight")
MANY = 20_000

_MARKUP = (
    "<script>window.injected = 1</script>",
    "<img src=x onerror='window.injected = 2'>",
    "</script><script>window.injected = 3</script>",
    "</noscript><b>bold</b>",
    "</title><title>another</title>",
    "</style><style>body { display: none }</style>",
    "<!--<script>",
    "]]><svg onload=window&#46;injected=4>",
    "&lt;i&gt;&amp;&quot;",
    "\"'` onmouseover=window;x='",
    "javascript:window['injected']=5",
)
_CODE = (
    "{{7*7}}",
    "${7*7}",
    "{b|bold}{a|}",
    "%3Cscript%3E",
    "__proto__",
    "constructor",
    "toString",
    "hasOwnProperty",
)
_CHARACTERS = (
    "\x1b[31mred\x1b[0m",
    "\u202egnp\u202c",
    "two\nlines\r\nand\ta tab",
    "\u2028\u2029\ufeff\u200b",
    "\x00\x07\x7f\x9b",
    "\U0001f1e9\u0301\u0301\u0301",
    " ",
    "=1+1",
    "long" * 25_000,
)
HOSTILE = (*_MARKUP, *_CODE, *_CHARACTERS)


def tame(name: str) -> str:
    """Return a harmless name of the same shape: as long, and split at the same places.

    >>> tame("</script>.weight")
    'o/feckupg.hwriox'
    """
    letters = "abcdefghijklmnopqrstuvwxyz"
    return re.sub(r"[^./]", lambda found: letters[(ord(found[0]) * 5 + found.start()) % 26], name)


def _model(nodes: Iterable[NodeProto], weights: dict[str, np.ndarray], **fields: str) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("org.example", 1)]
    return helper.make_model(graph, opset_imports=opsets, **fields)


def _stack(modules: Iterable[tuple[str, dict[str, np.ndarray]]], **fields: str) -> onnx.ModelProto:
    """Return nodes in sequence, each of which reads the tensors of one module."""
    nodes, weights, value = [], {}, "x"
    for number, (module, tensors) in enumerate(modules):
        weights_of_module = {f"{module}.{name}": array for name, array in tensors.items()}
        nodes.append(helper.make_node("Sum", [value, *weights_of_module], [f"v{number}"], f"/{module}/Sum"))
        weights |= weights_of_module
        value = f"v{number}"
    nodes.append(helper.make_node("Identity", [value], ["y"], "/Identity"))
    return _model(nodes, weights, **fields)


def _noise(name: str, *shape: int) -> np.ndarray:
    """Return values that differ from those of any other name."""
    seed = int.from_bytes(name.encode(errors="replace")[-64:], "big")
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def layers(count: int) -> onnx.ModelProto:
    """Return embeddings, layers of seven tensors that grow, and a head."""

    def module(path: str, width: int) -> tuple[str, dict[str, np.ndarray]]:
        shapes = {name: (width, 4) if name.endswith("weight") else (width,) for name in TENSORS}
        return path, {name: _noise(f"{path}.{name}", *shape) for name, shape in shapes.items()}

    stack = [module(f"encoder.layer.{number}", 4 + number) for number in range(count)]
    ends = [("embeddings.words", 90), ("embeddings.positions", 30), ("head", 20)]
    heads = [(path, {"weight": _noise(path, rows, 4)}) for path, rows in ends]
    return _stack([*heads[:2], *stack, heads[2]])


def many(count: int = MANY) -> onnx.ModelProto:
    """Return `count` tensors, twenty for each layer, forty layers for each stage."""

    def module(layer: int) -> tuple[str, dict[str, np.ndarray]]:
        path = f"stage{layer // 40}.layer.{layer % 40}"
        shape = (1 + layer % 7,)
        return path, {f"t{number}.weight": _noise(f"{path}{number}", *shape) for number in range(20)}

    return _stack(map(module, range(count // 20)))


def hostile(names: Callable[[str], str] = str) -> onnx.ModelProto:
    """Return a model in which every free name is one of `HOSTILE`, passed through `names`."""
    modules = {
        names(name): {names(f"{name}#{n}"): _noise(f"{name}{n}", 3 + n, 2) for n in range(3)}
        for name in HOSTILE
    }
    proto = _stack(modules.items(), producer_name=names(HOSTILE[0]), producer_version=names(HOSTILE[1]))
    for node, name in zip(proto.graph.node, HOSTILE, strict=False):
        node.domain, node.op_type = "org.example", names(name)
    proto.graph.name = names(HOSTILE[1])
    proto.doc_string = names(HOSTILE[0])
    proto.metadata_props.add(key=names(HOSTILE[0]), value=names(HOSTILE[1]))
    return proto


def inspect(folder: Path, proto: onnx.ModelProto, name: str = "model.onnx", depth: int = 1) -> Inspection:
    """Save a model under a name, and return its `inspect` report."""
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    ledger = audit_model(path)
    return Inspection(ledger, group_by(ledger, depth=depth))


def write(folder: Path, report: Report, *beside: dict[str, object], name: str = "page.html") -> Path:
    """Write the page of a report, with documents beside it."""
    made = render_report(report, "html", RenderOptions(beside=beside))
    assert isinstance(made, str)
    path = folder / name
    path.write_text(made, encoding="utf-8")
    return path
