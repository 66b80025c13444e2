"""ONNX's messages without the rest of `import onnx`: numpy's other types, e-mail, sockets, archives, operators.

The module that protobuf's compiler made from onnx.proto is loaded alone, under its own name, so that a later `import
onnx` has the same classes. If onnx has no such module, it is imported whole.
"""

from __future__ import annotations

import sys
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import (
        IR_VERSION,
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        StringStringEntryProto,
        TensorProto,
        TensorShapeProto,
        TypeProto,
        ValueInfoProto,
    )
else:
    _NAME = "onnx.onnx_ml_pb2"

    def _load() -> ModuleType:
        if "onnx" in sys.modules or _NAME in sys.modules:
            return sys.modules.get(_NAME) or _load_whole()
        package = util.find_spec("onnx")
        places = (package and package.submodule_search_locations) or ()
        file = next((file for place in places if (file := Path(place, "onnx_ml_pb2.py")).is_file()), None)
        spec = file and util.spec_from_file_location(_NAME, file)
        if not spec:
            return _load_whole()
        module = sys.modules[_NAME] = util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[_NAME]
            raise
        return module

    def _load_whole() -> ModuleType:
        import onnx

        return onnx

    _found = _load()
    IR_VERSION = _found.IR_VERSION
    AttributeProto = _found.AttributeProto
    FunctionProto = _found.FunctionProto
    GraphProto = _found.GraphProto
    ModelProto = _found.ModelProto
    StringStringEntryProto = _found.StringStringEntryProto
    TensorProto = _found.TensorProto
    TensorShapeProto = _found.TensorShapeProto
    TypeProto = _found.TypeProto
    ValueInfoProto = _found.ValueInfoProto

__all__ = [
    "IR_VERSION",
    "AttributeProto",
    "FunctionProto",
    "GraphProto",
    "ModelProto",
    "StringStringEntryProto",
    "TensorProto",
    "TensorShapeProto",
    "TypeProto",
    "ValueInfoProto",
]
