"""A file, inputs and names of values -> the values, made by onnxruntime in a process of its own."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from analyzer.content import Array
from analyzer.errors import TimingError
from analyzer.process.child import Child, Limits, OverMemoryError, OverTimeError
from analyzer.timing.request import Feed
from analyzer.units import format_bytes, printable, shorten

__all__ = ["Runner"]

_PROGRAM = "from analyzer.timing.running.values import serve; serve()"


class Runner:
    """Runs files as long as it is open, each question within the same limits.

    Raises:
        TimingError: no process can be started.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self._folder = tempfile.TemporaryDirectory(prefix="onnxledger-")
        self._child: Child | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.end()
        self._folder.cleanup()

    def run(
        self,
        model: Path,
        feeds: Sequence[Feed],
        seed: int,
        level: str,
        wanted: Sequence[str],
        arrays: Mapping[str, Array] | None = None,
    ) -> dict[str, Array]:
        """The wanted values that are arrays, by name.

        Args:
            model: the file.
            feeds: how inputs are made; of none where `arrays` are given.
            seed: of what is drawn for them.
            level: of onnxruntime's optimizations.
            wanted: names of values of the main graph.
            arrays: the inputs themselves, by name.

        Raises:
            TimingError: onnxruntime does not run it, or not within the limits.
        """
        target = Path(self._folder.name, "values.npz")
        given = Path(self._folder.name, "given.npz")
        if arrays is not None:
            np.savez(given, allow_pickle=False, **{f"v{at}": each for at, each in enumerate(arrays.values())})
        question = {
            "model": str(model),
            "feeds": [dataclasses.asdict(feed) for feed in feeds],
            "seed": seed,
            "level": level,
            "wanted": list(wanted),
            "target": str(target),
            "given": "" if arrays is None else str(given),
            "names": [*(arrays or {})],
        }
        answer = msgspec.json.decode(self._ask(msgspec.json.encode(question), model))
        if isinstance(answer, str):
            said = shorten(printable(answer), 400)
            raise TimingError(f"{model}: onnxruntime does not run it: {said}; `onnxledger time` tells more")
        with np.load(target) as found:
            return {wanted[place]: found[f"v{place}"] for place in answer}

    def _ask(self, question: bytes, model: Path) -> bytes:
        if self._child is None:
            self._child = self._start()
        self._child.send(question)
        try:
            answer = self._child.receive(self._deadline, self._limits.nbytes)
        except OverTimeError:
            raise TimingError(
                f"{model}: did not finish within {self._limits.seconds:g} s; give more by --timeout"
            ) from None
        except OverMemoryError:
            most = format_bytes(self._limits.nbytes or 0)
            raise TimingError(
                f"{model}: took more than {most} of memory; give more by --memory-limit"
            ) from None
        if answer is None:
            code = self._child.end(1)
            self._child = None
            raise TimingError(f"{model}: onnxruntime ended its process, with exit code {code}")
        return answer

    def _start(self) -> Child:
        try:
            with open(os.devnull, "wb") as log:  # noqa: PTH123 - no path of a file
                return Child(_PROGRAM, log=log, environment={"ORT_DISABLE_TELEMETRY": "1"})
        except OSError as error:
            raise TimingError(f"no process that runs models can be started: {error}") from error
