"""A request -> a session of onnxruntime, and the graph that it runs."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.timing.request import Optimization, Request
from analyzer.timing.running.placement import check_registered, not_started, start_failure
from analyzer.timing.running.providers import binding_device, chain, check_installed, saves_graph

__all__ = ["Session", "assigned_nodes", "open_session", "read_log"]

_LEVELS = {
    Optimization.NONE: "ORT_DISABLE_ALL",
    Optimization.BASIC: "ORT_ENABLE_BASIC",
    Optimization.EXTENDED: "ORT_ENABLE_EXTENDED",
    Optimization.LAYOUT: "ORT_ENABLE_LAYOUT",
    Optimization.ALL: "ORT_ENABLE_ALL",
}
_WARNINGS = 2
"""The severity of what onnxruntime logs, at least."""

_NOT_WRITTEN = re.compile("compiled nodes|serializ|optimized model|No space left", re.IGNORECASE)
"""What onnxruntime says when it has made the graph but cannot write it."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session of onnxruntime that is ready to run."""

    inference: Any
    """`onnxruntime.InferenceSession`"""
    optimized: Path | None
    """The graph that runs, in a file without its weights; None where onnxruntime cannot write it."""
    load_ns: int
    """What making the session took, writing that file included."""


def open_session(request: Request, folder: Path, log: Path, *, profiled: bool, write: bool) -> Session:
    """A session as the request asks for it.

    Args:
        request: what to run, and on what.
        folder: for the profile and the graph that runs.
        log: where this process's stderr goes, which is where onnxruntime says why it has done without a provider.
        profiled: with profiling, until `end_profiling` is called.
        write: with the graph that runs, where it can be written.

    Raises:
        TimingError: onnxruntime has done without the provider that was asked for.
        Exception: onnxruntime's own, of many classes, where it cannot load the model.
    """
    import onnxruntime

    check_installed(request.provider, onnxruntime.get_available_providers())
    onnxruntime.set_seed(request.seed)  # of operators such as Dropout and RandomNormal
    if binding_device(request.provider) is not None:
        onnxruntime.preload_dlls()  # CUDA's libraries that pip installed, where no loader would look for them
    target = folder / "optimized.onnx" if write and saves_graph(request.provider) else None
    options = _options(request, folder, target, profiled=profiled)
    try:
        session = _make(request, options, target)
    except Exception as error:
        if why := start_failure(str(error)):
            raise not_started(request.provider, why) from error
        if target is None or not _NOT_WRITTEN.search(str(error)):
            raise
        # A provider that compiles nodes keeps what they were to itself, so that no file can hold them.
        _remove(target)
        session = _make(request, _options(request, folder, None, profiled=profiled), None)
    check_registered(request.provider, session.inference.get_providers(), read_log(log))
    return session


def _make(request: Request, options: Any, target: Path | None) -> Session:
    import onnxruntime

    providers = chain(request.provider, onnxruntime.get_available_providers(), request.provider_options)
    start = time.perf_counter_ns()
    # Without its fallback: it would run on the processor instead, and say so on stdout.
    inference = onnxruntime.InferenceSession(request.model, options, providers=providers, enable_fallback=0)
    took = time.perf_counter_ns() - start
    return Session(inference, target if target is not None and target.is_file() else None, took)


def _options(request: Request, folder: Path, target: Path | None, *, profiled: bool) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _WARNINGS
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL  # so that kernels do not overlap
    level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[request.optimization], None)
    if level is not None:  # onnxruntime 1.23 has no level between extended and all
        options.graph_optimization_level = level
    else:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
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


def _write_to(options: Any, target: Path) -> None:
    """Have the graph that runs written there, and its weights nowhere, as nobody asks for them."""
    weights = f"{target.name}.data"
    with suppress(OSError):  # on Windows, where links are a privilege, they go beside the graph
        Path(target.parent, weights).symlink_to(os.devnull)
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", weights)
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "16")


def _remove(target: Path) -> None:
    for path in (target, target.with_name(f"{target.name}.data")):
        path.unlink(missing_ok=True)


def assigned_nodes(session: Session, provider: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(provider, names of nodes) of each part of the graph that one took, where the graph that runs is not written."""
    if saves_graph(provider) or not hasattr(session.inference, "get_provider_graph_assignment_info"):
        return ()  # onnxruntime has it since 1.24
    parts = session.inference.get_provider_graph_assignment_info()
    return tuple((part.ep_name, tuple(node.name for node in part.get_nodes())) for part in parts)


def read_log(log: Path) -> str:
    """The beginning of a log: what it says of how the session was made."""
    try:
        with log.open("rb") as file:
            return file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""
