"""Parts of a batch on several cores: the same as one after the other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate.execution.memory import keep_freed
from headgate.operators import threads
from headgate.operators.threads import in_threads


def test_results_come_in_the_order_of_their_parts() -> None:
    assert in_threads(lambda x: x * x, range(100), [1] * 100) == in_threads(
        lambda x: x * x, range(100), range(10**6, 100, -(10**4))
    )


def test_few_rows_stay_in_their_thread_and_many_do_not() -> None:
    def thread(_: int) -> int:
        return threading.get_ident()

    assert set(in_threads(thread, range(9), [threads.WORTH_IT - 1] * 9)) == {threading.get_ident()}
    assert threading.get_ident() not in in_threads(thread, range(9), [threads.WORTH_IT] * 9)


def test_the_largest_parts_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = ThreadPoolExecutor(1)
    monkeypatch.setattr(threads, "_threads", lambda _: alone)
    begun: list[str] = []
    in_threads(begun.append, ["small", "large", "middle"], [1, threads.WORTH_IT, 7])
    assert begun == ["large", "middle", "small"]


def test_an_error_in_a_thread_is_raised_to_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda x: 1 // x, [1, 0], [10**6] * 2)


def test_freed_memory_is_kept_where_the_c_library_can() -> None:
    assert keep_freed() == keep_freed()
