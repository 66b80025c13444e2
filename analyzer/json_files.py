"""Path named by a user -> parsed JSON, without hanging or filling the memory."""

from __future__ import annotations

import errno
import json
import stat
from pathlib import Path
from typing import Any

_MOST_READ = 1 << 30
"""Largest file in bytes: the report of a million tensors has half as many."""

LARGEST_CONFIG = 1 << 24
"""Largest `config.json` in bytes."""

_START = 1 << 12
"""Bytes at the start of a file that show whether it can be JSON of onnxledger."""


def load_json(path: Path | str) -> Any:
    """Return the content of a JSON file.

    Devices, which never end, and pipes, which may never begin, are refused unread. A model of gigabytes is refused by
    its first bytes.

    Raises:
        OSError: the file cannot be read, is not a regular file, or has more than a gigabyte.
        ValueError: the content is no JSON in UTF-8.
        RecursionError: the content is nested too deeply.
    """
    path = Path(path)
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EISDIR, "it is a folder; name a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    with path.open("rb") as stream:
        content = stream.read(_START)
        if not content.lstrip().startswith((b"{", b"[")):
            json.loads(content.decode("utf-8"))  # raises an error that names the mistake
        if status.st_size > _MOST_READ:
            raise OSError(errno.EFBIG, f"it has more than {_MOST_READ:,} bytes")
        content += stream.read(status.st_size)
    return json.loads(content.decode("utf-8"))
