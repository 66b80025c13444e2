"""The records of a formula: what each part of a model counts, by which expression, and what an artifact has instead.

All counts are elements of unique parameters, as `named_parameters()` has them: what is tied counts once.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from analyzer.formulas.language import Expression, Value
from analyzer.records import Frozen, field

BLOCK = 32
"""Elements of a matrix that share a scale, where nothing else is said: as MatMulNBits' usual block_size, and GGUF's."""


class Kind(enum.StrEnum):
    """Where the terms come from."""

    CLOSED_FORM = "closed-form"
    """Written down for the family, from its publication."""
    DERIVED = "derived"
    """Found: the parameters of the class, by the type and shape of their modules."""


class FieldOrigin(enum.StrEnum):
    """Where the value of a field comes from."""

    CONFIG = "config"
    DEFAULT = "default"
    """The config lacks it, and its class takes this."""
    COMPUTED = "computed"
    """From other fields."""
    CLASS = "class"
    """The model's class decides it."""
    SET = "set"
    """`--set`."""


class FieldValue(Frozen):
    """What the formula takes a field to be."""

    name: str
    symbol: str | None
    value: Value
    origin: FieldOrigin
    expression: str | None = None
    """Of a computed one."""
    usual: Expression | None = None
    """What nearly all published models have, where this one has it too."""
    meaning: str = ""
    """What a computed one is, in words."""


class PartCount(Frozen):
    """What one kind of module counts: `times` of `each`."""

    name: str
    term: str
    times: int
    each: int
    vectors: int
    """Of `each`, elements in parameters of one dimension."""
    active: int
    """Of `value`, elements that one token uses."""
    source: str
    """Where the expression is from, or what it was found in."""
    scope: str
    """What its parameters are called: a regex over PyTorch's names."""
    expression: Expression | None = None
    """Of `each`, over the config's fields; None of a derived one, which has numbers only."""
    times_expression: Expression | None = None
    active_expression: Expression | None = None
    """Of what one token uses of `each`; None where that is all of it."""
    shown: str | None = None
    """The expression of a derived part, in numbers."""
    names: tuple[tuple[str, ...], ...] = ()
    """The parameters that a derived part was found in, each under its own name and those that it is tied to."""

    @property
    def key(self) -> str:
        return f"{self.term}/{self.name}"

    @property
    def value(self) -> int:
        """Elements."""
        return self.times * self.each

    @property
    def vector_elements(self) -> int:
        """Elements in parameters of one dimension."""
        return self.times * self.vectors

    @property
    def matrix_elements(self) -> int:
        """Elements in parameters of two dimensions or more."""
        return self.value - self.vector_elements


class TermCount(Frozen):
    """One summand."""

    name: str
    parts: tuple[PartCount, ...]
    uses: int = 1
    """How often each of it is applied in one forward pass."""

    @property
    def value(self) -> int:
        """Elements of its parts."""
        return sum(part.value for part in self.parts)

    @property
    def active(self) -> int:
        """Elements of them that one token uses."""
        return sum(part.active for part in self.parts)


class CacheSize(Frozen):
    """The key-value cache of a decoder, in elements for one sequence."""

    token: int
    """For each token that it has seen."""
    token_expression: Expression
    source_token: int
    """For each position of the encoder; 0 where there is none."""
    source_token_expression: Expression | None
    window: int | None
    """Tokens that are kept at most; None where all are."""
    context: int | None
    """Tokens that the model is made for; None where it has no bound."""
    source_context: int | None
    """Positions of the encoder that it is made for; None where there is none."""


class Formula(Frozen):
    """The count of a model's parameters, term by term."""

    source: str
    """SOURCE, as typed."""
    kind: Kind
    family: str
    """Its name; of a derived one the `model_type`, or the class."""
    class_name: str
    fields: tuple[FieldValue, ...]
    """In the order of the family: those that expressions or conditions read."""
    terms: tuple[TermCount, ...]
    cache: CacheSize | None = None
    notes: tuple[str, ...] = ()
    key: str | None = None
    """The family's file; None of a derived one."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """What it was counted from."""
    changes: Mapping[str, Value] = field(default_factory=dict)
    """Fields that were set to something else than the config says."""

    @property
    def parts(self) -> tuple[PartCount, ...]:
        return tuple(part for term in self.terms for part in term.parts)

    @property
    def total(self) -> int:
        """Elements of all parameters."""
        return sum(term.value for term in self.terms)

    @property
    def active(self) -> int:
        """Elements that one token uses: of the experts those that it is sent to, of all else everything."""
        return sum(term.active for term in self.terms)

    @property
    def values(self) -> dict[str, Value]:
        """Fields by name."""
        return {field.name: field.value for field in self.fields}

    @property
    def symbols(self) -> dict[str, str]:
        """Letters by the names of fields."""
        return {field.name: field.symbol for field in self.fields if field.symbol is not None}


Counts: TypeAlias = Mapping[str, int]
"""Elements by the keys of parts."""


class MatchedBy(enum.StrEnum):
    """What told which part a parameter belongs to."""

    NAMES = "names"
    """Its own names."""
    CONTENTS = "contents"
    """A reconciliation with PyTorch's tensors, whose values were compared."""
    UNBALANCED = "unbalanced"
    """One that does not balance: counts are told by names, and contents differ or are missing."""
    SHAPES = "shapes"
    """One with a census that has no values: names where there are some, then shapes."""


class Side(Frozen):
    """What something else counts, by the same parts."""

    name: str
    """The file, or what was built."""
    kind: Literal["census", "model"]
    """PyTorch's side, or an ONNX file."""
    counts: Counts
    """Of every part that it has, also of those that the class lacks."""
    vectors: Counts
    """Of them, elements in parameters of one dimension."""
    unmatched: Counts
    """Elements that belong to no part of the family, by name."""
    absent: Mapping[str, Counts] = field(default_factory=dict)
    """Of a reconciled file: elements of PyTorch's that have no tensor of their own, by line of the bridge and part."""
    matched_by: MatchedBy = MatchedBy.NAMES
    errors: tuple[str, ...] = ()
    """What is wrong with the file, so that it does not hold what it counts."""

    @property
    def total(self) -> int:
        """Elements of all its parameters, also of those that belong to no part."""
        return sum(self.counts.values()) + sum(self.unmatched.values())


class Certainty(enum.StrEnum):
    """How much is known of a difference."""

    SETTLED = "settled"
    """No disagreement: a reconciliation shows what became of it, or the program reads none of it."""
    EXPLAINED = "explained"
    """Another class, or another config, has just that."""
    UNDECIDED = "undecided"
    """The count agrees; some tensors bear no name that tells their term, and are just what these terms lack."""
    UNEXPLAINED = "unexplained"


class Reason(Frozen):
    """Why a side differs from the formula."""

    part: str
    """Key of the part that differs, or `[no term]`."""
    elements: int
    """How many elements of its difference this is: side - formula."""
    sentence: str
    certainty: Certainty = Certainty.EXPLAINED
    group: str = ""
    """The modules that it counts, by their scope in PyTorch, a star for the number of a layer."""


class Checked(Frozen):
    """A formula beside what PyTorch and a file have."""

    formula: Formula
    census: Side | None = None
    model: Side | None = None
    reasons: tuple[Reason, ...] = ()
    """Of the model where there is one, else of the census."""

    @property
    def side(self) -> Side | None:
        """What is judged: the model, else the census."""
        return self.model or self.census

    @property
    def agrees(self) -> bool:
        """Whether the side has what the formula says: in each term, as far as names tell, but for what is settled."""
        settled = (Certainty.SETTLED, Certainty.UNDECIDED)
        is_whole = self.model is None or not self.model.errors
        return is_whole and all(reason.certainty in settled for reason in self.reasons)

    @property
    def difference(self) -> int | None:
        """What the side has more than the formula."""
        return None if self.side is None else self.side.total - self.formula.total


class FormulaReport(Frozen):
    """What `formula` answers."""

    checked: Checked
    """With the changes of `--set`, where there are some."""
    before: Formula | None = None
    """The formula as the config has it, where fields were changed."""
    is_symbolic: bool = False
    """No numbers: the expressions alone."""
    block: int = BLOCK
    """Elements that share a scale where parameters are quantized."""
    tokens: int | None = None
    """Length of the sequence whose cache is told; None for what the model is made for."""
    stamp: str | None = None

    @property
    def formula(self) -> Formula:
        return self.checked.formula
