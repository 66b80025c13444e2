"""A sample of the wide matrix, with packages that CI has: the honest files balance, and no others do."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools.matrix.cells import Residue
from tools.matrix.isolated import CellError
from tools.matrix.wide.account import Negative, Outcome, SideOutcome
from tools.matrix.wide.cells import make_and_run
from tools.matrix.wide.plan import ARCHITECTURES, EXPORTS, HELD_OUT, TOOLS, Cell, cells_of
from tools.matrix.wide.report import render_markdown

SAMPLE = (
    "gru_seq2seq/own-legacy/exported",
    "gru_seq2seq/legacy/ort-fusion",
    "weightnorm_tcn/own-legacy/exported",
    "weightnorm_tcn/legacy/merge",
)
COUNTED = ("gru_seq2seq",)
"""Architectures whose files alone give PyTorch's parameter count."""
NEEDED = ("torch", "transformers", "onnxscript", "onnxruntime")


def cell(name: str) -> Cell:
    return Cell(*name.split("/"))


def test_the_sample_is_of_the_plan() -> None:
    assert {cell(name) for name in SAMPLE} <= set(cells_of())


def test_the_plan_has_every_export_and_every_tool_for_many_architectures() -> None:
    cells = cells_of()

    assert len(ARCHITECTURES) >= 80
    assert len(HELD_OUT) >= 15
    assert ARCHITECTURES.keys() >= HELD_OUT
    assert len(cells) == len(set(cells))
    assert {c.export for c in cells} == EXPORTS.keys()
    assert {c.tool for c in cells} == TOOLS.keys()
    assert max(sum(c.architecture == name for c in cells) for name in ARCHITECTURES) <= 12


def test_a_package_that_is_not_installed_costs_the_cells_that_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise CellError("it should not be tried")

    monkeypatch.setattr("tools.matrix.isolated.call_isolated", fail)
    monkeypatch.setattr(
        "tools.matrix.wide.extras.find_spec", lambda name: None if name == "timm" else object()
    )

    (outcome,) = make_and_run(tmp_path, [cell("timm_vit/own/exported")])

    assert (outcome.status, outcome.reason) == ("not run", "timm is not installed")


def test_the_document_says_what_each_cell_leaves_and_which_architectures_were_held_out() -> None:
    residue = (Residue("unexplained", 1, 1234, ("a|b",)),)
    outcomes = [
        Outcome(
            cell("bloom/dynamo/exported"),
            "made",
            sides=(SideOutcome("state", False, residue), SideOutcome("config", True)),
            negatives=(Negative("other weights", "config", "", balanced=True),),
            alone="wrong",
            parameters=7,
            at_least=7,
            at_most=7,
            read=8,
        ),
        Outcome(cell("squeezebert/own/exported"), "made", sides=(SideOutcome("state", True),), alone="exact"),
        Outcome(cell("timm_vit/own/exported"), "not run", "timm is not installed"),
    ]

    document = render_markdown(outcomes)

    assert "2 files of 2 architectures were made; 1 not run." in document
    assert "50.0 % against the state (1 of 2), 100.0 % against the config (1 of 1)" in document
    assert "Of 1 files of the held architectures, 100.0 % balance" in document
    assert "Of 1 files of the architectures added last, 100.0 % balance" in document
    assert "1 negative controls, other weights or one parameter made anew: 1 balance." in document
    assert (
        "| `bloom/dynamo/exported` | state | 1,234 unexplained | `a|b` | a state dict does not say"
        in document
    )
    assert "| `bloom/dynamo/exported` | 7 | 7 to 7 | 8 |" in document
    assert "timm is not installed" in document


@pytest.fixture(scope="module")
def outcome_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Outcome]:
    """Return a function that runs a cell and returns its outcome; cells of one architecture are made together."""
    folder, done = tmp_path_factory.mktemp("wide"), dict[str, Outcome]()

    def find_outcome(name: str) -> Outcome:
        if name not in done:
            together = [
                cell(other) for other in SAMPLE if cell(other).architecture == cell(name).architecture
            ]
            done.update({outcome.cell.name: outcome for outcome in make_and_run(folder, together)})
        return done[name]

    return find_outcome


@pytest.mark.export
@pytest.mark.time
@pytest.mark.slow
@pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}")
@pytest.mark.parametrize("name", SAMPLE)
def test_a_cell_balances_with_its_own_tensors_and_with_nothing_else(
    outcome_of: Callable[[str], Outcome], name: str
) -> None:
    outcome = outcome_of(name)

    assert outcome.status == "made", outcome.reason
    assert outcome.is_balanced, outcome.sides
    assert len(outcome.negatives) == 2
    assert not any(negative.balanced or negative.error for negative in outcome.negatives)
    assert outcome.alone == "exact" or outcome.cell.architecture not in COUNTED
