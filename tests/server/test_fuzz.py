"""Requests made up at random, over the whole API: an answer of the server's own making each time, never a fault."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.protocol import ARROW_STREAM, EVENTS, JSON_LINES, POSITION, PRODUCER, SEQUENCE, SIGNATURE
from server.serving import Server
from server.test_rights import OPERATIONS

NAMES = st.one_of(
    st.text(max_size=20), st.sampled_from(["root.pulse", '"a"."b"', "root.", ".", "a.b.c", "pulse", "\x00", "é"])
)
JSON: Any = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=10), inner, max_size=4)),
    max_leaves=8,
)
BODIES = st.one_of(
    st.binary(max_size=200),
    JSON.map(lambda x: json.dumps(x).encode()),
    st.fixed_dictionaries({"script": st.text(max_size=60)}).map(lambda x: json.dumps(x).encode()),
    st.fixed_dictionaries({"query": st.text(max_size=60), "picture": st.booleans()}).map(
        lambda x: json.dumps(x).encode()
    ),
    st.fixed_dictionaries({"user": st.text(max_size=9), "password": st.text(max_size=9), "level": NAMES}).map(
        lambda x: json.dumps(x).encode()
    ),
)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60).map(str.strip)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Content-Type": st.sampled_from([JSON_LINES, ARROW_STREAM, "application/json", "text/plain", ";"]),
        "Accept": st.sampled_from([JSON_LINES, ARROW_STREAM, EVENTS, "*/*", "text/html", ","]),
        POSITION: VALUES,
        PRODUCER: VALUES,
        SEQUENCE: VALUES,
        SIGNATURE: VALUES,
    },
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([*OPERATIONS, ("POST", "/v1/login"), ("PUT", "/v1/session"), ("GET", "/v1/nosuch")]),
    NAMES,
    st.sampled_from(["root", "sam", "ned", "stranger"]),
    BODIES,
    HEADERS,
    st.dictionaries(st.sampled_from(["after", "begin", "limit"]), VALUES, max_size=3),
)
def test_no_request_makes_the_server_fail(
    server: Server,
    operation: tuple[str, str],
    name: str,
    user: str,
    body: bytes,
    headers: dict[str, str],
    asked: dict[str, str],
) -> None:
    method, path = operation
    if path == "/v1/logout":
        return  # it would end the session that the other requests use
    written = quote(name, safe="")
    url = server.address + path.replace("root.pulse", written).replace("catalog/streams", f"catalog/{written}")
    with server.client(user) as client:
        answer = client.request(method, url, content=body, headers=headers, params={**asked, "follow": "false"})
    assert answer.status_code < 500, (answer.status_code, answer.text)
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["kind"] and error["message"] and "\n" not in error["message"]
