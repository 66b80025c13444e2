"""A request -> a session of onnxruntime, the graph that it runs, and the provider of each node."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from analyzer.errors import TimingError
from analyzer.records import Frozen
from analyzer.timing.record import KernelTime
from analyzer.timing.request import Kernel, Optimization, Request
from analyzer.timing.running.providers import (
    binding_device,
    chain,
    check_installed,
    saves_graph,
    short_name,
    what_it_needs,
)

# If onnxruntime cannot start a provider, it runs on the processor instead, with a warning at most. A timing of another
# provider is worse than none, so the checks here raise an error where onnxruntime goes on.


COPIES = frozenset({"MemcpyFromHost", "MemcpyToHost"})
"""Operators that onnxruntime inserts between nodes of different devices."""

_LONGEST = 300
_RECORD = re.compile(r"^\S+ \S+ \[[WEF]:onnxruntime:[^\]]*\]\s*(.*)$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PLACEMENT = re.compile(r"Execution ?Provider|preferred execution provider|Memcpy node", re.IGNORECASE)
_MOST_MESSAGES = 20
_NOISE = (
    (_COLOUR, ""),
    (re.compile(r"^\S+:\d+ .*?\[ONNXRuntimeError\] : \d+ : \w+ : "), ""),
    (re.compile(r"^\S+/\S+\.(?:cc|cu|h):\d+ (?:.*?\) )?"), ""),
    (re.compile(r"Failed to load library \S*?([^/\\\s]+) with error: "), r"\1: "),
    (re.compile(r"; (?:hostname|file|line|expr)=.*$"), ""),
    (re.compile(r"\.\s+Please (?:install|reference|follow) .*$", re.DOTALL), "."),
    (re.compile(r" as mentioned in the GPU requirements page"), ""),
)
_NO_START = re.compile(
    r"CUDA failure|CUDNN failure|CUDA_PATH|TensorRT libraries|Failed to load (?:shared )?library"
)
_NO_MEMORY = re.compile(r"out of memory|allocate memory", re.IGNORECASE)
_CAUSES = ("Failed to", "CUDA failure", "cannot open", "Require", "not found", "error")


class Fallback(Frozen):
    """Kernels that ran on another provider than the requested one."""

    provider: str
    """Name on the command line."""
    op_type: str
    kernels: tuple[KernelTime, ...]
    """Kernels, the slowest first."""

    @property
    def ms(self) -> float:
        """Mean milliseconds per profiled run."""
        return sum(kernel.ms for kernel in self.kernels)


def check_registered(name: str, registered: Iterable[str], log: str) -> None:
    """Refuse a session without the requested provider.

    Args:
        name: the requested provider, as onnxruntime calls it.
        registered: the providers of the session.
        log: onnxruntime's output while it made the session.

    Raises:
        TimingError: the provider is not registered; the message has onnxruntime's reason.
    """
    there = tuple(registered)
    if name in there:
        return
    raise not_started(name, reason(log), there)


def not_started(name: str, why: str, others: Sequence[str] = ()) -> TimingError:
    """Return the error for a provider that is installed, but does not start."""
    instead = f" and would run on {', '.join(short_name(other) for other in others)}" if others else ""
    return TimingError(
        f"{short_name(name)} was asked for, but onnxruntime cannot start it{instead}: "
        f"{why or 'onnxruntime gives no reason.'} What helps: {what_it_needs(name)}"
    )


def start_failure(text: str) -> str:
    """Return the message of an exception about a device or its libraries; "" for any other exception."""
    return _sentence(text) if _NO_START.search(text) and not _NO_MEMORY.search(text) else ""


def check_used(name: str, kernels: Sequence[Kernel | KernelTime]) -> None:
    """Refuse a run in which the requested provider ran no node.

    Raises:
        TimingError: all nodes ran elsewhere.
    """
    from analyzer.text import printable  # render imports this module

    work = [kernel for kernel in kernels if kernel.op_type not in COPIES]
    if not work or any(kernel.provider == name for kernel in work):
        return
    others = ", ".join(sorted({short_name(kernel.provider) for kernel in work if kernel.provider}))
    operators = sorted({kernel.op_type for kernel in work})
    listed = ", ".join(printable(operator) for operator in operators[:5])
    more = f" and {len(operators) - 5} more" if len(operators) > 5 else ""
    raise TimingError(
        f"{short_name(name)} has started, but takes no node of this model: all {len(work)} kernels ran on {others} "
        f"({listed}{more}). It has no kernels for these operators in their types, opset or shapes; time the model "
        f"with --provider {others.partition(',')[0]}, or export it in a form that {short_name(name)} supports"
    )


def fallbacks(name: str, kernels: Iterable[KernelTime]) -> tuple[Fallback, ...]:
    """Return the kernels on other providers than the requested one, by provider and operator, the slowest first.

    Copies between devices are not work of the model, and are left out.
    """
    found: dict[tuple[str, str], list[KernelTime]] = {}
    for kernel in kernels:
        if kernel.provider not in {name, ""} and kernel.op_type not in COPIES:
            found.setdefault((short_name(kernel.provider), kernel.op_type), []).append(kernel)
    return _by_time(found)


def copies(kernels: Iterable[KernelTime]) -> tuple[Fallback, ...]:
    """Return the copies between devices, by direction, the slowest first."""
    found: dict[tuple[str, str], list[KernelTime]] = {}
    for kernel in kernels:
        if kernel.op_type in COPIES:
            found.setdefault((short_name(kernel.provider), kernel.op_type), []).append(kernel)
    return _by_time(found)


def _by_time(found: Mapping[tuple[str, str], list[KernelTime]]) -> tuple[Fallback, ...]:
    grouped = [
        Fallback(provider, op_type, tuple(sorted(kernels, key=lambda kernel: (-kernel.ms, kernel.name))))
        for (provider, op_type), kernels in found.items()
    ]
    return tuple(sorted(grouped, key=lambda group: (-group.ms, group.provider, group.op_type)))


def reason(log: str) -> str:
    r"""Return onnxruntime's reason for leaving out a provider, from its log, without times, locations and advice.

    >>> reason(
    ...     "2026-01-01 00:00:00.1 [W:onnxruntime:Default, a.cc:1 F] Failed to create X. Please install all."
    ... )
    'Failed to create X.'
    """
    found: list[str] = []
    for line in _complaints(log):
        sentence = _sentence(line)
        if sentence and sentence not in found and any(cause in sentence for cause in _CAUSES):
            found.append(sentence)
    return _cut(" ".join(found))


def placement_messages(log: str) -> tuple[str, ...]:
    """Return the warnings in onnxruntime's log about the placement of nodes, each once."""
    return tuple(dict.fromkeys(text for text in _complaints(log) if _PLACEMENT.search(text)))[:_MOST_MESSAGES]


def _complaints(log: str) -> Iterator[str]:
    """Yield the warnings and errors of a log, without time and source location."""
    for line in _COLOUR.sub("", log).splitlines():
        record = _RECORD.match(line.strip())
        if record is not None:
            yield record[1].strip()


def _sentence(text: str) -> str:
    from analyzer.text import printable  # render imports this module

    for noise, instead in _NOISE:
        text = noise.sub(instead, text)
    text = printable(" ".join(text.split()))
    return _cut(f"{text}." if text and not text.endswith(".") else text)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


_LEVELS = {
    Optimization.NONE: "ORT_DISABLE_ALL",
    Optimization.BASIC: "ORT_ENABLE_BASIC",
    Optimization.EXTENDED: "ORT_ENABLE_EXTENDED",
    Optimization.LAYOUT: "ORT_ENABLE_LAYOUT",
    Optimization.ALL: "ORT_ENABLE_ALL",
}
_WARNINGS = 2
"""Lowest severity that onnxruntime logs."""

_NOT_WRITTEN = re.compile("compiled nodes|serializ|optimized model|No space left", re.IGNORECASE)
"""Messages of onnxruntime when it has made the graph but cannot write it."""


class Session(Frozen):
    """A session of onnxruntime that is ready to run."""

    inference: Any
    """`onnxruntime.InferenceSession`"""
    optimized: Path | None
    """Graph that runs, in a file without its weights; None if onnxruntime cannot write it."""
    load_ns: int
    """Time to make the session, in nanoseconds, with the writing of that file."""


def open_session(request: Request, folder: Path, log: Path, *, profiled: bool, write: bool) -> Session:
    """Make a session for a request.

    Args:
        request: the model and its settings.
        folder: for the profile and the graph that runs.
        log: file of this process's stderr, to which onnxruntime writes its reason for leaving out a provider.
        profiled: whether to profile, until `end_profiling` is called.
        write: whether to write the graph that runs, if possible.

    Raises:
        TimingError: onnxruntime has left out the requested provider.
        Exception: onnxruntime's exceptions, of many classes, if it cannot load the model.
    """
    import onnxruntime

    check_installed(request.provider, onnxruntime.get_available_providers())
    onnxruntime.set_seed(request.seed)  # for operators such as Dropout and RandomNormal
    if binding_device(request.provider) is not None:
        onnxruntime.preload_dlls()  # CUDA's libraries from pip, in a place that no loader searches
    target = folder / "optimized.onnx" if write and saves_graph(request.provider) else None
    options = _options(request, folder, target, profiled=profiled)
    try:
        session = _make(request, options, target)
    except Exception as error:
        if why := start_failure(str(error)):
            raise not_started(request.provider, why) from error
        if target is None or not _NOT_WRITTEN.search(str(error)):
            raise
        # A provider that compiles nodes hides their content, so that no file can hold them.
        _remove(target)
        session = _make(request, _options(request, folder, None, profiled=profiled), None)
    check_registered(request.provider, session.inference.get_providers(), read_log(log))
    return session


def _make(request: Request, options: Any, target: Path | None) -> Session:
    import onnxruntime

    providers = chain(request.provider, onnxruntime.get_available_providers(), request.provider_options)
    start = time.perf_counter_ns()
    # Without its fallback: it would run on the processor instead, and print that to stdout.
    inference = onnxruntime.InferenceSession(request.model, options, providers=providers, enable_fallback=0)
    took = time.perf_counter_ns() - start
    return Session(inference, target if target is not None and target.is_file() else None, took)


def _options(request: Request, folder: Path, target: Path | None, *, profiled: bool) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _WARNINGS
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL  # so that kernels do not overlap
    options.graph_optimization_level = level_of(request.optimization)
    if request.threads is not None:
        options.intra_op_num_threads = request.threads
    for library in request.libraries:
        options.register_custom_ops_library(library)
    if not saves_graph(request.provider):
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if profiled:
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / "profile")
    if target is not None:
        _write_to(options, target)
    return options


def level_of(optimization: Optimization) -> Any:
    """Return onnxruntime's name for the level; 1.23 has none between extended and all."""
    import onnxruntime

    levels = onnxruntime.GraphOptimizationLevel
    return getattr(levels, _LEVELS[optimization], levels.ORT_ENABLE_EXTENDED)


def _write_to(options: Any, target: Path) -> None:
    """Let onnxruntime write the graph that runs, but not its weights, because nothing reads them."""
    weights = f"{target.name}.data"
    with suppress(OSError):  # on Windows links need a privilege: the weights go beside the graph
        Path(target.parent, weights).symlink_to(os.devnull)
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", weights)
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "16")


def _remove(target: Path) -> None:
    for path in (target, target.with_name(f"{target.name}.data")):
        path.unlink(missing_ok=True)


def assigned_nodes(session: Session, provider: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return (provider, names of nodes) of each part of the graph that a provider took, if no graph can be written."""
    if saves_graph(provider) or not hasattr(session.inference, "get_provider_graph_assignment_info"):
        return ()  # onnxruntime has it since 1.24
    parts = session.inference.get_provider_graph_assignment_info()
    return tuple((part.ep_name, tuple(node.name for node in part.get_nodes())) for part in parts)


def read_log(log: Path) -> str:
    """Return the beginning of a log: the messages about the making of the session."""
    try:
        with log.open("rb") as file:
            return file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""
