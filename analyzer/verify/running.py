"""File, inputs and names of values -> these values or their prints, computed in a separate process."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from analyzer.errors import TimingError
from analyzer.model.content import Array
from analyzer.process import require_onnxruntime
from analyzer.process.child import Child, Limits, OverMemoryError, OverTimeError
from analyzer.records import Frozen
from analyzer.text import format_bytes
from analyzer.timing.inputs.arrays import save_arrays
from analyzer.timing.request import Feed
from analyzer.verify.messages import (
    PLAIN,
    Answer,
    Execution,
    OptimizedAnswer,
    Patch,
    QuantizerAnswer,
    Question,
    ReplacedTensor,
    Rounded,
    TwinAnswer,
    ValueDifference,
)
from analyzer.verify.prints import Print

_PROGRAM = "from analyzer.verify.serving import serve; serve()"


class Subject(Frozen):
    """A file that can run: MODEL itself, its float twin, or a rewritten copy."""

    path: Path
    home: Path | None = None
    """Folder of its external data; None for the file's own folder."""
    made_of: Path | None = None
    """Original of a derived file, which messages name; None for an original."""

    @property
    def shown_path(self) -> Path:
        """Path that messages name."""
        return self.made_of or self.path


class Runner:
    """Process that runs files while this is open; one time limit holds for all questions together.

    Raises:
        TimingError: no process can be started.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self._folder = tempfile.TemporaryDirectory(prefix="onnxledger-")
        self._child: Child | None = None
        self._serial = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.end()
        self._folder.cleanup()

    def run(
        self,
        subject: Subject,
        wanted: Sequence[str],
        arrays: Mapping[str, Array] | None = None,
        feeds: Sequence[Feed] = (),
        seed: int = 0,
        execution: Execution = PLAIN,
        rounds: Sequence[QuantizerAnswer] = (),
        *,
        coarse: bool = False,
    ) -> dict[str, Array]:
        """Return the wanted values that are arrays, by name.

        Args:
            subject: the file.
            wanted: names of values of the main graph.
            arrays: the inputs themselves, by name; None where `feeds` say how to make them.
            feeds: how inputs are made.
            seed: seed for the values drawn for them.
            execution: how onnxruntime runs it.
            rounds: quantizers that the twin lacks, and that round in this run.
            coarse: whether operators of `asked.COARSE` run with their largest possible error.

        Raises:
            TimingError: onnxruntime does not run it, or not within the limits.
            MissingExtraError: onnxruntime is not installed.
        """
        target = Path(self._folder.name, "values.npz")
        base = self._question(subject, wanted, arrays, feeds, seed, execution)
        question = msgspec.structs.replace(base, target=str(target), rounds=list(rounds), coarse=coarse)
        answer = self._query(question, subject.shown_path)
        with np.load(target) as found:
            return {wanted[place]: found[f"v{place}"] for place in answer.places}

    def prints(
        self,
        subject: Subject,
        wanted: Sequence[str],
        arrays: Mapping[str, Array] | None = None,
        feeds: Sequence[Feed] = (),
        seed: int = 0,
        patch: Patch | None = None,
        *,
        coarse: bool = False,
    ) -> dict[str, Print]:
        """Return the prints of the wanted values; arguments and errors as of `run`. `patch` replaces a value first."""
        question = self._question(subject, wanted, arrays, feeds, seed)
        return self._query(
            msgspec.structs.replace(question, patch=patch, coarse=coarse), subject.shown_path
        ).prints

    def attempt(
        self, subject: Subject, patches: Sequence[Patch], arrays: Mapping[str, Array]
    ) -> list[Print | None]:
        """Return the print of each patch's result; None for a patch that does not run. Errors as of `run`."""
        question = self._question(subject, (), arrays)
        return self._query(msgspec.structs.replace(question, tries=list(patches)), subject.shown_path).tried

    def rewrite(
        self,
        subject: Subject,
        state: Mapping[ReplacedTensor, Array],
        half: str = "",
        *,
        perturbation: float = 0.0,
    ) -> Subject:
        """Write a copy of the file with other numbers in its stored tensors; it exists while the runner is open.

        Args:
            subject: the file.
            state: new values of some stored tensors.
            half: the type that all others are rounded to; empty where they stay.
            perturbation: relative amount by which all are then moved, up or down.

        Raises:
            TimingError: the file cannot be opened, or not within the limits.
        """
        self._serial += 1
        target = Path(self._folder.name, f"rewritten{self._serial}.onnx")
        arrays = {f"{at}": each for at, each in enumerate(state.values())}
        base = self._question(subject, (), arrays)
        question = msgspec.structs.replace(
            base, rewritten=str(target), state=list(state), rounded_to=half, perturbation=perturbation
        )
        self._query(question, subject.shown_path)
        return Subject(target, None, subject.shown_path)

    def optimize(self, subject: Subject, execution: Execution) -> tuple[Subject, OptimizedAnswer]:
        """Write the graph as onnxruntime would run it, if that can be written; it exists while the runner is open.

        Raises:
            TimingError: the provider is not there or does not start, or the file cannot be opened.
        """
        self._serial += 1
        target = Path(self._folder.name, f"optimized{self._serial}.onnx")
        question = self._question(subject, (), None, execution=execution)
        answer = self._query(msgspec.structs.replace(question, optimized=str(target)), subject.shown_path)
        assert answer.optimized is not None
        return Subject(target, None, subject.shown_path), answer.optimized

    def compare_values(
        self,
        subject: Subject,
        other: Subject,
        wanted: Sequence[str],
        arrays: Mapping[str, Array],
        executions: tuple[Execution, Execution] = (PLAIN, PLAIN),
        *,
        coarse: bool = False,
    ) -> dict[str, ValueDifference]:
        """Return the difference of each value of the same name in two files; arguments and errors as of `run`.

        `executions` are those of the first and the second file; `coarse` holds for the first.
        """
        base = self._question(subject, wanted, arrays)
        home = "" if other.home is None else str(other.home)
        question = msgspec.structs.replace(
            base,
            execution=executions[0],
            other=str(other.path),
            other_home=home,
            other_execution=executions[1],
            coarse=coarse,
        )
        return self._query(question, subject.shown_path).apart

    def measure(
        self, subject: Subject, quantizers: Sequence[QuantizerAnswer], arrays: Mapping[str, Array]
    ) -> dict[str, Rounded]:
        """Return the effect that each quantizer missing in a twin would have on its values; errors as of `run`."""
        question = self._question(subject, (), arrays)
        return self._query(
            msgspec.structs.replace(question, rounds=list(quantizers)), subject.shown_path
        ).rounded

    def make_twin(
        self, path: Path, half: str, *, rectify: bool, restored: Sequence[float] = ()
    ) -> tuple[Subject, TwinAnswer]:
        """Write the float twin of a file; it exists while the runner is open. Arguments as of `twin.make_twin`.

        Raises:
            TimingError: the file cannot be opened, or not within the limits.
        """
        self._serial += 1
        target = Path(self._folder.name, f"twin{self._serial}.onnx")
        question = Question(str(path), twin=str(target), half=half, rectify=rectify, restored=[*restored])
        answer = self._query(question, path)
        assert answer.twin is not None
        return Subject(target, None if half else path.resolve().parent, path), answer.twin

    def _question(
        self,
        subject: Subject,
        wanted: Sequence[str],
        arrays: Mapping[str, Array] | None,
        feeds: Sequence[Feed] = (),
        seed: int = 0,
        execution: Execution = PLAIN,
    ) -> Question:
        inputs_path = Path(self._folder.name, "given.npz")
        if arrays is not None:
            save_arrays(inputs_path, {f"v{at}": each for at, each in enumerate(arrays.values())})
        return Question(
            model=str(subject.path),
            home="" if subject.home is None else str(subject.home),
            feeds=[dataclasses.asdict(feed) for feed in feeds],
            seed=seed,
            execution=execution,
            wanted=list(wanted),
            inputs_file="" if arrays is None else str(inputs_path),
            names=[*(arrays or {})],
        )

    def _query(self, question: Question, model: Path) -> Answer:
        if self._child is None:
            self._child = self._start()
        self._child.send(msgspec.json.encode(question))
        try:
            answer = self._child.receive(self._deadline, self._limits.nbytes)
        except OverTimeError:
            raise TimingError(
                f"{model}: did not finish within {self._limits.seconds:g} s; allow more with --timeout"
            ) from None
        except OverMemoryError:
            most = format_bytes(self._limits.nbytes or 0)
            raise TimingError(
                f"{model}: took more than {most} of memory; allow more with --memory-limit"
            ) from None
        if answer is None:
            code = self._child.end(1)
            self._child = None
            raise TimingError(f"{model}: onnxruntime ended its process, with exit code {code}")
        decoded = msgspec.json.decode(answer, type=Answer)
        if decoded.refused:
            raise TimingError(decoded.refused)
        if decoded.error:
            from analyzer.timing.running.isolated import describe_run_error  # only an error needs it

            raise TimingError(f"{model}: onnxruntime does not run it: {describe_run_error(decoded.error)}")
        return decoded

    def _start(self) -> Child:
        require_onnxruntime("running a model")
        try:
            with open(os.devnull, "wb") as log:  # noqa: PTH123 - no path of a file
                return Child(_PROGRAM, log=log, environment={"ORT_DISABLE_TELEMETRY": "1"})
        except OSError as error:
            raise TimingError(f"no process that runs models can be started: {error}") from error
