"""Roles of axes, and the user's sizes (`--shape`) -> the size of every axis, and its reason."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from analyzer.errors import UsageError
from analyzer.records import Frozen
from analyzer.text import printable, shorten
from analyzer.timing.inputs.roles import KnownInput, Lookups, Purpose, Roles, Sides, Use
from analyzer.timing.record import Axis

MOST_POINTS = 64
"""Most lengths of a sweep."""

LARGEST = (1 << 31) - 1
"""Largest size of an axis."""

_ITEM = re.compile(r"(?P<key>.+?)=(?P<size>[^=,]*)(?:,|$)", re.DOTALL)
"""A key ends at the first `=` before a size that a comma or the end follows: names may contain both characters."""
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,10}):([0-9]{1,10}):([x+])([0-9]{1,10})", re.ASCII)
_EXAMPLE = "write AXIS=SIZE, as in batch=8,sequence=128, or AXIS=FIRST:LAST:STEP, as in sequence=16:512:x2"


class Sweep(Frozen):
    """The axis whose size differs from point to point."""

    key: str
    """Name of the axis, as the user wrote it."""
    values: tuple[int, ...]


class Shapes(Frozen):
    """Sizes that the user requested. A key is an axis, `input.axis` or a role: the model decides which."""

    sizes: tuple[tuple[str, int], ...] = ()
    sweep: Sweep | None = None

    def points(self) -> tuple[int | None, ...]:
        """Return the values of the swept axis; for a single point, None."""
        return (None,) if self.sweep is None else self.sweep.values

    def at(self, value: int | None) -> tuple[tuple[str, int], ...]:
        """Return the sizes of one point."""
        if self.sweep is None or value is None:
            return self.sizes
        return (*self.sizes, (self.sweep.key, value))


def parse_shapes(texts: Iterable[str]) -> Shapes:
    """Parse the texts of all `--shape` options, each with one size or several.

    Raises:
        UsageError: one is malformed, an axis has two sizes, or more than one axis is swept.
    """
    sizes: dict[str, int] = {}
    sweep: Sweep | None = None
    for key, size in (item for text in texts for item in _split(text)):
        if ":" in size:
            found = Sweep(key, _values(key, size))
            if sweep is not None and sweep != found:
                raise UsageError(
                    f"--shape {printable(key)}: {printable(sweep.key)} is swept already; sweep one axis, and give the "
                    "other one size"
                )
            sweep = found
        elif sizes.setdefault(key, number := _size(key, size)) != number:
            raise UsageError(
                f"--shape {printable(key)}: is to be both {sizes[key]:,} and {number:,}; give it one size"
            )
    if sweep is not None and sweep.key in sizes:
        raise UsageError(
            f"--shape {printable(sweep.key)}: is to be swept and to be {sizes[sweep.key]:,}; give it one of them"
        )
    return Shapes(tuple(sizes.items()), sweep)


def _split(text: str) -> list[tuple[str, str]]:
    items: list[tuple[str, str]] = []
    position = 0
    while position < len(text) or not items:
        match = _ITEM.match(text, position)
        if match is None or not match["key"].strip():
            raise UsageError(f"--shape {printable(text[position:])!r}: {_EXAMPLE}")
        items.append((match["key"].strip(), match["size"].strip()))
        position = match.end()
    return items


def _size(key: str, text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > LARGEST:
        raise UsageError(
            f"--shape {printable(key)}: {printable(text)!r} is no size from 0 to {LARGEST:,}; {_EXAMPLE}"
        )
    return int(text)


def _values(key: str, text: str) -> tuple[int, ...]:
    """Return the sizes of a range: the first, and then each a step apart, with the last only if a step hits it.

    >>> _values("sequence", "16:100:x2"), _values("sequence", "64:192:+64")
    ((16, 32, 64), (64, 128, 192))
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        raise UsageError(f"--shape {printable(key)}: {printable(text)!r} is no range; {_EXAMPLE}")
    first, last, step = _size(key, match[1]), _size(key, match[2]), _size(key, match[4])
    is_factor = match[3] == "x"
    if first > last or (step < 2 and is_factor) or step < 1 or (is_factor and not first):
        raise UsageError(
            f"--shape {printable(key)}: {text} has no steps; the first is at most the last, and the step is x2 or "
            "more, of a first that is not 0, or +1 or more"
        )
    values = [first]
    while (
        len(values) <= MOST_POINTS
        and (following := values[-1] * step if is_factor else values[-1] + step) <= last
    ):
        values.append(following)
    if len(values) > MOST_POINTS:
        raise UsageError(
            f"--shape {printable(key)}: {text} has more than {MOST_POINTS} lengths; take larger steps"
        )
    return tuple(values)


def parse_size(text: str) -> ast.expr | None:
    """Parse an axis's name as an expression; None for a plain name, or no arithmetic."""
    if len(text) > 200 or not any(sign in text for sign in "+-*/"):
        return None
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def compute_size(node: ast.expr, value: Callable[[str], int | None]) -> int | None:
    """Compute an expression of integers; None if it contains anything else."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return value(name)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = compute_size(left, value), compute_size(right, value)
            if a is None or b is None:
                return None
            if isinstance(op, ast.Add | ast.Sub):
                return a + b if isinstance(op, ast.Add) else a - b
            if isinstance(op, ast.Mult):
                return a * b
            if isinstance(op, ast.FloorDiv | ast.Div):
                return a // b if b else None
    return None


def fixed_size(dim: int | str | None, *, is_nameless: bool) -> int | None:
    """Return the size that the file fixes for an axis, also as a name of digits, unless all inputs have such names."""
    if isinstance(dim, int):
        return dim if dim >= 0 else None
    is_number = dim is not None and dim.isascii() and dim.isdecimal() and len(dim) <= 10 and not is_nameless
    return int(dim) if is_number and dim is not None else None


Slot = tuple[int, int]
"""Index of an input, and position of one of its axes."""

_ALIASES = {
    Roles.SEQUENCE: (Roles.DECODER, Roles.ENCODER),
    Roles.DECODER: (Roles.SEQUENCE,),
    Roles.ENCODER: (Roles.SEQUENCE,),
    Roles.TOTAL: (Roles.DECODER_TOTAL,),
}
"""Other roles that a role stands for if no axis has it."""
_MOST_LISTED = 12
_LONGEST_NAME = 80
"""Most characters of a name in a list."""


def printed_axis(axis_name: str | None, input_name: str, position: int) -> str:
    """Return an axis's name in reports, a valid Python name: its own, else the input's name and the position.

    >>> printed_axis("past_seq + 1", "x", 1), printed_axis("0", "x", 1), printed_axis(None, "x.y", 1)
    ('past_seq___1', 'axis_0', 'x_y_1')
    """
    name = axis_name or f"{input_name}_{position}"
    identifier = re.sub(r"\W", "_", name[:60], flags=re.ASCII)
    identifier = identifier if identifier[:1].isalpha() or identifier[:1] == "_" else f"axis_{identifier}"
    return f"{identifier}_" if identifier in _TAKEN else identifier


_TAKEN = frozenset(
    {"max", "min", "lambda", "if", "else", "for", "in", "is", "not", "and", "or", "None", "True", "False"}
)
"""Words with another meaning in an expression."""


class AxisNames:
    """Names that the user may use for the axes of a model's inputs."""

    def __init__(
        self, parts: Sequence[KnownInput], symbols: Mapping[str, list[Slot]], roles: Mapping[str, list[Slot]]
    ) -> None:
        self.parts = parts
        self.symbols = symbols
        self.roles = roles

    def find(self, key: str) -> tuple[list[Slot], str | None]:
        """Return the axes of this name, and the role.

        Raises:
            UsageError: there are none.
        """
        slots = self.symbols.get(key) or self._slots_of_input(key)
        role = self._role(key)
        if slots is None and role is None:
            slots = self._printed(key)
        if slots is None and role is None:
            if _are_fixed(self.parts):
                raise UsageError(_ALL_FIXED)
            raise UsageError(f"--shape {printable(key)}: {self._unknown(key)}; {self.listing()}")
        return slots or [], role

    def _printed(self, key: str) -> list[Slot] | None:
        """Return the axes that reports print under this name; None for none, or for several that may differ."""
        found: dict[str, list[Slot]] = {}
        for number, part in enumerate(self.parts):
            for position, dim in enumerate(part.dims):
                axis_name = dim if isinstance(dim, str) and dim else None
                if isinstance(dim, int) and dim >= 0:
                    continue
                if printed_axis(axis_name, part.value_type.name, position) == key:
                    found.setdefault(axis_name or f"{number}.{position}", []).append((number, position))
        return next(iter(found.values())) if len(found) == 1 else None

    def _role(self, key: str) -> str | None:
        """Return the role that a name means in this model."""
        return next((role for role in (key, *_ALIASES.get(key, ())) if role in self.roles), None)

    def _slots_of_input(self, key: str) -> list[Slot] | None:
        """Return the axes that `input.axis` means; names of inputs may have dots, and the longest goes first."""
        owners = [n for n, part in enumerate(self.parts) if key.startswith(part.value_type.name + ".")]
        for number in sorted(owners, key=lambda n: len(self.parts[n].value_type.name), reverse=True):
            part = self.parts[number]
            axis = key[len(part.value_type.name) + 1 :]
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
        owner = next((part for part in self.parts if part.value_type.name == key), None)
        if owner is not None and owner.roles:
            return f"is an input; name one of its axes, as in {printable(key)}.{owner.roles[0]} or {printable(key)}.0"
        return "no axis, input or role of the model has this name"

    def listing(self) -> str:
        """List the inputs, with their axes and roles."""
        inputs = [
            f"{_shown(part.value_type.name)} ({_shown_axes(part)})" for part in self.parts[:_MOST_LISTED]
        ]
        rest = len(self.parts) - len(inputs)
        shown = "; ".join(inputs) + (f"; and {rest:,} more" if rest else "")
        return f"inputs, with their axes and roles: {shown or 'none'}"


_ALL_FIXED = "all sizes of this file are fixed; leave --shape out"


def _are_fixed(parts: Sequence[KnownInput]) -> bool:
    """Whether the file leaves no size open."""
    return all(isinstance(dim, int) for part in parts for dim in part.dims)


def _shown(name: str) -> str:
    return printable(shorten(name, _LONGEST_NAME))


def _shown_axes(part: KnownInput) -> str:
    """List each axis with its role, by its name or size in the file, or else as the user can name it."""
    axes = enumerate(zip(part.dims, part.roles, strict=True))
    return ", ".join(
        f"{_shown(f'{part.value_type.name}.{position}' if dim is None else str(dim))}: {role}"
        for position, (dim, role) in axes
    )


_SIZES = {
    Roles.BATCH: 1,
    Roles.PAST: 0,
    Roles.SAMPLES: 16_000,
    Roles.FRAMES: 3_000,
    Roles.HEIGHT: 224,
    Roles.WIDTH: 224,
}
_SEQUENCE = 128
_PIECE = 512
"""Samples per call of a model that processes a stream."""
_SEQUENCES = frozenset({Roles.SEQUENCE, Roles.DECODER, Roles.ENCODER})
_FROM_SETTINGS: Mapping[tuple[Purpose | None, str], tuple[str, ...]] = {
    (Purpose.CACHE, Roles.HEADS): ("num_key_value_heads", "num_attention_heads", "n_head", "num_heads"),
    (Purpose.CACHE, Roles.FEATURES): ("head_dim", "d_kv"),
    (Purpose.HIDDEN, Roles.FEATURES): ("hidden_size", "d_model", "n_embd"),
    (Purpose.SPECTRUM, Roles.FEATURES): ("num_mel_bins", "feature_size"),
    (None, Roles.HEIGHT): ("image_size",),
    (None, Roles.WIDTH): ("image_size",),
    (None, Roles.CHANNELS): ("num_channels",),
    (None, Roles.ENCODER): ("max_source_positions",),
}
"""Keys of config.json that give the size of an axis, by the input's purpose (None: any) and the role."""
_LONGEST_DEFAULT = 1 << 20
"""Most bytes of a config.json that are read."""
_MOST = 1 << 20
"""Largest size that is accepted from it."""


class Defaults(Frozen):
    """Sizes that neither the user nor the file gives."""

    lookups: Lookups
    settings: Mapping[str, object]
    has_decoder: bool = False
    """Whether an encoder and a decoder both have inputs."""
    room: int | None = None
    """Tokens that fit in a cache of fixed size."""
    is_stream: bool = False
    """Whether the model takes a long input piece by piece, and passes on a state."""

    def size(self, part: KnownInput | None, position: int, role: str, past: int) -> tuple[int, str]:
        """Return the size of an axis, or of a role without a part, and why. `past` is the length of a cache."""
        found = None if part is None else self._known(part, position, role)
        if found is not None:
            return found
        if role in _SEQUENCES:
            return self._sequence(role, past)
        if role == Roles.CHANNELS:
            is_sound = part is not None and part.purpose is Purpose.WAVEFORM
            return 1 if is_sound else 3, f"default of {role}"
        if role == Roles.SAMPLES and self.is_stream:
            return _PIECE, f"default of {role}, of a stream"
        if role == Roles.FRAMES and part is not None and part.purpose is Purpose.IMAGE:
            return 1, f"default of {role}"
        return _SIZES.get(role, 1), f"default of {role}"

    def _known(self, part: KnownInput, position: int, role: str) -> tuple[int, str] | None:
        """Return the size that the weights, or else config.json, imply."""
        use = self.lookups.uses.get(part.value_type.name, Use())
        if role == Roles.FEATURES and use.features is not None and position == len(part.roles) - 1:
            return use.features, "weights"
        if use.channels is not None and (
            role == Roles.CHANNELS or (position == 1 and part.purpose is Purpose.SPECTRUM)
        ):
            return use.channels, "weights"
        for purpose in (part.purpose, None):
            for key in _FROM_SETTINGS.get((purpose, role), ()):
                size = _as_size(self.settings.get(key), role)
                if size is not None:
                    return size, f"config.json {key}"
        return None

    def _sequence(self, role: str, past: int) -> tuple[int, str]:
        if past and self.room is None and role == (Roles.DECODER if self.has_decoder else Roles.SEQUENCE):
            return 1, f"default of {role} after a past"
        limits = ((self.lookups.positions, "position table"), (self.room, "room of the cache"))
        found = [(size, why) for size, why in limits if size is not None and 0 < size < _SEQUENCE]
        return min(found, default=(_SEQUENCE, f"default of {role}"))


def _as_size(value: object, role: str) -> int | None:
    if isinstance(value, list) and len(value) == 2:
        value = value[role == Roles.WIDTH]
    is_size = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST
    return value if is_size and isinstance(value, int) else None


def read_settings(paths: Sequence[Path]) -> Mapping[str, object]:
    """Read the config.json beside a model, or in the parent of a folder called `onnx`; empty without one."""
    if not paths:
        return {}
    folder = paths[0].parent
    for place in (folder, folder.parent) if folder.name == "onnx" else (folder,):
        try:
            with (place / "config.json").open("rb") as file:
                content = json.loads(file.read(_LONGEST_DEFAULT))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(content, dict):
            inner = [content.get(key) for key in ("vision_config", "text_config")]
            found: dict[str, object] = {}
            for part in inner:
                found.update(part if isinstance(part, dict) else {})
            return {**found, **content}
    return {}


class RequestedSizes(Frozen):
    """Sizes that the user requested for axes."""

    sizes: tuple[tuple[str, int], ...] = ()
    past: int | None = None
    arrays: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Inputs in `--input`, and their shapes."""
    roles: tuple[tuple[str, int, str], ...] = ()
    """Sizes that the surrounding loop gives to roles: (role, size, reason)."""


Default = Callable[[KnownInput | None, int, str, int], tuple[int, str]]
"""Function of an input, its axis's position and role, and the past, that returns the default size and the reason;
without an input, those of the role."""

_TOTALS = {Roles.TOTAL: Roles.SEQUENCE, Roles.DECODER_TOTAL: Roles.DECODER}
"""Roles whose size is that of the past plus a sequence."""
_OWN = frozenset({Roles.CHANNELS, Roles.FEATURES, Roles.HEADS, Roles.OTHER})
"""Roles whose size may differ from input to input."""


def size_axes(
    parts: Sequence[KnownInput], sides: Sides, requested: RequestedSizes, default: Default
) -> tuple[Axis, ...]:
    """Give every axis its size: from the file, from the user, or a default.

    Raises:
        UsageError: a name names nothing, or two sizes contradict each other.
    """
    solver = _Solver(parts, sides, default)
    for name, shape in requested.arrays:
        solver.bind_array(name, shape)
    for key, size in requested.sizes:
        solver.bind(key, size)
    if requested.past is not None:
        solver.bind_past(requested.past)
    for role, size, reason in requested.roles:
        solver.bind_role(role, size, reason)
    solver.check_roles()
    return solver.solve()


def bind_axes(
    parts: Sequence[KnownInput], sides: Sides, sizes: Iterable[tuple[str, int]]
) -> Mapping[Slot, int]:
    """Return the sizes of the axes that the file fixes and of those that the user requested; others stay free.

    Raises:
        UsageError: a name names nothing, or two sizes contradict each other.
    """
    solver = _Solver(parts, sides, _no_default)
    for key, size in sizes:
        solver.bind(key, size)
    solver.check_roles()
    solver.spread()
    return {slot: size for slot, (size, _) in solver.sizes.items()}


def _no_default(part: KnownInput | None, position: int, role: str, past: int) -> tuple[int, str]:
    raise NotImplementedError("only requested sizes are bound")


def roles_of_name(parts: Sequence[KnownInput], sides: Sides, name: str, default: Default) -> frozenset[str]:
    """Return the roles of the axes that `--shape` means by a name.

    Raises:
        UsageError: it means none.
    """
    slots, role = _Solver(parts, sides, default).names.find(name)
    found = {parts[number].roles[position] for number, position in slots}
    return frozenset(found if role is None else {*found, role})


class _Solver:
    """Sizes of axes, settled one after the other."""

    def __init__(self, parts: Sequence[KnownInput], sides: Sides, default: Default) -> None:
        self.parts = parts
        self.sides = sides
        self.default = default
        self.numbers = {part.value_type.name: number for number, part in enumerate(parts)}
        self.symbols: dict[str, list[Slot]] = defaultdict(list)
        self.roles: dict[str, list[Slot]] = defaultdict(list)
        self.sizes: dict[Slot, tuple[int, str]] = {}
        self.first_sized: dict[str, Slot] = {}
        """For each role, the first axis that got a size."""
        self.requested: dict[str, tuple[int, str]] = {}
        """Requested sizes of roles."""
        is_nameless = all(part.value_type.name.isdecimal() for part in parts)
        for number, part in enumerate(parts):
            for position, (dim, role) in enumerate(zip(part.dims, part.roles, strict=True)):
                slot = number, position
                self.roles[role].append(slot)
                fixed = fixed_size(dim, is_nameless=is_nameless)
                if fixed is not None:
                    self._set(slot, (fixed, "file"))
                elif isinstance(dim, str):
                    self.symbols[dim].append(slot)
        self.names = AxisNames(parts, self.symbols, self.roles)

    def _set(self, slot: Slot, size: tuple[int, str]) -> tuple[int, str]:
        """Give an axis a size unless it has one; return the size that it has then."""
        if self.parts[slot[0]].purpose is not Purpose.OTHER:
            self.first_sized.setdefault(self._role_of(slot), slot)
        return self.sizes.setdefault(slot, size)

    # requested sizes

    def bind_array(self, name: str, shape: tuple[int, ...]) -> None:
        for position, size in enumerate(shape):
            self._bind_slot((self.numbers[name], position), size, "--input")

    def bind_past(self, past: int) -> None:
        self.bind_role(Roles.PAST, past, "--past")

    def bind(self, key: str, size: int) -> None:
        """Apply one `--shape`."""
        reason = f"--shape {key}"
        slots, role = self.names.find(key)
        bound: set[Slot] = set()
        for slot in slots:
            if slot not in bound:  # all axes of one name are bound at once
                bound.update(self._bind_slot(slot, size, reason))
        if role is not None:
            self.bind_role(role, size, reason)

    def bind_role(self, role: str, size: int, reason: str) -> None:
        if role not in self.roles:
            raise UsageError(f"{reason}: no input of the model is a {role}; {self.names.listing()}")
        known = self.requested.setdefault(role, (size, reason))
        if known[0] != size:
            raise UsageError(f"{reason} {size:,} contradicts {known[1]} {known[0]:,}; give {role} one size")

    def _bind_slot(self, slot: Slot, size: int, reason: str) -> Sequence[Slot]:
        """Give a size to an axis, and to all axes of the same name; return them."""
        dim = self._dim(slot)
        is_symbol = isinstance(dim, str) and slot in self.symbols.get(dim, ())
        slots = self.symbols[dim] if is_symbol and isinstance(dim, str) else [slot]
        for other in slots:
            known = self._set(other, (size, reason))
            if known[0] != size:
                raise self._conflict(other, size, reason)
        return slots

    def check_roles(self) -> None:
        """Give axes the sizes of their roles; an axis fixed by the file or by its name keeps its size.

        Raises:
            UsageError: a role's axes have another size.
        """
        for role, (size, reason) in self.requested.items():
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

    # other sizes

    def solve(self) -> tuple[Axis, ...]:
        self.spread()
        left = sorted(slot for slots in self.roles.values() for slot in slots if slot not in self.sizes)
        for slot in sorted(
            left, key=self._rank
        ):  # a sum after its terms, and computed sizes after all others
            if slot not in self.sizes:
                dim = self._dim(slot)
                found = self._evaluate(dim) if isinstance(dim, str) else None
                self._settle(slot, found or self._usual(slot))
        return tuple(self._axes())

    def _rank(self, slot: Slot) -> int:
        dim = self._dim(slot)
        is_computed = isinstance(dim, str) and parse_size(dim) is not None
        return 2 if is_computed else int(self._role_of(slot) in _TOTALS)

    def spread(self) -> None:
        """Give axes of one name the same size, even if one of them got it from a role."""
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
        """Return the size of an axis by its role; of axes with one name, by the role of one that is no sum."""
        dim = self._dim(slot)
        shared = self.symbols.get(dim, [slot]) if isinstance(dim, str) else [slot]
        best = next((other for other in shared if self._role_of(other) not in _TOTALS), slot)
        role = self._role_of(best)
        return self._size_of(role, best)

    def _size_of(self, role: str, slot: Slot | None = None) -> tuple[int, str]:
        """Return the size of a role: the requested one, that of other axes, what is left of a sum, or the default."""
        if role in self.requested:
            return self.requested[role]
        if role not in _OWN and role in self.first_sized:
            size, why = self.sizes[self.first_sized[role]]
            return size, why if why.startswith("default") else f"as {self._name(self.first_sized[role])}"
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
        """Return the rest of a known sum for the past, or for the sequence."""
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
        if role in self.requested:
            return self.requested[role][0]
        return self.sizes[self.first_sized[role]][0] if role in self.first_sized else None

    def _evaluate(self, text: str) -> tuple[int, str] | None:
        """Compute a size from others: `s41 + s52`, `past_sequence_length + 1`."""
        parsed = parse_size(text)
        size = None if parsed is None else compute_size(parsed, self._value)
        return None if size is None or not 0 <= size <= LARGEST else (size, text)

    def _value(self, name: str) -> int | None:
        slots = self.symbols.get(name)
        if slots:
            return self.sizes[slots[0]][0] if slots[0] in self.sizes else None
        role = self.sides.hinted(name.lower())
        return None if role is None else self._size_of(role)[0]

    # names and messages

    def _dim(self, slot: Slot) -> int | str | None:
        return self.parts[slot[0]].dims[slot[1]]

    def _role_of(self, slot: Slot) -> str:
        return self.parts[slot[0]].roles[slot[1]]

    def _name(self, slot: Slot) -> str:
        return self.parts[slot[0]].value_type.name

    def _axes(self) -> Iterator[Axis]:
        for number, part in enumerate(self.parts):
            for position, (dim, role) in enumerate(zip(part.dims, part.roles, strict=True)):
                size, reason = self.sizes[number, position]
                name = dim if isinstance(dim, str) else None
                yield Axis(part.value_type.name, position, name, role, size, reason)

    def _conflict(self, slot: Slot, size: int, reason: str) -> UsageError:
        known, why = self.sizes[slot]
        place = f"axis {slot[1]} of {printable(self._name(slot))}"
        if why == "file" and reason.startswith("--shape "):
            if _are_fixed(self.parts):
                return UsageError(_ALL_FIXED)
            key = printable(reason.removeprefix("--shape "))
            return UsageError(f"the file fixes {place} at {known:,}; leave {key} out of --shape")
        because = {"file": "the file fixes it to", "--input": "--input has"}.get(
            why, f"{printable(why)} gives it"
        )
        return UsageError(
            f"{printable(reason)}: {place} would have {size:,}, and {because} {known:,}; make them agree"
        )
