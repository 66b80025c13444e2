"""A file of a wrapper that gave its inputs names of its own, beside the class of the model inside."""

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
