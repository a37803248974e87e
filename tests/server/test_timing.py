"""Whether the time of an answer tells what is hidden from what does not exist: a statistical test."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import httpx
import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from headgate.protocol import JSON_LINES
from server.serving import Server

ROUNDS = 1500
OPERATIONS: dict[str, Callable[[httpx.Client, str], httpx.Response]] = {
    "results": lambda client, name: client.get(f"/v1/streams/root.{name}/results"),
    "rejected": lambda client, name: client.get(f"/v1/streams/root.{name}/rejected"),
    "publish": lambda client, name: client.post(
        f"/v1/streams/root.{name}/tuples", content=b'{"a": 1}\n', headers={"Content-Type": JSON_LINES}
    ),
    "statements": lambda client, name: client.post("/v1/statements", json={"script": f"DESCRIBE root.{name}"}),
    "explain": lambda client, name: client.post("/v1/explain", json={"query": f"SELECT a FROM root.{name}"}),
}


@pytest.mark.long
@pytest.mark.parametrize("operation", OPERATIONS)
def test_hidden_and_missing_take_the_same_time(server: Server, operation: str) -> None:
    """Both kinds of requests in random order; their times are not told apart (Mann-Whitney), and their medians differ
    by less than a twentieth."""
    ask, chance = OPERATIONS[operation], Random(operation)
    times: dict[str, list[float]] = {"secret": [], "nosuch": []}
    with server.client("stranger") as client:
        for _ in range(50):
            ask(client, "warmup")
        for _ in range(ROUNDS):
            for name in chance.sample(list(times), 2):
                begin = time.perf_counter()
                answer = ask(client, name)
                times[name].append(time.perf_counter() - begin)
                assert answer.status_code == 404
    hidden, missing = (np.array(times[name]) for name in ("secret", "nosuch"))
    assert mannwhitneyu(hidden, missing).pvalue > 0.001
    assert abs(np.median(hidden) / np.median(missing) - 1) < 0.05


@pytest.mark.long
def test_a_login_of_nobody_takes_the_time_of_a_wrong_password(server: Server) -> None:
    times: dict[str, list[float]] = {"ned": [], "nob": []}
    chance = Random(1)
    with server.client() as client:
        for _ in range(300):
            for user in chance.sample(list(times), 2):
                begin = time.perf_counter()
                answer = client.post("/v1/login", json={"user": user, "password": "wrong password"})
                times[user].append(time.perf_counter() - begin)
                assert answer.status_code == 401
    known, unknown = (np.array(times[user]) for user in ("ned", "nob"))
    assert mannwhitneyu(known, unknown).pvalue > 0.001
