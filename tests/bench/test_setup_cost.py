"""The set-up bench: its queries have the sizes of the paper, and both ways set up the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.bench.harness import Silent
from headgate.bench.setup_cost import SIZES, Size, Unsecured, rows, script
from headgate.cql.continuous import CreateQueryAs
from headgate.cql.parser import parse_script
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream, bind_query
from headgate.plan.uses import uses


def test_the_sizes_are_those_of_the_paper() -> None:
    assert [size.objects for size in SIZES] == [4, 8, 22, 40, 74, 140]


@pytest.mark.parametrize("size", SIZES)
def test_a_query_has_as_many_boxes_as_it_says(size: Size) -> None:
    (create,) = [x for x in parse_script(script(size, 0)) if isinstance(x, CreateQueryAs)]
    columns = (("k", Type.INT), ("v", Type.INT), ("at", Type.TIMESTAMP))
    query = bind_query(create.query, lambda target: Stream(target.name, columns))
    assert len(list(uses(create.query, query))) == size.boxes
    assert len({source.target.name for block in create.query.blocks for source in block.sources}) == size.streams


def test_without_security_the_same_is_set_up(tmp_path: Path) -> None:
    plain = Unsecured(f"sqlite:///{tmp_path / 'plain.db'}")
    plain.initialise("joe", "only for the test")
    plain.execute("", script(SIZES[2], 0))
    assert len(plain.snapshot().queries) == 1
    plain.close()


def test_each_size_has_a_row_and_a_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.bench.setup_cost._QUICK_ROUNDS", 2)
    found = list(rows(True, Silent()))
    assert [row["workload"] for row, _ in found] == [f"set-up, {size.objects} objects" for size in SIZES]
    assert all(goal.goal == 5 and goal.unit == "%" for _, goal in found)
