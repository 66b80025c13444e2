"""Count the memory requests of any version of onnxruntime to the system, and compare the plan with them.

    python -m tools.memory_matrix.counted FOLDER --python /path/to/an/environment/bin/python

Profiles before 1.31 have no bytes. Without its arena, onnxruntime asks the system for each buffer, in whole lines of 64
bytes: a library that is loaded before all others counts those requests (Linux, with a C compiler). The plan is rounded
up in the same way. With its arena, onnxruntime logs the bytes that it reserves before the run: packed weights.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.account.audit import audit_model
from analyzer.cost.memory.opened import open_account
from analyzer.cost.memory.planner import live_nbytes
from analyzer.errors import OnnxLedgerError
from analyzer.timing.inputs.arrays import make_array, save_arrays
from tools.memory_matrix.cells import points_of

_LINE = 64
_WHOLE = (1, 31)
"""Version from which the smallest tensors are reserved as well; of the versions before, 1.23 was tried."""

_COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#define SLOTS (1 << 20)
static void *keys[SLOTS];
static size_t sizes[SLOTS];
static long live, most;
static int lock;
static void take(void) { while (__sync_lock_test_and_set(&lock, 1)); }
static void leave(void) { __sync_lock_release(&lock); }
static size_t slot(void *p) { return (((uintptr_t)p >> 6) * 2654435761u) & (SLOTS - 1); }
static void enter(void *p, size_t size) {
  take();
  size_t at = slot(p);
  while (keys[at] && keys[at] != (void *)1) at = (at + 1) & (SLOTS - 1);
  keys[at] = p; sizes[at] = size; live += size;
  if (live > most) most = live;
  leave();
}
int posix_memalign(void **p, size_t align, size_t size) {
  static int (*real)(void **, size_t, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "posix_memalign");
  int code = real(p, align, size);
  if (!code && align == 64) enter(*p, size);
  return code;
}
void *aligned_alloc(size_t align, size_t size) {
  static void *(*real)(size_t, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "aligned_alloc");
  void *p = real(align, size);
  if (p && align == 64) enter(p, size);
  return p;
}
void *memalign(size_t align, size_t size) {
  static void *(*real)(size_t, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "memalign");
  void *p = real(align, size);
  if (p && align == 64) enter(p, size);
  return p;
}
void free(void *p) {
  static void (*real)(void *);
  if (!real) real = dlsym(RTLD_NEXT, "free");
  if (p && !((uintptr_t)p & 63)) {
    take();
    size_t at = slot(p);
    while (keys[at] && keys[at] != p) at = (at + 1) & (SLOTS - 1);
    if (keys[at] == p) { keys[at] = (void *)1; live -= sizes[at]; }
    leave();
  }
  real(p);
}
long counted_live(void) { return live; }
long counted_most(void) { return most; }
void counted_reset(void) { most = live; }
"""
_RUN = """
import ctypes, json, sys
import numpy, onnxruntime

counter = ctypes.CDLL(None)
counter.counted_live.restype = counter.counted_most.restype = ctypes.c_long
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.enable_mem_pattern = False
options.intra_op_num_threads = 1
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
providers = ["CPUExecutionProvider"]
onnxruntime.set_default_logger_severity(1)
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=providers)
onnxruntime.set_default_logger_severity(4)
options.enable_cpu_mem_arena = False
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=providers)
feeds = dict(numpy.load(sys.argv[2]))
start = counter.counted_live()
counter.counted_reset()
session.run(None, feeds)
most = counter.counted_most() - start
sys.stdout.write(json.dumps({"version": onnxruntime.__version__, "most": most}))
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One file at one set of sizes."""

    file: str
    sizes: str
    version: str
    packed: tuple[int, int]
    """Bytes of packed weights: planned, reserved."""
    peak: tuple[int, int]
    """Bytes at the peak of the run: planned, requested."""


def main() -> None:
    """Print the differences, and the number of equal results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="part of a path that files must have")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th file (1)")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="has onnxruntime and numpy")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        library = Path(name, "counter.so")
        Path(name, "counter.c").write_text(_COUNTER, encoding="utf-8")
        build = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(Path(name, "counter.c")), "-ldl"]
        subprocess.run(build, check=True)
        found = [path for path in sorted(options.folder.rglob("*.onnx")) if options.only in str(path)]
        for path in found[:: options.every]:
            for row in count(path, str(path.relative_to(options.folder)), options.python, library):
                rows.append(row)
                if row.peak[0] != row.peak[1] or row.packed[0] != row.packed[1]:
                    sys.stdout.write(f"{row.file} | {row.sizes} | packed {row.packed} | most {row.peak}\n")
                    sys.stdout.flush()
    versions = ", ".join(sorted({row.version for row in rows}))
    sys.stdout.write(
        f"onnxruntime {versions}: {len({row.file for row in rows})} files, {len(rows)} runs; "
        f"packed weights equal in {sum(row.packed[0] == row.packed[1] for row in rows)}, "
        f"below in {sum(row.packed[0] < row.packed[1] for row in rows)}; "
        f"the most equal in {sum(row.peak[0] == row.peak[1] for row in rows)}, "
        f"below in {sum(row.peak[0] < row.peak[1] for row in rows)}\n"
    )


def count(path: Path, name: str, python: Path, library: Path) -> Iterator[Row]:
    """Yield a row for each set of sizes at which the file runs, and its plan is known."""
    try:
        points = list(points_of(audit_model(path)))
        with open_account(path) as account:
            for inputs in points:
                sizes = {axis.name: axis.size for axis in inputs.axes if axis.name is not None}
                nbytes = account.sizes(sizes)
                measured = _run(
                    path, {feed.name: make_array(feed, 0) for feed in inputs.feeds}, python, library
                )
                if measured is None or None in nbytes.values():
                    continue
                live = live_nbytes(
                    account.plan, {name: _round_up(size or 0) for name, size in nbytes.items()}
                )
                sizes_text = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
                is_old = tuple(map(int, measured.version.split(".")[:2])) < _WHOLE
                packed = account.packed.exact + account.packed.modelled if is_old else account.initial_nbytes
                peak = max(live, default=0)
                yield Row(
                    name, sizes_text, measured.version, (packed, measured.packed), (peak, measured.peak)
                )
    except OnnxLedgerError:
        return


def _round_up(nbytes: int) -> int:
    return -(-nbytes // _LINE) * _LINE


@dataclass(frozen=True, slots=True)
class _Measured:
    version: str
    packed: int
    peak: int


def _run(path: Path, feeds: Mapping[str, Any], python: Path, library: Path) -> _Measured | None:
    with tempfile.TemporaryDirectory() as folder:
        feeds_path = Path(folder, "feeds.npz")
        save_arrays(feeds_path, feeds)
        environment = {**os.environ, "LD_PRELOAD": str(library), "ORT_DISABLE_TELEMETRY": "1"}
        command = [str(python), "-c", _RUN, str(path), str(feeds_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    try:
        output = json.loads(done.stdout)
    except ValueError:
        return None
    reserved = re.findall(r"Reserving memory in BFCArena for \S+ size: (\d+)", done.stderr)
    return _Measured(output["version"], sum(map(int, reserved)), output["most"])


if __name__ == "__main__":
    main()
