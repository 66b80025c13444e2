"""Roles of axes, and what was asked of them -> the size of every axis, and what decided it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from analyzer.errors import UsageError
from analyzer.timing.inputs.expressions import compute_size, fixed_size, parse_size
from analyzer.timing.inputs.naming import Names, Slot
from analyzer.timing.inputs.roles import Part, Purpose, Roles, Sides
from analyzer.timing.inputs.shapes import LARGEST
from analyzer.timing.record import Axis
from analyzer.units import printable

__all__ = ["Asked", "Axis", "Default", "size_axes"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user has said of the axes."""

    sizes: tuple[tuple[str, int], ...] = ()
    past: int | None = None
    arrays: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Inputs that `--input` has, and their shapes."""


Default = Callable[[Part | None, int, str, int], tuple[int, str]]
"""The size that an axis of an input has by its position, its role and the past if nothing else says it, and why;
without an input, that of a role."""

_TOTALS = {Roles.TOTAL: Roles.SEQUENCE, Roles.DECODER_TOTAL: Roles.DECODER}
"""Axes as long as the past and a sequence together."""
_OWN = frozenset({Roles.CHANNELS, Roles.FEATURES, Roles.HEADS, Roles.OTHER})
"""Roles whose size one input does not tell of another."""


def size_axes(parts: Sequence[Part], sides: Sides, asked: Asked, default: Default) -> tuple[Axis, ...]:
    """Give every axis its size: of the file, of the user, or a default.

    Raises:
        UsageError: a name names nothing, or two sizes contradict each other.
    """
    solver = _Solver(parts, sides, default)
    for name, shape in asked.arrays:
        solver.bind_array(name, shape)
    for key, size in asked.sizes:
        solver.bind(key, size)
    if asked.past is not None:
        solver.bind_past(asked.past)
    solver.check_roles()
    return solver.solve()


class _Solver:
    """Sizes, as they come to be known."""

    def __init__(self, parts: Sequence[Part], sides: Sides, default: Default) -> None:
        self.parts = parts
        self.sides = sides
        self.default = default
        self.numbers = {part.given.name: number for number, part in enumerate(parts)}
        self.symbols: dict[str, list[Slot]] = defaultdict(list)
        self.roles: dict[str, list[Slot]] = defaultdict(list)
        self.sizes: dict[Slot, tuple[int, str]] = {}
        self.told: dict[str, Slot] = {}
        """For each role, the first axis that got a size."""
        self.wanted: dict[str, tuple[int, str]] = {}
        """What was asked of roles."""
        is_nameless = all(part.given.name.isdecimal() for part in parts)
        for number, part in enumerate(parts):
            for position, (dim, role) in enumerate(zip(part.dims, part.roles, strict=True)):
                slot = number, position
                self.roles[role].append(slot)
                fixed = fixed_size(dim, is_nameless=is_nameless)
                if fixed is not None:
                    self._set(slot, (fixed, "file"))
                elif isinstance(dim, str):
                    self.symbols[dim].append(slot)
        self.names = Names(parts, self.symbols, self.roles)

    def _set(self, slot: Slot, size: tuple[int, str]) -> tuple[int, str]:
        """Give an axis a size unless it has one; the size that it has then."""
        if self.parts[slot[0]].purpose is not Purpose.OTHER:
            self.told.setdefault(self._role_of(slot), slot)
        return self.sizes.setdefault(slot, size)

    # what is asked

    def bind_array(self, name: str, shape: tuple[int, ...]) -> None:
        for position, size in enumerate(shape):
            self._bind_slot((self.numbers[name], position), size, "--input")

    def bind_past(self, past: int) -> None:
        self._bind_role(Roles.PAST, past, "--past")

    def bind(self, key: str, size: int) -> None:
        """Take one `--shape`."""
        reason = f"--shape {key}"
        slots, role = self.names.find(key)
        for slot in slots:
            self._bind_slot(slot, size, reason)
        if role is not None:
            self._bind_role(role, size, reason)

    def _bind_role(self, role: str, size: int, reason: str) -> None:
        if role not in self.roles:
            raise UsageError(f"{reason}: no input of the model is a {role}; {self.names.listing()}")
        known = self.wanted.setdefault(role, (size, reason))
        if known[0] != size:
            raise UsageError(f"{reason} {size:,} contradicts {known[1]} {known[0]:,}; give {role} one size")

    def _bind_slot(self, slot: Slot, size: int, reason: str) -> None:
        dim = self._dim(slot)
        is_symbol = isinstance(dim, str) and slot in self.symbols.get(dim, ())
        for other in self.symbols[dim] if is_symbol and isinstance(dim, str) else [slot]:
            known = self._set(other, (size, reason))
            if known[0] != size:
                raise self._conflict(other, size, reason)

    def check_roles(self) -> None:
        """Give the roles their sizes; what is fixed, or told apart by its name, keeps its own.

        Raises:
            UsageError: a role's axes have another size.
        """
        for role, (size, reason) in self.wanted.items():
            slots = self.roles[role]
            free = [slot for slot in slots if slot not in self.sizes]
            for slot in free:
                self._set(slot, (size, reason))
            takes = any(self.sizes[slot][0] == size for slot in slots)
            for slot in slots:
                known, why = self.sizes[slot]
                is_own = why.startswith("--shape") or self.parts[slot[0]].purpose is Purpose.OTHER
                if known != size and not (is_own and takes):
                    raise self._conflict(slot, size, reason)

    # what is left

    def solve(self) -> tuple[Axis, ...]:
        self._spread()
        left = sorted(slot for slots in self.roles.values() for slot in slots if slot not in self.sizes)
        for slot in sorted(
            left, key=self._rank
        ):  # a sum after its terms, and what is computed after what is not
            if slot not in self.sizes:
                dim = self._dim(slot)
                found = self._evaluate(dim) if isinstance(dim, str) else None
                self._settle(slot, found or self._usual(slot))
        return tuple(self._axes())

    def _rank(self, slot: Slot) -> int:
        dim = self._dim(slot)
        is_computed = isinstance(dim, str) and parse_size(dim) is not None
        return 2 if is_computed else int(self._role_of(slot) in _TOTALS)

    def _spread(self) -> None:
        """Axes of one name have one size, also where it is that of a role."""
        for slots in self.symbols.values():
            known = next((self.sizes[slot] for slot in slots if slot in self.sizes), None)
            if known is not None:
                for slot in slots:
                    if self._set(slot, known)[0] != known[0]:
                        raise self._conflict(slot, *known)

    def _settle(self, slot: Slot, size: tuple[int, str]) -> None:
        dim = self._dim(slot)
        for other in [slot, *(self.symbols.get(dim, ()) if isinstance(dim, str) else ())]:
            self._set(other, size)

    def _usual(self, slot: Slot) -> tuple[int, str]:
        """The size of an axis by its role, or where several share its name by the role of one that is no sum."""
        dim = self._dim(slot)
        shared = self.symbols.get(dim, [slot]) if isinstance(dim, str) else [slot]
        best = next((other for other in shared if self._role_of(other) not in _TOTALS), slot)
        role = self._role_of(best)
        return self._size_of(role, best)

    def _size_of(self, role: str, slot: Slot | None = None) -> tuple[int, str]:
        """What a role is: as asked, as others have it, as others leave it, or the default."""
        if role in self.wanted:
            return self.wanted[role]
        if role not in _OWN and role in self.told:
            size, why = self.sizes[self.told[role]]
            return size, why if why.startswith("default") else f"as {self._name(self.told[role])}"
        if role in _TOTALS:
            sequence = self._size_of(_TOTALS[role])[0]
            return self._size_of(Roles.PAST)[0] + sequence, f"{Roles.PAST} + {_TOTALS[role]}"
        rest = self._remainder(role)
        if rest is not None:
            return rest
        past = self._known(Roles.PAST) or 0
        if slot is None:
            return self.default(None, 0, role, past)
        return self.default(self.parts[slot[0]], slot[1], role, past)

    def _remainder(self, role: str) -> tuple[int, str] | None:
        """What a known sum leaves for the past, or for the sequence."""
        for total, sequence in _TOTALS.items():
            known = self._known(total)
            if known is None or role not in (Roles.PAST, sequence):
                continue
            rest = self._known(sequence if role == Roles.PAST else Roles.PAST)
            if role == Roles.PAST and rest is None:
                continue
            left = known - (rest or 0)
            if left >= 0:
                return left, f"{total} - {sequence if role == Roles.PAST else Roles.PAST}"
        return None

    def _known(self, role: str) -> int | None:
        if role in self.wanted:
            return self.wanted[role][0]
        return self.sizes[self.told[role]][0] if role in self.told else None

    def _evaluate(self, text: str) -> tuple[int, str] | None:
        """A size that is computed from others: `s41 + s52`, `past_sequence_length + 1`."""
        parsed = parse_size(text)
        size = None if parsed is None else compute_size(parsed, self._value)
        return None if size is None or not 0 <= size <= LARGEST else (size, text)

    def _value(self, name: str) -> int | None:
        slots = self.symbols.get(name)
        if slots:
            return self.sizes[slots[0]][0] if slots[0] in self.sizes else None
        role = self.sides.hinted(name.lower())
        return None if role is None else self._size_of(role)[0]

    # what is said

    def _dim(self, slot: Slot) -> int | str | None:
        return self.parts[slot[0]].dims[slot[1]]

    def _role_of(self, slot: Slot) -> str:
        return self.parts[slot[0]].roles[slot[1]]

    def _name(self, slot: Slot) -> str:
        return self.parts[slot[0]].given.name

    def _axes(self) -> Iterator[Axis]:
        for number, part in enumerate(self.parts):
            for position, (dim, role) in enumerate(zip(part.dims, part.roles, strict=True)):
                size, reason = self.sizes[number, position]
                name = dim if isinstance(dim, str) else None
                yield Axis(part.given.name, position, name, role, size, reason)

    def _conflict(self, slot: Slot, size: int, reason: str) -> UsageError:
        known, why = self.sizes[slot]
        place = f"axis {slot[1]} of {printable(self._name(slot))}"
        because = {"file": "the file fixes it to", "--input": "--input has"}.get(
            why, f"{printable(why)} gives it"
        )
        return UsageError(
            f"{printable(reason)}: {place} would have {size:,}, and {because} {known:,}; make them agree"
        )
