"""SOURCE -> its config, and PyTorch's side if a file has it already; without torch.

Sources that only transformers can read (a hub id, a factory, a pickle) are left to `exporter`, which the command calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analyzer.account.artifact import MODEL_SUFFIX
from analyzer.checkpoints.checkpoint import CONFIG_FILE, checkpoint_kind
from analyzer.errors import UsageError
from analyzer.formulas.counting import read_config
from analyzer.formulas.family import family_names, load_family
from analyzer.manifest import MANIFEST_FILE, is_manifest
from analyzer.records import Frozen

_LONGEST = 1 << 26
"""Bytes of the largest JSON file that is opened to detect its kind: manifests of 10,000s of parameters are smaller."""


class SourceFiles(Frozen):
    """Files of a SOURCE, as far as they can be found without transformers."""

    name: str
    """SOURCE, as typed."""
    config: Mapping[str, Any] | None = None
    """Content of the config; None where it has none, or where transformers has to be asked for it."""
    config_path: Path | None = None
    parameters: Path | None = None
    """Manifest or checkpoint that names PyTorch's parameters, if there is one."""

    @property
    def is_known(self) -> bool:
        return self.config is not None or self.parameters is not None

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the files that are read."""
        return tuple(path for path in (self.config_path, self.parameters) if path is not None)


def find_files(source: str) -> SourceFiles:
    """Return the files of a SOURCE that is a path; for any other SOURCE, only its name.

    Raises:
        FormulaError: a config cannot be read.
        UsageError: SOURCE is a model file, empty, or no possible name of a file.
    """
    if not source:
        raise UsageError("SOURCE: the name is empty; give a config.json, a checkpoint or a preset")
    try:
        path = Path(source).expanduser()
        is_folder, is_there = path.is_dir(), path.exists() or path.is_symlink()
    except (OSError, RuntimeError) as error:  # RuntimeError: an unknown user, as in ~nobody
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{source}: neither a path nor the name of a model: {reason}") from error
    if is_folder:
        return _in_folder(source, path)
    if not is_there:
        return SourceFiles(source)
    if path.suffix == MODEL_SUFFIX:
        raise UsageError(
            f"{source}: is a model; name its config first, and the model with --against {source}"
        )
    if _names_parameters(path):
        beside = path.parent / CONFIG_FILE
        if not beside.is_file():
            return SourceFiles(source, parameters=path)
        return SourceFiles(source, read_config(beside), beside, path)
    return SourceFiles(source, read_config(path), path)


def _names_parameters(path: Path) -> bool:
    """Whether a file is a checkpoint or a manifest; pipes, devices and files too large for one are not read."""
    if not path.is_file():
        return False
    is_long = path.stat().st_size > _LONGEST
    if not (is_long and path.suffix == ".json") and checkpoint_kind(path) is not None:
        return True
    return not is_long and is_manifest(path)


def family_config(name: str) -> dict[str, Any] | None:
    """Return the config of a family's defaults, such as of `llama`; None where there is no such family."""
    return {"model_type": load_family(name).model_types[0]} if name in family_names() else None


def _in_folder(source: str, folder: Path) -> SourceFiles:
    config, manifest = folder / CONFIG_FILE, folder / MANIFEST_FILE
    parameters = manifest if manifest.is_file() else None
    if config.is_file():
        return SourceFiles(source, read_config(config), config, parameters)
    if parameters is None:
        raise UsageError(
            f"{source}: the folder holds no {CONFIG_FILE}; save_pretrained() writes one beside the weights"
        )
    return SourceFiles(source, parameters=parameters)
