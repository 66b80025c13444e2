"""What the process that runs files is asked, and what it answers: records that go through a pipe."""

from __future__ import annotations

import msgspec

from analyzer.verify.prints import Print


class Apart(msgspec.Struct, frozen=True, array_like=True):
    """How far two values are apart."""

    size: float
    """Root mean square of the second one."""
    error: float
    """Of the difference, where both are finite."""
    worst: float
    """The largest difference."""
    lost: int
    """Elements that are finite in the second one, and not in the first."""
    largest: float
    """The largest finite element of the second one."""


class Question(msgspec.Struct, frozen=True):
    """What is to be done."""

    model: str
    home: str = ""
    """The folder of its external data; empty where that is its own."""
    feeds: list[dict[str, object]] = []
    """The fields of `Feed`."""
    seed: int = 0
    level: str = "ORT_DISABLE_ALL"
    """Of onnxruntime's optimizations."""
    wanted: list[str] = []
    """Values of the main graph; those that are no outputs are made outputs."""
    target: str = ""
    """The file that values are written to, `v0`, `v1` and so on in the order of `wanted`; empty for prints."""
    given: str = ""
    """A file with the inputs themselves, `v0` and so on; empty where `feeds` say how they are made."""
    names: list[str] = []
    """What these inputs are called, in their order."""
    twin: str = ""
    """The file that the float twin is written to."""
    half: str = ""
    """The type that the twin widens."""
    rectify: bool = True
    """Whether a quantizer whose codes begin at zero cuts what is negative."""
    other: str = ""
    """A file whose values of the same names are held against these."""
    other_home: str = ""
    """As `home`."""


class QuantizerAnswer(msgspec.Struct, frozen=True):
    """As `analyzer.verify.twin.Quantizer`."""

    node: str
    value: str
    scale: float
    low: float
    high: float


class TwinAnswer(msgspec.Struct, frozen=True):
    """What the twin is, or why there is none."""

    refused: str
    quantizers: list[QuantizerAnswer]
    activations: int
    products: int
    is_widened: bool
    rectified: int
    edges: list[tuple[list[str], list[str], str]]
    """Inputs, outputs and operator of each node of the main graph."""


class Answer(msgspec.Struct, frozen=True):
    """One of these."""

    error: str = ""
    places: list[int] = []
    """Of the values that were written."""
    prints: dict[str, Print] = {}
    twin: TwinAnswer | None = None
    apart: dict[str, Apart] = {}
