"""Anchors of a detector, which a file has level by level, times the strides; and files that almost have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from models import buffer, manifest_of, noise, parameter, reconcile, text_model

Reals = npt.NDArray[np.float32]

ANCHORS = np.array(
    [[[10, 13], [16, 30], [33, 23]], [[30, 61], [62, 45], [59, 119]], [[116, 90], [156, 198], [373, 326]]],
    np.float32,
)
STRIDES = np.array([8, 16, 32], np.float32).reshape(3, 1, 1)
WEIGHT = noise(2, 2)
SIDES = (8, 4, 2)


def is_balanced(folder: Path, table: Reals, stored: Mapping[str, Reals]) -> bool:
    """Reconcile a detector that multiplies each level by its anchors with a table of all."""
    nodes = "".join(
        f'm{at} = MatMul(x{at}, "w") y{at} = Mul(m{at}, {name}) ' for at, name in enumerate(stored)
    )
    sides = [
        ", ".join(f"float[1,3,{side},{side},2] {name}{at}" for at, side in enumerate(SIDES)) for name in "xy"
    ]
    proto = text_model(f"g ({sides[0]}) => ({sides[1]}) {{ {nodes} }}", {"w": WEIGHT, **stored})
    manifest = manifest_of(parameter("w", WEIGHT), buffer("head.anchors", table))
    return reconcile(folder, proto, manifest).balanced


def levels(values: Reals, *, is_repeated: bool) -> dict[str, Reals]:
    found = {f"level{at}": each.reshape(1, 3, 1, 1, 2) for at, each in enumerate(values)}
    if is_repeated:
        found = {
            name: np.ascontiguousarray(np.broadcast_to(each, (1, 3, side, side, 2)))
            for (name, each), side in zip(found.items(), SIDES, strict=True)
        }
    return found


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize("factor", [STRIDES, 1, 4], ids=["by stride", "as they are", "times 4"])
def test_slices_of_all_levels_are_the_buffer(tmp_path: Path, factor: object, is_repeated: bool) -> None:
    table = ANCHORS / STRIDES if factor is STRIDES else ANCHORS
    stored = levels((table * factor).astype(np.float32), is_repeated=is_repeated)  # type: ignore[operator]

    assert is_balanced(tmp_path, table, stored)


CHANGES: dict[str, Callable[[Reals], Reals]] = {
    "levels exchanged": lambda values: values[[1, 0, 2]],
    "two levels alike": lambda values: values[[0, 0, 2]],
    "one stride doubled": lambda values: values * np.array([1, 1, 2], np.float32).reshape(3, 1, 1),
    "no power of two": lambda values: values * np.float32(1.5),
    "half": lambda values: values / 16,
    "one anchor changed": lambda values: values + np.eye(3, 2, dtype=np.float32) * 0.5,
    "anchors in another order": lambda values: values[:, ::-1],
    "height first": lambda values: values[..., ::-1],
    "backwards": lambda values: values[::-1],
}


@pytest.mark.parametrize("change", CHANGES)
def test_almost_the_anchors_do_not_pass(tmp_path: Path, change: str) -> None:
    stored = levels(np.ascontiguousarray(CHANGES[change](ANCHORS)), is_repeated=False)

    assert not is_balanced(tmp_path, ANCHORS / STRIDES, stored)
