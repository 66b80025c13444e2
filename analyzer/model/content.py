"""Tensor content -> digests, samples and channel sums, by which two contents are compared.

Both sides of a comparison, the ONNX file here and the PyTorch census in `exporter`, use these definitions, so that
equal evidence means equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from analyzer.model.dtypes import DType

Array = npt.NDArray[np.generic]

ContentMode = Literal["none", "sampled", "full"]
"""Extent of a comparison of contents: nothing, the elements at hashed positions, or all."""

SAMPLES = 256
"""Number of elements of a tensor that a sample takes."""

_BAND_BYTES = 16 << 20


def digest(array: Array) -> str:
    """Return `sha256:` of the elements in row-major order, little-endian; the shape is not part of it.

    >>> digest(np.zeros(2, "f4")) == digest(np.zeros((2, 1), "f4"))
    True
    """
    return "sha256:" + hashlib.sha256(_as_bytes(array).data).hexdigest()


def digest_transposed(matrix: Array) -> str:
    """Return the `digest` of a (rows, columns) matrix's transpose; works in bands of 16 MiB instead of a full copy."""
    hasher = hashlib.sha256()
    rows, columns = matrix.shape
    step = max(1, _BAND_BYTES // max(1, rows * matrix.itemsize))
    for start in range(0, columns, step):
        hasher.update(_as_bytes(matrix[:, start : start + step].T).data)  # (step, rows)
    return "sha256:" + hasher.hexdigest()


def _as_bytes(array: Array) -> npt.NDArray[np.uint8]:
    """Return the elements in row-major order as bytes; copies them only if their order differs."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def sample_positions(numel: int, salt: str = "") -> npt.NDArray[np.int64]:
    """Return at most `SAMPLES` ascending row-major positions among `numel` elements: one in each of as many equal runs.

    A hash of the salt picks the position within each run. So the shape does not reveal which elements are never
    compared, and the positions do not lie on one line of a matrix, as evenly spaced ones lie on the diagonal of an n x
    n matrix if n = 1 modulo their number less one. The first element and the last are always among them.

    >>> sample_positions(3).tolist(), sample_positions(1000)[[0, -1]].tolist()
    ([0, 1, 2], [0, 999])
    """
    if numel <= SAMPLES:
        return np.arange(numel, dtype=np.int64)
    seed = int.from_bytes(hashlib.sha256(f"{salt}:{numel}".encode()).digest()[:8], "little")
    numel = min(numel, int(np.iinfo(np.int64).max))  # a header may claim more elements than any file holds
    runs = np.arange(SAMPLES + 1, dtype=np.int64)
    length, longer = divmod(numel, SAMPLES)  # runs * numel may overflow
    starts = runs * length + np.minimum(runs, longer)
    found = starts[:-1] + (_splitmix64(SAMPLES, seed) % np.diff(starts).astype(np.uint64)).astype(np.int64)
    found[0], found[-1] = 0, numel - 1
    return found


def sample(array: Array, salt: str = "") -> Array:
    """Return the elements at `sample_positions`, in the array's own dtype."""
    return array.reshape(-1)[sample_positions(array.size, salt)]


def transposed_positions(rows: int, columns: int, salt: str = "") -> npt.NDArray[np.int64]:
    """Return the positions in a (rows, columns) matrix of the elements that `sample` would take of its transpose.

    >>> transposed_positions(2, 3).tolist()
    [0, 3, 1, 4, 2, 5]
    """
    positions = sample_positions(rows * columns, salt)
    return positions % max(rows, 1) * columns + positions // max(rows, 1)


def is_constant_filled(array: Array) -> bool:
    """Whether all elements are equal, as they are in an empty or one-element array; NaN equals NaN here."""
    array = array[tuple(slice(None, None if step else 1) for step in array.strides)]  # broadcast axes once
    if array.size <= 1:
        return True
    as_bytes = _as_bytes(array).reshape(array.size, -1)  # (elements, bytes of each)
    probe = sample_positions(array.size)  # a probe rejects most arrays quickly; the rest are compared whole
    return bool((as_bytes[probe] == as_bytes[0]).all()) and bool((as_bytes == as_bytes[0]).all())


def channel_statistics(weight: Array) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return projection and Euclidean norm of each output channel of a convolution weight (out, in / groups, *kernel).

    The projection is the sum of a channel's elements, the i-th (from 0) times +-(0.5 + u), where sign and u in [0, 1)
    come from the splitmix64 hash of i: it changes with every element and with their order. Scaling a channel scales
    both, which is how a folded BatchNorm is recognised and a changed element found.
    """
    rows = weight.reshape(weight.shape[0], -1)  # (out, in * kernel)
    direction = channel_direction(rows.shape[1])
    projections, norms = np.empty(len(rows)), np.empty(len(rows))
    step = max(1, _BAND_BYTES // max(1, 8 * rows.shape[1]))
    for start in range(0, len(rows), step):
        band = rows[start : start + step].astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # masks hold infinities
            projections[start : start + step] = band @ direction
            norms[start : start + step] = np.sqrt((band * band).sum(axis=1))
    return projections, norms


def run_starts(numel: int) -> range:
    """Return the start positions of the runs of `run_sums` in a tensor of `numel` elements: at most 4,096.

    >>> run_starts(600), len(run_starts(1 << 22))
    (range(0, 600, 256), 4096)
    """
    return range(0, numel, max(SAMPLES, -(-numel // _MOST_RUNS)))


_MOST_RUNS = 4096


def run_sums(array: Array) -> npt.NDArray[np.float64]:
    """Return `channel_statistics` of runs of elements in row-major order, the last padded with zeros: (2, runs)."""
    starts = run_starts(array.size)
    filled = np.zeros(len(starts) * starts.step, dtype=array.dtype)
    filled[: array.size] = array.reshape(-1)
    return np.stack(channel_statistics(filled.reshape(len(starts), starts.step)))


def row_digests(array: Array) -> Array:
    """Return the first 8 bytes of the SHA-256 of each row along the last axis, as little-endian uint64 (rows,).

    They identify rows of a table after slicing, gathering or repetition.
    """
    rows = np.ascontiguousarray(array.reshape(-1, array.shape[-1]))  # (rows, width)
    digests = [hashlib.sha256(_as_bytes(row).data).digest()[:8] for row in rows]
    return np.frombuffer(b"".join(digests), dtype="<u8")


_LEAST_HALF, _MOST_HALF = 2.0**-24, 65504.0
"""The smallest and the largest positive float16. onnxruntime's converter clamps nonzero numbers to them; the one of
onnxconverter-common clamps to 1e-7, which is twice the smallest."""


def rounded(array: Array, dtype: DType | None) -> Iterator[Array]:
    """Yield the casts of an array to another floating-point type: rounded to nearest and, for bfloat16, also truncated.

    The results are normalized so that a plain cast and a clamped cast are equal: in float16 the two smallest positive
    numbers become 0, and infinity becomes the largest number. `None` yields the array itself in this form.
    """
    element = array.dtype if dtype is None else dtype.to_numpy()
    if element is None or array.dtype.kind in "OSU":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array if dtype is None else array.astype(element)
    if element == np.float16:
        size = np.abs(cast)
        cast = np.where(size <= np.float16(2 * _LEAST_HALF), np.float16(0), cast)
        yield np.where(np.isinf(cast), np.copysign(np.float16(_MOST_HALF), cast), cast)
        return
    yield cast
    if dtype is DType.BFLOAT16 and array.dtype == np.float32:
        bits = np.ascontiguousarray(array).view(np.uint32) >> np.uint32(16)
        yield bits.astype(np.uint16).view(element)


def cast_digest(array: Array, dtype: DType) -> str:
    """Return the `digest` of an array cast to another floating-point type, normalized as by `rounded`."""
    own = dtype.to_numpy()
    return digest(next(rounded(array, None if array.dtype == own else dtype)))


def channel_direction(length: int) -> npt.NDArray[np.float64]:
    """Return fixed factors of magnitude 0.5 to 1.5: bit 63 of splitmix64(i) is the sign, bits 0 to 52 are u."""
    z = _splitmix64(length)
    fraction = (z & np.uint64((1 << 53) - 1)).astype(np.float64) / float(1 << 53)
    return np.where(z >> np.uint64(63), -1.0, 1.0) * (0.5 + fraction)


def _splitmix64(count: int, seed: int = 0) -> npt.NDArray[np.uint64]:
    """Return the first outputs of splitmix64 for a seed (Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):  # the hash is modulo 2^64
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z


def encode_values(array: Array) -> str:
    """Return Base64 of the little-endian elements in row-major order."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def decode_values(text: str, dtype: np.dtype) -> Array:
    """Return the flat array that `encode_values` wrote.

    Raises:
        ValueError: the text is not base64, or not a whole number of elements.
    """
    return np.frombuffer(base64.b64decode(text, validate=True), dtype=dtype)
