"""Two models -> declarations that differ: versions of operator sets, inputs, outputs, training; notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from analyzer.comparison.record import DeclaredPair
from analyzer.model import Function, Model, ValueType
from analyzer.read.notes import read_notes


def compare_declared(a: Model, b: Model) -> tuple[tuple[DeclaredPair, ...], tuple[DeclaredPair, ...] | None]:
    """Return the declarations that differ or stand on one side alone, and separately those that are mere notes.

    Saved reports have no inputs; only their versions are compared. The notes are None where a side has none.

    Raises:
        ModelReadError: a file has changed since it was counted.
    """
    ours, theirs = read_notes(a), read_notes(b)
    declared = (*_versions(a, b), *_interfaces(a, b))
    if ours is None or theirs is None:
        return declared, None
    return (*declared, *_differences(ours.training, theirs.training)), tuple(
        _differences(ours.texts, theirs.texts)
    )


def _versions(a: Model, b: Model) -> Iterator[DeclaredPair]:
    ours, theirs = ({f"opset {domain}": str(version) for domain, version in side.opsets} for side in (a, b))
    yield from _differences(
        {"IR version": str(a.ir_version), **ours}, {"IR version": str(b.ir_version), **theirs}
    )
    if a.graphs and b.graphs:
        of_functions = _functions(a), _functions(b)
        differing = {what for side in of_functions for what, (_, is_odd) in side.items() if is_odd}
        ours, theirs = ({what: side[what][0] for what in side if what in differing} for side in of_functions)
        yield from _differences(ours, theirs)


def _functions(model: Model) -> Mapping[str, tuple[str, bool]]:
    """Return the versions that local functions import, and whether each differs from the model's own."""
    own = dict(model.opsets)
    return {
        f"opset {domain} of {_name(function)}": (str(version), own.get(domain) != version)
        for function in model.functions
        for domain, version in function.opsets
    }


def _name(function: Function) -> str:
    return ":".join(filter(None, (function.domain, function.name, function.overload)))


def _interfaces(a: Model, b: Model) -> Iterator[DeclaredPair]:
    if not a.graphs or not b.graphs:
        return
    for word in ("input", "output"):
        ours, theirs = (_values(side, word) for side in (a, b))
        yield from _differences(ours, theirs)
        common = [name for name in ours if name in theirs]
        if common != [name for name in theirs if name in ours]:
            orders = [", ".join(name.partition(" ")[2] for name in side) for side in (ours, theirs)]
            yield DeclaredPair(f"order of {word}s", *orders)


def _values(model: Model, word: str) -> Mapping[str, str]:
    """Return the types of the inputs or outputs of each main graph, by name."""
    found: dict[str, str] = {}
    roots = {part.path: part.name for part in model.parts}
    for graph in model.graphs:
        if graph.path not in roots:
            continue
        values: Sequence[ValueType] = graph.signature if word == "input" else graph.results
        prefix = f"{roots[graph.path]}/" if roots[graph.path] else ""
        for value in values:
            found[f"{word} {prefix}{value.name}"] = _type(value)
    return found


def _type(value: ValueType) -> str:
    if value.each is not None:
        return f"{value.kind} of {_type(value.each)}"
    if value.kind not in ("tensor", "sparse_tensor"):
        return value.kind or "of no type"
    sparse = "sparse " if value.kind == "sparse_tensor" else ""
    if value.dims is None:
        return f"{sparse}{value.dtype.name} of any shape"
    dims = ("?" if dim is None else str(dim) for dim in value.dims)
    return f"{sparse}{value.dtype.name} {' x '.join(dims) or 'scalar'}"


def _differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[DeclaredPair]:
    for what in dict.fromkeys((*ours, *theirs)):
        if ours.get(what) != theirs.get(what):
            yield DeclaredPair(what, ours.get(what), theirs.get(what))
