"""Values in messages are short, and short values are written as in Python."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from analyzer.text import shown


@given(
    st.integers(-(10**40), 10**40) | st.booleans() | st.none() | st.floats() | st.text("ab'\"", max_size=60)
)
def test_a_short_value_is_as_python_has_it(value: object) -> None:
    assert shown(value) == repr(value)


@given(
    st.recursive(
        st.integers() | st.text() | st.floats() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=60,
    )
)
def test_any_value_of_a_config_is_shown_in_a_line(value: Any) -> None:
    assert 0 < len(shown(value)) <= 203
    assert shown(value).isprintable()


def test_a_value_of_many_long_ones_is_cut() -> None:
    assert shown([["x" * 100] * 9] * 9).endswith("...")


def test_a_number_of_thousands_of_digits_is_printed_as_its_length() -> None:
    assert shown((10**9_999, {"a": -(10**9_999)})) == (
        "(a number of 33,216 bits, {'a': a number of 33,216 bits})"
    )
