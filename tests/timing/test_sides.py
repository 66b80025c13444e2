"""Producers and readers of values in a main graph."""

from __future__ import annotations

from pathlib import Path

import models

from analyzer.read import read_model
from analyzer.timing.attribution import MainGraph

NESTED = """
g (float[2] x, bool c) => (float[2] z)
{
    [one] a = Relu(x)
    [two] b = If(c) <then_branch = t () => (float[2] t1) { t1 = Neg(a) }, else_branch = e () => (float[2] e1)
        { e1 = Exp(x) }>
    [three] z = Abs(b)
}
"""


def side(folder: Path, text: str, aliases: dict[str, str] | None = None) -> MainGraph:
    return MainGraph.of(read_model(models.save(folder, models.text_model(text))), aliases or {})


def test_makers_and_readers_are_neighbours(tmp_path: Path) -> None:
    found = side(tmp_path, "g (float[2] x) => (float[2] z) { a = Relu(x) b = Neg(a) z = Add(a, b) }")

    assert [found.before(n) for n in range(3)] == [[], [0], [0, 1]]
    assert [found.after(n) for n in range(3)] == [[1, 2], [2], []]
    assert found.is_computed("a")
    assert found.is_computed("x")
    assert not found.is_computed("w")


def test_a_nested_graph_reads_what_it_takes_from_around_it(tmp_path: Path) -> None:
    found = side(tmp_path, NESTED)

    assert set(found.reads[1]) == {"c", "a", "x"}
    assert found.after(0) == [1]


def test_a_value_under_an_alias_is_that_value(tmp_path: Path) -> None:
    text = "g (float[2] x) => (float[2] z) { wide = Relu(x) a = Cast<to=1>(wide) z = Neg(a) }"
    found = side(tmp_path, text, {"wide": "a"})

    assert found.makers["a"] == 0
    assert found.gives[1] == ()


def test_what_is_stored_is_not_computed(tmp_path: Path) -> None:
    found = side(
        tmp_path, "g (float[2] x) => (float[2] z) { k = Constant<value = float {1}>() z = Add(x, k) }"
    )

    assert "k" not in found.makers
