"""Partitioned blocks emit what they mean: against the oracle, with restarts that change the number of partitions and
the other queries. Planted faults show that the comparison notices a wrong rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from plan import test_meaning as random_plans
from worlds.oracle_expressions import evaluate
from worlds.partitioned_queries import LABELLED, STREAMS, bound, partitioned_query, partitioned_tuples
from worlds.processor_replay import ROLES, TOP, Replay, in_order, random_events

from headgate.egress.filter import ResultFilter
from headgate.errors import HeadgateError
from headgate.execution import partitioning
from headgate.execution.executors import Executor, LocalExecutor, PartitionedExecutor
from headgate.execution.partition_groups import partition_groups
from headgate.execution.processor import Processor
from headgate.labels import Clearance
from headgate.model.query import ContinuousQuery, columns_read
from headgate.operators.program import Program
from headgate.plan.queries import Query, QueryBlock, Stream
from headgate.plan.secure import Mode
from headgate.testing.oracle import Change, Event, Tuple, cumulative, exact

PARTITIONS = (1, 2, 3, 5)


class PartitionedReplay(Replay):
    """Every restart changes the number of partitions and the other queries, and so the partitionings."""

    def __init__(
        self,
        queries: dict[str, Query],
        lateness: dict[str, int],
        subscribers: dict[str, Clearance],
        mode: Mode,
        partitions: int,
        beside: Mapping[str, Query],
        rng: Random,
    ) -> None:
        self.partitions = partitions
        self.rng = rng
        self.beside = [ContinuousQuery(name, query, TOP, lateness, mode) for name, query in beside.items()]
        self.clearances = subscribers
        super().__init__(queries, lateness, subscribers, mode)

    def fresh(self) -> Processor:
        def executor(program: Program, schema: pa.Schema) -> Executor:
            if self.partitions == 0:
                return LocalExecutor(program, schema, evaluate)
            return PartitionedExecutor(program, partition_groups(self.running), self.partitions, evaluate)

        return Processor(self.running, random_plans.RULES, executor, ResultFilter)

    def restart(self, folder: Path) -> None:
        beside = {x.name for x in self.beside}
        before = {x.name for x in self.running}
        kept = [x for x in self.running if x.name not in beside]
        self.running = [*kept, *(x for x in self.beside if self.rng.random() < 0.5)]
        self.partitions = self.rng.choice((0, *PARTITIONS))
        super().restart(folder)
        for query in self.running:
            if query.name not in before:
                self.processor.subscribe(query.name, dict(list(self.clearances.items())[:1]))

    def count(self, counts: Counter[str]) -> None:
        used = Counter(share for (share, _), partition in self.processor.state()[0].items() if partition.table.num_rows)
        counts["spread"] += any(share and times > 1 for share, times in used.items())


def random_queries(
    rng: Random, chosen: Callable[[QueryBlock], bool] | None = None
) -> tuple[dict[str, Query], list[Tuple], dict[str, Query]]:
    """Queries, tuples, and queries beside. With `chosen`, only queries with such a block."""
    if chosen is None and rng.random() < 0.1:
        return *random_plans.random_set(rng), {}
    texts = [partitioned_query(rng) for _ in range(6 if chosen is None else 100)]
    queries = {text: query for text in texts if (query := _allowed(text))}
    names = [name for name, query in queries.items() if chosen is None or any(map(chosen, query.blocks))]
    return {x: queries[x] for x in names[:3]}, partitioned_tuples(rng), {x: queries[x] for x in names[3:6]}


def _allowed(text: str, streams: tuple[Stream, ...] = STREAMS) -> Query | None:
    """What the language refuses (DISTINCT with an aggregate, columns that are not grouped) is no query."""
    try:
        return bound(text, streams)
    except HeadgateError:
        return None


def replayed(
    replay: PartitionedReplay,
    events: Sequence[Event],
    rng: Random,
    counts: Counter[str],
    folder: Path,
    restarts: float = 0.06,
) -> None:
    waiting: list[Tuple] = []
    for event in events:
        if isinstance(event, Tuple):
            waiting.append(event)
        if isinstance(event, Change) or rng.random() < 0.2:
            replay.batch(waiting)
            replay.count(counts)
            if restarts and rng.random() < 0.5:
                replay.save(folder)
            waiting = []
        if isinstance(event, Change):
            replay.change(event)
        if rng.random() < restarts:
            counts["restarts"] += 1
            replay.batch(waiting)
            waiting = []
            replay.restart(folder)
    replay.batch(waiting, last=True)


def one_case(seed: int, counts: Counter[str], folder: Path, chosen: Callable[[QueryBlock], bool] | None = None) -> None:
    rng = Random(seed)
    mode = rng.choice(list(Mode))
    queries, tuples, beside = random_queries(rng, chosen)
    names = {r.stream.name for q in (*queries.values(), *beside.values()) for b in q.blocks for r in b.readings}
    lateness = {name: rng.choice((0, 0, 2000, 10_000)) for name in sorted(names)}
    subscribers = {f"u{i}": Clearance(rng.choice(ROLES), TOP) for i in range(rng.randint(1, 3))}
    events = random_events(rng, tuples, list(subscribers))
    replay = PartitionedReplay(queries, lateness, subscribers, mode, PARTITIONS[seed % len(PARTITIONS)], beside, rng)
    replayed(replay, events, rng, counts, folder)
    means = exact if mode == Mode.EXACT else cumulative
    for name, query in queries.items():
        expected = means(query, events, subscribers, rules=random_plans.RULES, lateness=lateness, level=TOP)
        ways = [partitioning.partitionings(block) for block in query.blocks if not block.stateless]
        counts["blocks"] += len(ways)
        counts["partition_groups"] += sum(map(bool, ways))
        for subscriber in subscribers:
            found = in_order(query, replay.results(name, subscriber))
            assert random_plans.agree(found, in_order(query, expected[subscriber])), (
                f"seed {seed}, {subscriber}: {name}"
            )
            counts["results"] += len(found)
            counts["partition_groups results"] += sum(
                bool(partitioning.partitionings(query.blocks[x.block])) for x in found
            )


def check(first: int, cases: int, folder: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, first + cases):
        one_case(seed, counts, folder)
    assert counts["partition_groups"] > 0.3 * counts["blocks"]
    assert counts["partition_groups results"] > 3 * cases
    assert counts["spread"] > cases and counts["restarts"] > cases / 2
    return counts


def test_partitioned_blocks_emit_what_the_oracle_says(tmp_path: Path) -> None:
    check(0, 150, tmp_path)


@pytest.mark.long
def test_partitioned_blocks_emit_what_the_oracle_says_in_many_cases(tmp_path: Path) -> None:
    print(dict(check(10_000, 2_000, tmp_path)))


# Labelled columns -----------------------------------------------------------------------------------------------------


def labelled_case(seed: int, counts: Counter[str], folder: Path) -> None:
    """Over streams with labelled columns, partitions together emit what one partition does."""
    found = []
    for partitions in (0, PARTITIONS[1 + seed % 3]):
        rng = Random(seed)
        texts = [partitioned_query(rng) for _ in range(4)]
        queries = {text: query for text in texts if (query := _allowed(text, LABELLED))}
        subscribers = {f"u{i}": Clearance(rng.choice(ROLES), TOP) for i in range(3)}
        events = random_events(rng, partitioned_tuples(rng), list(subscribers))
        replay = PartitionedReplay(queries, {"s": 1000, "t": 0}, subscribers, Mode.EXACT, partitions, {}, rng)
        replayed(replay, events, rng, counts, folder, restarts=0.0)
        found.append([in_order(q, replay.results(name, who)) for name, q in queries.items() for who in subscribers])
    counts["labelled"] += sum(
        bool(partitioning.partitionings(block)) for query in queries.values() for block in query.blocks
    )
    counts["results"] += sum(map(len, found[0]))
    for one, several in zip(*found, strict=True):
        assert random_plans.agree(several, one), f"seed {seed}"


def test_partitioned_blocks_over_labelled_columns_emit_what_one_partition_does(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(70, 110):  # every mutant shows among these
        labelled_case(seed, counts, tmp_path)
    assert counts["labelled"] > 20 and counts["results"] > 400


def test_the_comparison_notices_a_labelled_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "_labelled", lambda *_: False)
    assert _fails(lambda seed: labelled_case(seed, Counter(), tmp_path))


# A wrong rule ---------------------------------------------------------------------------------------------------------


def _kinds(block: QueryBlock) -> set[str]:
    return {x.window.kind for x in block.readings if x.window}


def _slides(block: QueryBlock) -> bool:
    return any(x.window and x.window.slide for x in block.readings)


def _many(block: QueryBlock) -> bool:
    return block.aggregated or len(block.readings) > 1


TOO_ALONE: dict[str, Callable[[QueryBlock], bool]] = {
    "ROWS counts the tuples of one partition": lambda b: "ROWS" in _kinds(b) and b.operator == "ISTREAM" and _many(b),
    "RSTREAM emits at its own instants": lambda b: b.operator == "RSTREAM" and not _slides(b),
    "DSTREAM over time": lambda b: b.operator == "DSTREAM" and not b.distinct and "RANGE" in _kinds(b),
    "DISTINCT over time": lambda b: b.distinct and b.operator == "ISTREAM" and not _slides(b) and not _many(b),
    "DISTINCT that slides": lambda b: b.distinct and b.operator == "ISTREAM" and _slides(b) and not _many(b),
}
WRONG_KEYS: dict[str, tuple[str, Callable[..., object], Callable[[QueryBlock], bool]]] = {
    "groups in several partitions": (
        "_tells_results_apart",
        lambda block, _: block.aggregated or not block.distinct,
        lambda block: block.aggregated,
    ),
    "equal results in several partitions": ("_tells_results_apart", lambda *_: True, lambda block: block.distinct),
    "a part of a window in several partitions": (
        "_splits",
        lambda *_: True,
        lambda block: "PARTITIONED" in _kinds(block) and (_many(block) or block.operator == "DSTREAM"),
    ),
    "columns that are not equal": (
        "_equal_columns",
        lambda block: [columns_read(block)],
        lambda block: len(block.readings) > 1,
    ),
}


def _fails(case: Callable[[int], None]) -> bool:
    for seed in range(70, 110):  # every mutant shows among these
        try:
            case(seed)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("rule", TOO_ALONE)
def test_the_comparison_notices_a_partitioned_block_that_needs_the_instants_of_other_partitions(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = partitioning._alone_in_time
    monkeypatch.setattr(partitioning, "_alone_in_time", lambda block: TOO_ALONE[rule](block) or right(block))
    assert _fails(lambda seed: one_case(seed, Counter(), tmp_path / str(seed), TOO_ALONE[rule]))


@pytest.mark.parametrize("rule", WRONG_KEYS)
def test_the_comparison_notices_a_wrong_key(rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, wrong, chosen = WRONG_KEYS[rule]
    monkeypatch.setattr(partitioning, name, wrong)
    assert _fails(lambda seed: one_case(seed, Counter(), tmp_path / str(seed), chosen))
