"""What holds the house together: every module says what it is for, README lists every file."""

from __future__ import annotations

import ast

import house
import pytest

OURS = house.modules("exporter", "analyzer")


@pytest.mark.parametrize("module", OURS, ids=lambda module: module.place)
def test_a_module_opens_with_one_sentence_of_what_it_is_for(module: house.Module) -> None:
    assert module.purpose
    assert "|" not in module.purpose  # README's table


def test_imports_have_an_order_without_circles() -> None:
    assert len(house.in_order(OURS)) == len(OURS)


def test_readme_lists_every_file_in_the_order_of_the_data() -> None:
    readme = (house.ROOT / "README.md").read_text(encoding="utf-8")

    assert readme == house.with_files(readme), "make files"
    assert all(module.purpose in readme for module in OURS if module.name != "analyzer")


def public(module: house.Module) -> list[ast.ClassDef | ast.FunctionDef]:
    """What a module defines and another may ask for: its name begins with no underscore."""
    return [
        node
        for node in module.tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    ]


@pytest.mark.parametrize("module", OURS, ids=lambda module: module.place)
def test_what_a_module_offers_is_documented(module: house.Module) -> None:
    assert not [node.name for node in public(module) if not ast.get_docstring(node)]
