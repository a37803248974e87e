"""The label bench, tiny and without Java: its rows, its goal, and what it says where accumulo-access is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.bench import accumulo
from headgate.bench.expressions import HELD, expressions
from headgate.bench.harness import Silent
from headgate.bench.labels import FULL, QUICK, Sizes, measure
from headgate.bench.timing import Timing, time_each
from headgate.labels.text import parse_plain_label, parse_roles

TINY = Sizes(column=1000, repeated=(4,), grid=((4, 1), (16, 4)), names=160, repetitions=2, warm_up=0)


@pytest.mark.parametrize(("roles", "terms"), [*FULL.grid, *QUICK.grid])
def test_expressions_are_distinct_and_as_announced(roles: int, terms: int) -> None:
    made = expressions(roles, terms, 20)
    assert len(set(made.texts)) == 20
    assert made.permitted == [True, False] * 10
    for text, permitted in zip(made.texts, made.permitted, strict=True):
        parsed = parse_roles(text)
        assert (len(parsed.names), len(parsed.terms)) == (roles, terms)
        assert parsed.satisfied_by(frozenset(HELD)) is permitted


def test_plain_expressions_take_the_fast_path_and_nested_ones_do_not() -> None:
    assert all(parse_plain_label(text) for text in expressions(16, 4, 10).texts)
    assert not any(parse_plain_label(text) for text in expressions(16, 4, 10, nested=True).texts)


def test_each_repetition_does_its_own_work() -> None:
    done: list[str] = []

    def prepare() -> Any:
        done.append("prepare")
        return lambda: done.append("work")

    assert len(time_each(10, 2, prepare).repetitions) == 2
    assert done == ["prepare", "work"] * 2
    assert Timing([1, 2, 4]).median == 2
    assert Timing([1, 2, 4]).spread == 1.5


def test_without_java_the_rest_is_measured_and_a_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    report = measure(TINY, Silent())
    assert [(row["labels"], row["given as"], row["tuples"]) for row in report.rows] == [
        ("4 repeated", "numbers", 1000),
        ("4 repeated", "texts", 1000),
        ("distinct", "texts", 20),
        ("distinct", "texts", 10),
        ("distinct, nested", "texts", 10),
    ]
    assert "accumulo ns" not in report.columns()
    assert [goal.goal for goal in report.goals] == [60]
    assert report.notes[-1] == "accumulo-access was not measured: `java` is not installed."


def test_a_jar_that_is_not_the_published_one_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "headgate").mkdir()
    (tmp_path / "headgate" / f"{accumulo.ARTIFACT}-{accumulo.VERSION}.jar").write_bytes(b"something else")
    with pytest.raises(accumulo.Unavailable, match="is not the accumulo-access-core"):
        accumulo.jar()


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands in for Java: `java(wrong)` decides rightly, or the other way round."""

    def install(*, wrong: bool) -> None:
        def answers(
            library: Path, authorizations: Sequence[str], blocks: Sequence[accumulo.Block], **options: float
        ) -> Iterator[accumulo.Answer]:
            assert (library, options) == (Path("x.jar"), {"warm_up": 0, "repetitions": 2})
            for block in blocks:
                permitted = [parse_roles(text).satisfied_by({*authorizations}) != wrong for text in block.texts]
                mapped = Timing([5]) if block.tuples > len(block.texts) else None
                yield accumulo.Answer(permitted, Timing([10, 30, 20]), mapped)

        monkeypatch.setattr(accumulo, "java_version", lambda: "17")
        monkeypatch.setattr(accumulo, "jar", lambda: Path("x.jar"))
        monkeypatch.setattr(accumulo, "measure", answers)

    return install


def test_with_java_both_stand_side_by_side(java: Any) -> None:
    java(wrong=False)
    report = measure(TINY, Silent())
    texts = [row for row in report.rows if row["given as"] == "texts"]
    assert [row["accumulo ns"] for row in texts] == [20] * 4
    assert [row["map ns"] for row in texts] == [5, None, None, None]
    assert report.environment["java"] == "17"


def test_a_different_decision_stops_the_bench(java: Any) -> None:
    java(wrong=True)
    with pytest.raises(RuntimeError, match="accumulo-access decides differently"):
        measure(TINY, Silent())
