"""Records of a formula: the count of each part of a model, its expression, and the corresponding count in an artifact.

All counts are elements of unique parameters, as `named_parameters()` has them: a tied parameter counts once.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from analyzer.formulas.language import Expression, Value
from analyzer.records import Frozen, field

BLOCK = 32
"""Default number of matrix elements that share a scale: MatMulNBits' usual block_size, and GGUF's."""


class Kind(enum.StrEnum):
    """Origin of the terms."""

    CLOSED_FORM = "closed-form"
    """Written for the family, from its publication."""
    DERIVED = "derived"
    """Derived from the parameters of the class, by the type and shape of their modules."""


class FieldOrigin(enum.StrEnum):
    """Origin of a field's value."""

    CONFIG = "config"
    DEFAULT = "default"
    """The config lacks the field, and its class has this default."""
    COMPUTED = "computed"
    """It is computed from other fields."""
    CLASS = "class"
    """The model's class decides it."""
    SET = "set"
    """The option `--set` gives it."""


class FieldValue(Frozen):
    """Value of a field in the formula."""

    name: str
    symbol: str | None
    value: Value
    origin: FieldOrigin
    expression: str | None = None
    """Expression of a computed value."""
    usual: Expression | None = None
    """Expression for the value of nearly all published models, if this one has it too."""
    meaning: str = ""
    """Meaning of a computed value, in words."""


class PartCount(Frozen):
    """Count of one kind of module: `times` of `each`."""

    name: str
    term: str
    times: int
    each: int
    vectors: int
    """Elements of `each` in parameters of one dimension."""
    active: int
    """Elements of `value` that one token uses."""
    source: str
    """Source of the expression, or of a derived part."""
    scope: str
    """Regex over PyTorch's names of its parameters."""
    expression: Expression | None = None
    """Expression of `each`, over the config's fields; None for a derived part, which has only numbers."""
    times_expression: Expression | None = None
    active_expression: Expression | None = None
    """Expression for the elements of `each` that one token uses; None for all of them."""
    shown: str | None = None
    """Expression of a derived part, in numbers."""
    names: tuple[tuple[str, ...], ...] = ()
    """Parameters of a derived part, each with its own name and the names that it is tied to."""

    @property
    def key(self) -> str:
        return f"{self.term}/{self.name}"

    @property
    def value(self) -> int:
        """Elements in total."""
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
    """Summand of a formula."""

    name: str
    parts: tuple[PartCount, ...]
    uses: int = 1
    """Number of times that each of it is applied in one forward pass."""

    @property
    def value(self) -> int:
        """Elements of all its parts."""
        return sum(part.value for part in self.parts)

    @property
    def active(self) -> int:
        """Elements of all its parts that one token uses."""
        return sum(part.active for part in self.parts)


class CacheSize(Frozen):
    """The key-value cache of a decoder, in elements for one sequence."""

    token: int
    """Elements for each token processed."""
    token_expression: Expression
    source_token: int
    """Elements for each position of the encoder; 0 where there is none."""
    source_token_expression: Expression | None
    window: int | None
    """Maximum number of tokens kept; None where all are."""
    context: int | None
    """Number of tokens that the model is made for; None where it has no bound."""
    source_context: int | None
    """Number of encoder positions that it is made for; None where there is none."""


class Formula(Frozen):
    """Count of a model's parameters, term by term."""

    source: str
    """SOURCE, as typed."""
    kind: Kind
    family: str
    """Name of the family; for a derived formula, the `model_type` or the class."""
    class_name: str
    fields: tuple[FieldValue, ...]
    """Fields that expressions or conditions read, in the order of the family."""
    terms: tuple[TermCount, ...]
    cache: CacheSize | None = None
    notes: tuple[str, ...] = ()
    key: str | None = None
    """Name of the family's file; None for a derived formula."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Config that was counted."""
    changes: Mapping[str, Value] = field(default_factory=dict)
    """Fields set to another value than in the config."""

    @property
    def parts(self) -> tuple[PartCount, ...]:
        return tuple(part for term in self.terms for part in term.parts)

    @property
    def total(self) -> int:
        """Elements of all parameters."""
        return sum(term.value for term in self.terms)

    @property
    def active(self) -> int:
        """Elements that one token uses: those of its selected experts, and all others."""
        return sum(term.active for term in self.terms)

    @property
    def values(self) -> dict[str, Value]:
        """Values of fields by name."""
        return {field.name: field.value for field in self.fields}

    @property
    def symbols(self) -> dict[str, str]:
        """Letters by the names of fields."""
        return {field.name: field.symbol for field in self.fields if field.symbol is not None}


Counts: TypeAlias = Mapping[str, int]
"""Elements by the keys of parts."""


class MatchedBy(enum.StrEnum):
    """Evidence for the part that a parameter belongs to."""

    NAMES = "names"
    """The parameter's own names."""
    CONTENTS = "contents"
    """A reconciliation with PyTorch's tensors, whose values were compared."""
    UNBALANCED = "unbalanced"
    """A reconciliation that does not balance: counts follow names, and contents differ or are missing."""
    SHAPES = "shapes"
    """A reconciliation with a census without values: names if there are some, then shapes."""


class Side(Frozen):
    """Count of an artifact, by the formula's parts."""

    name: str
    """The file, or the class that was built."""
    kind: Literal["census", "model"]
    """PyTorch's side, or an ONNX file."""
    counts: Counts
    """Elements of every part that it has, including parts that the class lacks."""
    vectors: Counts
    """Elements of `counts` in parameters of one dimension."""
    unmatched: Counts
    """Elements that belong to no part of the family, by the parameter's name."""
    absent: Mapping[str, Counts] = field(default_factory=dict)
    """Elements of PyTorch's side without a tensor of their own in a reconciled file, by line of the bridge and part."""
    matched_by: MatchedBy = MatchedBy.NAMES
    errors: tuple[str, ...] = ()
    """Errors of the file, which then lacks some of what it counts."""

    @property
    def total(self) -> int:
        """Elements of all its parameters, including those that belong to no part."""
        return sum(self.counts.values()) + sum(self.unmatched.values())


class Certainty(enum.StrEnum):
    """Certainty of a reason."""

    SETTLED = "settled"
    """No disagreement: a reconciliation accounts for the elements, or the program does not read them."""
    EXPLAINED = "explained"
    """Another class, or another config, has exactly this count."""
    UNDECIDED = "undecided"
    """The total agrees: tensors without a recognized name have exactly the elements that these terms lack."""
    UNEXPLAINED = "unexplained"


class Reason(Frozen):
    """Reason for a difference between a side and the formula."""

    part: str
    """Key of the part that differs, or `[no term]`."""
    elements: int
    """Elements of the part's difference, side - formula, that the reason accounts for."""
    sentence: str
    certainty: Certainty = Certainty.EXPLAINED
    group: str = ""
    """Modules of the part, by their scope in PyTorch, with a star for the number of a layer."""


class Checked(Frozen):
    """Formula with the counts of PyTorch and of a file."""

    formula: Formula
    census: Side | None = None
    model: Side | None = None
    reasons: tuple[Reason, ...] = ()
    """Reasons for the model's differences if there is a model, else for the census's."""

    @property
    def side(self) -> Side | None:
        """Judged side: the model, else the census."""
        return self.model or self.census

    @property
    def agrees(self) -> bool:
        """Whether the side agrees with each term, as far as names tell; settled differences do not count."""
        settled = (Certainty.SETTLED, Certainty.UNDECIDED)
        is_whole = self.model is None or not self.model.errors
        return is_whole and all(reason.certainty in settled for reason in self.reasons)

    @property
    def difference(self) -> int | None:
        """Elements that the side has more than the formula."""
        return None if self.side is None else self.side.total - self.formula.total


class FormulaReport(Frozen):
    """Report of `formula`."""

    checked: Checked
    """Result with the changes of `--set`, if there are some."""
    before: Formula | None = None
    """Formula as the config has it, if fields were changed."""
    is_symbolic: bool = False
    """Whether the report shows expressions only, without numbers."""
    block: int = BLOCK
    """Elements that share a scale in quantized parameters."""
    tokens: int | None = None
    """Length, in tokens, of the sequence whose cache is shown; None for the length that the model is made for."""
    stamp: str | None = None

    @property
    def formula(self) -> Formula:
        return self.checked.formula
