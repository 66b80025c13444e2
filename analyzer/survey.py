"""Names of models and folders -> one row for each model, read in separate processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.account.artifact import MODEL_SUFFIX, is_model_file
from analyzer.account.doubt import find_doubt
from analyzer.account.group import total_by
from analyzer.account.ledger import Evidence, Finding, Group, Ledger, natural_order
from analyzer.errors import OnnxLedgerError, UsageError
from analyzer.model import File
from analyzer.model.content import ContentMode
from analyzer.model.ranges import is_url
from analyzer.records import Frozen, replace

if TYPE_CHECKING:
    from analyzer.process.workers import Died


class Surveyed(Frozen):
    """Row of a survey: the numbers and findings of one model's ledger.

    `parameters` are learned elements, each once; `parameters_at_least` and `parameters_at_most` bound them;
    `opaque_elements` take part in the computation and are not explained; `stored_elements` are those of all
    `stored_tensors`; `stored_nbytes` are bytes of their payloads, `shared_nbytes` those that several tensors claim,
    beyond the first; `nodes` are those of all graphs and functions.
    """

    path: str
    """Path as given; for a model in a folder, the folder's name and the path below it."""
    files: tuple[File, ...]
    """Files of the model, under resolved names, so that a file that several models share has one name."""
    nodes: int
    parameters: int
    parameters_at_least: int
    parameters_at_most: int | None
    opaque_elements: int
    stored_tensors: int
    stored_elements: int
    stored_nbytes: int
    shared_nbytes: int
    basis: Mapping[Evidence, int]
    roles: tuple[Group, ...]
    dtypes: tuple[Group, ...]
    findings: tuple[Finding, ...]
    """Findings without their subjects: the ledger of a bad model has thousands of those."""
    unsettled: tuple[str, ...] = ()
    """Reasons why `parameters_at_least` is not `parameters_at_most`."""
    wasted_nbytes: int = 0
    """Bytes on disk that nothing uses (`analyzer.account.summary.count_wasted`)."""

    @property
    def file_nbytes(self) -> int:
        """Bytes of all its files on disk."""
        return sum(file.nbytes for file in self.files)


class Unreadable(Frozen):
    """A model that could not be read, or a folder without models."""

    path: str
    error: str
    """A sentence that begins with the path."""


Row = Surveyed | Unreadable


class Survey(Frozen):
    """Many models, a row each, in the order in which they were named."""

    rows: tuple[Row, ...]

    @property
    def readable(self) -> tuple[Surveyed, ...]:
        return tuple(row for row in self.rows if isinstance(row, Surveyed))

    @property
    def unreadable(self) -> tuple[Unreadable, ...]:
        return tuple(row for row in self.rows if isinstance(row, Unreadable))

    @property
    def parameters(self) -> int:
        """Learned elements of all models; a tensor that two models both have counts for both."""
        return sum(row.parameters for row in self.readable)

    @property
    def stored_elements(self) -> int:
        """Elements of stored tensors, of all models."""
        return sum(row.stored_elements for row in self.readable)

    @property
    def stored_nbytes(self) -> int:
        """Bytes of encoded payload, of all models."""
        return sum(row.stored_nbytes for row in self.readable)

    @property
    def file_nbytes(self) -> int:
        """Bytes on disk; a file that several models share counts once."""
        return sum({file.path: file.nbytes for row in self.readable for file in row.files}.values())

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for row in self.readable for finding in row.findings)


def survey_models(
    paths: Iterable[Path | str],
    *,
    content: ContentMode | None = None,
    max_objects: int | None = None,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Survey:
    """Account for each of many models, in parallel; a model that cannot be read is a row too.

    Several models are read in separate processes, even if a few small ones would be read faster in this one: a file of
    unknown origin may crash the code that reads it, and the other models must survive that. One model, or
    `processes=1`, is read in this process.

    Args:
        paths: model files, URLs, and folders, which stand for the models that `find_models` finds in them.
        content, max_objects: as in `audit_model`.
        processes: largest number of processes; None starts one for each processor.
        progress: called with (done, total) models.

    Raises:
        UsageError: there is no model under any of the paths.
        OnnxLedgerError: no process can be started.
    """
    found = find_models(paths)
    models = [item for item in found if isinstance(item, str)]
    if not models:
        raise UsageError(
            "; ".join(item.error for item in found if isinstance(item, Unreadable)) or "no model"
        )
    read = partial(_read_row, content=content, max_objects=max_objects)
    rows = iter(_rows(read, models, processes, progress))
    return Survey(tuple(next(rows) if isinstance(item, str) else item for item in found))


def find_models(paths: Iterable[Path | str], *, every_name: bool = False) -> tuple[str | Unreadable, ...]:
    """Return the models of paths: for a folder every `.onnx` file below it, in natural order; else the path itself.

    Links to folders are not followed, and names that begin with a dot are left out, as by a shell's `*`. A file with
    several names is returned once, under its first name that is no link; `every_name` returns all names, for callers
    that handle models by name. A folder that cannot be listed, or has no model, is `Unreadable`.
    """
    found: dict[tuple[str, ...], str | Unreadable] = {}
    for path in map(_plain, paths):
        for item in _models_below(path) if _is_folder(path) else [path]:
            key = (item,) if every_name and isinstance(item, str) else _identity(item)
            if key not in found or (_is_link(found[key]) and not _is_link(item)):
                found[key] = item
    return tuple(found.values())


def _plain(path: Path | str) -> str:
    """Return a path as reports show it, without a needless `./`; a URL unchanged, because its `//` has a meaning."""
    return path if isinstance(path, str) and is_url(path) else str(Path(path))


def _is_link(item: str | Unreadable) -> bool:
    return isinstance(item, str) and os.path.islink(item)  # noqa: PTH114 - unlike Path.is_symlink, it never raises


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - unlike Path.is_dir, it never raises


def _models_below(folder: str) -> list[str | Unreadable]:
    found: list[str | Unreadable] = []
    waiting = [folder]
    while waiting:  # not os.walk: before Python 3.12 it recurses, and a folder can be deeper than the stack
        place = waiting.pop()
        try:
            entries = list(os.scandir(place))
        except OSError as error:
            found.append(Unreadable(place, f"{place}: cannot be read: {error.strerror}"))
            continue
        visible = [entry for entry in entries if not entry.name.startswith(".")]
        waiting += [entry.path for entry in visible if entry.is_dir(follow_symlinks=False)]
        found += [str(Path(entry.path)) for entry in visible if is_model_file(entry)]
    if not found:
        reason = f"{folder}: the folder has no {MODEL_SUFFIX} file; name a model, or a folder with models"
        return [Unreadable(folder, reason)]
    return sorted(found, key=_order)


def _order(item: str | Unreadable) -> tuple[object, str]:
    path = item if isinstance(item, str) else item.path
    return natural_order(path), path  # natural order takes layer.2 and layer.02 as equal


def _identity(item: str | Unreadable) -> tuple[str, ...]:
    """Return the key of a model: the file and its folder, because external data is resolved in the folder."""
    if isinstance(item, Unreadable):
        return ("unreadable", item.path)
    if is_url(item):
        return (item,)
    try:
        return (os.path.realpath(Path(item).parent), os.path.realpath(item))
    except (OSError, ValueError):  # the path is no possible file name: the code that opens it reports that
        return (item,)


def _rows(
    read: Callable[[str], Row],
    models: list[str],
    processes: int | None,
    progress: Callable[[int, int], None] | None,
) -> Iterator[Row]:
    if len(models) > 1 and processes != 1:
        from analyzer.process.workers import Died, call_apart, usable_processors  # not needed for one model

        limit = min(processes or usable_processors(), len(models))
        for path, result in zip(models, call_apart(read, models, limit, progress), strict=True):
            yield _dead_row(path, result) if isinstance(result, Died) else result
        return
    for position, path in enumerate(models, start=1):
        yield read(path)
        if progress is not None:
            progress(position, len(models))


def _dead_row(path: str, died: Died) -> Unreadable:
    advice = "inspect it alone, to see whether the file or a lack of memory is the cause"
    return Unreadable(path, f"{path}: the process that read it died ({died}); {advice}")


def _read_row(path: str, *, content: ContentMode | None = None, max_objects: int | None = None) -> Row:
    """Return the row of a model to the parent process: never an exception, nor the ledger, which may be large."""
    from analyzer.account.audit import (
        audit_model,  # imports onnx, which the parent process need not load
    )

    try:
        return _row(path, audit_model(path, content=content, max_objects=max_objects))
    except OnnxLedgerError as error:
        reason = str(error)
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
    except MemoryError:
        reason = "takes more memory than there is"
    except Exception as error:  # noqa: BLE001 - a defect of ours costs one row, not the others
        advice = "inspect it alone with --verbose and report it"
        reason = f"internal error: {type(error).__name__}: {error}; {advice}"
    return Unreadable(path, f"{path}: {reason.removeprefix(f'{path}: ')}")


def _row(path: str, ledger: Ledger) -> Surveyed:
    from analyzer.account.summary import count_wasted  # not needed by callers that only find models

    model, doubt = ledger.model, find_doubt(ledger)
    places = list(map(os.path.realpath, model.paths)) or [f"{path}/{file.path}" for file in model.files]
    return Surveyed(
        path=path,
        files=tuple(File(place, file.nbytes) for place, file in zip(places, model.files, strict=True)),
        nodes=sum(1 for _ in model.nodes()),
        parameters=ledger.parameters,
        parameters_at_least=doubt.least,
        parameters_at_most=doubt.most,
        opaque_elements=ledger.opaque_elements,
        stored_tensors=len(ledger.entries),
        stored_elements=ledger.stored_elements,
        stored_nbytes=ledger.stored_nbytes,
        shared_nbytes=ledger.shared_nbytes,
        basis=ledger.basis,
        roles=total_by(ledger.entries, lambda entry: entry.role.value),
        dtypes=total_by(ledger.entries, lambda entry: entry.tensor.dtype.name),
        findings=tuple(replace(finding, subjects=()) for finding in ledger.findings),
        unsettled=doubt.reasons,
        wasted_nbytes=count_wasted(ledger),
    )
