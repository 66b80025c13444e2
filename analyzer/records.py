"""Base classes of records: frozen dataclasses with slots, by msgspec.

`dataclasses` compiles half a dozen functions for each class, half a millisecond of every start; msgspec makes the same
class in a thirtieth of that time, and an instance in a ninth. `dataclasses.fields`, `replace` and `asdict` work on
records as on dataclasses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import msgspec
from msgspec import field

if TYPE_CHECKING:
    import dataclasses
    from dataclasses import replace  # the type checker knows which fields a class has
else:
    from msgspec.structs import replace

__all__ = ["Frozen", "Mutable", "exclude_fields", "field", "replace"]


class _Fields:
    """The `__dataclass_fields__` of a record class, made on first use."""

    def __get__(self, record: object, owner: type[msgspec.Struct]) -> dict[str, dataclasses.Field[Any]]:
        return _fields_of(owner)


@functools.cache
def _fields_of(owner: type[msgspec.Struct]) -> dict[str, dataclasses.Field[Any]]:
    import dataclasses

    types = {
        name: kind
        for each in reversed(owner.__mro__)
        for name, kind in vars(each).get("__annotations__", {}).items()
    }
    fields = [(name, types[name]) for name in owner.__struct_fields__]
    twin: type[Any] = dataclasses.make_dataclass(owner.__name__, fields)
    return {each.name: each for each in dataclasses.fields(twin)}


class Mutable(msgspec.Struct):
    """A record with slots and assignable fields; it equals another with equal fields, and has no hash."""

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    else:
        __dataclass_fields__ = _Fields()


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Frozen(msgspec.Struct, frozen=True):
    """A record with slots that cannot be changed; it is hashable if its fields are."""

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    else:
        __dataclass_fields__ = _Fields()


_F = TypeVar("_F", bound=type[Frozen])


def exclude_fields(*names: str) -> Callable[[_F], _F]:
    """Return a class decorator that leaves these fields of a record out of equality, hash and repr."""

    def decorate(owner: _F) -> _F:
        kept = [name for name in owner.__struct_fields__ if name not in names]
        compared = attrgetter(*kept)

        def is_equal(self: Frozen, other: object) -> bool:
            return compared(self) == compared(other) if type(self) is type(other) else NotImplemented

        def shown(self: Frozen) -> str:
            return f"{owner.__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in kept)})"

        methods = {"__eq__": is_equal, "__hash__": lambda self: hash(compared(self)), "__repr__": shown}
        for name in methods.keys() - (vars(owner).keys() & {"__repr__"}):
            setattr(owner, name, methods[name])
        return owner

    return decorate
