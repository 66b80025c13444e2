"""A rule's glob + the path of a model as it was named -> whether the rule is about it."""

from __future__ import annotations

import fnmatch
from pathlib import PurePosixPath

__all__ = ["matches"]


def matches(path: str, pattern: str | None) -> bool:
    """Whether a glob fits a path: part by part from the right, as `pathlib` matches, and `**` is any number of folders.

    A pattern that begins with a slash, or with `**`, fits the whole path; no pattern fits every path. Upper and lower
    case differ everywhere.

    >>> matches("./models/bert.onnx", "*.onnx"), matches("models/bert.onnx", "models/*.onnx")
    (True, True)
    >>> matches("out/a/b/model.onnx", "out/**/*.onnx"), matches("out/a/model.onnx", "out/*.onnx")
    (True, False)
    """
    if pattern is None:
        return True
    parts, wanted = _split(path), _split(pattern)
    if not wanted:
        return False
    if wanted[0] != "/":
        wanted = ["**", *wanted]
    reached = {0}  # how many parts may be used up, for the parts of the pattern so far
    for part in wanted:
        if part == "**":
            reached = set(range(min(reached), len(parts) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(parts) and fnmatch.fnmatchcase(parts[at], part)}
        if not reached:
            return False
    return len(parts) in reached


def _split(path: str) -> list[str]:
    return list(PurePosixPath(path.replace("\\", "/")).parts)
