"""The nouns of a closed form: its fields, its terms and their parts, the classes that have them, and the cache."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from analyzer.formulas.language import Expression, Value

__all__ = ["Cache", "Computed", "Family", "Field", "ModelClass", "Part", "Term"]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the config that the formula reads."""

    name: str
    symbol: str | None
    """Its letter; None where only conditions read it."""
    default: Value
    """What the config's class takes where `config.json` lacks it."""
    otherwise: Expression | None
    """What stands for it where `config.json` lacks it or says null."""
    aliases: tuple[str, ...]
    """Other names under which `config.json` may have it."""
    length_of: str | None
    """A map in `config.json` whose length it is, such as `id2label`, where that does not say the number itself."""
    role: str | None
    """`vocabulary`, `positions`, `layers` or `experts`: what a reason calls it."""
    usual: Expression | None
    """What nearly all published models have."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A number, or a condition, that is computed from fields."""

    name: str
    symbol: str | None
    expression: Expression
    meaning: str


@dataclass(frozen=True, slots=True)
class Part:
    """What one kind of module counts. The expressions are for one of it, `times` says how many there are."""

    name: str
    term: str
    count: Expression
    vectors: Expression
    """Of them, elements in parameters of one dimension: biases and norms."""
    active: Expression | None
    """Of them, what one token uses; None for all."""
    times: Expression | None
    when: Expression | None
    scope: str
    """A regex over PyTorch's names, from their beginning to the end of a module's or parameter's name."""
    source: str
    tied_to: str | None
    """The part whose tensor it is where `when` does not hold."""
    unread: Expression | None
    """Where the class has it, and its forward pass does not read it."""

    @property
    def key(self) -> str:
        return f"{self.term}/{self.name}"

    @property
    def group(self) -> str:
        """Its scope, as a person writes it: `encoder.layer.*.attention.(self.(query|key|value)|output.dense)`."""
        return _LOOKAHEAD.sub("", self.scope).replace(r"\d+", "*").replace(r"\.", ".")


_LOOKAHEAD = re.compile(r"\(\?!(?:[^()]|\([^()]*\))*\)")


@dataclass(frozen=True, slots=True)
class Term:
    """One summand of the count."""

    name: str
    times: Expression | None
    uses: Expression | None
    """How often each of it is applied in one forward pass; None for once."""
    when: Expression | None
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Cache:
    """The key-value cache of a decoder, in elements."""

    when: Expression | None
    token: Expression
    source_token: Expression | None
    """For each position of the encoder, which cross-attention looks at."""
    window: Expression | None
    context: Expression | None
    source_context: Expression | None


@dataclass(frozen=True, slots=True)
class ModelClass:
    """A class of transformers, and what it has."""

    name: str
    auto: tuple[str, ...]
    aliases: tuple[str, ...]
    """What it was called in earlier versions of transformers."""
    parts: tuple[str, ...]
    """Keys of its parts."""
    fixed: Mapping[str, Value]
    """Fields that the class decides whatever the config says."""


@dataclass(frozen=True, slots=True)
class Family:
    """A closed form."""

    key: str
    """The name of its file."""
    name: str
    model_types: tuple[str, ...]
    prefix: str
    source: str
    fields: Mapping[str, Field]
    values: tuple[Computed, ...]
    terms: tuple[Term, ...]
    classes: Mapping[str, ModelClass]
    cache: Cache | None

    @property
    def parts(self) -> tuple[Part, ...]:
        """In the order of the file, which is the order in which their scopes are asked."""
        return tuple(part for term in self.terms for part in term.parts)

    @property
    def symbols(self) -> dict[str, str]:
        """Letters by the names of fields and values."""
        named: list[Field | Computed] = [*self.fields.values(), *self.values]
        return {each.name: each.symbol for each in named if each.symbol is not None}

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All that is computed."""
        return tuple(expression for _, expression in self.located)

    @property
    def located(self) -> tuple[tuple[str, Expression], ...]:
        """Every expression, with the name of what it belongs to."""
        cache = self.cache
        several: list[tuple[str, tuple[Expression | None, ...]]] = [
            *((each.name, (each.otherwise, each.usual)) for each in self.fields.values()),
            *((each.name, (each.expression,)) for each in self.values),
            *((term.name, (term.times, term.uses, term.when)) for term in self.terms),
            *(
                (part.name, (part.count, part.vectors, part.active, part.times, part.when, part.unread))
                for part in self.parts
            ),
        ]
        if cache is not None:
            several.append(
                (
                    "cache",
                    (
                        cache.when,
                        cache.token,
                        cache.source_token,
                        cache.window,
                        cache.context,
                        cache.source_context,
                    ),
                )
            )
        return tuple((where, each) for where, each_of in several for each in each_of if each is not None)

    def pattern(self, part: Part) -> re.Pattern[str]:
        """What finds the part's parameters by their names, or by those of their modules."""
        return _compile_scope(self.prefix, part.scope)

    def find_part(self, names: Iterable[str]) -> Part | None:
        """The first part that one of a parameter's names belongs to; a name goes before those after it."""
        for name in names:
            for part in self.parts:
                if self.pattern(part).match(name):
                    return part
        return None


@functools.cache
def _compile_scope(prefix: str, scope: str) -> re.Pattern[str]:
    outer = "|".join(dict.fromkeys(re.escape(each) for each in ("model", prefix) if each))
    return re.compile(rf"(?:(?:{outer})\.)*(?:{scope})(?:\.|$)")
