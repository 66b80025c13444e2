"""Files that are no ONNX model are told by what they are."""

from __future__ import annotations

import pytest
from encoding import block, integer

from analyzer.read.kinds import HEAD, describe_kind


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid", "run `git lfs pull`"),
        (b"\x1f\x8b\x08\0", "compressed with gzip; unpack it first"),
        (b"BZh91AY", "compressed with bzip2"),
        (b"\xfd7zXZ\x00\x00", "compressed with xz"),
        (b"\x28\xb5\x2f\xfd\x04", "compressed with zstd"),
        (b"PK\x03\x04\x14", "to compare: `onnxledger reconcile MODEL.onnx --against` this file"),
        (b"\x80\x02}q\0", "a Python pickle, which is never loaded here"),
        (b"\x80\x05\x95\0", "a Python pickle, which is never loaded here"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file, such as Keras writes"),
        (b"GGUF\3\0\0\0", "a GGUF file"),
        (b"\x7fELF\2\1", "a program"),
        (b"\x89PNG\r\n", "a picture"),
        (b"ir_version: 8\ngraph {", "an ONNX model in text form"),
        (b"\x18\0\0\0ORTM", "onnxruntime's own format (.ort)"),
        (b"\x1c\0\0\0TFL3", "a TFLite model"),
        (b'\x40\x01\0\0\0\0\0\0{"w":', "a safetensors file"),
        (b"<!DOCTYPE html><html>", "a web page or XML"),
        (b"\n  <?xml version", "a web page or XML"),
        (b'{"ir_version": 8}', "JSON"),
        (b"# just a README", "a text file"),
        (b"import torch", "Python source; export the model that it makes"),
        (b'"""A net."""', "Python source"),
        (b"from torch import nn", "Python source"),
    ],
)
def test_each_kind_is_named_with_what_to_do_about_it(head, words):
    found = describe_kind(head[:HEAD])

    assert found is not None
    assert words in found
    assert ";" in found


@pytest.mark.parametrize(
    "head",
    [b"", b"\x08", b"\0" * HEAD, b"plain words", integer(1, 8) + block(2, "pytorch") + block(7, bytes(40))],
)
def test_anything_else_is_not_named(head):
    assert describe_kind(head[:HEAD]) is None
