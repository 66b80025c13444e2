"""Names and metadata of nodes, names of tensors that are paths -> module paths.

This module reads `metadata_props` of nodes (torch/onnx/_internal/exporter/_core.py writes one module path per depth,
other exporters one part), and names with `/` between modules: those of the TorchScript exporter
(`/encoder/layer.0/attention/self/query/MatMul`), of TensorFlow's converters (`model/dense_1/MatMul`,
`dense_1/kernel:0`) and of Caffe2 (`fire2/expand1x1_w_0`). Optimizers and quantizers append words of their own.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Set

from analyzer.account.scopes import common_scope, known_modules, list_of
from analyzer.model import Model, Node
from analyzer.model.places import ByNode

Scope = tuple[str, str]
"""A module, and the rule that found it."""

NodeScopes = ByNode[Scope]
"""Scopes of nodes."""

_NAME_SCOPES = "pkg.torch.onnx.name_scopes"
_NAMESPACE = "namespace"

_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"
"""Entry that torch.export writes for a node that it made outside any module's forward."""


def scope_nodes(model: Model, modules: Set[str] | None = None) -> NodeScopes:
    """Return the scope of every node whose metadata or name gives one.

    Args:
        model: the model.
        modules: modules in the names of tensors, if they are known already (`known_modules`).
    """
    modules = known_modules(model) if modules is None else modules
    scopes: list[Scope | None] = []
    add_scope = scopes.append
    paths: set[str] = set()
    known: dict[str, Scope | None] = {}
    operators: dict[str, bool] = {}
    """Whether the part after the last `/` is just an operator, as it nearly always is."""
    starts = ("/", f"{_FUSED}/")
    for node in model.nodes():
        name = node.name
        module, slash, operator = name.rpartition("/")
        is_usual = operators.get(operator)
        if is_usual is None:
            is_other = not operator or "." in operator or "Fusion" in operator
            is_other = is_other or operator.startswith(_VARIABLES)
            is_usual = operators[operator] = not is_other
        if not is_usual or node.metadata or not slash:
            found = node_scope(node, modules)
        elif module in known:  # nodes of one module are many, and their names differ only in the operator
            add_scope(known[module])
            continue
        elif (
            "." not in module[module.find("/", 1) + 1 or len(module) :]  # no two parts of it can be one
            and module[-1:] not in ("", "/")
            and not ("//" in module or "__" in module or ";" in module or " " in module)
        ):
            found = known[module] = module.removeprefix("/").replace("/", "."), NODE_PATH
        else:
            found = node_scope(node, modules)
            if ";" not in module:
                known[module] = found
        add_scope(found)
        if found is not None and found[1] == NODE_PATH and name.startswith(starts):
            paths.add(found[0])
    others = _modules_of(paths, modules) if paths else {}
    if others:
        for number, scope in enumerate(scopes):
            if scope is not None and scope[1] == NODE_PATH and scope[0] in others:
                scopes[number] = others[scope[0]], NODE_PATH
    return ByNode(model, scopes)


NODE_PATH = "name:node-path"
"""Rule of a scope taken from a node's name."""


def node_scope(node: Node, modules: Set[str] = frozenset()) -> Scope | None:
    """Return the module whose forward made this node, and the rule that found it; None if there is no evidence.

    `name_scopes` lists one module path per depth and ends with the fx node; `namespace` holds the same with classes.

    Args:
        node: the node.
        modules: known modules, which tell whether a name that a path repeats is a module's own (`known_modules`).
    """
    scopes = list_of(node.metadata.get(_NAME_SCOPES)) if node.metadata else None
    if scopes:
        scope = scopes[-2] if len(scopes) > 1 else ""
        return None if scope == _NO_MODULE else (scope, "provenance:name-scopes")
    namespace = node.metadata.get(_NAMESPACE) if node.metadata else None
    if namespace:
        scope = _of_namespace(namespace)
        return None if scope == _NO_MODULE else (scope, "provenance:namespace")
    path = _node_path(node.name, modules) if "/" in node.name else None
    return None if path is None else (path, NODE_PATH)


_DEEPEST = 64
"""Most depths of the metadata that are read; modules are nested a dozen deep."""

_CLASS = re.compile(r"[A-Z]\w*")
"""A module's class without its package; targets of torch.export's calls look like `aten.linear.default`."""


def _of_namespace(text: str) -> str:
    """Return the module in `name: Class/name: Class/fx node: target`. Exporters write whole names or parts of them.

    >>> _of_namespace(": Bert/encoder: p.Encoder/encoder.layer: p.Layer/linear: aten.linear.default")
    'encoder.layer'
    >>> _of_namespace(": Bert/encoder: Encoder/layer: Layer")
    'encoder.layer'
    """
    pieces = [piece.partition(":") for piece in text.split("/")]
    if not _CLASS.fullmatch(pieces[-1][2].strip()):
        pieces.pop()
    scope = ""
    for name in (piece[0].strip() for piece in pieces[-_DEEPEST:]):
        is_whole = not scope or name == scope or name.startswith(f"{scope}.")
        scope = name if is_whole else f"{scope}.{name}" if name else scope
    return scope


def module_classes(model: Model) -> dict[str, str]:
    """Return class names of modules by their paths, without their packages, as exporters write them on nodes.

    A path with contradicting classes is left out.
    """
    found: dict[str, str | None] = {}
    for node in model.nodes():
        pieces = [piece.partition(":") for piece in node.metadata.get(_NAMESPACE, "").split("/")]
        if len(pieces) > 1 and not _CLASS.fullmatch(pieces[-1][2].strip().rpartition(".")[2]):
            pieces.pop()
        class_ = pieces[-1][2].strip().rpartition(".")[2]
        scope = node_scope(node) if _CLASS.fullmatch(class_) else None
        if scope is not None:
            path = scope[0]
            found[path] = class_ if found.get(path, class_) == class_ else None
    return {path: class_ for path, class_ in found.items() if class_ is not None}


_FUSED = "fused "
"""Prefix that onnxruntime puts before the name of an operator that it has fused with its activation."""

_FUSION = re.compile(r"Fusion(?:_token_\d+)?")
"""Ending of the parts that onnxruntime's optimizers append to a name: `MatMulAddFusion`."""

_READS = re.compile(r"(?:ReadVariableOp|resource|Read)(?![A-Za-z]).*")
"""Parts of TensorFlow's names after the operator that reads the variable: `dense/BiasAdd/ReadVariableOp/resource`."""


_VARIABLES = ("Read", "resource")
"""Beginnings of last parts that name a variable, and not an operator."""


def _node_path(name: str, modules: Set[str] = frozenset()) -> str | None:
    """Return the modules in a node's name: all its parts except the operator.

    >>> _node_path("/encoder/layer.0/query/MatMul_quant"), _node_path("/Add_3")
    ('encoder.layer.0.query', '')
    >>> _node_path("fused /pooler/Gemm"), _node_path("node_MatMul_46/MatMulAddFusion")
    ('pooler', None)
    >>> _node_path("net/dense/MatMul;net/dense/BiasAdd")
    'net.dense'
    """
    if ";" in name:  # TensorFlow Lite joins the names of all nodes that it fused
        found = [_node_path(piece, modules) for piece in name.split(";") if "/" in piece]
        return common_scope(path for path in found if path is not None) or None
    name = name.removeprefix(_FUSED)
    parts = _parts(name, modules)
    while parts and _FUSION.search(parts[-1]):
        parts.pop()
    if len(parts) < 2 and not (parts and name.startswith("/")):
        return None
    return ".".join(_modules(parts))


def _parts(name: str, modules: Set[str] = frozenset()) -> list[str]:
    """Return the parts of a path; of those that the next part repeats, only the modules that hold a list of their name.

    A Sequential that is called occurs twice: `/layer/layer.0/Conv` is in `layer.0`. A module whose ModuleList has its
    own name reads alike, and only the names of tensors tell them apart.

    >>> _parts("/layer/layer.0/Conv"), _parts("/layer/layer.0/Conv", {"layer.layer.0"})
    (['layer.0', 'Conv'], ['layer', 'layer.0', 'Conv'])
    """
    parts = [part for part in name.split("/") if part]
    if len(parts) > 2 and parts[0].endswith("__"):
        # A model was put into another one: the prefix is part of the first module's name.
        parts[:2] = [parts[0] + parts[1]]
    found: list[str] = []
    for part, child in zip(parts, (*parts[1:], ""), strict=False):
        if not child.startswith(f"{part}.") or (modules and _holds(".".join((*found, part)), child, modules)):
            found.append(part)
    return found


def _holds(path: str, child: str, modules: Set[str]) -> bool:
    """Whether a module is known to have this child, which may be called again (`layer.0_1`)."""
    again = _REPEATED.fullmatch(child)
    return f"{path}.{child}" in modules or (again is not None and f"{path}.{again[1]}" in modules)


def _modules(parts: list[str]) -> list[str]:
    """Return a path without the operator or the variable at its end."""
    count = len(parts)
    while count > 2 and _READS.fullmatch(parts[count - 1]):
        count -= 1
    return parts[: count - 1]


_REPEATED = re.compile(r"(.+)_\d+")

_LONGEST_PREFIX = 3
"""Most modules that may be missing at the beginning of a path."""


def _modules_of(paths: Set[str], known: Set[str]) -> dict[str, str]:
    """Return the real modules for paths of the TorchScript exporter that are not module names themselves.

    Later calls of a module have a number (`query_1`) that no tensor's name has. A module that is never called itself,
    because its parts are called instead, is missing: `/decoder/layers.0` for `model.decoder.layers.0`.
    """
    found: dict[str, str] = {}
    for path in paths:
        if "_" in path and path not in known:
            again = _REPEATED.fullmatch(path)
            if again is not None and again[1] in paths:
                found[path] = again[1]
    prefixes = _missing_prefixes(paths, known)
    for path in paths if prefixes else ():
        module = found.get(path, path)
        prefix = prefixes.get(module.partition(".")[0])
        if prefix is not None:
            found[path] = f"{prefix}.{module}"
    return found


def _missing_prefixes(paths: Set[str], known: Set[str]) -> dict[str, str]:
    """Return the missing prefix of paths, by their first part: the one that makes most of them known modules."""
    roots = {module.partition(".")[0] for module in paths} - known
    lacking = {path for path in paths if "." in path and path.partition(".")[0] in roots} if roots else ()
    if not lacking:
        return {}
    endings: dict[str, set[str]] = defaultdict(set)
    for module in known:
        parts = module.split(".", _LONGEST_PREFIX)
        for depth in range(1, len(parts)):
            ending = ".".join(parts[depth:])
            if ending in lacking:
                endings[ending].add(".".join(parts[:depth]))
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for path, prefixes in endings.items():
        votes[path.partition(".")[0]].update(prefixes)
    best = {first: counter.most_common(2) for first, counter in votes.items()}
    return {first: top[0][0] for first, top in best.items() if len(top) == 1 or top[0][1] > top[1][1]}


_ENDING = re.compile(r"(?::\d+)?(?:_quantized)?(?:_scale|_zero_point)?$")
"""Endings that TensorFlow and onnxruntime's quantizers append to a tensor's name."""

_BLOB = re.compile(r"(.+)_(?:b|m|riv|rm|s|v|w)_\d+")
"""Name of a weight in Caffe2: layer, kind, number."""

_WORD = re.compile(r"[\w.:\-]+")


def tensor_path(name: str) -> str | None:
    """Return the module in a tensor's name that is a path; None for other names, and for a converter's constants.

    >>> tensor_path("conv2d_6/kernel:0"), tensor_path("net/dense/BiasAdd/ReadVariableOp/resource:0")
    ('conv2d_6', 'net.dense')
    >>> tensor_path("fire2/expand1x1_w_0"), tensor_path("/encoder/query/Transpose_output_0_quantized")
    ('fire2.expand1x1', 'encoder.query')
    >>> tensor_path("net/Const_24:0"), tensor_path("onnx::MatMul_12")
    (None, None)
    """
    if ";" in name:
        return _node_path(name)
    name = _ENDING.sub("", name) if "/" in name else name
    blob = _BLOB.fullmatch(name) if name[-1:].isdigit() else None
    if blob is None and "/" not in name:
        return None
    parts = _parts(f"{blob[1]}/weight" if blob else name)
    if len(parts) < 2 or not all(_WORD.fullmatch(part) for part in parts) or parts[-1].startswith("Const"):
        return None
    return ".".join(_modules(parts))
