"""Results in topics: which topic, which key, and what is refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egress.test_sinks import Here, result_batch
from headgate.egress.kafka_sink import KafkaSink, topic_name
from headgate.errors import HeadgateError, SourceError
from headgate.lexing import quote
from headgate.model.rejected import RejectedRows
from headgate.model.results import notice

names = st.text(st.sampled_from('aB.-_@"é 0'), min_size=1, max_size=4)
paths = st.one_of(
    st.tuples(names, st.builds(lambda x, y: f"{quote(x)}.{quote(y)}", names, names)),
    st.tuples(names, st.builds(lambda x, y: f"{quote(x)}.{quote(y)}.rejected", names, names)),
    st.tuples(names, names, st.builds(lambda x, y: f"{quote(x)}.{quote(y)}", names, names)),
)


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "connector").mkdir()
    (tmp_path / "connector/x.jar").touch()
    monkeypatch.setenv("HEADGATE_KAFKA", str(tmp_path))


@settings(deadline=None, max_examples=40)
@given(st.lists(paths, max_size=20))
def test_no_two_places_have_one_topic(some: list[tuple[str, ...]]) -> None:
    """The attack: a user or stream whose name makes its results another's."""
    found = {topic_name("headgate.", path) for path in some}
    assert len(found) == len(set(some))
    assert all(len(x) <= 249 and set(x) <= set("._-") | {y for y in x if y.isascii() and y.isalnum()} for x in found)


def test_topics_have_names_that_people_read() -> None:
    assert topic_name("headgate.", ("ann", "joe.mean")) == "headgate.ann.joe.mean"
    assert topic_name("x-", ("ann b", "S", "joe.mean_2")) == "x-ann_20b._40S.joe.mean_5f2"
    long = topic_name("headgate.", ("ann", "joe." + "x" * 300))
    assert len(long) == 249 and long != topic_name("headgate.", ("ann", "joe." + "x" * 301))


def sink(**options: str) -> KafkaSink:
    return KafkaSink(lambda: pytest.fail("Spark is not needed yet"), {"servers": "h:9092", **options}, Here())


def prepared(asked: KafkaSink) -> pa.Table:
    results = [result_batch(7, 8), notice(("bob",), "q", ended="why")]
    rejected = [RejectedRows("s", "no form", [{"a": 1}])]
    asked.stage(1, results, rejected)
    asked.prepare(results, rejected, as_staged=True)
    return pa.concat_tables(asked._ready)


def test_each_subscriber_and_stream_has_a_topic() -> None:
    table = prepared(sink())
    assert table.column("topic").to_pylist() == [
        *["headgate.ann.q"] * 2,
        "headgate.bob.q",
        "headgate.owner.s.rejected",
    ]
    assert len(set(table.column("key").to_pylist())) == 4


def test_one_topic_may_take_all() -> None:
    assert set(prepared(sink(topic="all")).column("topic").to_pylist()) == {"all"}


def test_options_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(HeadgateError) as caught:
        sink(nonsense="hush")
    assert caught.value.message == "cannot write to Kafka: there is no option `nonsense`"
    with pytest.raises(HeadgateError) as caught:
        KafkaSink(lambda: pytest.fail("Spark is not needed"), {}, Here())
    assert caught.value.message == "cannot write to Kafka: the option `servers` is missing"
    (tmp_path / "connector/x.jar").unlink()
    with pytest.raises(SourceError):
        sink()
