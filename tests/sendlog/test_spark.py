"""The golden cases in Spark's tasks, all of them side by side, and what is particular to Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from headgate.sendlog.network import Network
from headgate.sendlog.node import Settings
from headgate.sendlog.programs import text
from headgate.sendlog.spark import SparkNetwork, Universe
from tests.sendlog.golden import cases, line
from tests.sendlog.graphs import topology


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
