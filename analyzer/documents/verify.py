"""The document of `verify`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from analyzer.documents.base import Nodes, Record, Shape, Stamped, Text
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
    """Inner values of both, in the order of MODEL; empty where the outputs are the same."""
    inputs: list[VerifiedInput]
    """What both were fed, run by run."""
    uncovered: list[Text]
    """What these runs did not try, in words."""


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
    """Nodes that make values of one name in both."""
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
    """What of it differs: `operator`, `attribute`, `constant`, `input`, `weight`, `layer`, `planted`, `overflow`."""
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
