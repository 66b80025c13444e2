"""What the user of a readable file should know: the rules that find it, and the catalogue that explains it.

`findings.rules` runs the rules, `findings.catalog` explains each id, and loads nothing but that.
Here are the ids that other rooms ask for: which of them say that a tensor's content is not to be had.
"""

from __future__ import annotations

__all__ = ["ABSENT", "HIGHEST_OF_ONNX", "HIGHEST_VERSION", "OPAQUE", "UNCOUNTED", "UNREAD"]

ABSENT = frozenset({"external-escapes", "external-missing"})
"""The file that is to hold it is not there, or may not be opened: its shape is all that is known."""

UNCOUNTED = frozenset({"invalid-dims", "payload-mismatch", "unknown-dtype"})
"""How many elements it has is not certain."""

UNREAD = ABSENT | UNCOUNTED | {"external-short"}
"""Its values could not be read."""

HIGHEST_VERSION = 1 << 16
"""No domain counts that far: ONNX itself is at 27 after nine years."""

HIGHEST_OF_ONNX = 200
"""No version of ONNX's own operators or of its format is so high: each has grown by some three a year."""

OPAQUE = "opaque"
"""Data that computes and that nothing explains: of the file alone a warning, beside PyTorch's side a line."""
