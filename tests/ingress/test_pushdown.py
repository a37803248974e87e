"""A batch that was read under an older snapshot is used only where the change makes no difference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from worlds.harness import Bench, stream

from headgate.bench.pipelines import reader, running
from headgate.bench.vitals import STREAMS, snapshot
from headgate.ingress.pushdown import Pushdown
from headgate.labels import Rules, Semantics, parse_label
from headgate.model.snapshot import CatalogSnapshot
from headgate.plan.expressions import Column, Compare, Literal, Type

QUERY = running("q", "SELECT patient, hr WHERE hr > 7 FROM hr", STREAMS)
OTHER = running("other", "SELECT patient FROM hr", STREAMS)
THEN = snapshot([QUERY], [reader("ann", QUERY, ["doctor"])])
ALARM = Compare(">", Column(0, "hr", Type.INT), Literal(7, Type.INT))
DESCRIPTOR = THEN.descriptors["hr"]

CHANGED = {
    "another reader": (replace(THEN, subscribers=()), True),
    "another query": (replace(THEN, queries=(QUERY, OTHER)), False),
    "other rules": (replace(THEN, rules=Rules(semantics={"hr": Semantics.WEAK})), False),
    "another policy": (
        replace(THEN, descriptors={**THEN.descriptors, "hr": replace(DESCRIPTOR, policy=parse_label("doctor"))}),
        False,
    ),
}


@pytest.mark.parametrize(("now", "same"), CHANGED.values(), ids=CHANGED)
def test_a_batch_for_stateless_queries_stays_usable_if_only_subscribers_changed(
    now: CatalogSnapshot, same: bool
) -> None:
    for keep in (None, (((1,), ALARM),)):
        pushdown = Pushdown(THEN, ("hr",), {}, keep)
        assert pushdown.still(THEN, 0)
        assert pushdown.still(now, 0) == same


def test_for_windows_any_change_of_rights_makes_a_batch_unusable() -> None:
    pushdown = Pushdown(THEN, ("hr",), {}, (((1,), ALARM), ((2,), None)))
    assert pushdown.still(THEN, 0)
    assert not any(pushdown.still(now, 0) for now, _ in CHANGED.values())


@pytest.mark.parametrize("window", ["", "[ROWS 3]"])
def test_pushdown_keeps_tuples_that_move_a_watermark(window: str, tmp_path: Path) -> None:
    """A block without windows beside one with windows: all that it sees of its stream moves the watermark."""
    found = Bench(tmp_path, stream("s", "a INT"), stream("t", "a INT"))
    found.query("q", f"SELECT a FROM s WHERE a > 3 UNION ALL SELECT a FROM t {window}")
    found.subscribed(eve=("q", ""))
    found.take("s", ("TRUE", 1))
    pushdown = found.pipeline._pushdown("s")  # type: ignore[union-attr]
    assert pushdown is not None and (pushdown.keep is None) == bool(window)
