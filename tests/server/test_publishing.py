"""Publishing: what is taken is durable and counts once; what is not taken is named, and nothing of it counts."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headgate.protocol import ARROW_STREAM, JSON_LINES, signed_message
from server.serving import Server

TUPLES = "/v1/streams/root.typed/tuples"
TYPED = """CREATE STREAM typed (b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, s STRING, t TIMESTAMP, y DATE)
  EVENT TIME t SOURCE publish;
GRANT VIEW OBJECT, PUBLISH ON STREAM typed TO sender;
CREATE STREAM levelled (a INT, lev STRING) LEVEL FROM lev SOURCE publish;
GRANT VIEW OBJECT, PUBLISH ON STREAM levelled TO sender;
CREATE STREAM signed (a INT) SOURCE publish (signed = 'true');
GRANT VIEW OBJECT, PUBLISH ON STREAM signed TO sender;
CREATE STREAM files (a INT) SOURCE json (path = 'nowhere');
GRANT VIEW OBJECT, PUBLISH ON STREAM files TO sender"""
T = "2024-03-01T08:00:00Z"


@pytest.fixture(scope="module", autouse=True)
def typed(server: Server) -> None:
    server.run(TYPED)


def send(
    server: Server, body: bytes, form: str = JSON_LINES, path: str = TUPLES, user: str = "sam", **headers: str
) -> Any:
    with server.client(user) as client:
        return client.post(path, content=body, headers={"Content-Type": form, **headers})


def rows(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 400, answer.text
    found: list[dict[str, Any]] = answer.json()["error"]["rows"]
    return found


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"t": "%s", "i": "x"}', 'i: `"x"` is not INT'),
        ('{"t": "%s", "i": 1.5}', "i: `1.5` is not INT"),
        ('{"t": "%s", "i": 3000000000}', "i: `3000000000` is not INT"),
        ('{"t": "%s", "b": 1}', "b: `1` is not BOOLEAN"),
        ('{"t": "%s", "y": "tomorrow"}', 'y: `"tomorrow"` is not DATE'),
        ('{"i": 1}', "it has no event time"),
        ('{"t": "9999-01-01T00:00:00Z"}', "its event time is too far ahead"),
        ("[1, 2]", "it is not one JSON object"),
        ('{"t": "%s"', "it is not one JSON object"),
        ('{"t": "%s", "i": 1, "i": 2}', "it has a key twice"),
        ("\\x00\\xff", "it is not one JSON object"),
    ],
)
def test_a_wrong_row_is_named_and_nothing_is_taken(server: Server, line: str, reason: str) -> None:
    before = server.parts.ingress.rows
    good = f'{{"t": "{T}", "i": 1}}\n'
    body = good * 2 + line.replace("%s", T) + "\n" + good
    assert rows(send(server, body.encode())) == [{"row": 3, "message": reason}]
    assert server.parts.ingress.rows == before


def test_a_wrong_row_has_the_number_of_its_line_whatever_is_wrong(server: Server) -> None:
    for wrong in (f'{{"t": "{T}", "i": "x"}}', '{"i": 1}', '{"t": "9999-01-01T00:00:00Z"}'):
        (found,) = rows(send(server, f'{{"t": "{T}"}}\n\n{wrong}\n'.encode()))
        assert found["row"] == 3
    body = b'\n{"a": 1, "lev": "U"}\n\n{"a": 2, "lev": "S"}\n'
    assert [x["row"] for x in rows(send(server, body, path="/v1/streams/root.levelled/tuples"))] == [4]


def arrow(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, **options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_an_arrow_stream_is_taken_as_it_is(server: Server) -> None:
    times = pa.array([1_700_000_000_000] * 3, pa.timestamp("ms", "UTC"))
    table = pa.table(
        {"t": times, "i": pa.array([1, 2, 3], pa.int64()), "s": ["a", None, "c"], "other": [1.0, 2.0, 3.0]}
    )
    assert send(server, arrow(table), ARROW_STREAM).json() == {"rows": 3, "repeat": False}


def test_wrong_arrow_is_named(server: Server) -> None:
    times = pa.array([1_700_000_000_000] * 4, pa.timestamp("ms", "UTC"))
    wide = pa.table({"t": times, "i": pa.array([1, 2, 1 << 40, 4], pa.int64())})
    assert rows(send(server, arrow(wide), ARROW_STREAM)) == [{"row": 3, "message": "i: it is not INT"}]
    text = pa.table({"t": times, "i": ["1", "2", "3", "4"]})
    assert rows(send(server, arrow(text), ARROW_STREAM)) == [{"row": 0, "message": "i: string is not INT"}]
    packed = arrow(wide.slice(0, 2), options=pa.ipc.IpcWriteOptions(compression="zstd"))
    assert rows(send(server, packed, ARROW_STREAM)) == [{"row": 0, "message": "it is compressed or has dictionaries"}]
    coded = pa.table({"t": times, "s": pa.array(["x"] * 4).dictionary_encode()})
    assert rows(send(server, arrow(coded), ARROW_STREAM))[0]["row"] == 0
    columns = pa.table({f"c{n}": [1] for n in range(1001)})
    assert rows(send(server, arrow(columns), ARROW_STREAM)) == [{"row": 0, "message": "it has more than 1,000 columns"}]


def test_damaged_arrow_is_refused(server: Server) -> None:
    times = pa.array([1_700_000_000_000] * 100, pa.timestamp("ms", "UTC"))
    whole = arrow(pa.table({"t": times, "s": [f"text {n}" for n in range(100)]}))
    places = range(0, len(whole), 97)
    with server.client("sam") as client:
        for place in places:
            for damaged in (whole[:place], whole[:place] + b"\xff" + whole[place + 1 :]):
                answer = client.post(TUPLES, content=damaged, headers={"Content-Type": ARROW_STREAM})
                assert answer.status_code in (200, 400, 413), answer.text
        assert client.get("/v1/session").status_code == 200


def test_a_sequence_number_counts_once(server: Server) -> None:
    body = f'{{"t": "{T}", "i": 1}}\n'.encode()
    given = [("p1", "1", 200, False), ("p1", "1", 200, True), ("p1", "2", 200, False), ("p1", "1", 200, True)]
    before = server.parts.ingress.rows
    for producer, sequence, status, repeat in given:
        answer = send(server, body, **{"Headgate-Producer": producer, "Headgate-Sequence": sequence})
        assert (answer.status_code, answer.json()["repeat"]) == (status, repeat)
    assert server.parts.ingress.rows == before + 2
    gap = send(server, body, **{"Headgate-Producer": "p1", "Headgate-Sequence": "4"})
    assert (gap.status_code, gap.json()["error"]["message"]) == (409, "cannot take sequence number 4: 3 comes next")
    for wrong in ("0", "-1", "x", "1" * 19, "1.0"):
        assert send(server, body, **{"Headgate-Sequence": wrong}).status_code == 400
    other = send(server, body, user="root", **{"Headgate-Producer": "p1", "Headgate-Sequence": "1"})
    assert other.json()["repeat"] is False  # another sender's numbers are its own


def test_a_tuple_above_the_sender_is_refused_and_recorded(server: Server) -> None:
    path = "/v1/streams/root.levelled/tuples"
    body = b'{"a": 1, "lev": "U"}\n{"a": 2, "lev": "S"}\n'
    assert rows(send(server, body, path=path)) == [
        {"row": 2, "message": "its level S is not dominated by yours, U"},
    ]
    assert rows(send(server, b'{"a": 2, "lev": "nosuch"}\n', path=path)) == [
        {"row": 1, "message": "its label cannot be read: `lev`: there is no level nosuch"}
    ]
    (audit,) = server.run("SHOW AUDIT LIMIT 5")
    assert any("PUBLISH" in row and "cannot take the request: 1 of its rows are wrong" in row for row in audit["rows"])


def test_signatures_are_checked_and_refusals_recorded(server: Server) -> None:
    mine, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    public = mine.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    server.run(f"ALTER USER sam ADD KEY '{public}'")
    path, body = "/v1/streams/root.signed/tuples", b'{"a": 1}\n'

    def signature(key: Ed25519PrivateKey, stream: str = "root.signed", number: str = "1", content: bytes = body) -> str:
        return base64.b64encode(key.sign(signed_message(stream, "sam", "p", number, content))).decode()

    def status(text: str, number: str = "1", content: bytes = body) -> int:
        headers = {"Headgate-Producer": "p", "Headgate-Sequence": number}
        if text:
            headers["Headgate-Signature"] = text
        return int(send(server, content, path=path, **headers).status_code)

    assert status("") == 403
    assert status(signature(other)) == 403  # forged
    assert status(signature(mine), content=b'{"a": 2}\n') == 403  # altered
    assert status(signature(mine), number="2") == 403  # replayed as another request
    assert status(signature(mine, stream="root.typed")) == 403  # meant for another stream
    assert status("not base64!") == 403
    assert status(signature(mine)) == 200
    (audit,) = server.run("SHOW AUDIT LIMIT 20")
    assert sum("cannot publish: the signature is not valid" in row for row in audit["rows"]) == 5


def test_operators_see_how_many_requests_were_refused(server: Server) -> None:
    def refused() -> float:
        with server.client(headers={"Authorization": "Bearer operator"}) as client:
            lines = client.get("/metrics").text.splitlines()
        return next(float(x.split()[1]) for x in lines if x.startswith("headgate_published_refused_total "))

    before = refused()
    assert send(server, f'{{"t": "{T}"}}\n'.encode()).status_code == 200
    assert refused() == before
    assert send(server, f'{{"t": "{T}", "i": "x"}}\n'.encode()).status_code == 400
    assert send(server, b'{"a": 1}\n', path="/v1/streams/root.signed/tuples").status_code == 403
    assert refused() == before + 2


def test_a_signed_request_is_not_taken_twice(server: Server) -> None:
    """The attack: somebody who has the sender's token, but not the key, sends again what the sender signed."""
    mine = Ed25519PrivateKey.generate()
    public = mine.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    server.run(f"ALTER USER sam ADD KEY '{public}'")
    path, body, before = "/v1/streams/root.signed/tuples", b'{"a": 1}\n', server.parts.ingress.rows
    for number, status, taken in (("1", 200, 1), ("", 403, 0)):
        headers = {"Headgate-Producer": f"twice{number}", "Headgate-Sequence": number}
        message = signed_message("root.signed", "sam", f"twice{number}", number, body)
        headers["Headgate-Signature"] = base64.b64encode(mine.sign(message)).decode()
        for _ in range(2):
            assert send(server, body, path=path, **headers).status_code == status
        assert server.parts.ingress.rows == before + taken
        before += taken
    (audit,) = server.run("SHOW AUDIT LIMIT 20")
    repeated = "sequence number 1 was taken before; nothing is taken again"
    assert sum(repeated in row and "stream root.signed" in row for row in audit["rows"]) == 1
    assert sum("cannot publish: a signed request needs a sequence number" in row for row in audit["rows"]) == 2


def test_only_a_stream_with_that_source_is_published_to(server: Server) -> None:
    answer = send(server, b'{"a": 1}\n', path="/v1/streams/root.files/tuples")
    assert (answer.status_code, answer.json()["error"]["hint"]) == (409, "create it with `SOURCE publish`")


def test_other_forms_are_refused(server: Server) -> None:
    assert send(server, b"a,b\n", form="text/csv").status_code == 415


def test_large_requests_are_refused(server: Server) -> None:
    settings = server.parts.settings
    line = b'{"t": "2024-03-01T08:00:00Z"}\n'
    assert send(server, line * (settings.body_rows + 1)).status_code == 413
    with server.raw() as raw:
        head = f"POST {TUPLES} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token('sam')}\r\n"
        raw.sendall(f"{head}Content-Length: {1 << 40}\r\n\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")
    with server.raw() as raw:  # no length is announced, and no line ever ends
        raw.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
        answer = b""
        for _ in range(40):
            try:
                raw.sendall(chunk)
            except OSError:
                break
        answer = raw.recv(100)
        assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_line_with_very_many_keys_is_a_row_like_any_other(server: Server) -> None:
    keys = ", ".join(f'"k{n}": 1' for n in range(200_000))
    answer = send(server, f'{{"t": "{T}", {keys}}}\n'.encode())
    assert answer.json() == {"rows": 1, "repeat": False}


def test_deep_nesting_harms_nobody(server: Server) -> None:
    answer = send(server, f'{{"t": "{T}", "s": {"[" * 100_000}{"]" * 100_000}}}\n'.encode())
    assert answer.status_code in (200, 400)


def test_texts_keep_their_characters(server: Server) -> None:
    text = "naïve \u202e \x1b[31m \U0001f600"
    body = json.dumps({"t": T, "s": text}) + "\n"
    assert send(server, body.encode()).json() == {"rows": 1, "repeat": False}


def test_all_wrong_rows_are_named_at_once_whatever_is_wrong_with_them(server: Server) -> None:
    server.run(
        """CREATE STREAM mixed (a INT, t TIMESTAMP, lev STRING) EVENT TIME t LEVEL FROM lev SOURCE publish;
        GRANT VIEW OBJECT, PUBLISH ON STREAM mixed TO sender"""
    )
    lines = [
        {"a": 1, "t": T, "lev": "U"},
        {"a": 1, "t": T, "lev": "S"},
        {"a": 1.5, "t": T, "lev": "U"},
        {"a": 1, "lev": "U"},
        {"a": 1, "t": T, "lev": "S"},
    ]
    body = "".join(f"{json.dumps(x)}\n" for x in lines).encode()
    found = rows(send(server, body, path="/v1/streams/root.mixed/tuples"))
    assert [x["row"] for x in found] == [2, 3, 4, 5]
    assert "is not dominated by yours" in found[0]["message"] and "is not INT" in found[1]["message"]
