"""Model -> nodes that call local functions, the number of calls of each function, and the recursive functions."""

from __future__ import annotations

from collections import Counter, defaultdict

from analyzer.model import Function, GraphPath, Model, Place
from analyzer.model.operators import is_own
from analyzer.records import Frozen


class Calls(Frozen):
    """Number of calls of one function."""

    function: Function
    sites: int
    """Number of nodes that call it, in any graph."""
    calls: int | None
    """Number of copies of its body when all calls are inlined from the main and training graphs, counting the bodies of
    If, Loop and Scan once each. None if functions that call each other in a cycle call it, or beyond 2^128."""
    is_recursive: bool = False
    """Whether it calls itself, directly or through others."""


def called_bodies(model: Model) -> dict[Place, GraphPath]:
    """Return the local function that each calling node calls; if two have the same identity, the first.

    A node is not a call if a runtime has its own operator of that name (`analyzer.model.operators.is_own`).
    """
    known: dict[_Called, GraphPath] = {}
    for function in model.functions:
        root = model.root(function.path)
        known.setdefault((root, _domain(function.domain), function.name, function.overload), function.path)
    names = {name for _, _, name, _ in known}
    found: dict[Place, GraphPath] = {}
    for node in model.nodes() if names else ():
        if node.op_type in names and not is_own(node):
            called = (model.root(node.graph_path), _domain(node.domain), node.op_type, node.overload)
            if called in known:
                found[node.place] = known[called]
    return found


def count_calls(model: Model) -> tuple[Calls, ...]:
    """Return one item for each of the model's functions, in file order."""
    if not model.functions:
        return ()
    callers = _callers(model)
    total = _totals([function.path for function in model.functions], callers)
    circular = _circular(callers, total)
    return tuple(
        Calls(
            function,
            sum(callers[function.path].values()),
            total.get(function.path),
            function.path in circular,
        )
        for function in model.functions
    )


_Called = tuple[GraphPath, str, str, str]
"""Component that contains the node, and the domain, name and overload of the function that the node calls."""

_MOST = 1 << 128
"""Largest count of calls: a chain of thousands of functions would give a number of thousands of digits."""


def _callers(model: Model) -> dict[GraphPath, Counter[GraphPath]]:
    """For each function, its callers and their number of call sites; () stands for all graphs outside functions."""
    bodies = {function.path for function in model.functions}
    callers: dict[GraphPath, Counter[GraphPath]] = defaultdict(Counter)
    for (path, _), called in called_bodies(model).items():
        body = path[: len(model.root(path)) + 1]
        callers[called][body if body in bodies else ()] += 1
    return callers


def _totals(
    paths: list[GraphPath], callers: dict[GraphPath, Counter[GraphPath]]
) -> dict[GraphPath, int | None]:
    """Count calls with everything inlined, in topological order and not by recursion: chains are thousands deep."""
    waiting = {path: sum(1 for caller in callers[path] if caller) for path in paths}
    called: dict[GraphPath, list[GraphPath]] = defaultdict(list)
    for path in paths:
        for caller in callers[path]:
            called[caller].append(path)
    ready = [path for path in paths if not waiting[path]]
    total: dict[GraphPath, int | None] = {(): 1}
    while ready:
        path = ready.pop()
        calls = [total[caller] for caller in callers[path]]
        known = sum(
            times * sites for times, sites in zip(calls, callers[path].values(), strict=True) if times
        )
        total[path] = None if None in calls or known > _MOST else known
        for other in called[path]:
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    return total


def _circular(
    callers: dict[GraphPath, Counter[GraphPath]], total: dict[GraphPath, int | None]
) -> set[GraphPath]:
    """Return the functions that call themselves, among those without a count: strongly connected components.

    Kosaraju's two walks, with lists and not by recursion.
    """
    unknown = callers.keys() - total.keys()
    above = {path: [caller for caller in callers[path] if caller in unknown] for path in unknown}
    below: dict[GraphPath, list[GraphPath]] = {path: [] for path in unknown}
    for path, found in above.items():
        for caller in found:
            below[caller].append(path)
    finished: list[GraphPath] = []
    seen: set[GraphPath] = set()
    for start in unknown:
        _walk(start, below, seen, finished)
    seen.clear()
    circular = {path for path in unknown if path in callers[path]}
    for start in reversed(finished):
        component: list[GraphPath] = []
        _walk(start, above, seen, component)
        if len(component) > 1:
            circular.update(component)
    return circular


def _walk(
    start: GraphPath,
    onwards: dict[GraphPath, list[GraphPath]],
    seen: set[GraphPath],
    finished: list[GraphPath],
) -> None:
    """Visit all unvisited places from a start in depth-first order, and note each when nothing is left beyond it."""
    if start in seen:
        return
    seen.add(start)
    stack = [(start, iter(onwards[start]))]
    while stack:
        place, rest = stack[-1]
        following = next((path for path in rest if path not in seen), None)
        if following is None:
            stack.pop()
            finished.append(place)
        else:
            seen.add(following)
            stack.append((following, iter(onwards[following])))


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
