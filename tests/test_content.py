"""Evidence of content: equal evidence means equal bytes."""

from __future__ import annotations

import hashlib

import ml_dtypes
import numpy as np
import pytest
from models import ramp

from analyzer.model import content
from analyzer.model.content import (
    SAMPLES,
    channel_statistics,
    decode_values,
    digest,
    digest_transposed,
    encode_values,
    is_constant_filled,
    sample,
    sample_positions,
    transposed_positions,
)


def test_digest_is_sha256_of_the_row_major_bytes():
    assert digest(np.array([1, 2], "<f4")) == "sha256:" + hashlib.sha256(b"\0\0\x80?\0\0\0@").hexdigest()


def test_digest_of_a_strided_view_is_that_of_its_elements():
    array = ramp(4, 6)

    assert digest(array[:, ::2]) == digest(array[:, ::2].copy())
    assert digest(array.T) == digest(array.T.copy())


@pytest.mark.parametrize("shape", [(3, 5), (1, 7), (7, 1), (0, 3), (3, 0)])
@pytest.mark.parametrize("band_bytes", [1, 30, 1 << 24])
def test_transposed_digest_is_that_of_the_transpose_whatever_the_bands(monkeypatch, shape, band_bytes):
    monkeypatch.setattr(content, "_BAND_BYTES", band_bytes)
    matrix = ramp(*shape)

    assert digest_transposed(matrix) == digest(matrix.T)


def test_digest_of_half_types_and_scalars_is_taken():
    assert digest(np.array([1], ml_dtypes.bfloat16)) == digest(np.array(1, ml_dtypes.bfloat16))


def test_more_elements_than_any_file_holds_have_positions() -> None:
    positions = sample_positions(1 << 64)

    assert positions[0] == 0
    assert positions[-1] == (1 << 63) - 2
    assert (np.diff(positions) > 0).all()


@pytest.mark.parametrize("numel", [0, 1, 2, SAMPLES - 1, SAMPLES, SAMPLES + 1, 1000, 10**12])
def test_positions_are_distinct_and_hold_both_ends(numel):
    positions = sample_positions(numel).tolist()

    assert len(set(positions)) == len(positions) == min(numel, SAMPLES)
    assert positions == sorted(positions)
    assert not numel or (positions[0], positions[-1]) == (0, numel - 1)


@pytest.mark.parametrize("size", [64, 127, 190, 4096])
def test_positions_of_a_square_matrix_are_on_no_line_of_it(size):
    rows, columns = np.divmod(sample_positions(size * size, "any"), size)

    assert np.unique(rows).size > 40
    assert np.unique(columns).size > 40
    assert (rows == columns).sum() < SAMPLES / 4
    assert (rows + columns == size - 1).sum() < SAMPLES / 4


def test_positions_do_not_follow_from_the_size_alone():
    one, other = (sample_positions(1 << 20, salt) for salt in ("one", "other"))

    assert np.intersect1d(one, other).size < SAMPLES / 4
    assert one.tolist() == sample_positions(1 << 20, "one").tolist()


@pytest.mark.parametrize("shape", [(3, 5), (20, 30), (1, 100), (100, 1), (0, 4)])
def test_transposed_sample_is_that_of_the_transpose(shape):
    matrix = ramp(*shape)

    assert matrix.reshape(-1)[transposed_positions(*matrix.shape)].tolist() == sample(matrix.T).tolist()


@pytest.mark.parametrize(
    ("array", "filled"),
    [
        (np.zeros(1000, "f4"), True),
        (np.full((3, 4), np.nan, "f4"), True),
        (np.array([], "f4"), True),
        (np.array(3.0, "f4"), True),
        (np.array([1, 1, 2], "f4"), False),
        (np.array([0.0, -0.0], "f4"), False),
        (np.ones((4, 4), "f4").T, True),
    ],
)
def test_constant_filled_compares_bytes(array, filled):
    assert is_constant_filled(array) is filled


def test_elements_that_are_repeated_are_compared_once():
    """Arrays as `expand` makes them: four bytes that claim to be a tebibyte."""
    repeated = np.broadcast_to(np.float32(1), (1 << 19, 1 << 19))
    rows = np.broadcast_to(ramp(3, 1), (3, 1 << 38))

    assert is_constant_filled(repeated)
    assert not is_constant_filled(rows)


def test_one_element_between_the_samples_is_seen():
    array = np.zeros(10_000, "f4")
    array[1] = 1

    assert 1 not in sample_positions(array.size)
    assert not is_constant_filled(array)


def test_channel_statistics_scale_with_the_channel():
    weight = ramp(2, 3, 1, 1)  # 1 2 3, 4 5 6
    # splitmix64 seeded with 0: its first outputs, from the reference implementation by Sebastiano Vigna
    outputs = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    direction = [(-1 if z >> 63 else 1) * (0.5 + (z % 2**53) / 2**53) for z in outputs]

    projections, norms = channel_statistics(weight)

    expected = [sum(x * d for x, d in zip(row, direction, strict=True)) for row in ([1, 2, 3], [4, 5, 6])]
    assert projections.tolist() == pytest.approx(expected)
    assert channel_statistics(weight * -3)[0].tolist() == pytest.approx([-3 * e for e in expected])
    assert norms.tolist() == pytest.approx([14**0.5, 77**0.5])


def test_channel_projections_change_with_the_order_of_elements():
    weight = ramp(1, 9, 1, 1)
    swapped = weight.copy()
    swapped[0, [2, 5]] = weight[0, [5, 2]]

    assert channel_statistics(weight)[1].tolist() == pytest.approx(channel_statistics(swapped)[1].tolist())
    assert abs(channel_statistics(weight)[0] - channel_statistics(swapped)[0])[0] > 0.1


@pytest.mark.parametrize("dtype", ["<f4", "<i8", "?", ml_dtypes.bfloat16])
def test_values_come_back_as_they_were_written(dtype):
    array = np.array([[0, 1], [1, 0]]).astype(dtype)

    assert decode_values(encode_values(array), np.dtype(dtype)).tolist() == array.reshape(-1).tolist()


@pytest.mark.parametrize("text", ["not base64!", "AAA=", "AAAA AAAA"])
def test_text_that_is_no_whole_array_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        decode_values(text, np.dtype("<f4"))
