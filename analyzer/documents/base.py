"""Base of all documents: records whose fields are JSON keys, each with a docstring, and numbers with a unit.

`Meta(extra={"unit": ...})` gives the unit on the reference page; for `FindingId` and its kin, the schemas list the
allowed names.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType


def _listed(name: str) -> Meta:
    return Meta(extra_json_schema={"$values": name})


def one_of(*records: str) -> Meta:
    """Return schema metadata for an object that may be one of several records of the same module."""
    return Meta(extra_json_schema={"$oneOf": records})


Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(ge=0)]
Elements = Annotated[int, Meta(ge=0, extra={"unit": "elements"})]
SignedElements = Annotated[int, Meta(extra={"unit": "elements"})]
Bytes = Annotated[int, Meta(ge=0, extra={"unit": "bytes"})]
Tensors = Annotated[int, Meta(ge=0, extra={"unit": "tensors"})]
Nodes = Annotated[int, Meta(ge=0, extra={"unit": "nodes"})]
Runs = Annotated[int, Meta(ge=0, extra={"unit": "runs"})]
Tokens = Annotated[int, Meta(ge=0, extra={"unit": "tokens"})]
Parts = Annotated[int, Meta(ge=1, extra={"unit": "parts"})]
Milliseconds = Annotated[float, Meta(ge=0, extra={"unit": "ms"})]
SignedMilliseconds = Annotated[float, Meta(extra={"unit": "ms"})]
Share = Annotated[float, Meta(ge=0, extra={"unit": "fraction of 1"})]
Yes = Annotated[bool, Meta(extra_json_schema={"const": True})]
No = Annotated[bool, Meta(extra_json_schema={"const": False})]
VertexId = Annotated[str, Meta(pattern="^n[0-9]+$")]

Shape = list[Annotated[int, Meta(extra={"unit": "elements"})]]
"""Dimensions; empty for a scalar."""

TiedNames = Annotated[list[Text], Meta(min_length=2, extra_json_schema={"uniqueItems": True})]
"""Names of one tensor, first name first."""

Keys = Annotated[
    str,
    Meta(pattern="^((scope|block|stage|op|dtype|role)(,(scope|block|stage|op|dtype|role))*|bytes|group)$"),
]
"""Keys by which groups are formed."""

NodeKeys = Annotated[str, Meta(pattern="^((scope|block|stage|op)(,(scope|block|stage|op))*|group)$")]
"""Keys by which groups of nodes are formed."""

DtypeName = Annotated[str, _listed("dtype")]
"""Element type, by its name in the ONNX specification."""

FindingId = Annotated[str, _listed("finding_id")]
"""Id of a finding, as `explain` lists it."""

LimitKind = Literal["most", "least", "among"]
"""Allowed side of a limit: at most, at least, or only the given names."""

PrecisionName = Annotated[str, _listed("precision")]
"""Precision, by its name in formulas."""


class Record(Struct, frozen=True, kw_only=True):
    """An object of a document."""


class Tool(Record, frozen=True, kw_only=True):
    """The program that wrote the document."""

    name: Literal["onnxledger"] = "onnxledger"
    """Name of the program."""
    version: Annotated[str, Meta(min_length=1)]
    """Version of the program; `unknown` if it is not installed."""


class Head(Record, frozen=True, kw_only=True):
    """The keys that every document begins with."""

    schema_version: Literal[1] = 1
    """Version of this format."""
    tool: Tool
    """The program that wrote the document."""


class Stamped(Head, frozen=True, kw_only=True):
    """The keys that a document begins with if `--stamp` can date it."""

    generated_at: (
        Annotated[
            str,
            Meta(
                pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$",
                extra={"unit": "ISO 8601"},
                extra_json_schema={"format": "date-time"},
            ),
        ]
        | UnsetType
    ) = UNSET
    """Time when the report was made, in UTC; only with `--stamp`."""
