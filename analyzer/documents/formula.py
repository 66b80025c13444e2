"""The document of `formula`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from analyzer.documents.base import Bytes, Elements, PrecisionName, Record, SignedElements, Stamped, Tokens
from analyzer.formulas.record import Certainty, FieldOrigin
from analyzer.formulas.record import Kind as FormulaKind
from analyzer.formulas.record import MatchedBy as PartMatchedBy


class FormulaDocument(Stamped, frozen=True, kw_only=True, rename={"class_": "class"}):
    """A report of `onnxledger formula --format json`."""

    command: Literal["formula"] = "formula"
    """The command that wrote the document."""
    source: str
    """SOURCE, as typed."""
    kind: FormulaKind
    """`closed-form`: written for the family from its publications; `derived`: found from the types and shapes of the
    modules."""
    family: str
    """Name of the family; for a derived formula, the `model_type`, or another name that is known."""
    class_: str
    """Class whose parameters are counted; empty if unknown."""
    total: Elements | None
    """Elements of all parameters, each counted once; null with `--symbolic`."""
    active: Elements | None
    """Elements of `total` that one token uses: those of the experts that it is sent to, and all others; null with
    `--symbolic`."""
    expression: str | None
    """`total` as a Python expression over the fields; null for a derived formula."""
    active_expression: str | None
    """`active` as a Python expression over the fields; null for a derived formula."""
    actual: SignedElements | None
    """Elements in the file, or else in PyTorch; null if nothing is compared."""
    difference: SignedElements | None
    """`actual` - `total`; null if nothing is compared."""
    census: Census | None
    """The PyTorch side; null if it is not compared."""
    model: FormulaModel | None
    """The ONNX file; null if none is compared."""
    terms: list[FormulaTerm]
    """Summands in the family's order; then those that only another side has."""
    fields: list[FormulaField]
    """Fields of the config that the formula reads, and numbers computed from them."""
    reasons: list[Reason]
    """Reasons why `actual` differs, part by part."""
    unmatched: list[Unmatched]
    """Parameters of either side that belong to no part."""
    memory: Memory | None
    """Bytes of the parameters in several precisions; null with `--symbolic`."""
    cache: Cache | None
    """Key-value cache of one sequence, at fp16; null if the model has none."""
    what_if: WhatIf | None
    """Effect of `--set`; null without it."""
    notes: list[str]
    """Remarks on the origin of the terms."""


class Census(Record, frozen=True, kw_only=True):
    """The PyTorch side."""

    name: str
    """Class, or file that names the parameters."""
    total: Elements
    """Elements of all its parameters."""
    matched_by: PartMatchedBy
    """Evidence that assigned each parameter to a part."""
    errors: list[str]
    """Defects of the file, because of which it does not hold the parameters that it counts."""


class FormulaModel(Record, frozen=True, kw_only=True):
    """The ONNX file."""

    name: str
    """Path of the model, as given."""
    total: Elements
    """Elements of all its parameters."""
    matched_by: PartMatchedBy
    """Evidence that assigned each parameter to a part."""
    errors: list[str]
    """Defects of the file, because of which it does not hold the parameters that it counts."""


class FormulaPart(Record, frozen=True, kw_only=True):
    """One part of a summand."""

    part: str
    """Name of the part; for a derived formula, the path of the modules, with a star for each number that varies."""
    expression: str
    """`value` as a Python expression over the fields; in numbers for a derived formula."""
    each: Elements | None
    """Elements of one instance; null with `--symbolic`."""
    times: Annotated[int, Meta(ge=0, extra={"unit": "times"})] | None
    """Number of instances; null with `--symbolic`."""
    value: Elements | None
    """`each` * `times`; 0 if only another side has the part; null with `--symbolic`."""
    vectors: Elements | None
    """Elements of `value` in parameters of one dimension: biases and norms; null with `--symbolic`."""
    active: Elements | None
    """Elements of `value` that one token uses; null with `--symbolic`."""
    scope: str | None
    """Names of its parameters: a regular expression over PyTorch's names; null if the formula lacks the part."""
    source: str | None
    """Source of the expression, or the modules that it was found in; null if the formula lacks the part."""
    census: SignedElements | None
    """Elements in PyTorch; null if it is not compared."""
    actual: SignedElements | None
    """Elements in the file, or else in PyTorch; null if nothing is compared."""
    difference: SignedElements | None
    """`actual` - `value`; null if nothing is compared."""


class FormulaTerm(Record, frozen=True, kw_only=True):
    """One summand of the total."""

    term: str
    """Name of the summand."""
    expression: str
    """`value` as a Python expression over the fields; in numbers for a derived formula."""
    value: Elements | None
    """Elements of its parts; 0 if only another side has the summand; null with `--symbolic`."""
    active: Elements | None
    """Elements of `value` that one token uses; null with `--symbolic`."""
    uses: Annotated[int, Meta(ge=0, extra={"unit": "times"})] | None
    """Number of times that each part is applied in one forward pass; null with `--symbolic`."""
    census: SignedElements | None
    """Elements in PyTorch; null if it is not compared."""
    actual: SignedElements | None
    """Elements in the file, or else in PyTorch; null if nothing is compared."""
    difference: SignedElements | None
    """`actual` - `value`; null if nothing is compared."""
    parts: list[FormulaPart]
    """Parts of the summand."""


class FormulaField(Record, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One field of the config that the formula reads, or a number computed from such fields."""

    field: str
    """Name of the field in the config, or of the computed number."""
    symbol: str | None
    """Letter of the field; null if the field only decides which parts exist."""
    value: int | bool | str | list[Any] | None
    """Value of the field; also null with `--symbolic`, unless the field only decides which parts exist."""
    from_: FieldOrigin
    """Source of the value: the config; the default of its class if the config lacks it; other fields; the model's
    class, which decides it; `--set`."""
    expression: str | None
    """Expression of a computed number, over the fields; null for others."""


class Reason(Record, frozen=True, kw_only=True):
    """Reason why one part of `actual` differs."""

    part: str
    """Part that differs, as `term/part`; or `[no term]`."""
    group: str
    """Modules of the part, by their scope; empty for `[no term]`."""
    elements: SignedElements
    """Elements of the difference that are in this part."""
    sentence: str
    """Sentence with the likely reason."""
    certainty: Certainty
    """`settled` if a reconciliation shows the fate of the elements, or the program does not read them; `undecided` if
    only names leave the assignment open, and the counts agree."""


class Unmatched(Record, frozen=True, kw_only=True):
    """Parameter of a side that belongs to no part."""

    side: Literal["census", "model"]
    """Side that has the parameter."""
    name: str
    """Name of the parameter; empty if it has none."""
    elements: Elements
    """Elements of the parameter."""


class TermValue(Record, frozen=True, kw_only=True):
    """Bytes of one term."""

    term: str
    """Name of the term."""
    bytes: Bytes
    """Bytes of the term's parameters."""


class Precision(Record, frozen=True, kw_only=True):
    """Bytes of the parameters in one precision."""

    precision: PrecisionName
    """Precision in which parameters are stored."""
    bytes: Bytes
    """Bytes of all parameters, including the scales of blocks."""
    terms: list[TermValue]
    """Bytes of each term."""


class Memory(Record, frozen=True, kw_only=True):
    """Bytes of the parameters in several precisions."""

    block: Annotated[int, Meta(ge=1, extra={"unit": "elements"})]
    """Number of elements of a matrix that share a scale in 8 and 4 bits."""
    precisions: list[Precision]
    """Bytes in each precision."""


class Cache(Record, frozen=True, kw_only=True):
    """Key-value cache of one sequence, at fp16."""

    expression: str
    """`token_elements` as a Python expression over the fields."""
    source_expression: str | None
    """`source_token_elements` as a Python expression over the fields; null if there are none."""
    token_elements: Elements | None
    """Elements for each token; null with `--symbolic`."""
    source_token_elements: Elements | None
    """Elements for each position of the encoder; null with `--symbolic`."""
    token_bytes: Bytes | None
    """Bytes for each token; null with `--symbolic`."""
    source_token_bytes: Bytes | None
    """Bytes for each position of the encoder; null with `--symbolic`."""
    window: Tokens | None
    """Largest number of tokens that are kept; null if all are, or with `--symbolic`."""
    context: Tokens | None
    """Number of tokens that the model is made for; null if it has no bound, or with `--symbolic`."""
    tokens: Tokens | None
    """Length of the sequence: `--tokens`, else `context`; null if neither is known, or with `--symbolic`."""
    kept: Tokens | None
    """Number of `tokens` that are kept; null if `tokens` is null."""
    source_tokens: Tokens | None
    """Number of positions of the encoder; null with `--symbolic`."""
    bytes: Bytes | None
    """Bytes of the cache for the whole sequence; null if `tokens` is null."""


class FieldChange(Record, frozen=True, kw_only=True):
    """Field whose value differs from the config."""

    field: str
    """Name of the field, or of a number computed from fields."""
    before: int | bool | str | list[Any] | None
    """Value in the config."""
    after: int | bool | str | list[Any] | None
    """Value that is counted with here."""


class PartChange(Record, frozen=True, kw_only=True):
    """Change of one part."""

    part: str
    """Name of the part."""
    before: Elements
    """Elements with the config as it is."""
    after: Elements
    """Elements with the changes."""
    difference: SignedElements
    """after - before."""


class TermChange(Record, frozen=True, kw_only=True):
    """Change of one term."""

    term: str
    """Name of the term."""
    before: Elements
    """Elements with the config as it is."""
    after: Elements
    """Elements with the changes."""
    difference: SignedElements
    """after - before."""
    parts: list[PartChange]
    """Changes of the term's parts."""


class WhatIf(Record, frozen=True, kw_only=True):
    """Effect of `--set`."""

    set: list[FieldChange]
    """Fields whose values differ from the config."""
    total: Elements
    """Elements of all parameters with the config as it is."""
    difference: SignedElements
    """The document's `total` minus this `total`."""
    terms: list[TermChange]
    """Changes of every term that either of the two has."""
