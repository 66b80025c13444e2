"""A URL that stands for many models -> their URLs, as the place that keeps them lists them; and the mark of one."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from typing import Any

from analyzer.errors import MissingExtraError, ModelReadError, UsageError

__all__ = ["is_many", "list_models", "mark_of"]

_SUFFIX = ".onnx"
_HUB = "hf://"


def is_many(url: str) -> bool:
    """Whether a URL stands for many models: it has a `*`, ends with `/`, or names a repository of the hub.

    >>> is_many("s3://bucket/models/*.onnx"), is_many("hf://org/name"), is_many("hf://org/name/model.onnx")
    (True, True, False)
    """
    path = url.partition("?")[0]
    is_web = url.lower().startswith(("http://", "https://"))
    is_repository = url.lower().startswith(_HUB) and not path.lower().endswith(_SUFFIX)
    return not is_web and ("*" in path or path.endswith("/") or is_repository)


def list_models(url: str) -> Iterator[str]:
    """The URLs of the model files that a URL stands for, folder by folder.

    `hf://org/*` are all repositories of an organization, `hf://org/name` is one, `s3://bucket/prefix/` what is below,
    `s3://bucket/prefix/*.onnx` what matches, where `*` stands for any part of a path.

    Raises:
        UsageError: it cannot be listed, or nothing is there.
        MissingExtraError: what lists it is not installed.
    """
    found = False
    try:
        for model in _list_hub(url) if url.lower().startswith(_HUB) else _list_store(url):
            found = True
            yield model
    except ImportError as error:
        raise MissingExtraError("remote", error.name or "fsspec", f"listing {url}") from error
    except Exception as error:  # noqa: BLE001 - every filesystem has errors of its own
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{url}: cannot be listed: {said}; write the URLs into a list") from None
    if not found:
        raise UsageError(f"{url}: no {_SUFFIX} file is there; check the name")


def _list_hub(url: str) -> Iterator[str]:
    from huggingface_hub import HfApi

    api = HfApi()
    owner, _, rest = url[len(_HUB) :].strip("/").partition("/")
    name, _, pattern = rest.partition("/")
    if not name or "*" in name:
        wanted = f"{owner}/{name or '*'}"
        ids = (info.id for info in api.list_models(author=owner))
        repositories: Iterator[str] = (each for each in ids if fnmatch.fnmatchcase(each, wanted))
    else:
        repositories = iter([f"{owner}/{name}"])
    for repository in repositories:
        for path in sorted(api.list_repo_files(repository)):
            if path.lower().endswith(_SUFFIX) and (not pattern or fnmatch.fnmatchcase(path, pattern)):
                yield f"{_HUB}{repository}/{path}"


def _list_store(url: str) -> Iterator[str]:
    from fsspec.core import url_to_fs

    scheme = url.partition("://")[0]
    start = url.partition("*")[0].rpartition("/")[0]
    filesystem, root = url_to_fs(start)
    pattern = url_to_fs(url)[1] if "*" in url else ""
    yield from (f"{scheme}://{path.lstrip('/')}" for path in _walk(filesystem, root, pattern))


def _walk(filesystem: Any, root: str, pattern: str) -> Iterator[str]:
    for folder, _, files in filesystem.walk(root):
        for name in sorted(files):
            path = f"{folder.rstrip('/')}/{name}"
            if name.lower().endswith(_SUFFIX) and (not pattern or fnmatch.fnmatchcase(path, pattern)):
                yield path


def mark_of(url: str) -> str:
    """What tells this version of a remote file from the next, for one small request; "" where nothing does."""
    if url.lower().startswith("file://"):
        return ""
    from analyzer.read.remote import open_remote  # fsspec, which only a URL needs

    try:
        source = open_remote(url, first=1)
    except (ModelReadError, MissingExtraError):
        return ""  # who reads it says why
    return f"{source.nbytes}:{source.mark}" if source.mark else ""
