"""What the process that runs files is asked, and what it answers: records that go through a pipe."""

from __future__ import annotations

import msgspec

from analyzer.timing.request import CPU, Optimization
from analyzer.timing.running.providers import short_name
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
    gained: int = 0
    """Elements that are finite in the first one, and not in the second."""


class QuantizerAnswer(msgspec.Struct, frozen=True):
    """As `analyzer.verify.twin.Quantizer`."""

    node: str
    value: str
    place: str
    scale: str
    zero: str
    axis: int
    domain: str
    kind: int


class Rounded(msgspec.Struct, frozen=True, array_like=True):
    """What a quantizer does to the values that it is given in one run."""

    count: int
    """Numbers, without those of masks and what is infinite."""
    power: float
    """Sum of their squares."""
    error: float
    """Sum of the squares of what rounding takes off or adds."""
    cut: int
    """Numbers further than half a step beyond what a code stands for."""
    beyond: float
    """How many times larger than the code that is furthest on its side a number is, at most; 0 where all are 0."""
    low: float
    """The least number."""
    high: float
    least: float
    """What the least code stands for; of several channels, of the first."""
    most: float
    levels: int
    """Codes, less one."""
    masks: int
    """Numbers of masks that are cut off: single ones, or what is beyond all sizes."""
    rows: int
    """Rows along the last axis."""
    cut_rows: int
    """Of them, those that have a number which is cut off."""


Setting = int | float | str | list[int | float]


class PatchNode(msgspec.Struct, frozen=True):
    """A node that stands in the place of another."""

    op_type: str
    domain: str
    inputs: list[str]
    output: str
    settings: dict[str, Setting] = {}
    """Its attributes."""


class Patch(msgspec.Struct, frozen=True):
    """Something else in the place of one value; the nodes may read what was there by its name and `BEFORE`."""

    output: str
    nodes: list[PatchNode]
    """The last of them makes it."""
    numbers: dict[str, float] = {}
    """Constants that the nodes read: single numbers of the type of what they meet."""


BEFORE = "/before"
"""Behind the name of a value that something else stands in the place of."""


class Execution(msgspec.Struct, frozen=True):
    """How onnxruntime is to run a file."""

    optimization: Optimization = Optimization.NONE
    """How far it may rewrite the graph first."""
    provider: str = CPU
    """The execution provider, as onnxruntime calls it."""

    @property
    def said(self) -> str:
        """In words."""
        return f"optimization {self.optimization.value} on {short_name(self.provider)}"


PLAIN = Execution()
"""Each node by itself, on the processor."""


class Given(msgspec.Struct, frozen=True):
    """A stored tensor that is to hold other numbers."""

    name: str
    reader: str = ""
    """The first output of the one node that is to read them; empty where all do."""


COARSE = frozenset(
    {
        *("Sigmoid", "QuickGelu", "Swish", "Silu", "FusedConv", "FusedGemm"),
        *("Elu", "Selu", "Celu"),
    }
)
"""Operators of which onnxruntime's kernels are off by as much near 0 as near 1: a sigmoid is made of 0.5 and a quotient
(onnxruntime/core/mlas/lib/logistic.cpp), and what follows `exp` in Elu takes 1 off it."""


class Question(msgspec.Struct, frozen=True):
    """What is to be done."""

    model: str
    home: str = ""
    """The folder of its external data; empty where that is its own."""
    feeds: list[dict[str, object]] = []
    """The fields of `Feed`."""
    seed: int = 0
    execution: Execution = PLAIN
    optimized: str = ""
    """The file that the graph is written to as onnxruntime would run it."""
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
    rounds: list[QuantizerAnswer] = []
    """Quantizers of the twin: what each does to its values is asked; with `target`, values where these round."""
    other: str = ""
    """A file whose values of the same names are held against these."""
    other_home: str = ""
    """As `home`."""
    other_execution: Execution = PLAIN
    rewritten: str = ""
    """The file that the model is written to with other numbers in it, which `given` holds."""
    state: list[Given] = []
    """What these are, in their order."""
    rounded_to: str = ""
    """The half-precision type that all other stored floats are rounded to; empty where they stay."""
    shaken: float = 0.0
    """By how much of itself each stored float is moved, up or down; 0 where they stay."""
    patch: Patch | None = None
    """Something else in the model, before it runs."""
    coarse: bool = False
    """Whether operators of `COARSE` are off by as much as they may be."""
    tries: list[Patch] = []
    """What is kept of what each of these would make is asked."""


class TwinAnswer(msgspec.Struct, frozen=True):
    """What the twin is, or why there is none."""

    refused: str
    quantizers: list[QuantizerAnswer]
    activations: int
    products: int
    untold: int
    is_widened: bool
    rectified: int
    edges: list[tuple[list[str], list[str], str]]
    """Inputs, outputs and operator of each node of the main graph."""


class OptimizedAnswer(msgspec.Struct, frozen=True):
    """The graph as onnxruntime runs it."""

    edges: list[tuple[list[str], list[str], str]]
    """As of a twin; empty where onnxruntime keeps to itself what it has made."""
    is_written: bool
    """Whether the file is there."""
    assigned: dict[str, int]
    """How many nodes each provider took; empty where onnxruntime does not tell."""


class Answer(msgspec.Struct, frozen=True):
    """One of these."""

    error: str = ""
    refused: str = ""
    """Why a provider does not run here: a sentence of ours."""
    optimized: OptimizedAnswer | None = None
    places: list[int] = []
    """Of the values that were written."""
    prints: dict[str, Print] = {}
    twin: TwinAnswer | None = None
    apart: dict[str, Apart] = {}
    rounded: dict[str, Rounded] = {}
    """By `QuantizerAnswer.place`."""
    tried: list[Print | None] = []
    """Of `tries`; None of one that does not run."""
