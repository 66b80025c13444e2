"""Expressions are a small subset of Python's: same values, and nothing is executed."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import FormulaError
from analyzer.formulas.family import load_families
from analyzer.formulas.language import FUNCTIONS, Value, parse_expression

WORDS = ("gated-gelu", "relu", "")
NAMES = {"a": "a", "b": "b", "size": "size", "flag": "flag", "text": "text", "missing": "missing"}

VALUES: st.SearchStrategy[dict[str, Value]] = st.fixed_dictionaries(
    {
        "a": st.integers(-5, 10**30),
        "b": st.integers(0, 9),
        "size": st.integers(1, 99) | st.tuples(st.integers(1, 99), st.integers(1, 99)),
        "flag": st.booleans(),
        "text": st.sampled_from(WORDS),
        "missing": st.none(),
    }
)


def _numbers(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["a", "b", "height(size)", "width(size)"]) | st.integers(0, 10**20).map(str)
    if depth == 0:
        return leaf
    inner, conditions = _numbers(depth - 1), _conditions(depth - 1)
    return st.one_of(
        leaf,
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "//"]), inner),
        st.builds("{} {} {}".format, leaf, st.sampled_from(["+", "-", "*", "//"]), leaf),
        st.builds("{}**{}".format, leaf, st.integers(0, 4)),
        st.builds("-{}".format, leaf),
        st.builds("({} if {} else {})".format, inner, conditions, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner),
        st.builds("sparse_layers({}, {}, (1, 3))".format, leaf, leaf),
    )


def _conditions(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(
        ["flag", "not flag", "missing is None", "text is not None", "starts(text, 'gated-')", "True"]
    )
    if depth == 0:
        return leaf
    numbers, inner = _numbers(depth - 1), _conditions(depth - 1)
    compare = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    return st.one_of(
        leaf,
        st.builds("({} {} {})".format, numbers, compare, numbers),
        st.builds("({} < {} <= {})".format, numbers, numbers, numbers),
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner),
        st.builds("(not {})".format, inner),
        st.builds(
            "text {} ({!r}, {!r})".format, st.sampled_from(["in", "not in"]), *[st.sampled_from(WORDS)] * 2
        ),
        st.builds("(text {} {!r})".format, st.sampled_from(["==", "!="]), st.sampled_from(WORDS)),
    )


TEXTS = _numbers(3) | _conditions(3)


def pythons(text: str, values: Mapping[str, Value]) -> Any:
    """Return the value that Python computes."""
    return eval(text, {"__builtins__": {}, **FUNCTIONS}, dict(values))


# values


@settings(deadline=None, max_examples=300)
@given(TEXTS, VALUES)
def test_an_expression_has_the_value_that_python_gives_it(text: str, values: dict[str, Value]) -> None:
    expression = parse_expression(text)
    try:
        value = expression.evaluate(values)
    except FormulaError:
        # Where Python has a value too, it uses a truth value as a number, which no formula means.
        assert "divides by zero" in _refusal(text, values) or "cannot be computed" in _refusal(text, values)
        return

    expected = pythons(text, values)
    assert (type(value), value) == (type(expected), expected)


def _refusal(text: str, values: Mapping[str, Value]) -> str:
    with pytest.raises(FormulaError) as error:
        parse_expression(text).evaluate(values)
    return str(error.value)


@settings(deadline=None, max_examples=200)
@given(_numbers(3), VALUES)
def test_arithmetic_without_a_division_by_zero_is_never_refused(text: str, values: dict[str, Value]) -> None:
    try:
        expected = pythons(text, values)
    except ZeroDivisionError:
        assert "divides by zero" in _refusal(text, values)
    else:
        assert parse_expression(text).evaluate(values) == expected


@settings(deadline=None, max_examples=300)
@given(TEXTS, VALUES)
def test_settling_never_changes_the_value(text: str, values: dict[str, Value]) -> None:
    expression = parse_expression(text)
    try:
        value = expression.evaluate(values)
        settled = expression.settle(values)
    except FormulaError:
        return  # the condition of an untaken branch may have no value

    assert settled.evaluate(values) == value
    assert settled.settle(values) == settled or settled.settle(values).text == settled.text
    assert not any(isinstance(node, ast.IfExp) for node in ast.walk(settled.tree))


@settings(deadline=None)
@given(TEXTS)
def test_a_text_that_is_read_again_is_the_same_text(text: str) -> None:
    once = parse_expression(text).text

    assert parse_expression(once).text == once


@settings(deadline=None)
@given(_numbers(2), _numbers(2), VALUES)
def test_sums_and_products_of_expressions_are_those_of_their_values(
    text: str, other: str, values: dict[str, Value]
) -> None:
    one, two = parse_expression(text), parse_expression(other)
    try:
        first, second = one.evaluate(values), two.evaluate(values)
    except FormulaError:
        return

    assert isinstance(first, int)
    assert isinstance(second, int)
    assert (one + two).evaluate(values) == first + second
    assert parse_expression((one * two).text).evaluate(values) == first * second


@given(st.integers(10**15, 10**400), st.integers(10**15, 10**400))
def test_huge_numbers_are_exact(a: int, b: int) -> None:
    assert parse_expression("a**4*b + a // b - 1").count({"a": a, "b": b}) == a**4 * b + a // b - 1


def test_every_formula_that_ships_is_settled_to_its_value() -> None:
    for family in load_families().values():
        values = {name: field.default for name, field in family.fields.items()}
        for field in family.fields.values():
            if values[field.name] is None and field.otherwise is not None:
                values[field.name] = field.otherwise.evaluate(values)
        for computed in family.values:
            values[computed.name] = computed.expression.evaluate(values)
        for expression in family.expressions:
            assert expression.settle(values).evaluate(values) == expression.evaluate(values)
            assert parse_expression(expression.text).text == expression.text


@pytest.mark.parametrize(
    ("text", "settled"),
    [
        ("a + (b if flag else 0)", "a"),
        ("a*(b if flag else 1)", "a * 1"),
        ("0 + a - 0", "a"),
        ("(1 if flag else 0)*a + b", "b"),
        ("a if a > 1 else b", "b"),
        ("max(a if flag else b, 2)", "max(b, 2)"),
    ],
)
def test_what_the_config_does_not_choose_is_left_out(text: str, settled: str) -> None:
    assert parse_expression(text).settle({"a": 1, "b": 2, "flag": False}).text == settled


def test_what_a_condition_does_not_reach_is_not_computed() -> None:
    assert parse_expression("b != 0 and a // b > 1").evaluate({"a": 1, "b": 0}) is False
    assert parse_expression("0 if b == 0 else a // b").count({"a": 1, "b": 0}) == 0


def test_names_and_words_are_listed_once_and_in_order() -> None:
    expression = parse_expression("width(b)*a + (b if text in ('x', 'y') or text == 'x' else 2)")

    assert set(expression.names) == {"a", "b", "text"}
    assert len(expression.names) == 3
    assert set(expression.words) == {"x", "y"}


# messages


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a // b", r"a // b: divides by zero with a = 6, b = 0"),
        ("a*text", r"a \* text: cannot be computed with a = 6, text = 'relu'"),
        ("a*flag", r"cannot be computed with a = 6, flag = True"),
        ("height(pair)", r"cannot be computed with pair = \(1, 2, 3\)"),
        ("width(empty)", r"cannot be computed with empty = \(\)"),
        ("text < a", r"cannot be computed with text = 'relu', a = 6"),
        ("a in b", r"cannot be computed"),
        ("min(a)", r"cannot be computed"),
        ("sparse_layers(a, 1, text)", r"cannot be computed"),
        ("nothing + 1", r"nothing: no such field"),
        ("height + 1", r"height: no such field"),
    ],
)
def test_what_cannot_be_computed_names_the_fields(text: str, message: str) -> None:
    values = {"a": 6, "b": 0, "text": "relu", "flag": True, "pair": (1, 2, 3), "empty": ()}
    with pytest.raises(FormulaError, match=message):
        parse_expression(text).evaluate(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a - 7", r"a - 7: is -1 with a = 6, not a count"),
        ("text", "is 'relu' with text = 'relu', not a count"),
        ("a > 1", "is True with a = 6, not a count"),
        ("-(big**4)", r"is a number of [\d,]+ bits with big = a number of [\d,]+ bits, not a count"),
    ],
)
def test_what_is_no_count_is_refused(text: str, message: str) -> None:
    values = {"a": 6, "text": "relu", "big": 10**6000}
    with pytest.raises(FormulaError, match=message):
        parse_expression(text).count(values)


def test_a_condition_of_the_wrong_kind_is_refused_where_it_is_settled_too() -> None:
    with pytest.raises(FormulaError, match="cannot be computed with text = 'relu'"):
        parse_expression("1 if text > 2 else 3").settle({"text": "relu"})


def test_a_message_is_short_however_long_the_value_is() -> None:
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    for value in ("x" * 10**6, (1,) * 10**6, deep, {"k": deep}, 10**9_999):
        with pytest.raises(FormulaError) as error:
            parse_expression("value + 'text'").evaluate({"value": value})
        assert len(str(error.value)) < 400


# refusals

REFUSED = [
    "",
    " ",
    "a b",
    "a +",
    "a; b",
    "a = 1",
    "import os",
    "print(1)",
    "__import__('os').system('true')",
    "a.b",
    "a.__class__",
    "a[0]",
    "(1, 2)[0]",
    "lambda: 1",
    "f'{a}'",
    "(a := 1)",
    "[a for a in (1, 2)]",
    "{a for a in (1, 2)}",
    "sum(x for x in (1, 2))",
    "[1, 2]",
    "{1: 2}",
    "{1}",
    "await a",
    "yield a",
    "*a",
    "min(*a)",
    "min(a, key=b)",
    "min(**a)",
    "height(size)(1)",
    "(min)(1)(2)",
    "(min if a else max)(1, 2)",
    "eval('1')",
    "open('x')",
    "a / b",
    "a % b",
    "a @ b",
    "a << 9",
    "a >> 1",
    "a & b",
    "a | b",
    "a ^ b",
    "~a",
    "+a",
    "a ** 5",
    "2 ** 10 ** 10",
    "9 ** 999999999",
    "a ** b",
    "a ** -1",
    "a ** True",
    "a ** 2.0",
    "((a ** 4) ** 4) ** 4",
    "(1 + a ** 2) ** 2",
    "1.5",
    "1e9",
    "2j",
    "b'x'",
    "...",
    "a is b",
    "a is 5",
    "a is not 'x'",
    "\u00e9 + 1",
    "\uff41 + 1",
    "'\u00e9'",
    "a \u2212 b",
    "\ud800",
    "a\x00",
    "a\nb",
    "9" * 2_001,
    "(" * 10_000 + "a" + ")" * 10_000,
    "(" * 900 + "a" + ")" * 900,
    "-" * 1_900 + "a",
    "not " * 400 + "a",
    "-(" * 150 + "a" + ")" * 150,
    "+".join("a" * 500),
    "a" + "+a" * 120,
    "a" + " if a else a" * 100,
]


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_no_formula_has_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_expression(text)


def test_parsing_executes_nothing() -> None:
    events: list[str] = []
    is_listening = True

    def listen(event: str, _: object) -> None:
        if is_listening and event in {"exec", "import", "open", "os.system", "subprocess.Popen"}:
            events.append(event)

    sys.addaudithook(listen)  # cannot be removed before the process ends, so a flag switches it off
    for text in REFUSED:
        with pytest.raises(ValueError, match=r"."):
            parse_expression(text)
    parse_expression("a + min(b, 2)").evaluate({"a": 1, "b": 2})
    is_listening = False

    assert events == []


@settings(deadline=None, max_examples=500)
@given(st.text(max_size=40) | st.text("ab01 ()+-*/<>=.,:'\"[]{}notifelsandr_\\#", max_size=60))
def test_any_text_is_an_expression_or_a_valueerror(text: str) -> None:
    try:
        expression = parse_expression(text)
    except ValueError:
        return

    assert parse_expression(expression.text).text == expression.text
    with contextlib.suppress(FormulaError):
        expression.evaluate(dict.fromkeys(expression.names, 3))
