"""Publishing into topics over HTTP, with the broker that is part of Kafka's client, or with none."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer

from server.serving import served

NUMBERED = {"Headgate-Producer": "p"}


@pytest.fixture
def brokers() -> Iterator[str]:
    client = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    yield ",".join(f"{x.host}:{x.port}" for x in client.list_topics(timeout=10).brokers.values())
    del client


def publish(client: httpx.Client, number: int) -> httpx.Response:
    headers = {"Content-Type": "application/x-ndjson", "Headgate-Sequence": str(number), **NUMBERED}
    return client.post("/v1/streams/root.pulse/tuples", content='{"pat": 1, "policy": "nurse"}', headers=headers)


def test_a_sender_whose_acknowledgement_was_lost_sends_again_and_counts_once(tmp_path: Path, brokers: str) -> None:
    with served(tmp_path, limits={"kafka_servers": brokers}) as server, server.client("sam") as sam:
        assert publish(sam, 1).json() == {"rows": 1, "repeat": False}
        body = b'{"pat": 2, "policy": "nurse"}'
        with server.raw() as connection:
            connection.sendall(
                b"POST /v1/streams/root.pulse/tuples HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-ndjson\r\n"
                b"Headgate-Producer: p\r\nHeadgate-Sequence: 2\r\nContent-Length: %d\r\n"
                b"Authorization: Bearer %s\r\n\r\n%s" % (len(body), server.token("sam").encode(), body)
            )
            assert connection.recv(12) == b"HTTP/1.1 200"  # and no more: the sender is gone
        assert publish(sam, 2).json() == {"rows": 1, "repeat": True}
        assert publish(sam, 4).status_code == 409
        assert publish(sam, 3).json() == {"rows": 1, "repeat": False}
        metrics = sam.get("/metrics", headers={"Authorization": "Bearer operator"}).text
        assert "headgate_published_total 3.0" in metrics and "headgate_published_repeats_total 1.0" in metrics


def test_without_a_broker_nothing_is_acknowledged_and_senders_come_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with served(tmp_path, limits={"kafka_servers": f"127.0.0.1:{port}"}) as server, server.client("sam") as sam:
        for _ in range(2):
            refused = publish(sam, 1)
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
            error = refused.json()["error"]
            assert error["message"].startswith("cannot write published tuples: Kafka does not take them")
            assert error["hint"] == "send them again later, with the same sequence number"
            assert str(port) not in refused.text
        assert server.parts.ingress.rows == 0
