"""An open page -> its defects for readers: contrast, names, headings, width, focus."""

from __future__ import annotations

from collections import Counter
from typing import Any

from playwright.sync_api import Locator, Page

__all__ = [
    "count_colours",
    "count_elements",
    "find_duplicate_ids",
    "find_handlers",
    "find_nameless",
    "find_pale_text",
    "find_unfocused",
    "headings",
    "is_wide",
]

_INTERACTIVE = {
    "button",
    "checkbox",
    "combobox",
    "link",
    "listbox",
    "menuitem",
    "option",
    "radio",
    "searchbox",
    "slider",
    "spinbutton",
    "switch",
    "tab",
    "textbox",
    "DisclosureTriangle",
}

# Blends colours as the browser does, from the canvas up to the text. Returns text with less contrast than WCAG 2 asks
# for at level AA: 4.5, for large text 3.
_PALE = """
() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parsed = new Map();
  const parse = (text) => {
    if (!parsed.has(text)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = text;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      parsed.set(text, [r, g, b, a / 255]);
    }
    return parsed.get(text);
  };
  const over = (top, below) => top.slice(0, 3).map((value, i) => value * top[3] + below[i] * (1 - top[3]));
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const base = getComputedStyle(document.documentElement).colorScheme.includes("dark") &&
    matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
  const painted = new Map([[null, base]]);
  const behind = (element) => {
    if (!painted.has(element)) {
      const below = behind(element.parentElement);
      painted.set(element, over(parse(getComputedStyle(element).backgroundColor), below));
    }
    return painted.get(element);
  };
  const known = new Map();
  const pale = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let looked = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest("script, style, noscript, template")) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const style = getComputedStyle(element);
    const below = behind(element);
    const key = [style.color, below, style.fontSize, style.fontWeight].join();
    if (known.has(key)) continue;
    const [a, b] = [luminance(over(parse(style.color), below)), luminance(below)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    looked += 1;
    known.set(key, ratio);
    if (ratio < least) {
      const where = `${element.localName}.${element.className}`;
      pale.push(`${where} ${style.color} on ${below.map(Math.round)}: ${ratio.toFixed(2)}`);
    }
  }
  return { looked, pale };
}
"""

_HANDLERS = """
() => {
  const places = /^(href|src|action|formaction|srcdoc|data|xlink:href|background|poster)$/;
  const bad = ({ name, value }) => name.startsWith("on") || (places.test(name) && !/^(#|data:,$)/.test(value));
  return [...document.querySelectorAll("*")].flatMap((element) => [...element.attributes].filter(bad)
    .map(({ name, value }) => `${element.localName} ${name}=${value.slice(0, 200)}`));
}
"""

_FOCUSED = """
() => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  const style = getComputedStyle(element);
  const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  const shown = element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const where = `${element.localName}#${element.id}.${element.className}`;
  return { where, seen: shown && (ring || style.boxShadow !== "none") };
}
"""


def find_pale_text(page: Page) -> list[str]:
    """Return visible text that is too pale by WCAG, each pair of colours once."""
    found = page.evaluate(_PALE)
    assert found["looked"] > 3, "hardly any text is visible"
    pale: list[str] = found["pale"]
    return pale


def find_nameless(page: Page) -> list[str]:
    """Return the roles of operable elements that have no name in the accessibility tree."""
    session = page.context.new_cdp_session(page)
    nodes: list[dict[str, Any]] = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    kinds = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored") and "role" in node
    ]
    operated = [(role, name) for role, name in kinds if role in _INTERACTIVE]
    assert operated, "nothing can be operated"
    return [role for role, name in operated if not name.strip()]


def find_duplicate_ids(page: Page) -> list[str]:
    """Return ids of more than one element."""
    ids = page.evaluate("() => [...document.querySelectorAll('[id]')].map((element) => element.id)")
    return [name for name, count in Counter(ids).items() if count > 1]


def find_handlers(page: Page) -> list[str]:
    """Return attributes that would run code, or that refer to a place outside the page."""
    found: list[str] = page.evaluate(_HANDLERS)
    return found


def find_unfocused(page: Page, presses: int) -> list[str]:
    """Return the elements that Tab reaches without a visible focus."""
    missed = []
    for _ in range(presses):
        page.keyboard.press("Tab")
        found = page.evaluate(_FOCUSED)
        if found and not found["seen"]:
            missed.append(found["where"])
    return missed


def headings(page: Page) -> list[int]:
    """Return the levels of the visible headings, in order."""
    found: list[int] = page.evaluate(
        """() => [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")]
            .filter((each) => each.checkVisibility()).map((each) => Number(each.localName[1]))"""
    )
    return found


def count_elements(page: Page) -> Counter[str]:
    """Return the number of elements of each kind."""
    return Counter(page.evaluate("() => [...document.querySelectorAll('*')].map((each) => each.localName)"))


def is_wide(page: Page) -> bool:
    """Whether the page must be scrolled sideways."""
    wide: bool = page.evaluate("() => document.scrollingElement.scrollWidth > innerWidth")
    return wide


def count_colours(canvas: Locator) -> int:
    """Return the number of colours of a picture; an empty one has one."""
    found: int = canvas.evaluate(
        """(canvas) => {
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return new Set(new Uint32Array(data.buffer)).size;
        }"""
    )
    return found
