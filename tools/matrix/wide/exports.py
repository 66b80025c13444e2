"""Architecture -> its module with random weights, PyTorch's side as users store it, and its files by each exporter."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tools.matrix.wide.extras  # noqa: F401  before transformers is imported
from tools.matrix.wide.configs import CONFIGS, INPUTS
from tools.matrix.wide.plan import ARCHITECTURES, OPTIMUM_TASKS, OWN, OWN_LEGACY

CONFIG, PRETRAINED, STATE, INPUT_FILE = "config.json", "pretrained", "state", "inputs.npz"
MODEL, MANIFEST = "model.onnx", "manifest.json"
OPTIMUM = "ONNXLEDGER_OPTIMUM"
"""Environment variable: a folder of packages for optimum-onnx, which needs an older transformers than the exporter."""


def build(folder: Path, architecture: str, seed: int = 0) -> Any:
    """Return the resolved model with its example inputs; the same for the same seed."""
    from exporter import SourceOptions, resolve_source

    spec = ARCHITECTURES[architecture]
    source = spec.source or str(folder / architecture / CONFIG)
    resolved = resolve_source(source, SourceOptions(random_weights=True, seed=seed))
    if architecture not in INPUTS:
        return resolved
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return dataclasses.replace(resolved, example_inputs=INPUTS[architecture]())


def prepare(folder: Path, architecture: str) -> None:
    """Write PyTorch's side as users store it into `folder/<architecture>`: config, state dict, pretrained folder."""
    home = folder / architecture
    home.mkdir(parents=True, exist_ok=True)
    if architecture in CONFIGS:
        (home / CONFIG).write_text(json.dumps(CONFIGS[architecture], indent=2) + "\n", encoding="utf-8")
    resolved = build(folder, architecture)
    save_state(resolved.model, state_path(folder, architecture))
    if hasattr(resolved.model, "save_pretrained"):
        resolved.model.save_pretrained(home / PRETRAINED)
    (home / "prepared").touch()


def state_path(folder: Path, architecture: str) -> Path:
    """Return the path of the state dict: alternately a pickle or safetensors. No config is beside it."""
    suffix = (".pt", ".safetensors")[ARCHITECTURES[architecture].place % 2]
    return folder / architecture / "kept" / f"{STATE}{suffix}"


def save_state(model: Any, path: Path) -> None:
    """Save a state dict by `torch.save`, or by safetensors' `save_model`, which writes tied tensors once."""
    import torch
    from safetensors.torch import save_model

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        save_model(model, str(path))
    else:
        torch.save(model.state_dict(), path)


def checkpoint_path(pretrained: Path) -> Path | None:
    """Return the weights that `save_pretrained` wrote beside their config."""
    return next(iter(sorted(pretrained.glob("*.safetensors"))), None)


def make_export(folder: Path, architecture: str, export: str) -> None:
    """Export `model.onnx` into `folder/<architecture>/<export>`; onnxledger's own exports also write a manifest.

    Raises:
        ExportError: an exporter fails; exporters raise other errors, too.
    """
    target = folder / architecture / export
    staged = target.with_name(f".{export}")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    try:
        _EXPORTERS[export](folder, architecture, staged)
        staged_model = staged / MODEL
        if not staged_model.is_file():
            raise FileNotFoundError(f"{export} wrote no {MODEL}")
        shutil.rmtree(target, ignore_errors=True)
        staged.replace(target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _own(via: str | None) -> Callable[[Path, str, Path], None]:
    def run(folder: Path, architecture: str, home: Path) -> None:
        from exporter import export_model

        export_model(build(folder, architecture), home, via=via)

    return run


def _dynamo(optimize: bool) -> Callable[[Path, str, Path], None]:
    """Return `torch.onnx.export(dynamo=True)` of the module itself, with fixed axes, as in PyTorch's documentation."""

    def run(folder: Path, architecture: str, home: Path) -> None:
        import torch

        model, args, kwargs = _call_of(folder, architecture)
        with torch.no_grad():
            program: Any = torch.onnx.export(
                model, args, kwargs=kwargs, dynamo=True, optimize=optimize, verbose=False
            )
        program.save(str(home / MODEL))

    return run


def _legacy(folding: bool) -> Callable[[Path, str, Path], None]:
    """Return `torch.onnx.export(dynamo=False)`; a wrapper makes a model of transformers return plain tensors."""

    def run(folder: Path, architecture: str, home: Path) -> None:
        import torch

        model, args, kwargs = _call_of(folder, architecture)
        names = [f"input_{i}" for i in range(len(args))] or list(kwargs)
        if kwargs or hasattr(model, "config"):
            model, args = _wrapper(model, tuple(kwargs)), args or tuple(kwargs.values())
        torch.onnx.export(
            model,
            args,
            str(home / MODEL),
            input_names=names,
            opset_version=17 if folding else 14,
            do_constant_folding=folding,
            dynamic_axes={name: {0: "batch"} for name in names} if folding else None,
            dynamo=False,
        )

    return run


def _wrapper(model: Any, names: tuple[str, ...]) -> Any:
    from torch import nn

    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *args: Any) -> tuple[Any, ...]:
            keywords = dict(zip(names, args, strict=True)) if names else {}
            return tuple(_leaves(self.model(**keywords) if names else self.model(*args)))

    return Wrapper().eval()


def _leaves(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _leaves(one)
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _leaves(one)


def _call_of(folder: Path, architecture: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the module and the arguments of one call, without the key-value cache, which exporters cannot return."""
    from exporter import example_inputs

    resolved = build(folder, architecture)
    inputs = example_inputs(resolved.model, resolved.config, resolved.example_inputs)
    for config in _configs(resolved.config):
        with contextlib.suppress(AttributeError, ValueError):
            config.use_cache = False
    return resolved.model, inputs.args, dict(inputs.kwargs)


def _configs(config: Any) -> Iterator[Any]:
    if config is None:
        return
    yield config
    for name in ("text_config", "decoder"):
        if hasattr(getattr(config, name, None), "to_dict"):
            yield getattr(config, name)


def _genai(precision: str) -> Callable[[Path, str, Path], None]:
    """Return an export by the builder, which writes a generation model without PyTorch's modules or a tokenizer."""

    def run(folder: Path, architecture: str, home: Path) -> None:
        from onnxruntime_genai.models.builder import create_model
        from transformers import AutoConfig

        pretrained = str(folder / architecture / PRETRAINED)
        details = {
            "extra_kwargs": {},
            "hf_name": pretrained,
            "hf_config": AutoConfig.from_pretrained(pretrained),
        }
        try:
            create_model("", pretrained, str(home), precision, "cpu", str(home / "cache"), hf_details=details)
        except Exception:
            if not (home / MODEL).is_file():  # only the tokenizer is saved after the model, and there is none
                raise

    return run


def _optimum(folder: Path, architecture: str, home: Path) -> None:
    """Export in a separate interpreter, with the packages in `$ONNXLEDGER_OPTIMUM`."""
    packages = os.environ.get(OPTIMUM)
    if not packages:
        raise ModuleNotFoundError(
            f"optimum-onnx needs an older transformers: {OPTIMUM} names no folder that has it"
        )
    script = (
        "import sys; from optimum.exporters.onnx import main_export; "
        "main_export(sys.argv[1], output=sys.argv[2], task=sys.argv[3], monolith=True, do_validation=False)"
    )
    pretrained = str(folder / architecture / PRETRAINED)
    subprocess.run(
        [sys.executable, "-c", script, pretrained, str(home), OPTIMUM_TASKS[architecture]],
        check=True,
        env={**os.environ, "PYTHONPATH": packages, "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    if not (home / MODEL).is_file():
        found = sorted(home.glob("*.onnx"))
        raise FileNotFoundError(f"optimum wrote {', '.join(path.name for path in found)}, no {MODEL}")


_EXPORTERS: Mapping[str, Callable[[Path, str, Path], None]] = {
    OWN: _own(None),
    OWN_LEGACY: _own("torchscript"),
    "dynamo": _dynamo(optimize=True),
    "dynamo-raw": _dynamo(optimize=False),
    "legacy": _legacy(folding=True),
    "legacy-raw": _legacy(folding=False),
    "optimum": _optimum,
    "genai-fp32": _genai("fp32"),
    "genai-int4": _genai("int4"),
}

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "genai-fp32": ("onnxruntime_genai",),
    "genai-int4": ("onnxruntime_genai",),
}
"""Packages that an export needs beyond those of CI."""
