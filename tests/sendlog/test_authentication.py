"""Keys, certificates, batches, order, restarts, revocation, soft state: what a node does at its edges."""

from __future__ import annotations

import pytest

from headgate.errors import HeadgateError
from headgate.sendlog import merkle
from headgate.sendlog.keys import Authority
from headgate.sendlog.network import Network, Weather
from headgate.sendlog.packets import Header, Statement, pack, proven, unpack
from headgate.sendlog.programs import text
from headgate.sendlog.settings import Settings

TELL = "At N,\np(X)@T :- tell(T,X).\nheard(S,X) :- S says p(X).\n"


def telling(settings: Settings, count: int = 5, **more: Weather) -> Network:
    network = Network(TELL, ["a", "b"], settings, **more)
    network.insert({"a": [("tell", ("b", i)) for i in range(count)]})
    network.run()
    return network


@pytest.mark.parametrize("scheme", ["none", "hmac", "ed25519", "rsa"])
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_statements_arrive_by_every_scheme_and_batch(scheme: str, batch: int) -> None:
    network = telling(Settings(scheme, batch=batch))
    assert network.rows("b", "heard") == [("a", i) for i in range(5)]
    assert network.nodes["a"].traffic.messages == {0: 1, 1: 5, 2: 3}[batch]
    assert network.rejected() == {}


def test_a_public_key_is_fetched_once() -> None:
    network = telling(Settings("ed25519", batch=1), count=20)
    assert network.nodes["b"].keys.fetched == 1
    assert network.authority.asked == 1


def test_a_second_key_for_a_principal_is_refused() -> None:
    authority = Authority()
    authority.enrol("a")
    with pytest.raises(HeadgateError, match="cannot certify `a`: this principal already has a key"):
        authority.enrol("a")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
def test_each_leaf_of_a_merkle_tree_leads_to_the_root(size: int) -> None:
    tree = merkle.levels([merkle.leaf(bytes([i])) for i in range(size)])
    for place, leaf in enumerate(tree[0]):
        path = merkle.path(tree, place)
        assert merkle.climbed(leaf, path) == merkle.root(tree)
        assert merkle.climbed(merkle.leaf(b"other"), path) != merkle.root(tree)


def test_each_statement_of_a_batch_is_proven_alone() -> None:
    authority = Authority()
    sender, reader = authority.enrol("a"), authority.enrol("c")
    statements = [Statement("+", "p", "a", (i,)) for i in range(7)]
    packet = unpack(pack(sender, "ed25519", Header("a", 1, "b", 1, 1), statements))
    for place, statement in enumerate(statements):
        proof = packet.proof(place)
        assert proven(reader, proof) == statement
        assert proven(reader, [*proof[:2], Statement("+", "p", "a", (99,)).listed(), *proof[3:]]) is None
        assert proven(reader, [proof[0], ["a", 1, "c", 1, 1], *proof[2:]]) is None
    assert proven(reader, None) is None and proven(reader, [1, 2, 3]) is None


def test_lost_repeated_and_delayed_messages_change_nothing() -> None:
    for seed in range(5):
        weather = Weather(loss=0.3, repeat=0.3, delay=(0.0, 1.0), seed=seed)
        network = telling(Settings("hmac", batch=1, keep=True), count=30, weather=weather)
        assert network.rows("b", "heard") == [("a", i) for i in sorted(range(30), key=lambda i: repr(("a", i)))]


def test_a_receiver_that_lost_everything_is_told_again() -> None:
    network = telling(Settings("ed25519"))
    network.restart("b")
    assert network.rows("b", "heard") == []
    network.insert({"a": [("tell", ("b", 9))]})
    network.run()
    assert network.rows("b", "heard") == [("a", i) for i in (0, 1, 2, 3, 4, 9)]


def test_what_a_sender_said_in_an_earlier_life_is_void() -> None:
    network = telling(Settings("ed25519"))
    network.restart("a")
    network.insert({"a": [("tell", ("b", 7))]})
    network.run()
    assert network.rows("b", "heard") == [("a", 7)]


def test_messages_of_an_earlier_life_of_the_receiver_are_stale() -> None:
    network = telling(Settings("ed25519"))
    kept: list[bytes] = []
    network.tap = lambda message: kept.append(message[2]) or [message]  # type: ignore[func-returns-value]
    network.insert({"a": [("tell", ("b", 8))]})
    network.run()
    network.restart("b")
    network.nodes["b"].receive(kept[0])
    assert network.rows("b", "heard") == []
    assert network.rejected() == {"stale": 1}


def test_a_revoked_principal_is_silent_at_once() -> None:
    network = telling(Settings("ed25519"))
    network.authority.revoke("a")
    network.nodes["b"].revoke("a")
    assert network.rows("b", "heard") == []
    network.insert({"a": [("tell", ("b", 9))]})
    network.run()
    assert network.rows("b", "heard") == []
    assert network.rejected() == {"forged": 1}


def test_soft_state_ends_unless_it_is_said_again() -> None:
    network = Network("materialize(p, 30).\n" + TELL, ["a", "b"], Settings("none"))
    network.insert({"a": [("tell", ("b", 1))]})
    network.run()
    for now in (10.0, 20.0, 60.0):
        network.tick(now)
    assert network.rows("b", "heard") == [("a", 1)]
    del network.nodes["a"]
    network.tick(80.0)
    assert network.rows("b", "heard") == [("a", 1)]
    network.tick(100.0)
    assert network.rows("b", "heard") == []


def test_a_base_fact_with_a_lifetime_ends() -> None:
    network = Network("materialize(q, 5).\nAt N,\np(X) :- q(X).\n", ["a"], Settings("none"))
    network.insert({"a": [("q", (1,))]})
    network.tick(4.0)
    assert network.rows("a", "p") == [(1,)]
    network.tick(5.0)
    assert network.rows("a", "p") == []


def test_batches_under_one_root_cost_few_bytes() -> None:
    bare = telling(Settings("none"), count=200).nodes["a"].traffic.bytes
    signed = telling(Settings("ed25519"), count=200).nodes["a"].traffic.bytes
    each = telling(Settings("ed25519", batch=1), count=200).nodes["a"].traffic.bytes
    alone = telling(Settings("none", batch=1), count=200).nodes["a"].traffic.bytes
    assert signed < 1.05 * bare < alone < each


def test_the_programs_of_two_nodes_may_differ_in_their_scheme() -> None:
    network = Network(TELL, ["a", "b"], {"a": Settings("ed25519"), "b": Settings("hmac")})
    network.insert({"a": [("tell", ("b", 1))], "b": [("tell", ("a", 2))]})
    network.run()
    assert network.rows("b", "heard") == [("a", 1)], "a signature is more than a MAC"
    assert network.rows("a", "heard") == [] and network.rejected() == {"too weak": 1}


def test_the_shipped_programs_need_no_authentication_to_mean_the_same() -> None:
    found = []
    for scheme in ("none", "hmac", "ed25519"):
        network = Network(text("reachability"), ["a", "b", "c"], Settings(scheme))
        network.insert({"a": [("link", ("a", "b"))], "b": [("link", ("b", "c"))], "c": [("link", ("c", "a"))]})
        network.run()
        found.append([network.rows(x, "reachable") for x in "abc"])
    assert found[0] == found[1] == found[2]
