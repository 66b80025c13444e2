"""A path or URL -> a file of which ranges can be read. Only this module decides which files may be opened.

The first bytes of a file that is not an ONNX model tell its kind, and so the next step.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np

from analyzer.errors import ExternalDataError, ModelReadError
from analyzer.model.ranges import Bytes, Source, check_location, is_url
from analyzer.near import near_name
from analyzer.records import Frozen, exclude_fields, field

# files that are not models

HEAD = 512
"""Bytes at the start of a file that tell its kind."""

_EXPORT = "export the model to ONNX and name that file"
_AGAINST = "`onnxledger reconcile MODEL.onnx --against` this file"
_STARTS = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself; run `git lfs pull`"),
    (b"\x1f\x8b", "compressed with gzip; unpack it first"),
    (b"BZh", "compressed with bzip2; unpack it first"),
    (b"\xfd7zXZ\x00", "compressed with xz; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd; unpack it first"),
    (b"PK\x03\x04", f"a zip archive, such as torch.save writes; {_EXPORT}; to compare: {_AGAINST}"),
    (b"\x80\x02", f"a Python pickle, which is never loaded here; {_EXPORT}"),
    (b"\x80\x03", f"a Python pickle, which is never loaded here; {_EXPORT}"),
    (b"\x80\x04", f"a Python pickle, which is never loaded here; {_EXPORT}"),
    (b"\x80\x05", f"a Python pickle, which is never loaded here; {_EXPORT}"),
    (b"\x89HDF\r\n", f"an HDF5 file, such as Keras writes; {_EXPORT}"),
    (b"GGUF", f"a GGUF file; {_EXPORT}"),
    (b"\x7fELF", "a program; name an .onnx file"),
    (b"\x89PNG", "a picture; name an .onnx file"),
    (b"ir_version", "an ONNX model in text form; convert it with onnx.load(path, format='textproto')"),
)
_PYTHON = "Python source; export the model that it makes, `onnxledger export MODULE:FUNCTION -o FOLDER`"
_TEXTS = (
    (b"<", "a web page or XML, perhaps the error page of a failed download; download it again"),
    (b"{", "JSON; name the .onnx file (a saved report can be compared, not inspected)"),
    (b"#", "a text file; name an .onnx file"),
    (b"import ", _PYTHON),
    (b"from ", _PYTHON),
    (b"def ", _PYTHON),
    (b"class ", _PYTHON),
    (b'"""', _PYTHON),
)


def describe_kind(head: bytes) -> str | None:
    """Return the kind of a file that starts like this, with the next step; None if it is unknown.

    >>> describe_kind(bytes.fromhex("1f8b0800"))
    'compressed with gzip; unpack it first'
    """
    for start, words in _STARTS:
        if head.startswith(start):
            return words
    if head[4:8] in (b"ORTM", b"TFL3"):
        kind = "onnxruntime's own format (.ort)" if head[4:8] == b"ORTM" else "a TFLite model"
        return f"{kind}; name the .onnx file that it was made from"
    if head[257:262] == b"ustar":
        return "a tar archive; unpack it first"
    if head[8:9] == b"{" and head[6:8] == b"\0\0":
        return f"a safetensors file; {_EXPORT}"
    for start, words in _TEXTS:
        if head.lstrip().startswith(start):
            return words
    return None


# files that may be models

_COPIED = 1 << 16
"""Most bytes for which a copy costs less than a mapping."""


def open_source(location: str) -> Source:
    """Return the model file at a path or URL.

    Raises:
        ModelReadError: it does not exist, cannot be read, or is not a regular file.
        MissingExtraError: it is a URL, and the package that reads such URLs is not installed.
    """
    if not is_url(location):
        return _open_named(Path(location))
    if location.lower().startswith("file://"):
        return LocalFile.at(_path_of(location))
    from analyzer.read.remote import open_remote  # imports fsspec, which only a URL needs

    return open_remote(location)


def _open_named(path: Path) -> LocalFile:
    """Return a file by the name that a person typed; if it does not exist, propose the same name with `.onnx`."""
    try:
        return LocalFile.at(path)
    except ModelReadError as error:
        near = Path(f"{path}.onnx")
        if path.exists() or not near.is_file():
            raise
        raise ModelReadError(f"{error}; did you mean {near}?") from error


def _path_of(location: str) -> Path:
    """Return the path of a `file://` URL, which is read like any other file: links are resolved, ranges are free.

    >>> str(_path_of("file:///models/my%20model.onnx"))
    '/models/my model.onnx'
    """
    parts = urlsplit(location)
    if parts.netloc not in ("", "localhost"):
        raise ModelReadError(f"{location}: names no local file; write file:///<absolute path>")
    return Path(unquote(parts.path))


_MOST_OPEN = 64
"""Most files of one model that are open at a time: a process may have 256 on some systems."""

_MOST_IN_MEMORY = 1 << 20
"""Most bytes of the files of one model that are in memory at a time."""


class _Opened:
    """Files of one model that stay open within `kept_open`."""

    __slots__ = ("contents", "files", "keepers", "room")

    def __init__(self) -> None:
        self.files: dict[str, tuple[LocalFile, int]] = {}
        """Open files with their descriptors, by key."""
        self.contents: dict[str, bytes] = {}
        """Whole content of small files, by key."""
        self.room = _MOST_IN_MEMORY
        """Bytes that further small files may take."""
        self.keepers = 0

    def __reduce__(self) -> tuple[type[_Opened], tuple[()]]:
        return _Opened, ()  # descriptors are not valid in another process


@exclude_fields("_opened")
class LocalFile(Frozen):
    """Regular file. It is opened for each read and closed again, without blocking, and never for writing.

    Within `kept_open` it is opened once, and a small file is read once. A write to a small file is detected at the end,
    a write to any other at the next read.
    """

    path: Path
    key: str
    nbytes: int
    identity: tuple[int, int, int]
    """Inode, size and modification time, by which a change is detected."""
    _opened: _Opened = field(default_factory=_Opened)
    """Open files, shared with its siblings."""

    step = 1 << 14
    is_remote = False
    at_once = 1
    kept = None
    traffic = None

    @classmethod
    def at(cls, path: Path) -> LocalFile:
        """Inspect a file without opening it: a pipe would hang, and a device may never end."""
        try:
            status = path.stat()
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: circular links
            reason = getattr(error, "strerror", None) or error
            near = near_name(path) if isinstance(error, FileNotFoundError) else ""
            if str(path) == "-":
                near = "; a model is not read from stdin: save it to a file, and name that"
            raise ModelReadError(f"{path}: cannot be read: {reason}{near}") from error
        if stat.S_ISDIR(status.st_mode):
            raise ModelReadError(
                f"{path}: is a folder; name the .onnx file inside it, or pass --artifact if all of them belong together"
            )
        if not stat.S_ISREG(status.st_mode):
            raise ModelReadError(f"{path}: [not-onnx] is not a regular file; copy its content to one")
        return cls(path, str(path.resolve()), status.st_size, _identity(status))

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def mark(self) -> str:
        return str(self.identity[2])

    def read(self, offset: int, length: int) -> bytes:
        content = self._opened.contents.get(self.key)
        return (
            self.read_ranges([(offset, length)])[0] if content is None else content[offset : offset + length]
        )

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        opened = self._opened
        try:
            if self.key not in opened.contents:
                with self._descriptor() as descriptor:
                    if self.key not in opened.contents:
                        return _read_ranges(descriptor, ranges)
        except OSError as error:
            raise ModelReadError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        content = opened.contents[self.key]
        return [content[offset : offset + length] for offset, length in ranges]

    @contextmanager
    def _descriptor(self) -> Iterator[int]:
        """Yield the open file, checked to be the one inspected before; within `kept_open` it stays open."""
        opened = self._opened
        kept = opened.files.get(self.key)
        if kept is not None:
            self._compare(os.fstat(kept[1]))
            yield kept[1]
            return
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        is_kept = False
        try:
            self._compare(os.fstat(descriptor))
            is_kept = bool(opened.keepers) and len(opened.files) < _MOST_OPEN
            if is_kept:
                opened.files[self.key] = self, descriptor
                if 0 < self.nbytes <= opened.room:
                    self._load_small(descriptor)
            yield descriptor
        finally:
            if not is_kept:
                os.close(descriptor)

    def _load_small(self, descriptor: int) -> None:
        """Keep the whole content in memory, if one read returns all of it."""
        content = os.pread(descriptor, self.nbytes, 0)
        self._compare(os.fstat(descriptor))
        if len(content) == self.nbytes:
            self._opened.contents[self.key] = content
            self._opened.room -= self.nbytes

    @property
    def is_in_memory(self) -> bool:
        return self.key in self._opened.contents

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        opened = self._opened
        opened.keepers += 1
        try:
            yield
            if opened.keepers == 1:
                for file, _ in opened.files.values():
                    file.check()  # a replaced file is still open, and unchanged
        finally:
            opened.keepers -= 1
            if not opened.keepers:
                opened.contents.clear()
                opened.room = _MOST_IN_MEMORY
                while opened.files:
                    _, (_, descriptor) = opened.files.popitem()
                    os.close(descriptor)

    def view(self, offset: int, length: int) -> Bytes:
        content = self._opened.contents.get(self.key)
        if content is not None:
            return np.frombuffer(content, dtype=np.uint8)[offset : offset + length]
        if length <= _COPIED:
            return np.frombuffer(self.read(offset, length), dtype=np.uint8)
        before = offset % mmap.ALLOCATIONGRANULARITY
        try:
            with self._descriptor() as descriptor:
                mapped = mmap.mmap(
                    descriptor, before + length, access=mmap.ACCESS_READ, offset=offset - before
                )
        except (OSError, ValueError) as error:
            raise ModelReadError(f"{self.path}: cannot be mapped at byte {offset:,}: {error}") from error
        return np.frombuffer(mapped, dtype=np.uint8)[before:]

    def sibling(self, location: str) -> LocalFile:
        check_location(location)
        folder = self.path.parent
        try:
            root, target = folder.resolve(), (folder / location).resolve()
            if not target.is_relative_to(root) and not _is_hub_blob(folder, location, target):
                raise ExternalDataError(
                    f"[external-escapes] location {location!r} is a symbolic link, or lies behind one, that leads "
                    "outside the model's folder; copy the file in place of the link"
                )
            status = target.stat()
            is_model = target == self.path.resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise ExternalDataError(f"[external-missing] {location!r} is not there") from error
        if is_model:
            raise ExternalDataError(f"[external-escapes] location {location!r} is the model file itself")
        if not stat.S_ISREG(status.st_mode):
            raise ExternalDataError(f"[external-escapes] {location!r} is not a regular file")
        return LocalFile(target, str(target), status.st_size, _identity(status), self._opened)

    def check(self) -> None:
        try:
            self._compare(self.path.stat())
        except OSError as error:
            raise ModelReadError(f"{self.path}: cannot be read any more: {error.strerror}") from error

    def _compare(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode) or _identity(status) != self.identity:
            raise ModelReadError(
                f"{self.path}: changed while it was read; run again when nobody writes to it"
            )


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _is_hub_blob(folder: Path, location: str, target: Path) -> bool:
    """Whether `target` is in the blob store of the hub cache that contains the snapshot `folder`.

    A link inside a hub cache (`snapshots/<revision>/x` -> `blobs/<hash>`) may lead to that cache's own blobs.
    """
    snapshot = folder.absolute()
    for parent in (snapshot, *snapshot.parents):
        if parent.parent.name == "snapshots":
            store = parent.parent.parent.resolve() / "blobs"  # not resolved: a link there would lead anywhere
            return ".." not in Path(location).parts and target.parent == store
    return False


_NEAR = 4
"""Largest ratio of the span of all ranges to their bytes for which one read returns all."""

_MOST_TOGETHER = 1 << 20
"""Most bytes of such a read."""


def _read_ranges(descriptor: int, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return the bytes of each range; many ranges close together, such as small tensors, take one read."""
    if len(ranges) > _NEAR:
        first = min(ranges)[0]
        span = max([offset + length for offset, length in ranges]) - first
        if span <= min(_NEAR * sum([length for _, length in ranges]), _MOST_TOGETHER):
            content = os.pread(descriptor, span, first)
            return [content[offset - first : offset - first + length] for offset, length in ranges]
    return [os.pread(descriptor, length, offset) for offset, length in ranges]
