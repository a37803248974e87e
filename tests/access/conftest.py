"""The world that attacks begin in, made anew for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .attacked import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.headgate.close()
