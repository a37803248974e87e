"""What a connected subscriber receives while definitions change: notices, old and new columns, no gap, no repeat."""

from __future__ import annotations

import json
from itertools import islice

import pyarrow as pa

from headgate.protocol import ARROW_STREAM, JSON_LINES
from server.serving import Server, events
from server.test_results import opened, received


def stream_with_query(server: Server, name: str) -> None:
    server.run(
        f"""CREATE STREAM {name} (n INT) LABEL 'nurse' SOURCE publish;
        CREATE QUERY {name}_q AS SELECT * FROM {name};
        START QUERY {name}_q;
        GRANT VIEW OBJECT, PUBLISH ON STREAM {name} TO sender;
        GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM {name}, {name}_q TO nurse"""
    )
    server.run(f"SUBSCRIBE TO root.{name}; SUBSCRIBE TO root.{name}_q", "ned")


def publish(server: Server, stream: str, *rows: dict[str, int]) -> None:
    answer = server.publish(*rows, stream=f"root.{stream}")
    assert answer.status_code == 200, answer.text


def shown(event: dict[str, object]) -> object:
    data = event["data"]
    assert isinstance(data, dict)
    return data["values"] if event["event"] == "result" else sorted(data)


def test_a_new_column_reaches_subscribers_of_the_stream_and_no_query_over_it(server: Server) -> None:
    stream_with_query(server, "grows")
    publish(server, "grows", {"n": 1})
    with opened(server, "root.grows") as direct, opened(server, "root.grows_q") as query:
        begun, asked = [shown(x) for x in received(direct, 1)], [shown(x) for x in received(query, 1)]
    server.run("ALTER STREAM grows ADD COLUMN more INT")
    publish(server, "grows", {"n": 2, "more": 20}, {"n": 3})
    with opened(server, "root.grows") as direct, opened(server, "root.grows_q") as query:
        begun, asked = [shown(x) for x in received(direct, 4)], [shown(x) for x in received(query, 3)]
    assert begun == [{"n": 1}, ["changed"], {"n": 2, "more": 20}, {"n": 3, "more": None}]
    assert asked == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_published_rows_without_the_new_column_that_wait_are_taken(server: Server) -> None:
    stream_with_query(server, "waits")
    server.engine.paused.set()
    try:
        publish(server, "waits", {"n": 1})
        server.run("ALTER STREAM waits ADD COLUMN more INT")
        publish(server, "waits", {"n": 2, "more": 20})
    finally:
        server.engine.paused.clear()
    with opened(server, "root.waits") as answer:  # they are told of the change if the engine knew the stream before it
        told = (shown(x) for x in events(answer.iter_lines()))
        found = list(islice((x for x in told if x != ["changed"]), 2))
    assert found == [{"n": 1, "more": None}, {"n": 2, "more": 20}]


def test_a_replaced_query_tells_its_subscribers_in_their_stream(server: Server) -> None:
    stream_with_query(server, "replaced")
    publish(server, "replaced", {"n": 1})
    with opened(server, "root.replaced_q") as answer:
        received(answer, 1)
        server.run("CREATE OR REPLACE QUERY replaced_q AS SELECT n, n * 10 AS tens FROM replaced WHERE n > 1")
        publish(server, "replaced", {"n": 1}, {"n": 2})
    with opened(server, "root.replaced_q") as answer:
        found = [shown(x) for x in received(answer, 3)]
    assert found == [{"n": 1}, ["changed"], {"n": 2, "tens": 20}]


def test_an_arrow_stream_ends_where_columns_are_added_and_goes_on_with_all_of_them(server: Server) -> None:
    stream_with_query(server, "wide")
    publish(server, "wide", {"n": 1})
    with server.client("ned") as client:
        address, headers = "/v1/streams/root.wide/results?follow=false", {"Accept": ARROW_STREAM}
        with opened(server, "root.wide") as answer:
            received(answer, 1)
        with opened(server, "root.wide", headers={"Accept": ARROW_STREAM}) as following:
            server.run("ALTER STREAM wide ADD COLUMN more INT")
            publish(server, "wide", {"n": 2, "more": 20})
            rest = pa.ipc.open_stream(b"".join(following.iter_raw()))
            assert rest.read_all().select(["n"]).to_pydict() == {"n": [1]}
        table = pa.ipc.open_stream(client.get(address, headers=headers).content).read_all()
    assert table.select(["n", "more"]).to_pydict() == {"n": [1, 2], "more": [None, 20]}


def test_a_subscriber_without_the_right_is_told_of_the_change_when_it_has_the_right_again(server: Server) -> None:
    stream_with_query(server, "later")
    publish(server, "later", {"n": 1})
    with opened(server, "root.later_q") as answer:
        coming = events(answer.iter_lines())
        next(coming)
        server.run("REVOKE READ TUPLE ON STREAM later FROM nurse")
        assert shown(next(coming)) == ["suspended"]
        server.run("CREATE OR REPLACE QUERY later_q AS SELECT n FROM later WHERE n > 1")
        server.run("GRANT READ TUPLE ON STREAM later TO nurse")
        publish(server, "later", {"n": 2})
        assert [shown(next(coming)), shown(next(coming))] == [["changed"], {"n": 2}]


def test_a_subscriber_is_told_of_a_change_that_the_engine_meets_together_with_a_lost_right(server: Server) -> None:
    stream_with_query(server, "both")
    publish(server, "both", {"n": 1})
    with opened(server, "root.both_q") as answer:
        coming = events(answer.iter_lines())
        next(coming)
        server.run(
            """CREATE OR REPLACE QUERY both_q AS SELECT n, n * 10 AS tens FROM both WHERE n > 1;
            REVOKE READ TUPLE ON STREAM both_q FROM nurse"""
        )
        assert shown(next(coming)) == ["suspended"]
        server.run("GRANT READ TUPLE ON STREAM both_q TO nurse")
        publish(server, "both", {"n": 2})
        assert [shown(next(coming)), shown(next(coming))] == [["changed"], {"n": 2, "tens": 20}]


def test_every_end_of_a_query_is_told_in_the_streams_of_its_subscribers(server: Server) -> None:
    stream_with_query(server, "ends")
    publish(server, "ends", {"n": 1})
    with opened(server, "root.ends_q") as answer:
        coming = events(answer.iter_lines())
        next(coming)
        server.run("STOP QUERY ends_q")
        stopped = next(coming)
        assert stopped["data"] == {"ended": "its query was stopped; it begins anew when that is started"}
        server.run("START QUERY ends_q")
        publish(server, "ends", {"n": 2})
        assert [shown(next(coming)), shown(next(coming))] == [["continues"], {"n": 2}]
        server.run("DROP STREAM ends")
        broken = next(coming)
        assert broken["data"] == {"ended": "its query lost a stream that it read"}
        server.run("DROP QUERY ends_q")
        dropped = next(coming)
        assert dropped["data"] == {"closed": "what it was subscribed to was dropped"}


def test_a_reader_who_lost_the_right_is_not_told_that_the_stream_was_dropped(server: Server) -> None:
    stream_with_query(server, "gone")
    publish(server, "gone", {"n": 1})
    with opened(server, "root.gone_q") as answer:
        coming = events(answer.iter_lines())
        next(coming)
        server.run("REVOKE VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM gone_q FROM nurse")
        assert shown(next(coming)) == ["suspended"]
        server.run("DROP QUERY gone_q")
        closed = next(coming)
        assert closed["data"] == {"closed": "you are not subscribed any more"}


def test_json_lines_name_the_columns_of_each_result(server: Server) -> None:
    stream_with_query(server, "lines")
    publish(server, "lines", {"n": 1})
    with opened(server, "root.lines") as answer:
        received(answer, 1)
    server.run("ALTER STREAM lines ADD COLUMN more INT")
    with server.client("ned") as client:
        text = client.get("/v1/streams/root.lines/results?follow=false", headers={"Accept": JSON_LINES}).text
    assert [x["values"] for x in map(json.loads, text.splitlines()) if "values" in x] == [{"n": 1}]
