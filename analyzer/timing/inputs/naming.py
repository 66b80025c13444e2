"""The key of a `--shape` -> the axes and the role that it means, or a sentence that lists what there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analyzer.errors import UsageError
from analyzer.timing.inputs.roles import Part, Roles
from analyzer.units import printable, shorten

__all__ = ["Names", "Slot"]

Slot = tuple[int, int]
"""An input's number, and the position of one of its axes."""

_ALIASES = {
    Roles.SEQUENCE: (Roles.DECODER, Roles.ENCODER),
    Roles.DECODER: (Roles.SEQUENCE,),
    Roles.ENCODER: (Roles.SEQUENCE,),
    Roles.TOTAL: (Roles.DECODER_TOTAL,),
}
"""What else is meant by a role that no axis has."""
_MOST_LISTED = 12
_LONGEST = 80
"""Characters of a name that are listed."""


class Names:
    """What the axes of a model's inputs can be called."""

    def __init__(
        self, parts: Sequence[Part], symbols: Mapping[str, list[Slot]], roles: Mapping[str, list[Slot]]
    ) -> None:
        self.parts = parts
        self.symbols = symbols
        self.roles = roles

    def find(self, key: str) -> tuple[list[Slot], str | None]:
        """The axes of this name, and the role.

        Raises:
            UsageError: there are none.
        """
        slots = self.symbols.get(key) or self._slots_of_input(key)
        role = self._role(key)
        if slots is None and role is None:
            raise UsageError(f"--shape {printable(key)}: {self._unknown(key)}; {self.listing()}")
        return slots or [], role

    def _role(self, key: str) -> str | None:
        """The role that a name means here."""
        return next((role for role in (key, *_ALIASES.get(key, ())) if role in self.roles), None)

    def _slots_of_input(self, key: str) -> list[Slot] | None:
        """The axes that `input.axis` means; names of inputs may have dots, and the longest goes first."""
        owners = [n for n, part in enumerate(self.parts) if key.startswith(part.given.name + ".")]
        for number in sorted(owners, key=lambda n: len(self.parts[n].given.name), reverse=True):
            part = self.parts[number]
            axis = key[len(part.given.name) + 1 :]
            names = [
                (str(position), dim, role)
                for position, (dim, role) in enumerate(zip(part.dims, part.roles, strict=True))
            ]
            for field in range(3):
                found = [(number, position) for position, name in enumerate(names) if name[field] == axis]
                if found:
                    return found
        return None

    def _unknown(self, key: str) -> str:
        owner = next((part for part in self.parts if part.given.name == key), None)
        if owner is not None and owner.roles:
            return f"is an input; name one of its axes, as in {printable(key)}.{owner.roles[0]} or {printable(key)}.0"
        return "no axis, input or role of the model has this name"

    def listing(self) -> str:
        """What there is to name."""
        inputs = [f"{_shown(part.given.name)} ({_shown_axes(part)})" for part in self.parts[:_MOST_LISTED]]
        rest = len(self.parts) - len(inputs)
        shown = "; ".join(inputs) + (f"; and {rest:,} more" if rest else "")
        return f"inputs, with their axes and roles: {shown or 'none'}"


def _shown(name: str) -> str:
    return printable(shorten(name, _LONGEST))


def _shown_axes(part: Part) -> str:
    """Each axis as the file has it, and its role."""
    axes = zip(part.dims, part.roles, strict=True)
    return ", ".join(f"{'?' if dim is None else _shown(str(dim))}: {role}" for dim, role in axes)
