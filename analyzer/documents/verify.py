"""The document of `verify`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from analyzer.documents.base import Bytes, Nodes, Record, Shape, Stamped, Text
from analyzer.timing.request import Optimization
from analyzer.verify.record import Verdict

_Error = Annotated[float, Meta(ge=0, extra={"unit": "the value's own"})]
_Decibel = Annotated[float, Meta(extra={"unit": "dB"})]


class VerifyDocument(Stamped, frozen=True, kw_only=True):
    """A report of `onnxledger verify --format json`."""

    command: Literal["verify"] = "verify"
    """The command that wrote the document."""
    model: Text
    """MODEL, as given on the command line."""
    against: Text
    """The other side, as given on the command line."""
    same: bool
    """Whether every output was compared, and none differs by more than rounding."""
    first: VerifyFirst | None
    """First place at which the two sides differ; null if the outputs are the same, or no inner value tells."""
    wiring: VerifyWiring
    """Comparison of the files without a run."""
    outputs: list[VerifiedOutput]
    """Outputs of both sides, in the order of MODEL."""
    modules: list[VerifiedModule]
    """Inner values of both sides, in the order of MODEL; empty if the outputs are the same, unless both sides are one
    file."""
    executions: VerifyExecutions | None
    """Execution of both sides, if both are one file; else null."""
    drift_db: _Decibel | None
    """Signal to error of the output with the largest error: MODEL as it stands, against the other file, or against
    PyTorch with its own weights, the worst of three runs; null if nothing differs, all is lost, or SOURCE has no
    weights."""
    costs: VerifyCosts | None
    """Effect of rounding on the outputs; null if nothing is rounded, or if the outputs are not the same."""
    inputs: list[VerifiedInput]
    """Inputs that both sides were fed, run by run."""
    uncovered: list[Text]
    """Cases that these runs did not try, in words."""


REFUSED = "sizes that the file declares and does not run: "
"""Beginning of an entry of `uncovered` about sizes that the other side takes and MODEL does not run."""

EMPTIED = "outputs of which codes leave nothing: "
"""Beginning of an entry of `uncovered` about an output that is lost where MODEL rounds to codes."""

OTHER_WEIGHTS = "the weights of "
"""Beginning of an entry of `uncovered` that says that the file does not balance against SOURCE."""


class VerifyCosts(Record, frozen=True, kw_only=True):
    """Effect of rounding on the outputs, for the first inputs."""

    weights_db: _Decibel | None
    """Signal to error of the other side with the weights of MODEL, against itself with its own weights, for the output
    with the largest error; null if nothing differs, or SOURCE has no weights."""
    codes_db: _Decibel | None
    """Signal to error of MODEL as it stands, against MODEL without quantized activations and half precision."""
    layers: list[VerifyLayerCost]
    """Modules whose rounding alone costs anything, most costly first."""
    kept: VerifyKept | None
    """Benefit of leaving the three most costly modules in float; null if nothing is quantized, or the benefit is
    unknown."""
    unmeasured: Annotated[int, Meta(ge=0, extra={"unit": "modules"})]
    """Number of modules for which there was no time."""


class VerifyLayerCost(Record, frozen=True, kw_only=True):
    """Effect of rounding one module alone on the outputs."""

    module: str
    """Path of the module; for a quantizer, of the module that makes the values."""
    signal_to_error_db: _Decibel | None
    """Signal to error with weights and quantizers together, for the output with the largest error; null if all is
    lost."""
    weights_db: _Decibel | None
    """Signal to error with the module's rounded weights alone; null if they cost nothing, or SOURCE has no weights."""
    codes_db: _Decibel | None
    """Signal to error with the module's quantizers of activations alone; null if it has none, or they cost nothing."""
    quantizers: Annotated[int, Meta(ge=0, extra={"unit": "quantizers"})]
    """Number of the module's quantizers of activations."""
    nbytes: Bytes
    """Bytes of the module's rounded weights, as MODEL stores them."""
    float_nbytes: Bytes
    """Bytes of the module's weights in single precision."""


class VerifyKept(Record, frozen=True, kw_only=True):
    """Benefit of leaving modules in float."""

    modules: list[str]
    """Modules that are left in float."""
    more_nbytes: Annotated[int, Meta(extra={"unit": "bytes"})]
    """Bytes by which MODEL would be larger."""
    before_db: _Decibel | None
    """Signal to error of the output with the largest error, with all modules rounded: errors of weights and of
    quantizers added up, as in `signal_to_error_db`; `drift_db` is the effect of both together."""
    signal_to_error_db: _Decibel | None
    """Signal to error with these modules in float and all others rounded; null if nothing differs then."""


class VerifyExecutions(Record, frozen=True, kw_only=True):
    """The two executions of one file."""

    model: VerifyExecution
    """Execution of MODEL."""
    against: VerifyExecution
    """Execution of the other side."""


class VerifyExecution(Record, frozen=True, kw_only=True):
    """One of the two executions of one file."""

    optimization: Optimization
    """Level to which onnxruntime could rewrite the graph."""
    provider: str
    """The execution provider, as `--provider` names it."""
    nodes: Nodes | None
    """Number of nodes of the graph that ran; null if they are those of the file, or onnxruntime does not tell."""


class VerifyFirst(Record, frozen=True, kw_only=True):
    """First place at which the two sides differ."""

    module: str | None
    """Subgraph of the node; null if unknown."""
    node: Text
    """Node that makes the first value that differs."""
    reason: Text
    """Difference of the node, or distance of its value from the other side's."""


class VerifyWiring(Record, frozen=True, kw_only=True):
    """Comparison of the files without a run."""

    checked: Nodes
    """Number of nodes that make values of one name in two files; against PyTorch, number of modules that were looked
    for."""
    differing: Annotated[int, Meta(ge=0, extra={"unit": "differences"})]
    """Number of `differences`."""
    differences: list[VerifyDifference]
    """Differences between the two sides, in the order of MODEL."""


class VerifyDifference(Record, frozen=True, kw_only=True):
    """Difference between two nodes that make one value."""

    module: str | None
    """Subgraph of the node; null if unknown."""
    parameter: str | None
    """Stored tensor that is concerned; null if there is none."""
    node: Text
    """Node in MODEL."""
    kind: str
    """Kind of difference: `operator`, `attribute`, `constant`, `input`, `weight`, `layer`, `planted`, `overflow`,
    `quantizer`."""
    expected: str
    """State on the other side."""
    found: str
    """State in MODEL."""


class VerifiedOutput(Record, frozen=True, kw_only=True):
    """One output of both sides."""

    name: str
    """Name of the output in MODEL; empty if only the other side has it."""
    max_abs_error: _Error | None
    """Largest difference over all runs; null if the output was not compared."""
    signal_to_error_db: _Decibel | None
    """Power of the value relative to that of the difference; null if nothing differs, or the output was not
    compared."""
    noise_db: _Decibel | None
    """Power of the value relative to that of rounding; null if the output was not compared."""
    verdict: Verdict
    """Outcome: `same` if the sides are no further apart than rounding; `differs`; `not-compared`."""


class VerifiedModule(Record, frozen=True, kw_only=True):
    """One inner value of both sides."""

    module: str | None
    """Subgraph of the node that makes the value; null if unknown."""
    class_: str = field(name="class")
    """Operator that makes the value."""
    value: Text
    """Name of the value."""
    max_abs_error: _Error | None
    """Largest difference in the first run; null if the value was not compared."""
    signal_to_error_db: _Decibel | None
    """Power of the value relative to that of the difference; null if nothing differs, or the value was not compared."""
    noise_db: _Decibel | None
    """Power of the value relative to that of rounding; null if the value was not compared."""
    verdict: Verdict
    """Outcome: `same` if the sides are no further apart than rounding; `differs`; `not-compared`."""


class VerifiedInput(Record, frozen=True, kw_only=True):
    """One input of one run."""

    name: str
    """Name of the input."""
    dtype: str
    """ONNX element type."""
    shape: Shape
    """Dimensions; empty for a scalar."""
    seed: Annotated[int, Meta(ge=0, extra={"unit": "seed"})]
    """Seed of its random elements."""
    file: Text | None
    """File that the elements were read from; null if they were generated."""
