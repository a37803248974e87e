"""Settings of Spark that an operator gives are passed on as they are, or refused where others depend on them."""

from __future__ import annotations

import logging
import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext, accumulators
from pyspark.sql import SparkSession

from headgate.errors import HeadgateError
from headgate.ingress import spark as spark_module
from headgate.ingress.spark import SETTINGS, spark_session
from headgate.ingress.spark_settings import SparkSettings, spark_settings


class Builder:
    """Stands in for Spark's: keeps what it is given, and the environment of the start."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.arguments = ""
        self.sparkContext = SimpleNamespace()

    def appName(self, _: str) -> Builder:  # noqa: N802
        return self

    def master(self, name: str) -> Builder:
        self.given["spark.master"] = name
        return self

    def config(self, name: str, value: str) -> Builder:
        self.given[name] = value
        return self

    def getOrCreate(self) -> Any:  # noqa: N802
        self.arguments = os.environ["PYSPARK_SUBMIT_ARGS"]
        return self


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Builder:
    found = Builder()
    monkeypatch.setattr(SparkSession, "builder", found)
    monkeypatch.setenv("PYSPARK_PYTHON", "as it was")
    monkeypatch.setenv("HEADGATE_KAFKA", str(tmp_path / "no connector"))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return found


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host:6443"])
def test_master_and_settings_are_passed_on_as_they_are(builder: Builder, tmp_path: Path, master: str) -> None:
    file = tmp_path / "my spark.conf"
    file.write_text("# mine\n\nspark.executor.memory 2g\nspark.hadoop.fs.s3a.secret.key=hush\nspark.ui.enabled: true\n")
    given = spark_settings(("spark.executor.cores=2", "spark.kubernetes.x=a=b"), file)
    spark_session(tmp_path / "home", master=master, settings=given)
    assert builder.given["spark.master"] == master
    assert builder.given["spark.executor.cores"] == "2" and builder.given["spark.kubernetes.x"] == "a=b"
    assert "spark.ui.enabled" not in builder.given  # the file says it
    assert "hush" not in str(builder.given) and "hush" not in repr(given)
    assert builder.arguments == f"--properties-file '{file}' pyspark-shell"
    assert builder.given["spark.sql.session.timeZone"] == "UTC"
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


@pytest.mark.parametrize("name", sorted({*SETTINGS, "spark.master", "spark.authenticate"} - {"spark.ui.enabled"}))
def test_what_results_and_logs_depend_on_cannot_be_changed(builder: Builder, tmp_path: Path, name: str) -> None:
    chosen = {"spark.hadoop.fs.permissions.umask-mode", "spark.sql.streaming.checkpointFileManagerClass"}
    file = tmp_path / "spark.conf"
    file.write_text(f"{name} x\n")
    for given in (SparkSettings({name: "x"}), SparkSettings(file=file)):
        if name in chosen:
            spark_session(tmp_path, settings=given)
            continue
        with pytest.raises(HeadgateError) as caught:
            spark_session(tmp_path, settings=given)
        assert caught.value.message == f"cannot change the Spark setting `{name}`: results and logs depend on it"
    assert name in chosen or not builder.given


def test_a_secret_is_not_taken_from_the_command_line() -> None:
    """Spark would put it into its own command line, which every user of the machine can list."""
    for name in ("spark.hadoop.fs.s3a.secret.key", "spark.ssl.keyPassword", "spark.hadoop.fs.s3a.access.key"):
        with pytest.raises(HeadgateError) as caught:
            SparkSettings({name: "hush"}).check(())
        assert caught.value.message.startswith(f"cannot take the Spark setting `{name}` from the command line")
        assert "hush" not in str(caught.value)


def test_settings_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for words in (("spark.a",), ("a=b",)):
        with pytest.raises(HeadgateError, match=r"cannot read --conf: write it as spark\.NAME=VALUE"):
            spark_settings(words, None)
    file = tmp_path / "spark.conf"
    file.write_text("spark.alone\n")
    with pytest.raises(HeadgateError, match="write NAME VALUE on each line"):
        SparkSettings(file=file).check(())


def test_under_spark_submit_its_master_counts(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(spark_module, "_of_submit", lambda: frozenset({"spark.ui.enabled"}))
    levels: list[str] = []
    builder.sparkContext = type("Context", (), {"setLogLevel": lambda _, level: levels.append(level)})()
    spark_session(tmp_path, master=None)
    assert "spark.master" not in builder.given and levels == ["OFF"]
    assert "spark.ui.enabled" not in builder.given and builder.given["spark.sql.session.timeZone"] == "UTC"
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    spark_session(tmp_path, master=None)
    assert builder.given["spark.master"] == "local[2]"


def test_a_connection_of_java_that_breaks_prints_no_traceback(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """PySpark's own server for accumulators, whose client goes away in the middle."""
    server = accumulators._start_update_server("a token", is_unix_domain_sock=False)
    spark_module._errors_to_the_log(cast(SparkContext, SimpleNamespace(_accumulatorServer=server)))
    try:
        with caplog.at_level(logging.DEBUG, "headgate.spark"):
            with socket.create_connection(cast(tuple[str, int], server.server_address)) as client:
                client.sendall(b"not it!")
                assert client.recv(1) == b""
            until = time.monotonic() + 20
            while not caplog.messages and time.monotonic() < until:
                time.sleep(0.01)
    finally:
        server.shutdown()
    assert caplog.messages == ["a connection of Java's process failed"]
    assert capfd.readouterr().err == ""
