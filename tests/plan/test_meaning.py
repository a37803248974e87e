"""Merged plans mean what separate queries mean: random sets of related queries and streams, judged by the oracle.

The oracle evaluates each query as it was bound; the plans are executed operator by operator, each computed from what
the plan says. Both ways differ in everything but the expressions.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest

from headgate.cql.queries import parse_query
from headgate.labels import Label, LevelOrder, Rules, parse_label
from headgate.plan.expressions import Expr, Type, Value
from headgate.plan.lowering import lower
from headgate.plan.merged import MergedPlan
from headgate.plan.nodes import Node, Select, Window
from headgate.plan.queries import Query, Stream, bind_query
from headgate.testing.oracle import Result, Tuple, meaning
from headgate.testing.plans import PlanOver
from headgate.testing.queries import Features, finder, random_query, random_streams, random_value, rewritten

RULES = Rules(LevelOrder.total("U", "C", "S", "TS"))
LABELS = [parse_label(text) for text in ("TRUE", "doctor", "nurse", "doctor | nurse AT S", "TRUE AT C")]
FEATURES = Features(blocks=2, sources=2, spelling=False)


def random_tuples(rng: Random, streams: tuple[Stream, ...], most: int) -> list[Tuple]:
    """Few different times, so that several tuples share one; not in order. Small numbers, or any values at all."""

    def value(type_: Type) -> Value:
        if streams is not STREAMS or rng.random() < 0.1:
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


def agree(found: list[Result], wanted: list[Result]) -> bool:
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


def planned(plan: MergedPlan, queries: Iterable[tuple[str, Query]]) -> MergedPlan:
    for name, query in queries:
        plan.add(name, lower(query))
    return plan


def one_set(seed: int, counts: Counter[str]) -> None:
    queries, tuples = random_set(Random(seed))
    together = planned(MergedPlan(), queries.items())
    merged = PlanOver(together, tuples, RULES)
    for text, query in queries.items():
        wanted = meaning(query, tuples, rules=RULES)
        alone = PlanOver(planned(MergedPlan(), [(text, query)]), tuples, RULES)
        assert agree(alone.results(text), wanted), f"seed {seed}, alone: {text}"
        assert agree(merged.results(text), wanted), f"seed {seed}, merged: {text}"
        counts["results"] += len(wanted)
        counts["queries"] += 1
    nodes = together.nodes()
    counts["shared"] += sum(len(together.readers(node)) > 1 and bool(node.inputs) for node in nodes)
    counts["derived"] += sum(together.base(node) is not None for node in nodes)
    counts["reused"] += merged.reused


def check(first: int, sets: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, first + sets):
        one_set(seed, counts)
    assert counts["results"] > 5 * sets  # something is compared,
    assert counts["shared"] > sets and counts["derived"] > sets / 10  # and something is shared
    return counts


def test_merged_plans_mean_what_separate_queries_mean() -> None:
    check(0, 60)


@pytest.mark.long
def test_merged_plans_mean_what_separate_queries_mean_in_5000_sets() -> None:
    print(dict(check(10_000, 5_000)))


class Forgetful(MergedPlan):
    """Takes what a base yields for what a selection yields."""

    def residue(self, select: Select) -> frozenset[Expr]:
        return super().residue(select) if self.base(select) is None else frozenset()


class Hasty(MergedPlan):
    """Takes any window over the same input for a base, larger or not."""

    def base(self, node: Node) -> Node | None:
        if not isinstance(node, Window):
            return super().base(node)
        others = [x for x in self.nodes() if isinstance(x, Window) and x.input == node.input and x.key > node.key]
        return others[0] if others else None


@pytest.mark.parametrize("faulty", [Forgetful, Hasty])
def test_an_error_in_sharing_would_be_found(faulty: type[MergedPlan]) -> None:
    """The same comparison over plans that share wrongly: it must not pass."""
    wrong = 0
    for seed in range(100):
        queries, tuples = random_set(Random(seed))
        over = PlanOver(planned(faulty(), queries.items()), tuples, RULES)
        wrong += any(not agree(over.results(x), meaning(query, tuples, rules=RULES)) for x, query in queries.items())
    assert wrong > 5


def test_labels_of_results_combine_those_of_tuples() -> None:
    """One plain case, so that the random ones are known to look at labels at all."""
    streams = (Stream("s", ()),)
    query = bind_query(parse_query("SELECT COUNT(*) FROM s [ROWS 2]"), finder(streams))
    tuples = [Tuple("s", 0, {}, parse_label("a")), Tuple("s", 1, {}, parse_label("b"))]
    plan = MergedPlan()
    plan.add("q", lower(query))
    labels: list[Label] = [result.label for result in PlanOver(plan, tuples).results("q")]
    assert labels == [parse_label("a"), parse_label("a & b")]
