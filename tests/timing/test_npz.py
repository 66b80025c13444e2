"""Names, shapes and types of the arrays of an `.npz` file."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from analyzer.errors import UsageError
from analyzer.model.dtypes import DType
from analyzer.timing.inputs.feeds import Stored, read_headers


def write(folder: Path, *members: tuple[str, bytes]) -> Path:
    path = folder / "inputs.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def array(folder: Path, value: np.ndarray) -> bytes:
    path = folder / "array.npy"
    np.save(path, value, allow_pickle=True)
    return path.read_bytes()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_headers_of_all_arrays_are_read(tmp_path, save):
    save(tmp_path / "a.npz", **{"x.y": np.zeros((2, 3), np.int64), "z": np.float16(1)})

    assert read_headers(tmp_path / "a.npz") == (
        Stored("x.y", np.dtype("i8"), (2, 3)),
        Stored("z", np.dtype("f2"), ()),
    )


def test_python_objects_are_refused_and_not_unpickled(tmp_path):
    path = write(tmp_path, ("x.npy", array(tmp_path, np.array([{}], dtype=object))))

    with pytest.raises(UsageError, match="x holds Python objects"):
        read_headers(path)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04" + bytes(40)])
def test_file_that_is_no_archive_is_refused(tmp_path, content):
    path = tmp_path / "a.npz"
    path.write_bytes(content)

    with pytest.raises(UsageError, match=r"is no \.npz file"):
        read_headers(path)


def test_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_headers(tmp_path / "a.npz")


def headed(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


SHAPED = "{{'descr': '<f4', 'fortran_order': False, 'shape': {}}}"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        b"\x93NUMPY\x09\x00",
        headed("{'a'}"),
        headed("-" * 9000 + "1"),
        headed("(" * 9000),
        headed("'" * 3),
        headed(SHAPED.format("(-2, -4)") + "\n"),
        headed(SHAPED.format("('a',)") + "\n"),
        headed(SHAPED.format("(4,)").replace("<f4", "<f1") + "\n"),
    ],
)
def test_member_that_is_no_array_is_refused(tmp_path, content):
    with pytest.raises(UsageError, match="x is no array"):
        read_headers(write(tmp_path, ("x.npy", content)))


def test_array_that_is_shorter_than_its_header_says_is_refused(tmp_path):
    whole = array(tmp_path, np.zeros(100))

    with pytest.raises(UsageError, match="x is 200 bytes, and its header says 928"):
        read_headers(write(tmp_path, ("x.npy", whole[:200])))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_array_that_is_there_twice_is_refused(tmp_path):
    one = array(tmp_path, np.zeros(1))

    with pytest.raises(UsageError, match="has x twice"):
        read_headers(write(tmp_path, ("x.npy", one), ("x.npy", one)))


@pytest.mark.skipif(os.name != "posix", reason="devices and pipes are files on POSIX systems")
def test_only_a_regular_file_is_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")

    for path in (Path("/dev/zero"), tmp_path / "pipe.npz"):
        with pytest.raises(UsageError, match="is not a regular file"):
            read_headers(path)


@pytest.mark.parametrize(
    ("dtype", "wanted", "is_held"),
    [
        (np.dtype("i8"), DType.INT64, True),
        (np.dtype(">i8"), DType.INT64, True),
        (np.dtype("i4"), DType.INT64, False),
        (np.dtype("?"), DType.BOOL, True),
        (np.dtype("U3"), DType.STRING, True),
        (np.dtype("V2"), DType.BFLOAT16, True),
        (np.dtype("u2"), DType.BFLOAT16, True),
        (np.dtype(ml_dtypes.bfloat16), DType.BFLOAT16, True),
        (np.dtype("f4"), DType.BFLOAT16, False),
        (np.dtype("V1"), DType.FLOAT8E5M2, True),
        (np.dtype("u1"), DType.INT4, False),
    ],
)
def test_types_that_numpy_has_no_name_for_may_be_plain_bytes(dtype, wanted, is_held):
    assert Stored("x", dtype, ()).has_type(wanted) == is_held
