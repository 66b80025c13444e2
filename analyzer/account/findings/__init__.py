"""Findings: facts that the user of a readable file should know, the rules that find them, and their catalog.

`findings.rules` runs the rules; `findings.catalog` explains each id, and loads nothing else. This module holds the ids
that other packages need: those that say that a tensor's content is not available.
"""

from __future__ import annotations

__all__ = [
    "ABSENT",
    "HIGHEST_OF_ONNX",
    "HIGHEST_VERSION",
    "OPAQUE",
    "UNATTRIBUTED",
    "UNCOUNTED",
    "UNREAD",
    "WEIGHTLESS",
]

ABSENT = frozenset({"external-escapes", "external-missing"})
"""The file that should hold the tensor is missing, or may not be opened: only its shape is known."""

UNCOUNTED = frozenset({"invalid-dims", "payload-mismatch", "unknown-dtype"})
"""The number of its elements is not certain."""

UNREAD = ABSENT | UNCOUNTED | {"external-short"}
"""Its values could not be read."""

HIGHEST_VERSION = 1 << 16
"""Upper limit for versions of a domain: ONNX itself is at 27 after nine years."""

HIGHEST_OF_ONNX = 200
"""Upper limit for versions of ONNX's operators and of its format: each has grown by about three a year."""

OPAQUE = "opaque"
"""Data that flows into arithmetic and that no rule explains: a warning for a file alone, a line beside PyTorch's."""

UNATTRIBUTED = "unattributed"
"""Tensors that no rule explains: a warning for a file alone; beside PyTorch's side, each tensor has a line."""

WEIGHTLESS = "weightless"
"""No stored tensor is a parameter, as far as the file alone tells: a note; or their data is not there: a warning."""
