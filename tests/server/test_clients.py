"""The Python client and the command line at a server: everything one has rights for, with nothing but address and
password."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from conftest import PASSWORD
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from documents import ROOT

import headgate
from headgate.cli import main
from headgate.client import Answer, AsyncClient, Client, Received, aconnect, connect
from headgate.client.forms import Events
from headgate.client.profiles import Profiles, ServerProfile
from headgate.client.trust import seen
from headgate.client.wire import Malformed, Unreachable
from headgate.errors import AccessDenied, AuthenticationFailed, NotFound, TextError
from server.serving import Server
from server.test_results import opened, publish, received, stream_of

SCRIPT = """CREATE STREAM hall (n INT, at TIMESTAMP, text STRING) LABEL 'nurse' SOURCE publish;
GRANT VIEW OBJECT, PUBLISH ON STREAM hall TO sender;
GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM hall TO nurse"""


@pytest.fixture(scope="module", autouse=True)
def hall(server: Server) -> None:
    server.run(SCRIPT)


def connected(server: Server, user: str, **more: str) -> Client:
    found: Client = headgate.connect(
        server.address, user, PASSWORD, level="U", certificate=server.home / "tls" / "authority.pem", **more
    )
    return found


def test_rows_tables_and_frames_go_in_and_come_out(server: Server) -> None:
    with connected(server, "ned") as ned, connected(server, "sam") as sam:
        ned.execute("SUBSCRIBE TO root.hall")
        assert sam.publish("root.hall", [{"n": 1, "text": "a"}, {"n": 2}]) == 2
        assert sam.publish("root.hall", pa.table({"n": [3], "text": ["c"]})) == 1
        frame = pd.DataFrame({"n": [4], "at": pd.to_datetime(["2024-03-01T08:00:00Z"])})
        assert sam.publish("root.hall", frame) == 1
        received = ned.subscribe("root.hall")
        first = [next(received) for _ in range(4)]
        received.close()  # type: ignore[attr-defined]
        assert [x.values["n"] for x in first if x.values] == [1, 2, 3, 4]
        assert first[3].values is not None and first[3].values["at"] == "2024-03-01T08:00:00+00:00"
        assert [
            x.values["n"] for x in ned.subscribe("root.hall", after=first[1].position, follow=False) if x.values
        ] == [3, 4]
        table = ned.arrow("root.hall")
        assert table.column("n").to_pylist() == [1, 2, 3, 4]
        assert list(ned.pandas("root.hall")["text"]) == ["a", None, "c", None]


def test_errors_are_what_they_were_at_the_server(server: Server) -> None:
    with connected(server, "ned") as ned:
        with pytest.raises(NotFound, match=r"there is no stream root\.nosuch"):
            ned.execute("SUBSCRIBE TO root.nosuch")
        with pytest.raises(TextError, match="expected") as wrong:
            ned.execute("SHOW STREAMS;\nSHOW nothing")
        assert wrong.value.position is not None and (wrong.value.position.line, wrong.value.position.column) == (2, 6)
        with pytest.raises(AccessDenied):
            ned.publish("root.hall", [{"n": 1}])
        with pytest.raises(NotFound):
            next(ned.subscribe("root.nosuch"))
    with connected(server, "sam") as sam, pytest.raises(Malformed) as malformed:
        sam.publish("root.hall", [{"n": 1}, {"n": "x"}])
    assert isinstance(malformed.value, headgate.HeadgateError)
    assert malformed.value.rows == [{"row": 2, "message": 'n: `"x"` is not INT'}]
    with pytest.raises(AuthenticationFailed, match="login refused"):
        connected(server, "nobody")


def test_what_is_sent_again_is_not_taken_twice(server: Server) -> None:
    before = server.parts.ingress.rows
    with connected(server, "sam") as sam:
        for _ in range(2):  # as after a failure whose answer was lost
            publisher = sam.publisher("root.hall", producer="again")
            assert publisher.send([{"n": 10}]) == 1
    assert server.parts.ingress.rows == before + 1


def test_one_may_publish_for_ever(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are numbered under the name of a producer: one more for each call would be too many some day."""
    monkeypatch.setattr("headgate.ingress.sequence_numbers.MOST_PRODUCERS", 3)
    server.run(SCRIPT.replace("hall", "ever"))
    before = server.parts.ingress.rows
    with connected(server, "sam") as sam:
        for n in range(5):
            sam.publish("root.ever", [{"n": n}])

    async def send() -> None:
        certificate = server.home / "tls" / "authority.pem"
        async with await aconnect(server.address, "sam", PASSWORD, level="U", certificate=certificate) as again:
            for n in range(5):
                await again.publish("root.ever", [{"n": n}])

    asyncio.run(send())
    assert server.parts.ingress.rows == before + 10


def test_whoever_waits_for_results_is_told_why(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one subscribes before the engine is ready: until somebody has, it does not start."""
    server.run(SCRIPT.replace("hall", "waited"))
    said = list[str]()
    with connected(server, "ned") as ned:

        def told(text: str) -> None:
            said.append(text)
            if said[0] == "subscribed to stream root.waited":
                monkeypatch.setattr(server.engine, "is_ready", len(said) > 1)

        ned.told = told
        monkeypatch.setattr(server.engine, "is_ready", False)
        monkeypatch.setattr("headgate.client.client.STARTING_SECONDS", 30.0)
        assert list(ned.subscribe("root.waited", follow=False)) == []
    assert said == [
        "subscribed to stream root.waited",
        "cannot send results yet: the engine is starting; waiting for it",
    ]


def test_the_first_who_subscribes_in_an_event_loop_waits_for_the_engine(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.run(SCRIPT.replace("hall", "awaited"))
    execute = AsyncClient.execute

    async def subscribe(client: AsyncClient, script: str) -> list[Answer]:
        done = await execute(client, script)
        monkeypatch.setattr(server.engine, "is_ready", True)  # as the engine is when somebody has subscribed
        return done

    async def read() -> list[Received]:
        certificate = server.home / "tls" / "authority.pem"
        async with await aconnect(server.address, "ned", PASSWORD, level="U", certificate=certificate) as ned:
            monkeypatch.setattr(server.engine, "is_ready", False)
            monkeypatch.setattr(AsyncClient, "execute", subscribe)
            monkeypatch.setattr("headgate.client.async_client.STARTING_SECONDS", 5.0)
            return [x async for x in ned.subscribe("root.awaited", follow=False)]

    assert asyncio.run(read()) == []


def test_a_client_signs(server: Server) -> None:
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    server.run(
        f"""CREATE STREAM vault (n INT) SOURCE publish (signed = 'true');
        GRANT VIEW OBJECT, PUBLISH ON STREAM vault TO sender; ALTER USER sam ADD KEY '{public}'"""
    )
    with connected(server, "sam") as sam:
        assert sam.publisher("root.vault", key=key).send([{"n": 1}]) == 1
        with pytest.raises(AccessDenied):
            sam.publisher("root.vault", key=Ed25519PrivateKey.generate()).send([{"n": 1}])


def test_another_certificate_is_not_trusted(server: Server) -> None:
    with pytest.raises(Unreachable, match="cannot trust"):
        headgate.connect(server.address, "ned", PASSWORD)
    from headgate.server.certificates import own_certificate

    other = server.home.parent / "other"
    own_certificate(other, "127.0.0.1")
    for trust in ({"certificate": other / "authority.pem"}, {"pin": (other / "server.pem").read_text()}):
        with pytest.raises(Unreachable, match="cannot trust"):
            headgate.connect(server.address, "ned", PASSWORD, **trust)
    with headgate.connect(server.address, "ned", PASSWORD, pin=seen(server.address)) as ned:
        assert ned.user == "ned"


@pytest.fixture
def typed(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """A person of another machine: a folder for the client's settings, an address, a password."""
    monkeypatch.setenv("HEADGATE_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("HEADGATE_SERVER", server.address)
    monkeypatch.setenv("HEADGATE_PASSWORD", PASSWORD)
    monkeypatch.chdir(tmp_path)
    return CliRunner()


def test_the_command_line_works_at_a_server(typed: CliRunner, server: Server, tmp_path: Path) -> None:
    def run(*words: str, given: str = "", code: int = 0) -> Result:
        found = typed.invoke(main, words, input=given)
        assert found.exit_code == code, found.output
        return found

    first = run("login", "sam", "--level", "U")
    assert "is new to you; from now on its certificate must be SHA-256 " in first.stderr
    assert first.stdout == "sam is logged in\n"
    assert "is new" not in run("show", "session").stderr
    server.run(
        "CREATE STREAM desk (n INT) LABEL 'nurse' SOURCE publish; GRANT VIEW OBJECT, PUBLISH ON STREAM desk TO sender"
    )
    server.run("GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM desk TO nurse")
    run("login", "ned")
    assert run("run", "-", given="SUBSCRIBE TO root.desk").stdout == "subscribed to stream root.desk\n"
    run("login", "sam", "--level", "U")
    assert run("publish", "root.desk", given='{"n": 1}\n{"n": 2}\n').stdout == "2 tuples published\n"
    wrong = run("publish", "root.desk", given='{"n": 1}\n{"n": 2.5}\n', code=1)
    assert "error: row 2: n: `2.5` is not INT" in wrong.stderr
    run("login", "ned")
    shown = run("watch", "root.desk", "--json", "--most", "2").stdout.splitlines()
    assert [json.loads(line)["values"] for line in shown] == [{"n": 1}, {"n": 2}]
    assert "desk" in run("show", "streams").stdout
    assert "SOURCE root.desk" in run("explain", "SELECT n FROM root.desk").stdout
    assert "cannot do that at a server" in run("audit", "verify", code=1).stderr
    assert run("logout").stdout == "logged out\n"
    assert run("show", "streams", code=1).stderr == "error: nobody is logged in (run `headgate login USER` first)\n"
    assert not (tmp_path / ".headgate").exists()
    assert {oct(x.stat().st_mode & 0o777) for x in (tmp_path / "config").iterdir()} == {"0o600"}


def test_a_server_has_the_name_that_one_gives_it(
    typed: CliRunner, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        found = typed.invoke(main, words)
        return found.exit_code, found.stdout, found.stderr

    assert run("login", "ned", "--as", "ward")[:2] == (0, "ned is logged in\n")
    assert run("login", "sam", "--level", "U")[:2] == (0, "sam is logged in\n")  # another session at the same server
    monkeypatch.delenv("HEADGATE_SERVER")
    for name, user in (("ward", "ned"), (server.address, "sam")):
        code, shown, said = run("--server", name, "show", "session", "--json")
        assert (code, said) == (0, "") and f'"{user}"' in shown  # and its certificate is known
    Profiles().keep(ServerProfile("other", "https://elsewhere:1"))
    open_before = len(server.headgate.execute(server.token("root"), "SHOW SESSIONS")[0].rows)
    for name, reason in (("other", "that is https://elsewhere:1"), ("https://x", "a name has letters"), ("", "")):
        code, _, said = run("--server", "ward", "login", "ned", "--as", name)
        assert (code, reason in said) == (bool(reason), True)
    assert Profiles().find("other").url == "https://elsewhere:1"
    assert len(server.headgate.execute(server.token("root"), "SHOW SESSIONS")[0].rows) == open_before + 1
    assert run("login", "ned", "--as", "ward")[0] == 1  # in a home folder there is nothing to name


def test_without_a_home_folder_there_is_nothing_to_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(main, ["watch", "x"])
    assert (found.exit_code, found.stderr) == (
        1,
        "error: there is no Headgate in `.headgate` (run `headgate init` first)\n",
    )


def test_the_example_of_the_guide_works(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs/guide/server.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (script,) = re.findall(r"^(CREATE STREAM pulse .*?)^\$", text, re.DOTALL | re.MULTILINE)
    server.run(
        f"""CREATE USER joe PASSWORD '{PASSWORD}'; CREATE ROLE adder; GRANT ROLE adder TO USER joe;
        GRANT ADD ON SYSTEM TO adder; CREATE ROLE monitor;
        CREATE USER bed7 PASSWORD '{PASSWORD}'; GRANT ROLE monitor TO USER bed7"""
    )
    server.run(script, "joe")
    server.run("SUBSCRIBE TO joe.fast", "ned")
    server.publish({"pat": 7, "rate": 130, "policy": "nurse"}, user="bed7", stream="joe.pulse")
    with connected(server, "ned") as ned:
        next(ned.subscribe("joe.fast"))
    shutil.copy(server.home / "tls" / "authority.pem", tmp_path)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {"URL": server.address, "PASSWORD": PASSWORD}
    exec(code, found)  # noqa: S102
    assert "{'pat': 7, 'rate': 130}" in capsys.readouterr().out
    assert found["table"].column("pat").to_pylist() == [7] and found["publisher"].sequence == 2


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_reader_from_now_on_loses_nothing_if_its_connection_breaks_at_once(
    server: Server, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(server, f"broken_{kind}")
    publish(server, stream, range(2))
    with opened(server, stream) as answer:
        received(answer, 2)
    real, broken = Events.take, list[str]()

    def breaks(self: Events, line: str) -> Received | None:
        if not broken:  # the first line that comes; what is published now is not seen by this connection
            broken.append(line)
            publish(server, stream, range(2, 4))
            with opened(server, stream) as answer:
                received(answer, 4)  # they are out before the reader is back
            raise Unreachable("the connection broke")
        return real(self, line)

    monkeypatch.setattr(Events, "take", breaks)
    certificate = server.home / "tls" / "authority.pem"
    if kind == "sync":
        with connect(server.address, "ned", PASSWORD, certificate=certificate) as ned:
            results = ned.subscribe(stream, begin="now")
            found = [next(results).values for _ in range(2)]
            results.close()  # type: ignore[attr-defined]
    else:
        found = asyncio.run(two_from_now(server.address, certificate, stream))
    assert [x["n"] for x in found if x is not None] == [2, 3]


async def two_from_now(address: str, certificate: Path, stream: str) -> list[Any]:
    async with await aconnect(address, "ned", PASSWORD, certificate=certificate) as ned:
        results = ned.subscribe(stream, begin="now")
        found = [(await anext(results)).values for _ in range(2)]
        await results.aclose()  # type: ignore[attr-defined]
    return found


def test_python_trusts_what_the_command_line_accepted_and_nothing_at_first_sight(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_CONFIG", str(tmp_path))
    with pytest.raises(Unreachable) as caught:
        headgate.connect(server.address, "ned", PASSWORD)
    assert caught.value.message == f"cannot trust the server at {server.address}: no certificate of it was given"
    assert 'pass certificate="authority.pem"' in caught.value.hint
    Profiles().keep(ServerProfile("ward", server.address, seen(server.address)))
    with headgate.connect(f"{server.address}/", "ned", PASSWORD) as ned:
        assert ned.user == "ned"

    async def again() -> None:
        async with await aconnect(server.address, "ned", PASSWORD):
            pass

    asyncio.run(again())
