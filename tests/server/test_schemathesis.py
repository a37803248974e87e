"""Schemathesis over the whole API, from the description that the server gives of itself: every answer is one of the
server's own making, never a fault. `test_fuzz` is the short version."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import httpx
import pytest
import schemathesis
from conftest import PASSWORD
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from server.serving import Server

_EXAMPLES = {GenerationMode.POSITIVE: 60, GenerationMode.NEGATIVE: 40}
"""Requests of each kind, for each operation and user: those that the description allows, and those that it does not."""
_FOLLOWED = "/v1/streams/{stream}/results"


def attack(server: Server) -> int:
    """As each kind of user; returns how many requests were answered."""
    with server.client() as client:
        described = client.get("/openapi.json").json()
    schema: Any = schemathesis.openapi.from_dict(described)
    operations = [found.ok() for found in schema.get_all_operations()]
    answered = 0
    for user in ("", "stranger", "ned", "sam", "root"):
        with server.client() as client:
            for operation in operations:
                for mode, examples in _EXAMPLES.items():
                    answered += attacked(server, client, user, operation, mode, examples)
    return answered


def attacked(
    server: Server, client: httpx.Client, user: str, operation: Any, mode: GenerationMode, examples: int
) -> int:
    answered = 0
    possible = operation.as_strategy(generation_mode=mode)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def ask(data: Any) -> None:
        nonlocal answered
        said = data.draw(possible).as_transport_kwargs(base_url=server.address)
        if operation.path == _FOLLOWED:
            said["params"] = {**(said.get("params") or {}), "follow": "false"}
        if user and operation.path != "/v1/login":
            token = server.headgate.login(user, PASSWORD) if operation.path == "/v1/logout" else server.token(user)
            said["headers"] = {**(said.get("headers") or {}), "Authorization": f"Bearer {token}"}
        answer = send(client, said)
        answered += 1
        assert answer.status_code < 500, answer.text
        if answer.status_code >= 400:
            assert set(answer.json()) == {"error"}, answer.text

    with suppress(Unsatisfiable):  # everything is allowed in a request that has no parameters
        ask()
    return answered


def send(client: httpx.Client, said: dict[str, Any]) -> httpx.Response:
    kept = {name: said[name] for name in ("params", "json", "content") if said.get(name) is not None}
    if said.get("data") is not None:
        data = said["data"]
        kept["content"] = data if isinstance(data, bytes) else json.dumps(data).encode()
    headers = {
        str(name): value
        for name, value in (said.get("headers") or {}).items()
        if str(value).isascii() and str(value).isprintable() and str(name).lower() != "transfer-encoding"
    }
    return client.request(said["method"], said["url"], headers=headers, **kept)


@pytest.mark.long
def test_thousands_of_requests_made_from_the_description_make_no_fault(server: Server) -> None:
    assert attack(server) > 3_000
