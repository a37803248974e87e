"""The whole way over HTTPS: log in, subscribe, publish, receive, resume."""

from __future__ import annotations

from typing import Any

from server.serving import Server, events


def test_a_published_tuple_reaches_those_who_may_see_it_and_nobody_else(server: Server) -> None:
    server.run(
        """CREATE STREAM walk (pat INT, policy STRING) ROLES FROM policy SOURCE publish;
        GRANT VIEW OBJECT, PUBLISH ON STREAM walk TO sender;
        GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM walk TO nurse"""
    )
    server.run("SUBSCRIBE TO root.walk", "ned")
    server.run("SUBSCRIBE TO root.walk", "dora")
    answer = server.publish(
        {"pat": 1, "policy": "nurse"},
        {"pat": 2, "policy": "doctor"},
        {"pat": 3, "policy": "nurse"},
        stream="root.walk",
    )
    assert answer.json() == {"rows": 3, "repeat": False}
    found = {user: receive(server, user, count) for user, count in (("ned", 2), ("dora", 3))}
    assert [x["data"]["values"]["pat"] for x in found["ned"]] == [1, 3]
    assert [x["data"]["values"]["pat"] for x in found["dora"]] == [1, 2, 3]
    assert receive(server, "dora", 2, after=found["dora"][0]["id"]) == found["dora"][1:]


def receive(server: Server, user: str, count: int, after: str = "") -> list[dict[str, Any]]:
    headers = {"Last-Event-ID": after} if after else {}
    with (
        server.client(user) as client,
        client.stream("GET", "/v1/streams/root.walk/results", headers=headers) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        found = []
        for event in events(answer.iter_lines()):
            found.append(event)
            if len(found) == count:
                return found
    return found
