"""Published models -> the tables of docs/evidence/formulas.md: `make formulas` counts each on the meta device first."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path

from analyzer.formulas.algebra import Algebra
from analyzer.formulas.check import check_formula
from analyzer.formulas.counting import count_config
from analyzer.formulas.family import Family, find_family, load_families
from analyzer.formulas.record import Checked, Formula
from exporter.presets import Published, load_published

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}
_PRINTED = re.compile(r"(\d[\d,]*(?:\.\d+)?)([KMB]?)")


def rounds_to(count: int, printed: str) -> bool:
    """Whether a count rounds to the printed number. Trailing zeros of a whole number may be insignificant digits.

    >>> rounds_to(109_482_240, "110M"), rounds_to(109_482_240, "109.5M"), rounds_to(109_482_240, "109M")
    (True, True, True)
    >>> rounds_to(109_482_240, "108M"), rounds_to(65_285_660_672, "65.2B"), rounds_to(8_030_261_248, "8.1B")
    (False, False, False)
    """
    match = _PRINTED.fullmatch(printed)
    assert match is not None, printed
    digits, unit = match[1].replace(",", ""), _UNITS[match[2]]
    decimals = len(digits.partition(".")[2])
    zeros = 0 if decimals else len(digits) - len(digits.rstrip("0"))
    error = abs(count - Decimal(digits) * unit)
    return 2 * error <= Decimal(unit).scaleb(zeros - decimals)


def formula_of(model: Published, model_class: str | None = None) -> Formula:
    """Return a model's closed form, computed from its published fields alone."""
    formula = count_config(model.config, model_class, source=model.hub_id)
    assert formula is not None, model.hub_id
    return formula


def classes_of(model: Published) -> tuple[str, ...]:
    """Return the classes whose parameters are counted: the model's architecture, and the class of its publication."""
    return tuple(dict.fromkeys((model.architectures[0], model.counted_class)))


def take_census(model: Published) -> Iterator[Checked]:
    """Compare a model's closed forms with the classes of transformers on the meta device."""
    from exporter import census_config

    for model_class in classes_of(model):
        manifest = census_config(model.config, model_class=model_class)
        yield check_formula(formula_of(model, model_class), manifest)


def differences(checked: Checked) -> list[str]:
    """Return the differences between the census and the closed form: by part, and in total."""
    formula, side = checked.formula, checked.census
    assert side is not None
    found = [f"{name}: {count:,} in no part" for name, count in side.unmatched.items()]
    wanted = {part.key: part.value for part in formula.parts}
    found += [
        f"{key}: {wanted.get(key, 0):,} in the formula, {side.counts.get(key, 0):,} in the census"
        for key in dict.fromkeys((*wanted, *side.counts))
        if wanted.get(key, 0) != side.counts.get(key, 0)
    ]
    if formula.total != side.total:
        found.append(f"total: {formula.total:,} in the formula, {side.total:,} in the census")
    return found


# the page


def render_families(families: Iterable[Family]) -> str:
    """Return the table of all closed forms with their layers, their cache and their publication."""
    lines = [
        "| family | `model_type` | classes | layers | cache a token | from |",
        "|---|---|--:|---|---|---|",
    ]
    for family in families:
        formula = count_config({"model_type": family.model_types[0]})
        assert formula is not None, family.key
        algebra = Algebra(formula)
        layers = [algebra.term(term, usual=True) for term in formula.terms if term.name.endswith("blocks")]
        cells = (
            f"[{family.name}](../../analyzer/formulas/families/{family.key}.toml)",
            ", ".join(f"`{model_type}`" for model_type in family.model_types),
            str(len(family.classes)),
            "<br>".join(f"`{layer.text}`" for layer in layers if layer is not None),
            "-" if formula.cache is None else f"`{algebra.token_cache(formula.cache).text}`",
            family.source,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


_HEAD = (
    "| model | class | formula = census | published | where, and why it differs |",
    "|---|---|--:|--:|---|",
)


def render_models(models: Iterable[Published]) -> str:
    """Return the tables of all models with their exact and published counts, family by family."""
    lines: list[str] = []
    heading = None
    for model in models:
        family = find_family(model.model_type)
        assert family is not None, model.hub_id
        if family.name != heading:
            heading = family.name
            lines += ["", f"### {heading}", "", *_HEAD]
        lines.append(_row(model))
    return "\n".join([*lines, ""])


def _row(model: Published) -> str:
    counted = formula_of(model, model.counted_class)
    counts, printed = [f"{counted.total:,}"], [_printed(counted.total, model.published)]
    if model.active is not None:
        counts.append(f"active {counted.active:,}")
        printed.append(f"active {_printed(counted.active, model.active)}")
    origin = model.source if model.note is None else f"{model.source}. {model.note}"
    cells = (f"`{model.hub_id}`", model.counted_class, "<br>".join(counts), "<br>".join(printed), origin)
    return f"| {' | '.join(cells)} |"


def _printed(count: int, printed: str | None) -> str:
    if printed is None:
        return "-"
    return printed if rounds_to(count, printed) else f"*{printed}*"


def render_page(page: str) -> str:
    """Return the page with today's tables, and today's counts in its sentences."""
    families, models = load_families(), load_published()
    page = _put_into(page, "families", render_families(families.values()))
    page = _put_into(page, "models", render_models(models.values()))
    for count, sentence in (
        (len(models), r"^\d+(?= models of \d+ families)"),
        (len(families), r"(?<= models of )\d+(?= families)"),
    ):
        page, places = re.subn(sentence, str(count), page, flags=re.MULTILINE)
        assert places == 1, f"the page says {places} times what {sentence} finds"
    return page


_END = "<!-- end -->"


def table_of(page: str, name: str) -> str:
    """Return the text between the marks of a table."""
    return page.partition(_begin(name))[2].partition(_END)[0]


def _put_into(page: str, name: str, table: str) -> str:
    before, begin, rest = page.partition(_begin(name))
    assert begin, f"the page has no mark where the table of {name} begins"
    after = rest.partition(_END)[2]
    return f"{before}{begin}\n{table}\n{_END}{after}"


def _begin(name: str) -> str:
    return f"<!-- {name}: made by `make formulas` -->"


def main() -> None:
    """Check the published models, and rewrite the tables of the page."""
    described = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tools.published", description=described)
    parser.add_argument("--only", default="", metavar="TEXT", help="models whose hub id has this in it")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the tables into this page")
    options = parser.parse_args()
    found: list[str] = []
    for model in load_published().values():
        for checked in take_census(model) if options.only in model.hub_id else ():
            wrong = differences(checked)
            found += wrong
            formula, verdict = checked.formula, "; ".join(wrong) or "as the census"
            sys.stdout.write(f"{model.hub_id:42} {formula.class_name:31} {formula.total:>15,}  {verdict}\n")
            sys.stdout.flush()
    if options.markdown and not found:
        page = options.markdown.read_text(encoding="utf-8")
        options.markdown.write_text(render_page(page), encoding="utf-8")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
