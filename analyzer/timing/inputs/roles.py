"""A signature -> what each input is for, and the role of each of its axes, whatever the exporter called them."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analyzer.model import ValueType
from analyzer.timing.inputs.lookups import Use

__all__ = ["RATES", "Part", "Purpose", "Roles", "Sides", "assign_roles", "is_opaque"]


class Purpose(enum.StrEnum):
    """What an input is for."""

    TOKENS = "tokens"
    SEGMENTS = "segments"
    POSITIONS = "positions"
    MASK = "mask"
    CACHE = "cache"
    """Keys and values of what came before."""
    BRANCH = "branch"
    """Whether a cache is given."""
    HIDDEN = "hidden"
    """Vectors in place of tokens, or the output of an encoder."""
    IMAGE = "image"
    WAVEFORM = "waveform"
    SPECTRUM = "spectrum"
    STATE = "state"
    """What a recurrent network hands on."""
    OTHER = "other"


class Roles:
    """Names of roles, as `--shape` takes them."""

    BATCH = "batch"
    SEQUENCE = "sequence"
    DECODER = "decoder_sequence"
    ENCODER = "encoder_sequence"
    PAST = "past"
    TOTAL = "total_sequence"
    DECODER_TOTAL = "decoder_total"
    CHANNELS = "channels"
    HEIGHT = "height"
    WIDTH = "width"
    SAMPLES = "samples"
    FRAMES = "frames"
    FEATURES = "features"
    HEADS = "heads"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Part:
    """What an input of known rank is for, and a role for each of its axes."""

    given: ValueType
    purpose: Purpose
    roles: tuple[str, ...]

    @property
    def dims(self) -> tuple[int | str | None, ...]:
        return self.given.dims or ()


_PURPOSES: Sequence[tuple[Purpose, re.Pattern[str], str]] = tuple(
    (purpose, re.compile(pattern), kinds)
    for purpose, pattern, kinds in (
        (Purpose.BRANCH, r"^use_cache", "bi"),
        (Purpose.POSITIONS, r"position|(^|_)pos_?ids?$", "i"),
        (Purpose.SEGMENTS, r"token_?type|segment|type_ids", "i"),
        (Purpose.MASK, r"mask", "bif"),
        (Purpose.STATE, r"conv_?(state|cache)|ssm|recurrent|rnn_state", "f"),
        (Purpose.CACHE, r"past|cache", "f"),
        (Purpose.TOKENS, r"input_ids|(^|_)ids$|token", "i"),
        (Purpose.HIDDEN, r"hidden_states?|embed|encoder_output", "f"),
        (Purpose.IMAGE, r"pixel_values|image|img|picture|photo", "if"),
        (Purpose.SPECTRUM, r"input_features|spectr|(^|_)mel|fbank", "f"),
        (Purpose.WAVEFORM, r"input_values|audio|wav|speech|samples", "if"),
        (Purpose.STATE, r"state|hidden|(^|_)[hc](_?[0n])?$", "f"),
    )
)
"""By name, in this order; the letters are the kinds of elements that it may have: boolean, integer, floating."""

RATES = frozenset({"sr", "sample_rate", "sampling_rate"})
"""Names of an input that says how many samples a second has."""

_LONG = 200
"""Characters of a name that are looked at."""


def assign_roles(signature: Sequence[ValueType], uses: Mapping[str, Use]) -> tuple[tuple[Part, ...], Sides]:
    """What each input of known rank is for; names first, then what the graph does with it, then its shape."""
    known = [given for given in signature if given.dims is not None and given.kind == "tensor"]
    found = [(given, _purpose(given, uses.get(given.name, Use()))) for given in known]
    has_tokens = any(purpose is Purpose.TOKENS for _, purpose in found)
    sides = Sides(
        has_decoder=any(_plain(given.name).startswith("decoder_input") for given in known),
        has_past=any(purpose is Purpose.CACHE for _, purpose in found),
    )
    has_rate = any(_plain(given.name) in RATES for given in known)
    parts = []
    for given, purpose in found:
        rank = len(given.dims or ())
        if purpose is Purpose.OTHER and has_rate and given.dtype.is_floating and rank in (1, 2):
            purpose = Purpose.WAVEFORM
        if purpose is Purpose.OTHER and has_tokens and given.dtype.is_integer and rank > 1:
            purpose = Purpose.MASK  # its elements index nothing
        placed = _placed(given, purpose, sides)
        named = [sides.named(dim, role) for dim, role in zip(given.dims or (), placed, strict=True)]
        if Roles.PAST in named:  # so it is not where it usually is
            placed = tuple(Roles.OTHER if role == Roles.PAST else role for role in placed)
        roles = tuple(name or role for name, role in zip(named, placed, strict=True))
        parts.append(Part(given, purpose, roles))
    return tuple(parts), sides


def _purpose(given: ValueType, use: Use) -> Purpose:
    name, rank = _plain(given.name), len(given.dims or ())
    kind = "b" if given.dtype.name == "BOOL" else "i" if given.dtype.is_integer else "f"
    for purpose, pattern, kinds in _PURPOSES:
        if kind in kinds and pattern.search(name) and (rank or purpose is Purpose.BRANCH):
            return purpose
    if kind == "i" and use.rows is not None and rank:
        return Purpose.TOKENS
    if rank == 4 and kind != "b" and (use.channels is not None or kind == "f"):
        return Purpose.IMAGE
    return Purpose.OTHER


def _plain(name: str) -> str:
    """A name as it is looked at: without what stands before a `/` or after a `:`, in lower case."""
    return name[-_LONG:].rpartition("/")[2].partition(":")[0].lower()


_EXPRESSION = re.compile(r"[+*/()]")
_TOTALS = (Roles.TOTAL, Roles.DECODER_TOTAL)
_SEQUENCES = (Roles.SEQUENCE, Roles.DECODER, Roles.ENCODER)


def _is_encoder(name: str) -> bool:
    return "encoder" in name.replace("decoder", "") or "cross" in name or "source" in name


@dataclass(frozen=True, slots=True)
class Sides:
    """What the inputs together tell."""

    has_decoder: bool
    """Whether an encoder and a decoder are both fed: the plain sequence is the encoder's."""
    has_past: bool

    def sequence(self, name: str) -> str:
        """The role of the sequence of an input, or of an axis, of this name."""
        if "decoder" in name or "target" in name:
            return Roles.DECODER if self.has_decoder else Roles.SEQUENCE
        if _is_encoder(name):
            return Roles.SEQUENCE if self.has_decoder else Roles.ENCODER
        return Roles.SEQUENCE

    def total(self, name: str) -> str:
        """The role of the axis of a mask along which there are keys."""
        own = self.sequence(name)
        if not self.has_past or own == Roles.ENCODER or (self.has_decoder and own == Roles.SEQUENCE):
            return own
        return Roles.DECODER_TOTAL if own == Roles.DECODER else Roles.TOTAL

    def named(self, dim: int | str | None, placed: str) -> str | None:
        """The role that an axis's own name gives away; None where it is opaque, or an expression of others."""
        if not isinstance(dim, str) or is_opaque(dim) or len(dim) > _LONG or _EXPRESSION.search(dim):
            return None
        return self.hinted(dim.lower(), placed)

    def hinted(self, axis: str, placed: str = "") -> str | None:
        """The role that a name gives away, for an axis that has another by its place."""
        role = next((role for role, pattern in _HINTS if pattern.search(axis)), None)
        if role == Roles.SEQUENCE:
            if placed in (Roles.PAST, Roles.SAMPLES, Roles.FRAMES, *_TOTALS):
                return placed
            says = _is_encoder(axis) or "decoder" in axis or "target" in axis or placed not in _SEQUENCES
            return self.sequence(axis) if says else placed
        if role == Roles.PAST and _is_encoder(axis):
            return self.sequence("encoder")
        return role


def _placed(given: ValueType, purpose: Purpose, sides: Sides) -> tuple[str, ...]:
    """Roles by the place of each axis."""
    name, dims = _plain(given.name), given.dims or ()
    rank = len(dims)
    sequence = sides.sequence(name)
    if purpose is Purpose.CACHE:
        return _cache_roles(name, rank, sides)
    if purpose is Purpose.IMAGE or (purpose is Purpose.MASK and "pixel" in name):
        return _image_roles(dims)
    if purpose is Purpose.OTHER and rank == 3 and given.dtype.is_floating:
        purpose = Purpose.HIDDEN
    layouts: dict[Purpose, tuple[str, ...]] = {
        Purpose.HIDDEN: (Roles.BATCH, sequence, Roles.FEATURES),
        Purpose.SPECTRUM: (Roles.BATCH, Roles.FEATURES, Roles.FRAMES),
        Purpose.WAVEFORM: (Roles.BATCH, *(Roles.CHANNELS,) * (rank - 2), Roles.SAMPLES),
        Purpose.STATE: _state_roles(dims),
        Purpose.MASK: (
            Roles.BATCH,
            *(Roles.HEADS,) * (rank - 3),
            *(sequence,) * (rank > 2),
            sides.total(name),
        ),
    }
    if rank == 1:
        return _single_role(purpose, sides, name)
    is_listed = given.dtype.is_integer or purpose in (Purpose.TOKENS, Purpose.SEGMENTS, Purpose.POSITIONS)
    layout = layouts.get(purpose, (Roles.BATCH, sequence if is_listed else Roles.FEATURES))
    return (layout + (Roles.OTHER,) * rank)[:rank]


def _single_role(purpose: Purpose, sides: Sides, name: str) -> tuple[str]:
    """The role of an only axis."""
    if purpose is Purpose.MASK:
        return (sides.total(name),)
    if purpose in (Purpose.TOKENS, Purpose.SEGMENTS, Purpose.POSITIONS):
        return (sides.sequence(name),)
    return (Roles.SAMPLES,) if purpose is Purpose.WAVEFORM else (Roles.BATCH,)


def _cache_roles(name: str, rank: int, sides: Sides) -> tuple[str, ...]:
    length = sides.sequence("encoder") if _is_encoder(name) else Roles.PAST
    if rank < 3:
        return (Roles.BATCH, Roles.FEATURES)[:rank]
    heads = (Roles.HEADS,) if rank > 3 else ()
    ends = (Roles.BATCH, *heads, length, Roles.FEATURES)
    return (*(Roles.OTHER,) * (rank - len(ends)), *ends)


def _state_roles(dims: Sequence[int | str | None]) -> tuple[str, ...]:
    """The batch is the first axis that is free; else the one before the last, as ONNX's LSTM has it."""
    free = (position for position, dim in enumerate(dims) if not isinstance(dim, int) or dim < 0)
    batch = next(free, len(dims) - 2)
    return tuple(
        Roles.BATCH if position == batch else Roles.FEATURES if position == len(dims) - 1 else Roles.OTHER
        for position in range(len(dims))
    )


def _image_roles(dims: Sequence[int | str | None]) -> tuple[str, ...]:
    rank = len(dims)
    if rank < 3:
        return (Roles.HEIGHT, Roles.WIDTH)[-rank:] if rank else ()
    inner = (Roles.CHANNELS, Roles.HEIGHT, Roles.WIDTH)
    if dims[-1] in (1, 3, 4) and dims[-3] not in (1, 3, 4):
        inner = (Roles.HEIGHT, Roles.WIDTH, Roles.CHANNELS)
    if rank == 3 and not any(dim in (1, 3, 4) for dim in dims):
        inner = (Roles.BATCH, Roles.HEIGHT, Roles.WIDTH)
    return (*(Roles.BATCH, *(Roles.FRAMES,) * (rank - 4)) * (rank > 3), *inner)


_OPAQUE = re.compile(r"s\d+|\d+|unk.*|dynamic.*|\?|none|")


def is_opaque(axis: str) -> bool:
    """Whether an axis's name says nothing of what it is: `s18`, `unk__5`."""
    return _OPAQUE.fullmatch(axis.lower()) is not None


_HINTS: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (role, re.compile(pattern))
    for role, pattern in (
        (Roles.PAST, r"past|cache"),
        (Roles.TOTAL, r"total"),
        (Roles.BATCH, r"batch"),
        (Roles.HEADS, r"heads"),
        (Roles.CHANNELS, r"channels"),
        (Roles.HEIGHT, r"height"),
        (Roles.WIDTH, r"width"),
        (Roles.SAMPLES, r"samples"),
        (Roles.FRAMES, r"frames|^time$"),
        (Roles.SEQUENCE, r"seq|tokens|length|_len$"),
        (Roles.FEATURES, r"hidden|feature|embed|mel|_dim$|head_size"),
    )
)
