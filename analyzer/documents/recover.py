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
    """The model file."""
    against: dict[str, str]
    """Source of the names: the origin of the PyTorch side as it states it, for people to read."""
    content: ContentMode
    """Extent of the comparison of values: none, at some positions (`sampled`), or whole (`full`)."""
    output: Text | None
    """State dict file as given on the command line; null if none was written."""
    lossless: bool
    """Whether `--lossless` was asked for."""
    recovered: Recovered
    """Tensors that can be recovered, even if `--lossless` refused to write them."""
    lossy: list[Lossy]
    """Recovered tensors for which the file lacks some bits."""
    lost: list[Lost]
    """Tensors of the state dict that are not written."""
    unnamed: list[Unnamed]
    """Learned stored tensors that are no tensor of the state dict, as far as anything tells; sorted."""
    guessed: list[Text]
    """Recovered square matrices that no comparison tells from their transposes; names and metadata decide their
    orientation."""
    tied: list[TiedNames]
    """Names of each recovered tensor that has several; it is written once, under the first."""
    parameters: list[StateTensor]
    """Recovered parameters, in `named_parameters()` order."""
    buffers: list[StateTensor]
    """Recovered persistent buffers, in `named_buffers()` order."""


class Recovered(Record, frozen=True, kw_only=True):
    """Tensors that can be recovered, even if `--lossless` refused to write them."""

    tensors: Tensors
    """Number of state dict tensors that the file gives back, a tied one counted once."""
    elements: Elements
    """Elements of the recovered tensors."""
    bytes: Bytes
    """Bytes of the recovered tensors in PyTorch's types."""


class Lossy(Record, frozen=True, kw_only=True):
    """A recovered tensor for which the file lacks some bits."""

    name: Text
    """First name of the tensor in PyTorch, under which it is saved."""
    shape: list[Count]
    """Dimensions in PyTorch; empty for a scalar."""
    line: Line
    """Line of the bridge that describes the tensor's way into the file."""
    reason: Text
    """Information that the file lacks, in words."""


class Lost(Record, frozen=True, kw_only=True):
    """A tensor of the state dict that is not written."""

    name: Text
    """First name of the tensor in PyTorch."""
    shape: list[Count]
    """Dimensions in PyTorch; empty for a scalar."""
    buffer: bool
    """Whether the tensor is a persistent buffer rather than a parameter."""
    line: Line
    """Line of the bridge for the tensor."""
    reason: Text
    """Reason why the file does not give the tensor back, in words."""


class Unnamed(Record, frozen=True, kw_only=True):
    """A learned stored tensor that is no tensor of the state dict, as far as anything tells."""

    name: str
    """Name of the tensor in the file."""
    graph_path: str
    """Path of the tensor's graph; empty for the main graph."""
    shape: Shape
    """Dimensions as stored; an invalid file may have a negative one, which is reported."""
    dtype: DtypeName
    """ONNX element type as stored."""
    line: Literal["unexpected", "unexplained"]
    """Line of the bridge: `unexpected` or `unexplained`."""
    reason: Text
    """Known facts about the tensor, in words."""


class StateTensor(Record, frozen=True, kw_only=True):
    """One tensor of the state dict."""

    name: Text
    """First name of the tensor in PyTorch, under which it is saved."""
    shape: list[Count]
    """Dimensions in PyTorch; empty for a scalar."""
    dtype: DtypeName
    """ONNX element type of PyTorch's tensor, in which it is saved."""
    line: Line
    """Line of the bridge that describes the tensor's way into the file."""
    chain: Annotated[list[Line], Meta(min_length=1)]
    """All lines of the bridge that apply, in order."""
    entries: list[str]
    """Stored tensors that hold the tensor; empty for zeros that the exporter removed."""
    decided_by: Annotated[str, Meta(pattern="^(content|sampled|provenance|name|structure|none)([:+].+)?$")]
    """Evidence and rule by which the tensor was found."""
    max_abs_error: Annotated[float, Meta(ge=0, extra={"unit": "the weights' own"})] | None
    """Largest difference among the compared values; null if none were compared."""
    lossy: bool
    """Whether the file lacks some bits that PyTorch had."""
