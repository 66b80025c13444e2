"""The first bytes of a file that is no ONNX model -> what it is, and what to do about it."""

from __future__ import annotations

__all__ = ["HEAD", "describe_kind"]

HEAD = 64
"""Bytes that tell."""

_EXPORT = "export the model to ONNX and name that file"
_AGAINST = "`onnxledger reconcile MODEL.onnx --against` this file"
_STARTS = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself; run `git lfs pull`"),
    (b"\x1f\x8b", "compressed with gzip; unpack it first"),
    (b"BZh", "compressed with bzip2; unpack it first"),
    (b"\xfd7zXZ\x00", "compressed with xz; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd; unpack it first"),
    (b"PK\x03\x04", f"a zip archive, such as torch.save writes; {_EXPORT}; to compare: {_AGAINST}"),
    (b"\x80\x02", f"a Python pickle, which is never loaded here; {_EXPORT}"),
    (b"\x80\x03", f"a Python pickle, which is never loaded here; {_EXPORT}"),
    (b"\x80\x04", f"a Python pickle, which is never loaded here; {_EXPORT}"),
    (b"\x80\x05", f"a Python pickle, which is never loaded here; {_EXPORT}"),
    (b"\x89HDF\r\n", f"an HDF5 file, such as Keras writes; {_EXPORT}"),
    (b"GGUF", f"a GGUF file; {_EXPORT}"),
    (b"\x7fELF", "a program; name an .onnx file"),
    (b"\x89PNG", "a picture; name an .onnx file"),
    (b"ir_version", "an ONNX model in text form; convert it with onnx.load(path, format='textproto')"),
)
_PYTHON = "Python source; export the model that it makes, `onnxledger export MODULE:FUNCTION -o FOLDER`"
_TEXTS = (
    (b"<", "a web page or XML, perhaps the error page of a failed download; download it again"),
    (b"{", "JSON; name the .onnx file (a saved report can be compared, not inspected)"),
    (b"#", "a text file; name an .onnx file"),
    (b"import ", _PYTHON),
    (b"from ", _PYTHON),
    (b"def ", _PYTHON),
    (b"class ", _PYTHON),
    (b'"""', _PYTHON),
)


def describe_kind(head: bytes) -> str | None:
    """What a file that starts like this is, with the next step; None where nothing tells.

    >>> describe_kind(bytes.fromhex("1f8b0800"))
    'compressed with gzip; unpack it first'
    """
    for start, words in _STARTS:
        if head.startswith(start):
            return words
    if head[4:8] in (b"ORTM", b"TFL3"):
        kind = "onnxruntime's own format (.ort)" if head[4:8] == b"ORTM" else "a TFLite model"
        return f"{kind}; name the .onnx file that it was made from"
    if head[8:9] == b"{" and head[6:8] == b"\0\0":
        return f"a safetensors file; {_EXPORT}"
    for start, words in _TEXTS:
        if head.lstrip().startswith(start):
            return words
    return None
