"""CREATE QUERY ... DEADLINE from the statement to the engine: what is refused, shown, and delivered."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from conftest import PASSWORD, System

from headgate.egress.mailbox import Mailbox
from headgate.errors import Conflict
from headgate.execution.executors import LocalExecutor
from headgate.expressions.duck import evaluate
from headgate.recovery.deadlines import Governing
from headgate.recovery.pipeline import Pipeline

SETUP = f"""
CREATE ROLE nurse; CREATE USER ned PASSWORD '{PASSWORD}'; GRANT ROLE nurse TO USER ned;
CREATE STREAM hr (pat INT, hr INT);
GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM hr TO nurse;
CREATE QUERY due DEADLINE 2 SECONDS QOS (SAMPLE 50 PERCENT, COLUMNS (pat) SAMPLE 12.5 PERCENT)
  AS SELECT pat, hr FROM hr;
START QUERY due;
GRANT VIEW OBJECT ON QUERY due TO nurse; GRANT VIEW OBJECT, READ TUPLE, SUBSCRIBE ON STREAM due TO nurse;
GRANT VIEW CATALOG ON SYSTEM TO nurse;
"""
DUE = "2 SECONDS QOS (SAMPLE 50 PERCENT, COLUMNS (pat) SAMPLE 12.5 PERCENT)"


@pytest.fixture
def ward(sqlite_system: System) -> System:
    sqlite_system.run(SETUP)
    return sqlite_system


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("DEADLINE 1 SECOND AS SELECT pat FROM hr", "cannot set a deadline of 1 SECOND: the least is 2 SECONDS"),
        ("CUMULATIVE DEADLINE 2 SECONDS AS SELECT pat FROM hr", "cannot set a deadline: the query is cumulative"),
        (
            "DEADLINE 2 SECONDS QOS (SAMPLE 100 PERCENT) AS SELECT pat FROM hr",
            "cannot take full: a sample is more than 0 and less than 100 percent",
        ),
        (
            "DEADLINE 2 SECONDS QOS (SAMPLE 0 PERCENT) AS SELECT pat FROM hr",
            "cannot take SAMPLE 0 PERCENT: a sample is more than 0 and less than 100 percent",
        ),
        (
            "DEADLINE 2 SECONDS QOS (COLUMNS (bp)) AS SELECT pat, hr FROM hr",
            "cannot keep column bp: the query has no such result",
        ),
        (
            "DEADLINE 2 SECONDS QOS (COLUMNS (pat)) AS SELECT pat FROM hr",
            "cannot lower QoS by COLUMNS: the query has no others",
        ),
        (
            "DEADLINE 2 SECONDS QOS (SLIDE 2 SECONDS) AS SELECT pat FROM hr",
            "cannot lower QoS by SLIDE: no window of the query slides",
        ),
        (
            "DEADLINE 2 SECONDS QOS (SLIDE 3 SECONDS) AS SELECT MAX(hr) FROM hr [RANGE 9 SECONDS SLIDE 2 SECONDS]",
            "cannot slide by 3 SECONDS: it is no multiple of 2 SECONDS",
        ),
        ("DEADLINE 2 SECONDS AS SELECT pat FROM due", "cannot read stream root.due: it has a deadline, so results may"),
        ("AS SELECT pat FROM due", "cannot read stream root.due: it has a deadline, so results may be left out"),
        ("DEADLINE 2 SECONDS AS SELECT pat FROM plain", "cannot set a deadline: stream root.plain is the output of"),
        (
            f"DEADLINE 2 SECONDS QOS ({', '.join(['SAMPLE 9 PERCENT'] * 9)}) AS SELECT pat FROM hr",
            "cannot have 9 versions below the full one: the most is 8",
        ),
    ],
)
def test_what_could_not_say_what_it_left_out_is_refused(ward: System, text: str, why: str) -> None:
    ward.run("CREATE QUERY plain AS SELECT pat FROM hr")
    with pytest.raises(Conflict) as refused:
        ward.run(f"CREATE QUERY q {text}")
    assert refused.value.message.startswith(why)


def test_a_query_without_a_deadline_does_not_get_one(ward: System) -> None:
    """Whether somebody reads its results is not for its owner to learn."""
    ward.run("CREATE QUERY plain AS SELECT pat FROM hr")
    with pytest.raises(Conflict, match=r"cannot set a deadline: query root\.plain has none"):
        ward.run("CREATE OR REPLACE QUERY plain DEADLINE 2 SECONDS AS SELECT pat FROM hr")
    ward.run("CREATE OR REPLACE QUERY due DEADLINE 5 SECONDS AS SELECT pat, hr FROM hr")
    ward.run("CREATE OR REPLACE QUERY due AS SELECT pat, hr FROM hr")


def test_describe_and_explain_show_the_deadline(ward: System) -> None:
    assert ("deadline", DUE) in [row[-2:] for row in ward.rows("DESCRIBE QUERY due")]
    first = ward.run("EXPLAIN QUERY due")[0].text.splitlines()[0]
    assert first == f"root.due: exact, level U, deadline {DUE}"


def test_deadlines_are_shown_to_readers_and_numbers_to_administrators(ward: System, tmp_path: Path) -> None:
    ned = ward.headgate.login("ned", PASSWORD)
    ward.run("SUBSCRIBE TO root.due", ned)
    declared = ("due", "root", "U", DUE)
    assert ward.run("SHOW DEADLINES")[0].rows == ((*declared, *("",) * 6),)
    mailbox = Mailbox()
    pipeline = Pipeline(
        tmp_path,
        ward.headgate,
        lambda _, program, schema: LocalExecutor(program, schema, evaluate),
        [mailbox],
        ward.clock,
        governing=Governing(seed=1),
    )
    ward.headgate.engine = pipeline
    try:
        columns = {"pat": pa.array([1, 2], pa.int32()), "hr": pa.array([60, 70], pa.int32())}
        pipeline.take("root.hr", 0, pa.table(columns))
        again = pipeline.work()
        while again is not None and not pipeline.counts.results:
            ward.clock.advance(0.05)
            again = pipeline.work()
        assert ward.run("SHOW DEADLINES", ned)[0].rows == ((*declared, *("",) * 6),)
        assert ward.run("SHOW DEADLINES")[0].rows == ((*declared, "U", "full", "1", "0", "1", "0"),)
        assert sum(pipeline.counts.results.values()) == 2
    finally:
        ward.headgate.engine = None
        pipeline.close()
