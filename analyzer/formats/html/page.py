"""Sections -> one self-contained page, with style, scripts and data in it, and a policy that names these."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from analyzer.account.findings.catalog import list_paragraphs
from analyzer.formats.html.blocks import Cell, Section, find_shown
from analyzer.text import format_count
from analyzer.version import version

if TYPE_CHECKING:
    from jinja2 import Environment

LIBRARY = "vendor/echarts-6.1.0.min.js"
"""Library of the charts, unchanged."""

_SCRIPTS = ("start", "grid", "tree", "charts", "main")
"""Files of the page's own script, in order."""


def make_page(title: str, sections: Sequence[Section]) -> str:
    """Return the page as text.

    Its policy allows the two scripts and the style by their checksums, and nothing else: no address is ever requested,
    and no code in a name would run.
    """
    scripts = (_read(LIBRARY), _own_script())
    style = _read("report.css")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(_checksum, scripts))}",
            f"style-src {_checksum(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    template = _environment().get_template("page.html.jinja")
    page = template.render(
        title=title, sections=sections, style=style, scripts=scripts, policy=policy, version=version()
    )
    return f"{page.rstrip()}\n"


def _own_script() -> str:
    parts = "\n".join(_read(f"js/{name}.js") for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


@functools.cache
def _read(path: str) -> str:
    text = resources.files(__package__).joinpath(path).read_text(encoding="utf-8")
    assert "</" not in text or not any(f"</{tag}" in text.lower() for tag in ("script", "style"))
    return text


def _checksum(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@functools.cache
def _environment() -> Environment:
    """Return the environment of the templates, compiled once, as a process may write many pages."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "cell": _show_cell,
        "island": _island,
        "paragraphs": list_paragraphs,
        "shown": find_shown,
    }
    return environment


def _show_cell(cell: Cell) -> str:
    return format_count(cell) if isinstance(cell, int) else cell


_ISLAND = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def _island(data: Mapping[str, Any]) -> Any:
    """Return data as JSON that ends no HTML element and begins none."""
    from markupsafe import Markup

    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_ISLAND))
