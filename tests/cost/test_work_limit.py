"""`check --max-macs`: within the limit, over it, and unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import run_here
from models import noise, save, text_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(
        tmp_path,
        text_model("g (float[b, 64] x) => (float[b, 8] y) {\n y = MatMul(x, w)\n}", {"w": noise(64, 8)}),
    )


@pytest.mark.parametrize(
    ("limit", "code"), [("b=4: 2048", 0), ("b=4: 2047", 1), ("b=1: 512", 0), ("b=5: 2K", 1)]
)
def test_the_work_at_the_sizes_is_compared_with_the_limit(model: Path, limit: str, code: int) -> None:
    assert run_here("check", model, "--max-macs", limit).returncode == code


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("2K", "b"),  # no size given
        ("b=4: much", "write it as 'batch=1,sequence=128: 12G'"),
        ("b=1:9:x2: 2K", "a limit has one size for each axis"),
    ],
)
def test_a_limit_that_nobody_can_answer_is_not_green(model: Path, limit: str, reason: str) -> None:
    done = run_here("check", model, "--max-macs", limit)

    assert done.returncode == 2
    assert reason in done.stdout + done.stderr
