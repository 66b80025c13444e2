"""Recorded pass of PyTorch, and a file's values -> the first call that the file does not compute, and its replacement.

A call is identified by its result: the file has a value with the same elements, in whatever order, or it has none. A
call that the file has fused into another is no fault: the file has a value computed from it. Of the calls that remain,
those that depend on no other of them are where the two sides part. Possible replacements are then tried: other
settings, operators, weights, a module skipped or repeated. An attempt counts if later calls are then found in the
file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from analyzer.errors import ExportError
from analyzer.model.content import Array
from analyzer.model.operators import MOVES
from analyzer.records import Frozen, Mutable, field, replace
from analyzer.verify.prints import TOLERANCE_FACTOR, Finder, Likeness, Print, noise_between, print_of
from analyzer.verify.side import Attempt, Call, ModuleCall, Recording, Side, Value

MOVING = frozenset(
    {
        *(
            "view",
            "reshape",
            "transpose",
            "permute",
            "contiguous",
            "to",
            "float",
            "type_as",
            "expand",
            "squeeze",
        ),
        *("unsqueeze", "flatten", "dropout", "clone", "detach", "getitem", "split", "chunk", "t", "T", "mT"),
        *("expand_as", "view_as", "narrow", "select", "unbind", "repeat_interleave", "movedim", "swapaxes"),
        *("split_with_sizes", "unflatten", "numpy_T", "alias", "half", "double", "bfloat16", "setitem"),
        *("arange", "zeros", "ones", "full", "empty", "zeros_like", "ones_like", "new_zeros", "new_ones"),
        *(MOVES - {"Where", "Concat"}),
    }
)
"""Calls that compute nothing: they return their input, a part of it, or no activation."""
STEPS = frozenset(
    {
        *("floor", "ceil", "round", "trunc", "fix", "sign", "sgn", "heaviside", "floor_divide", "hardmax"),
        *("Floor", "Ceil", "Round", "Sign", "Hardmax"),
    }
)
"""Step functions: calls that map many numbers to one, though its type need not be an integer."""
_HORIZON = 10
"""Number of calls in `Parted.chain`; attempts replace no module that begins after the last of them."""
_JUDGED = 4
"""Number of calls after the replaced one that are compared."""
_CHAIN = 8
"""Number of calls, from the first that parts, that attempts may replace."""
_PARTS = ("no bias", "no weight")
"""Attempts whose result any right file has as an intermediate value: it is no evidence."""
_FAR = 4
"""Calls from one that the file lacks to the next that it has: more than any tool fuses, except for attention."""
_TOLERANCE_FACTORS = (TOLERANCE_FACTOR, TOLERANCE_FACTOR / 4, TOLERANCE_FACTOR / 12)
"""Factors on the noise within which values are right; smaller ones find a small difference that a later sum hides."""
_MOST_SECONDS = 20.0
_MOST_ATTEMPTS = 120


class Seen(Mutable):
    """Call of a pass, and the file's value that equals its result."""

    call: Call
    prints: tuple[Print, ...]
    noises: tuple[float, ...] = ()
    found: Likeness | None = None
    is_bad: bool = False
    """Whether the call can be identified and the file has neither its result nor any value computed from it."""

    @property
    def is_identifiable(self) -> bool:
        """Whether the call computes a value that can be looked up."""
        return self.call.operator not in MOVING and any(each.is_identifiable for each in self.prints)


class Pass(Frozen):
    """Forward pass, with the prints of its values."""

    seen: tuple[Seen, ...]
    recording: Recording


class Cause(Frozen):
    """Cause that an attempt has shown: the file's replacement for a part."""

    module: str
    operator: str
    kind: str
    expected: str
    found: str
    explained: int
    """Number of calls whose results the file has, once the part is replaced."""
    of: int
    """Number of calls that were compared."""


class Parted(Frozen):
    """First call where the two sides part."""

    call: Call
    chain: tuple[Call, ...]
    """This call and the next ones that depend on it and that the file lacks, at most `_HORIZON`."""
    frontier: tuple[str, ...]
    """Names of the file's values from which the call is computed."""
    cause: Cause | None
    expected: tuple[int, ...] | None = None
    """Calls that make the call's inputs, with the calls that only move these; None where the file has fused a maker
    away."""
    later: tuple[Call, ...] = ()
    """This call and all that depend on it and that the file lacks."""


def record_pass(side: Side, feeds: Mapping[str, Array], precision: str = "single") -> Pass:
    """Run PyTorch's side, and keep a print of each value; a run in another precision measures rounding.

    Raises:
        ExportError: forward fails.
    """
    seen: list[Seen] = []

    def add_seen(call: Call, values: Sequence[Value]) -> None:
        seen.append(Seen(call, tuple(map(_to_print, values))))

    recording = side.record(feeds, add_seen)
    others: dict[int, tuple[Print, ...]] = {}

    def add_other(call: Call, values: Sequence[Value]) -> None:
        if call.number < len(seen) and seen[call.number].call.operator == call.operator:
            others[call.number] = tuple(map(_to_print, values))

    try:
        side.record(feeds, add_other, precision if precision != "single" else "double")
    except ExportError:
        others = {}
    for each in seen:
        twin = others.get(each.call.number, ())
        noises = tuple(noise_between(one, other) for one, other in zip(each.prints, twin, strict=False))
        each.noises = noises if len(noises) == len(each.prints) else (0.0,) * len(each.prints)
    return Pass(tuple(seen), recording)


def _to_print(value: Value) -> Print:
    return value if isinstance(value, Print) else print_of(value)


def mark_bad_calls(passed: Pass, finder: Finder, *, through_choices: bool = True) -> None:
    """Look up each call's result in the file, and mark the bad calls among those that an output depends on.

    Args:
        passed: the pass.
        finder: finder of the file's values.
        through_choices: whether a value computed from a choice (`chooses`) is evidence for the inputs of the choice.
    """
    for each in passed.seen:
        each.found = _look_up(each, finder)
    has_found_after = [False] * len(passed.seen)
    children: list[list[int]] = [[] for _ in passed.seen]
    for each in passed.seen:
        for parent in each.call.parents if through_choices or not chooses(each) else ():
            if parent < each.call.number:
                children[parent].append(each.call.number)
    for number in range(len(passed.seen) - 1, -1, -1):
        has_found_after[number] = any(
            has_found_after[child]
            or (passed.seen[child].is_identifiable and passed.seen[child].found is not None)
            for child in children[number]
        )
    live = live_calls(passed)
    for number, each in enumerate(passed.seen):
        each.is_bad = (
            number in live and each.is_identifiable and each.found is None and not has_found_after[number]
        )


def chooses(seen: Seen) -> bool:
    """Whether a call returns indices, booleans or integers, or is a step function: many inputs lead to one result."""
    return seen.call.operator in STEPS or any(not each.is_float for each in seen.prints)


def live_calls(passed: Pass) -> set[int]:
    """Return the calls that an output depends on (not an unused pooler, say); all where this is unknown."""
    waiting = [number for number in passed.recording.made if number < len(passed.seen)]
    found = set(waiting)
    while waiting:
        parents = {
            parent for parent in passed.seen[waiting.pop()].call.parents if parent < len(passed.seen)
        } - found
        found |= parents
        waiting += parents
    return found or {*range(len(passed.seen))}


def _look_up(seen: Seen, finder: Finder) -> Likeness | None:
    """Return the file's value that equals a call's result; of several results the first, if all are found."""
    found: Likeness | None = None
    for each, noise in zip(seen.prints, seen.noises, strict=True):
        if not each.is_identifiable:
            continue
        likeness = finder.find(each, noise)
        if likeness is None:
            return None
        found = found or likeness
    return found


def find_parted(
    side: Side,
    feeds: Mapping[str, Array],
    passed: Pass,
    finder: Finder,
    numbers: Sequence[float],
    is_known: Callable[[Parted, Pass], bool],
    *,
    through_choices: bool = True,
) -> Parted | None:
    """Return the first call that the file does not compute, with its replacement; None where the file has all.

    Args:
        side: PyTorch's side.
        feeds: inputs of the pass.
        passed: the pass.
        finder: finder of the file's values.
        numbers: numbers that the file has.
        is_known: function that says whether the cause is known without an attempt.
        through_choices: as of `mark_bad_calls`; if false, the outputs are the same, and only calls before choices
            may part.
    """
    bad: list[Seen] = []
    for finder.tolerance_factor in _TOLERANCE_FACTORS if through_choices else _TOLERANCE_FACTORS[:1]:
        mark_bad_calls(passed, finder, through_choices=through_choices)
        bad = [each for each in passed.seen if each.is_bad]
        lost = _find_lost(passed, _FAR if bad else 1) if through_choices else []
        bad = sorted([*bad, *lost], key=lambda each: each.call.number)
        if bad:
            break
    else:
        finder.tolerance_factor = _TOLERANCE_FACTORS[0]
        mark_bad_calls(passed, finder)
        return None
    affected: set[int] = set()
    for each in passed.seen:
        if each.is_bad or affected.intersection(each.call.parents):
            affected.add(each.call.number)
    origins = [each for each in bad if not affected.intersection(each.call.parents)]
    origin = _first_unfused(origins, passed) or (origins or bad)[0]
    reordered = _find_reordered(origin, passed, finder)
    if reordered is not None:
        origin, bad = reordered, [reordered, *bad]
    chain = _descendants(origin, bad, passed)
    frontier = tuple(dict.fromkeys(_frontier(origin, passed)))
    expected = _expected(origin, passed)
    later = tuple(each.call for each in chain)
    parted = Parted(origin.call, later[:_HORIZON], frontier, None, expected, later)
    if is_known(parted, passed):
        return parted
    search = _Search(side, feeds, passed, finder, tuple(numbers), origin, chain)
    return replace(parted, cause=search.find())


def _find_lost(passed: Pass, least: int) -> list[Seen]:
    """Find calls that the file lacks though it has a value computed from them; elsewhere it has calls of their kind.

    A small difference is lost when a large value is added: later values are off, but too little to tell. So the next
    value that the file has comes only after `least` calls; a fused call has one at once.
    """
    seen = passed.seen
    after = [len(seen)] * len(seen)
    for each in reversed(seen):
        own = (
            0
            if each.is_identifiable and each.found is not None
            else after[each.call.number] + each.is_identifiable
        )
        for parent in each.call.parents:
            if parent < each.call.number:
                after[parent] = min(after[parent], own)
    found = {_kind(each) for each in seen if each.is_identifiable and each.found is not None}
    live = live_calls(passed)
    lost = [
        each
        for each in seen
        if each.is_identifiable
        and each.call.number in live
        and each.found is None
        and not each.is_bad
        and _kind(each) in found
        and after[each.call.number] + 1 >= least
    ]
    for each in lost:
        each.is_bad = True
    return lost


def _find_reordered(origin: Seen, passed: Pass, finder: Finder) -> Seen | None:
    """Return the first call before the parting one whose elements the file has in the same shape, but another order."""
    waiting, done = list(origin.call.parents), set[int]()
    found: Seen | None = None
    while waiting:
        number = waiting.pop()
        if number in done or number >= len(passed.seen):
            continue
        done.add(number)
        each = passed.seen[number]
        if not each.is_identifiable:
            waiting += each.call.parents
            continue
        likeness = each.found
        if (
            likeness is None
            or likeness.is_ordered
            or finder.known[likeness.name].shape != each.prints[0].shape
        ):
            continue
        found = each if found is None or number < found.call.number else found
        waiting += each.call.parents
    return found


def _first_unfused(origins: Sequence[Seen], passed: Pass) -> Seen | None:
    """Return the first origin of a kind that the file does not also lack where all is well."""
    fused = {
        _kind(each) for each in passed.seen if each.is_identifiable and each.found is None and not each.is_bad
    }
    return next((each for each in origins if _kind(each) not in fused), None)


def _kind(seen: Seen) -> tuple[str, str, int]:
    return seen.call.class_name, seen.call.operator, seen.call.ordinal


def _descendants(origin: Seen, bad: Sequence[Seen], passed: Pass) -> list[Seen]:
    """Return the origin and the bad calls that depend on it."""
    reached = {origin.call.number}
    for each in passed.seen[origin.call.number + 1 :]:
        if reached.intersection(each.call.parents):
            reached.add(each.call.number)
    return [each for each in bad if each.call.number in reached]


def _ancestors(call: Call, passed: Pass, is_end: Callable[[Seen], bool]) -> Iterator[Seen]:
    """Yield the calls from which a call is computed, the nearest first; stop at calls that are an end."""
    waiting, done = list(call.parents), set[int]()
    while waiting:
        number = waiting.pop(0)
        if number in done or number >= len(passed.seen):
            continue
        done.add(number)
        each = passed.seen[number]
        yield each
        if not is_end(each):
            waiting += each.call.parents


def _is_identifiable(seen: Seen) -> bool:
    return seen.is_identifiable


def _frontier(origin: Seen, passed: Pass) -> Iterator[str]:
    """Yield the file's values that hold a call's inputs, across calls that only move them."""
    for each in _ancestors(origin.call, passed, lambda seen: seen.found is not None or seen.is_identifiable):
        if each.found is not None:
            yield each.found.name


def makers_of(call: Call, passed: Pass) -> tuple[int, ...]:
    """Return the calls that make a call's inputs, across calls that only move them."""
    return tuple(
        each.call.number for each in _ancestors(call, passed, _is_identifiable) if each.is_identifiable
    )


def _expected(origin: Seen, passed: Pass) -> tuple[int, ...] | None:
    """Return the calls that make and that move a call's inputs; None where the file lacks a maker's result."""
    behind = list(_ancestors(origin.call, passed, _is_identifiable))
    if any(each.is_identifiable and each.found is None for each in behind):
        return None
    return tuple(sorted(each.call.number for each in behind))


class _Choice(Frozen):
    """Possible replacement for a place."""

    place: int | str
    module: str
    operator: str
    index: int
    description: tuple[str, str, str]
    print_: Print


class _Search(Mutable):
    side: Side
    feeds: Mapping[str, Array]
    passed: Pass
    finder: Finder
    numbers: tuple[float, ...]
    origin: Seen
    chain: list[Seen]
    """Bad calls that depend on the origin, from the origin on."""
    known: set[str] = field(default_factory=set)
    """Names of the file's values that equal results of calls as they stand."""
    tried: int = 0
    start: float = 0.0

    def find(self) -> Cause | None:
        """Return the cause that explains most of the calls that follow.

        Attempts come in this order: those whose own result is in the file, where PyTorch has it nowhere else; those
        whose result is there anyway, such as an omitted call; the others, which the file may have fused.
        """
        self.start = time.process_time()
        self.known = {each.found.name for each in self.passed.seen if each.found is not None}
        later: list[_Choice] = []
        rest: list[_Choice] = []
        best: Cause | None = None
        for place, module, operator in self._places():
            direct: list[_Choice] = []
            is_before = isinstance(place, int) and place < self.origin.call.number
            for choice in self._choices(place, module, operator):
                names = {each.name for each in self.finder.all_like(choice.print_, self._noise(place))}
                if names - self.known:
                    direct.append(choice)
                elif is_before:  # the file has its result, and reads another value with it, or none
                    continue
                elif names:
                    later.append(choice)
                else:
                    rest.append(choice)
            best = self._best(direct[:12], best)
            if best is not None and best.explained > 1:
                return best
        best = self._best(later, best)
        if best is not None and best.explained:
            return best
        return self._best(rest, best)

    def _best(self, choices: Sequence[_Choice], best: Cause | None) -> Cause | None:
        for choice in choices:
            if time.process_time() - self.start > _MOST_SECONDS or self.tried > _MOST_ATTEMPTS:
                return best
            explained, of = self._try(
                Attempt(choice.place, choice.index, self.numbers), choice.description[2]
            )
            if explained and (best is None or explained > best.explained):
                kind, expected, found = choice.description
                best = Cause(choice.module, choice.operator, kind, expected, found, explained, of)
                if explained >= min(of, 3) > 1:
                    return best
        return best

    def _choices(self, place: int | str, module: str, operator: str) -> list[_Choice]:
        found: list[_Choice] = []

        def add_choice(index: int, description: tuple[str, str, str], value: Value | None) -> None:
            print_ = None if value is None else _to_print(value)
            if print_ is not None and print_.numel:
                found.append(_Choice(place, module, operator, index, description, print_))

        try:
            self.side.alternatives(self.feeds, place, self.numbers, add_choice)
        except (ExportError, KeyError):
            return []
        return found

    def _noise(self, place: int | str) -> float:
        """Return the noise of a call's result, or of a module's."""
        number = place
        if isinstance(place, str):
            number = next((m.made for m in self.passed.recording.modules if m.module == place), None) or 0
        assert isinstance(number, int)
        return max(self.passed.seen[number].noises, default=0.0)

    def _places(self) -> Iterator[tuple[int | str, str, str]]:
        """Yield calls and modules that may be replaced, the likeliest first."""
        number = self.origin.call.number
        yield number, self.origin.call.module, self.origin.call.operator
        for parent in self.origin.call.parents:
            if parent < number and self.passed.seen[parent].is_identifiable:
                call = self.passed.seen[parent].call
                yield parent, call.module, call.operator
        around = [
            each
            for each in self.passed.recording.modules
            if each.first <= number <= each.last and self._is_bad(each)
        ]
        for module in sorted(around, key=lambda each: each.last - each.first):
            yield module.module, module.module, module.class_name
        for each in self.chain[1:_CHAIN]:
            yield each.call.number, each.call.module, each.call.operator
        later = [
            each
            for each in self.passed.recording.modules
            if number < each.first <= self.chain[:_HORIZON][-1].call.number and self._is_bad(each)
        ]
        for module in later[:6]:
            yield module.module, module.module, module.class_name

    def _is_bad(self, module: ModuleCall) -> bool:
        return module.made is not None and module.made < len(self.passed.seen)

    def _try(self, attempt: Attempt, alternative: str) -> tuple[int, int]:
        """Return how many of the calls that follow are in the file after an attempt, and how many were compared.

        The replaced call's own result counts too, unless any file has it, such as a product without its bias.
        """
        self.tried += 1
        place = attempt.place
        if isinstance(place, str):
            module = next(each for each in self.passed.recording.modules if each.module == place)
            after = module.last
        else:
            after = place
        judged = [each for each in self.chain if each.call.number > after][:_JUDGED]
        wanted = {each.call.number: each for each in judged}
        is_own = isinstance(place, int) and place >= self.origin.call.number and alternative not in _PARTS
        if isinstance(place, int) and is_own and self.passed.seen[place].is_identifiable:
            wanted[place] = self.passed.seen[place]
        if not wanted:
            return 0, 0
        explained = 0

        def count_explained(call: Call, values: Sequence[Value]) -> None:
            nonlocal explained
            each = wanted.get(call.number)
            if each is None or call.operator != each.call.operator:
                return
            made = Seen(call, tuple(map(_to_print, values)), each.noises)
            if len(made.prints) != len(each.prints):
                return
            likeness = _look_up(made, self.finder)
            if likeness is not None and likeness.name not in self.known:
                explained += 1

        judged_attempt = replace(attempt, judged=tuple(wanted))
        try:
            self.side.record(self.feeds, count_explained, "single", judged_attempt, max(wanted))
        except ExportError:
            return 0, len(wanted)
        return explained, len(wanted)
