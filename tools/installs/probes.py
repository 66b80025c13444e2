"""A command -> the extras that it needs, the files that it writes with them, and its message without them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from safetensors.numpy import save_file

from tools.installs.environments import Environment

__all__ = ["PROBES", "Probe", "complaint_of", "make_case"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One command line, run in a folder that `make_case` made."""

    line: str
    """Arguments of `onnxledger`; `{folder}` is the working folder, `{url}` the address that serves it."""
    needs: tuple[str, ...] = ()
    """Extras that it needs; of alternatives, as "report or export", the message names the first."""
    writes: tuple[str, ...] = ()
    """Files that it writes."""
    code: int = 0
    refusal: str = ""
    """Part of the message if the extras are installed, but a package that no extra installs is missing."""

    def arguments(self, folder: Path, url: str) -> list[str]:
        return self.line.format(folder=folder, url=url).split()


_PAGES = "report or export"  # PyTorch installs jinja2

PROBES = (
    Probe("--version"),
    Probe("--help"),
    Probe("explain"),
    Probe(
        "inspect tiny.onnx -o r.json -o r.md -o r.csv -o r.sarif",
        writes=("r.json", "r.md", "r.csv", "r.sarif"),
    ),
    Probe("inspect file://{folder}/tiny.onnx"),
    Probe("check tiny.onnx --max-parameters 100 -o r.xml", writes=("r.xml",)),
    Probe("compare tiny.onnx tiny.onnx"),
    Probe("reconcile tiny.onnx --against tiny.safetensors"),
    Probe("recover tiny.onnx -o back.safetensors", writes=("back.safetensors",)),
    Probe("formula gpt2 -o f.md", writes=("f.md",)),
    Probe("formula gpt2 --format latex"),
    Probe("formula bert/config.json"),
    Probe("graph tiny.onnx -o g.dot -o g.svg -o g.graphml", writes=("g.dot", "g.svg", "g.graphml")),
    # [report]
    Probe("inspect tiny.onnx -o r.json -o r.html", (_PAGES,), ("r.json", "r.html")),
    Probe("check tiny.onnx --max-parameters 100 -o r.html", (_PAGES,), ("r.html",)),
    Probe("compare tiny.onnx tiny.onnx -o r.html", (_PAGES,), ("r.html",)),
    Probe("reconcile tiny.onnx --against tiny.safetensors -o r.html", (_PAGES,), ("r.html",)),
    Probe("recover tiny.onnx -o b.safetensors -o r.html", (_PAGES,), ("b.safetensors", "r.html")),
    Probe("formula gpt2 -o f.html", (_PAGES,), ("f.html",)),
    # [remote]
    Probe("inspect {url}/tiny.onnx -o r.json", ("remote",), ("r.json",)),
    Probe("check {url}/tiny.onnx --max-parameters 100", ("remote",)),
    Probe("check tiny.onnx --baseline {url}/tiny.onnx --max-parameters +2% --content none", ("remote",)),
    Probe("compare tiny.onnx {url}/tiny.onnx", ("remote",)),
    Probe("reconcile {url}/tiny.onnx --against tiny.safetensors", ("remote",)),
    Probe("recover {url}/tiny.onnx -o b.safetensors", ("remote",), ("b.safetensors",)),
    Probe("graph {url}/tiny.onnx -o g.dot", ("remote",), ("g.dot",)),
    Probe("inspect s3://bucket/tiny.onnx", ("remote or export",), code=2, refusal="pip install s3fs"),
    Probe("inspect {url}/tiny.onnx -o r.html", ("remote", _PAGES), ("r.html",)),
    # [time]
    Probe("time tiny.onnx --runs 3 -o t.json", ("time",), ("t.json",)),
    Probe("time tiny.onnx --runs 3 -o t.png -o t.svg", ("time", "report"), ("t.png", "t.svg")),
    Probe("time tiny.onnx --runs 3 -o t.html", ("time", _PAGES), ("t.html",)),
    Probe("time tiny.onnx --provider cuda", ("time-gpu",)),
    Probe("time tiny.onnx --provider tensorrt", ("time-gpu",)),
    # [export]
    Probe("export bert -o made --random-weights", ("export",), ("made/model.onnx", "made/manifest.json")),
    Probe("export factories:linear -o made", ("export",), ("made/model.onnx", "made/manifest.json")),
    Probe("export bert -o made --random-weights --fuse cpu", ("export",), ("made/model.onnx",)),
    Probe("reconcile tiny.onnx --against bert --random-weights", ("export",), code=1),
    Probe("recover tiny.onnx -o b.safetensors --against factories:linear", ("export",), ("b.safetensors",)),
    Probe("formula bert --census", ("export",)),
    Probe("formula factories:linear", ("export",)),
)

_CONFIG = {
    "architectures": ["BertForMaskedLM"],
    "model_type": "bert",
    "vocab_size": 50,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
}
_FACTORIES = """
import torch


def linear():
    class Tiny(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x)

    return Tiny(), (torch.zeros(1, 4),)
"""


def make_case(folder: Path) -> None:
    """Write a model, its checkpoint, a config of another model, and a factory."""
    folder.mkdir()
    weight = np.arange(12, dtype=np.float32).reshape(4, 3) / 8
    bias = np.arange(3, dtype=np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "layer.weight"], ["product"], name="/layer/MatMul"),
            helper.make_node("Add", ["product", "layer.bias"], ["y"], name="/layer/Add"),
        ],
        "tiny",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(weight, "layer.weight"), numpy_helper.from_array(bias, "layer.bias")],
    )
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), folder / "tiny.onnx")
    save_file(
        {"layer.weight": np.ascontiguousarray(weight.T), "layer.bias": bias}, folder / "tiny.safetensors"
    )
    (folder / "bert").mkdir()
    (folder / "bert" / "config.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
    (folder / "factories.py").write_text(_FACTORIES, encoding="utf-8")


def complaint_of(
    probe: Probe, environment: Environment, extras: Collection[str], folder: Path, url: str
) -> str:
    """Return the difference from the expected result, or the empty string."""
    before = _files(folder)
    done = environment.call("onnxledger", *probe.arguments(folder, url), folder=folder)
    after = _files(folder)
    output = " ".join(f"{done.stdout} {done.stderr}".split())
    missing = [need.partition(" ")[0] for need in probe.needs if not set(need.split(" or ")) & set(extras)]
    if "Traceback" in output:
        return f"a traceback: {output}"
    if missing:
        suggested = re.findall(r'pip install "onnxledger\[([\w-]+)\]"', output)
        if done.returncode != 2 or len(suggested) != 1 or suggested[0] not in missing:
            return f"exit {done.returncode}, where [{missing[0]}] is missing: {output}"
        return f"leaves {sorted(after - before)}, where [{missing[0]}] is missing" if after != before else ""
    if done.returncode != probe.code or probe.refusal not in output:
        return f"exit {done.returncode} and not {probe.code}: {output}"
    unwritten = [name for name in probe.writes if not (folder / name).is_file()]
    return f"does not write {', '.join(unwritten)}" if unwritten else ""


def _files(folder: Path) -> set[str]:
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return {name for name in names if "__pycache__" not in name}
