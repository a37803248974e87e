"""The whole way over HTTPS: log in, subscribe, publish, receive, resume."""

from __future__ import annotations

from typing import Any

from server.serving import Server, events


def test_a_published_tuple_reaches_those_who_may_see_it_and_nobody_else(server: Server) -> None:
    server.run("SUBSCRIBE TO root.pulse", "ned")
    server.run("SUBSCRIBE TO root.pulse", "dora")
    answer = server.publish(
        {"pat": 1, "rate": 60, "policy": "nurse"},
        {"pat": 2, "rate": 70, "policy": "doctor"},
        {"pat": 3, "rate": 80, "policy": "nurse"},
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
        client.stream("GET", "/v1/streams/root.pulse/results", headers=headers) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        found = []
        for event in events(answer.iter_lines()):
            found.append(event)
            if len(found) == count:
                return found
    return found
