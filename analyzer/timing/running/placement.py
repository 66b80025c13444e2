"""What was asked for + what onnxruntime did -> a refusal where it is something else, or a list of what ran elsewhere.

onnxruntime does without a provider that it cannot start and runs on the processor instead, with a warning at most. A
timing of something else than was asked for is worse than none, so each check here raises where onnxruntime goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from analyzer.errors import TimingError
from analyzer.timing.record import KernelTime
from analyzer.timing.request import Kernel
from analyzer.timing.running.providers import short_name, what_it_needs

__all__ = [
    "COPIES",
    "Fallback",
    "check_registered",
    "check_used",
    "copies",
    "fallbacks",
    "not_started",
    "placement_messages",
    "reason",
    "start_failure",
]

COPIES = frozenset({"MemcpyFromHost", "MemcpyToHost"})
"""Operators that onnxruntime puts between nodes of different devices."""

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


@dataclass(frozen=True, slots=True)
class Fallback:
    """What ran on another provider than the one that was asked for."""

    provider: str
    """As it is named on the command line."""
    op_type: str
    kernels: tuple[KernelTime, ...]
    """The slowest first."""

    @property
    def ms(self) -> float:
        """Mean per profiled run."""
        return sum(kernel.ms for kernel in self.kernels)


def check_registered(name: str, registered: Iterable[str], log: str) -> None:
    """Refuse a session that has done without the provider that it was asked for.

    Args:
        log: what onnxruntime wrote while it made the session.

    Raises:
        TimingError: it says why, in onnxruntime's own words.
    """
    there = tuple(registered)
    if name in there:
        return
    raise not_started(name, reason(log), there)


def not_started(name: str, why: str, others: Sequence[str] = ()) -> TimingError:
    """A provider is there, but does not start."""
    instead = f" and would run on {', '.join(short_name(other) for other in others)}" if others else ""
    return TimingError(
        f"{short_name(name)} was asked for, but onnxruntime cannot start it{instead}: "
        f"{why or 'onnxruntime gives no reason.'} What helps: {what_it_needs(name)}"
    )


def start_failure(text: str) -> str:
    """What an exception of onnxruntime says of a device or of its libraries; "" where it is about something else."""
    return _sentence(text) if _NO_START.search(text) and not _NO_MEMORY.search(text) else ""


def check_used(name: str, kernels: Sequence[Kernel | KernelTime]) -> None:
    """Refuse a run to which the provider that was asked for gave nothing.

    Raises:
        TimingError: all nodes ran elsewhere.
    """
    from analyzer.units import printable  # render imports this module

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
    """What ran on other providers than the one that was asked for, by provider and operator, the slowest first.

    Copies between devices are no work of the model's and not among them.
    """
    found: dict[tuple[str, str], list[KernelTime]] = {}
    for kernel in kernels:
        if kernel.provider not in {name, ""} and kernel.op_type not in COPIES:
            found.setdefault((short_name(kernel.provider), kernel.op_type), []).append(kernel)
    return _by_time(found)


def copies(kernels: Iterable[KernelTime]) -> tuple[Fallback, ...]:
    """The copies between devices, by their direction, the slowest first."""
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
    r"""Why onnxruntime has done without a provider: what its log says of it, without times, places and advice.

    >>> reason(
    ...     "2026-01-01 00:00:00.1 [W:onnxruntime:Default, a.cc:1 F] Failed to create X. Please install all."
    ... )
    'Failed to create X.'
    """
    found: list[str] = []
    for line in _complaints(log):
        said = _sentence(line)
        if said and said not in found and any(cause in said for cause in _CAUSES):
            found.append(said)
    return _cut(" ".join(found))


def placement_messages(log: str) -> tuple[str, ...]:
    """What onnxruntime's log warns of that concerns where nodes run, each once."""
    return tuple(dict.fromkeys(text for text in _complaints(log) if _PLACEMENT.search(text)))[:_MOST_MESSAGES]


def _complaints(log: str) -> Iterator[str]:
    """Warnings and errors of a log, without time and place."""
    for line in _COLOUR.sub("", log).splitlines():
        record = _RECORD.match(line.strip())
        if record is not None:
            yield record[1].strip()


def _sentence(text: str) -> str:
    from analyzer.units import printable  # render imports this module

    for noise, instead in _NOISE:
        text = noise.sub(instead, text)
    text = printable(" ".join(text.split()))
    return _cut(f"{text}." if text and not text.endswith(".") else text)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
