"""The battlefield: it tells the same numbers in each architecture; the ones with processes are in the long suites."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate.bench.battle import Digests, tell
from headgate.labels import parse_label
from headgate.model.results import ResultBatch


def story(architecture: str, levels: int) -> list[str]:
    return list(tell(architecture, levels, 4, lambda _: None))


def test_the_battlefield_is_told_by_one_trusted_processor() -> None:
    lines = story("trusted", 2)
    assert lines[0] == "A battlefield with 2 levels, U < L." and lines[-1].startswith("level  Q1")


def test_another_value_is_another_digest() -> None:
    def digested(value: int) -> object:
        digests, none = Digests(), np.zeros(1, np.int64)
        digests.add([ResultBatch(("ann",), "q", none, none, (pa.array([value]),), none, (parse_label("TRUE"),))])
        return digests.results()

    assert digested(1) == digested(1) != digested(2)


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["replicated", "kernelized"])
def test_eight_levels_compute_what_one_trusted_processor_does(architecture: str) -> None:
    lines = story(architecture, 8)
    assert lines[-1] == "One trusted processor computes the same results, value by value."
    assert any("is killed" in line for line in lines)
