"""ONNX's messages, without what else `import onnx` loads: numpy's other types, e-mail, sockets, archives, operators.

The module that protobuf's compiler has made of onnx.proto is loaded by itself, under its own name: whoever imports onnx
later has the same classes. Where onnx is not made so, it is imported as it is.
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
