"""A path that a user names -> the JSON that is there, and nothing that hangs or fills the memory."""

from __future__ import annotations

import errno
import json
import stat
from pathlib import Path
from typing import Any

_MOST_READ = 1 << 30
"""Bytes of a file: the report of a million tensors has half as many."""

LARGEST_CONFIG = 1 << 24
"""Bytes of a `config.json`."""

_START = 1 << 12
"""Bytes by which a file is seen to be none of ours."""


def load_json(path: Path | str) -> Any:
    """What a JSON file holds.

    A device never ends, a pipe may never begin, and a model may have gigabytes: these are refused unread.

    Raises:
        OSError: it cannot be read, is no regular file, or has more than a gigabyte.
        ValueError: it is no JSON in UTF-8.
        RecursionError: it is nested too deeply.
    """
    path = Path(path)
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EISDIR, "it is a folder; name a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    with path.open("rb") as stream:
        content = stream.read(_START)
        if not content.lstrip().startswith((b"{", b"[")):
            json.loads(content.decode("utf-8"))  # says what is wrong
        if status.st_size > _MOST_READ:
            raise OSError(errno.EFBIG, f"it has more than {_MOST_READ:,} bytes")
        content += stream.read(status.st_size)
    return json.loads(content.decode("utf-8"))
