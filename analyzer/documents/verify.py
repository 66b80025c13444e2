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
    """MODEL, as it was named."""
    against: Text
    """The other side, as it was named."""
    same: bool
    """Whether every output was compared, and none differs by more than rounding."""
    first: VerifyFirst | None
    """Where the two part; null where the outputs are the same, or no inner value tells."""
    wiring: VerifyWiring
    """What is known without running."""
    outputs: list[VerifiedOutput]
    """The outputs of both, in the order of MODEL."""
    modules: list[VerifiedModule]
    """Inner values of both, in the order of MODEL; empty where the outputs are the same, unless both are one file."""
    executions: VerifyExecutions | None
    """How both ran, where both are one file; else null."""
    drift_db: _Decibel | None
    """Signal to error of the output that is off the most: MODEL as it stands, beside the other file or PyTorch with its
    own weights, the worst of three runs; null where nothing is off or all is lost, or if SOURCE has no weights."""
    costs: VerifyCosts | None
    """What rounding does to the outputs; null where nothing is rounded, and where the outputs are not the same."""
    inputs: list[VerifiedInput]
    """What both were fed, run by run."""
    uncovered: list[Text]
    """What these runs did not try, in words."""


REFUSED = "sizes that the file declares and does not run: "
"""What an entry of `uncovered` begins with that says so: the other side takes them."""

OTHER_WEIGHTS = "the weights of "
"""What an entry of `uncovered` begins with that says that the file does not balance against SOURCE."""


class VerifyCosts(Record, frozen=True, kw_only=True):
    """What rounding does to the outputs, on the first inputs."""

    weights_db: _Decibel | None
    """Signal to error of the other side with the weights of MODEL beside its own, of the output that is off the most;
    null where nothing is off, or SOURCE has no weights."""
    codes_db: _Decibel | None
    """The same of MODEL as it stands, beside the same without codes of activations and half precision."""
    layers: list[VerifyLayerCost]
    """Modules that cost anything alone, the dearest first."""
    kept: VerifyKept | None
    """What it would give to leave the three dearest in float; null where nothing has codes, or nobody can say."""
    unmeasured: Annotated[int, Meta(ge=0, extra={"unit": "modules"})]
    """Modules for which there was no time."""


class VerifyLayerCost(Record, frozen=True, kw_only=True):
    """What rounding one module alone does to the outputs."""

    module: str
    """Its path; that of a quantizer is the module that makes the values."""
    signal_to_error_db: _Decibel | None
    """Weights and quantizers together, of the output that is off the most; null where it is lost."""
    weights_db: _Decibel | None
    """Its weights alone; null where they cost nothing, or SOURCE has no weights."""
    codes_db: _Decibel | None
    """Its quantizers of activations alone; null where it has none, or these cost nothing."""
    quantizers: Annotated[int, Meta(ge=0, extra={"unit": "quantizers"})]
    """How many these are."""
    nbytes: Bytes
    """Its rounded weights, as MODEL stores them."""
    float_nbytes: Bytes
    """The same in single precision."""


class VerifyKept(Record, frozen=True, kw_only=True):
    """What it would give to leave modules in float."""

    modules: list[str]
    """The modules."""
    more_nbytes: Annotated[int, Meta(extra={"unit": "bytes"})]
    """How much larger MODEL would be."""
    before_db: _Decibel | None
    """Signal to error of the output that is off the most, with all modules rounded: errors of weights and of quantizers
    added up, as in `signal_to_error_db`; `drift_db` is what both do together."""
    signal_to_error_db: _Decibel | None
    """The same with these in float and all others rounded; null where nothing is off then."""


class VerifyExecutions(Record, frozen=True, kw_only=True):
    """Two ways in which one file ran."""

    model: VerifyExecution
    """How MODEL ran."""
    against: VerifyExecution
    """How the other side ran."""


class VerifyExecution(Record, frozen=True, kw_only=True):
    """One of two ways in which one file ran."""

    optimization: Optimization
    """How far onnxruntime could rewrite the graph."""
    provider: str
    """The execution provider, as `--provider` names it."""
    nodes: Nodes | None
    """Nodes of the graph that ran; null where they are those of the file, or onnxruntime does not tell."""


class VerifyFirst(Record, frozen=True, kw_only=True):
    """Where the two part."""

    module: str | None
    """The subgraph of the node; null where nothing tells."""
    node: Text
    """The node that makes the first value that differs."""
    reason: Text
    """What its node differs in, or how far its value is off."""


class VerifyWiring(Record, frozen=True, kw_only=True):
    """What is known without running."""

    checked: Nodes
    """Nodes that make values of one name in two files; beside PyTorch, modules that were looked for."""
    differing: Annotated[int, Meta(ge=0, extra={"unit": "differences"})]
    """How many `differences` there are."""
    differences: list[VerifyDifference]
    """What they differ in, in the order of MODEL."""


class VerifyDifference(Record, frozen=True, kw_only=True):
    """What two nodes that make one value differ in."""

    module: str | None
    """The subgraph of the node; null where nothing tells."""
    parameter: str | None
    """The stored tensor that it is about; null where it is about none."""
    node: Text
    """The node in MODEL."""
    kind: str
    """What of it differs: `operator`, `attribute`, `constant`, `input`, `weight`, `layer`, `planted`, `overflow`,
    `quantizer`."""
    expected: str
    """What the other side has."""
    found: str
    """What MODEL has."""


class VerifiedOutput(Record, frozen=True, kw_only=True):
    """One output of both."""

    name: str
    """Its name in MODEL; empty where only the other side has it."""
    max_abs_error: _Error | None
    """Largest difference of all runs; null where it was not compared."""
    signal_to_error_db: _Decibel | None
    """Power of the value over that of the difference; null where nothing differs, or it was not compared."""
    noise_db: _Decibel | None
    """The same of rounding; null where it was not compared."""
    verdict: Verdict
    """`same`: no further apart than rounding; `differs`; `not-compared`."""


class VerifiedModule(Record, frozen=True, kw_only=True):
    """One inner value of both."""

    module: str | None
    """The subgraph of the node that makes it; null where nothing tells."""
    class_: str = field(name="class")
    """The operator that makes it."""
    value: Text
    """Its name."""
    max_abs_error: _Error | None
    """As of an output, of the first run."""
    signal_to_error_db: _Decibel | None
    """As of an output."""
    noise_db: _Decibel | None
    """As of an output."""
    verdict: Verdict
    """As of an output."""


class VerifiedInput(Record, frozen=True, kw_only=True):
    """One input of one run."""

    name: str
    """Its name."""
    dtype: str
    """ONNX element type."""
    shape: Shape
    """Dimensions; empty for a scalar."""
    seed: Annotated[int, Meta(ge=0, extra={"unit": "seed"})]
    """What its elements are drawn with."""
    file: Text | None
    """What they were read from instead; null where they were made."""
