"""Tables that few numbers say, and what never is one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import Array, noise

from analyzer.tables import count_free, is_known_table


def causal(size: int, low: float) -> Array:
    return np.triu(np.full((size, size), low, "f4"), 1)


def banded(size: int, width: int) -> Array:
    distance = np.arange(size)[:, None] - np.arange(size)[None, :]
    return ((distance >= 0) & (distance < width)).astype("f4")


def blocked(size: int, width: int) -> Array:
    group = np.arange(size) // width
    return np.where(group[:, None] == group[None, :], np.float32(0), np.float32(-100))


def shifted_windows(size: int, window: int, shift: int) -> Array:
    """Swin's mask of a picture of size by size, after Liu et al. 2021 and torchvision's `shifted_window_attention`."""
    regions = np.zeros((size, size))
    cuts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
    for number, (rows, columns) in enumerate((r, c) for r in cuts for c in cuts):
        regions[rows, columns] = number
    count = size // window
    tiles = regions.reshape(count, window, count, window).transpose(0, 2, 1, 3).reshape(count**2, window**2)
    return np.where(tiles[:, None, :] == tiles[:, :, None], np.float32(0), np.float32(-100))


def frequencies(count: int, base: float) -> Array:
    return (base ** (-np.arange(count) / count)).astype("f4")


def scaled_frequencies(count: int, base: float, factor: float) -> Array:
    """Llama 3's: the lowest are divided, a few between both are smoothed."""
    plain = frequencies(count, base).astype("f8")
    turns = 8192 * plain / (2 * np.pi)
    smooth = np.clip((turns - 1) / 3, 0, 1)
    return ((1 - smooth) * plain / factor + smooth * plain).astype("f4")


def slopes(heads: int) -> Array:
    """ALiBi's of any number of heads, as Press et al. 2021's code gives them."""
    power = 1 << (heads.bit_length() - 1)
    first = 2.0 ** (-8 / power * np.arange(1, power + 1))
    more = 2.0 ** (-4 / power * np.arange(1, 2 * (heads - power), 2))
    return np.concatenate([first, more]).astype("f4")


def angles(positions: int, count: int, base: float) -> Array:
    return np.arange(positions)[:, None] * base ** (-np.arange(count) / count)


def positions_of_sinusoids(positions: int, width: int, *, interleaved: bool) -> Array:
    """Vaswani et al. 2017: sines and cosines in turn; fairseq: all sines, then all cosines."""
    found = angles(positions, width // 2, 1e4)
    pair = (np.sin(found), np.cos(found))
    table = np.stack(pair, -1).reshape(positions, width) if interleaved else np.concatenate(pair, 1)
    return table.astype("f4")


TABLES: dict[str, Array] = {
    **{f"a count of {size}": np.arange(size) for size in (2, 5, 77, 512)},
    "a count of floats": np.linspace(-1, 1, 33, dtype="f4"),
    "a count backwards": np.arange(40)[::-1].copy(),
    "a grid's cells": np.arange(35).reshape(5, 7),
    "distances with a sign": np.arange(12)[None, :] - np.arange(9)[:, None],
    **{f"a causal mask of {low:g}": causal(16, low) for low in (-1e4, -np.inf, float(np.finfo("f4").min))},
    "a causal mask of ones": np.tril(np.ones((1, 1, 40, 40), bool)),
    **{f"a band of {width}": banded(24, width) for width in (1, 2, 7)},
    **{f"blocks of {width}": blocked(24, width) for width in (3, 6, 8)},
    "shifted windows": shifted_windows(8, 4, 2),
    "shifted windows of 7": shifted_windows(14, 7, 3),
    "an identity": np.eye(9, dtype="f4"),
    "ends that are masked": np.array([0, 0, 0, 0, -1e9, -1e9], "f4"),
    **{f"frequencies of base {base:g}": frequencies(32, base) for base in (1e4, 5e5, 1e6)},
    "frequencies, again": np.tile(frequencies(16, 1e4), 2),
    "frequencies, each twice": np.repeat(frequencies(16, 1e4), 2),
    "frequencies below zero": -frequencies(16, 1e4),
    "scaled frequencies": scaled_frequencies(64, 5e5, 8),
    "frequencies in bfloat's precision": (frequencies(16, 1e4).view("u4") & 0xFFFF0000)
    .view("f4")
    .astype("f2"),
    **{f"slopes of {heads} heads": slopes(heads) for heads in (4, 8, 12, 16, 71)},
    "ALiBi's bias": slopes(8)[:, None, None] * -np.abs(np.arange(10)[None, :, None] * 0 + np.arange(10)),
    "ALiBi's bias of 12 heads": slopes(12)[:, None] * np.arange(20)[None, :],
    "sines and cosines in turn": positions_of_sinusoids(50, 64, interleaved=True),
    "sines, then cosines": positions_of_sinusoids(50, 64, interleaved=False),
    "few positions of sines": positions_of_sinusoids(8, 16, interleaved=False),
    **{f"rotary cosines of {count}": np.cos(angles(64, count, 1e4)).astype("f4") for count in (8, 32)},
    "rotary sines, twice": np.tile(np.sin(angles(64, 16, 5e5)), (1, 2)).astype("f4"),
    "rotary cosines in half": np.cos(angles(64, 16, 1e4)).astype("f2"),
    "rotary cosines over axes of one": np.cos(angles(64, 16, 1e4)).astype("f4")[None, None],
}


@pytest.mark.parametrize("table", TABLES)
def test_a_known_table_takes_no_number(table: str) -> None:
    assert count_free(TABLES[table]) == 0


def shuffled(array: Array, seed: int = 0) -> Array:
    order = np.random.default_rng(seed).permutation(array.size)
    return array.reshape(-1)[order].reshape(array.shape)


OTHERS: dict[str, Array] = {
    "noise": noise(16, 16),
    "a vector of noise": noise(64),
    "small noise": noise(16, 16) * np.float32(1e-5),
    "noise of int8": (noise(16, 16) * 40).astype("i1"),
    "a permutation": np.random.default_rng(0).permutation(64),
    "signs": np.sign(noise(16, 16)),
    "random bits": noise(16, 16) > 0,
    "random bits of a mask": np.where(noise(16, 16) > 0, np.float32(0), np.float32(-1e4)),
    "a matrix of low rank": noise(16, 1) @ noise(1, 16, seed=1),
    "an orthogonal matrix": np.linalg.qr(noise(16, 16))[0],
    "a trained norm's gain": 1 + noise(64) * np.float32(0.02),
    "sorted noise": np.sort(noise(64)),
    "a sine of each column's own size": np.sin(angles(64, 16, 1e4)) * np.abs(noise(16))[None, :],
    "a sum of waves": np.sin(angles(64, 16, 1e4)) + np.sin(3 * angles(64, 16, 1e4) + 1),
    "a count and noise": np.arange(64) + noise(64) * np.float32(0.1),
    "frequencies that are shuffled": shuffled(frequencies(32, 1e4)),
    "a causal mask that is shuffled": shuffled(causal(16, -1e4)),
    "a causal mask with one element changed": np.where(
        np.arange(256).reshape(16, 16) == 40, np.float32(0), causal(16, -1e4)
    ),
    "noise in a causal mask": np.triu(noise(16, 16), 1),
    "blocks of numbers": np.kron(noise(4, 4), np.ones((4, 4), "f4")),
    "slopes and distances with noise": slopes(8)[:, None] * np.arange(20)[None, :]
    + noise(8, 20) * np.float32(0.01),
    "sinusoids with their rows exchanged": positions_of_sinusoids(50, 64, interleaved=False)[
        np.random.default_rng(0).permutation(50)
    ],
}


@pytest.mark.parametrize("array", OTHERS)
def test_anything_else_takes_all_its_numbers(array: str) -> None:
    assert count_free(OTHERS[array]) == OTHERS[array].size


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([(8,), (64,), (6, 6), (16, 8), (4, 4, 4), (5, 40)]),
    st.sampled_from(["f4", "f2", "i1"]),
    st.floats(1e-3, 1e2),
)
@settings(max_examples=150, deadline=None)
def test_noise_never_is_a_table(seed: int, shape: tuple[int, ...], dtype: str, scale: float) -> None:
    reals = np.random.default_rng(seed).standard_normal(shape)
    array = np.clip(reals * 40, -127, 127).astype(dtype) if dtype == "i1" else (reals * scale).astype(dtype)

    assert not is_known_table(array)


@given(st.integers(0, 2**32 - 1), st.integers(12, 200))
@settings(max_examples=50, deadline=None)
def test_a_permutation_never_is_a_table(seed: int, size: int) -> None:
    assert not is_known_table(np.random.default_rng(seed).permutation(size))


@given(
    st.integers(5, 100), st.integers(2, 24), st.sampled_from([1e4, 5e5, 1e6]), st.sampled_from(["sin", "cos"])
)
@settings(max_examples=60, deadline=None)
def test_rotary_tables_of_any_size_are_known(positions: int, count: int, base: float, wave: str) -> None:
    found = getattr(np, wave)(angles(positions, count, base)).astype("f4")

    assert is_known_table(found)
    assert is_known_table(np.concatenate([found, found], 1))
    assert is_known_table(np.repeat(found, 2, 1))


@given(st.integers(2, 40), st.integers(-3, 3), st.sampled_from([-1e4, -np.inf, 1.0]))
@settings(max_examples=60, deadline=None)
def test_triangles_of_any_size_are_known(size: int, shift: int, low: float) -> None:
    mask = np.where(np.tri(size, k=shift) > 0, 0.0, low).astype("f4")

    assert count_free(mask) <= 1


def test_one_value_throughout_takes_one_number() -> None:
    assert count_free(np.full((8, 8), 3.5, "f4")) == 1


def test_no_elements_take_no_number_and_one_takes_one() -> None:
    assert count_free(np.zeros((0, 4), "f4")) == 0
    assert count_free(np.float32(3.5).reshape(1, 1)) == 1


def test_text_takes_all_its_elements() -> None:
    assert count_free(np.array(["a", "a", "a"], object)) == 3


@pytest.mark.parametrize("count", [8, 32])
def test_a_table_is_known_within_half_a_step_of_its_codes(count: int) -> None:
    table = np.cos(angles(64, count, 1e4))
    step = float(2 / 255)
    decoded = (np.round(table / step) * step).astype("f4")

    assert count_free(decoded, step) == 0
    assert count_free(decoded) == decoded.size


def test_codes_of_noise_are_no_table_within_half_a_step() -> None:
    step = 0.02
    decoded = (np.round(noise(32, 32) / step) * step).astype("f4")

    assert count_free(decoded, step) == decoded.size


@pytest.mark.parametrize("rows", [200, 513])
def test_a_large_table_whose_corner_alone_is_known_is_none(rows: int) -> None:
    table = np.arange(rows * 128, dtype="f4").reshape(rows, 128)
    hidden = table.copy()
    hidden[8:, 8:] = noise(rows - 8, 120)

    assert count_free(table) == 0
    assert count_free(hidden) == hidden.size
