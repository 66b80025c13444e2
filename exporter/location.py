"""SOURCE (hub id, checkpoint, config or preset) -> its location for transformers: a path, a hub id or a config.

A short request finds out in seconds whether the hub, or its cache on this machine, has a hub id.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.checkpoints.checkpoint import CONFIG_FILE, checkpoint_kind
from analyzer.errors import SourceError
from analyzer.near import near_name
from exporter.classes import first_line
from exporter.presets import PRESETS, preset_config, preset_name, preset_names
from exporter.quiet import Progress

# the Hugging Face hub

_TIMEOUT_SECONDS = 5.0
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?\Z")


class Reach(enum.Enum):
    """Availability of a hub id."""

    ONLINE = "the hub has it"
    CACHED = "the hub cannot be reached, the cache has it"
    ABSENT = "the hub answers that it has no such model"
    UNREACHABLE = "the hub cannot be reached and the cache does not have it"


@dataclass(frozen=True, slots=True)
class HubAnswer:
    """Availability of a model, and a sentence that says why the hub was not used."""

    reach: Reach
    reason: str = ""


def is_hub_id(source: str) -> bool:
    """Whether a source has the form of a hub id: `name` or `organisation/name`.

    >>> is_hub_id("google-bert/bert-base-uncased"), is_hub_id("./model")
    (True, False)
    """
    return _HUB_ID.match(source) is not None


def query_hub(hub_id: str) -> HubAnswer:
    """Ask the hub once, with a short timeout. Offline, `from_pretrained` itself would retry for half a minute."""
    import huggingface_hub
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        huggingface_hub.HfApi().model_info(hub_id, timeout=_TIMEOUT_SECONDS)
    except GatedRepoError as error:
        return HubAnswer(Reach.ABSENT, f"it is gated: {first_line(error)}")
    except RepositoryNotFoundError:
        return HubAnswer(
            Reach.ABSENT, "the hub has no such model, or it is private and needs `hf auth login`"
        )
    except Exception as error:  # noqa: BLE001  the HTTP client's error classes change from release to release
        cached = huggingface_hub.try_to_load_from_cache(hub_id, "config.json")
        reach = Reach.CACHED if isinstance(cached, str) else Reach.UNREACHABLE
        return HubAnswer(reach, f"the hub cannot be reached ({first_line(error)})")
    return HubAnswer(Reach.ONLINE)


# all other locations

_WEIGHT_FILES = (
    "*.safetensors",
    "*.safetensors.index.json",
    "pytorch_model*.bin",
    "pytorch_model.bin.index.json",
)

_OTHERS = {
    ".onnx": "is an ONNX model, not a PyTorch one; `onnxledger compare` compares two of them",
    ".py": "is Python source; name the function in it that makes the model, as {}:factory",
}
"""Description of files that are no SOURCE, and the next step, by suffix."""

_FILES = (".json", ".onnx", ".safetensors", ".bin", ".pt", ".pth")
"""Suffixes of a SOURCE that is always a file, and never a hub id."""

_LEAST = 3
"""Fewest letters of a name that are enough to guess the rest."""


@dataclass(frozen=True, slots=True)
class Location:
    """Location that a transformers model is loaded from."""

    kind: str
    where: str | Mapping[str, Any]
    """A path or hub id that transformers understands, or the content of a preset."""
    has_weights: bool
    local_only: bool = True
    file: Path | None = None
    """The one checkpoint file that was named; then `where` is its folder."""


def locate(source: str, say: Progress, *, needs_weights: bool = True) -> Location:
    """Find SOURCE: an existing path, a preset, the hub, or the hub's cache on this machine.

    Args:
        source: as typed.
        say: receives a line that says which of them is used when the hub does not answer.
        needs_weights: whether to ask the hub for the weights that a preset's config lacks.

    Raises:
        SourceError: SOURCE is none of these.
    """
    path = Path(source).expanduser()
    if path.exists():
        return _locate_path(source, path)
    preset = preset_name(source)
    if preset is not None and not needs_weights:
        return Location("preset", preset_config(preset), has_weights=False)
    if source.endswith(_FILES):
        near = near_name(path) or "; name a checkpoint, a config.json, a manifest.json or a preset"
        raise SourceError(f"{source}: no such file{near}")
    if not is_hub_id(source):
        raise SourceError(f"{source}: no such file or folder{near_name(path) or _near_preset(source)}")
    return _locate_on_hub(source, preset, say)


def _locate_path(source: str, path: Path) -> Location:
    if checkpoint_kind(path) is not None:
        if not (path.parent / CONFIG_FILE).is_file():
            raise SourceError(
                f"{source}: no {CONFIG_FILE} is beside it to say which class holds its tensors; "
                "put it there, or name module:factory"
            )
        return Location("checkpoint", str(path.parent), has_weights=True, file=path)
    if path.is_file():
        if path.suffix != ".json":
            reason = _OTHERS.get(path.suffix, "neither a checkpoint nor a config of a known kind")
            raise SourceError(f"{source}: {reason.format(path.stem)}")
        return Location("config", str(path), has_weights=False)
    if not (path / CONFIG_FILE).is_file():
        raise SourceError(
            f"{source}: the folder holds no {CONFIG_FILE}; save_pretrained() writes one beside the weights"
        )
    has_weights = any(next(path.glob(pattern), None) is not None for pattern in _WEIGHT_FILES)
    return Location("checkpoint" if has_weights else "config", str(path), has_weights)


def _locate_on_hub(source: str, preset: str | None, say: Progress) -> Location:
    answer = query_hub(source)
    if answer.reach is Reach.ONLINE:
        return Location("hub", source, has_weights=True, local_only=False)
    if answer.reach is Reach.CACHED:
        say(f"{source}: {answer.reason}; using the copy in its cache")
        return Location("hub", source, has_weights=True)
    if preset is not None and answer.reach is Reach.UNREACHABLE:
        say(f"{source}: {answer.reason}; using the built-in preset of its config")
        return Location("preset", preset_config(preset), has_weights=False)
    raise SourceError(
        f"{source}: no such file or folder, and as a hub id: {answer.reason}{_near_preset(source)}"
    )


def _near_preset(source: str) -> str:
    names = {name.lower(): name for name in reversed(preset_names())}
    begun = [name for name in sorted(names) if len(source) >= _LEAST and name.startswith(source.lower())]
    close = [names[name] for name in begun or difflib.get_close_matches(source.lower(), names, n=1)]
    few = f"{', '.join(sorted(PRESETS))}, and other published models"
    hint = f"did you mean {close[0]}?" if close else f"built-in presets are {few}"
    return f"; {hint}"
