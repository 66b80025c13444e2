"""The document of `time` on a generation loop: what each of its files takes, and what that comes to."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from analyzer.documents.base import (
    Elements,
    Milliseconds,
    Record,
    Runs,
    Share,
    Stamped,
    Text,
    Tokens,
)
from analyzer.documents.time import TimeDocument, TimeModel
from analyzer.timing.generation import Step

Sequences = Annotated[int, Meta(ge=0, extra={"unit": "sequences"})]
Speed = Annotated[float, Meta(ge=0, extra={"unit": "tokens a second"})]


class GenerationDocument(Stamped, frozen=True, kw_only=True):
    """A report of `onnxledger time --format json` on the files of a generation loop."""

    command: Literal["time"] = "time"
    """The command that wrote the document."""
    model: TimeModel
    """The files together; what several of them hold counts once."""
    provider: Text
    """The execution provider that was asked for, as it is named on the command line."""
    device: Text
    """The name of the processor or GPU."""
    loop: GenerationLoop
    """The sizes of the loop."""
    first_token_ms: Milliseconds
    """To the first new token: the mean runs of `encode` and `prefill`."""
    token_ms: TokenMs
    """A further token."""
    tokens_per_second: Speed | None
    """Further tokens a second, of all sequences: `loop.batch` by the mean of `token_ms`; null where that is 0."""
    total_ms: Milliseconds
    """All new tokens: the sum of `components[].total_ms`."""
    components: Annotated[list[GenerationComponent], Meta(min_length=2)]
    """The files in the order in which a loop runs them; one that is for two steps stands there twice."""


class GenerationLoop(Record, frozen=True, kw_only=True):
    """The sizes of the loop."""

    batch: Sequences
    """Sequences at a time."""
    source: Elements | None
    """What an encoder hands to the decoder of each sequence, such as tokens or frames; null where none does."""
    source_decided_by: Text | None
    """What decided that: `--shape sequence`, the encoder's own input or output, or a default, which may be far off."""
    prompt: Tokens
    """Tokens that the decoder begins with."""
    prompt_decided_by: Text
    """What decided that: `--shape sequence`, the file, a default."""
    new_tokens: Tokens
    """Generated tokens of each sequence; the first comes of the prompt's run."""
    caches: list[Tokens]
    """Tokens in the cache at the second new token and at the last; one where these are the same, or the file fixes it;
    none where the decoder has no cache."""


class TokenMs(Record, frozen=True, kw_only=True):
    """A further token."""

    first: Milliseconds
    """The mean run with the shorter cache."""
    last: Milliseconds
    """The mean run with the longer one; the same number where there is but one."""


class GenerationComponent(Record, frozen=True, kw_only=True):
    """The files in the order in which a loop runs them; one that is for two steps stands there twice."""

    component: Text
    """Its name: as `export.json` has it, else its file's without the suffix."""
    step: Step
    """When a loop runs it: `encode` and `prefill` once, `decode` for each further token; `other`: nobody knows."""
    times: Runs | None
    """How often that is for all new tokens; null where nobody knows."""
    total_ms: Milliseconds | None
    """`times` mean runs; with two lengths of the cache the middle of both, as if each token added as much. Null where
    `times` is."""
    share: Share | None
    """`total_ms` as a fraction of the loop's; null where there is none."""
    points: Annotated[list[GenerationPoint], Meta(min_length=1, max_length=2)]
    """The measurement, or one at each length of the cache."""


class GenerationPoint(Record, frozen=True, kw_only=True):
    """The measurement, or one at each length of the cache."""

    cache: Tokens | None
    """Tokens in the cache that it was fed; null where it takes none."""
    timing: TimeDocument
    """The whole document of `time` on this file with these inputs."""
