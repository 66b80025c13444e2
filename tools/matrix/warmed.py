"""Imports and caches of a first export -> made already: importing this module exports a layer.

Copies of a process that has imported it save a second of each export.
"""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress

import torch

from tools.matrix.registries import remember_registries


class _Layer(torch.nn.Module):
    """Layer with the operators that most models have."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(9, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.up = torch.nn.Linear(8, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(ids)).view(ids.shape[0], ids.shape[1], 2, 4).transpose(1, 2)
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x)
        x = x.transpose(1, 2).reshape(ids.shape[0], ids.shape[1], 8)
        return torch.nn.functional.gelu(self.up(x))


def _warm() -> None:
    ids = torch.zeros((2, 5), dtype=torch.int64)
    sizes = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            torch.onnx.export(_Layer().eval(), (ids,), dynamo=True, dynamic_shapes=sizes, verbose=False)


remember_registries()
with suppress(Exception):  # a real export reports the error
    _warm()
