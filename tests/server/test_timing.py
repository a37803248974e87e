"""Whether the time of an answer tells what is hidden from what does not exist: a statistical test."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import httpx
import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import mannwhitneyu

from headgate.access import rows as r
from headgate.access.authorizer import Principal
from headgate.access.catalog import Catalog
from headgate.access.permissions import Kind
from headgate.protocol import JSON_LINES
from server.serving import Server

ROUNDS = 1500
Times = npt.NDArray[np.float64]
OPERATIONS: dict[str, Callable[[httpx.Client, str], httpx.Response]] = {
    "results": lambda client, name: client.get(f"/v1/streams/root.{name}/results"),
    "rejected": lambda client, name: client.get(f"/v1/streams/root.{name}/rejected"),
    "publish": lambda client, name: client.post(
        f"/v1/streams/root.{name}/tuples", content=b'{"a": 1}\n', headers={"Content-Type": JSON_LINES}
    ),
    "statements": lambda client, name: client.post("/v1/statements", json={"script": f"DESCRIBE root.{name}"}),
    "explain": lambda client, name: client.post("/v1/explain", json={"query": f"SELECT a FROM root.{name}"}),
}


def measured(server: Server, operation: str, rounds: int) -> tuple[Times, Times]:
    """The times of answers about what is hidden and about what is missing, asked for in random order."""
    ask, chance = OPERATIONS[operation], Random(operation)
    times: dict[str, list[float]] = {"secret": [], "nosuch": []}
    with server.client("stranger") as client:
        for _ in range(50):
            ask(client, "warmup")
        for _ in range(rounds):
            for name in chance.sample(list(times), 2):
                begin = time.perf_counter()
                answer = ask(client, name)
                times[name].append(time.perf_counter() - begin)
                assert answer.status_code == 404
    return np.array(times["secret"]), np.array(times["nosuch"])


def told_apart(one: Times, other: Times) -> bool:
    """Whether the times differ (Mann-Whitney), or their medians by a twentieth."""
    return bool(mannwhitneyu(one, other).pvalue <= 0.001 or abs(np.median(one) / np.median(other) - 1) >= 0.05)


@pytest.mark.long
@pytest.mark.parametrize("operation", OPERATIONS)
def test_hidden_and_missing_take_the_same_time(server: Server, operation: str) -> None:
    assert not told_apart(*measured(server, operation, ROUNDS))


@pytest.mark.long
def test_a_millisecond_more_for_what_is_hidden_would_be_found(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the tests above can fail: the attack succeeds where a check of what is hidden takes time."""
    find = Catalog.find

    def slow(self: Catalog, principal: Principal, kind: Kind, name: str, owner: str | None = None) -> r.Object:
        if name == "secret":
            time.sleep(0.001)
        return find(self, principal, kind, name, owner)

    monkeypatch.setattr(Catalog, "find", slow)
    assert told_apart(*measured(server, "results", ROUNDS))


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
