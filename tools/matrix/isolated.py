"""A function call -> the same call in a separate process, so that a crash or a hang costs one cell."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

__all__ = ["PRELOADED", "CellError", "call_isolated", "first_line", "make_once", "preload"]

# Each child starts as a copy of one clean process that has imported these modules, which saves seconds of every call.
# The list includes modules that an export, a transform and an account import late.
PRELOADED = [
    "tools.matrix.cells",
    "exporter.export",
    "transformers",
    "transformers.exporters.exporter_onnx",
    "transformers.models.auto.modeling_auto",
    "torch.export._trace",
    "torch.onnx._internal.exporter._compat",
    "torch.onnx._internal.torchscript_exporter.utils",
    "torch._inductor.decomposition",
    "onnxscript.optimizer",
    "onnxscript.rewriter.onnx_fusions",
    "networkx",
    "onnxruntime",
    "onnxruntime.quantization",
    "onnxruntime.quantization.matmul_nbits_quantizer",
    "onnxruntime.transformers.float16",
    "onnxslim",
    "analyzer.account.audit",
    "analyzer.reconciliation",
    "analyzer.recover",
    "tools.matrix.warmed",
]
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(PRELOADED)

_LINE = 300
_EXIT_SECONDS = 20.0


def preload(modules: Sequence[str]) -> None:
    """Set the modules that the clean process imports instead, in order; modules that are not installed are skipped.

    Call this before the first `call_isolated`.
    """
    _context.set_forkserver_preload(list(modules))


class CellError(Exception):
    """The call failed, crashed or took too long; the message is one line."""


def call_isolated(function: Callable[..., Any], *args: Any, seconds: float) -> Any:
    """Return the result of `function(*args)`; the arguments and the result must be picklable.

    Raises:
        CellError: the call raised, its process died, or `seconds` were not enough.
    """
    receiving, sending = _context.Pipe(duplex=False)
    process = _context.Process(target=_send_result, args=(sending, function, args), daemon=True)
    process.start()
    sending.close()
    try:
        has_result = receiving.poll(seconds)
        succeeded, value = receiving.recv() if has_result else (False, f"took more than {seconds:.0f} s")
        if has_result:
            process.join(_EXIT_SECONDS)  # libraries clean up after themselves
    except EOFError:
        process.join(_EXIT_SECONDS)
        succeeded, value = False, f"the process died of {_describe_exit(process.exitcode)}"
    finally:
        receiving.close()
        process.kill()
        process.join()
    if not succeeded:
        raise CellError(value)
    return value


def make_once(target: Path, again: bool, seconds: float, make: Callable[..., None], *args: Any) -> None:
    """Call `make` in a separate process, unless `target` exists or is known to be impossible.

    A failure is kept beside the file, and not tried a second time unless `again`.

    Raises:
        CellError: the target cannot be made.
    """
    failure_path = target.with_suffix(".failed.txt")
    if target.exists():
        return
    if failure_path.exists() and not again:
        raise CellError(failure_path.read_text(encoding="utf-8"))
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        call_isolated(make, *args, seconds=seconds)
    except CellError as error:
        failure_path.write_text(str(error), encoding="utf-8")
        raise
    failure_path.unlink(missing_ok=True)


def _describe_exit(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name


def _send_result(sending: Connection, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    gc.freeze()  # imported objects are no garbage
    gc.set_threshold(
        100_000, 20, 100
    )  # nor are most objects that tracing makes, and collecting them takes a fifth of an export
    _discard_output()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # some libraries leave unfinished files in the working directory
        try:
            result = (True, function(*args))
        except BaseException as error:  # noqa: BLE001  any error of a library is the cell's outcome
            result = (False, first_line(error))
    sending.send(result)
    sending.close()


def _discard_output() -> None:
    """Discard the output of libraries, some of which bypasses `sys.stdout`."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def first_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message, without the paths of this machine."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    for root in (tempfile.gettempdir(), sys.prefix, str(Path.cwd())):
        text = re.sub(rf"{re.escape(root)}(?:/[^\s/'\"]+)*/", "", text)
    return text if len(text) <= _LINE else text[: _LINE - 3] + "..."
