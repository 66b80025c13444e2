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
    """`closed-form`: written for the family from its publications; `derived`: found in the types and shapes of the
    modules."""
    family: str
    """The family's name; of a derived formula the `model_type`, or what is known instead."""
    class_: str
    """The class that is counted; empty where it is not known."""
    total: Elements | None
    """Elements of all parameters, each once; null with `--symbolic`."""
    active: Elements | None
    """Of them, those that one token uses: of experts those that it is sent to, of all else everything; null with
    `--symbolic`."""
    expression: str | None
    """`total` as Python, over the fields; null of a derived formula."""
    active_expression: str | None
    """`active` as Python, over the fields; null of a derived formula."""
    actual: SignedElements | None
    """What the file has, else PyTorch; null where nothing is compared."""
    difference: SignedElements | None
    """`actual` - `total`; null where nothing is compared."""
    census: Census | None
    """PyTorch's side; null where it is not compared."""
    model: FormulaModel | None
    """The file; null where none is compared."""
    terms: list[FormulaTerm]
    """The summands, in the family's order; then what another side has besides."""
    fields: list[FormulaField]
    """The fields of the config that the formula reads, and what is computed from them."""
    reasons: list[Reason]
    """Why `actual` differs, part by part."""
    unmatched: list[Unmatched]
    """Parameters of a side that belong to no part."""
    memory: Memory | None
    """Bytes of the parameters; null with `--symbolic`."""
    cache: Cache | None
    """The key-value cache of one sequence, at fp16; null where the model has none."""
    what_if: WhatIf | None
    """What `--set` changes; null without it."""
    notes: list[str]
    """What the reader should know of where the terms come from."""


class Census(Record, frozen=True, kw_only=True):
    """PyTorch's side; null where it is not compared."""

    name: str
    """The class, or the file that names its parameters."""
    total: Elements
    """Its parameters."""
    matched_by: PartMatchedBy
    """What told which part a parameter belongs to."""
    errors: list[str]
    """What is wrong with the file, so that it does not hold what it counts."""


class FormulaModel(Record, frozen=True, kw_only=True):
    """The file; null where none is compared."""

    name: str
    """The model as it was named."""
    total: Elements
    """Its parameters."""
    matched_by: PartMatchedBy
    """What told which part a parameter belongs to."""
    errors: list[str]
    """What is wrong with the file, so that it does not hold what it counts."""


class FormulaPart(Record, frozen=True, kw_only=True):
    """What it is made of."""

    part: str
    """Its name; of a derived formula the modules' path, with a star for each number that varies."""
    expression: str
    """`value` as Python, over the fields; of a derived formula in numbers."""
    each: Elements | None
    """Elements of one; null with `--symbolic`."""
    times: Annotated[int, Meta(ge=0, extra={"unit": "times"})] | None
    """How many there are; null with `--symbolic`."""
    value: Elements | None
    """`each` * `times`; 0 of what only another side has; null with `--symbolic`."""
    vectors: Elements | None
    """Of `value`, elements in parameters of one dimension: biases and norms; null with `--symbolic`."""
    active: Elements | None
    """Of `value`, elements that one token uses; null with `--symbolic`."""
    scope: str | None
    """What its parameters are called: a regular expression over PyTorch's names; null of what the formula lacks."""
    source: str | None
    """Where the expression is from, or what it was found in; null of what the formula lacks."""
    census: SignedElements | None
    """What PyTorch has; null where it is not compared."""
    actual: SignedElements | None
    """What the file has, else PyTorch; null where nothing is compared."""
    difference: SignedElements | None
    """`actual` - `value`; null where nothing is compared."""


class FormulaTerm(Record, frozen=True, kw_only=True):
    """The summands, in the family's order; then what another side has besides."""

    term: str
    """Its name."""
    expression: str
    """`value` as Python, over the fields; of a derived formula in numbers."""
    value: Elements | None
    """Elements of its parts; 0 of what only another side has; null with `--symbolic`."""
    active: Elements | None
    """Of them, those that one token uses; null with `--symbolic`."""
    uses: Annotated[int, Meta(ge=0, extra={"unit": "times"})] | None
    """How often each of it is applied in one forward pass; null with `--symbolic`."""
    census: SignedElements | None
    """What PyTorch has; null where it is not compared."""
    actual: SignedElements | None
    """What the file has, else PyTorch; null where nothing is compared."""
    difference: SignedElements | None
    """`actual` - `value`; null where nothing is compared."""
    parts: list[FormulaPart]
    """What it is made of."""


class FormulaField(Record, frozen=True, kw_only=True, rename={"from_": "from"}):
    """The fields of the config that the formula reads, and what is computed from them."""

    field: str
    """Its name in the config, or that of a computed number."""
    symbol: str | None
    """Its letter; null where it only decides what there is."""
    value: int | bool | str | list[Any] | None
    """What it is; null also with `--symbolic`, unless it only decides what there is."""
    from_: FieldOrigin
    """Where the value is from: the config; the default of its class where the config lacks it; other fields; the
    model's class, which decides it; `--set`."""
    expression: str | None
    """Of a computed one: how, over the fields; null of others."""


class Reason(Record, frozen=True, kw_only=True):
    """Why `actual` differs, part by part."""

    part: str
    """The part that differs, as `term/part`; or `[no term]`."""
    group: str
    """The modules that it counts, by their scope; empty for `[no term]`."""
    elements: SignedElements
    """How much of the difference this is."""
    sentence: str
    """What is the likely reason."""
    certainty: Certainty
    """`settled` where a reconciliation shows what became of it, or the program does not read it; `undecided` where only
    names leave open what belongs where, and the counts agree."""


class Unmatched(Record, frozen=True, kw_only=True):
    """Parameters of a side that belong to no part."""

    side: Literal["census", "model"]
    """Whose it is."""
    name: str
    """Its name; empty where it has none."""
    elements: Elements
    """What it counts."""


class TermValue(Record, frozen=True, kw_only=True):
    """The same term by term."""

    term: str
    """The term."""
    bytes: Bytes
    """Its parameters."""


class Precision(Record, frozen=True, kw_only=True):
    """Each precision."""

    precision: PrecisionName
    """How parameters are stored."""
    bytes: Bytes
    """All parameters, with the scales of blocks."""
    terms: list[TermValue]
    """The same term by term."""


class Memory(Record, frozen=True, kw_only=True):
    """Bytes of the parameters; null with `--symbolic`."""

    block: Annotated[int, Meta(ge=1, extra={"unit": "elements"})]
    """How many elements of a matrix share a scale in 8 and 4 bits."""
    precisions: list[Precision]
    """Each precision."""


class Cache(Record, frozen=True, kw_only=True):
    """The key-value cache of one sequence, at fp16; null where the model has none."""

    expression: str
    """`token_elements` as Python, over the fields."""
    source_expression: str | None
    """`source_token_elements` as Python, over the fields; null where there are none."""
    token_elements: Elements | None
    """Elements for each token; null with `--symbolic`."""
    source_token_elements: Elements | None
    """Elements for each position of the encoder; null with `--symbolic`."""
    token_bytes: Bytes | None
    """Bytes for each token; null with `--symbolic`."""
    source_token_bytes: Bytes | None
    """Bytes for each position of the encoder; null with `--symbolic`."""
    window: Tokens | None
    """Tokens that are kept at most; null where all are, or with `--symbolic`."""
    context: Tokens | None
    """Tokens that the model is made for; null where it has no bound, or with `--symbolic`."""
    tokens: Tokens | None
    """How long the sequence is: `--tokens`, else `context`; null where neither is known, and with `--symbolic`."""
    kept: Tokens | None
    """Of them, those that are kept; null as `tokens`."""
    source_tokens: Tokens | None
    """Positions of the encoder; null with `--symbolic`."""
    bytes: Bytes | None
    """What the whole sequence takes; null as `tokens`."""


class FieldChange(Record, frozen=True, kw_only=True):
    """The fields that are not as the config has them."""

    field: str
    """A field, or what is computed from it."""
    before: int | bool | str | list[Any] | None
    """As the config has it."""
    after: int | bool | str | list[Any] | None
    """As it is counted here."""


class PartChange(Record, frozen=True, kw_only=True):
    """Its parts."""

    part: str
    """The part."""
    before: Elements
    """What the config gives."""
    after: Elements
    """What it gives with the changes."""
    difference: SignedElements
    """after - before."""


class TermChange(Record, frozen=True, kw_only=True):
    """Every term that one of the two has."""

    term: str
    """The term."""
    before: Elements
    """What the config gives."""
    after: Elements
    """What it gives with the changes."""
    difference: SignedElements
    """after - before."""
    parts: list[PartChange]
    """Its parts."""


class WhatIf(Record, frozen=True, kw_only=True):
    """What `--set` changes; null without it."""

    set: list[FieldChange]
    """The fields that are not as the config has them."""
    total: Elements
    """Elements of all parameters as the config has them."""
    difference: SignedElements
    """The document's `total` minus this one."""
    terms: list[TermChange]
    """Every term that one of the two has."""
