"""Questions to the process that runs files, and its answers -> records that go through a pipe."""

from __future__ import annotations

import msgspec

from analyzer.timing.request import CPU, Optimization
from analyzer.timing.running.providers import short_name
from analyzer.verify.prints import Print


class ValueDifference(msgspec.Struct, frozen=True, array_like=True):
    """Difference of two values."""

    size: float
    """Root mean square of the second value."""
    error: float
    """Root mean square of the difference, where both are finite."""
    worst: float
    """Largest difference."""
    lost: int
    """Number of elements that are finite in the second value, and not in the first."""
    largest: float
    """Largest finite element of the second value."""
    gained: int = 0
    """Number of elements that are finite in the first value, and not in the second."""


class QuantizerAnswer(msgspec.Struct, frozen=True):
    """Fields of an `analyzer.verify.twin.Quantizer`."""

    node: str
    value: str
    place: str
    scale: str
    zero: str
    axis: int
    domain: str
    kind: int


class Rounded(msgspec.Struct, frozen=True, array_like=True):
    """Effect of a quantizer on its input values in one run."""

    count: int
    """Number of finite numbers, without masks."""
    power: float
    """Sum of their squares."""
    error: float
    """Sum of the squares of the rounding errors."""
    cut: int
    """Number of values more than half a step beyond the range of the codes."""
    beyond: float
    """Largest ratio of a number to the outermost number of the codes on its side; 0 where all numbers are 0."""
    low: float
    """Least number."""
    high: float
    least: float
    """Number that the least code stands for; with several channels, that of the first."""
    most: float
    levels: int
    """Number of codes, less one."""
    masks: int
    """Number of mask elements that are cut off: those beyond `prints.HUGE`, or all of one distant value."""
    rows: int
    """Number of rows along the last axis."""
    cut_rows: int
    """Number of rows with an element that is cut off."""


Setting = int | float | str | list[int | float]


class PatchNode(msgspec.Struct, frozen=True):
    """Node of a patch."""

    op_type: str
    domain: str
    inputs: list[str]
    output: str
    settings: dict[str, Setting] = {}
    """Attributes of the node."""


class Patch(msgspec.Struct, frozen=True):
    """Replacement of one value; its nodes may read the original value, under its name followed by `BEFORE`."""

    output: str
    nodes: list[PatchNode]
    """Nodes of the replacement, the last of which makes the value."""
    numbers: dict[str, float] = {}
    """Scalar constants that the nodes read, in the type of their other operand."""


BEFORE = "/before"
"""Suffix for the name of the original value that a patch replaces."""


class Execution(msgspec.Struct, frozen=True):
    """Settings with which onnxruntime runs a file."""

    optimization: Optimization = Optimization.NONE
    """Level up to which onnxruntime may rewrite the graph first."""
    provider: str = CPU
    """Execution provider, under onnxruntime's name."""

    @property
    def description(self) -> str:
        """Description in words."""
        return f"optimization {self.optimization.value} on {short_name(self.provider)}"


PLAIN = Execution()
"""Execution of each node by itself, on the CPU."""


class ReplacedTensor(msgspec.Struct, frozen=True):
    """Stored tensor that is given other numbers."""

    name: str
    reader: str = ""
    """First output of the one node that reads these numbers; empty where all readers do."""


COARSE = frozenset(
    {
        *("Sigmoid", "QuickGelu", "Swish", "Silu", "FusedConv", "FusedGemm"),
        *("Elu", "Selu", "Celu"),
    }
)
"""Operators whose onnxruntime kernels have the same absolute error near 0 as near 1: a sigmoid is 0.5 plus a quotient
(onnxruntime/core/mlas/lib/logistic.cpp), and Elu and its kin subtract 1 from `exp`."""


class Question(msgspec.Struct, frozen=True):
    """Request to the process; the fields that are set tell its kind."""

    model: str
    home: str = ""
    """Folder of the model's external data; empty for the model's own folder."""
    feeds: list[dict[str, object]] = []
    """Fields of each `Feed`."""
    seed: int = 0
    execution: Execution = PLAIN
    optimized: str = ""
    """Path for the graph as onnxruntime would run it."""
    wanted: list[str] = []
    """Names of values of the main graph; those that are no outputs are made outputs."""
    target: str = ""
    """Path for the values, stored as `v0`, `v1` and so on in the order of `wanted`; empty where prints are wanted."""
    inputs_file: str = ""
    """File with the inputs themselves, `v0` and so on; empty where `feeds` say how to make them."""
    names: list[str] = []
    """Names of these inputs, in their order."""
    twin: str = ""
    """Path for the float twin."""
    half: str = ""
    """Half-precision type that the twin widens."""
    restored: list[float] = []
    """Numbers that the twin has in single precision in place of their roundings."""
    rectify: bool = True
    """Whether a quantizer whose codes begin at zero cuts off negative numbers."""
    rounds: list[QuantizerAnswer] = []
    """Quantizers of the twin whose effect is measured; with `target`, quantizers that round in this run."""
    other: str = ""
    """File whose values of the same names are compared with these."""
    other_home: str = ""
    """Folder of the other file's external data; empty for its own folder."""
    other_execution: Execution = PLAIN
    rewritten: str = ""
    """Path for the model with other stored numbers, which `given` holds."""
    state: list[ReplacedTensor] = []
    """Stored tensors that get these numbers, in their order."""
    rounded_to: str = ""
    """Half-precision type that all other stored floats are rounded to; empty where they stay."""
    perturbation: float = 0.0
    """Relative amount by which each stored float is moved, up or down; 0 where they stay."""
    patch: Patch | None = None
    """Replacement of a value in the model, applied before it runs."""
    coarse: bool = False
    """Whether operators of `COARSE` run with their largest possible error."""
    tries: list[Patch] = []
    """Patches whose results' prints are wanted."""


class TwinAnswer(msgspec.Struct, frozen=True):
    """Facts about the twin, or the reason why there is none."""

    refused: str
    quantizers: list[QuantizerAnswer]
    activations: int
    products: int
    unmeasured: int
    is_widened: bool
    rectified: int
    edges: list[tuple[list[str], list[str], str]]
    """Inputs, outputs and operator of each node of the main graph."""


class OptimizedAnswer(msgspec.Struct, frozen=True):
    """Graph as onnxruntime runs it."""

    edges: list[tuple[list[str], list[str], str]]
    """Inputs, outputs and operator of each node; empty where onnxruntime does not write the graph."""
    is_written: bool
    """Whether onnxruntime wrote the file."""
    assigned: dict[str, int]
    """Number of nodes that each provider took; empty where onnxruntime does not tell."""


class Answer(msgspec.Struct, frozen=True):
    """Answer to one question: the field that belongs to it is set."""

    error: str = ""
    refused: str = ""
    """Reason why a provider does not run here, in a sentence of ours."""
    optimized: OptimizedAnswer | None = None
    places: list[int] = []
    """Places in `wanted` of the values that were written."""
    prints: dict[str, Print] = {}
    twin: TwinAnswer | None = None
    apart: dict[str, ValueDifference] = {}
    rounded: dict[str, Rounded] = {}
    """Effect of each quantizer, by `QuantizerAnswer.place`."""
    tried: list[Print | None] = []
    """Print of the result of each of `tries`; None for one that does not run."""
