"""Arrays that a model is fed."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from analyzer.model.dtypes import DType
from analyzer.timing.inputs.arrays import make_array
from analyzer.timing.request import Feed, Fill

NUMBERS = [
    "FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 BOOL FLOAT16 DOUBLE UINT32 UINT64",
    "BFLOAT16 FLOAT8E4M3FN FLOAT8E5M2",
]
TYPES = " ".join(NUMBERS).split()


def feed(fill: Fill, low: float = 0, high: float = 0, dtype: str = "INT64", shape=(2, 3), name="x") -> Feed:
    return Feed(name, dtype, shape, fill, low, high)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("fill", [Fill.INTEGERS, Fill.UNIFORM, Fill.CONSTANT, Fill.POSITIONS])
def test_arrays_have_the_type_and_the_shape_of_the_feed(dtype, fill):
    array = make_array(feed(fill, 0, 1, dtype), 0)

    assert (array.dtype, array.shape) == (DType[dtype].to_numpy(), (2, 3))


@pytest.mark.parametrize("fill", [Fill.INTEGERS, Fill.UNIFORM])
def test_same_seed_and_name_give_the_same_elements_and_others_others(fill):
    def made(name: str, seed: int) -> list[float]:
        return make_array(feed(fill, 0, 1000, "FLOAT", (50,), name), seed).tolist()

    assert made("x", 1) == made("x", 1)
    assert made("x", 1) != made("x", 2)
    assert made("x", 1) != made("y", 1)


def test_integers_reach_both_ends_and_go_no_further():
    assert set(make_array(feed(Fill.INTEGERS, 3, 5, shape=(200,)), 0).tolist()) == {3, 4, 5}


def test_numbers_are_between_the_ends():
    array = make_array(feed(Fill.UNIFORM, -1, 1, "FLOAT", (1000,)), 0)

    assert -1 <= array.min() < -0.9
    assert 0.9 < array.max() <= 1


def test_constant_is_one_number_and_of_booleans_whether_it_is_not_0():
    assert make_array(feed(Fill.CONSTANT, 2, 2), 0).tolist() == [[2, 2, 2], [2, 2, 2]]
    assert make_array(feed(Fill.CONSTANT, 2, 2, "BOOL", ()), 0).tolist() is True


def test_positions_follow_each_other_and_stay_within_the_table():
    assert make_array(feed(Fill.POSITIONS, 7), 0).tolist() == [[7, 8, 9], [7, 8, 9]]
    assert make_array(feed(Fill.POSITIONS, 7, 8), 0).tolist() == [[7, 8, 8], [7, 8, 8]]
    assert make_array(feed(Fill.POSITIONS, 7, shape=()), 0).tolist() == 7


def test_text_is_text():
    array = make_array(feed(Fill.TEXT, dtype="STRING", shape=(2,)), 0)

    assert array.tolist() == ["a", "a"]


@pytest.mark.parametrize("fill", [Fill.INTEGERS, Fill.UNIFORM, Fill.POSITIONS, Fill.CONSTANT, Fill.TEXT])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_arrays_are_made(fill, shape):
    assert make_array(feed(fill, 0, 1, shape=shape), 0).shape == shape


@pytest.mark.parametrize("dtype", ["INT4", "UNDEFINED"])
def test_types_without_arrays_are_refused(dtype):
    with pytest.raises(ValueError, match="have no numpy type"):
        make_array(feed(Fill.CONSTANT, dtype=dtype), 0)


def saved(folder: Path, array: np.ndarray) -> str:
    np.savez(folder / "inputs.npz", x=array)
    return str(folder / "inputs.npz")


@pytest.mark.parametrize("dtype", TYPES)
def test_file_gives_its_array_with_the_types_that_numpy_has_no_name_for(tmp_path, dtype):
    array = np.ones((2, 3), DType[dtype].to_numpy())
    plain = array.view(np.uint8) if dtype.startswith("FLOAT8") else array

    found = make_array(feed(Fill.FILE, dtype=dtype), 0, saved(tmp_path, plain))

    assert found.dtype == array.dtype
    assert (found == array).all()


def test_bits_of_a_type_may_be_saved_as_integers(tmp_path):
    ones = np.ones((2, 3), ml_dtypes.bfloat16)

    found = make_array(feed(Fill.FILE, dtype="BFLOAT16"), 0, saved(tmp_path, ones.view(np.uint16)))

    assert (found == ones).all()


def test_texts_of_a_file_are_objects(tmp_path):
    found = make_array(feed(Fill.FILE, dtype="STRING", shape=(2,)), 0, saved(tmp_path, np.array(["a", "bc"])))

    assert (found.dtype, found.tolist()) == (np.dtype(object), ["a", "bc"])


def test_file_that_has_changed_since_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the file has changed"):
        make_array(feed(Fill.FILE), 0, saved(tmp_path, np.zeros(3)))
