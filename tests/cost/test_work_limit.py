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


def test_an_exceeded_limit_says_by_how_much(model: Path) -> None:
    printed = " ".join(run_here("check", model, "--max-macs", "b=4: 2000").stdout.split())

    assert "2,048 multiply-accumulates are 48 more than the 2,000 allowed" in printed


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


def fixed_batch(folder: Path) -> Path:
    text = "g (float[1, 3, 8, 8] x) => (float[1, 4, 6, 6] y) { y = Conv(x, w) }"
    return save(folder, text_model(text, {"w": noise(4, 3, 3, 3)}))


def test_a_size_that_the_file_fixes_otherwise_is_no_pass(tmp_path: Path) -> None:
    done = run_here("check", fixed_batch(tmp_path), "--max-macs", "batch=4: 1M")

    assert done.returncode == 2
    assert "all sizes of this file are fixed" in " ".join(done.stdout.split())
    assert run_here("check", fixed_batch(tmp_path), "--max-macs", "batch=1: 1M").returncode == 0


@pytest.mark.parametrize(
    "command", [("cost",), ("cost", "--memory=1GiB"), ("inspect",)], ids=["cost", "memory", "inspect"]
)
def test_all_commands_refuse_a_size_that_the_file_fixes_otherwise(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = run_here(*command, fixed_batch(tmp_path), "--shape", "batch=7")

    assert (done.returncode, done.stdout) == (2, "")
    assert "all sizes of this file are fixed; leave --shape out" in done.stderr


def test_a_role_is_no_size_of_some_of_its_axes(tmp_path: Path) -> None:
    text = """
        g (int64[n, 4] input_ids, int64[1, 4] attention_mask) => (int64[m, 4] y) { y = Add(input_ids, attention_mask) }
    """
    model = save(tmp_path, text_model(text))

    assert run_here("cost", model, "--shape", "batch=7").returncode == 2  # the mask has one row
    assert run_here("cost", model, "--shape", "n=7").returncode == 0


@pytest.mark.parametrize("limit", ["batch=1,s=2: 1K", "batch=1,s=2: 1M"])
def test_a_limit_at_sizes_that_the_model_cannot_run_at_is_not_green(tmp_path: Path, limit: str) -> None:
    text = "g (float[batch, 3, s] x) => (float[batch, 4, t] y) { y = Conv(x, w) }"

    done = run_here("check", save(tmp_path, text_model(text, {"w": noise(4, 3, 3)})), "--max-macs", limit)

    assert done.returncode == 2
    assert "does not run at these sizes" in " ".join(done.stdout.split())
