"""Architecture and form -> the honest file, made once and kept, with its manifest and its checkpoint."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.matrix.exports import WEIGHTS, is_prepared, make_export, prepare_architecture
from tools.matrix.isolated import CellError, call_isolated
from tools.matrix.transforms import TRANSFORMS
from tools.suite import net

__all__ = ["ARCHITECTURES", "FORMS", "Base", "bases", "make_base"]

ARCHITECTURES = ("bert-masked-lm", "gpt2", "llama", "t5", "resnet", "net")
FORMS: Mapping[str, tuple[str, str]] = {
    "dynamic": ("dynamic", "exported"),
    "dynamo": ("dynamo", "exported"),
    "static": ("static", "exported"),
    "fused": ("fused", "exported"),
    "legacy": ("legacy", "exported"),
    "fp16": ("dynamic", "fp16"),
    "int8": ("dynamic", "int8"),
    "int8-channel": ("dynamic", "int8-channel"),
    "nbits": ("legacy", "nbits"),
    "nbits-zero-point": ("dynamic", "nbits-zero-point"),
    "qdq": ("dynamic", "qdq"),
    "ort-basic": ("dynamic", "ort-basic"),
    "ort-extended": ("dynamic", "ort-extended"),
    "onnxslim": ("dynamo", "onnxslim"),
}
"""Kind of export and transform of each form, by the matrix's names."""

CONVOLUTIONAL = frozenset({"resnet", "net"})
"""Architectures with hardly any matrix product to store in four bits; they are quantized with QDQ instead."""
_SECONDS = 300
_preparing = threading.Lock()


@dataclass(frozen=True, slots=True, order=True)
class Base:
    """One honest file."""

    architecture: str
    form: str

    @property
    def name(self) -> str:
        return f"{self.architecture}/{self.form}"

    def path(self, folder: Path) -> Path:
        """Return the path of the file, with inline weights."""
        return folder / "bases" / self.architecture / f"{self.form}.onnx"

    def manifest(self, folder: Path) -> Path:
        return folder / "bases" / self.architecture / FORMS[self.form][0] / "manifest.json"

    def checkpoint(self, folder: Path) -> Path:
        """Return the path of the checkpoint, with the `config.json` beside it if the architecture has one."""
        return folder / "bases" / self.architecture / str(WEIGHTS)

    def bare(self, folder: Path) -> Path:
        """Return the path of the same checkpoint without a config: only names identify its buffers."""
        return self.checkpoint(folder).parent / "bare" / str(WEIGHTS)


def bases(forms: tuple[str, ...], architectures: tuple[str, ...] = ARCHITECTURES) -> list[Base]:
    """Return the honest files; form `low` is four-bit weights, or QDQ for a convolutional architecture."""
    chosen = []
    for architecture in architectures:
        for form in forms:
            low_form = "qdq" if architecture in CONVOLUTIONAL else "nbits"
            chosen.append(Base(architecture, low_form if form == "low" else form))
    return chosen


def make_base(folder: Path, base: Base) -> str:
    """Make the file unless it exists. Return the empty string, or the reason for a failure."""
    target = base.path(folder)
    failure_path = target.with_suffix(".failed.txt")
    if target.exists():
        return ""
    if failure_path.exists():
        return failure_path.read_text(encoding="utf-8")
    export, transform = FORMS[base.form]
    try:
        with _preparing:  # forms share the checkpoint and the export
            home = folder / "bases"
            prepare(home, base.architecture)
            if not (home / base.architecture / export / "model.onnx").exists():
                call_isolated(make, home, base.architecture, export, seconds=_SECONDS)
            if not base.bare(folder).exists():
                base.bare(folder).parent.mkdir()
                shutil.copy(base.checkpoint(folder), base.bare(folder))
        call_isolated(transform_base, home, base, target, transform, seconds=_SECONDS)
    except CellError as error:
        target.parent.mkdir(parents=True, exist_ok=True)
        failure_path.write_text(str(error), encoding="utf-8")
        return str(error)
    return ""


def prepare(home: Path, architecture: str) -> None:
    """Write the checkpoint, and the config if the architecture has one."""
    if architecture == "net":
        if not (home / architecture / WEIGHTS).is_file():
            call_isolated(_prepare_net, home / architecture, seconds=_SECONDS)
    elif not is_prepared(home, architecture):
        shutil.rmtree(home / architecture, ignore_errors=True)
        call_isolated(prepare_architecture, home, architecture, seconds=_SECONDS)


def _prepare_net(home: Path) -> None:
    from safetensors.torch import save_file

    home.mkdir(parents=True, exist_ok=True)
    model, _ = net.build()
    save_file({name: t.contiguous() for name, t in model.state_dict().items()}, home / WEIGHTS)
    (home / "config.json").unlink(missing_ok=True)


def make(home: Path, architecture: str, export: str) -> None:
    """Export an architecture one way.

    Raises:
        ExportError: an exporter fails; exporters raise other errors, too.
    """
    if architecture != "net":
        make_export(home, architecture, export)
        _keep_wiring(home / architecture / export)
        return
    from exporter import SourceOptions, export_model, resolve_source
    from tools.matrix.exports import EXPORTS

    resolved = resolve_source(net.SOURCE, SourceOptions())
    export_model(resolved, home / architecture / export, **EXPORTS[export])
    _keep_wiring(home / architecture / export)


def _keep_wiring(folder: Path) -> None:
    """Write the wiring of the file into the manifest, as the command `export` does."""
    from analyzer.account.audit import audit_model
    from analyzer.manifest import load_manifest
    from analyzer.reconciliation import keep_wiring, reconcile_ledger

    path = folder / "manifest.json"
    keep_wiring(reconcile_ledger(audit_model(folder / "model.onnx"), load_manifest(path)), path)


def transform_base(home: Path, base: Base, target: Path, transform: str) -> None:
    """Write the form's file with inline weights."""
    import onnx

    source = home / base.architecture / FORMS[base.form][0] / "model.onnx"
    made = source
    if transform != "exported":
        made = source.with_name(f"{transform}.onnx")
        if base.architecture == "net":  # no config with a vocabulary
            source.with_name("config.json").write_text('{"vocab_size": 10}\n', encoding="utf-8")
        TRANSFORMS[transform](source, made)
    partial = target.with_name(f".{target.name}")
    onnx.save(onnx.load(made), partial)
    partial.replace(target)
