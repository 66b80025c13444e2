"""A ledger + its expected config -> multiply-accumulates term by term: the closed form, and the file."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from analyzer.account.ledger import Ledger
from analyzer.cost.account import works_of
from analyzer.cost.algebra import Size, add, floor_div, multiply, power, subtract, symbol, total
from analyzer.cost.walk import Walk
from analyzer.errors import CostError
from analyzer.formulas.counting import Config, choose_class, choose_family, settle_fields
from analyzer.formulas.family import Family
from analyzer.formulas.language import Expression, Value
from analyzer.records import Frozen, replace
from analyzer.timing.inputs.roles import Roles, assign_roles, look_up


class TermWork(Frozen):
    """Multiply-accumulates of one kind of product."""

    name: str
    expression: str
    """Closed form over the config's fields and `batch`, `sequence` and `keys`."""
    predicted: Size
    """Result of the closed form, in the file's axes."""
    found: Size
    """Multiply-accumulates of the file's nodes in the term's modules."""

    @property
    def difference(self) -> Size:
        return subtract(self.found, self.predicted)


class WorkAgainst(Frozen):
    """Comparison of the closed form of a config with a file."""

    source: str
    family: str
    class_name: str
    terms: tuple[TermWork, ...]
    other: Size
    """Multiply-accumulates of nodes outside the modules of all terms."""

    @property
    def predicted(self) -> Size:
        return total(term.predicted for term in self.terms)

    @property
    def found(self) -> Size:
        return total((*(term.found for term in self.terms), self.other))

    @property
    def agrees(self) -> bool:
        """Whether the totals agree; single terms may differ, because fusion moves work to other modules."""
        return self.predicted == self.found


def compare_work(ledger: Ledger, config: Config, source: str, model_class: str | None = None) -> WorkAgainst:
    """Compare the multiply-accumulates of a file with the closed form of a config.

    Args:
        ledger: the ledger of the file.
        config: the content of a `config.json`.
        source: name of the config in messages.
        model_class: a class of transformers; None takes the config's architecture.

    Raises:
        CostError: the config's family has no closed form of its work.
        FormulaError: a field is missing or no size.
    """
    family = choose_family(config)
    chosen = choose_class(family, config, model_class) if family is not None else None
    if family is None or chosen is None or not family.work:
        raise CostError(
            f"{source}: its family has no closed form of the work; give --against a config of a family with one"
        )
    values = {field.name: field.value for field in settle_fields(family, config, chosen)}
    walk = Walk(ledger.model)
    visits = list(walk.run())
    axes = _axes(ledger, walk)
    has = {key.partition("/")[0] for key in chosen.parts}
    works = [work for work in family.work if work.is_of(chosen, has)]
    for part in family.parts:
        is_product = part.count.count(values) != part.vectors.count(values)
        is_needed = part.key in chosen.parts and is_product and part.term not in _ANYWHERE
        if is_needed and all(work.of != part.term for work in works):
            raise CostError(f"{source}: the work of {chosen.name}'s {part.term} has no closed form")
    terms = [
        TermWork(work.name, work.macs.text, _size(work.macs, values, axes), 0)
        for work in works
        if work.when is None or work.when.holds(values)
    ]
    found: dict[str, list[Size]] = {term.name: [] for term in terms}
    other: list[Size] = []
    for place, macs in works_of(visits):
        name = _term_of(family, ledger.node_scopes.get(place, ""), found)
        (found[name] if name is not None else other).append(macs)
    settled = tuple(replace(term, found=total(found[term.name])) for term in terms)
    return WorkAgainst(source, family.name, chosen.name, settled, total(other))


_ANYWHERE = frozenset({"embeddings", "blocks"})
"""Terms that need no closed form: embeddings are lookups, and the work of blocks has terms of its own."""


def _term_of(family: Family, scope: str, known: Mapping[str, object]) -> str | None:
    for work in family.work:
        if work.name in known and family.work_pattern(work).match(scope):
            return work.name
    return None


def _axes(ledger: Ledger, walk: Walk) -> Mapping[str, Size]:
    """Return `batch`, `sequence` and `keys` as the file has them: a number, or a named axis."""
    signature = ledger.model.graphs[0].signature
    parts, _ = assign_roles(signature, look_up(ledger.model, ledger.wiring).uses)
    found: dict[str, Size] = {}
    for part in parts:
        for position, (dim, role) in enumerate(zip(part.dims, part.roles, strict=True)):
            if role in found:
                continue
            if isinstance(dim, int) and dim >= 0:
                found[role] = dim
                continue
            for axis in walk.axes:
                if (axis.stored_name is not None and axis.stored_name == dim) or (
                    (axis.input, axis.position) == (part.value_type.name, position)
                ):
                    found[role] = symbol(axis.name)
                    break
    sequence = found.get(Roles.SEQUENCE, 1)
    past = found.get(Roles.PAST, 0)
    return {"batch": found.get(Roles.BATCH, 1), "sequence": sequence, "keys": add(past, sequence)}


def _size(expression: Expression, values: Mapping[str, Value], axes: Mapping[str, Size]) -> Size:
    """Evaluate a formula over fields and axes into a size in the file's axes.

    Raises:
        CostError: the formula has a part that is not a size.
    """

    def of(node: ast.AST) -> Size:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name) if name in axes:
                return axes[name]
            case ast.Name(id=name):
                value = values.get(name)
                if isinstance(value, int):
                    return int(value)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return add(of(left), of(right))
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return subtract(of(left), of(right))
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return multiply(of(left), of(right))
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
                return floor_div(of(left), of(right))
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(exponent))):
                return power(of(left), exponent)
            case ast.IfExp():
                return of(Expression(node).settle(values).tree)
        raise CostError(f"{expression.text}: {ast.unparse(node)} is not a size")

    return of(expression.tree)
