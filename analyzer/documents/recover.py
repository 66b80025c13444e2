"""The document of `recover`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from analyzer.documents.base import (
    Bytes,
    Count,
    DtypeName,
    Elements,
    Head,
    Record,
    Shape,
    Tensors,
    Text,
    TiedNames,
)
from analyzer.documents.reconcile import ReconcileModel
from analyzer.model.content import ContentMode
from analyzer.reconciliation.lines import Line


class RecoverDocument(Head, frozen=True, kw_only=True):
    """A report of `onnxledger recover --format json`."""

    command: Literal["recover"] = "recover"
    """The command that wrote the document."""
    model: ReconcileModel
    """The file's side."""
    against: dict[str, str]
    """Where the names come from: what PyTorch's side says of its origin, for people to read."""
    content: ContentMode
    """How far values were compared: not at all, at some positions, whole."""
    output: Text | None
    """The state dict, as it was named on the command line; null where none was written."""
    lossless: bool
    """Whether `--lossless` was asked for."""
    recovered: Recovered
    """What can be given back, also where `--lossless` refused to write it."""
    lossy: list[Lossy]
    """Recovered tensors of which the file has not every bit."""
    lost: list[Lost]
    """Tensors of the state dict that are not written."""
    unnamed: list[Unnamed]
    """Stored tensors that are learned and no tensor of the state dict, as far as anything tells; sorted."""
    guessed: list[Text]
    """Recovered square matrices that nothing compared tells from their transpose: they stand as names and notes say."""
    tied: list[TiedNames]
    """The names of each recovered tensor that has several; it is written once, under the first."""
    parameters: list[StateTensor]
    """Recovered parameters, in `named_parameters()` order."""
    buffers: list[StateTensor]
    """Recovered persistent buffers, in `named_buffers()` order."""


class Recovered(Record, frozen=True, kw_only=True):
    """What can be given back, also where `--lossless` refused to write it."""

    tensors: Tensors
    """Tensors of the state dict that the file gives back, a tied one once."""
    elements: Elements
    """Their elements."""
    bytes: Bytes
    """Bytes of these elements in PyTorch's types."""


class Lossy(Record, frozen=True, kw_only=True):
    """Recovered tensors of which the file has not every bit."""

    name: Text
    """Its first name in PyTorch, under which it is saved."""
    shape: list[Count]
    """Dimensions in PyTorch; empty for a scalar."""
    line: Line
    """What became of it on the way into the file."""
    reason: Text
    """What the file lacks, in words."""


class Lost(Record, frozen=True, kw_only=True):
    """Tensors of the state dict that are not written."""

    name: Text
    """Its first name in PyTorch."""
    shape: list[Count]
    """Dimensions in PyTorch; empty for a scalar."""
    buffer: bool
    """Whether it is a persistent buffer, and no parameter."""
    line: Line
    """What became of it."""
    reason: Text
    """Why the file does not give it back, in words."""


class Unnamed(Record, frozen=True, kw_only=True):
    """Stored tensors that are learned and no tensor of the state dict, as far as anything tells; sorted."""

    name: str
    """The name in the file."""
    graph_path: str
    """Where its graph is; empty for the main graph."""
    shape: Shape
    """Dimensions as stored; a file may claim one below 0, which is told."""
    dtype: DtypeName
    """ONNX element type as stored."""
    line: Literal["unexpected", "unexplained"]
    """`unexpected` or `unexplained`."""
    reason: Text
    """What is known of it, in words."""


class StateTensor(Record, frozen=True, kw_only=True):
    """One tensor of the state dict."""

    name: Text
    """Its first name in PyTorch, under which it is saved."""
    shape: list[Count]
    """Dimensions in PyTorch; empty for a scalar."""
    dtype: DtypeName
    """ONNX element type of PyTorch's tensor, in which it is saved."""
    line: Line
    """What became of it on the way into the file."""
    chain: Annotated[list[Line], Meta(min_length=1)]
    """All lines that apply, in order."""
    entries: list[str]
    """The stored tensors that hold it; empty for zeros that the exporter removed."""
    decided_by: Annotated[str, Meta(pattern="^(content|sampled|provenance|name|structure|none)([:+].+)?$")]
    """The evidence and the rule by which it was found."""
    max_abs_error: Annotated[float, Meta(ge=0, extra={"unit": "the weights' own"})] | None
    """Largest difference among the values compared; null where none were."""
    lossy: bool
    """Whether the file has not every bit that PyTorch had."""
