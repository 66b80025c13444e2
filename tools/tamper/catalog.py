"""Every module of kinds, so that the list is whole once this is imported."""

from __future__ import annotations

from tools.tamper import content, planted
from tools.tamper.kinds import CERTAIN, CLASSES, KINDS

__all__ = ["CERTAIN", "CLASSES", "KINDS", "content", "planted"]
