"""The examples of the guide's chapter about Python, run one after the other."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PASSWORD
from documents import ROOT

from headgate.service import Headgate
from server.serving import Server, served

TEXT = (ROOT / "docs/guide/python.md").read_text()
SERVER = (ROOT / "docs/guide/server.md").read_text()
FACTORY = f"""CREATE ROLE operator; CREATE USER ann PASSWORD '{PASSWORD}'; GRANT ROLE operator TO USER ann;
CREATE STREAM Readings (machine STRING, temp INT, who STRING) ROLES FROM who SOURCE json (path = '{{folder}}');
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM Readings TO operator"""


def example(section: str) -> str:
    (found,) = re.findall(rf"^## {section}\n.*?^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of the chapter before, with the results that it shows."""
    (stream,) = re.findall(r"^(CREATE STREAM pulse .*?)^\$", SERVER, re.DOTALL | re.MULTILINE)
    with served(tmp_path_factory.mktemp("ward")) as server:
        server.run(
            f"""CREATE USER joe PASSWORD '{PASSWORD}'; CREATE ROLE adder; GRANT ROLE adder TO USER joe;
            GRANT ADD ON SYSTEM TO adder; CREATE ROLE monitor;
            CREATE USER bed7 PASSWORD '{PASSWORD}'; GRANT ROLE monitor TO USER bed7"""
        )
        server.run(stream, "joe")
        server.run("SUBSCRIBE TO joe.fast", "ned")
        server.publish({"pat": 7, "rate": 130, "policy": "nurse"}, user="bed7", stream="joe.pulse")
        yield server


@pytest.fixture
def names(ward: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    import headgate

    shutil.copy(ward.home / "tls" / "authority.pem", tmp_path)
    monkeypatch.chdir(tmp_path)
    with headgate.connect(ward.address, "ned", PASSWORD, certificate="authority.pem") as ned:
        results = ned.subscribe("joe.fast")
        next(results)
        results.close()
    return {"URL": ward.address, "PASSWORD": PASSWORD, "headgate": headgate}


def test_statements_and_errors(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    exec(example("Statements and errors"), names)  # noqa: S102
    assert "there is no stream joe.secret" in capsys.readouterr().out


def test_results(names: dict[str, Any]) -> None:
    exec(example("Results"), names)  # noqa: S102
    assert names["table"].column("pat").to_pylist()[0] == 7
    assert names["frame"]["pat"].tolist()[0] == names["polar"]["pat"].to_list()[0] == 7
    assert names["rest"].num_rows == 0


def test_publishing(names: dict[str, Any]) -> None:
    exec(example("Publish"), names)  # noqa: S102
    assert names["publisher"].sequence == 2


def test_async(names: dict[str, Any]) -> None:
    exec(example("Async"), names)  # noqa: S102
    assert names["found"][0] == 7


@pytest.mark.long
def test_spark(names: dict[str, Any], spark: Any) -> None:
    names["spark"] = spark
    with names["headgate"].connect(names["URL"], "bed7", PASSWORD, certificate="authority.pem") as bed7:
        assert bed7.publish("joe.pulse", spark.sql("SELECT 7 AS pat, 100 AS rate, 'nurse' AS policy")) == 1
    exec(example("Spark"), names)  # noqa: S102
    assert 7 in names["pats"]
    with names["headgate"].connect(names["URL"], "ned", PASSWORD, certificate="authority.pem") as ned:
        assert 21 in {x.values["pat"] for x in ned.subscribe("joe.fast", follow=False) if x.values}


def test_the_engine_in_ones_own_program(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import headgate

    monkeypatch.chdir(tmp_path)
    (tmp_path / "readings").mkdir()
    (tmp_path / "readings" / "1.json").write_text('{"machine": "saw", "temp": 61, "who": "operator"}\n')
    made = Headgate.at_home(tmp_path / ".headgate", create=True)
    made.initialise("joe", PASSWORD)
    made.execute(made.login("joe", PASSWORD), FACTORY.format(folder=tmp_path / "readings"))
    made.close()
    exec(example("The engine in your own program"), {"PASSWORD": PASSWORD, "headgate": headgate, "spark": spark})  # noqa: S102
    assert "{'machine': 'saw', 'temp': 61, 'who': 'operator'}" in capsys.readouterr().out
    assert list((tmp_path / ".headgate" / "engine-ann").glob("checkpoints/*"))  # also Spark's, started elsewhere
