"""Causal masks named like a bias: no parameters, if their contents are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from models import ramp, save, text_model

from analyzer.account.audit import audit_model
from analyzer.account.ledger import Entry, Role
from analyzer.model.content import ContentMode

Array = npt.NDArray[np.generic]

LOWER = np.tril(np.ones((4, 4), "f4"))[None, None]
WINDOW = np.tril(np.ones((6, 6), "f4")) - np.tril(np.ones((6, 6), "f4"), -3)
ADDED = np.triu(np.full((1, 1, 4, 4), -1e4, "f4"), 1)

USES = {
    "f": 's = Mul(h, "h.0.attn.bias")',
    "b": 's = Where("h.0.attn.bias", h, low)',
    "u": 'c = Cast<to = 9>("h.0.attn.bias") s = Where(c, h, low)',
}


def enter(folder: Path, mask: Array, content: ContentMode = "sampled") -> tuple[int, Entry]:
    """Return the parameters of a model whose scores meet a mask, and the mask's entry."""
    size = mask.shape[-1]
    shape = ",".join(map(str, mask.shape))
    product = f'h = MatMul(x, "h.0.attn.c_attn.weight") {USES[mask.dtype.kind]} y = Identity(s)'
    text = f"g (float[{size},{size}] x) => (float[{shape}] y) {{ {product} }}"
    tensors: dict[str, Array] = {"h.0.attn.c_attn.weight": ramp(size, size), "h.0.attn.bias": mask}
    tensors |= {} if mask.dtype.kind == "f" else {"low": np.array(-1e4, "f4")}
    ledger = audit_model(save(folder, text_model(text, tensors)), content=content)
    (entry,) = (entry for entry in ledger.entries if entry.tensor.name == "h.0.attn.bias")
    return ledger.parameters, entry


MASKS = {
    "ones": LOWER,
    "a matrix": LOWER[0, 0],
    "bools": LOWER.astype(bool),
    "bytes": LOWER.astype("u1"),
    "a window": WINDOW[None, None],
    "added": ADDED,
    "added, without end": np.where(ADDED < 0, np.float32("-inf"), np.float32(0)),
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("content", ["sampled", "full"])
def test_a_causal_mask_is_no_parameter_though_it_is_called_bias(
    kind: str, content: ContentMode, tmp_path: Path
) -> None:
    mask = MASKS[kind]

    parameters, entry = enter(tmp_path, mask, content)

    assert parameters == mask.shape[-1] ** 2
    if mask.dtype.kind == "f":
        assert (entry.role, entry.decided_by) == (Role.BUFFER, "content:causal-mask")
        assert entry.scope == "h.0.attn"


def changed(mask: Array, *place: int) -> Array:
    array = mask.copy()
    array[(0, 0, *place)] = 0.5
    return array


OTHERS = {
    "one element differs": changed(LOWER, 3, 1),
    "one hidden element differs": changed(LOWER, 0, 2),
    "the identity": np.eye(4, dtype="f4")[None, None],
    "a triangle of a number": 0.3 * LOWER,
    "numbers in a triangle": np.tril(ramp(4, 4) + 1)[None, None],
    "one value": np.ones((1, 1, 4, 4), "f4"),
    "too small": LOWER[:, :, :2, :2],
    "two planes": np.concatenate([LOWER, LOWER], axis=1),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_exactly_a_mask_stays_what_its_name_says(kind: str, tmp_path: Path) -> None:
    _, entry = enter(tmp_path, OTHERS[kind])

    assert (entry.role, entry.parameters) == (Role.PARAMETER, OTHERS[kind].size)


def test_where_contents_are_not_looked_at_the_name_decides(tmp_path: Path) -> None:
    _, entry = enter(tmp_path, LOWER, "none")

    assert entry.decided_by == "name:parameter"
