"""The golden cases in Spark's tasks, all of them side by side, and what is particular to Spark."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from pyspark.sql import SparkSession

from headgate.sendlog.check import load
from headgate.sendlog.core import Rel
from headgate.sendlog.data import SparkData
from headgate.sendlog.decompose import dealing
from headgate.sendlog.network import Network
from headgate.sendlog.programs import text
from headgate.sendlog.settings import Settings
from headgate.sendlog.spark import SparkNetwork, Universe
from headgate.sendlog.values import Row, shown
from sendlog import naive
from sendlog.drawn import PEOPLE, draw_fact, draw_program
from sendlog.golden import cases, line
from sendlog.graphs import topology


def test_every_golden_case_derives_the_same_tables_on_spark(spark: SparkSession) -> None:
    known = {case.name: case for case in cases(errors=False)}
    universes = [
        Universe(c.name, c.text, c.principals, Settings("hmac" if "level" not in c.name else "ed25519"))
        for c in known.values()
    ]
    signed = {"forwarded-statements", "carried-statements", "the-four-rules-of-section-3"}
    universes = [replace(u, settings=Settings("ed25519")) if u.name in signed else u for u in universes]
    network = SparkNetwork(spark, universes)
    rows = network.rows(*sorted({table for case in known.values() for table in case.tables}))
    for case in known.values():
        found = [
            line(cell, table, row)
            for (universe, cell, table), held in rows.items()
            if universe == case.name and table in case.tables
            for row in held
        ]
        assert sorted(found) == sorted(case.expected), case.name


@pytest.mark.parametrize("scheme", ["ed25519"])
def test_changes_on_spark_give_the_tables_of_the_embedded_engine(spark: SparkSession, scheme: str) -> None:
    names, facts = topology(6, 3, seed=3)
    settings = Settings(scheme, provenance="local")
    here = Network(text("best_path"), names, settings)
    there = SparkNetwork(spark, [Universe("u", text("best_path"), tuple(names), settings)])
    removed = {names[0]: facts[names[0]][:1]}
    for change in ("insert", "delete"):
        for network in (here, there):
            getattr(network, change)(facts if change == "insert" else removed)
        here.run()
        found = there.rows("best")
        assert {name: found["u", name, "best"] for name in names} == {name: here.rows(name, "best") for name in names}
    assert there.steps < 40


REACH = "reach(X,Y) :- src(X), link(X,Y).\nreach(X,Y) :- reach(X,Z), link(Z,Y).\nn(X,count<Y>) :- reach(X,Y).\n"
BEST = """best(X,Y,min<C,P>) :- dest(Y), w(X,Y,C), P = f_initPath(X,Y).
best(X,Y,min<C,P>) :- w(X,Z,A), best(Z,Y,B,Q), C = A + B, P = f_concat(X,Q).
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (REACH, {"reach": 0, "src": 0, "link": None, "n": 0}),
        (BEST, {"best": 1, "dest": 0, "w": None}),
        ("p(X,Y) :- p(X,Z), p(Z,Y).\np(X,Y) :- e(X,Y).\n", None),
        (BEST.replace("dest(Y), ", ""), None),
        ("d(X,min<C>) :- e(X,C).\n", {"d": 0, "e": 0}),
        ("At N,\np(X)@b :- q(X).\n", None),
    ],
)
def test_data_is_partitioned_so_that_rules_stay_within_a_part(
    program: str, expected: dict[str, int | None] | None
) -> None:
    assert dealing(load(program)) == expected


def test_partitioned_data_on_spark_is_maintained_as_in_one_engine(spark: SparkSession) -> None:
    facts: list[tuple[str, Row]] = [("link", (i, (i * 7 + 1) % 12)) for i in range(12)] + [
        ("src", (i,)) for i in (0, 3)
    ]
    data = SparkData(spark, REACH, watch=(("reach", 1),))
    data.insert(facts)
    data.delete([("link", (1, 8)), ("src", (3,))])
    one = Network(REACH, ["one"], Settings("none"))
    one.insert({"one": [fact for fact in facts if fact not in (("link", (1, 8)), ("src", (3,)))]})
    assert data.rows("reach") == one.rows("one", "reach") and data.rows("n") == one.rows("one", "n")
    found = [int(str(row[1])) for row in one.rows("one", "reach")]
    assert data.summary("reach") == (len(found), sum(found))


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["none", "hmac"])
def test_random_programs_on_spark_mean_what_the_naive_evaluator_says(spark: SparkSession, scheme: str) -> None:
    drawn = {f"u{seed}": draw_program(Random(seed)) for seed in range(1000)}
    given = {}
    for name, (_, core) in drawn.items():
        random = Random(name)
        known = {atom.rel for rule in core.rules for atom in rule.atoms()}
        given[name] = {fact for fact in (draw_fact(random) for _ in range(14)) if fact[1] in known}
    universes = []
    for name, (program, _) in drawn.items():
        at = {
            who: "".join(f"{rel.name}({', '.join(map(shown, row))}).\n" for w, rel, row in given[name] if w == who)
            for who in PEOPLE
        }
        universes.append(
            Universe(
                name,
                program + "".join(f"\nAt {who},\n{rows}" for who, rows in at.items() if rows),
                PEOPLE,
                Settings(scheme),
            )
        )
    network = SparkNetwork(spark, universes)
    names = sorted({rule.rel.name for _, core in drawn.values() for rule in core.rules if rule.rel.kind == "local"})
    rows = network.rows(*names)
    for name, (program, core) in drawn.items():
        expected = naive.evaluate(core, PEOPLE, given[name])
        for who in PEOPLE:
            for table in names:
                assert set(rows[name, who, table]) == expected.get((who, Rel(table)), set()), (program, who, table)
