"""Where settings come from, and that the last one named wins."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.cli import main
from headgate.model.limits import Limits
from headgate.server.settings import read_settings


def test_config_shows_each_setting_and_where_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server.toml").write_text("port = 1\nbody_rows = 7\nlog_hours = 24\n")
    monkeypatch.setenv("HEADGATE_SERVE_BODY_ROWS", "8")
    monkeypatch.setenv("HEADGATE_SERVE_LOG_HOURS", "48")
    shown = CliRunner().invoke(main, ["--home", str(tmp_path), "config", "--port", "2", "--no-tls"]).output.splitlines()
    assert {
        "port = 2  # the command",
        "tls = false  # the command",
        "body_rows = 8  # the environment",
        "log_hours = 48  # the environment",
        "stall_seconds = 60",
    } <= set(shown)


def test_limits_follow_the_machine_unless_they_are_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server.toml").write_text("view_rows = 7\nview_bytes = 9\n")
    monkeypatch.setenv("HEADGATE_SERVE_VIEW_ROWS", "8")
    shown = CliRunner().invoke(main, ["--home", str(tmp_path), "config", "--text-bytes", "10"]).output.splitlines()
    assert {
        f"view_tuples = {Limits().tuples}",
        "view_rows = 8  # the environment",
        "view_bytes = 9  # server.toml",
        "text_bytes = 10  # the command",
    } <= set(shown)
    assert read_settings(tmp_path, {"text_bytes": 10}).limits == Limits(rows=8, bytes=9, text=10)


def test_a_run_goes_by_the_same_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, seen = tmp_path / "home", list[Limits]()
    monkeypatch.setenv("HEADGATE_PASSWORD", "correct horse")
    monkeypatch.setattr("headgate.cli.run._process", lambda *given, **_: seen.append(given[3].limits))
    for words in (["init", "--admin", "joe"], ["login", "joe"]):
        assert CliRunner().invoke(main, ["--home", str(home), *words]).exit_code == 0
    (home / "server.toml").write_text("view_rows = 7\n")
    result = CliRunner().invoke(main, ["--home", str(home), "run", "--everyone", "--view-tuples", "5"])
    assert result.exit_code == 0, result.output
    assert seen == [Limits(rows=7, tuples=5)]


@pytest.mark.parametrize("given", ["0", "-1", "many"])
def test_a_limit_is_a_number(given: str, tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["--home", str(tmp_path), "config", "--view-rows", given]).exit_code == 2


def test_brokers_of_kafka_are_settings_and_their_passwords_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.mechanism=PLAIN\nssl.key.password=Tr0ub4dor\n")
    (tmp_path / "server.toml").write_text(f'kafka_servers = "a:9092"\nkafka_properties = "{file}"\n')
    monkeypatch.setenv("HEADGATE_SERVE_KAFKA_SERVERS", "b:9092")
    words = ["--home", str(tmp_path), "config", "--kafka-topics", "ward"]
    shown = CliRunner().invoke(main, words).output
    assert {
        "kafka_servers = 'b:9092'  # the environment",
        f"kafka_properties = '{file}'  # server.toml",
        "kafka_topics = 'ward'  # the command",
    } <= set(shown.splitlines())
    assert "Tr0ub4dor" not in shown
    monkeypatch.setenv("HEADGATE_SERVE_KAFKA_SERVERS", "")
    refused = CliRunner().invoke(main, words)
    assert refused.exit_code == 1
    assert "cannot use `kafka_properties`: no brokers are given (set `kafka_servers`)" in refused.output
