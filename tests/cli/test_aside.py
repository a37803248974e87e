"""What is done beside the work: one thing at a time, and what goes wrong in it goes wrong where it was begun."""

from __future__ import annotations

import threading

import pytest

from headgate.cli.aside import Aside


def test_what_is_begun_while_the_last_is_not_done_is_left_out() -> None:
    aside, go_on, done = Aside(), threading.Event(), list[int]()

    def first() -> None:
        assert go_on.wait(10)
        done.append(1)

    aside.begin(first)
    aside.begin(lambda: done.append(2))
    assert done == []
    go_on.set()
    aside.finish()
    aside.begin(lambda: done.append(3))
    aside.finish()
    assert done == [1, 3]


def test_what_goes_wrong_is_raised_once_where_it_was_begun() -> None:
    def fail() -> None:
        raise BrokenPipeError

    aside = Aside()
    aside.finish()
    aside.begin(fail)
    with pytest.raises(BrokenPipeError):
        aside.finish()
    aside.finish()
