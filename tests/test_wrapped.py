"""A file exported from a wrapper with its own input names, compared with the inner model's class."""

from __future__ import annotations

import json
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
from commands import run_here
from exports import CONFIGS

pytestmark = [
    pytest.mark.export,
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(find_spec, ("torch", "transformers", "onnxscript"))), reason="exports"),
]


def test_tables_of_its_own_lengths_are_those_of_its_inputs_in_order(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    from exporter import SourceOptions, resolve_source

    class Wrapper(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.model(input_ids=source, decoder_input_ids=target).logits
            return made

    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["t5"]))
    model = resolve_source(str(tmp_path / "config.json"), SourceOptions(random_weights=True)).model.eval()
    model.config.use_cache = False
    tensors = {name: each.detach().clone() for name, each in model.named_parameters()}
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    words = torch.randint(3, 90, (1, 7))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Wrapper(model),
            (words, words[:, :5]),
            str(tmp_path / "model.onnx"),
            input_names=["source", "target"],
            dynamo=False,
        )

    found = run_here("reconcile", tmp_path / "model.onnx", "--against", tmp_path / "model.safetensors")

    assert found.returncode == 0, found.stdout


DEBERTA = {
    "architectures": ["DebertaV2ForSequenceClassification"],
    "model_type": "deberta-v2",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 99,
    "max_position_embeddings": 40,
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "position_buckets": 8,
}


@pytest.fixture(scope="module")
def without_a_mask(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a checkpoint's folder with a file that takes only ids, and in `own/` the export of all inputs."""
    import torch

    from exporter import SourceOptions, export_source, resolve_source

    folder = tmp_path_factory.mktemp("without")
    (folder / "config.json").write_text(json.dumps(DEBERTA))
    model = resolve_source(str(folder / "config.json"), SourceOptions(random_weights=True)).model.eval()
    model.save_pretrained(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (torch.randint(3, 90, (2, 7)),),
            str(folder / "model.onnx"),
            input_names=["input_ids"],
            dynamic_axes={"input_ids": {0: "batch", 1: "length"}},
            dynamo=False,
        )
    export_source(str(folder), folder / "own")
    return folder


@pytest.mark.parametrize("against", [".", "own/manifest.json"])
def test_an_input_that_a_file_leaves_out_is_as_without_it(without_a_mask: Path, against: str) -> None:
    found = run_here("reconcile", without_a_mask / "model.onnx", "--against", without_a_mask / against)

    assert found.returncode == 0, found.stdout
