"""Calls in child processes: order, deaths, interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from analyzer.errors import OnnxLedgerError
from analyzer.process.workers import Died, call_apart, usable_processors

pytestmark = pytest.mark.child


def double_late(number: int) -> int:
    """Double a number after a delay; the first arguments take longest."""
    time.sleep(0.2 / (1 + number))
    return 2 * number


def die_of_odd(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if number % 2:
        os._exit(number)
    return number


def die(code: int) -> int:
    os._exit(code)


class DeadlyToLoad:
    """Function that kills each process that loads it, before the process reports that it is ready."""

    def __call__(self, number: int) -> int:
        return number

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return die, (7,)


def test_results_are_in_the_order_of_the_arguments_whatever_is_done_first() -> None:
    assert call_apart(double_late, range(6), 3) == [0, 2, 4, 6, 8, 10]


def test_a_process_that_dies_costs_the_result_of_its_own_call_only() -> None:
    assert call_apart(die_of_odd, range(6), 2) == [0, Died(-9), 2, Died(3), 4, Died(5)]


def test_calls_that_all_die_come_to_an_end() -> None:
    assert call_apart(die_of_odd, [3, 5, 7], 1) == [Died(3), Died(5), Died(7)]


def test_no_arguments_need_no_process() -> None:
    assert call_apart(DeadlyToLoad(), [], 4) == []


def test_every_call_is_counted_also_one_that_died() -> None:
    steps: list[tuple[int, int]] = []

    call_apart(die_of_odd, [0, 1, 2], 2, lambda done, total: steps.append((done, total)))

    assert steps == [(1, 3), (2, 3), (3, 3)]


def test_processes_that_cannot_start_are_an_error_and_not_tried_forever() -> None:
    with pytest.raises(OnnxLedgerError, match="no process can be started: exit code 7"):
        call_apart(DeadlyToLoad(), range(100), 2)


def test_no_process_is_left_when_the_caller_is_interrupted() -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_apart(time.sleep, [0, 60, 60], 2, interrupt)

    table = subprocess.run(
        ["ps", "-eo", "ppid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    assert not [
        line for line in table.splitlines() if int(line.split()[0]) == os.getpid() and "workers" in line
    ]


def test_an_exception_of_the_function_ends_its_process_without_output(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert call_apart(double_late, [1, "one", 2], 1) == [2, Died(1), 4]
    assert capfd.readouterr().err == ""


def test_a_script_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import math\nfrom analyzer.process.workers import call_apart\nprint(call_apart(math.sqrt, [1, 4], 2))\n"
    )

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)

    assert done.stdout == "[1.0, 2.0]\n"


def test_a_call_that_never_ends_is_given_up_on_alone() -> None:
    assert call_apart(time.sleep, [0, 60, 0], 2, seconds=0.5) == [
        None,
        Died(-signal.SIGKILL, "it took more than 0.5 s"),
        None,
    ]


def take(nbytes: int) -> int:
    ballast = bytearray(b"1") * nbytes
    time.sleep(1)
    return len(ballast)


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux counts memory")
def test_a_call_that_takes_too_much_memory_is_given_up_on_alone() -> None:
    results = call_apart(take, [1, 400 << 20], 2, nbytes=200 << 20)

    assert results[0] == 1
    assert isinstance(results[1], Died)
    assert str(results[1]) == "it took more than 209,715,200 bytes of memory"


def test_what_a_call_prints_is_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    assert call_apart(print, ["a", "b"], 1) == [None, None]
    assert capfd.readouterr().out == ""


def test_there_is_a_processor() -> None:
    assert 1 <= usable_processors() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize(
    "program",
    ["import time; time.sleep(600)", "import ctypes; ctypes.PyDLL(None).sleep(600)"],
    ids=["waiting", "in a library that lets no thread of Python go on"],
)
def test_a_process_ends_with_the_one_that_was_killed_before_it_could_end_it(program: str) -> None:
    script = (
        "import sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from analyzer.process.child import Child\n"
        f"print(Child({program!r}).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(1)  # until it watches its parent
        parent.kill()

    until = time.monotonic() + 30
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.1)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
