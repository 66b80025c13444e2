"""Formulas of tiny models, and counts to compare them with."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from analyzer.formulas.counting import count_config
from analyzer.formulas.family import load_family
from analyzer.formulas.language import Value
from analyzer.formulas.record import Formula, Side

FOLDER = Path(__file__).parent / "variants"
FAMILIES = Path(__file__).parents[2] / "analyzer" / "formulas" / "families"


def read_variants(key: str) -> dict[str, Any]:
    """Return the tiny configs of a family, else of the family that it is like; empty if neither has any."""
    path = FOLDER / f"{key}.toml"
    if path.is_file():
        return tomllib.loads(path.read_text(encoding="utf-8"))
    family = tomllib.loads((FAMILIES / f"{key}.toml").read_text(encoding="utf-8"))
    return read_variants(family["like"]) if "like" in family else {}


def tiny_config(key: str, name: str | None = None) -> dict[str, Any]:
    """Return the config of the family's smallest model."""
    base = read_variants(key)["base"]
    class_entry = {} if name is None else {"architectures": [name]}
    return {"model_type": load_family(key).model_types[0], **base, **class_entry}


def tiny_formula(
    key: str,
    name: str | None = None,
    changes: Mapping[str, Value] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Formula:
    """Return its formula, with these changes."""
    counted = count_config({**tiny_config(key, name), **(config or {})}, changes=changes)
    assert counted is not None
    return counted


def side_of(
    formula: Formula,
    kind: Literal["census", "model"] = "model",
    *,
    unmatched: Mapping[str, int] | None = None,
) -> Side:
    """Return a file that has exactly the counts of a formula."""
    return Side(
        name="model.onnx",
        kind=kind,
        counts={part.key: part.value for part in formula.parts if part.value},
        vectors={part.key: part.vector_elements for part in formula.parts if part.vector_elements},
        unmatched=dict(unmatched or {}),
    )
