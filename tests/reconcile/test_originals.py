"""What is known of PyTorch's values: by a manifest's evidence, and by the values where they are at hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from models import Values, buffer, convolution, manifest_of, noise, parameter, ramp, table, without_values

from analyzer.content import cast_digest, digest, row_digests, sample
from analyzer.dtypes import DType
from analyzer.manifest import Manifest, Parameter
from analyzer.reconciliation.originals import Originals

WEIGHT = noise(40, 50)
FEW = noise(4, 5)


def both(*tensors: Parameter, arrays: dict[str, Any]) -> list[Originals]:
    manifest = manifest_of(*tensors)
    return [Originals(manifest), Originals(without_values(manifest), Values(arrays))]


def first(originals: Originals) -> Parameter:
    return originals.manifest.parameters[0]


def test_evidence_is_the_same_from_a_manifest_and_from_the_values():
    for known in both(convolution("w", WEIGHT), arrays={"w": WEIGHT}):
        tensor = first(known)
        sums, norms = known.channel_statistics(tensor)

        assert known.has(tensor)
        assert known.samples(tensor).tolist() == sample(WEIGHT).tolist()
        assert known.digest(tensor) == digest(WEIGHT)
        assert known.cast_digest(tensor, DType.FLOAT16) == cast_digest(WEIGHT, DType.FLOAT16)
        assert not known.is_constant(tensor)
        assert norms == pytest.approx(np.linalg.norm(WEIGHT, axis=1))
        assert sums.shape == (40,)


def test_row_digests_are_the_same_from_a_manifest_and_from_the_values():
    for known in both(table("w", WEIGHT), arrays={"w": WEIGHT}):
        assert known.row_digests(first(known)).tolist() == row_digests(WEIGHT).tolist()


def test_values_of_a_small_tensor_are_in_the_manifest_and_of_a_large_one_are_not():
    small, large = (Originals(manifest_of(parameter("w", array))) for array in (FEW, WEIGHT))

    assert np.array_equal(small.values(first(small)), FEW)
    assert large.values(first(large)) is None


def test_values_that_a_manifest_has_whole_are_its_values():
    known = Originals(manifest_of(parameter("w", WEIGHT), values={"w": WEIGHT}))

    assert np.array_equal(known.values(first(known)), WEIGHT)
    assert known.vector("w").dtype == np.float64


def test_values_at_hand_are_found_by_any_of_a_tied_tensors_names():
    known = Originals(manifest_of(parameter("wte", FEW, weightless=True, tied=("head",))), Values(head=FEW))

    assert np.array_equal(known.values(first(known)), FEW)


def test_values_at_hand_of_another_shape_are_not_this_tensors():
    known = Originals(manifest_of(parameter("w", FEW, weightless=True)), Values(w=FEW.T))

    assert known.values(first(known)) is None
    assert not known.has(first(known))


def test_tensor_that_a_checkpoint_lacks_is_known_by_the_manifest():
    known = Originals(manifest_of(parameter("w", WEIGHT)), Values())

    assert known.has(first(known))
    assert known.digest(first(known)) == digest(WEIGHT)


def test_nothing_is_known_of_a_model_without_weights():
    known = Originals(manifest_of(parameter("w", WEIGHT, weightless=True)))
    tensor = first(known)

    assert not known.has_content
    assert known.samples(tensor) is None
    assert known.digest(tensor) is None
    assert known.cast_digest(tensor, DType.FLOAT16) is None
    assert known.row_digests(tensor) is None
    assert known.channel_statistics(tensor) is None
    assert known.vector("w") is None


def test_what_is_not_known_may_be_constant():
    known = Originals(manifest_of(parameter("w", WEIGHT, weightless=True)))

    assert known.is_constant(first(known))


@pytest.mark.parametrize(
    ("array", "is_constant"),
    [
        (np.ones((40, 50), "f4"), True),
        (WEIGHT, False),
        (np.where(np.arange(2000) == 1, 2, 1).astype("f4"), False),
    ],
    ids=["ones", "noise", "one element between the samples"],
)
def test_constant_is_said_of_all_elements(array, is_constant):
    for known in both(parameter("w", array), arrays={"w": array}):
        assert known.is_constant(first(known)) == is_constant


def test_cast_that_a_manifest_does_not_describe_is_not_known():
    manifest = manifest_of(parameter("w", WEIGHT))
    bare = replace(manifest.parameters[0], content=replace(manifest.parameters[0].content, casts={}))

    assert Originals(Manifest((bare,))).cast_digest(bare, DType.FLOAT16) is None


def test_buffers_are_known_as_parameters_are():
    manifest = manifest_of(buffer("inv_freq", ramp(4)))

    known = Originals(manifest)

    assert known.vector("inv_freq").tolist() == [1, 2, 3, 4]
    assert known.vector("other") is None
    assert known.vector(None) is None
    assert known.named("inv_freq") is manifest.buffers[0]
