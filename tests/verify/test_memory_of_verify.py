"""Memory of `verify`: a large module computes in double precision piece by piece, with the same results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.export

TIED = '''
import torch

class Net(torch.nn.Module):
    """A table that is read twice, a buffer, a module that is called twice, one that holds others."""
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(30, 16)
        self.again = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(7))
        self.lstm = torch.nn.LSTM(16, 16, batch_first=True)
        self.head = torch.nn.Linear(16, 30, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("scale", torch.rand(16))
    def forward(self, ids):
        x = self.again(self.again(self.words(ids) * self.scale))
        return self.head(self.lstm(x)[0])

def factory():
    torch.manual_seed(0)
    return Net().eval(), (torch.randint(0, 30, (2, 7)),)
'''
SHARED = '''
import torch

class Net(torch.nn.Module):
    """A module whose numbers others read: it has to be copied whole."""
    def __init__(self):
        super().__init__()
        self.words, self.mix = torch.nn.Embedding(30, 16), torch.nn.MultiheadAttention(16, 2, batch_first=True)
    def forward(self, ids):
        x = self.words(ids)
        return self.mix(x, x, x, need_weights=False)[0] @ self.mix.out_proj.weight

def factory():
    torch.manual_seed(0)
    return Net().eval(), (torch.randint(0, 30, (2, 7)),)
'''


@pytest.mark.parametrize(("name", "source"), [("tied", TIED), ("shared", SHARED)])
def test_a_large_module_computes_in_double_precision_as_a_copy_of_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str
) -> None:
    from exporter import SourceOptions, resolve_source, running

    (tmp_path / f"{name}_net.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    resolved = resolve_source(f"{name}_net:factory", SourceOptions())
    state = {key: value.clone() for key, value in resolved.model.state_dict().items()}
    found: list[tuple[Any, list[Any], Any]] = []
    for least in (running.LARGE, 0):
        monkeypatch.setattr(running, "LARGE", least)
        side = running.run_beside(resolved, [("ids", (2, 7))])
        feeds, seen = side.feeds(0), list[Any]()
        ((_, made),) = side.run(feeds, "double")
        side.record(feeds, lambda _, values, seen=seen: seen.extend(map(np.array, values)), "double")
        found.append((made, seen, side.run(feeds)[0][1]))

    (whole, calls, single), (pieces, others, again) = found
    assert whole.dtype == pieces.dtype == np.float64
    assert np.array_equal(whole, pieces)
    assert np.array_equal(single, again)
    assert len(calls) == len(others) > 3
    assert all(np.array_equal(one, other) for one, other in zip(calls, others, strict=True))
    restored = resolved.model.state_dict()
    assert all(
        restored[key].dtype == value.dtype and torch.equal(restored[key], value)
        for key, value in state.items()
    )
