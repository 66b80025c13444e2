"""A recorded pass of PyTorch, and a file's values -> the first call that the file does not compute, and what it does.

A call is known by what it gives: the file has a value with the same elements, in whatever order, or it has none. What
the file has fused away is no fault: something that is computed of it is there. What is left, and depends on nothing
else that is left, is where the two part. What the file computes in its place is tried: other settings, operators,
weights, a module skipped or repeated; an attempt counts where the calls after it are found in the file then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from analyzer.errors import ExportError
from analyzer.model.content import Array
from analyzer.model.operators import MOVES
from analyzer.records import Frozen, Mutable, field, replace
from analyzer.verify.prints import ROOM, Finder, Likeness, Print, noise_between, print_of
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
"""Calls that compute nothing: what they give is what they are given, or a part of it, or no activation."""
STEPS = frozenset(
    {
        *("floor", "ceil", "round", "trunc", "fix", "sign", "sgn", "heaviside", "floor_divide", "hardmax"),
        *("Floor", "Ceil", "Round", "Sign", "Hardmax"),
    }
)
"""Calls that give one number for many, though it is no whole number by its type."""
_HORIZON = 10
"""Calls after the first that parts, of those that the file does not have, that an attempt is judged by."""
_JUDGED = 4
"""Of them, those that follow what is exchanged."""
_CHAIN = 8
"""Of them, those in whose place something is tried."""
_PARTS = ("no bias", "no weight")
"""What is there on the way to what is right."""
_FAR = 4
"""Calls after one that the file lacks, to the next that it has: more than any tool fuses, but for attention."""
_ROOMS = (ROOM, ROOM / 4, ROOM / 12)
"""Times the noise that right values may be off: less where a small difference is lost in what it is added to."""
_MOST_SECONDS = 20.0
_MOST_ATTEMPTS = 120


class Seen(Mutable):
    """A call, and where in the file what it gives is."""

    call: Call
    prints: tuple[Print, ...]
    noises: tuple[float, ...] = ()
    found: Likeness | None = None
    is_bad: bool = False
    """Whether it is told from others, not in the file, and nothing that is computed of it is."""

    @property
    def is_telling(self) -> bool:
        """Whether it computes something that can be looked up."""
        return self.call.operator not in MOVING and any(each.is_telling for each in self.prints)


class Pass(Frozen):
    """A forward pass, with what is kept of each value."""

    seen: tuple[Seen, ...]
    recording: Recording


class Cause(Frozen):
    """What the file computes in the place of something, as an attempt has shown."""

    module: str
    operator: str
    kind: str
    expected: str
    found: str
    explained: int
    """Calls that are in the file then."""
    of: int
    """Calls that could be."""


class Parted(Frozen):
    """Where the two part."""

    call: Call
    chain: tuple[Call, ...]
    """This call and the next ones that the file does not have."""
    frontier: tuple[str, ...]
    """The file's values that the call is computed of."""
    cause: Cause | None
    expected: tuple[int, ...] | None = None
    """The calls that make what the call is given, past what only moves it; None where the file has fused one away."""
    later: tuple[Call, ...] = ()
    """This call and all that depend on it, and that the file does not have."""


def record_pass(side: Side, feeds: Mapping[str, Array], precision: str = "single") -> Pass:
    """Run PyTorch's side, and keep of each value what tells it from others; rounding is measured by another precision.

    Raises:
        ExportError: forward fails.
    """
    seen: list[Seen] = []

    def told(call: Call, values: Sequence[Value]) -> None:
        seen.append(Seen(call, tuple(map(_keep, values))))

    recording = side.record(feeds, told)
    others: dict[int, tuple[Print, ...]] = {}

    def again(call: Call, values: Sequence[Value]) -> None:
        if call.number < len(seen) and seen[call.number].call.operator == call.operator:
            others[call.number] = tuple(map(_keep, values))

    try:
        side.record(feeds, again, precision if precision != "single" else "double")
    except ExportError:
        others = {}
    for each in seen:
        twin = others.get(each.call.number, ())
        noises = tuple(noise_between(one, other) for one, other in zip(each.prints, twin, strict=False))
        each.noises = noises if len(noises) == len(each.prints) else (0.0,) * len(each.prints)
    return Pass(tuple(seen), recording)


def _keep(value: Value) -> Print:
    return value if isinstance(value, Print) else print_of(value)


def settle(passed: Pass, finder: Finder, *, through_choices: bool = True) -> None:
    """Say of each call whether the file has what it gives, and which are bad: of those that an output depends on.

    Args:
        passed: the pass.
        finder: of the file's values.
        through_choices: whether what is computed of a choice (`chooses`) says anything of what it was made of.
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
            has_found_after[child] or (passed.seen[child].is_telling and passed.seen[child].found is not None)
            for child in children[number]
        )
    live = live_calls(passed)
    for number, each in enumerate(passed.seen):
        each.is_bad = (
            number in live and each.is_telling and each.found is None and not has_found_after[number]
        )


def chooses(seen: Seen) -> bool:
    """Whether a call gives places, truth values or whole numbers: many values that it is given lead to the same."""
    return seen.call.operator in STEPS or any(not each.is_float for each in seen.prints)


def live_calls(passed: Pass) -> set[int]:
    """The calls that an output depends on, as a pooler that a larger model does not use is not; all if nobody knows."""
    left = [number for number in passed.recording.made if number < len(passed.seen)]
    found = set(left)
    while left:
        parents = {
            parent for parent in passed.seen[left.pop()].call.parents if parent < len(passed.seen)
        } - found
        found |= parents
        left += parents
    return found or {*range(len(passed.seen))}


def _look_up(seen: Seen, finder: Finder) -> Likeness | None:
    """The file's value that is what a call gives; of several results the first, where all are found."""
    found: Likeness | None = None
    for each, noise in zip(seen.prints, seen.noises, strict=True):
        if not each.is_telling:
            continue
        like = finder.find(each, noise)
        if like is None:
            return None
        found = found or like
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
    """The first call that the file does not compute, with what it computes instead; None where it has all.

    Args:
        side: PyTorch's.
        feeds: of the pass.
        passed: the pass.
        finder: of the file's values.
        numbers: that the file has.
        is_known: says whether the cause is known without a trial.
        through_choices: as of `settle`; where not, the outputs are the same, and only what is in front of choices may
            part.
    """
    bad: list[Seen] = []
    for finder.room in _ROOMS if through_choices else _ROOMS[:1]:
        settle(passed, finder, through_choices=through_choices)
        bad = [each for each in passed.seen if each.is_bad]
        far = _lost(passed, _FAR if bad else 1) if through_choices else []
        bad = sorted([*bad, *far], key=lambda each: each.call.number)
        if bad:
            break
    else:
        finder.room = _ROOMS[0]
        settle(passed, finder)
        return None
    spoiled: set[int] = set()
    for each in passed.seen:
        if each.is_bad or spoiled.intersection(each.call.parents):
            spoiled.add(each.call.number)
    origins = [each for each in bad if not spoiled.intersection(each.call.parents)]
    origin = _past_fused(origins, passed) or (origins or bad)[0]
    turned = _reordered(origin, passed, finder)
    if turned is not None:
        origin, bad = turned, [turned, *bad]
    chain = _descendants(origin, bad, passed)
    frontier = tuple(dict.fromkeys(_frontier(origin, passed)))
    expected = _expected(origin, passed)
    later = tuple(each.call for each in chain)
    parted = Parted(origin.call, later[:_HORIZON], frontier, None, expected, later)
    if is_known(parted, passed):
        return parted
    search = _Search(side, feeds, passed, finder, tuple(numbers), origin, chain)
    return replace(parted, cause=search.find())


def _lost(passed: Pass, least: int) -> list[Seen]:
    """Calls that the file lacks, of a kind that it has elsewhere, though something that is computed of them is there.

    What is small is lost in what it is added to: what follows is off, and by too little to be told. So no value is
    there again but after `least` calls; what is fused away has one at once.
    """
    seen = passed.seen
    after = [len(seen)] * len(seen)
    for each in reversed(seen):
        own = 0 if each.is_telling and each.found is not None else after[each.call.number] + each.is_telling
        for parent in each.call.parents:
            if parent < each.call.number:
                after[parent] = min(after[parent], own)
    found = {_kind(each) for each in seen if each.is_telling and each.found is not None}
    live = live_calls(passed)
    lost = [
        each
        for each in seen
        if each.is_telling
        and each.call.number in live
        and each.found is None
        and not each.is_bad
        and _kind(each) in found
        and after[each.call.number] + 1 >= least
    ]
    for each in lost:
        each.is_bad = True
    return lost


def _reordered(origin: Seen, passed: Pass, finder: Finder) -> Seen | None:
    """The first call that what parts is computed of, whose elements the file has in another order and one shape."""
    waiting, done = list(origin.call.parents), set[int]()
    found: Seen | None = None
    while waiting:
        number = waiting.pop()
        if number in done or number >= len(passed.seen):
            continue
        done.add(number)
        each = passed.seen[number]
        if not each.is_telling:
            waiting += each.call.parents
            continue
        like = each.found
        if like is None or like.is_ordered or finder.known[like.name].shape != each.prints[0].shape:
            continue
        found = each if found is None or number < found.call.number else found
        waiting += each.call.parents
    return found


def _past_fused(origins: Sequence[Seen], passed: Pass) -> Seen | None:
    """The first that is not of a kind which the file lacks also where all is well."""
    fused = {
        _kind(each) for each in passed.seen if each.is_telling and each.found is None and not each.is_bad
    }
    return next((each for each in origins if _kind(each) not in fused), None)


def _kind(seen: Seen) -> tuple[str, str, int]:
    return seen.call.class_name, seen.call.operator, seen.call.ordinal


def _descendants(origin: Seen, bad: Sequence[Seen], passed: Pass) -> list[Seen]:
    """The origin and the bad calls that depend on it."""
    reached = {origin.call.number}
    for each in passed.seen[origin.call.number + 1 :]:
        if reached.intersection(each.call.parents):
            reached.add(each.call.number)
    return [each for each in bad if each.call.number in reached]


def _behind(call: Call, passed: Pass, is_end: Callable[[Seen], bool]) -> Iterator[Seen]:
    """The calls that a call is computed of, each once, the nearest first; nothing behind one that is an end."""
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


def _is_telling(seen: Seen) -> bool:
    return seen.is_telling


def _frontier(origin: Seen, passed: Pass) -> Iterator[str]:
    """The file's values that hold what a call is given, past what only moves it."""
    for each in _behind(origin.call, passed, lambda seen: seen.found is not None or seen.is_telling):
        if each.found is not None:
            yield each.found.name


def makers_of(call: Call, passed: Pass) -> tuple[int, ...]:
    """The calls that make what a call is given, past what only moves it."""
    return tuple(each.call.number for each in _behind(call, passed, _is_telling) if each.is_telling)


def _expected(origin: Seen, passed: Pass) -> tuple[int, ...] | None:
    """The calls that make what a call is given, and those that move it; None where the file lacks what one makes."""
    behind = list(_behind(origin.call, passed, _is_telling))
    if any(each.is_telling and each.found is None for each in behind):
        return None
    return tuple(sorted(each.call.number for each in behind))


class _Choice(Frozen):
    """Something that a place may be exchanged for."""

    place: int | str
    module: str
    operator: str
    index: int
    said: tuple[str, str, str]
    print_: Print


class _Search(Mutable):
    side: Side
    feeds: Mapping[str, Array]
    passed: Pass
    finder: Finder
    numbers: tuple[float, ...]
    origin: Seen
    chain: list[Seen]
    """What is bad because of it, from it on."""
    known: set[str] = field(default_factory=set)
    """The file's values that some call gives as it stands."""
    tried: int = 0
    start: float = 0.0

    def find(self) -> Cause | None:
        """What explains most of the calls that follow.

        First come those whose own value is in the file, and is nothing that PyTorch gives elsewhere; then those that
        give what is there anyway, as a call that is left out; then the others, for what the file has fused with them.
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
                elif is_before:  # it is in the file as it is: something else is read beside it, or nothing
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
            explained, of = self._try(Attempt(choice.place, choice.index, self.numbers), choice.said[2])
            if explained and (best is None or explained > best.explained):
                kind, expected, found = choice.said
                best = Cause(choice.module, choice.operator, kind, expected, found, explained, of)
                if explained >= min(of, 3) > 1:
                    return best
        return best

    def _choices(self, place: int | str, module: str, operator: str) -> list[_Choice]:
        found: list[_Choice] = []

        def told(index: int, said: tuple[str, str, str], value: Value | None) -> None:
            print_ = None if value is None else _keep(value)
            if print_ is not None and print_.numel:
                found.append(_Choice(place, module, operator, index, said, print_))

        try:
            self.side.alternatives(self.feeds, place, self.numbers, told)
        except (ExportError, KeyError):
            return []
        return found

    def _noise(self, place: int | str) -> float:
        """Of what stands at a place; of a module, of what it gives."""
        number = place
        if isinstance(place, str):
            number = next((m.made for m in self.passed.recording.modules if m.module == place), None) or 0
        assert isinstance(number, int)
        return max(self.passed.seen[number].noises, default=0.0)

    def _places(self) -> Iterator[tuple[int | str, str, str]]:
        """Calls and modules in whose place something is tried, the likeliest first."""
        number = self.origin.call.number
        yield number, self.origin.call.module, self.origin.call.operator
        for parent in self.origin.call.parents:
            if parent < number and self.passed.seen[parent].is_telling:
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

    def _try(self, attempt: Attempt, said: str) -> tuple[int, int]:
        """How many of the calls that follow are in the file when an attempt takes a call's place, and of how many.

        The value itself counts too, unless any file has it: a product without its bias.
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
        is_own = isinstance(place, int) and place >= self.origin.call.number and said not in _PARTS
        if isinstance(place, int) and is_own and self.passed.seen[place].is_telling:
            wanted[place] = self.passed.seen[place]
        if not wanted:
            return 0, 0
        explained = 0

        def told(call: Call, values: Sequence[Value]) -> None:
            nonlocal explained
            each = wanted.get(call.number)
            if each is None or call.operator != each.call.operator:
                return
            made = Seen(call, tuple(map(_keep, values)), each.noises)
            if len(made.prints) != len(each.prints):
                return
            like = _look_up(made, self.finder)
            if like is not None and like.name not in self.known:
                explained += 1

        asked = replace(attempt, judged=tuple(wanted))
        try:
            self.side.record(self.feeds, told, "single", asked, max(wanted))
        except ExportError:
            return 0, len(wanted)
        return explained, len(wanted)
