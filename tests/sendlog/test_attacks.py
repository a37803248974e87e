"""Each attack succeeds where `says` is a bare name, and fails and is counted where it is authenticated."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from headgate.errors import TextError
from headgate.sendlog.check import load
from headgate.sendlog.compiled import compile_program
from headgate.sendlog.desugar import core
from headgate.sendlog.keys import Authority
from headgate.sendlog.network import Network
from headgate.sendlog.node import Node
from headgate.sendlog.packets import Header, Statement, pack
from headgate.sendlog.parser import parse
from headgate.sendlog.programs import text
from headgate.sendlog.settings import Settings
from sendlog.attackers import MALLORY, altering, renumbered, send_as
from sendlog.rings import identifiers, ring

OFF, ON = Settings("none"), Settings("ed25519")
SCHEMES = ["hmac", "ed25519", "rsa"]
TOPOLOGY = {
    "a": [("neighbor", ("a", "b", 1))],
    "b": [("neighbor", ("b", "a", 1)), ("neighbor", ("b", "c", 5))],
    "c": [("neighbor", ("c", "b", 5))],
}
HONEST = [("a", "b", 1, ("a", "b")), ("a", "c", 6, ("a", "b", "c"))]


def routes(scheme: str) -> Network:
    network = Network(text("best_path"), ["a", "b", "c", MALLORY], Settings(scheme))
    network.insert(TOPOLOGY)
    return network


def test_a_forged_route_is_taken_without_authentication() -> None:
    network = routes("none")
    network.run()
    for number in range(1, 6):
        send_as(network, "b", "a", Statement("+", "advertise", "b", ("c", 0, ("b", "c"))), number=number)
    assert ("a", "c", 1, ("a", "b", "c")) in network.rows("a", "best")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_forged_route_is_refused_with_authentication(scheme: str) -> None:
    network = routes(scheme)
    network.run()
    for number in (1, 2, 3, 99):
        send_as(network, "b", "a", Statement("+", "advertise", "b", ("c", 0, ("b", "c"))), number=number)
    assert network.rows("a", "best") == HONEST
    assert network.rejected() == {"forged": 4}


def cheaper(statements: list[Any]) -> list[Any]:
    return [[op, name, who, [to, 0, path], *more] for op, name, who, (to, _, path), *more in statements]


def test_an_altered_path_is_taken_without_authentication() -> None:
    network = routes("none")
    network.tap = altering(cheaper, "b", "a")
    network.run()
    assert ("a", "c", 1, ("a", "b", "c")) in network.rows("a", "best")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_altered_path_is_refused_with_authentication(scheme: str) -> None:
    network = routes(scheme)
    network.tap = altering(cheaper, "b", "a")
    network.run()
    assert network.rows("a", "best") == HONEST[:1]
    assert network.rejected()["forged"] >= 1


def replayed(scheme: str) -> tuple[Network, bytes]:
    """A route was advertised and taken back; the first message is still in somebody's hands."""
    network = routes(scheme)
    seen: list[bytes] = []

    def tap(message: tuple[str, str, bytes]) -> list[tuple[str, str, bytes]]:
        if message[:2] == ("b", "a") and b'"+","advertise"' in message[2]:
            seen.append(message[2])
        return [message]

    network.tap = tap
    network.run()
    network.delete({"b": [("neighbor", ("b", "c", 5))]})
    network.run()
    assert network.rows("a", "best") == HONEST[:1]
    return network, seen[-1]


def test_a_replayed_advertisement_is_taken_without_authentication() -> None:
    network, message = replayed("none")
    for number in range(1, 9):
        network.nodes["a"].receive(renumbered(message, number))
    assert network.rows("a", "best") == HONEST


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_replayed_advertisement_is_refused_with_authentication(scheme: str) -> None:
    network, message = replayed(scheme)
    network.nodes["a"].receive(message)
    for number in range(1, 9):
        network.nodes["a"].receive(renumbered(message, number))
    network.nodes["c"].receive(message)
    assert network.rows("a", "best") == HONEST[:1]
    rejected = network.rejected()
    assert rejected["misaddressed"] == 1
    assert rejected["replayed"] + rejected["forged"] == 9 and rejected["replayed"] >= 1


MEMBERS = ["alice", "bob", "r", "n1"]
CHOSEN = 12345


def claim(network: Network) -> None:
    """Mallory brings a certificate that the authority never gave."""
    false = Statement("+", "nodeIDCert", "ca", (MALLORY, CHOSEN, "any key"))
    send_as(network, MALLORY, "alice", false)


def test_a_node_identifier_of_choice_is_taken_without_authentication() -> None:
    network = ring(MEMBERS, OFF, others=(MALLORY,))
    claim(network)
    assert (MALLORY, CHOSEN) in network.rows("alice", "peer")


def test_a_node_identifier_of_choice_is_refused_with_authentication() -> None:
    network = ring(MEMBERS, ON, others=(MALLORY,))
    claim(network)
    assert MALLORY not in [row[0] for row in network.rows("alice", "peer")]
    assert network.rejected() == {"misattributed": 1}


def test_the_rule_printed_in_the_paper_lets_anyone_certify_since_its_ca_is_a_variable() -> None:
    """li1 names no authority: `CA says` holds for whoever says it. Our program binds CA with `myCA`."""
    printed = "At LI,\nli1 acceptJoinRequest(NI) :- CA says nodeIDCert(NI,N,K).\n"
    network = Network(printed, ["l", MALLORY], ON)
    send_as(network, MALLORY, "l", Statement("+", "nodeIDCert", MALLORY, (MALLORY, CHOSEN, "any key")))
    assert network.rows("l", "acceptJoinRequest") == [(MALLORY,)]


def inject(network: Network) -> None:
    """A tuple of alice's table that is not alice's, sent straight to every node as if the overlay had carried it."""
    mallory = network.nodes[MALLORY]
    for member in MEMBERS:
        header = Header("alice", 1, "Chord::1", 0, 4711)
        packet = pack(mallory.keys, mallory.settings.scheme, header, [Statement("+", "storeA", "alice", (666, 1))])
        body, _, tag = packet.partition(b"\n")
        wrapped = body.decode() + "\n" + base64.b64encode(tag).decode()
        network.nodes[member]._unwrap(wrapped)
    network.run()


def joined(settings: Settings) -> Network:
    network = ring(MEMBERS, settings, others=(MALLORY,))
    network.insert({"alice": [("tableA", (5, 1))], "bob": [("tableB", (1, 9))]})
    network.run()
    assert network.rows("r", "results") == [(5, 1, 9)]
    return network


def test_an_injected_pier_tuple_reaches_the_answer_without_authentication() -> None:
    network = joined(OFF)
    inject(network)
    assert (666, 1, 9) in network.rows("r", "results")


def test_an_injected_pier_tuple_is_refused_with_authentication() -> None:
    network = joined(ON)
    inject(network)
    assert network.rows("r", "results") == [(5, 1, 9)]
    assert network.rejected() == {"forged": len(MEMBERS)}


HONEST_RULES = "At r,\nok(X) :- alice says may(X).\n"
DISHONEST = "At mallory,\nr1 alice says may(X)@r :- wish(X).\n"


def with_a_liar(scheme: str) -> Network:
    """Mallory runs a program that no check ever saw."""
    network = Network(HONEST_RULES, ["r", "alice"], Settings(scheme))
    keys = network.authority.enrol(MALLORY, scheme)
    network.nodes[MALLORY] = Node(compile_program(core(parse(DISHONEST))), keys, Settings(scheme))
    network.insert({MALLORY: [("wish", (1,))]})
    network.run()
    return network


def test_a_false_says_in_a_rule_head_does_not_pass_the_check() -> None:
    with pytest.raises(TextError, match="rule `r1` is dishonest: it lets `alice` speak"):
        load(DISHONEST)


def test_a_false_says_in_a_rule_head_is_believed_without_authentication() -> None:
    assert with_a_liar("none").rows("r", "ok") == [(1,)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_false_says_in_a_rule_head_is_refused_with_authentication(scheme: str) -> None:
    network = with_a_liar(scheme)
    assert network.rows("r", "ok") == []
    assert network.rejected() == {"misattributed": 1}


# More attempts


def test_a_message_below_the_level_of_its_reader_is_refused() -> None:
    network = routes("ed25519")
    network.run()
    bare = pack(
        network.nodes[MALLORY].keys, "none", Header("b", 1, "a", 1, 1), [Statement("+", "advertise", "b", ("c", 0, ()))]
    )
    network.nodes["a"].receive(bare)
    assert network.rows("a", "best") == HONEST
    assert network.rejected() == {"too weak": 1}


def test_a_mac_cannot_be_forwarded_as_a_proof() -> None:
    rules = "At N,\nv(X)@b :- fact(X).\nAt b,\nS says v(X)@c :- S says v(X).\nAt c,\nheard(S,X) :- S says v(X).\n"
    for scheme, heard, rejected in (("ed25519", [("a", 1)], {}), ("hmac", [], {"misattributed": 1})):
        network = Network(rules, ["a", "b", "c"], Settings(scheme))
        network.insert({"a": [("fact", (1,))]})
        network.run()
        assert network.rows("c", "heard") == heard
        assert network.rejected() == rejected


def test_a_principal_without_a_certificate_is_not_heard() -> None:
    network = routes("ed25519")
    stranger = Authority().enrol("b2")
    network.nodes["a"].receive(
        pack(stranger, "ed25519", Header("b2", 1, "a", 1, 1), [Statement("+", "advertise", "b2", ("c", 0, ()))])
    )
    assert network.rejected() == {"forged": 1}


def test_identifiers_come_from_the_authority_and_differ() -> None:
    network = ring(MEMBERS, ON, rounds=2)
    assert len(set(identifiers(network, MEMBERS).values())) == len(MEMBERS)
