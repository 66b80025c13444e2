"""The installed distribution -> its version."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

_NAME = "onnxledger"


@functools.cache
def version() -> str:
    """Return the installed version; "unknown" if the sources run without being installed.

    The name of the folder that an installer writes contains it (PyPA specifications, "Recording installed projects").
    Without such a folder, the slower `importlib.metadata` is asked, which imports e-mail, sockets and archives.
    """
    for place in sys.path:
        try:
            found = [path.name for path in Path(place).glob(f"{_NAME}-*.dist-info")]
        except OSError:
            continue
        if len(found) == 1:
            return found[0].removeprefix(f"{_NAME}-").removesuffix(".dist-info")
        if found:
            break
    from importlib import metadata

    try:
        return metadata.version(_NAME)
    except metadata.PackageNotFoundError:
        return "unknown"
