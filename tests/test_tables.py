"""Arrays that are tables without learned information, and arrays that are not."""

from __future__ import annotations

import cProfile
import math
import pstats
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.model.content import Array
from analyzer.model.tables import count_free, is_geometric, is_known_table

steady = settings(derandomize=True, deadline=None, database=None, max_examples=60)

LOWEST = float(np.finfo(np.float32).min)


def frequencies(width: int, base: float = 1e4) -> Array:
    return base ** (-np.arange(0, width, 2) / width)


def angles(positions: int, width: int, base: float = 1e4, start: int = 0) -> Array:
    return np.outer(np.arange(start, start + positions), frequencies(width, base))


def halves(positions: int, width: int, wave: Callable[[Array], Array], base: float = 1e4) -> Array:
    """Return tables of Llama's rotary embeddings: each column twice, side by side."""
    return np.tile(wave(angles(positions, width, base)), (1, 2))


def interleaved(positions: int, width: int, start: int = 0) -> Array:
    """Return positions of Vaswani et al.: sines and cosines in alternate columns."""
    table = np.empty((positions, width))
    table[:, 0::2], table[:, 1::2] = (
        np.sin(angles(positions, width, start=start)),
        np.cos(angles(positions, width, start=start)),
    )
    return table


def distances(rows: int, columns: int) -> Array:
    return np.arange(columns)[None, :] - np.arange(rows)[:, None]


def slopes(heads: int) -> Array:
    """Return ALiBi's slopes: powers of 2^(-8/n); beyond a power of two, every other slope of twice as many heads."""
    power = 1 << int(math.log2(heads))
    first = 2.0 ** (-8 / power * np.arange(1, power + 1))
    more = 2.0 ** (-4 / power * np.arange(1, 2 * power + 1, 2))
    return np.concatenate([first, more])[:heads]


def causal(size: int, low: float = -math.inf) -> Array:
    return np.where(np.tril(np.ones((size, size), bool)), 0.0, low)


def windows(height: int, width: int, up: int, left: int) -> Array:
    """Return the mask (cells, cells) by which each cell of a grid sees those up to so many rows and columns away."""
    rows, columns = (each.ravel() for each in np.indices((height, width)))
    far = (np.abs(rows[:, None] - rows) > up) | (np.abs(columns[:, None] - columns) > left)
    return np.where(far, -np.inf, 0.0)


def window(size: int, width: int, low: float = LOWEST) -> Array:
    return np.where(np.abs(distances(size, size)) <= width, 0.0, low)


def shifted_windows() -> Array:
    """Return Swin's masks: 4 windows of 4 x 4 positions; the last of a row or column has two or four groups."""
    groups = np.zeros((4, 16), int)
    groups[1:] = [
        np.repeat([0, 1], 8),
        np.tile([0, 0, 1, 1], 4),
        2 * np.repeat([0, 1], 8) + np.tile([0, 0, 1, 1], 4),
    ]
    return np.where(groups[:, :, None] == groups[:, None, :], 0.0, -100.0)


def scaled_frequencies() -> Array:
    """Return Llama 3's frequencies: low ones divided by 8, with a smooth transition."""
    freq = frequencies(128, 5e5)
    length = 2 * np.pi / freq
    smooth = np.clip((8192 / length - 1) / 3, 0, 1)
    return np.where(length > 8192, freq / 8, (1 - smooth) * freq / 8 + smooth * freq)


def yarn_frequencies() -> Array:
    """Return YaRN's frequencies: fast ones unchanged, slow ones divided by 4, with a linear ramp between."""
    freq = frequencies(64)
    ramp = np.clip((np.arange(32) - 9) / 8, 0, 1)
    return (1 - ramp) * freq + ramp * freq / 4


def coordinates(*sides: int) -> Array:
    """Return the coordinates (places, axes) of a grid."""
    return np.stack([axis.ravel() for axis in np.indices(sides)], axis=-1)


def dealt(freq: Array) -> Array:
    """Return frequencies in the order of Pixtral: every other one for rows, then the others for columns."""
    return np.concatenate([freq[::2], freq[1::2]])


def rotary_grid(rows: int, columns: int) -> Array:
    """Return EVA's table: sines, then cosines of a position's row and column, each frequency twice."""
    freq = np.repeat(frequencies(8), 2)
    row, column = (place.reshape(-1, 1) for place in np.indices((rows, columns)))
    turned = np.concatenate([row * freq, column * freq], axis=1)
    return np.concatenate([np.sin(turned), np.cos(turned)], axis=1)


def sinusoids_of_grid(rows: int, columns: int) -> Array:
    """Return the table of MAE and diffusion transformers: sines and cosines of a position's column, then of its row."""
    row, column = (np.outer(place.ravel(), frequencies(16)) for place in np.indices((rows, columns)))
    return np.concatenate([np.sin(column), np.cos(column), np.sin(row), np.cos(row)], axis=1)


def windows_of_pooling(*sides: tuple[int, int]) -> Array:
    """Return the coordinates (bins, places, bins, places, 2) that torch gathers for an adaptive pooling to `bins`."""
    lines = []
    for length, bins in sides:
        start = np.floor(np.arange(bins) * length / bins)
        end = np.ceil((np.arange(bins) + 1) * length / bins)
        lines.append(np.minimum(start[:, None] + np.arange(int((end - start).max())), length - 1))
    rows, columns = np.broadcast_arrays(lines[0][:, :, None, None], lines[1])
    return np.stack([rows, columns], axis=-1)


def sinusoids_of_volume(*sides: int) -> Array:
    """Return vit-pytorch's table of a video's positions: sines and cosines of each axis, filled up with zeros."""
    places = [place.ravel() for place in np.indices(sides)]
    turned = [np.outer(place, frequencies(10)) for place in reversed(places)]
    waves = np.concatenate([function(each) for each in turned for function in (np.sin, np.cos)], axis=1)
    return np.pad(waves, ((0, 0), (0, 4)))


def sinusoids_of_image(rows: int, columns: int) -> Array:
    """Return DETR's table (channels, rows, columns): normalized rows, then columns; sines and cosines in turn."""
    halves_of = []
    for place, count in zip(np.indices((rows, columns)) + 1.0, (rows, columns), strict=True):
        turned = (
            place[..., None] / (count + 1e-6) * 2 * np.pi * frequencies(16)
        )  # (rows, columns, frequencies)
        halves_of.append(np.stack([np.sin(turned), np.cos(turned)], axis=-1).reshape(rows, columns, -1))
    return np.moveaxis(np.concatenate(halves_of, axis=-1), -1, 0)


def logarithms(rows: int, columns: int) -> Array:
    """Return Swin V2's table (rows, columns, 2): signed logarithms, in base 8, of distances that are 8 at the end."""
    places = np.meshgrid(np.arange(1 - rows, rows), np.arange(1 - columns, columns), indexing="ij")
    eighths = [8 * place / (count - 1) for place, count in zip(places, (rows, columns), strict=True)]
    return np.stack([np.sign(each) * np.log1p(np.abs(each)) / np.log(8) for each in eighths], axis=-1)


def logarithms_of_pairs(side: int) -> Array:
    """Return the table of timm's Swin V2, (pairs, 2): signed logarithms of one plus the distances of two positions."""
    row, column = np.divmod(np.arange(side * side), side)
    distances_of = [(each[:, None] - each).reshape(-1) for each in (row, column)]
    return np.stack([np.sign(each) * np.log1p(np.abs(each)) for each in distances_of], axis=-1)


def padded(row: int) -> Array:
    """Return fairseq's table: sines, then cosines, and zeros in the row of the padding position."""
    table = np.concatenate([np.sin(angles(40, 32)), np.cos(angles(40, 32))], axis=1)
    table[row] = 0
    return table


def counted_down(first: int, last: int) -> Array:
    """Return XLNet's table: sines, then cosines, of distances from one side of a token to the other."""
    turned = np.outer(np.arange(first, last, -1), frequencies(32))
    return np.concatenate([np.sin(turned), np.cos(turned)], axis=1)


def box() -> Array:
    """Return Funnel's mask: ones between all positions except the class token, which is first."""
    mask = np.ones((11, 9))
    mask[0] = mask[:, 0] = 0
    return mask


TABLES = {
    "count": np.arange(64),
    "count of steps": np.arange(3, 200, 7),
    "count down": np.arange(64)[::-1],
    "linspace": np.linspace(-1, 1, 33, dtype="f4"),
    "grid": np.add.outer(8 * np.arange(7), np.arange(8)),
    "distances": distances(9, 17),
    "coordinates": np.moveaxis(np.indices((3, 11, 7)), 0, -1),
    "coordinates of a batch": np.moveaxis(np.indices((2, 1, 1, 11)), 0, -1)[..., [0, 3]],
    "causal mask": causal(12),
    "causal mask of ones": np.tril(np.ones((12, 12), bool)),
    "causal mask of a type's least number": causal(12, LOWEST),
    "mask for a batch": np.broadcast_to(causal(8, -1e4), (2, 1, 8, 8)),
    "window": window(20, 3),
    "windows in a grid": windows(4, 6, 1, 2),
    "windows in a square grid": windows(5, 5, 1, 1),
    "stripe of padding": np.where(np.arange(12)[None, :] < 7, 0.0, -1e9).repeat(6, axis=0),
    "shifted windows": shifted_windows(),
    "frequencies": frequencies(64),
    "frequencies twice": np.repeat(frequencies(64), 2),
    "frequencies again": np.tile(frequencies(64), 2),
    "scaled frequencies": scaled_frequencies(),
    "slopes": slopes(8),
    "slopes of heads beyond a power of two": slopes(12)[:, None] * distances(1, 16),
    "slopes times distances": slopes(8)[:, None, None] * -np.abs(np.arange(16))[None, None, :],
    "positions": interleaved(40, 32),
    "positions from 1": interleaved(40, 32, start=1),
    "cosines": halves(30, 16, np.cos),
    "sines": halves(30, 16, np.sin),
    "sines of another base": halves(30, 16, np.sin, 5e5),
    "few cosines": halves(3, 16, np.cos),
    "cosines and sines": np.stack([halves(30, 16, np.cos), halves(30, 16, np.sin)]),
    "cosines for a batch": np.broadcast_to(halves(16, 8, np.cos), (2, 3, 16, 8)),
    "cosines of a base of its own": halves(30, 16, np.cos, 12345.0),
    "cosines of scaled frequencies": np.tile(np.cos(np.outer(np.arange(30), scaled_frequencies())), (1, 2)),
    "cosines that are larger": 1.3 * halves(30, 16, np.cos),
    "sines, then cosines": np.concatenate([np.sin(angles(40, 32)), np.cos(angles(40, 32))], axis=1),
    "positions up to the last frequency": np.sin(np.outer(np.arange(40), 1e4 ** -np.linspace(0, 1, 16))),
    "cosines for heads": halves(16, 8, np.cos)[None, None],
    "cosines of YaRN": 1.1386 * np.tile(np.cos(np.outer(np.arange(40), yarn_frequencies())), (1, 2)),
    "sines of YaRN": 1.1386 * np.tile(np.sin(np.outer(np.arange(40), yarn_frequencies())), (1, 2)),
    "sines of frequencies divided by 3": np.sin(np.outer(np.arange(24), frequencies(32) / 3)),
    "cosines of two frequencies": np.tile(np.cos(np.outer(np.arange(12), [1.0, 0.01])), (1, 2)),
    "angles of two frequencies": np.tile(np.outer(np.arange(11), [1.0, 0.01]), (1, 2)),
    "places of a square grid": rotary_grid(5, 5),
    "places of a grid": rotary_grid(4, 7),
    "frequencies of which the last are still": np.pad(frequencies(16), (0, 8)),
    "angles of which the last are still": np.tile(np.pad(angles(11, 16), ((0, 0), (0, 4))), (1, 2)),
    "cosines of which the last are still": np.cos(np.tile(np.pad(angles(11, 16), ((0, 0), (0, 4))), (1, 2))),
    "cosines of both coordinates": np.cos(coordinates(6, 5)[..., None] * dealt(frequencies(32))),
    "sinusoids of a grid": sinusoids_of_grid(4, 6),
    "sinusoids of an image": sinusoids_of_image(9, 12),
    "windows of an adaptive pooling": windows_of_pooling((8, 3), (10, 6)),
    "slopes times distances without a sign": -(2.0 ** -np.arange(1, 5))[:, None, None]
    * np.abs(np.arange(9)[:, None] - np.arange(9)),
    "sinusoids of a video": sinusoids_of_volume(8, 5, 6),
    "sinusoids of a large image": sinusoids_of_image(40, 40),
    "logarithms of distances": logarithms(8, 8),
    "logarithms of distances in a flat window": logarithms(4, 4)[2:-2],
    "logarithms of pairs": logarithms_of_pairs(7),
    "positions with padding": padded(1),
    "distances to both sides": counted_down(11, -11),
    "more distances to one side": counted_down(5, -20),
    "mask of a box": box(),
    "mask of all but a box": 1 - box(),
}


@pytest.mark.parametrize("name", sorted(TABLES))
def test_tables_are_known_by_their_values(name: str) -> None:
    table = TABLES[name]

    assert is_known_table(table)
    assert count_free(table) == 0
    assert (
        count_free(np.ascontiguousarray(table.swapaxes(-1, 0) if table.ndim < 3 else table.swapaxes(-1, -2)))
        == 0
    )


@pytest.mark.parametrize("name", sorted(TABLES))
def test_rounding_to_float32_takes_nothing_away(name: str) -> None:
    assert count_free(TABLES[name].astype("f4")) == 0


@pytest.mark.parametrize(
    "name",
    [
        *("positions", "cosines", "sines", "causal mask", "slopes", "frequencies"),
        *(
            "places of a square grid",
            "sinusoids of a grid",
            "positions with padding",
            "cosines of two frequencies",
        ),
    ],
)
def test_nor_does_rounding_to_float16(name: str) -> None:
    with np.errstate(over="ignore"):
        assert count_free(TABLES[name].astype("f2")) == 0


@pytest.mark.parametrize("name", sorted(name for name in TABLES if TABLES[name].size > 32))
@pytest.mark.parametrize("by", [0.3, -1.0])
def test_one_changed_element_is_no_table(name: str, by: float) -> None:
    table = TABLES[name].astype("f4").copy()
    finite = np.flatnonzero(np.abs(table.reshape(-1)) < 1e3)
    position = finite[len(finite) // 2]
    table.reshape(-1)[position] += np.float32(by)

    assert count_free(table) == table.size


def test_distances_with_signs_of_their_own_carry_them() -> None:
    table = TABLES["slopes times distances without a sign"].astype("f4").copy()
    signs = np.where(np.random.default_rng(0).random(table.shape[1:]) < 0.5, -1, 1).astype("f4")

    assert count_free(table * signs) == table.size


# noise


@st.composite
def noises(draw: st.DrawFn) -> Array:
    shape = draw(st.sampled_from([(33,), (8, 8), (64,), (5, 7), (3, 40), (2, 6, 6), (16, 16), (6, 3)]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(
        st.sampled_from(["normal", "uniform", "small", "positive", "integers", "signs", "sorted", "bits"])
    )
    values = {
        "normal": lambda: random.standard_normal(shape),
        "uniform": lambda: random.uniform(-1, 1, shape),
        "small": lambda: 1 + random.standard_normal(shape) * 0.02,
        "positive": lambda: random.uniform(0.1, 3, shape),
        "integers": lambda: random.integers(-128, 128, shape),
        "signs": lambda: random.choice([-1.0, 1.0], shape),
        "sorted": lambda: np.sort(random.uniform(0, 1, shape), axis=-1),
        "bits": lambda: random.integers(0, 2, (16, 16)),
    }[kind]()
    return np.asarray(values).astype(draw(st.sampled_from(["f4", "f8", "f2"])))


@pytest.mark.parametrize("size", [1e-6, 1e-7, 1e-9, 1e-30])
def test_noise_is_no_table_however_small_it_is(size: float) -> None:
    noise = np.random.default_rng(0).standard_normal((64, 64)) * size

    assert not is_known_table(noise.astype(np.float32))


@pytest.mark.parametrize("change", ["another step", "another order", "fractions", "many"])
def test_coordinates_that_are_more_than_places_count_in_full(change: str) -> None:
    table = np.moveaxis(np.indices((5, 11)), 0, -1).astype("f4")
    if change == "another step":
        table[..., 0] *= 3
        table[..., 1] *= np.arange(1, 6)[:, None]
    elif change == "another order":
        table[:, [2, 6], 1] = table[:, [6, 2], 1]
    elif change == "fractions":
        table = table * np.array([1.0, 0.37], "f4") + np.float32(0.5)
    else:
        table = (np.arange(40)[:, None] + np.random.default_rng(0).integers(0, 99, 9)).T

    assert count_free(table) == table.size


def test_small_counts_are_counts() -> None:
    assert is_known_table((np.arange(64) * 1e-9).astype(np.float32))


@steady
@given(noise=noises())
def test_noise_is_never_a_table(noise: Array) -> None:
    assert count_free(noise) == noise.size


@steady
@given(noise=noises())
def test_nor_is_it_where_its_axes_are_moved_or_it_is_added_to_a_table(noise: Array) -> None:
    matrix = noise.reshape(len(noise), -1)
    table = halves(len(matrix), 2 * matrix.shape[1], np.cos)[:, : matrix.shape[1]]

    assert count_free(np.ascontiguousarray(matrix.T)) == matrix.size
    if min(matrix.shape) > 1:
        assert count_free((table + 0.3 * matrix.astype("f8")).astype("f4")) == matrix.size


def test_waves_of_different_amplitudes_carry_them() -> None:
    gains = np.random.default_rng(0).uniform(0.2, 2, 32)

    assert count_free(interleaved(40, 32) * gains) == 40 * 32


@pytest.mark.parametrize("positions", [2, 3, 5, 16])
def test_a_vector_that_is_repeated_for_each_position_is_that_vector(positions: int) -> None:
    vector = np.random.default_rng(0).standard_normal(64)

    assert count_free(np.tile(vector, (positions, 1))) == 64 * positions


@pytest.mark.parametrize("kind", ["line", "slow", "frequency", "phase"])
def test_waves_of_any_slope_frequency_or_phase_carry_them(kind: str) -> None:
    random, rows = np.random.default_rng(0), np.arange(12)[:, None]
    free = random.uniform(0.1, 3, 64)
    made = {
        "line": random.standard_normal(64) + free * rows,
        "slow": np.sin(0.001 * free * rows),
        "frequency": np.cos(free * rows),
        "phase": np.cos(1e4 ** (-np.arange(64) / 64) * rows + free),
    }

    assert count_free(made[kind]) == made[kind].size


@pytest.mark.parametrize("first", [0.9, 1.0])
def test_a_base_is_not_long_looked_for_in_rounded_waves_of_no_series(first: float) -> None:
    """A search of thousands of bases over hundreds of rows would take seconds and 130 MiB for each table."""
    speeds = np.sort(np.random.default_rng(0).uniform(0, 1, 31))[::-1]
    turns = np.arange(300)[:, None] * np.array([first, *speeds])
    waves = np.concatenate([np.cos(turns), np.sin(turns)], axis=1).astype(np.float16)

    is_known_table(waves)  # caches the usual tables
    tracemalloc.start()
    is_known = is_known_table(waves)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert not is_known
    assert most_bytes < 16 << 20


@pytest.mark.parametrize("base", [130.0, 777.0, 1234.5, 3e8])
@pytest.mark.parametrize("positions", [5, 40, 600])
def test_rounded_waves_of_any_base_are_known(base: float, positions: int) -> None:
    turns = angles(positions, 32, base)

    assert count_free(np.concatenate([np.cos(turns), np.cos(turns)], axis=1).astype(np.float16)) == 0
    assert count_free(np.concatenate([np.sin(turns), np.sin(turns)], axis=1).astype(np.float16)) == 0


@pytest.mark.parametrize("seed", range(40))
def test_signs_are_no_waves_of_half_a_turn(seed: int) -> None:
    """At half a turn, sines are only rounding errors, relative to which any value is close."""
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (3, 16))

    assert count_free(signs) == signs.size


def test_a_second_mask_has_no_room_for_others_numbers() -> None:
    masks = np.stack(
        [causal(12, -1e4), causal(12, -1e4) + np.random.default_rng(0).standard_normal((12, 12))]
    )

    assert count_free(masks) == masks.size


def test_slopes_that_are_no_series_carry_them() -> None:
    factors = np.random.default_rng(0).uniform(0.2, 2, 12)

    assert count_free(factors[:, None] * distances(1, 16)) == 12 * 16


def test_noise_is_no_mask() -> None:
    chosen = np.random.default_rng(0).random((12, 12)) < 0.5

    assert count_free(np.where(chosen, 0.0, -math.inf)) == 144


def test_two_values_of_which_none_is_a_masks_are_two_values() -> None:
    assert count_free(np.where(np.tril(np.ones((12, 12), bool)), 0.0, 0.37)) == 144


def test_diagonal_of_noise_is_no_mask() -> None:
    assert count_free(np.diag(np.random.default_rng(0).standard_normal(12))) == 144


# arrays without structure


@pytest.mark.parametrize(
    ("array", "free"),
    [
        (np.zeros((0, 3)), 0),
        (np.asarray(0.3), 1),
        (np.full((8, 8), 0.3), 1),
        (np.zeros(64), 1),
        (np.array(["a", "b"] * 20, dtype=object), 40),
        (np.full(64, np.nan), 64),
    ],
    ids=["none", "one", "one throughout", "zeros", "words", "no numbers"],
)
def test_what_a_tensor_says_is_counted(array: Array, free: int) -> None:
    assert count_free(array) == free


def test_a_large_table_is_known_and_large_noise_is_not() -> None:
    table = halves(2048, 128, np.cos).astype("f4")
    other = np.random.default_rng(0).standard_normal((2048, 128)).astype("f4")
    mixed = table.copy()
    mixed[1024:] = other[1024:]

    assert count_free(table) == 0
    assert count_free(other) == other.size
    assert count_free(mixed) == mixed.size


# codes


@pytest.mark.parametrize("name", ["positions", "cosines", "linspace"])
def test_codes_of_a_table_are_one_within_a_step(name: str) -> None:
    table = TABLES[name].astype("f4")
    step = float(np.abs(table).max() / 127)
    decoded = (np.round(table / step) * step).astype("f4")

    assert count_free(decoded, step) == 0


def test_codes_of_noise_are_no_table() -> None:
    noise = np.random.default_rng(0).standard_normal((40, 32)).astype("f4")
    step = float(np.abs(noise).max() / 127)
    decoded = (np.round(noise / step) * step).astype("f4")

    assert count_free(decoded, step) == decoded.size


def test_frequencies_the_other_way_round_are_no_known_table() -> None:
    frequencies = (1e4 ** (-np.arange(8) / 8)).astype("f4")

    assert count_free(frequencies) == 0
    assert count_free(-frequencies) == 8


def test_frequencies_that_are_dealt_to_axes_in_another_order_are_no_known_table() -> None:
    known = dealt(frequencies(32))
    other = np.concatenate([known[8:], known[:8]])

    assert is_known_table(np.cos(coordinates(6, 5)[..., None] * known))
    assert not is_known_table(np.cos(coordinates(6, 5)[..., None] * other))


def test_channels_that_stand_still_between_others_are_no_known_table() -> None:
    turning = np.pad(angles(11, 16), ((0, 0), (0, 4)))

    assert is_known_table(np.cos(turning))
    assert not is_known_table(np.cos(turning[:, [0, 8, 1, 9, 2, 10, 3, 11, 4, 5, 6, 7]]))


@pytest.mark.parametrize("wave", [np.sin, np.cos, np.positive])
def test_positions_that_somebody_has_emptied_are_no_known_table(wave: Callable[[Array], Array]) -> None:
    table = np.tile(wave(angles(24, 16)), (1, 2))
    table[-5:] = 0

    assert not is_known_table(table)


def test_no_frequency_is_above_one() -> None:
    frequencies = (1e4 ** (-np.arange(8) / 8)).astype("f4")

    assert count_free(frequencies / 2) == 0
    assert count_free(2 * frequencies) == 8


@pytest.mark.parametrize("change", ["turned", "rising", "faster", "free", "one", "phase", "gains"])
@pytest.mark.parametrize("wave", [np.cos, np.sin], ids=["cosines", "sines"])
def test_waves_of_other_frequencies_than_a_series_carry_them(
    change: str, wave: Callable[[Array], Array]
) -> None:
    random, freq, phase, gain = np.random.default_rng(0), yarn_frequencies(), 0.0, np.ones(32)
    if change == "turned" and wave is np.sin:  # turning backwards keeps cosines
        gain = -gain
    elif change in ("turned", "rising"):
        freq = freq[::-1]
    elif change == "faster":
        freq = 1.5 * freq
    elif change == "free":
        freq = np.sort(random.uniform(0.01, 1, 32))[::-1]
    elif change == "one":
        freq[3] *= 1.3
        freq[20] *= 3
    elif change == "phase":
        phase = np.linspace(0.1, 1, 32)
    else:
        gain = random.uniform(0.5, 2, 32)
    table = (gain * wave(np.outer(np.arange(40), freq) + phase)).astype("f4")

    assert count_free(table) == table.size


def test_places_of_a_grid_that_turn_one_way_and_the_other_carry_that() -> None:
    table = rotary_grid(5, 5)
    table[:, 8:16] *= -1

    assert count_free(table) == table.size


def test_positions_from_last_to_first_are_no_distances() -> None:
    table = halves(30, 16, np.cos)

    assert count_free(table[::-1]) == table.size


@pytest.mark.parametrize("factor", [1.2, 1.5])
def test_frequencies_of_which_one_is_faster_than_its_turn_are_no_scaled_ones(factor: float) -> None:
    """Methods for long contexts slow frequencies down monotonically."""
    freq = frequencies(32)
    freq[9] *= factor
    table = np.sin(np.outer(np.arange(40), freq))

    assert count_free(table) == table.size


@pytest.mark.parametrize("change", ["turned", "another side", "no zero"])
def test_distances_that_go_another_way_carry_it(change: str) -> None:
    table = counted_down(11, -11)
    if change == "turned":
        table = table[::-1].copy()
    elif change == "another side":
        table[12:] = table[10:0:-1]
    else:
        table = counted_down(31, 9)

    assert count_free(table) == table.size


def test_two_rows_of_zeros_are_more_than_padding() -> None:
    table = padded(1)
    table[7] = 0

    assert count_free(table) == table.size


def test_two_boxes_are_no_mask() -> None:
    mask = box()
    mask[4, 6] = 0

    assert count_free(mask) == mask.size


def test_what_is_repeated_for_each_example_is_reported_once() -> None:
    counts = np.arange(2, 41)

    assert count_free(np.concatenate([counts, counts])) == 0
    assert count_free(np.tile([0.3, 0.9, 0.1], 20)) == 60


def test_noise_that_stands_again_is_no_table() -> None:
    noise = np.random.default_rng(0).normal(size=40)

    assert count_free(np.concatenate([noise, noise])) == 80


def test_sines_of_both_coordinates_of_a_picture_are_a_table() -> None:
    places = np.arange(1, 9) / (8 + 1e-6) * 2 * math.pi
    waves = np.stack(
        [np.sin(np.outer(places, frequencies(16))), np.cos(np.outer(places, frequencies(16)))], -1
    )
    line = waves.reshape(8, 16)
    rows, columns = np.repeat(line[:, None], 8, 1), np.repeat(line[None], 8, 0)

    assert is_known_table(np.concatenate([rows, columns], -1).reshape(64, 32).astype(np.float32))


def test_a_vector_that_is_no_table_is_known_by_few_operations() -> None:
    """A file may hold 10,000 vectors of four elements: a cheap test for a series must precede the comparisons."""
    vectors = np.random.default_rng(0).uniform(0.2, 2, (100, 4))
    profile = cProfile.Profile()

    found = profile.runcall(lambda: [is_known_table(vector) for vector in vectors])

    assert not any(found)
    assert pstats.Stats(profile).total_calls < 250 * len(vectors)


@pytest.mark.parametrize(
    "series", [2.0 ** np.arange(5), -(0.5 ** np.arange(6))], ids=["rising", "below zero"]
)
def test_a_series_is_one_whole_again_or_each_twice(series: Array) -> None:
    assert is_geometric(series)
    assert is_geometric(np.concatenate([series, series]))
    assert is_geometric(np.repeat(series, 2))
    assert not is_geometric(np.concatenate([series, series[:-1], series[:1]]))


def test_waves_computed_in_half_precision_are_a_table_after_a_cast():
    angles = np.arange(11)[:, None] * (1e4 ** (-np.arange(0, 16, 2) / 16)).astype(np.float16)
    rounded = np.cos(angles.astype(np.float16)).astype(np.float32)

    assert is_known_table(rounded)
    assert not is_known_table(
        rounded + np.float32(1e-3) * np.random.default_rng(3).normal(size=rounded.shape).astype("f4")
    )
    assert not is_known_table(
        np.random.default_rng(3).normal(size=rounded.shape).astype("f4").astype(np.float16).astype(np.float32)
    )


def buckets(rows: int, columns: int, count: int, farthest: int, *, both: bool = True) -> Array:
    """Return T5's buckets: `count` on each side, of which the first half are single distances."""
    distance = distances(rows, columns)
    side = np.where(distance > 0, count if both else 0, 0)
    size, exact = np.abs(distance) if both else np.maximum(-distance, 0), count // 2
    far = exact + np.log(np.maximum(size, 1) / exact) / np.log(farthest / exact) * (count - exact)
    return side + np.where(size < exact, size, np.minimum(np.floor(far + 1e-9), count - 1))


@pytest.mark.parametrize("size", [(12, 12), (60, 90), (200, 200)])
@pytest.mark.parametrize("turned", [False, True])
def test_buckets_of_distances_are_a_table(size, turned):
    table = buckets(*size, 16, 128).astype(np.int64)

    assert is_known_table(table.T if turned else table)
    assert is_known_table(buckets(*size, 32, 128, both=False).astype(np.int64))


@pytest.mark.parametrize(("first", "last"), [(5, 10), (20, 40), (0, 6)])
def test_blocks_that_see_their_neighbours_have_a_table(first, last):
    table = buckets(60, 60, 16, 128).astype(np.int64)[first:last]

    assert is_known_table(table)
    assert is_known_table(buckets(60, 60, 32, 128, both=False).astype(np.int64)[first:last])
    assert not is_known_table(np.where(table == 18, 19, table))


@pytest.mark.parametrize("place", [(0, 11), (40, 3), (59, 0)])
def test_buckets_of_which_one_is_another_are_no_table(place):
    table = buckets(60, 60, 16, 128).astype(np.int64)
    table[place] += 1

    assert not is_known_table(table)


def test_buckets_in_steps_of_any_width_are_no_table():
    widths = np.cumsum(np.repeat([0, 1, 0, 1, 1, 0], 10))
    distance = distances(50, 50)

    assert not is_known_table(widths[np.abs(distance)] + np.where(distance > 0, 40, 0))


@pytest.mark.parametrize("base", [2e6, 3.7e4, 5e7])
def test_waves_in_eight_bits_are_of_some_base(base):
    table = halves(24, 32, np.sin, base)
    step = 2 / 255

    assert is_known_table(np.round(table / step) * step, step)
    table[9, 3] += 4 * step
    assert not is_known_table(np.round(table / step) * step, step)


@pytest.mark.parametrize("wave", [np.sin, np.cos])
def test_waves_at_the_middles_of_a_pictures_patches_are_a_table(wave):
    middles = (np.arange(6) + 0.5) / 3 - 1
    turns = 2 * np.pi * middles[:, None] * 100 ** (-np.arange(4) / 4)
    rows, columns = np.repeat(turns, 6, axis=0), np.tile(turns, (6, 1))
    table = np.tile(wave(np.concatenate([rows, columns], axis=1)), (1, 2)).astype(np.float32)

    assert is_known_table(table)
    table[7, 2] += np.float32(0.01)
    assert not is_known_table(table)


@pytest.mark.parametrize("change", ["one number", "another base", "another order"])
def test_other_logarithms_count_in_full(change: str) -> None:
    table = logarithms(8, 8)
    if change == "one number":
        table[3, 4, 1] *= 1.01
    elif change == "another base":
        table *= 1.3
    else:
        table[:, [2, 6], 1] = table[:, [6, 2], 1]

    assert count_free(table.astype("f4")) == table.size
