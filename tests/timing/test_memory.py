import os
import subprocess
import sys
from pathlib import Path

import pytest

from analyzer.process.memory import available, own_nbytes, peak_rss

MIB = 1 << 20
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="as Linux counts memory")


def machine(folder: Path, *, mib: int, group: str) -> Path:
    proc = folder / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(
        f"MemTotal: 99999999 kB\nMemAvailable: {mib * 1024} kB\nHugePages_Total: 0\n"
    )
    (proc / "self" / "cgroup").write_text(group)
    return proc


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_without_control_groups_it_is_what_the_machine_has(tmp_path: Path) -> None:
    proc = machine(tmp_path, mib=500, group="0::/\n")

    assert available(proc, tmp_path / "none") == 500 * MIB


def test_a_container_has_what_its_control_group_leaves(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, mib=500, group="0::/\n"), tmp_path / "groups"
    stat = f"anon 5\ninactive_file {20 * MIB}\n"
    write(groups, memory__max=f"{300 * MIB}\n", memory__current=f"{120 * MIB}\n", memory__stat=stat)

    assert available(proc, groups) == (300 - 120 + 20) * MIB


def test_the_groups_around_a_group_limit_it_too(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, mib=500, group="0::/user/session\n"), tmp_path / "groups"
    stat = "inactive_file 0\n"
    inner = groups / "user" / "session"
    write(inner, memory__max="max\n", memory__current=f"{10 * MIB}", memory__stat=stat)
    write(inner.parent, memory__max=f"{100 * MIB}", memory__current=f"{30 * MIB}", memory__stat=stat)

    assert available(proc, groups) == 70 * MIB


def test_control_groups_of_version_1_are_read(tmp_path: Path) -> None:
    proc = machine(tmp_path, mib=500, group="9:name=systemd:/\n4:cpu,memory:/docker/a:b\n0::/\n")
    folder = tmp_path / "groups" / "memory" / "docker" / "a:b"
    write(folder, memory__limit_in_bytes=f"{64 * MIB}", memory__usage_in_bytes=f"{4 * MIB}")
    write(folder, memory__stat="total_inactive_file 0\n")

    assert available(proc, tmp_path / "groups") == 60 * MIB


def test_a_group_that_is_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, mib=500, group="0::/\n"), tmp_path / "groups"
    write(groups, memory__max=str(MIB), memory__current=str(9 * MIB), memory__stat="inactive_file 0\n")

    assert available(proc, groups) == 0


def test_a_system_that_does_not_report_memory_has_no_number(tmp_path: Path) -> None:
    assert available(tmp_path, tmp_path) is None


def test_this_machine_has_some_memory_left() -> None:
    left = available()

    assert left is None or left > MIB


@LINUX
def test_this_process_has_memory_of_its_own_and_had_at_least_that() -> None:
    own, peak = own_nbytes(os.getpid()), peak_rss()

    assert own is not None
    assert peak is not None
    assert MIB < own <= peak


@pytest.mark.child
@LINUX
def test_a_process_that_is_gone_has_no_memory() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()

    assert own_nbytes(process.pid) is None


@pytest.mark.child
@LINUX
def test_the_peak_is_not_that_of_the_process_that_started_it() -> None:
    ballast = bytearray(os.urandom(1 << 10)) * (200 << 10)  # 200 MiB
    program = "from analyzer.process.memory import peak_rss; print(peak_rss())"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, cwd=ROOT).stdout

    assert int(output) < len(ballast)


@pytest.mark.child
@LINUX
def test_a_peak_can_be_forgotten() -> None:
    program = """
from analyzer.process.memory import forget_peak, peak_rss
small = [bytes(1000) for _ in range(100_000)]
before = peak_rss()
del small
forget_peak()
print(before - peak_rss())
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, cwd=ROOT).stdout

    assert int(output) > 50 * MIB


@pytest.mark.child
@LINUX
def test_growth_is_limited_from_what_there_is() -> None:
    program = """
import mmap, tempfile
from analyzer.process.memory import limit_growth, own_nbytes
import os
file = tempfile.TemporaryFile()
file.truncate(1 << 30)
mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)  # as weights are: it may be written to, and is not
limit_growth(own_nbytes(os.getpid()) + (64 << 20))
print(len(bytearray(32 << 20)))
try:
    bytearray(96 << 20)
except MemoryError:
    print("no more")
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, cwd=ROOT).stdout

    assert output.decode().split("\n")[:2] == [str(32 << 20), "no more"]


ROOT = Path(__file__).parents[2]
