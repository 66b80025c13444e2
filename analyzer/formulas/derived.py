"""Manifest -> Formula where no closed form ships: parameters grouped by the types and shapes of their modules."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TypeAlias

from analyzer.checkpoints.statedict import listed
from analyzer.errors import LedgerError
from analyzer.formulas.record import Formula, Kind, PartCount, TermCount
from analyzer.manifest import Manifest, Parameter, split_name
from analyzer.records import Frozen

Shape: TypeAlias = tuple[int, ...]

_NUMBER = re.compile(r"(?<![^.])[0-9]+(?=\.)")
"""Numeric step of a module's path: a layer, a stage, an expert."""

_LEVELS = 8
"""Maximum number of numeric steps that may vary within a part; models have up to three."""

_SUMMANDS = 4
"""Maximum number of shapes in a term's name; modules with more are rare."""


class _Module(Frozen):
    """Module with the parameters of its own, under their first names."""

    prefix: str
    """Prefix of its parameters' names: its path and a dot, or nothing."""
    type: str | None
    """Class of the module; None where only names are known."""
    leaves: tuple[str, ...]
    parameters: tuple[Parameter, ...]

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(parameter.shape for parameter in self.parameters)

    @property
    def pieces(self) -> list[str]:
        """Text around the numeric steps of its prefix."""
        return _NUMBER.split(self.prefix, _LEVELS)

    @property
    def numbers(self) -> tuple[str, ...]:
        return tuple(_NUMBER.findall(self.prefix)[:_LEVELS])

    @property
    def term(self) -> tuple[object, ...]:
        """Key that is equal for modules of one term."""
        return (self.type, self.shapes) if self.type is not None else (self.leaves, self.shapes)

    @property
    def part(self) -> tuple[object, ...]:
        """Key that is equal for modules of one term at the same place of different layers."""
        return self.leaves, tuple(self.pieces)


def derive_formula(manifest: Manifest, source: str | None = None) -> Formula:
    """Derive a term for each type and shape of module, and a part for each place where such modules occur.

    Args:
        manifest: PyTorch's side; without `modules`, the names of parameters replace types.
        source: SOURCE, as typed; None takes the manifest's.

    Raises:
        LedgerError: the parts do not add up to the manifest.
    """
    manifest_source = manifest.source
    source = source or manifest_source.get("source") or "the manifest"
    class_name = manifest_source.get("class", "")
    census = "the meta device's census" if manifest_source.get("weights") == "meta" else "the census"
    found_in = f"{census} of {class_name or source}"
    modules = _own_modules(manifest)
    formula = Formula(
        source=source,
        kind=Kind.DERIVED,
        family=manifest_source.get("model_type") or class_name or PurePath(source).name,
        class_name=class_name,
        fields=(),
        terms=tuple(_terms(modules, found_in, f"names in {source}")),
        notes=tuple(_notes(modules, found_in, source)),
    )
    _check(formula, manifest)
    return formula


def _notes(modules: Sequence[_Module], found_in: str, source: str) -> Iterator[str]:
    untyped = [p.name for module in modules if module.type is None for p in module.parameters]
    if any(module.type is not None for module in modules):
        yield f"derived, not a closed form: terms are types and shapes of modules, from {found_in}"
        if untyped:
            yield f"no known module, so names stand for types: {listed(untyped)}"
    else:
        yield (
            "derived, not a closed form: terms are names and shapes of modules' parameters, from the names in "
            f"{source}, which has no types of modules"
        )


def _own_modules(manifest: Manifest) -> tuple[_Module, ...]:
    """Return the modules in the order of their first parameters."""
    owned: dict[str, list[tuple[str, Parameter]]] = {}
    for parameter in manifest.parameters:
        leaf = split_name(parameter.name)[1]
        owned.setdefault(parameter.name[: len(parameter.name) - len(leaf)], []).append((leaf, parameter))
    return tuple(
        _Module(
            prefix=prefix,
            type=manifest.modules.get(prefix.removesuffix(".")),
            leaves=tuple(leaf for leaf, _ in own),
            parameters=tuple(parameter for _, parameter in own),
        )
        for prefix, own in owned.items()
    )


def _terms(modules: Sequence[_Module], by_type: str, by_name: str) -> Iterator[TermCount]:
    taken: set[str] = set()
    names = {name for module in modules for parameter in module.parameters for name in parameter.names}
    for alike in _grouped(modules, lambda module: module.term):
        name = _unique(_term_name(alike[0]), taken)
        source = by_type if alike[0].type is not None else by_name
        places: set[str] = set()
        parts = [
            _part(_unique(_place(at), places), name, at, _scope(at, names), source)
            for at in _grouped(alike, lambda module: module.part)
        ]
        yield TermCount(name, tuple(parts))


def _grouped(
    modules: Iterable[_Module], key: Callable[[_Module], tuple[object, ...]]
) -> Iterable[list[_Module]]:
    groups: dict[tuple[object, ...], list[_Module]] = {}
    for module in modules:
        groups.setdefault(key(module), []).append(module)
    return groups.values()


def _unique(name: str, taken: set[str]) -> str:
    """Return the name, with a number if it is taken already."""
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name} ({number})"
    taken.add(unique)
    return unique


def _term_name(module: _Module) -> str:
    """Return a term's name, such as `Linear 3072x768 + 3072`; without a type, `weight 3072x768 + bias 3072`.

    It contains no slash, which separates the term from the part in keys.
    """
    if module.type is None:
        texts = [
            f"{leaf} {_dimensions(shape)}" for leaf, shape in zip(module.leaves, module.shapes, strict=True)
        ]
    else:
        counted = Counter(module.shapes)
        texts = [
            f"{times}*{_dimensions(shape)}" if times > 1 else _dimensions(shape)
            for shape, times in counted.items()
        ]
    more = [f"{len(texts) - _SUMMANDS} more"] if len(texts) > _SUMMANDS else []
    name = " + ".join([*texts[:_SUMMANDS], *more])
    return (name if module.type is None else f"{module.type} {name}").replace("/", "|")


def _dimensions(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "1"


def _part(name: str, term: str, modules: Sequence[_Module], scope: str, source: str) -> PartCount:
    shapes, times = modules[0].shapes, len(modules)
    each = sum(map(math.prod, shapes))
    return PartCount(
        name=name,
        term=term,
        times=times,
        each=each,
        vectors=sum(math.prod(shape) for shape in shapes if len(shape) == 1),
        active=times * each,
        source=source,
        scope=scope,
        shown=_shown(shapes, times),
        names=tuple(parameter.names for module in modules for parameter in module.parameters),
    )


def _shown(shapes: Iterable[Shape], times: int) -> str:
    """Return a part's expression in numbers, such as `12*(3072*768 + 3072)`."""
    summands = []
    for shape, count in Counter(shapes).items():
        factors = [count, *shape] if count > 1 or not shape else shape
        summands.append("*".join(map(str, factors)))
    text = " + ".join(summands)
    if times == 1:
        return text
    return f"{times}*({text})" if len(summands) > 1 else f"{times}*{text}"


def _place(modules: Sequence[_Module]) -> str:
    """Return the modules' path with a star for each number that varies; for the root, the names of its parameters."""
    first = modules[0]
    if not first.prefix:
        return listed(first.leaves)
    varying = zip(*(module.numbers for module in modules), strict=True)
    shown = [numbers[0] if len(set(numbers)) == 1 else "*" for numbers in varying]
    steps = zip(first.pieces, [*shown, ""], strict=True)
    return "".join(piece + number for piece, number in steps).removesuffix(".")


def _scope(modules: Sequence[_Module], names: set[str]) -> str:
    """Return a regex for all names of the modules' parameters, and for the modules' paths that name no parameter."""
    first = modules[0]
    leaves = _either([re.escape(leaf) for leaf in first.leaves])
    if first.prefix:
        pieces = [*first.pieces[:-1], first.pieces[-1].removesuffix(".")]
        paths = _paths(pieces, [module.numbers for module in modules])
        is_ambiguous = any(module.prefix.removesuffix(".") in names for module in modules)
        leaves = paths + (rf"\.{leaves}" if is_ambiguous else rf"(?:\.{leaves})?")
    tied = [re.escape(name) for module in modules for each in module.parameters for name in each.tied]
    return _either([leaves, *tied]) + r"\Z"


def _paths(pieces: Sequence[str], numbers: Sequence[tuple[str, ...]]) -> str:
    """Return a regex for exactly these paths: the pieces, with the numbers of each path between them."""
    start = re.escape(pieces[0])
    if len(pieces) == 1:
        return start
    followed: dict[str, list[tuple[str, ...]]] = {}
    for number, *rest in numbers:
        followed.setdefault(number, []).append(tuple(rest))
    alike: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for number, after in followed.items():
        alike.setdefault(tuple(after), []).append(number)
    return start + _either([_either(first) + _paths(pieces[1:], after) for after, first in alike.items()])


def _either(patterns: Sequence[str]) -> str:
    return patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"


def _check(formula: Formula, manifest: Manifest) -> None:
    keys = [part.key for part in formula.parts]
    if len(set(keys)) < len(keys) or formula.total != manifest.numel:
        raise LedgerError(
            f"{formula.source}: {len(keys)} derived parts, {len(set(keys))} of them different, add up to "
            f"{formula.total:,} of {manifest.numel:,} parameters: a defect of onnxledger; please report it"
        )


def part_finder(formula: Formula) -> Callable[[Iterable[str]], str | None]:
    """Return a finder of a derived formula's parts by names of a parameter, or of a module that owns some.

    The first known name decides. A module that owns only parameters tied to another module's belongs to that one's
    part.
    """
    known: dict[str, str] = {}
    owners: dict[str, str] = {}
    tied_owners: dict[str, str] = {}
    for part in formula.parts:
        for names in part.names:
            known.update(dict.fromkeys(names, part.key))
            owner, *others = (split_name(name)[0] for name in names)
            owners.setdefault(owner, part.key)
            for other in others:
                tied_owners.setdefault(other, part.key)
    modules = {path: key for path, key in {**tied_owners, **owners}.items() if path}  # not the root
    found: Mapping[str, str] = {**modules, **known}

    return lambda names: next((found[name] for name in names if name in found), None)
