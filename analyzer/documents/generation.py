"""The document of `time` on a generation loop: the times of its files, and of the whole loop."""

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
    """All files together; content that several files hold counts once."""
    provider: Text
    """The execution provider that was asked for, as it is named on the command line."""
    device: Text
    """The name of the processor or GPU."""
    loop: GenerationLoop
    """The sizes of the loop."""
    first_token_ms: Milliseconds
    """Time to the first new token: the mean runs of `encode` and `prefill`."""
    token_ms: TokenMs
    """Time of each further token."""
    tokens_per_second: Speed | None
    """Further tokens per second, over all sequences: `loop.batch` divided by the mean of `token_ms`; null if that mean
    is 0."""
    total_ms: Milliseconds
    """Time of all new tokens: the sum of `components[].total_ms`."""
    components: Annotated[list[GenerationComponent], Meta(min_length=2)]
    """Files in the order in which a loop runs them; a file with two steps is listed twice."""


class GenerationLoop(Record, frozen=True, kw_only=True):
    """The sizes of the loop."""

    batch: Sequences
    """Number of sequences at a time."""
    source: Elements | None
    """Length that an encoder hands to the decoder for each sequence, such as tokens or frames; null if there is
    none."""
    source_decided_by: Text | None
    """Source of `source`: `--shape sequence`, the encoder's own input or output, or a default, which may be far off."""
    prompt: Tokens
    """Number of tokens that the decoder begins with."""
    prompt_decided_by: Text
    """Source of `prompt`: `--shape sequence`, the file, or a default."""
    new_tokens: Tokens
    """Number of generated tokens of each sequence; the run on the prompt makes the first."""
    caches: list[Tokens]
    """Tokens in the cache at the second new token and at the last; one number if these are equal, or if the file fixes
    it; empty if the decoder has no cache."""


class TokenMs(Record, frozen=True, kw_only=True):
    """Time of one further token, at both lengths of the cache."""

    first: Milliseconds
    """Time of the mean run with the shorter cache."""
    last: Milliseconds
    """Time of the mean run with the longer cache; the same number if there is only one length."""


class GenerationComponent(Record, frozen=True, kw_only=True):
    """One file in one step of the loop."""

    component: Text
    """Name of the component: as in `export.json`, else its file name without the suffix."""
    step: Step
    """Step of the loop: `encode` and `prefill` run once, `decode` runs for each further token; `other` is unknown."""
    times: Runs | None
    """Number of runs for all new tokens; null if unknown."""
    total_ms: Milliseconds | None
    """Time of `times` mean runs; with two lengths of the cache, the middle of both, as if each token added as much.
    Null if `times` is null."""
    share: Share | None
    """`total_ms` as a fraction of the loop's `total_ms`; null if there is none."""
    points: Annotated[list[GenerationPoint], Meta(min_length=1, max_length=2)]
    """The measurement, or one at each length of the cache."""


class GenerationPoint(Record, frozen=True, kw_only=True):
    """Measurement at one length of the cache."""

    cache: Tokens | None
    """Number of tokens in the cache that the file was fed; null if it takes no cache."""
    timing: TimeDocument
    """The whole document of `time` on this file with these inputs."""
