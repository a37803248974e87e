"""The visibility index at scale: unused rows are forgotten; many views and many labels still fit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from plan import test_meaning as random_plans
from worlds.processor_replay import TOP, Replay, one_case

from headgate.cql.queries import parse_query
from headgate.egress.filter import ResultFilter
from headgate.execution import processor
from headgate.execution.executors import LocalExecutor
from headgate.execution.processor import Processor
from headgate.expressions.duck import evaluate
from headgate.labels import Clearance, LevelOrder, Rules, parse_label
from headgate.model.query import ContinuousQuery
from headgate.model.results import DeliveredResult, delivered_results
from headgate.model.tuples import TupleBatch
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream, bind_query
from headgate.plan.secure import Mode
from headgate.testing.oracle import Tuple, exact

STREAM = Stream("s", (("a", Type.INT), ("b", Type.INT)))
RULES = Rules(LevelOrder.total("U", "C", "S", "TS"))
COUNTED = "SELECT a, COUNT(*), MAX(b) FROM s [ROWS 40] GROUP BY a"


def query(text: str) -> ContinuousQuery:
    return ContinuousQuery("q", bind_query(parse_query(text), lambda _: STREAM), TOP)


def changing(rounds: int) -> tuple[list[DeliveredResult], int]:
    """Rights come and go between batches; what was received, and how many visibility rows there are in the end."""
    rng = Random(5)
    run = Processor(
        [query(COUNTED)], RULES, lambda program, schema: LocalExecutor(program, schema, evaluate), ResultFilter
    )
    run.add_labels({number: parse_label(f"r{number}") for number in range(10)})
    views = [run.subscribe("q", {f"u{number}": None}) for number in range(12)]
    received: list[DeliveredResult] = []
    for start in range(rounds):
        for number, view in enumerate(views):
            roles = frozenset(f"r{role}" for role in range(10) if rng.random() < 0.6)
            run.change(view, {f"u{number}": Clearance(roles, TOP)})
        times = start * 10 + np.arange(10)
        values = pa.array([rng.randrange(4) for _ in times], pa.int32())
        labels = np.array([rng.randrange(10) for _ in times])
        received += delivered_results(run.batch([TupleBatch("s", times, labels, {"a": values, "b": values})]))
    return received, len(run.state()[1]["sights"]["rows"])


def test_visibility_rows_that_no_tuple_has_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "MOST_ROWS", 1 << 30)
    all_kept, many = changing(60)
    monkeypatch.setattr(processor, "MOST_ROWS", 10)
    some_kept, few = changing(60)
    assert some_kept == all_kept and len(all_kept) > 500
    assert 3 * few < many


def test_forgetting_visibility_rows_changes_no_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processor, "MOST_ROWS", 0)
    counts: Counter[str] = Counter()
    for seed in range(700, 710):
        one_case(seed, Mode.EXACT, counts, tmp_path)
        one_case(seed, Mode.CUMULATIVE, counts)
    assert counts["results"] > 20


def test_many_views_and_many_labels() -> None:
    """More than any machine word has bits; results combine many labels."""
    rng = Random(6)
    roles = [f"r{number}" for number in range(300)]
    labels = [parse_label(role) for role in roles]
    subscribers = {f"u{n}": Clearance(frozenset(rng.sample(roles, rng.choice((1, 250, 300)))), TOP) for n in range(70)}
    texts = {"q": COUNTED, "d": "SELECT DISTINCT a FROM s [ROWS 80]", "p": "SELECT a WHERE b > 1 FROM s"}
    queries = {name: query(text).query for name, text in texts.items()}
    tuples = [
        Tuple("s", n * 10, {"a": rng.randrange(3), "b": rng.randrange(4)}, rng.choice(labels)) for n in range(200)
    ]
    replay = Replay(queries, {}, subscribers, Mode.EXACT)
    replay.batch(tuples[:120])
    replay.batch(tuples[120:], last=True)
    some = dict(list(subscribers.items())[::10])
    for name, bound in queries.items():
        expected = exact(bound, tuples, some, rules=random_plans.RULES, lateness={}, level=TOP)
        for subscriber in some:
            assert random_plans.agree(replay.results(name, subscriber), expected[subscriber]), (name, subscriber)
    assert {x.query for x in replay.received} == set(texts)
    assert max(len(x.label.roles.names) for x in replay.received) > 10
