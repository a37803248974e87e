"""The battlefield: it tells the same numbers in each architecture; the ones with processes are in the long suites."""

from __future__ import annotations

import pytest

from headgate.bench.battle import tell


def story(architecture: str, levels: int) -> list[str]:
    return list(tell(architecture, levels, 4, lambda _: None))


def test_the_battlefield_is_told_by_one_trusted_processor() -> None:
    lines = story("trusted", 2)
    assert lines[0] == "A battlefield with 2 levels, U < L." and lines[-1].startswith("level  Q1")


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["replicated", "kernelized"])
def test_eight_levels_compute_what_one_trusted_processor_does(architecture: str) -> None:
    lines = story(architecture, 8)
    assert lines[-1] == "One trusted processor computes the same results."
    assert any("is killed" in line for line in lines)
