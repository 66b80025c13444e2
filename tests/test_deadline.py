"""Work that takes too long is stopped, and no timer remains."""

from __future__ import annotations

import re
import signal
import threading

import pytest

from analyzer.errors import UsageError
from analyzer.process import within


def test_a_search_that_would_never_end_is_stopped() -> None:
    with pytest.raises(UsageError, match=r"too slow \(stopped after 0.1 seconds\)"), within(0.1, "too slow"):
        re.search(r"(a+)+$", "a" * 60 + "b")


def test_what_ends_in_time_is_not_interrupted_and_the_timer_is_reset() -> None:
    before = signal.getsignal(signal.SIGVTALRM)

    with within(5, "too slow"):
        assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0

    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGVTALRM) == before


def test_the_clock_is_put_back_after_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), within(5, "too slow"):
        raise ZeroDivisionError

    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_another_thread_takes_what_it_takes() -> None:
    done = []

    def work() -> None:
        with within(0.000001, "too slow"):
            done.append(sum(range(10_000)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert done
