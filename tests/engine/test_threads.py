"""Parts of a batch on several cores: the same as one after the other."""

from __future__ import annotations

import threading

import pytest

from headgate.engine.kernels import threads
from headgate.engine.kernels.threads import in_threads
from headgate.engine.memory import keep_freed


def test_results_come_in_the_order_of_their_parts() -> None:
    assert in_threads(lambda x: x * x, range(100), 1) == in_threads(lambda x: x * x, range(100), 10**6)


def test_few_rows_stay_in_their_thread_and_many_do_not() -> None:
    def thread(_: int) -> int:
        return threading.get_ident()

    assert set(in_threads(thread, range(9), threads.WORTH_IT - 1)) == {threading.get_ident()}
    assert threading.get_ident() not in in_threads(thread, range(9), threads.WORTH_IT)


def test_what_fails_in_a_thread_fails_here() -> None:
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda x: 1 // x, [1, 0], 10**6)


def test_freed_memory_is_kept_where_the_c_library_can() -> None:
    assert keep_freed() == keep_freed()
