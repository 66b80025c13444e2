"""The installed distribution -> its version."""

from __future__ import annotations

import functools
from importlib import metadata


@functools.cache
def version() -> str:
    """The version that was installed, "unknown" where the sources are run without installing them."""
    try:
        return metadata.version("onnxledger")
    except metadata.PackageNotFoundError:
        return "unknown"
