"""`make mutants`: the changes that it makes in a rule, and evidence that the changed rule runs."""

from __future__ import annotations

import gc
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tools.mutants.applying import Loaded
from tools.mutants.changes import Mutant, mutants_of

SOURCE = '''"""A rule."""

from functools import cache

LIMIT = 3
text = "not a table"


@cache
def is_small(count: int, most: int = 9) -> bool:
    """Whether it is."""
    return (
        count < most
        and len("as it is") > 0
    )


class Rule:
    name: str = "no function's"

    @property
    def word(self) -> str:
        return "yes"
'''


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "rule.py"
    place.write_text(SOURCE, encoding="utf-8")
    return place


@pytest.fixture
def rule(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("rule", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mutants_by_name(path: Path) -> dict[str, Mutant]:
    return {mutant.name: mutant for mutant in mutants_of(path, "room.rule")}


def test_tables_functions_and_methods_are_changed_in_one_place_each(path):
    mutants = mutants_by_name(path)

    assert {name: mutant.diff.splitlines()[-1].strip() for name, mutant in mutants.items()} == {
        "room.rule.<module>#1": "+LIMIT = None",
        "room.rule.<module>#2": "+LIMIT = 4",
        "room.rule.is_small#1": '+        count < most or len("as it is") > 0',
        "room.rule.is_small#2": "+        count <= most",
        "room.rule.is_small#3": '+        and len("as it is") >= 0',
        "room.rule.is_small#4": '+        and len("as it is") > 1',
        "room.rule.Rule.word#1": '+        return "XXyesXX"',
    }
    for mutant in mutants.values():
        compile(mutant.source, mutant.path, "exec")


def test_any_line_of_the_statement_around_a_change_leads_to_its_tests(path):
    lines = mutants_by_name(path)["room.rule.is_small#2"].lines

    assert SOURCE.splitlines()[lines[0] - 1 : lines[-1]] == [
        "    return (",
        "        count < most",
        '        and len("as it is") > 0',
        "    )",
    ]


@pytest.mark.parametrize("is_frozen", [False, True])
def test_functions_behind_decorators_run_as_the_mutant_says(path, rule, is_frozen):
    if is_frozen:  # as the tests freeze what they have imported
        gc.freeze()
    mutants, loaded = mutants_by_name(path), Loaded([path])
    assert (rule.is_small.__wrapped__(9), rule.Rule().word) == (False, "yes")

    loaded.apply(mutants["room.rule.is_small#2"])
    loaded.apply(mutants["room.rule.Rule.word#1"])

    assert (rule.is_small.__wrapped__(9), rule.Rule().word) == (True, "XXyesXX")


def test_mutants_of_a_file_that_is_not_loaded_are_refused(path):
    with pytest.raises(RuntimeError, match="no mutant would run"):
        Loaded([path])
