"""A label that names a role which does not exist hides its tuple: the owner of the stream is told, and nobody else."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from worlds.harness import RULES

from headgate.ingress.validation import Ingress, RawBatch
from headgate.labels import LEAST, parse_label
from headgate.levels.shepherd import Shepherd
from headgate.model.limits import Limits
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type
from headgate.recovery.counts import RunCounts
from headgate.recovery.dead_letters import DeadLetters
from headgate.recovery.unknown_roles import UnknownRoles, text_of
from server.serving import Server
from server.test_results import opened, received


def stream_of(server: Server, name: str) -> str:
    server.run(
        f"""CREATE STREAM {name} (n INT, policy STRING) LABEL FROM policy SOURCE publish;
        GRANT VIEW OBJECT, PUBLISH ON STREAM {name} TO sender;
        GRANT VIEW OBJECT, SUBSCRIBE, READ TUPLE ON STREAM {name} TO nurse"""
    )
    server.run(f"SUBSCRIBE TO root.{name}", "ned")
    return f"root.{name}"


def test_the_owner_is_told_once_and_the_tuple_is_no_rejected_row(server: Server) -> None:
    stream = stream_of(server, "misspelt")
    labels = ["nurze", "nurze | nurse", "nurze & ghost", "nurse"]
    for n, policy in enumerate(labels):
        assert server.publish({"n": n, "policy": policy}, stream=stream).status_code == 200
    with opened(server, stream) as answer:
        assert [x["data"]["values"]["n"] for x in received(answer, 2)] == [1, 3]
    with server.client("root") as client:
        lines = client.get(f"/v1/streams/{stream}/rejected").json()
    assert [x["reason"] for x in lines] == [text_of("nurze"), text_of("ghost")]
    with server.client("ned") as client:
        assert client.get(f"/v1/streams/{stream}/rejected").status_code == 403
    server.run("CREATE ROLE nurze; GRANT ROLE nurze TO USER ned")
    assert server.publish({"n": 4, "policy": "nurze | nurse"}, stream=stream).status_code == 200
    with opened(server, stream) as answer:
        assert [x["data"]["values"]["n"] for x in received(answer, 3)] == [1, 3, 4]


def reader_of(policy: str) -> Ingress:
    descriptor = StreamDescriptor(
        "s", (("policy", Type.STRING),), None, {"LABEL": "policy"}, policy=parse_label(policy)
    )
    return Ingress(descriptor, RULES, lambda _: 0)


def told(reader: Ingress, known: UnknownRoles, *labels: str) -> list[str]:
    reader.take(pa.table({"policy": pa.array(labels, pa.string())}), 0)
    return [x.reason for x in known.notes(frozenset({"nurse"}), {"s": reader})]


def test_what_labels_above_the_stream_name_is_not_for_its_owner() -> None:
    low, high = reader_of("nurse"), reader_of("nurse AT S")
    assert told(low, UnknownRoles(), "a AT U", "b AT C", "c AT S", "d") == [text_of("a"), text_of("d")]
    assert told(high, UnknownRoles(), "a AT U", "b AT C", "c AT S", "d AT TS") == [text_of(x) for x in "abc"]


def test_a_sender_that_makes_names_up_does_not_flood_the_owner() -> None:
    known, reader = UnknownRoles(), reader_of("nurse")
    names = [f"r{n}" for n in np.random.default_rng(1).permutation(3000)]
    counts = [len(told(reader, known, *names[begin : begin + 30])) for begin in range(0, 3000, 30)]
    assert sum(counts) == 100 and counts[:3] == [30, 30, 30]


def test_where_roles_are_not_known_nobody_is_told() -> None:
    reader, known = reader_of("nurse"), UnknownRoles()
    reader.take(pa.table({"policy": pa.array(["ghost"], pa.string())}), 0)
    assert known.notes(None, {"s": reader}) == [] and known.notes(frozenset(), {"s": reader}) == []


def test_the_owner_of_a_table_is_told_with_levels_apart() -> None:
    descriptor = StreamDescriptor("t", (("policy", Type.STRING),), None, {"LABEL": "policy"}, table=True)
    snapshot = SimpleNamespace(descriptors={"t": descriptor}, rules=RULES, roles=frozenset({"nurse"}))
    counts, whole = RunCounts(), RawBatch(pa.table({"policy": ["nurze", "nurse"]}))
    shepherd: Any = SimpleNamespace(
        _gate=SimpleNamespace(snapshot=lambda: snapshot),
        _read_table=lambda _: whole,
        _limits=Limits(),
        _setting=SimpleNamespace(stream_levels=dict),
        _lock=threading.Lock(),
        _letters=DeadLetters(counts),
        _own=counts,
        _unknown_roles=UnknownRoles(),
        unreadable={},
    )
    Shepherd._table(shepherd, LEAST, "t")
    Shepherd._table(shepherd, LEAST, "t")
    assert [x.reason for x in shepherd._letters.take()] == [text_of("nurze")]
