"""Limits that are easy to forget: what is too long is refused, not cut."""

from __future__ import annotations

import pytest
from conftest import System

from headgate.errors import AuthenticationFailed, LabelError


def test_a_password_with_something_behind_it_is_another_password(sqlite_system: System) -> None:
    longest = "x" * 1024
    sqlite_system.run(f"CREATE USER joe PASSWORD '{longest}'")
    assert sqlite_system.headgate.login("joe", longest)
    with pytest.raises(AuthenticationFailed):
        sqlite_system.headgate.login("joe", longest + "y")


def test_a_policy_whose_minimal_form_is_too_long_is_refused(sqlite_system: System) -> None:
    text = " & ".join(f"({'a' * 41}{i} | {'b' * 41}{i})" for i in range(7))
    with pytest.raises(LabelError, match="the minimal form of a label must not be longer than 10000 characters"):
        sqlite_system.run(f"CREATE STREAM s (x INT) LABEL '{text}'")
    with pytest.raises(LabelError):
        sqlite_system.run(f"CREATE STREAM s (x INT LABEL '{text}')")
