"""Findings about the values of weights, and when equal values deserve a warning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from memory import MemoryFile, opened
from models import audit, noise, ramp, text_model
from onnx import helper, numpy_helper

from analyzer.account.audit import audit_model
from analyzer.account.findings.facts import Values, check_values
from analyzer.account.ledger import Entry, Finding, Role, Severity
from analyzer.model import Carrier, NoPayload, Payload, StoredTensor
from analyzer.model.content import SAMPLES, Array, ContentMode
from analyzer.model.dtypes import DType

FLOATS = ["f2", "f4", "f8", "c8", "c16", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


@dataclass(frozen=True)
class InMemory:
    """Elements held in memory."""

    whole: Array

    def array(self) -> Array:
        return self.whole

    def sample(self, salt: str = "") -> Array:
        return self.at(np.linspace(0, self.whole.size - 1, min(SAMPLES, self.whole.size)).astype(np.int64))

    def at(self, positions: object) -> Array:
        return self.whole.reshape(-1)[positions]

    def parts(self) -> Sequence[Array]:
        return [part for part in np.array_split(self.whole.reshape(-1), 3) if part.size]


def entry(
    array: Array,
    role: Role = Role.PARAMETER,
    name: str = "w",
    dtype: DType | None = None,
    payload: Payload | None = None,
) -> Entry:
    dtype = dtype or DType(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
    tensor = StoredTensor(
        name,
        (),
        Carrier.INITIALIZER,
        dtype,
        array.shape,
        array.size,
        array.nbytes,
        payload or InMemory(array),
    )
    return Entry(tensor, role, "none", "", "none", (), 1, "Add", 0, array.size)


def looked(array: Array, role: Role = Role.PARAMETER, content: ContentMode = "sampled") -> tuple[bool, bool]:
    """Return (is constant, is not finite)."""
    values = check_values([entry(array, role)], content)
    return ((), "w") in values.constant, ((), "w") in values.not_finite


# one value throughout


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", [0, 1, 2])
def test_tensor_of_one_value_is_constant_in_every_type(dtype, value):
    assert looked(np.full((3, 4), value).astype(dtype)) == (True, False)


@pytest.mark.parametrize("place", [0, 5, 11])
def test_one_other_element_makes_it_no_constant(place):
    array = np.zeros(12, "f4")
    array[place] = 1

    assert looked(array) == (False, False)


def test_zero_and_minus_zero_are_two_values():
    assert looked(np.array([0.0, -0.0], "f4")) == (False, False)


@pytest.mark.parametrize("array", [np.zeros((), "f4"), np.zeros(1, "f4"), np.zeros(0, "f4")])
def test_fewer_than_two_elements_are_no_constant(array):
    assert looked(array) == (False, False)


@pytest.mark.parametrize("role", [Role.BUFFER, Role.QUANTIZATION, Role.CONSTANT, Role.UNATTRIBUTED])
def test_only_what_is_learned_is_reported_as_constant(role):
    assert looked(np.zeros(4, "f4"), role) == (False, False)


# elements that are no numbers


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_is_found_in_every_type(dtype):
    array = np.arange(6).astype(dtype)
    array[3] = np.nan

    assert looked(array) == (False, True)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize(
    ("role", "is_reported"), [(Role.PARAMETER, True), (Role.QUANTIZATION, True), (Role.BUFFER, False)]
)
def test_infinity_is_found_in_what_is_no_mask(dtype, value, role, is_reported):
    array = np.arange(6).astype(dtype)
    array[3] = value

    assert looked(array, role) == (False, is_reported)


def test_nan_of_a_buffer_is_found():
    assert looked(np.array([1, np.nan], "f4"), Role.BUFFER) == (False, True)


@pytest.mark.parametrize("role", [Role.CONSTANT, Role.UNATTRIBUTED])
def test_constants_of_the_exporter_may_have_any_values(role):
    assert looked(np.array([1, np.nan], "f4"), role) == (False, False)


def test_tensor_of_nan_is_constant_and_no_number():
    assert looked(np.full(4, np.nan, "f4")) == (True, True)


def test_integers_are_not_looked_at():
    assert looked(np.zeros(4, "i8")) == (False, False)


def test_codes_of_four_bits_are_always_numbers():
    codes = np.full(4, 15, np.uint8)

    values = check_values([entry(codes, dtype=DType.FLOAT4E2M1)], "full")

    assert values == Values(frozenset({((), "w")}))


def test_one_broken_tensor_among_many_is_reported_alone():
    entries = [entry(ramp(5), name=f"w{index}") for index in range(3000)]
    entries[1500] = entry(np.array([1, np.inf], "f4"), name="w1500")
    entries[7] = entry(np.zeros(3, "f2"), name="w7")

    assert check_values(entries, "sampled") == Values(frozenset({((), "w7")}), frozenset({((), "w1500")}))


# how much of a tensor is examined


LARGE = 100_000


@pytest.mark.parametrize(("content", "is_found"), [("sampled", False), ("full", True), ("none", False)])
def test_element_between_the_samples_is_found_where_all_are_looked_at(content, is_found):
    array = np.arange(LARGE, dtype="f4")
    array[1] = np.nan

    assert looked(array, content=content) == (False, is_found)


@pytest.mark.parametrize(("content", "is_constant"), [("sampled", True), ("full", False), ("none", False)])
def test_large_tensor_is_constant_as_far_as_it_was_looked_at(content, is_constant):
    array = np.zeros(LARGE, dtype="f4")
    array[1] = 1

    assert looked(array, content=content) == (is_constant, False)


def test_small_tensor_is_looked_at_whole_also_where_contents_are_sampled():
    array = np.arange(5000, dtype="f4")
    array[1] = np.nan

    assert looked(array) == (False, True)


def test_nothing_is_read_where_contents_are_not_looked_at():
    proto = text_model("g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }", {"w": ramp(3, 2)})
    source = MemoryFile(proto.SerializeToString())

    with opened(source):
        ledger = audit_model("/memory/model.onnx", content="none")
        reads = len(source.reads)
        audit_model("/memory/model.onnx", content="sampled")

    assert ledger.findings == ()
    assert len(source.reads) > 2 * reads


def test_tensor_whose_elements_cannot_be_read_has_no_findings():
    assert check_values([entry(ramp(5), payload=NoPayload())], "full") == Values()
    assert check_values([entry(ramp(LARGE), payload=NoPayload())], "full") == Values()


def test_every_encoding_is_looked_at():
    broken = np.array([1, np.nan, 2, 3], "f4")
    proto = text_model("g (float[1,4] x) => (float[1,1] y) { a = MatMul(x, raw) y = MatMul(a, listed) }")
    proto.graph.initializer.append(numpy_helper.from_array(broken.reshape(4, 1), "raw"))
    proto.graph.initializer.append(helper.make_tensor("listed", 1, [1, 4], broken))

    with opened(MemoryFile(proto.SerializeToString())):
        ledger = audit_model("/memory/model.onnx")

    assert [finding.subjects for finding in ledger.findings if finding.id == "nan-or-inf"] == [
        ("listed", "raw")
    ]


def test_progress_counts_all_that_is_looked_at():
    steps: list[tuple[int, int]] = []
    entries = [entry(ramp(4), name=f"w{index}") for index in range(3)] + [entry(ramp(LARGE), name="large")]

    check_values(entries, "sampled", lambda *step: steps.append(step))

    assert steps == [(3, 4), (4, 4)]


# when equal values deserve a warning, and when every fresh model has them

TEXT = """
    g (float[1,8] x) => (float[1,8] y) {
        h = MatMul(x, w)
        k = LayerNormalization(h, scale, bias)
        y = MatMul(k, v)
    }
"""
FRESH = {"scale": np.ones(8, "f4"), "bias": np.zeros(8, "f4")}


def constant(folder: Path, weights: Mapping[str, Array]) -> Finding:
    ledger = audit(folder, text_model(TEXT, {**FRESH, **weights}))
    (found,) = (finding for finding in ledger.findings if finding.id == "constant-filled")
    return found


def test_zero_biases_and_gains_of_one_are_a_note(tmp_path: Path) -> None:
    found = constant(tmp_path, {"w": noise(8, 8), "v": noise(8, 8, seed=1)})

    assert (found.severity, found.subjects) == (Severity.NOTE, ("bias", "scale"))
    assert found.message == "16 learned elements are in tensors of one value throughout"


def test_matrices_of_one_value_that_are_most_of_a_model_are_a_warning(tmp_path: Path) -> None:
    found = constant(tmp_path, {"w": np.full((8, 8), 0.5, "f4"), "v": np.full((8, 8), 0.1, "f4")})

    assert found.severity is Severity.WARNING
    assert "most of the model: it was never trained, or its weights were not loaded" in found.message


@pytest.mark.parametrize("seed", [0, 1])
def test_one_of_two_matrices_is_not_most_of_a_model(tmp_path: Path, seed: int) -> None:
    found = constant(tmp_path, {"w": np.zeros((8, 8), "f4"), "v": noise(8, 8, seed=seed)})

    assert found.severity is Severity.NOTE
    assert "w" in found.subjects


@pytest.mark.parametrize("content", ["sampled", "full"])
def test_among_many_small_tensors_of_many_types_each_is_reported_by_itself(tmp_path, content):
    types = ["f2", "f4", "f8", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
    weights, constant, broken = {}, set(), set()
    for number in range(60):
        array = (noise(2, 3, seed=number) + 2).astype(types[number % 5])
        if number % 7 == 0:
            array[:] = array[0, 0]
            constant.add(f"layer.{number}.weight")
        elif number % 11 == 0:
            array[1, 2] = np.nan
            broken.add(f"layer.{number}.weight")
        weights[f"layer.{number}.weight"] = array
    onnx.save(text_model("g (float[1] x) => (float[1] x) {}", weights), tmp_path / "m.onnx")

    values = check_values(audit_model(tmp_path / "m.onnx").entries, content)

    assert {name for _, name in values.constant} == constant
    assert {name for _, name in values.not_finite} == broken
