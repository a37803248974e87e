"""Readers go on where they were when the server was killed, also those who had received nothing yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from server.test_kills import Killed

from headgate.client import Client
from headgate.protocol import BEGINNING
from levels.test_kills import ALL, OWN, WARD, Reader


def begins_at(client: Client, stream: str) -> str:
    """The position after which the results of a reader begin who connects now."""
    client._ensure_subscribed(stream)
    with client._wire.http.stream(
        "GET", f"/v1/streams/{stream}/results", params={"follow": "false"}, headers=client._wire.headers({})
    ) as answer:
        answer.read()
        return str(answer.headers[BEGINNING])


@pytest.mark.parametrize("architecture", ["trusted", "replicated", "kernelized"])
def test_a_reader_who_had_nothing_yet_goes_on_after_the_server_was_killed(tmp_path: Path, architecture: str) -> None:
    """Its position is older than the log of its level, which begins with the first results of anybody."""
    server = Killed(tmp_path, "direct", WARD, architecture)
    server.start()
    try:
        ned, sam = server.client("ned"), server.client("sam")
        ned.execute(OWN.format(level="U", all=ALL["U"]))
        position = begins_at(ned, "countU")
        other = Reader(ned, "allU")
        other.start()
        sam.publish("ned.pulseU", [{"sender": "U", "n": 1}])
        other.wait_for(1)  # the log has begun; a count waits for later tuples
        server.kill()
        server.start()
        sam.publish("ned.pulseU", [{"sender": "U", "n": 2}])
        found = next(x.values for x in server.client("ned").subscribe("countU", after=position) if x.values)
        assert found == {"n": 1}
        other.ending = True
    finally:
        server.kill()
        for client in server.clients:
            client.close()
