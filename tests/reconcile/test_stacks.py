"""PyTorch tensors by shape, and which of them samples may be of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from models import Array, manifest_of, parameter

from analyzer.reconciliation.contents import Contents
from analyzer.reconciliation.originals import Originals
from analyzer.reconciliation.stacks import Stacks
from analyzer.wiring import Wiring

KNOWN = np.array([[1.0, -2.0, 64.0]], np.float32)


def stacks_of(*arrays: Array, weightless: Sequence[Array] = ()) -> Stacks:
    tensors = [parameter(f"t{number}", array) for number, array in enumerate(arrays)]
    tensors += [parameter(f"w{number}", array, weightless=True) for number, array in enumerate(weightless)]
    return Stacks(Contents("full", Originals(manifest_of(*tensors)), Wiring({})), tensors)


def near(stored: Array, steps: Array | None = None, known: Array = KNOWN) -> bool:
    return bool(stacks_of(known).near(known.shape, (stored, steps)))


def test_numbers_and_tensors_without_values_are_left_out():
    pair = np.array([1.0, 2.0], np.float32)

    stacks = stacks_of(pair, pair[:1], weightless=[np.ones((2, 2), np.float32)])

    assert list(stacks.all_shapes) == [(2,)]
    assert (stacks.shapes(2), stacks.shapes(4)) == ([(2,)], [])


def test_each_shape_of_as_many_elements_is_listed_once():
    stacks = stacks_of(np.ones((2, 3)), np.ones(6), np.zeros((2, 3)))

    assert stacks.shapes(6) == [(2, 3), (6,)]


@pytest.mark.parametrize(("by", "is_near"), [(0.99, True), (1.01, False)])
def test_samples_may_be_rounded_by_a_sixty_fourth(by, is_near):
    stored = KNOWN.astype(np.float64)
    stored[0, 2] += by * stored[0, 2] / 64 / (1 - by / 64)

    assert near(stored) is is_near


@pytest.mark.parametrize(("by", "is_near"), [(1.0, True), (1.02, False)])
def test_codes_may_be_a_step_away(by, is_near):
    stored, steps = KNOWN.astype(np.float64), np.full(KNOWN.shape, 0.5)
    stored[0, 1] -= by * 0.5

    assert near(stored, steps) is is_near


@pytest.mark.parametrize("values", [np.array([["a", "b", "c"]]), np.array([[1j, 2j, 3j]])])
def test_what_is_no_real_number_is_near_nothing(values):
    assert not near(values)
