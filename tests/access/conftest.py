"""The world that attacks begin in, made anew for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .attacked import World

# Helpers that assert: when one fails, it shall say why as a test does.
pytest.register_assert_rewrite("access.both_sides", "access.stores")


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.headgate.close()
