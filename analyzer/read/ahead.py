"""Reading a remote file in few rounds: what is asked for, and with it guesses at what will be asked for next.

A payload's end says where the next header is, so that a model in one file is read in jumps, each a request that waits
for the one before. Layers repeat, and so do the jumps between their headers: where the last of them are those of some
jumps before, the ones that followed then are guessed to follow now, and asked for in the same round. A wrong guess
costs bytes; the reader sees none of it, and every answer is compared with the first as any other (`RemoteFile`).
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import NamedTuple

from analyzer.model.ranges import Kept, Source, UnansweredError

_FIRST = 1 << 16
"""Bytes at the start of a file that the first round brings: nodes are first."""

_LANDING = 1 << 14
"""Bytes asked for after a jump that nobody guessed, and at the end of a file, where its opsets are."""

_PART = 128
"""A file's bytes by this are the most that is asked for on a chance."""

_SHARE = 8
"""A jump's bytes by this are the most that is asked for after it."""

_NEAR = 1 << 14
"""Bytes that are read and not jumped over: biases lie between headers, and a request takes longer than they do."""

_GROWTH = 4
"""So many times what was read since the last jump is asked for where reading goes on."""

_WIDEST = 1 << 19
"""Bytes of one request, at most."""

_REST = 1 << 17
"""Bytes before the end of a file that are asked for together: notes on values are last."""

_SLACK = 1 << 8
"""Bytes on either side of a guess: a longer name (layer.9, layer.10) moves all that follows it."""

_ALIKE = 1 << 7
"""Bytes by which two jumps may differ that count as the same."""

_NEW = 3
"""Guesses after a jump like no other."""

_LONGEST_PERIOD = 1 << 7
"""Jumps after which a layer repeats, at most; and jumps that are compared."""

_LONGEST_GUESS = 1 << 16
"""Bytes of a guess: what is read between two jumps is more only where there is more to read than to jump over."""


class _Island(NamedTuple):
    """What was read between two jumps."""

    start: int
    end: int


class Ahead:
    """The ranges of one remote file, for one reader that goes through it once, mostly forwards.

    At most `source.at_once` ranges are asked for together, and what they brought is `kept`. Guesses that miss are
    followed by fewer: a file that defeats them costs one more small range a jump.
    """

    def __init__(self, source: Source, kept: Kept) -> None:
        self.source, self.kept = source, kept
        self._guessed: deque[int] = deque(maxlen=2 * source.at_once)
        """Where the last guesses begin."""
        self._islands: deque[_Island] = deque(maxlen=2 * _LONGEST_PERIOD + 2)
        self._most = source.at_once - 1
        """Guesses in a round, at most."""
        self._trust = self._most
        self._may_miss = False
        """Whether guesses are out of which none has been met."""

    def read(self, start: int, length: int, needed: int, *, jumps: bool) -> bytes:
        """At least `needed` and at most `length` bytes from `start`; fewer only where the file ends.

        Args:
            jumps: whether the reader has left out what is before `start`.

        Raises:
            ModelReadError: they cannot be had, or the file is no longer what it was.
        """
        jumps = self._lands(start) if jumps or not self._islands else False
        content = self._at_hand(start, length)
        if len(content) < min(needed, self.source.nbytes - start):
            content += self._ask(start + len(content), needed - len(content), jumps=jumps)
            content = content[:length]
        last = self._islands[-1]
        self._islands[-1] = last._replace(end=max(last.end, start + len(content)))
        return content

    def _lands(self, start: int) -> bool:
        """Note where a jump led; whether it was one. One backwards begins anew."""
        if self._islands:
            last = self._islands[-1]
            if last.start <= start <= last.end + self._at_most(_NEAR):
                return False
            if start < last.start:
                self._islands.clear()
        self._islands.append(_Island(start, start))
        return True

    def _at_hand(self, start: int, length: int) -> bytes:
        """What is kept of a range, from its start on."""
        block = self.kept.block(start)
        if block is not None and block[0] in self._guessed:
            self._trust, self._may_miss = self._most, False
        return self.kept.at(start, length)

    def _ask(self, start: int, needed: int, *, jumps: bool) -> bytes:
        """Ask for what is needed and not at hand, and for what may be."""
        if self._may_miss and jumps:
            self._trust = min(self._most, max(1, self._trust // 2))
        is_first = not self.kept
        rest = self.source.nbytes - start
        landing = self._at_most(_LANDING)
        guesses = self._guess() if jumps and not is_first else []
        if is_first:
            wanted = (start, max(needed, self._at_most(_FIRST)))
            guesses = [(max(start + wanted[1], self.source.nbytes - landing), landing)] if self._most else []
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
        bodies = self._ask_for(within)
        self._may_miss = len(guesses) > _NEW
        if jumps:
            self._guessed.extend(offset for offset, _ in within[1:])
        for (offset, _), body in list(zip(within, bodies, strict=False))[::-1]:
            self.kept.add(offset, body)
        return bodies[0]

    def _at_most(self, size: int) -> int:
        """Bytes that may turn out not to be needed: of a small file few."""
        return max(self.source.step, min(size, self.source.nbytes // _PART))

    def _ask_for(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        try:
            return self.source.read_ranges(ranges)
        except UnansweredError:
            if len(ranges) == 1:
                raise
            self._most = self._trust = 0  # whoever answers less at a time is asked for less
            return self.source.read_ranges(ranges[:1])

    def _guess(self) -> list[tuple[int, int]]:
        """The ranges that are read after the next jumps, if these are those that followed when the last ones were made.

        Where the last one was new, that it comes again: matrices of one size follow each other.
        """
        islands = list(self._islands)
        jumps = [later.start - before.start for before, later in itertools.pairwise(islands)]
        period = _period(jumps)
        position, found = islands[-1].start, []
        for step in range(self._trust if period else min(self._trust, _NEW, len(jumps))):
            index = len(jumps) - (period or 1) + step % (period or 1)
            position += jumps[index]
            # The last of them is being read: one of a period before says how much that will be.
            read = islands[index + 1 if index + 1 < len(jumps) else index + 1 - period]
            length = min(read.end - read.start if period else 0, _LONGEST_GUESS)
            length = max(length, self.source.step) + 2 * _SLACK
            if position + length > self.source.nbytes:
                break
            found.append((position - _SLACK, length))
        return found


def _period(jumps: list[int]) -> int:
    """After how many jumps they repeat, going by the last of them; 0 if they do not.

    What the longest run of alike jumps speaks for; of several, the longest period, as many matrices of one size follow
    each other within a layer too.

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
