"""Settled books -> layers that compute differently from their siblings, though they hold the same parameters.

PyTorch's side may be a state dict, which does not tell what `forward` computes. But a model repeats its layers: if all
layers of a list have an epsilon of 1e-12 and one has 0.1, somebody has changed it. The operands of a node that computes
with a layer's parameter are followed back to the nodes of the previous parameters, and written down as a term in the
layer's own names; most layers have the same term. Legitimate differences are ignored: masks and tables of positions,
strides and windows, sizes, numbers of codes. A term of another structure is another kind of layer, not an odd one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeGuard

import numpy as np

from analyzer.account.ledger import Finding, Severity
from analyzer.model import Node, Place, is_runtime_domain
from analyzer.model.operators import Kind
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.lines import MEANINGS
from analyzer.reconciliation.terms import (
    COMMUTATIVE,
    EARLIER,
    NUMBER,
    PASSED,
    SKIPPED,
    STREAM,
    Label,
    Layers,
    Numbers,
    Operation,
    Origins,
    Result,
    Term,
    Terms,
    UnfollowedOperand,
    Walk,
    find_anchors,
)
from analyzer.records import Frozen
from analyzer.text import format_doing, format_many

_FEWEST = 3
"""Least number of equal layers beside an odd one."""
_MOST_ODD = 8
"""Layers for each odd one: if a larger share is odd, the difference is intended."""
_MOST_REPORTED = 8
_MOST_FOLLOWED = 1 << 19
"""Most nodes that are followed in total, a limit for models with hundreds of experts."""
_SAME = 1e-5
"""Relative tolerance of equal constants."""

_COMPARED_ATTRIBUTES = frozenset(
    {
        *("alpha", "approximate", "axes", "axis", "beta", "epsilon", "equation", "gamma", "interleaved"),
        *("is_causal", "keepdims", "mask_filter_value", "perm", "scale", "softcap", "unidirectional"),
    }
)
"""Attributes that are equal in all layers with the same parameters."""
_ACTIVATIONS = {
    **{
        name: name
        for name in ("Elu", "Erf", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "QuickGelu", "Relu")
    },
    **{name: name for name in ("Selu", "Sigmoid", "Softplus", "Softsign", "Swish", "Tanh")},
    **dict.fromkeys(("Gelu", "FastGelu"), "Gelu"),
}
"""Activations of ONNX and of onnxruntime -> name of their function."""
_COMPUTES = frozenset({Kind.ELEMENTWISE, Kind.REDUCES})


class _UnlikeError(Exception):
    """Two terms of different structure: two kinds of layers."""


class _Difference(Frozen):
    node: Node
    found: str
    expected: str = ""
    """Counterpart in most layers; empty if `found` says enough."""
    is_of_place: bool = False
    """Whether the place of an operand differs, not the computation."""


def find_odd_layers(books: Books) -> Iterator[Finding]:
    """Yield a warning for each layer that computes differently from most of its list; it may be intended."""
    anchors = find_anchors(books)
    nodes_by_parameter = {name: place for place, name in anchors.names.items() if name is not None}
    origins = Origins(books, anchors.names, anchors.shared, nodes_by_parameter)
    odd_nodes: dict[Place, tuple[str, _Difference, int]] = {}
    for layers in _find_lists(books):
        walk = Walk(origins, layers)
        for name, numbers in layers.alike():
            if len(numbers) <= _FEWEST or origins.followed > _MOST_FOLLOWED:
                continue
            full = {number: f"{layers.prefix}{number}.{name}" for number in numbers}
            roots = {
                number: nodes_by_parameter[each]
                for number, each in full.items()
                if each in nodes_by_parameter
            }
            reused = {
                number: anchors.several[each] for number, each in full.items() if each in anchors.several
            }
            for number, difference, many in (
                *_compare_layers(walk, roots),
                *_find_reused(walk, roots, reused),
            ):
                odd_nodes.setdefault(difference.node.place, (f"{layers.prefix}{number}", difference, many))
    by_layer: dict[str, list[tuple[_Difference, int]]] = defaultdict(list)
    for layer, difference, many in odd_nodes.values():
        by_layer[layer].append((difference, many))
    for layer, found in [*by_layer.items()][:_MOST_REPORTED]:
        difference, many = found[0]
        node = difference.node.name or next(filter(None, difference.node.outputs), difference.node.op_type)
        expected = f", not {difference.expected}" if difference.expected else ""
        more = f"; {format_doing(len(found) - 1, 'more node', 'differ')}" if len(found) > 1 else ""
        others = format_many(many, "other layer")
        message = f"{layer} differs from {others} of its list at {node}: {difference.found}{expected}{more}"
        yield Finding("odd-layer", Severity.WARNING, message, (layer,))


def _find_lists(books: Books) -> Iterator[Layers]:
    """Yield the lists of modules, found by the numbers in the names of their parameters."""
    members: dict[str, dict[int, dict[str, tuple[int, ...]]]] = defaultdict(lambda: defaultdict(dict))
    for parameter in books.manifest.parameters:
        settled = books.parameters[parameter.name]
        if MEANINGS[settled.line].unbalanced:
            continue
        for match in NUMBER.finditer(parameter.name):
            prefix, suffix = parameter.name[: match.start()], parameter.name[match.end() + 1 :]
            members[prefix][int(match[0])][suffix] = parameter.shape
    for prefix, modules in members.items():
        if len(modules) > _FEWEST:
            yield Layers(prefix, {number: frozenset(names.items()) for number, names in modules.items()})


def _compare_layers(walk: Walk, roots: Mapping[int, Place]) -> Iterator[tuple[int, _Difference, int]]:
    """Yield the odd layers among the nodes that compute with one parameter, and the number of equal layers."""
    if len(roots) <= _FEWEST:
        return
    found = {number: Term(walk, number, place) for number, place in roots.items()}
    (usual, many), *_ = Counter(term.number for term in found.values()).most_common()
    kinds = walk.layers.kinds
    model = max(number for number, term in found.items() if term.number == usual)
    odd = []
    for number, term in found.items():
        is_behind_other = kinds.get(number - 1) != kinds.get(model - 1)
        try:
            differences = [*_compare(walk.terms, usual, term, is_behind_other=is_behind_other)]
        except _UnlikeError:
            continue
        many += not differences and term.number != usual
        is_of_kind = kinds[number] == kinds[model]
        odd += [(number, each) for each in differences if is_of_kind or not each.is_of_place][:1]
    if many >= _FEWEST and 2 * many > len(found) and len(odd) <= max(1, len(found) // _MOST_ODD):
        yield from ((number, difference, many) for number, difference in odd)


def _find_reused(
    walk: Walk, once: Mapping[int, Place], reused: Mapping[int, tuple[Place, ...]]
) -> Iterator[tuple[int, _Difference, int]]:
    """Yield the layers that compute with a parameter more than once, if the others do once."""
    if len(once) < _FEWEST or len(reused) > max(1, len(once) // _MOST_ODD):
        return
    for number, places in reused.items():
        node = walk.origins.books.ledger.wiring.node_at(places[-1])
        found = f"one of {format_many(len(places), 'node')} that use the same parameter"
        yield number, _Difference(node, found, "the only one"), len(once)


def _compare(terms: Terms, usual: int, term: Term, *, is_behind_other: bool) -> Iterator[_Difference]:
    """Yield the differences between a layer's term and that of most layers.

    Raises:
        _UnlikeError: the term has another structure.
    """
    waiting, seen = [(usual, term.number, term.walk.origins.books.ledger.wiring.node_at(term.place))], set()
    while waiting:
        usual_term, odd_term, reader = waiting.pop()
        if usual_term == odd_term or (usual_term, odd_term) in seen:
            continue
        seen.add((usual_term, odd_term))
        a, b = terms.labels[usual_term], terms.labels[odd_term]
        is_of_before = _places(terms, usual_term) <= {"before"} and "own" not in _places(terms, odd_term)
        if is_behind_other and is_of_before and not isinstance(a, Numbers):
            continue  # output of the previous layer, which is of another kind, or absent
        node = term.nodes.get(odd_term, reader)
        if isinstance(a, Operation) and isinstance(b, Operation):
            pairs = _pair(terms, usual_term, odd_term)
            differing = _describe_settings(a, b)
            if pairs is not None and (a.op_type, a.domain) == (b.op_type, b.domain) and differing is not None:
                if any(differing):
                    yield _Difference(node, *differing)
                if _is_turned(terms, usual_term, odd_term):
                    yield _Difference(node, f"{b.op_type} has its operands exchanged")
                else:
                    waiting += [(one, other, node) for one, other in pairs]
                continue
        if isinstance(a, Numbers) and isinstance(b, Numbers) and len(a.values) == len(b.values):
            if not np.allclose(a.values, b.values, rtol=_SAME, atol=0, equal_nan=True):
                operator = f"{reader.op_type} with {_format_values(b.values)}"
                yield _Difference(reader, operator, _format_values(a.values))
        elif isinstance(a, Result) and isinstance(b, Result):
            if not term.has(a):
                raise _UnlikeError
            yield _Difference(
                reader, f"it reads {_describe_result(b)}", _describe_result(a), is_of_place=True
            )
        elif _is_outside(a) and b == EARLIER:
            yield _Difference(
                reader, "it reads the result of other modules", _describe_result(a), is_of_place=True
            )
        elif a == EARLIER and _is_outside(b):
            yield _Difference(
                reader, f"it reads {_describe_result(b)}", "that of other modules", is_of_place=True
            )
        elif (a, b) == (STREAM, SKIPPED):
            yield _Difference(
                reader,
                "the previous layer reads the output of another layer",
                "that of the layer before it",
                is_of_place=True,
            )
        elif b == EARLIER and _places(terms, usual_term) - {"outside"}:
            yield _Difference(
                reader,
                "it reads the output of an earlier layer",
                "that of the previous layer",
                is_of_place=True,
            )
        elif (described := _describe_computation(terms, usual_term, odd_term)) is not None:
            yield _Difference(node, *described)
        else:
            raise _UnlikeError


def _is_outside(label: Label) -> TypeGuard[Result]:
    return isinstance(label, Result) and label.where == "outside"


def _places(terms: Terms, number: int) -> set[str]:
    """Return the places of the parameters whose results are in a term, as in `Result.where`."""
    labels = (terms.labels[each] for each in terms.within(number))
    return {label.where for label in labels if isinstance(label, Result)}


def _describe_result(result: Result) -> str:
    where = {"own": " in the same layer", "before": " in the previous layer"}.get(result.where, "")
    return f"the result of {result.name}{where}"


def _format_values(values: tuple[float, ...]) -> str:
    return ", ".join(f"{each:g}" for each in values)


def _describe_settings(usual: Operation, odd: Operation) -> tuple[str, str] | None:
    """Return texts on attributes that differ, odd and usual; empty if none do, None if they may differ legitimately."""
    usual_settings, odd_settings = dict(usual.settings), dict(odd.settings)
    names = sorted(
        name
        for name in usual_settings.keys() | odd_settings.keys()
        if usual_settings.get(name) != odd_settings.get(name)
    )
    if not names:
        return "", ""
    if not _COMPARED_ATTRIBUTES.issuperset(names) or odd.kind in (Kind.CONVOLUTION, Kind.POOLS):
        return None
    found = ", ".join(_describe_setting(name, odd_settings.get(name)) for name in names)
    return f"{odd.op_type} has {found}", ", ".join(
        _describe_setting(name, usual_settings.get(name)) for name in names
    )


def _describe_setting(name: str, value: object) -> str:
    if value is None:
        return f"the default {name}"
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def _pair(terms: Terms, usual_term: int, odd_term: int) -> list[tuple[int, int]] | None:
    """Return the pairs of corresponding parts of two terms that differ; None if their numbers of parts differ."""
    a, b = terms.parts[usual_term], terms.parts[odd_term]
    if len(a) != len(b):
        return None
    label = terms.labels[usual_term]
    if not isinstance(label, Operation) or label.op_type not in COMMUTATIVE:
        return [(one, other) for one, other in zip(a, b, strict=True) if one != other]
    left = Counter(b)
    alone = []
    for part in a:
        if left[part]:
            left[part] -= 1
        else:
            alone.append(part)
    rest = [*left.elements()]
    if len(alone) == 2:
        kinds = [_kind(terms.labels[part]) for part in alone]
        others = [_kind(terms.labels[part]) for part in rest]
        if kinds[0] != others[0] and kinds[0] == others[1]:
            rest.reverse()
    return [*zip(alone, rest, strict=True)]


def _kind(label: Label) -> object:
    return label.op_type if isinstance(label, Operation) else type(label)


def _is_turned(terms: Terms, usual_term: int, odd_term: int) -> bool:
    a, b = terms.parts[usual_term], terms.parts[odd_term]
    return len(a) == 2 and a[0] != a[1] and a == b[::-1]


def _describe_computation(terms: Terms, usual_term: int, odd_term: int) -> tuple[str, str, bool] | None:
    """Return texts on two different computations of the same parts, and whether the place differs.

    None if they may be two forms of one computation, or if their parts differ.
    """
    a = terms.labels[usual_term]
    if isinstance(a, Operation) and a.op_type in ("Add", "Sum") and odd_term in terms.parts[usual_term]:
        others = [terms.labels[part] for part in terms.parts[usual_term] if part != odd_term]
        if others and all(isinstance(each, (Result, Operation)) or each in PASSED for each in others):
            missing = ", ".join(
                _describe_result(each) if isinstance(each, Result) else "another sum" for each in others
            )
            return f"it does not add {missing}", "", True
        return None
    b = terms.labels[odd_term]
    if _is_exchanged(a, b) and Counter(terms.parts[usual_term]) == Counter(terms.parts[odd_term]):
        return _operator(b), _operator(a), False
    for label, part, found in (
        (a, odd_term, "a Transpose is missing"),
        (b, usual_term, "an additional Transpose"),
    ):
        whole = usual_term if label is a else odd_term
        if isinstance(label, Operation) and label.op_type == "Transpose" and terms.parts[whole] == (part,):
            return found, "", False
    moved = {each.op_type for each in (a, b) if isinstance(each, Operation) and each.kind is Kind.MOVES}
    if len(moved) == 2 and "Transpose" in moved and terms.parts[usual_term][:1] == terms.parts[odd_term][:1]:
        return _operator(b), _operator(a), False
    if isinstance(b, Operation) and b.kind is Kind.ELEMENTWISE and usual_term in terms.parts[odd_term]:
        others = [terms.labels[part] for part in terms.parts[odd_term] if part != usual_term]
        if all(isinstance(each, (Numbers, Operation, Result)) or each in PASSED for each in others):
            is_of_place = not all(isinstance(each, Numbers) for each in others)
            return f"an additional {b.op_type}", "", is_of_place
        return None
    usual, odd = _leaves(terms, usual_term), _leaves(terms, odd_term)
    if usual is None or odd is None:
        return None
    (usual_leaves, usual_operators), (odd_leaves, odd_operators) = usual, odd
    if not usual_leaves or usual_leaves != odd_leaves or not (usual_operators or odd_operators):
        return None
    odd_text, usual_text = " of ".join(odd_operators), " of ".join(usual_operators)
    if not odd_operators:
        return f"it does not compute {usual_text}", "", False
    return (odd_text, usual_text, False) if usual_operators else (f"an additional {odd_text}", "", False)


def _is_exchanged(one: Label, other: Label) -> bool:
    """Whether two elementwise operators are surely different functions, not two forms of one that a tool rewrote."""
    if not (isinstance(one, Operation) and isinstance(other, Operation)):
        return False
    if one.op_type in _ACTIVATIONS and other.op_type in _ACTIVATIONS:
        return _ACTIVATIONS[one.op_type] != _ACTIVATIONS[other.op_type]
    return all(each.kind is Kind.ELEMENTWISE and not is_runtime_domain(each.domain) for each in (one, other))


def _operator(label: Label) -> str:
    return label.op_type if isinstance(label, Operation) else ""


def _leaves(terms: Terms, number: int) -> tuple[frozenset[int], list[str]] | None:
    """Return the operands of a term's elementwise part, and its operators; None if they are unknown."""
    waiting, seen, leaves, operators = [number], {number}, set(), []
    while waiting:
        each = waiting.pop()
        label = terms.labels[each]
        if isinstance(label, UnfollowedOperand) and label not in PASSED:
            return None
        if isinstance(label, Operation) and label.kind in _COMPUTES:
            if is_runtime_domain(label.domain):
                return None
            operators.append(label.op_type)
            new = [part for part in terms.parts[each] if part not in seen]
            seen.update(new)
            waiting += new
        elif not isinstance(label, Numbers):
            leaves.add(each)
    return frozenset(leaves), operators
