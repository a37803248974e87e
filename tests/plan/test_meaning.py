"""The engine runs the plan that EXPLAIN shows, and it means what the queries mean: random sets of related queries.

Each set runs in one processor, for one reader. The oracle, which knows nothing of operators, says
what results are due; the executor's own counts say which steps it did, and from which selection it computed others.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from worlds import processor_replay

from headgate.cql.queries import parse_query
from headgate.labels import Clearance, LevelOrder, Rules, parse_label
from headgate.labels.levels import Level
from headgate.operators.profile import Step
from headgate.plan.explain import trees
from headgate.plan.expressions import Expr, Type, Value
from headgate.plan.lowering import lower
from headgate.plan.merged import MergedPlan, is_derivable
from headgate.plan.nodes import Node, Select
from headgate.plan.queries import Query, Stream, bind_query
from headgate.plan.secure import Mode, SharingClass
from headgate.plan.steps import reading
from headgate.plan.words import describe
from headgate.testing.oracle import OracleResult, Tuple, exact
from headgate.testing.queries import Features, finder, random_query, random_streams, random_value, rewritten

RULES = Rules(LevelOrder.total("U", "C", "S", "TS"))
LABELS = [parse_label(text) for text in ("TRUE", "doctor", "nurse", "doctor | nurse AT S", "TRUE AT C")]
FEATURES = Features(blocks=2, sources=2, spelling=False)
TOP = Level("TS")
READER = {"reader": Clearance(frozenset({"doctor", "nurse"}), TOP)}
LATENESS = {"s": 20_000, "t": 20_000}


def random_tuples(rng: Random, streams: tuple[Stream, ...], most: int) -> list[Tuple]:
    """Few different times, so that several tuples share one; not in order. Small numbers, or any values at all."""

    def value(type_: Type) -> Value:
        if streams[0] is not STREAMS[0] or rng.random() < 0.1:
            return random_value(rng, type_)
        return rng.choice(("a", "b")) if type_ == Type.STRING else rng.randrange(5) * (1 if type_ == Type.INT else 0.75)

    return [
        Tuple(
            stream.name,
            rng.randrange(8) * 1000,
            {name: value(type_) for name, type_ in stream.columns},
            rng.choice(LABELS),
        )
        for stream in rng.choices(streams, k=rng.randint(2, most))
    ]


STREAMS = (
    Stream("s", (("a", Type.INT), ("b", Type.INT), ("x", Type.DOUBLE))),
    Stream("t", (("a", Type.INT), ("w", Type.STRING))),
)


def plain_query(rng: Random) -> str:
    """A query of few words, of which any two are likely to have much in common."""

    def condition(source: str) -> str:
        kinds = [f"{source}a > {{}}", f"{source}a < {{}}", f"{source}a IN ({{}}, {{}})", f"{source}a >= {{}}"]
        kinds += (
            [f"{source}b > {{}}", f"{source}x < {{}}.5", f"{source}b = {{}}"]
            if source != "u."
            else [f"{source}w = 'a'"]
        )
        kinds.append(f'{source}LEVEL = "S" OR "U"' if source == "" else f"{source}LEVEL <> 'S'")
        return re.sub(r"\{\}", lambda _: str(rng.randint(0, 4)), rng.choice(kinds))

    def where(*sources: str) -> str:
        found = [f"({condition(rng.choice(sources))})" for _ in range(rng.choice((0, 0, 1, 1, 2)))]
        return f" WHERE {' AND '.join(found)}" if found else ""

    def window(slides: bool) -> str:
        if slides:
            return rng.choice(("[RANGE 2 SECONDS SLIDE 1 SECOND]", "[RANGE 4 SECONDS SLIDE 2 SECONDS]"))
        kinds = ("[ROWS 1]", "[ROWS 2]", "[ROWS 4]", "[RANGE 1 SECOND]", "[RANGE 3 SECONDS]", "[NOW]", "[UNBOUNDED]")
        return rng.choice((*kinds, "[PARTITIONED BY a ROWS 1]", "[PARTITIONED BY a ROWS 3]"))

    slides = rng.random() < 0.2
    names: tuple[str, ...] = ("v.", "u.")
    if rng.random() < 0.3:
        source = f"s {window(False)} v, t {window(False)} u WHERE v.a = u.a"
        before, after = where(*names), where(*names).replace(" WHERE", " AND")
    else:
        source, names = f"s {window(slides)} v", ("",)
        before, after = where(*names), where(*names)
    one = names[0]
    if rng.random() < 0.5:
        calls = (
            "SUM({}b)",
            "AVG({}b)",
            "STDDEV({}x)",
            "COUNT(*)",
            "MIN({}x)",
            "SUM({}x)",
            "AVG({}x)",
            "COUNT(DISTINCT {}b)",
        )
        items = ", ".join(f"{call.format(one)} AS r{i}" for i, call in enumerate(rng.sample(calls, rng.randint(1, 3))))
        groups = rng.choice(("", f" GROUP BY {one}a", f" GROUP BY {one}a, {one}b"))
        having = rng.choice(("", "", " HAVING COUNT(*) > 1"))
        return f"SELECT {rng.choice(('', 'RSTREAM '))}{items}{before} FROM {source}{after}{groups}{having}"
    kind = rng.choice(("", "", "DSTREAM ", "RSTREAM ", "DISTINCT "))
    if one == "" and kind == "" and rng.random() < 0.5:
        source = "s v"
    return f"SELECT {kind}{one}a, {one}b{before} FROM {source}{after}"


def same(a: Value, b: Value) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)
    return type(a) is type(b) and a == b


def agree(found: list[OracleResult], wanted: list[OracleResult]) -> bool:
    return len(found) == len(wanted) and all(
        (x.time, x.block, x.label) == (y.time, y.block, y.label)
        and len(x.values) == len(y.values)
        and all(map(same, x.values, y.values))
        for x, y in zip(found, wanted, strict=True)
    )


def random_set(rng: Random) -> tuple[dict[str, Query], list[Tuple]]:
    """Queries that are likely to share, or such as nobody would think of, with relatives that mean the same."""
    streams: tuple[Stream, ...] = STREAMS
    if rng.random() < 0.75:
        texts = [plain_query(rng) for _ in range(rng.randint(2, 7))]
    else:
        streams = random_streams(rng)
        texts = [random_query(rng, streams, FEATURES) for _ in range(rng.randint(1, 3))]
        texts += [rewritten(rng, text) for text in texts]
    queries = {text: bind_query(parse_query(text), finder(streams)) for text in texts}
    return queries, random_tuples(rng, streams, 14)


RELATED = (
    "SELECT a, b WHERE {} FROM s",
    "SELECT b, x WHERE {} FROM s",
    "SELECT COUNT(*) AS n WHERE {} FROM s [ROWS 3]",
    "SELECT a, SUM(b) AS t, AVG(b) AS m WHERE {} FROM s [RANGE 2 SECONDS] GROUP BY a",
    "SELECT DISTINCT a WHERE {} FROM s [ROWS 4]",
)
CONDITIONS = (
    "a > {}",
    "a >= {}",
    "a > {} AND b > {}",
    "a IN ({}, {})",
    "a < {}",
    "a > {} AND x < {}.5",
    "b > {} OR a > {}",
)


def related_set(rng: Random) -> tuple[dict[str, Query], list[Tuple]]:
    """Queries over one stream, of whose conditions many imply one another."""

    def condition() -> str:
        return re.sub(r"\{\}", lambda _: str(rng.randint(0, 3)), rng.choice(CONDITIONS))

    texts = [rng.choice(RELATED).format(condition()) for _ in range(7)]
    queries = {text: bind_query(parse_query(text), finder(STREAMS)) for text in texts}
    return queries, random_tuples(rng, STREAMS[:1], 14)


def executed(queries: dict[str, Query], tuples: list[Tuple], seed: int) -> processor_replay.Replay:
    """All queries in one processor, for one reader who may see everything."""
    rng = Random(seed)
    replay = processor_replay.Replay(queries, LATENESS, READER, Mode.EXACT)
    waiting: list[Tuple] = []
    for tuple_ in tuples:
        waiting.append(tuple_)
        if rng.random() < 0.3:
            replay.batch(waiting)
            waiting = []
    replay.batch(waiting, last=True)
    return replay


def wanted_of(query: Query, tuples: list[Tuple]) -> list[OracleResult]:
    found = exact(query, tuples, READER, rules=RULES, lateness=LATENESS, level=TOP)["reader"]
    return processor_replay.in_order(query, found)


def found_in(replay: processor_replay.Replay, name: str, query: Query) -> list[OracleResult]:
    return processor_replay.in_order(query, replay.results(name, "reader"))


def one_set(seed: int, counts: Counter[str]) -> None:
    queries, tuples = (related_set if seed % 2 else random_set)(Random(seed))
    together = executed(queries, tuples, seed)
    for text, query in queries.items():
        wanted = wanted_of(query, tuples)
        assert agree(found_in(together, text, query), wanted), f"seed {seed}: {text}"
        counts["results"] += len(wanted)
        counts["queries"] += 1
    check_steps(together, queries, {x.stream for x in tuples}, counts, seed)


def check_steps(
    replay: processor_replay.Replay, queries: dict[str, Query], streams: set[str], counts: Counter[str], seed: int
) -> None:
    """What was executed for each view is what EXPLAIN shows of its query, remark by remark."""
    plans: dict[SharingClass, MergedPlan] = {}
    for name, query in queries.items():
        root = lower(query)
        plans.setdefault(SharingClass.of(root, Mode.EXACT, TOP), MergedPlan()).add(name, root)
    for sharing, plan in plans.items():
        if sharing.streams.isdisjoint(streams):  # nothing came, so nothing was done
            continue
        done = dict[str, Step]()
        for view in (view for _, view in replay.views if view.running.name in plan.queries):
            done |= replay.processor.profile(view)
        assert done.keys() == plan.steps(), f"seed {seed}"
        for name, lines in trees(plan):
            for line in lines:
                if line.operator is not None and isinstance(line.operator.node, Select):
                    base = plan.base(line.operator.node)
                    step = done[line.operator.steps[0]]
                    assert step.base == (reading(base) if base else ""), f"seed {seed}: {name}: {line.text}"
                    if base is not None:
                        assert f"computed from SELECT {describe(base)} of " in line.text
                        assert step.read == done[step.base].given, "it read what its base gave"
                        counts["derived"] += 1
                counts["shared"] += "shared with" in line.text


def check(first: int, sets: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, first + sets):
        one_set(seed, counts)
    assert counts["results"] > 5 * sets  # something is compared,
    assert counts["shared"] > sets and counts["derived"] > sets / 2  # and something is shared
    return counts


def test_the_executed_plan_is_the_one_explained_and_means_what_its_queries_mean() -> None:
    check(0, 24)


@pytest.mark.long
def test_the_executed_plan_is_the_one_explained_and_means_what_its_queries_mean_in_5000_sets() -> None:
    print(dict(check(10_000, 5_000)))


def any_base(plan: MergedPlan, select: Node) -> Select | None:
    """Takes any selection over the same input for a base, weaker or not."""
    nodes = {x.key: x for root in plan.queries.values() for x in root.walk() if isinstance(x, Select)}
    others = [x for x in nodes.values() if isinstance(select, Select) and x.inputs == select.inputs]
    return next((x for x in others if is_derivable(x) and x.key > select.key), None)


def nothing_left(select: Select, base: Select | None) -> frozenset[Expr]:
    """Takes what a base yields for what a selection yields."""
    return select.conditions if base is None else frozenset()


@pytest.mark.parametrize(
    "fault",
    [
        [("headgate.plan.merged.MergedPlan.base", any_base)],
        [("headgate.operators.inputs.residue", nothing_left), ("headgate.operators.stateless.residue", nothing_left)],
    ],
    ids=["any base", "nothing left to check"],
)
def test_an_error_in_sharing_would_be_found(
    fault: list[tuple[str, Callable[..., object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same comparison, where the plan chooses bases wrongly: it must not pass."""
    for place, faulty in fault:
        monkeypatch.setattr(place, faulty)
    wrong = 0
    for seed in range(15):
        queries, tuples = related_set(Random(seed))
        replay = executed(queries, tuples, seed)
        wrong += any(
            not agree(found_in(replay, text, query), wanted_of(query, tuples)) for text, query in queries.items()
        )
    assert wrong > 3
