"""A directed acyclic graph and its end -> the vertex that every way from each vertex to the end leads through next.

Immediate post-dominators. On an acyclic graph one pass in reverse order finds them, as lowest common ancestors in the
tree that is being made (Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", 2001); ancestors are found in
logarithmic time by the jump pointers of Myers' skew-binary lists ("An applicative random-access stack", 1983).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["NONE", "PostDominators", "post_dominators"]

NONE = -1
"""No vertex."""


@dataclass(frozen=True, slots=True)
class PostDominators:
    """The tree of post-dominators, its root the end."""

    parent: list[int]
    """The immediate post-dominator of each vertex; NONE for the end, and where no way leads to the end."""
    depth: list[int]
    """Vertices on the way to the end in this tree; NONE where no way leads there."""


def post_dominators(after: Sequence[Sequence[int]], end: int) -> PostDominators:
    """Find the immediate post-dominator of every vertex.

    Args:
        after: the successors of each vertex; all have higher numbers than it.
        end: the vertex where ways end.

    >>> post_dominators([[1, 2], [3], [3], []], 3).parent
    [3, 3, 3, -1]
    """
    count = len(after)
    parent, depth, jump = [NONE] * count, [NONE] * count, [NONE] * count
    depth[end], jump[end] = 0, end
    for vertex in range(end - 1, -1, -1):
        found = NONE
        for follower in after[vertex]:
            if depth[follower] == NONE or follower == found:
                continue
            found = follower if found == NONE else _meet(found, follower, parent, depth, jump)
        if found != NONE:
            parent[vertex], depth[vertex] = found, depth[found] + 1
            over = jump[found]
            is_even = depth[found] - depth[over] == depth[over] - depth[jump[over]]
            jump[vertex] = jump[over] if is_even else found
    return PostDominators(parent, depth)


def _meet(a: int, b: int, parent: list[int], depth: list[int], jump: list[int]) -> int:
    """The lowest common ancestor."""
    if depth[a] < depth[b]:
        a, b = b, a
    while depth[a] > depth[b]:
        a = jump[a] if depth[jump[a]] >= depth[b] else parent[a]
    while a != b:
        if jump[a] == jump[b]:
            a, b = parent[a], parent[b]
        else:
            a, b = jump[a], jump[b]
    return a
