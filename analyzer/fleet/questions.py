"""The name of a ready question -> its answer from a lake."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from analyzer.answer import Answer
from analyzer.errors import UsageError
from analyzer.fleet.lake import Lake
from analyzer.fleet.sql import ask_lake

__all__ = ["answer_question", "list_questions", "load_questions"]

FAMILIES = "families"
_SAYS = "Which models hold the same weights, or are cast, quantized, fine-tuned or merged from which; what copies cost."
_MEMORY = 8 << 30


@functools.cache
def load_questions() -> Mapping[str, Mapping[str, str]]:
    """The ready questions by name: what each `says`, its `sql`, and what it `needs`."""
    text = resources.files("analyzer.fleet").joinpath("questions.toml").read_text(encoding="utf-8")
    return {**tomllib.loads(text), FAMILIES: {"says": _SAYS}}


def list_questions() -> Answer:
    """The questions that there are."""
    return Answer(("question", "says"), [(name, each["says"]) for name, each in load_questions().items()])


def answer_question(
    lake: Path | str | Lake,
    name: str,
    *,
    earlier: Path | str | None = None,
    variables: Mapping[str, int | str] | None = None,
) -> Answer:
    """Ask a lake a ready question.

    Args:
        lake: its folder.
        name: one of `load_questions`.
        earlier: another lake, for `growth`.
        variables: `memory` in bytes, for `fits`.

    Raises:
        UsageError: there is no such question or lake, or it needs an earlier one.
        MissingExtraError: duckdb or pyarrow is not installed.
    """
    found = load_questions().get(name)
    if found is None:
        raise UsageError(f"--question {name}: there is none; there are {', '.join(load_questions())}")
    if found.get("needs") == "baseline" and earlier is None:
        raise UsageError(f"--question {name}: over what? Name an earlier lake with --baseline LAKE")
    if name == FAMILIES:
        from analyzer.fleet.families import find_families

        return find_families(lake, says=found["says"])
    answer = ask_lake(lake, found["sql"], earlier=earlier, variables={"memory": _MEMORY, **(variables or {})})
    return Answer(answer.columns, answer.rows, found["says"])
