"""Files of a generation loop -> the inputs of each, its time alone, and from these the time of all tokens.

A loop runs the encoder once, the decoder once over the prompt, and then once for each further token, with the keys and
values of all tokens before it. Each file is measured alone, with inputs of the shapes that it has in such a loop.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path

from analyzer.account.group.patterns import OwnGroups
from analyzer.account.ledger import Grouping, Ledger
from analyzer.errors import UsageError
from analyzer.process.child import Limits
from analyzer.records import Frozen
from analyzer.text import format_count, format_many, printable
from analyzer.timing.inputs.feeds import Inputs, Planner
from analyzer.timing.inputs.roles import Roles
from analyzer.timing.inputs.sizes import Shapes, Sweep, compute_size, fixed_size, parse_size
from analyzer.timing.record import Axis, Timing, TimingSettings
from analyzer.timing.running.isolated import Progress
from analyzer.timing.timer import time_model


class Step(StrEnum):
    """Part of a generation loop in which it runs a file."""

    ENCODE = "encode"
    """Once, before the decoder."""
    PREFILL = "prefill"
    """Once, over the prompt; it makes the first new token."""
    DECODE = "decode"
    """Once for each further token, with the cache of all tokens before it."""
    OTHER = "other"
    """Unknown."""


BOTH = (Step.PREFILL, Step.DECODE)
_DECODERS: Mapping[str, tuple[Step, ...]] = {
    "prefill": (Step.PREFILL,),
    "decoder": (Step.PREFILL,),
    "language": (Step.PREFILL,),
    "decode": (Step.DECODE,),
    "decoder_with_past": (Step.DECODE,),
    "decoder_merged": BOTH,
}
"""Decoder files for the steps of a loop, as transformers, torch.onnx and optimum name them."""
_BESIDE: Mapping[str, tuple[Step, ...]] = {
    "encoder": (Step.ENCODE,),
    "text_encoder": (Step.ENCODE,),
    "vision_encoder": (Step.ENCODE,),
    "image_encoder": (Step.ENCODE,),
    "audio_encoder": (Step.ENCODE,),
    "multi_modal_projector": (Step.ENCODE,),
    "lm_head": (Step.PREFILL,),
    "embed_tokens": BOTH,
}
"""Other files of a loop."""
_VARIANT = re.compile(r"_(fp16|fp32|bf16|int8|uint8|q4|q4f16|q8|bnb4|quantized|optimized|o[1-4])$")
"""Suffix that optimum and transformers.js append to the name of a file with other weights or optimizations."""


def steps_of(name: str) -> tuple[Step, ...]:
    """Return the steps in which a loop runs the component of this name.

    >>> (
    ...     [step.value for step in steps_of("decoder_with_past_model")],
    ...     steps_of("onnx/encoder_model_q4")[0].value,
    ... )
    (['decode'], 'encode')
    >>> len(steps_of("decoder_model_merged")), steps_of("classifier")[0].value
    (2, 'other')
    """
    bare = _bare(name)
    return _DECODERS.get(bare) or _BESIDE.get(bare) or (Step.OTHER,)


def _bare(name: str) -> str:
    """Remove the folder, the variant and `_model` from a name."""
    return _VARIANT.sub("", name.rpartition("/")[2].lower()).replace("_model", "", 1)


def find_loop(names: Sequence[str]) -> Mapping[str, tuple[Step, ...]] | None:
    """Return the steps of each component of an artifact; None if the components contain no loop with a cache.

    Raises:
        UsageError: two components are for the same step.
    """
    found = {name: steps_of(name) for name in names}
    of_step = {
        step: [name for name in names if _bare(name) in _DECODERS and step in found[name]] for step in BOTH
    }
    if not all(of_step.values()):
        return None
    alike = Counter(_bare(name) for name in names if found[name] != (Step.OTHER,))
    twice = [[name for name in names if _bare(name) == bare] for bare, times in alike.items() if times > 1]
    for same_step in (*of_step.values(), *twice):
        if len(same_step) > 1:
            listed = ", ".join(map(printable, same_step))
            raise UsageError(
                f"{listed} are for the same step of a loop; keep the files of one loop in the folder"
            )
    return found


class Loop(Frozen):
    """Sizes of a generation loop."""

    batch: int
    """Number of sequences at a time."""
    source: int | None
    """Length of the encoder's output for each sequence, for example in tokens; None without an encoder."""
    source_reason: str | None
    """Reason of `source`, as in `Axis.reason`; it begins with `default` if nothing decides it."""
    prompt: int
    """Tokens that the decoder begins with."""
    prompt_reason: str
    """Reason of `prompt`."""
    new_tokens: int
    """Generated tokens of each sequence; the run of the prompt makes the first."""
    caches: tuple[int, ...]
    """Tokens in the cache at the second new token, and at the last; one number if they are equal, or if the file fixes
    them; () if the decoder has no cache."""


class Fed(Frozen):
    """Inputs of a component in a step: one set, or one with the cache at the second new token and one at the last."""

    name: str
    step: Step
    inputs: tuple[Inputs, ...]


class StepTiming(Frozen):
    """A component in one of its steps, measured alone: once, or at both lengths of the cache."""

    name: str
    step: Step
    timing: Timing

    @property
    def means(self) -> tuple[float, ...]:
        """Milliseconds of the mean run, at each point."""
        return tuple(point.latency.mean for point in self.timing.points)


class GenerationTiming(Frozen):
    """Result of `time` for a generation loop."""

    path: str
    loop: Loop
    components: tuple[StepTiming, ...]
    parameters: int
    """Learned elements of all components, each counted once."""
    file_nbytes: int
    """Bytes of all files on disk."""
    stamp: str | None = None

    def times(self, step: Step) -> int | None:
        """Return how often a loop runs the files of a step; None if unknown."""
        match step:
            case Step.ENCODE | Step.PREFILL:
                return 1
            case Step.DECODE:
                return self.loop.new_tokens - 1
        return None

    def spent_ms(self, component: StepTiming) -> float | None:
        """Return the milliseconds of a component for all tokens; None if the number of its runs is unknown.

        Between the two lengths of the cache, time is taken to grow equally with each token. The runs thus take as long
        as the same number of runs at the middle length.
        """
        times = self.times(component.step)
        return None if times is None else times * _middle(component.means)

    @property
    def first_token_ms(self) -> float:
        """Milliseconds to the first new token: all parts that run once."""
        return math.fsum(_middle(each.means) for each in self.components if self.is_before(each.step))

    @staticmethod
    def is_before(step: Step) -> bool:
        """Whether a step comes before the first token."""
        return step in (Step.ENCODE, Step.PREFILL)

    @property
    def token_ms(self) -> tuple[float, float]:
        """Milliseconds of a further token: of the second, and of the last."""
        means = [each.means for each in self.components if each.step is Step.DECODE]
        return math.fsum(each[0] for each in means), math.fsum(each[-1] for each in means)

    @property
    def total_ms(self) -> float:
        """Milliseconds of all tokens."""
        return math.fsum(self.spent_ms(each) or 0.0 for each in self.components)

    @property
    def tokens_per_second(self) -> float | None:
        """Further tokens per second, over all sequences of the batch; None if they take no time."""
        mean = _middle(self.token_ms)
        return 1e3 * self.loop.batch / mean if mean > 0 else None


def _middle(ms: Sequence[float]) -> float:
    return (ms[0] + ms[-1]) / 2


def time_generation(
    artifact: Ledger,
    ledgers: Mapping[str, Ledger],
    groupings: Mapping[str, Grouping],
    settings: TimingSettings | None = None,
    *,
    own: OwnGroups | None = None,
    shapes: Shapes | None = None,
    new_tokens: int | None = None,
    libraries: Sequence[Path] = (),
    limits: Limits | None = None,
    progress: Progress | None = None,
    stamp: str | None = None,
) -> GenerationTiming:
    """Run each file of a generation loop alone, and compute the time of a loop, and of the groups in it.

    Args:
        artifact: the account of all files together.
        ledgers: the account of each file, by the name of its component; a single file serves every step.
        groupings: the groups of each file, by the same names; by the user's patterns, which are then `own`.
        settings: provider, threads, optimization level, and when to stop.
        shapes: sizes of axes, as `plan_loop` takes them.
        new_tokens: number of tokens to generate.
        libraries: shared libraries of custom operators.
        limits: time and memory that running one file may take.

    Raises:
        UsageError: the files are no loop, the groups do not cover nodes, or inputs cannot be made.
        TimingError: a file cannot be run, or not on the provider.
        LedgerError: the times of the groups do not sum up, a defect of onnxledger itself.
        MissingExtraError: onnxruntime is not installed.
    """
    steps = dict.fromkeys(ledgers, BOTH) if len(ledgers) == 1 else find_loop(list(ledgers))
    if steps is None:
        names = ", ".join(map(printable, ledgers))
        raise UsageError(
            f"{artifact.model.path}: by their names, {names} are not a generation loop; time each alone"
        )
    loop, planned = plan_loop(ledgers, steps, shapes, new_tokens)
    timed = []
    for fed in planned:
        values = tuple(each.value for each in fed.inputs if each.value is not None)
        timing = time_model(
            ledgers[fed.name],
            groupings[fed.name],
            settings,
            own=own,
            shapes=Shapes(sweep=Sweep(Roles.PAST, values)) if values else None,
            inputs=fed.inputs,
            libraries=libraries,
            limits=limits,
            progress=progress if progress is None else partial(_report_stage, progress, fed),
        )
        timed.append(StepTiming(fed.name, fed.step, timing))
    path = str(artifact.model.path)
    return GenerationTiming(path, loop, tuple(timed), artifact.parameters, artifact.file_nbytes, stamp)


def _report_stage(progress: Progress, fed: Fed, stage: str) -> None:
    progress(f"{fed.name}, {fed.step}: {stage}")


_TOKENS = 128
"""New tokens, unless the user gives a number or a table of positions has fewer."""
_ROLES = (Roles.SEQUENCE, Roles.DECODER, Roles.ENCODER)
_USUAL = ("default", "position table", "room")
"""Beginnings of the reasons of sizes that the user did not give."""


def plan_loop(
    ledgers: Mapping[str, Ledger],
    steps: Mapping[str, tuple[Step, ...]],
    shapes: Shapes | None = None,
    new_tokens: int | None = None,
) -> tuple[Loop, tuple[Fed, ...]]:
    """Plan the inputs of each component in each of its steps, in the order in which a loop runs them.

    Args:
        ledgers: the account of each file, by the name of its component.
        steps: the result of `find_loop`.
        shapes: sizes that the user gave. `sequence` is the prompt, or the encoder's input if there is an encoder;
            `decoder_sequence` is then the prompt. Other names apply to the components that have them.
        new_tokens: number of tokens to generate.

    Raises:
        UsageError: an axis is swept, a size is of no component's axis, sizes contradict each other, or inputs cannot be
            made.
    """
    shapes = shapes or Shapes()
    if shapes.sweep is not None:
        raise UsageError(
            f"--shape {printable(shapes.sweep.key)}: a sweep takes one model, and this is a loop of several; give one "
            "size, or name one of the files"
        )
    parts = [_Part(name, step, ledger) for name, ledger in ledgers.items() for step in steps[name]]
    parts.sort(key=lambda part: (tuple(Step).index(part.step), _place(part.name)))
    return _Planning(parts, shapes.sizes, new_tokens).plan()


def _place(name: str) -> int:
    """Return the order of a component in a step: token embeddings run before the decoder, the logits' head after it."""
    return {"embed_tokens": -1, "lm_head": 1}.get(_bare(name), 0)


_Sizes = tuple[tuple[str, int], ...]
_RoleSizes = tuple[tuple[str, int, str], ...]


class _Part:
    """A component in one of its steps."""

    def __init__(self, name: str, step: Step, ledger: Ledger) -> None:
        self.name = name
        self.step = step
        self.planner = planner = Planner.of(ledger)
        self.results = ledger.model.graphs[0].results
        self.is_decoder = _bare(name) in _DECODERS or (step in BOTH and _bare(name) not in _BESIDE)
        has_sides = bool(planner.sizes_of(Roles.DECODER))
        self.tokens = Roles.DECODER if has_sides else Roles.SEQUENCE
        """Role of the axes for the decoder's tokens."""
        self.source = Roles.SEQUENCE if has_sides else Roles.ENCODER
        """Role of the axes for an encoder's output."""
        if step is Step.ENCODE:
            self.source = Roles.SEQUENCE if planner.sizes_of(Roles.SEQUENCE) else Roles.ENCODER
        self.sizes: _Sizes = ()

    def has(self, role: str) -> bool:
        return bool(self.planner.sizes_of(role))

    def decides_length(self, roles: frozenset[str]) -> bool:
        """Whether the loop, and not the user, decides the length of an axis of these roles in this step."""
        own = {Roles.PAST, *_TOTALS} if self.step is Step.DECODE else {Roles.PAST}
        if self.step is Step.DECODE:
            own.add(self.tokens)
        return self.step in BOTH and not own.isdisjoint(roles)

    def output_length(self, batch: _RoleSizes) -> int | None:
        """Return the length of the component's output, (batch, length, features), from the file; None if unknown."""
        found = [result.dims for result in self.results if result.dims is not None and len(result.dims) == 3]
        dim = found[0][1] if found else None
        fixed = fixed_size(dim, is_nameless=False)
        if fixed is not None or not isinstance(dim, str):
            return fixed
        sizes = {axis.name: axis.size for axis in self.plan(batch).axes}
        parsed = parse_size(dim)
        return sizes.get(dim) if parsed is None else compute_size(parsed, sizes.get)

    def plan(self, role_sizes: _RoleSizes = (), value: int | None = None) -> Inputs:
        """Plan the inputs of the component.

        Raises:
            UsageError: sizes contradict each other, or an input cannot be made.
        """
        try:
            return self.planner.plan(
                self.sizes, value=value, roles=tuple(each for each in role_sizes if self.has(each[0]))
            )
        except UsageError as error:
            raise UsageError(f"{printable(self.name)}: {error}") from error


_TOTALS = (Roles.TOTAL, Roles.DECODER_TOTAL)


class _Planning:
    """Sizes of a loop, settled one after the other."""

    def __init__(self, parts: Sequence[_Part], sizes: _Sizes, new_tokens: int | None) -> None:
        self.parts = parts
        self.prefill = next(part for part in parts if part.step is Step.PREFILL and part.is_decoder)
        self.decode = next(part for part in parts if part.step is Step.DECODE and part.is_decoder)
        if self.prefill.name == self.decode.name and not self.decode.has(Roles.PAST):
            raise UsageError(
                f"{printable(self.decode.name)}: takes no key-value cache, so that no loop runs it token by token; "
                "leave --new-tokens out, or name the folder of all files of a loop"
            )
        self.has_source = self.prefill.has(self.prefill.source)
        requested = {key: size for key, size in sizes if key in _ROLES or key == Roles.BATCH}
        self.batch = requested.pop(Roles.BATCH, None)
        self.new_tokens = new_tokens
        self.requested = dict(requested)
        for key, size in sizes:
            if key not in _ROLES and key != Roles.BATCH:
                self._assign_size(key, size)
        own = (Roles.DECODER,) if self.has_source else (Roles.DECODER, Roles.SEQUENCE)
        self.prompt = self._requested_size(*own)
        self.source = self._requested_size(Roles.ENCODER, *(key for key in _ROLES[:1] if key not in own))

    def _requested_size(self, *keys: str) -> tuple[int, str] | None:
        """Return the size that the user gave for one of these roles, and the reason.

        Raises:
            UsageError: two roles have different sizes.
        """
        found = [(self.requested[key], f"--shape {key}") for key in keys if key in self.requested]
        if len({size for size, _ in found}) > 1:
            first, second = found[:2]
            raise UsageError(
                f"{first[1]} {first[0]:,} contradicts {second[1]} {second[0]:,}; both set the same size in this loop"
            )
        return found[0] if found else None

    def _assign_size(self, key: str, size: int) -> None:
        """Give a size to the components that have an axis of this name, unless the loop decides its length.

        Raises:
            UsageError: there is no such component.
        """
        problem, is_decided = None, False
        takers = []
        for part in self.parts:
            try:
                roles = part.planner.roles_of(key)
            except UsageError as error:
                problem = error if part is self.prefill or problem is None else problem
                continue
            if part.decides_length(roles):
                is_decided = True
            else:
                takers.append(part)
        for part in takers:
            part.sizes = (*part.sizes, (key, size))
        if takers:
            return
        if is_decided:
            raise UsageError(
                f"--shape {printable(key)}: the loop decides this axis; give the prompt with --shape "
                f"{Roles.DECODER if self.has_source else Roles.SEQUENCE}=N, and the new tokens with --new-tokens N"
            )
        if problem is not None:
            raise problem

    def plan(self) -> tuple[Loop, tuple[Fed, ...]]:
        """Return all sizes, and the inputs that follow from them."""
        batch = self._requested_batch()
        source = self._settle_source(batch)
        prompt = self._settle_prompt((*batch, *self._source_sizes(self.prefill, source)))
        new_tokens = self._settle_tokens(prompt[0])
        self._check_positions(prompt[0], new_tokens)
        caches = self._caches(prompt[0], new_tokens)
        fed = tuple(
            Fed(part.name, part.step, tuple(self._feed(part, batch, source, prompt, caches)))
            for part in self.parts
        )
        batches = {
            size: each.name
            for each in fed
            if each.step in BOTH and (size := size_of(each.inputs[0].axes, Roles.BATCH)) is not None
        }
        if len(batches) > 1:
            (one, name), (other, second), *_ = batches.items()
            raise UsageError(
                f"{printable(name)} takes {format_count(one)} sequences at a time, and {printable(second)} "
                f"{format_count(other)}; give --shape batch=N, or name one of the files"
            )
        source_and_reason = (None, None) if source is None else source
        return Loop(
            batch=next(iter(batches), 1),
            source=source_and_reason[0],
            source_reason=source_and_reason[1],
            prompt=prompt[0],
            prompt_reason=prompt[1],
            new_tokens=new_tokens,
            caches=caches,
        ), fed

    def _requested_batch(self) -> _RoleSizes:
        if self.batch is None:
            return ()
        if not any(part.has(Roles.BATCH) for part in self.parts):
            raise UsageError("--shape batch: no file of this loop has such an axis; leave it out")
        return ((Roles.BATCH, self.batch, "--shape batch"),)

    def _settle_source(self, batch: _RoleSizes) -> tuple[int, str] | None:
        """Return the length of the encoder's output, from the user, the encoder, or the decoder's default."""
        if not self.has_source:
            if self.source is not None:
                raise UsageError(
                    f"{self.source[1]}: no decoder of this loop reads an encoder's output; leave it out"
                )
            return None
        encoder = next((part for part in self.parts if part.step is Step.ENCODE), None)
        if encoder is not None and encoder.has(encoder.source):
            role_sizes = () if self.source is None else ((encoder.source, *self.source),)
            size = size_of(encoder.plan((*batch, *role_sizes)).axes, encoder.source)
            return size or 0, "as the encoder's" if self.source is None else self.source[1]
        made = None if encoder is None else encoder.output_length(batch)
        if encoder is not None and made is not None and self.source is not None and made != self.source[0]:
            raise UsageError(
                f"{self.source[1]} {self.source[0]:,}: {printable(encoder.name)} outputs {format_count(made)}; leave "
                "it out, or give the encoder other inputs"
            )
        if self.source is not None:
            return self.source
        if made is not None:
            return made, "output of the encoder"
        size = size_of(self.prefill.plan(batch).axes, self.prefill.source)
        return size or 0, f"default of {Roles.ENCODER}"

    def _source_sizes(self, part: _Part, source: tuple[int, str] | None) -> _RoleSizes:
        """Return the source's size for components that have it: a decoder, and an encoder of tokens."""
        is_requested = part.step is Step.ENCODE and self.source is not None
        return () if source is None or not (part.step in BOTH or is_requested) else ((part.source, *source),)

    def _settle_prompt(self, role_sizes: _RoleSizes) -> tuple[int, str]:
        """Return the number of tokens in the prompt: the user's, the file's, one behind an encoder, or a default.

        The default leaves room for new tokens in a table of positions.
        """
        part = self.prefill
        if self.prompt is not None:
            return self.prompt
        found = next((axis for axis in part.plan(role_sizes).axes if axis.role == part.tokens), None)
        if found is None:
            return 1, "default of the prompt"
        if not found.reason.startswith(_USUAL):
            return found.size, found.reason
        if self.has_source:
            return 1, "default of a decoder behind an encoder"
        limit = self._positions()
        if limit is None:
            return found.size, found.reason
        room = limit // 2 if self.new_tokens is None else limit - self.new_tokens + 1
        return min(found.size, max(room, 1)), "default of the prompt"

    def _positions(self) -> int | None:
        found = (part.planner.positions for part in (self.prefill, self.decode))
        return min((limit for limit in found if limit is not None), default=None)

    def _settle_tokens(self, prompt: int) -> int:
        if self.new_tokens is not None:
            return self.new_tokens
        limit = self._positions()
        return _TOKENS if limit is None else max(1, min(_TOKENS, limit - prompt + 1))

    def _check_positions(self, prompt: int, new_tokens: int) -> None:
        """Refuse a loop that cannot be generated: the last token follows all tokens before it.

        Raises:
            UsageError: a file's table of positions is shorter.
        """
        limit, needed = self._positions(), prompt + new_tokens - 1
        if limit is not None and needed > limit:
            role = Roles.DECODER if self.has_source else Roles.SEQUENCE
            raise UsageError(
                f"a prompt of {format_many(prompt, 'token')} and {format_count(new_tokens)} new take "
                f"{format_many(needed, 'position')}, and the model's table has {format_count(limit)}; give fewer with "
                f"--shape {role}=N or --new-tokens N"
            )

    def _caches(self, prompt: int, new_tokens: int) -> tuple[int, ...]:
        """Return the numbers of tokens in the cache at the second new token and at the last.

        Raises:
            UsageError: the file fixes several sizes.
        """
        sizes = self.decode.planner.sizes_of(Roles.PAST)
        fixed = sorted(size for size in sizes if size is not None)
        if len(sizes) > 1 and fixed:
            raise UsageError(
                f"{printable(self.decode.name)}: the file fixes some of its caches to "
                f"{', '.join(map(format_count, fixed))} tokens, but not all; name this file, and give --past N"
            )
        if not sizes or fixed:
            return tuple(fixed)
        return tuple(dict.fromkeys((prompt, max(prompt, prompt + new_tokens - 2))))

    def _feed(
        self,
        part: _Part,
        batch: _RoleSizes,
        source: tuple[int, str] | None,
        prompt: tuple[int, str],
        caches: tuple[int, ...],
    ) -> Iterator[Inputs]:
        role_sizes = (*batch, *self._source_sizes(part, source))
        sizes = part.planner.sizes_of(Roles.PAST)
        if part.step is Step.PREFILL:
            empty = ((Roles.PAST, 0, "an empty cache"),) if None in sizes else ()
            yield part.plan((*role_sizes, (part.tokens, *prompt), *empty))
        elif part.step is Step.DECODE:
            role_sizes = (*role_sizes, (part.tokens, 1, "one token"))
            if None not in sizes:
                yield part.plan(role_sizes)
                return
            for cache in caches:
                value = cache if len(caches) > 1 else None
                yield part.plan((*role_sizes, (Roles.PAST, cache, "the cache")), value)
        else:
            yield part.plan(role_sizes)


def size_of(axes: Sequence[Axis], role: str) -> int | None:
    """Return the size of the first axis of a role; None if no axis has it."""
    return next((axis.size for axis in axes if axis.role == role), None)
