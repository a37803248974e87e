"""The engine over a Spark session that a program has."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import PASSWORD
from pyspark.sql import SparkSession

import headgate
from headgate.errors import Conflict, NotFound
from headgate.home import alone
from headgate.service import Headgate

SCRIPT = """CREATE ROLE nurse; CREATE USER ned PASSWORD '{password}'; GRANT ROLE nurse TO USER ned;
CREATE STREAM pulse (pat INT, rate INT, policy STRING) ROLES FROM policy SOURCE json (path = '{folder}');
CREATE QUERY fast AS SELECT pat, rate FROM pulse WHERE rate > 100; START QUERY fast;
GRANT VIEW OBJECT, READ TUPLE ON STREAM pulse TO nurse;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM fast TO nurse"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "pulses").mkdir()
    rows = '{"pat": 1, "rate": 120, "policy": "nurse"}\n{"pat": 2, "rate": 130, "policy": "doctor"}\n'
    (tmp_path / "pulses" / "1.json").write_text(rows)
    made = Headgate.at_home(tmp_path / "home", create=True)
    made.initialise("joe", PASSWORD)
    made.execute(made.login("joe", PASSWORD), SCRIPT.format(password=PASSWORD, folder=tmp_path / "pulses"))
    made.close()
    return tmp_path / "home"


def test_it_runs_a_users_subscriptions_in_the_programs_spark(home: Path, spark: SparkSession) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    with headgate.Engine(home, "ned", PASSWORD, spark=spark) as engine:
        with pytest.raises(NotFound, match="not subscribed"):
            engine.results("joe.fast")
        engine.execute("SUBSCRIBE TO joe.fast")
        engine.run()
        (only,) = engine.results("joe.fast")
        assert (only["values"], only["label"]) == ({"pat": 1, "rate": 120}, 'nurse FROM "joe.pulse"')
        engine.run()
        assert engine.results("joe.fast") == []
    assert spark.conf.get("spark.sql.session.timeZone") == zone
    assert spark.range(2).count() == 2  # it is still the program's


def test_it_opens_nothing_that_a_server_has(home: Path, spark: SparkSession) -> None:
    with alone(home), pytest.raises(Conflict, match="a server has it"):
        headgate.Engine(home, "ned", PASSWORD, spark=spark)
