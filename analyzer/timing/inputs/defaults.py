"""The role of an axis, and what weights and config.json say -> the size that it has if nobody says another."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analyzer.timing.inputs.lookups import Lookups, Use
from analyzer.timing.inputs.roles import Part, Purpose, Roles

__all__ = ["Defaults", "read_settings"]

_SIZES = {
    Roles.BATCH: 1,
    Roles.PAST: 0,
    Roles.SAMPLES: 16_000,
    Roles.FRAMES: 3_000,
    Roles.HEIGHT: 224,
    Roles.WIDTH: 224,
}
_SEQUENCE = 128
_PIECE = 512
"""Samples that a model takes at once which listens to a stream."""
_SEQUENCES = frozenset({Roles.SEQUENCE, Roles.DECODER, Roles.ENCODER})
_FROM_SETTINGS: Mapping[tuple[Purpose | None, str], tuple[str, ...]] = {
    (Purpose.CACHE, Roles.HEADS): ("num_key_value_heads", "num_attention_heads", "n_head", "num_heads"),
    (Purpose.CACHE, Roles.FEATURES): ("head_dim", "d_kv"),
    (Purpose.HIDDEN, Roles.FEATURES): ("hidden_size", "d_model", "n_embd"),
    (Purpose.SPECTRUM, Roles.FEATURES): ("num_mel_bins", "feature_size"),
    (None, Roles.HEIGHT): ("image_size",),
    (None, Roles.WIDTH): ("image_size",),
    (None, Roles.CHANNELS): ("num_channels",),
    (None, Roles.ENCODER): ("max_source_positions",),
}
"""What of config.json says the size of an axis, by what the input is for (None: whatever it is for) and the role."""
_LONGEST = 1 << 20
"""Bytes of a config.json that is read."""
_MOST = 1 << 20
"""The largest size that is believed of it."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What decides on sizes that nobody gave."""

    lookups: Lookups
    settings: Mapping[str, object]
    has_decoder: bool = False
    """Whether an encoder and a decoder are both fed."""
    room: int | None = None
    """Tokens that a cache of fixed size has room for."""
    is_stream: bool = False
    """Whether the model takes a long input piece by piece, and hands on a state."""

    def size(self, part: Part | None, position: int, role: str, past: int) -> tuple[int, str]:
        """The size of an axis, and why; without a part, of a role. `past` is the length of a cache."""
        found = None if part is None else self._known(part, position, role)
        if found is not None:
            return found
        if role in _SEQUENCES:
            return self._sequence(role, past)
        if role == Roles.CHANNELS:
            is_sound = part is not None and part.purpose is Purpose.WAVEFORM
            return 1 if is_sound else 3, f"default of {role}"
        if role == Roles.SAMPLES and self.is_stream:
            return _PIECE, f"default of {role}, of a stream"
        if role == Roles.FRAMES and part is not None and part.purpose is Purpose.IMAGE:
            return 1, f"default of {role}"
        return _SIZES.get(role, 1), f"default of {role}"

    def _known(self, part: Part, position: int, role: str) -> tuple[int, str] | None:
        """What the weights say, or config.json."""
        use = self.lookups.uses.get(part.given.name, Use())
        if role == Roles.FEATURES and use.features is not None and position == len(part.roles) - 1:
            return use.features, "weights"
        if use.channels is not None and (
            role == Roles.CHANNELS or (position == 1 and part.purpose is Purpose.SPECTRUM)
        ):
            return use.channels, "weights"
        for purpose in (part.purpose, None):
            for key in _FROM_SETTINGS.get((purpose, role), ()):
                size = _as_size(self.settings.get(key), role)
                if size is not None:
                    return size, f"config.json {key}"
        return None

    def _sequence(self, role: str, past: int) -> tuple[int, str]:
        if past and self.room is None and role == (Roles.DECODER if self.has_decoder else Roles.SEQUENCE):
            return 1, f"default of {role} after a past"
        limits = ((self.lookups.positions, "position table"), (self.room, "room of the cache"))
        found = [(size, why) for size, why in limits if size is not None and 0 < size < _SEQUENCE]
        return min(found, default=(_SEQUENCE, f"default of {role}"))


def _as_size(value: object, role: str) -> int | None:
    if isinstance(value, list) and len(value) == 2:
        value = value[role == Roles.WIDTH]
    is_size = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST
    return value if is_size and isinstance(value, int) else None


def read_settings(paths: Sequence[Path]) -> Mapping[str, object]:
    """The config.json beside a model, or in the folder above one that is called `onnx`; empty where there is none."""
    if not paths:
        return {}
    folder = paths[0].parent
    for place in (folder, folder.parent) if folder.name == "onnx" else (folder,):
        try:
            with (place / "config.json").open("rb") as file:
                content = json.loads(file.read(_LONGEST))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(content, dict):
            inner = [content.get(key) for key in ("vision_config", "text_config")]
            found: dict[str, object] = {}
            for part in inner:
                found.update(part if isinstance(part, dict) else {})
            return {**found, **content}
    return {}
