"""Lines of a TOML document: every key, table and element that tomllib finds has its correct line."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.budget.config.toml_lines import Path, find_lines


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every value in a document."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*path, key))


EVERYTHING = '''\
# a comment, with a = "sign"
title = "one # two" # three
a.b . "c.d".'e"f' = 1
[table]
text = """
[no.table]
key = "no key"
""" # after
literal = \'\'\'
]]]
\'\'\'
quotes = """"two"""""
[ table . inner ] # comment
list = [ # comment ]
  1, 2.5e3,
  "x,]", [ 'y', { z = [1979-05-27 07:32:00, inf] } ],

  true,
]
inline = { p = 1, q.r = "}" , s = {} }
[[rules]]
name = "first"
[[rules]]
name = "second"
[rules.more]
limit = 0x1F
[[rules.deep]]
x = []
[[rules.deep]]
x = 07:32:00
["quoted key"]
"\\u00e9" = -1
'''


def test_every_key_has_a_line_and_nothing_else_has() -> None:
    assert find_lines(EVERYTHING).keys() == set(paths(tomllib.loads(EVERYTHING)))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("title",), 2),
        (("a", "b", "c.d", 'e"f'), 3),
        (("table",), 4),
        (("table", "text"), 5),
        (("table", "literal"), 9),
        (("table", "quotes"), 12),
        (("table", "inner"), 13),
        (("table", "inner", "list"), 14),
        (("table", "inner", "list", 1), 15),
        (("table", "inner", "list", 3, 1, "z", 0), 16),
        (("table", "inner", "list", 4), 18),
        (("table", "inner", "inline", "q", "r"), 20),
        (("rules",), 21),
        (("rules", 0, "name"), 22),
        (("rules", 1), 23),
        (("rules", 1, "name"), 24),
        (("rules", 1, "more", "limit"), 26),
        (("rules", 1, "deep", 1, "x"), 30),
        (("quoted key", "é"), 32),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_line_is_where_the_key_stands(path: Path, line: int, newline: str) -> None:
    assert find_lines(EVERYTHING.replace("\n", newline))[path] == line


KEYS = st.sampled_from(["a", "b-1", '"c d"', "'e.f'", "7", '"\\n"'])
SCALARS = st.sampled_from(
    [
        "1",
        "-2.5",
        "true",
        "nan",
        "2024-01-31 10:00:00",
        '"#[{"',
        "'\\d+'",
        '"""x\n]\n"""',
        "'''\n=\n'''",
        '""',
    ]
)
GAPS = st.sampled_from(["", " ", "\n", " # ]\n"])


def lists(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    element = st.tuples(GAPS, values, GAPS).map("".join)
    return st.lists(element, max_size=3).map(lambda each: f"[{','.join(each)}]")


def tables(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.dictionaries(KEYS, values, max_size=3)
    return pairs.map(lambda each: "{" + ", ".join(f"{key} = {value}" for key, value in each.items()) + "}")


VALUES = st.recursive(SCALARS, lambda inner: lists(inner) | tables(inner), max_leaves=6)
HEADERS = st.tuples(st.sampled_from(["[{}]", "[[{}]]"]), st.lists(KEYS, min_size=1, max_size=3)).map(
    lambda each: each[0].format(" . ".join(each[1]))
)
PAIRS = st.tuples(st.lists(KEYS, min_size=1, max_size=2).map(".".join), VALUES).map(" = ".join)


@given(st.lists(HEADERS | PAIRS | st.just("# [x]") | st.just(""), max_size=8).map("\n".join))
def test_any_document_is_read_as_tomllib_reads_it(text: str) -> None:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assert isinstance(find_lines(text), dict)
        return

    assert find_lines(text).keys() == {path for path in paths(document) if len(path) <= 8}


@given(st.text(alphabet="[]{}=.,#\"'\\\n ab1", max_size=40))
def test_what_is_no_toml_neither_fails_nor_hangs(text: str) -> None:
    lines = find_lines(text)

    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())


@pytest.mark.parametrize("text", ["a = " + "[" * 5_000, "a = " + "{b=" * 5_000, "a." * 200 + "a = 1"])
def test_what_is_nested_deep_is_left_out(text: str) -> None:
    assert all(len(path) <= 8 for path in find_lines(text))
