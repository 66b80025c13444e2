"""A sample of the matrix balances; `matrix/residues.py` lists every known exception."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from kept import alone, home
from samples import sampled

from tools.matrix.architectures import ARCHITECTURES
from tools.matrix.cells import Cell, Outcome, Residue, cells_of, make_and_run, unlike_another_seed
from tools.matrix.exports import EXPORTS
from tools.matrix.isolated import CellError, call_isolated
from tools.matrix.report import render_markdown
from tools.matrix.residues import KNOWN, NOTHING
from tools.matrix.transforms import TRANSFORMS

# One export of each architecture; every export and every transform several times.
TRANSFORMS_OF = {
    "bert/static": ("exported", "ort-basic"),
    "bert-masked-lm/dynamic": ("int8", "ort-extended"),
    "bert-classifier/fused": ("qdq",),
    "albert/dynamo": ("nbits",),
    "albert-masked-lm/legacy": ("onnxslim", "nbits-zero-point"),
    "roberta/static": ("int8", "int8-channel"),
    "distilbert/dynamic": ("qdq", "fp16"),
    "deberta-v2/fused": ("nbits", "nbits-zero-point"),
    "modernbert/dynamo": ("onnxslim", "exported"),
    "gpt2/legacy": ("ort-basic", "ort-extended"),
    "opt/static": ("fp16", "nbits"),
    "llama/dynamic": ("onnxslim", "nbits-zero-point"),
    "qwen3/fused": ("exported", "ort-basic"),
    "mistral/dynamo": ("ort-extended", "int8"),
    "mixtral/legacy": ("qdq", "int8-channel"),
    "gemma/static": ("onnxslim", "exported"),
    "t5/dynamic": ("ort-basic", "ort-extended"),
    "bart/legacy": ("int8", "int8-channel"),
    "whisper/dynamo": ("qdq", "fp16"),
    "vit/fused": ("nbits", "exported"),
    "resnet/static": ("ort-extended", "int8"),
}
OF_EACH_KIND = {
    "albert-masked-lm/legacy",
    "distilbert/dynamic",
    "albert/dynamo",
    "t5/static",  # does not balance
    "gpt2/legacy",
    "mixtral/legacy",
    "bart/legacy",
    "vit/fused",
    "resnet/static",
}
"""Exports of an encoder, a decoder, experts, an encoder-decoder, images and convolutions, in every way of exporting.

Large models are exported through TorchScript, which takes a second, and small ones in the ways that take ten.
"""
SAMPLE = [f"{export}/{transform}" for export, transforms in TRANSFORMS_OF.items() for transform in transforms]
NEEDED = ("torch", "transformers", "onnxscript", "onnxruntime", "onnxslim")  # each in another process
EVERY = [*SAMPLE, *sorted(KNOWN.keys() - SAMPLE)]
CHECKED = sampled(EVERY, [name for name in EVERY if name.rpartition("/")[0] in OF_EACH_KIND])


def cell(name: str) -> Cell:
    return Cell(*name.split("/"))


@pytest.fixture(scope="module")
def folder() -> Path:
    """Folder in which the cells are made, or `$ONNXLEDGER_MATRIX`."""
    configured = os.environ.get("ONNXLEDGER_MATRIX")
    return (
        Path(configured).resolve() if configured else home("tools.matrix.exports", "tools.matrix.transforms")
    )


@pytest.fixture(scope="module")
def outcome_of(folder: Path) -> Callable[[str], Outcome]:
    """Return a function that runs a cell and returns its outcome."""
    done: dict[str, Outcome] = {}

    def find_outcome(name: str) -> Outcome:
        if name not in done:  # makes all tested cells of its export, which is made once
            export = name.rpartition("/")[0]
            together = [cell(other) for other in CHECKED if other.rpartition("/")[0] == export]
            with alone(folder / together[0].architecture):
                done.update({outcome.cell.name: outcome for outcome in make_and_run(folder, together)})
        return done[name]

    return find_outcome


makes_cells = [
    pytest.mark.export,
    pytest.mark.time,
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}"),
]


@pytest.mark.parametrize("name", [pytest.param(name, marks=makes_cells) for name in CHECKED])
def test_a_cell_leaves_what_is_known_and_nothing_else(
    outcome_of: Callable[[str], Outcome], name: str
) -> None:
    known = KNOWN.get(name, NOTHING)

    outcome = outcome_of(name)

    assert outcome.status in ("balanced", "residue"), outcome.reason
    assert outcome.elements == known.elements, outcome.residue
    assert outcome.checkpoint_elements == known.checkpoint_elements, outcome.checkpoint_residue
    assert outcome.recovered != "wrong"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=makes_cells)
        for name in (
            "bart/legacy/int8",
            "bart/legacy/int8-channel",
            "distilbert/dynamic/qdq",
            "distilbert/dynamic/fp16",
            "vit/fused/nbits",
            "albert-masked-lm/legacy/nbits-zero-point",
        )
    ],
)
def test_other_weights_do_not_balance_however_coarsely_they_are_stored(
    outcome_of: Callable[[str], Outcome], folder: Path, name: str
) -> None:
    assert outcome_of(name).exists

    assert call_isolated(unlike_another_seed, folder, cell(name), seconds=120) > 0.9


def test_the_sample_has_every_architecture_export_and_transform() -> None:
    cells = [cell(name) for name in SAMPLE]

    assert len(set(cells)) == 40
    assert set(cells) <= set(cells_of())
    assert {c.architecture for c in cells} == ARCHITECTURES.keys()
    assert len({(c.architecture, c.export) for c in cells}) == len(ARCHITECTURES)
    assert min(Counter(c.export for c in cells)[export] for export in EXPORTS) >= 7
    assert min(Counter(c.transform for c in cells)[transform] for transform in TRANSFORMS) >= 3


def test_every_run_makes_each_export_and_each_transform() -> None:
    cells = [cell(name) for name in CHECKED]

    assert {c.export for c in cells} == set(EXPORTS)
    assert {c.transform for c in cells} == set(TRANSFORMS)
    assert any(name in KNOWN for name in CHECKED)


def test_what_is_known_names_cells() -> None:
    assert KNOWN.keys() <= {c.name for c in cells_of()}


@pytest.mark.export
@pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=f"needs {', '.join(NEEDED)}")
def test_the_document_sums_up_the_outcomes() -> None:
    outcomes = [
        Outcome(cell("bert/static/exported"), "balanced", alone=7, pytorch=7),
        Outcome(
            cell("bert/static/int8"),
            "residue",
            residue=(Residue("unexplained", 1, 1234, ("a|b",)),),
            alone=6,
            pytorch=7,
        ),
        Outcome(cell("bert/static/fp16"), "not transformed", "Error: no <such> operator"),
    ]

    document = render_markdown(outcomes)

    assert "2 of 3 cells exist" in document
    assert "1 of them balance: 50.0 %" in document
    assert "| `bert` | ✓ |  |  | 1,234 \\* |  |  | - |  |  |  |" in document
    assert "1,234 unexplained" in document
    assert "no \\<such\\> operator" in document


def test_a_cell_that_fails_is_made_again_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fail(*args: object, seconds: float) -> None:
        calls.append(args)
        raise CellError("KeyError: it")

    monkeypatch.setattr("tools.matrix.isolated.call_isolated", fail)
    monkeypatch.setattr("tools.matrix.cells.is_prepared", lambda *_: True)

    outcomes = [
        make_and_run(tmp_path, [cell("bert/static/int8")], again=again)[0] for again in (False, False, True)
    ]

    assert {(outcome.status, outcome.reason) for outcome in outcomes} == {("not exported", "KeyError: it")}
    assert len(calls) == 2


# Errors in another process; the functions are in the standard library, which any process can import.


@pytest.mark.slow
def test_an_isolated_call_returns_what_it_computes() -> None:
    assert call_isolated(divmod, 17, 5, seconds=60) == (3, 2)


def test_an_error_in_an_isolated_call_is_reported_in_one_line() -> None:
    with pytest.raises(CellError, match=r"^ZeroDivisionError: "):
        call_isolated(divmod, 1, 0, seconds=60)


def test_a_crash_in_an_isolated_call_is_reported() -> None:
    with pytest.raises(CellError, match="died of SIGABRT"):
        call_isolated(os.abort, seconds=60)


def test_an_isolated_call_ends_in_time() -> None:
    call_isolated(divmod, 1, 1, seconds=60)  # the first call waits for the imports

    with pytest.raises(CellError, match=r"took more than 1 s"):
        call_isolated(time.sleep, 600, seconds=1)
