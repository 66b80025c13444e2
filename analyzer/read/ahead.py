"""Read-ahead for remote files: requests in few rounds, each with guesses at the ranges that will be read next.

The end of a payload gives the position of the next header, so a model in one file is read in jumps, each a request that
waits for the previous one. Layers repeat, and so do the jumps between their headers: if the last jumps equal some
earlier ones, the jumps that followed those are guessed to follow now, and requested in the same round. A wrong guess
costs bytes, but the reader never sees it, and every answer is checked against the first like any other (`RemoteFile`).
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import NamedTuple

from analyzer.model.ranges import Kept, Source, UnansweredError

_FIRST = 1 << 16
"""Bytes at the start of a file that the first round requests: nodes come first."""

_LANDING = 1 << 14
"""Bytes requested after an unguessed jump, and at the end of a file, which holds its opsets."""

_PART = 128
"""Divisor of the file's size that gives the most bytes requested on a guess."""

_SHARE = 8
"""Divisor of a jump's length that gives the most bytes requested after it."""

_NEAR = 1 << 14
"""Bytes that are read rather than jumped over: biases lie between headers, and a request takes longer than they do."""

_GROWTH = 4
"""Factor of the bytes read since the last jump that is requested when reading continues without a jump."""

_WIDEST = 1 << 19
"""Most bytes of one request."""

_REST = 1 << 17
"""Bytes before the end of a file that are requested together: value_info comes last."""

_SLACK = 1 << 8
"""Bytes on either side of a guess: a longer name (layer.9, layer.10) shifts all that follows it."""

_ALIKE = 1 << 7
"""Bytes by which two jumps may differ and still count as equal."""

_NEW = 3
"""Most guesses after a jump unlike those before it."""

_LONGEST_PERIOD = 1 << 7
"""Most jumps after which a layer repeats; also the most jumps that are compared."""

_LONGEST_GUESS = 1 << 16
"""Most bytes of a guess: more is read between two jumps only where there is more to read than to jump over."""


class _Island(NamedTuple):
    """Range that was read between two jumps."""

    start: int
    end: int


class Ahead:
    """Ranges of one remote file, for one reader that goes through it once, mostly forwards.

    At most `source.at_once` ranges are requested together, and their bytes are `kept`. After wrong guesses fewer are
    made: a file that defeats them costs one more small range per jump.
    """

    def __init__(self, source: Source, kept: Kept) -> None:
        self.source, self.kept = source, kept
        self._guessed: deque[int] = deque(maxlen=2 * source.at_once)
        """Start positions of the last guesses."""
        self._islands: deque[_Island] = deque(maxlen=2 * _LONGEST_PERIOD + 2)
        self._most_guesses = source.at_once - 1
        """Most guesses in a round."""
        self._guess_limit = self._most_guesses
        self._are_guesses_unused = False
        """Whether guesses were made and none has been used yet."""

    def read(self, start: int, length: int, needed: int, *, jumps: bool) -> bytes:
        """Return at least `needed` and at most `length` bytes from `start`; fewer only if the file ends.

        Args:
            jumps: whether the reader has skipped bytes before `start`.

        Raises:
            ModelReadError: the bytes are not available, or the file has changed.
        """
        jumps = self._record_jump(start) if jumps or not self._islands else False
        content = self._kept_part(start, length)
        if len(content) < min(needed, self.source.nbytes - start):
            content += self._request(start + len(content), needed - len(content), jumps=jumps)
            content = content[:length]
        last = self._islands[-1]
        self._islands[-1] = last._replace(end=max(last.end, start + len(content)))
        return content

    def _record_jump(self, start: int) -> bool:
        """Record the target of a jump, and return whether it was one. A jump backwards starts anew."""
        if self._islands:
            last = self._islands[-1]
            if last.start <= start <= last.end + self._at_most(_NEAR):
                return False
            if start < last.start:
                self._islands.clear()
        self._islands.append(_Island(start, start))
        return True

    def _kept_part(self, start: int, length: int) -> bytes:
        """Return the kept part of a range, from its start on."""
        block = self.kept.block(start)
        if block is not None and block[0] in self._guessed:
            self._guess_limit, self._are_guesses_unused = self._most_guesses, False
        return self.kept.at(start, length)

    def _request(self, start: int, needed: int, *, jumps: bool) -> bytes:
        """Request the bytes that are needed and not kept, together with guesses."""
        if self._are_guesses_unused and jumps:
            self._guess_limit = min(self._most_guesses, max(1, self._guess_limit // 2))
        is_first = not self.kept
        rest = self.source.nbytes - start
        landing = self._at_most(_LANDING)
        guesses = self._guess() if jumps and not is_first else []
        if is_first:
            wanted = (start, max(needed, self._at_most(_FIRST)))
            guesses = (
                [(max(start + wanted[1], self.source.nbytes - landing), landing)]
                if self._most_guesses
                else []
            )
        elif rest <= self._at_most(_REST):
            wanted = (start, rest)
        elif len(guesses) > _NEW:
            wanted = (start, max(needed, guesses[-1][1]))
        else:
            *before, last = self._islands
            if before:
                landing = max(self.source.step, min(landing, (last.start - before[-1].start) // _SHARE))
            wanted = (start, max(needed, landing, min(_GROWTH * (start - last.start), _WIDEST)))
        within = [
            (offset, min(length, self.source.nbytes - offset))
            for offset, length in (wanted, *guesses)
            if offset < self.source.nbytes
        ]
        bodies = self._request_ranges(within)
        self._are_guesses_unused = len(guesses) > _NEW
        if jumps:
            self._guessed.extend(offset for offset, _ in within[1:])
        for (offset, _), body in list(zip(within, bodies, strict=False))[::-1]:
            self.kept.add(offset, body)
        return bodies[0]

    def _at_most(self, size: int) -> int:
        """Limit bytes that may not be needed: a small file allows few."""
        return max(self.source.step, min(size, self.source.nbytes // _PART))

    def _request_ranges(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        try:
            return self.source.read_ranges(ranges)
        except UnansweredError:
            if len(ranges) == 1:
                raise
            self._most_guesses = self._guess_limit = (
                0  # a server that answers fewer ranges at a time gets fewer
            )
            return self.source.read_ranges(ranges[:1])

    def _guess(self) -> list[tuple[int, int]]:
        """Return the ranges that will be read after the next jumps, if jumps repeat as they did before.

        If the last jump was new, it is guessed to repeat: matrices of one size follow each other.
        """
        islands = list(self._islands)
        jumps = [later.start - before.start for before, later in itertools.pairwise(islands)]
        period = _period(jumps)
        position, found = islands[-1].start, []
        for step in range(self._guess_limit if period else min(self._guess_limit, _NEW, len(jumps))):
            index = len(jumps) - (period or 1) + step % (period or 1)
            position += jumps[index]
            # The last range is still being read; the one of a period before shows its size.
            read = islands[index + 1 if index + 1 < len(jumps) else index + 1 - period]
            length = min(read.end - read.start if period else 0, _LONGEST_GUESS)
            length = max(length, self.source.step) + 2 * _SLACK
            if position + length > self.source.nbytes:
                break
            found.append((position - _SLACK, length))
        return found


def _period(jumps: list[int]) -> int:
    """Return the number of jumps after which they repeat, judging by the last ones; 0 if they do not.

    The longest run of equal jumps decides; among several periods the longest, because many matrices of one size also
    follow each other within a layer.

    >>> large, mid, small = 9000, 5000, 2000
    >>> (
    ...     _period([large, *[small] * 3]),
    ...     _period([large, small, small, mid, small]),
    ...     _period([large, small, small]),
    ... )
    (1, 3, 1)
    """
    best = most = 0
    for period in range(1, min(len(jumps) - 1, _LONGEST_PERIOD) + 1):
        run = 0
        while run + period < len(jumps) and abs(jumps[-1 - run] - jumps[-1 - run - period]) <= _ALIKE:
            run += 1
        if run and run >= most:
            best, most = period, run
    return best
