"""All modules of kinds, so that the list is complete once this is imported."""

from __future__ import annotations

from tools.tamper import attributes, content, factors, forged, hollow, moved, planted, tables, unread, wiring
from tools.tamper.kinds import CERTAIN, CLASSES, KINDS

__all__ = [
    "CERTAIN",
    "CLASSES",
    "KINDS",
    "attributes",
    "content",
    "factors",
    "forged",
    "hollow",
    "moved",
    "planted",
    "tables",
    "unread",
    "wiring",
]
