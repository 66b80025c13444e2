"""Element types: ONNX's numbers and widths, numpy's equivalents."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from analyzer.model.dtypes import DType


@pytest.mark.parametrize(("name", "number"), sorted(onnx.TensorProto.DataType.items()))
def test_every_type_of_the_installed_onnx_is_known_by_name_and_number(name, number):
    assert DType[name] == number


@pytest.mark.parametrize("number", [-1, 99, 2**31 - 1])
def test_unknown_number_is_undefined(number):
    assert DType.from_onnx(number) is DType.UNDEFINED


@pytest.mark.parametrize("dtype", list(DType))
def test_numpy_type_is_as_wide_as_the_onnx_type(dtype):
    element = dtype.to_numpy()

    assert element is None or 8 * element.itemsize == dtype.bits


@pytest.mark.parametrize("dtype", list(DType))
def test_every_type_has_a_width_and_is_not_both_floating_and_integer(dtype):
    assert dtype.bits in (0, 2, 4, 6, 8, 16, 32, 64, 128)
    assert not (dtype.is_floating and dtype.is_integer)


@pytest.mark.parametrize(
    ("dtype", "numel", "nbytes"),
    [
        (DType.INT4, 0, 0),
        (DType.INT4, 1, 1),
        (DType.UINT4, 4, 2),
        (DType.INT4, 5, 3),
        (DType.UINT2, 5, 2),
        (DType.FLOAT4E2M1, 7, 4),
        (DType.BOOL, 3, 3),
        (DType.COMPLEX128, 2, 32),
        (DType.STRING, 9, 0),
        (DType.FLOAT, 2**62, 2**64),
    ],
)
def test_packed_types_round_up_to_whole_bytes(dtype, numel, nbytes):
    assert dtype.nbytes(numel) == nbytes


@pytest.mark.parametrize("dtype", [DType.STRING, DType.INT4, DType.UINT2, DType.FLOAT4E2M1, DType.UNDEFINED])
def test_strings_and_packed_types_have_no_numpy_type(dtype):
    assert dtype.to_numpy() is None


def test_numpy_types_are_little_endian_as_onnx_writes_them():
    assert DType.FLOAT.to_numpy() == np.dtype("<f4")


@pytest.mark.parametrize("dtype", [DType.BOOL, DType.STRING, DType.UNDEFINED])
def test_booleans_and_strings_are_neither_floating_nor_integer(dtype):
    assert (dtype.is_floating, dtype.is_integer) == (False, False)
