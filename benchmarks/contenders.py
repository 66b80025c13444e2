"""Commands to measure on a file, and the CPU and memory of one run of a command."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CPU_LIMIT = 60
"""CPU seconds after which a run is stopped."""

MEMORY_LIMIT = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
"""Bytes of memory that a run may allocate, because other processes use the machine, too."""

INSPECT = ["inspect", "--format", "json"]

# Prints the modules that `python -m analyzer` with these arguments has loaded at its end, each after the modules that
# it imports. A hard exit becomes a soft one, because otherwise nothing would be printed.
LOADED = """
import os, runpy, sys
os._exit = sys.exit
try:
    runpy.run_module("analyzer", run_name="__main__", alter_sys=True)
finally:
    print(*sys.modules, file=sys.stderr)
"""

# Imports the given modules, and prints those that no earlier one has imported, then the modules that only one of the
# two processes has loaded.
IMPORTED = """
import sys
needed = []
for name in sys.argv[1:]:
    if name not in sys.modules:
        try:
            __import__(name)
        except ImportError:
            continue
        needed.append(name)
print(*needed)
print(*set(sys.modules) ^ {*sys.argv[1:], "__main__"})
"""

# Finds the parameter count in the output of a contender, in a separate process, because that may be many megabytes.
COUNTED = """
import re, sys
found = re.search(sys.argv[1], sys.stdin.read(), re.DOTALL)
print(int(float(found[1].replace(",", ""))) if found else "")
"""


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    command: tuple[str, ...]
    count: str = ""  # the pattern that finds the parameter count in the output, if there is one


@dataclass(frozen=True, slots=True)
class Used:
    """Resources that one process used, from its start to its end."""

    cpu: float  # seconds, user and system
    peak: float  # MiB resident


@dataclass(frozen=True, slots=True)
class Failed:
    reason: str


@dataclass(frozen=True, slots=True)
class Imports:
    """Imports of an inspect, as the shortest list of modules that brings all of them."""

    modules: list[str]
    loaded: int
    differing: list[str]  # loaded by only one of the two; empty if the list is right


def imports_of_inspect(tiny: Path) -> Imports:
    """Find the imports of an inspect of `tiny`, so that the baseline stays right when imports change."""
    command = [sys.executable, "-c", LOADED, *INSPECT, str(tiny)]
    run = subprocess.run(command, cwd=tiny.parent, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"onnxledger inspect fails on a tiny model:\n{run.stderr}")
    loaded = [name for name in run.stderr.splitlines()[-1].split() if name != "__main__"]
    loaded.reverse()  # importers first: they bring most of the others
    command = [sys.executable, "-c", IMPORTED, *loaded]
    output = subprocess.run(command, cwd=tiny.parent, capture_output=True, text=True, check=True).stdout
    needed, differing = output.splitlines()[-2:]
    return Imports(needed.split(), len(loaded), sorted(differing.split()))


def contenders(path: Path, imports: Imports, peers: Path) -> list[Contender]:
    """Return all contenders for one file. `peers` is the folder with the programs of the other tools."""
    python, model, load = sys.executable, str(path), f"import onnx; onnx.load({str(path)!r})"
    # onnx-tool needs the shapes of inputs that have none.
    names = ("input_ids", "attention_mask", "token_type_ids") if path.stem == "bert" else ()
    shapes = ["-d", *(f"{name}:int32:1x8" for name in names)] if names else []
    listed = {
        "onnxledger inspect": (
            [python, "-m", "analyzer", *INSPECT, model],
            r'"totals":.*?"parameters": ?(\d+)',
        ),
        "its imports alone": ([python, "-c", f"import {', '.join(imports.modules)}"], ""),
        "import onnx": ([python, "-c", "import onnx"], ""),
        "onnx.load": ([python, "-c", load], ""),
        "onnx_opcounter": ([f"{peers}/onnx_opcounter", model], r"parameters in the model: ([\d.e+]+)"),
        "onnx-tool": (
            [f"{peers}/python", "-m", "onnx_tool", "-i", model, *shapes],
            r"\nTotal +_ +(?:[\d,.]+ +\S+% +){2}([\d,.]+)",
        ),
        "onnxslim --inspect": ([f"{peers}/onnxslim", "--inspect", model], ""),
        "polygraphy inspect": ([f"{peers}/polygraphy", "inspect", "model", model], ""),
    }
    return [Contender(name, tuple(command), count) for name, (command, count) in listed.items()]


def measure(command: tuple[str, ...], output: Path) -> Used | Failed:
    """Run a command, with its output in the file `output`."""
    if not Path(command[0]).exists():
        return Failed("not installed: see benchmarks/requirements.txt")
    errors = output.with_suffix(".stderr")
    with output.open("wb") as stdout, errors.open("wb") as stderr:
        process = subprocess.Popen(
            command, cwd=output.parent, stdout=stdout, stderr=stderr, preexec_fn=_limit_resources
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # for Popen, which did not see the process end
    if process.returncode == -signal.SIGXCPU:
        return Failed(f"stopped after {CPU_LIMIT} s CPU")
    if process.returncode < 0:
        return Failed(f"ended by {signal.Signals(-process.returncode).name}")
    if process.returncode:
        text = re.sub(r"\x1b\[[0-9;]*m", "", errors.read_text(errors="replace"))
        *_, reason = filter(None, map(str.strip, [f"exit code {process.returncode}", *text.splitlines()]))
        memory = f"asked for over {MEMORY_LIMIT / 2**30:.1f} GiB of memory"
        return Failed(memory if reason.startswith("MemoryError") else reason)
    bytes_per_unit = 1 if sys.platform == "darwin" else 1024
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * bytes_per_unit / 2**20)


def read_count(pattern: str, output: Path) -> int | None:
    with output.open("rb") as printed:
        command = [sys.executable, "-c", COUNTED, pattern]
        found = subprocess.run(
            command, stdin=printed, capture_output=True, text=True, check=True
        ).stdout.strip()
    return int(found) if found else None


def _limit_resources() -> None:
    for kind, limit in ((resource.RLIMIT_CPU, CPU_LIMIT), (resource.RLIMIT_DATA, MEMORY_LIMIT)):
        _, most = resource.getrlimit(kind)
        resource.setrlimit(kind, (limit, most))
