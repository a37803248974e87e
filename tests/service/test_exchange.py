"""The scenario of paper 000, section 4.1, with its data: prices of two sources united and aggregated, read by one who
may see both and by one who may see the first only, until that is revoked."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import System

from headgate.clock import SystemClock
from headgate.egress.mailbox import Mailbox
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.model.results import delivered_results
from headgate.recovery.pipeline import Pipeline
from headgate.service import Headgate

SECRET = "correct horse"
SETUP = f"""
CREATE ROLE "INFO PROVIDER"; CREATE ROLE CUSTOMER1; CREATE ROLE CUSTOMER2;
CREATE USER Ed PASSWORD '{SECRET}'; CREATE USER Al PASSWORD '{SECRET}'; CREATE USER Bob PASSWORD '{SECRET}';
GRANT ROLE "INFO PROVIDER" TO USER Ed; GRANT ROLE CUSTOMER1 TO USER Al; GRANT ROLE CUSTOMER2 TO USER Bob;
GRANT ADD ON SYSTEM TO PUBLIC;
CREATE SCHEMA s (time TIMESTAMP, symbol STRING, price DOUBLE);
CREATE STREAM in1 SCHEMA s EVENT TIME time ALLOW CUMULATIVE;
CREATE STREAM in2 SCHEMA s EVENT TIME time ALLOW CUMULATIVE;
GRANT VIEW OBJECT, READ TUPLE ON STREAM in1 TO CUSTOMER1;
GRANT VIEW OBJECT, READ TUPLE ON STREAM in2 TO CUSTOMER1;
GRANT USE ON OPERATOR window TO CUSTOMER1;
"""
QUERY = """
CREATE QUERY both AS SELECT symbol, price FROM root.in1 UNION ALL SELECT symbol, price FROM root.in2;
ALTER STREAM both ALLOW CUMULATIVE;
CREATE QUERY q1 OUTPUT out1 {mode} AS SELECT COUNT(*) AS n, AVG(price) AS mean FROM both [ROWS 2];
START QUERY both; START QUERY q1; SUBSCRIBE TO out1;
"""
SHARING = "GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM out1 TO CUSTOMER2"
FIRST = "GRANT VIEW OBJECT, READ TUPLE ON STREAM in1 TO CUSTOMER2"
BOTH = "GRANT READ TUPLE ON STREAM both TO CUSTOMER2"


class Exchange:
    """Al and Bob subscribed to Al's query; prices are published batch by batch, alternating between both sources."""

    def __init__(self, headgate: Headgate, joe: str, folder: Path, mode: str) -> None:
        self.headgate, self.joe = headgate, joe
        headgate.execute(joe, SETUP)
        al, bob = headgate.login("Al", SECRET), headgate.login("Bob", SECRET)
        headgate.execute(al, QUERY.format(mode=mode))
        headgate.execute(joe, FIRST)
        headgate.execute(al, f"{SHARING}; {BOTH}")
        headgate.execute(bob, "SUBSCRIBE TO Al.out1")
        self.box, self.batches = Mailbox(), 0
        self.pipeline = Pipeline(
            folder,
            headgate,
            lambda _, program, schema: LocalExecutor(program, schema, evaluate),
            [self.box],
            SystemClock(),
        )

    def publish(self, stream: str, *prices: tuple[int, float]) -> None:
        moments = [dt.datetime(2024, 1, 2, 9, 30, second, tzinfo=dt.UTC) for second, _ in prices]
        columns = {
            "time": pa.array(moments, pa.timestamp("us", "UTC")),
            "symbol": pa.array(["ACME"] * len(prices)),
            "price": pa.array([price for _, price in prices], pa.float64()),
        }
        self.pipeline.take(f"root.{stream}", self.batches, pa.table(columns))
        self.batches += 1

    def received(self, who: str) -> list[tuple[tuple[str, ...], tuple[object, ...]]]:
        """Results with the sources that they are made of."""
        with self.headgate.open() as now:
            mine = [x for x in now.subscribers if x.outgoing and x.outgoing.user == who]
            found = [y for x in mine for y in delivered_results(self.box.fetch(x.name, x.query, now))]
        return [(tuple(sorted(x.label.sources)), x.values) for x in found]


@pytest.fixture(params=["EXACT", "CUMULATIVE"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def exchange(sqlite_system: System, tmp_path: Path, mode: str) -> Iterator[Exchange]:
    made = Exchange(sqlite_system.headgate, sqlite_system.root, tmp_path, mode)
    yield made
    made.pipeline.close()


ONE, TWO, BOTH_SOURCES = ("root.in1",), ("root.in2",), ("root.in1", "root.in2")


def sources(result: tuple[tuple[str, ...], tuple[object, ...]]) -> tuple[str, ...]:
    """Those that the results come from in the end; the union between is one too."""
    return tuple(source for source in result[0] if source != "Al.both")


def publish_prices(exchange: Exchange) -> None:
    exchange.publish("in1", (0, 10.0), (1, 20.0))
    exchange.publish("in2", (2, 30.0), (3, 40.0))
    exchange.publish("in1", (4, 50.0), (5, 60.0), (6, 70.0))
    exchange.publish("in2", (7, 80.0))


def test_everyone_receives_what_their_sources_permit(exchange: Exchange, mode: str) -> None:
    publish_prices(exchange)
    of_al = [(sources(result), result[1]) for result in exchange.received("Al")]
    assert of_al == [
        (ONE, (1, 10.0)),
        (ONE, (2, 15.0)),
        (BOTH_SOURCES, (2, 25.0)),
        (TWO, (2, 35.0)),
        (BOTH_SOURCES, (2, 45.0)),
        (ONE, (2, 55.0)),
    ]
    # Bob sees nothing of the second source, which holds the union back for him to the end.
    exchange.pipeline.end()
    of_bob = [(sources(result), result[1]) for result in exchange.received("Bob")]
    if mode == "CUMULATIVE":  # of the shared results those that come from the first source alone
        assert of_bob == [(ONE, (1, 10.0)), (ONE, (2, 15.0)), (ONE, (2, 55.0)), (ONE, (2, 65.0))]
    else:  # the query over the first source alone
        assert of_bob == [(ONE, (n, x)) for n, x in ((1, 10.0), (2, 15.0), (2, 35.0), (2, 55.0), (2, 65.0))]


def test_who_lost_a_source_receives_nothing_of_it(exchange: Exchange) -> None:
    publish_prices(exchange)
    exchange.headgate.execute(exchange.joe, "REVOKE READ TUPLE ON STREAM in1 FROM CUSTOMER2")
    exchange.publish("in1", (8, 90.0))
    exchange.pipeline.end()
    assert exchange.received("Bob") == []
    assert len(exchange.received("Al")) == 9


def test_results_that_wait_for_their_reader_are_gone_with_the_right(exchange: Exchange) -> None:
    exchange.publish("in1", (0, 10.0), (1, 20.0), (2, 30.0))
    exchange.publish("in2", (3, 40.0))
    exchange.headgate.execute(exchange.joe, "REVOKE READ TUPLE ON STREAM in1 FROM CUSTOMER2")
    assert exchange.received("Bob") == []
    assert len(exchange.received("Al")) == 2


def test_a_new_subscriber_shares_the_windows_of_a_cumulative_query_and_begins_an_exact_one_empty(
    exchange: Exchange, mode: str
) -> None:
    """SPEC 4.3. Of what came before, a cumulative window holds what somebody could see then; labels decide."""
    headgate = exchange.headgate
    bob = headgate.login("Bob", SECRET)
    headgate.execute(bob, "UNSUBSCRIBE FROM Al.out1")
    exchange.publish("in1", (0, 10.0))
    exchange.publish("in1", (1, 20.0))
    headgate.execute(bob, "SUBSCRIBE TO Al.out1")
    exchange.publish("in1", (2, 30.0))
    exchange.publish("in1", (3, 40.0))
    exchange.publish("in2", (4, 50.0))
    exchange.publish("in1", (5, 60.0))
    exchange.publish("in1", (6, 70.0))
    exchange.pipeline.end()
    found = [values for _, values in exchange.received("Bob")]
    if mode == "CUMULATIVE":  # with what came before it and became final after; without what is made of 50.0
        assert found == [(1, 10.0), (2, 15.0), (2, 25.0), (2, 35.0), (2, 65.0)]
    else:
        assert found == [(1, 30.0), (2, 35.0), (2, 50.0), (2, 65.0)]
