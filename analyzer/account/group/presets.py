"""Name of a model family, or `auto` and a ledger -> the groups that ship for it."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from importlib import resources

from analyzer.account.group.patterns import OwnGroups, compile_pattern, find_groups, list_names
from analyzer.account.ledger import Ledger, Match, Trainability
from analyzer.errors import UsageError
from analyzer.records import Frozen

AUTO = "auto"
"""Name that selects the preset that fits."""

MATCH: Match = "first"
"""Matching rule of presets: a tied matrix may be called `lm_head` and `embed_tokens`, and belongs to the first."""

_LAYER = re.compile(r"(?<=\.)\d+(?=\.)")


class Preset(Frozen):
    """Groups for one family of models."""

    name: str
    models: str
    """Names of the models in the family, for people."""
    groups: Mapping[str, str]
    """Regexes by the name of their group."""

    def compile(self, match: Match | None = None, note: str = "") -> OwnGroups:
        """Compile the groups; `match` overrides the rule of presets."""
        patterns = {name: compile_pattern(expression) for name, expression in self.groups.items()}
        return OwnGroups(patterns, match or MATCH, f"preset {self.name}{note}")


def load_presets() -> dict[str, Preset]:
    """Return every preset by its name, in the order in which `auto` prefers them."""
    text = resources.files(__package__).joinpath("presets.toml").read_text(encoding="utf-8")
    return {name: Preset(name, **table) for name, table in tomllib.loads(text).items()}


def check_preset(name: str) -> None:
    """Check before any work that a preset exists.

    Raises:
        UsageError: there is no such preset.
    """
    names = (*load_presets(), AUTO)
    if name not in names:
        near = difflib.get_close_matches(name, names)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"--preset {name}: {hint}There are {', '.join(names)}")


def find_preset(
    name: str, ledger: Ledger, known: Trainability | None = None, match: Match | None = None
) -> OwnGroups:
    """Return the groups of a preset; for `auto`, of the preset that leaves the fewest parameters without a group.

    Raises:
        UsageError: there is no such preset; or none has groups for most of the parameters with a PyTorch name; or too
            few parameters have such a name to tell.
    """
    check_preset(name)
    presets = load_presets()
    if name != AUTO:
        return presets[name].compile(match)
    weights = _weigh(ledger, known)
    grouped = {preset.name: _sum_up(preset, weights) for preset in presets.values()}
    best = max(grouped, key=lambda each: grouped[each].total())
    named_parameters, grouped_parameters = weights.total(), grouped[best].total()
    if 2 * grouped_parameters <= named_parameters and named_parameters:
        raise UsageError(
            f"{ledger.model.path}: no preset fits; the nearest, {best}, has groups for {grouped_parameters:,} of the "
            f"{named_parameters:,} parameters that have a PyTorch name; write --group NAME=REGEX"
        )
    if len(grouped[best]) < 2:  # a head or an embedding alone occurs in any family
        raise UsageError(
            f"{ledger.model.path}: cannot tell which preset fits, because only {named_parameters:,} of "
            f"{ledger.parameters:,} parameters have a PyTorch name; name a preset, or try --by block"
        )
    return presets[best].compile(match, f" ({AUTO})")


def _sum_up(preset: Preset, weights: Counter[tuple[str, ...]]) -> Counter[str]:
    """Count parameters by group, for groups that have any."""
    patterns = preset.compile().patterns
    counts: Counter[str] = Counter()
    for names, count in weights.items():
        counts.update(dict.fromkeys(find_groups(names, patterns, "first"), count))
    return counts


def _weigh(ledger: Ledger, known: Trainability | None) -> Counter[tuple[str, ...]]:
    """Count parameters by their names, with all layers of a stack under one name: no preset tells them apart.

    Parameters without a PyTorch name are left out: they say nothing about the family.
    """
    weights: Counter[tuple[str, ...]] = Counter()
    for entry in ledger.entries:
        if entry.parameters and (entry.has_scope or entry.sources or entry.tensor.key in (known or {})):
            weights[tuple(_LAYER.sub("0", text) for text in list_names(entry, known))] += entry.parameters
    return weights
