"""Damaged programs get an error with a position, damaged messages are counted; nothing else happens."""

from __future__ import annotations

import re
from random import Random

import pytest
from damage import Damage

from headgate.errors import HeadgateError
from headgate.sendlog.check import load
from headgate.sendlog.compiled import compile_program
from headgate.sendlog.network import Network
from headgate.sendlog.programs import NAMES, text
from headgate.sendlog.settings import Settings
from sendlog.golden import cases

DAMAGE = Damage(
    pieces=re.compile(r"[A-Za-z_0-9]+|\s+|:-|.", re.DOTALL),
    strange=[
        '"',
        "@",
        "::",
        ":-",
        "says",
        "/*",
        "\x00",
        "\ud800",
        "é",
        "At ",
        "not ",
        "f_sha(",
        "999999999999999999999",
    ],
    spare=[
        "X",
        "says",
        ",",
        ".",
        ":-",
        "(",
        ")",
        "@",
        "min<",
        ">",
        "not",
        "At",
        "3",
        '"t"',
        "f_sha",
        "::",
        "2 of",
        "_",
    ],
    brackets=[("(", ")"), ("[", "]"), ("f_sha(", ")"), ('"', '"')],
    depths=[1, 31, 33, 400, 5000],
    inside=["", "X", "1", "a,b"],
)
TEXTS = [case.text for case in cases(errors=False)] + [text(name) for name in NAMES]


def damaged(random: Random, given: str) -> str:
    for _ in range(random.randint(1, 3)):
        given = random.choice([DAMAGE.cut, DAMAGE.put_in, DAMAGE.tokens, DAMAGE.tokens, DAMAGE.nested, DAMAGE.grown])(
            random, given
        )[:50_000]
    return given


def refusal(given: str) -> HeadgateError | None:
    try:
        load(given)
    except HeadgateError as error:
        return error
    return None


def check_programs(seed: int, count: int) -> tuple[int, int]:
    random = Random(seed)
    read = refused = 0
    for _ in range(count):
        given = damaged(random, random.choice(TEXTS))
        fault = refusal(given)
        if fault is None:
            read += 1
            if read % 50 == 0:
                compile_program(load(given))
        else:
            assert fault.position is not None and "\n" not in str(fault), given
            refused += 1
    return read, refused


def check_messages(seed: int, count: int) -> None:
    random = Random(seed)
    rules = "At N,\np(X)@T :- tell(T,X).\nS says q(X)@T :- S says q(X), on(T).\n"
    rules += "heard(S,X) :- S says p(X).\nq(X)@T :- ask(T,X).\n"
    network = Network(rules, ["a", "b", "c"], Settings("ed25519", provenance="local"))
    kept: list[bytes] = []
    network.tap = lambda message: kept.append(message[2]) or [message]  # type: ignore[func-returns-value]
    network.insert(
        {"a": [("tell", ("b", (1, "x", 2.5))), ("ask", ("b", 7))], "b": [("on", ("c",)), ("tell", ("c", 3))]}
    )
    network.run()
    before = {name: node.snapshot().split(b'"traffic"')[0] for name, node in network.nodes.items()}
    for _ in range(count):
        data = bytearray(random.choice(kept))
        for _ in range(random.randint(1, 4)):
            place = random.randrange(len(data) + 1)
            match random.randrange(4):
                case 0:
                    data[place : place + 1] = bytes([random.randrange(256)])
                case 1:
                    del data[place : place + random.randint(1, 30)]
                case 2:
                    data[place:place] = random.choice([b"[", b"]", b'"', b"1e999", b"[" * 5000, b"\n", b"null", b"-1"])
                case _:
                    other = random.choice(kept)
                    data = data[:place] + other[random.randrange(len(other)) :]
        random.choice([*network.nodes.values()]).receive(bytes(data))
    network.tap = None
    counted = sum(network.rejected().values())
    assert counted >= count * 0.95, "all but acknowledgements and messages that were not changed are refused"
    after = {name: node.snapshot().split(b'"traffic"')[0] for name, node in network.nodes.items()}
    assert after == before


def test_damaged_programs_are_refused_with_a_position_or_read() -> None:
    read, refused = check_programs(1, 1500)
    assert read > 50 and refused > 500


def test_damaged_messages_are_counted_and_change_nothing() -> None:
    check_messages(1, 1500)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 20))
def test_a_hundred_thousand_damaged_programs_are_refused_with_a_position_or_read(seed: int) -> None:
    check_programs(seed, 10_000)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 20))
def test_a_hundred_thousand_damaged_messages_are_counted_and_change_nothing(seed: int) -> None:
    check_messages(seed, 10_000)
