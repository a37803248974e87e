"""The programs that are shipped do what they say."""

from __future__ import annotations

from itertools import pairwise

import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from headgate.errors import NotFound
from headgate.sendlog.network import Network, Weather
from headgate.sendlog.programs import NAMES, text
from headgate.sendlog.settings import Settings
from sendlog.graphs import costs, topology
from sendlog.rings import identifiers, ring

OPEN = Settings("none")
MEMBERS = ["alice", "bob", "r", "n1", "n2", "n3", "n4", "n5"]


def test_an_unknown_program_is_not_found() -> None:
    with pytest.raises(NotFound, match="there is no program `zzz` "):
        text("zzz")
    assert all(text(name) for name in NAMES)


@pytest.mark.parametrize("weather", [Weather(), Weather(loss=0.2, repeat=0.2, delay=(0.01, 0.3))])
def test_best_paths_are_those_of_scipy(weather: Weather) -> None:
    names, facts = topology(12, 3, seed=4)
    network = Network(text("best_path"), names, Settings("hmac", keep=weather.loss > 0), weather=weather)
    network.insert(facts)
    network.run()
    distance = shortest_path(csr_array(costs(names, facts)))
    for i, name in enumerate(names):
        found = {row[1]: row[2] for row in network.rows(name, "best")}
        assert found == {names[j]: distance[i, j] for j in range(len(names)) if j != i}
        for _, to, cost, path in network.rows(name, "best"):
            assert isinstance(path, tuple) and path[0] == name and path[-1] == to
            steps = pairwise(path)
            assert cost == sum(costs(names, facts)[names.index(str(x))][names.index(str(y))] for x, y in steps)


def test_best_paths_follow_a_link_that_fails_and_returns() -> None:
    names, facts = topology(8, 3, seed=5)
    network = Network(text("best_path"), names, OPEN)
    network.insert(facts)
    network.run()
    before = {name: network.rows(name, "best") for name in names}
    _, (one, other, cost) = facts[names[0]][0]
    removed = {str(x): [("neighbor", (x, y, cost))] for x, y in ((one, other), (other, one))}
    network.delete(removed)
    network.run()
    left = {name: [f for f in found if f not in removed.get(name, [])] for name, found in facts.items()}
    distance = shortest_path(csr_array(costs(names, left)))
    for i, name in enumerate(names):
        found = {row[1]: row[2] for row in network.rows(name, "best")}
        assert found == {names[j]: distance[i, j] for j in range(len(names)) if j != i and distance[i, j] < 1e9}
    network.insert(removed)
    network.run()
    assert {name: network.rows(name, "best") for name in names} == before


def test_chord_forms_a_ring_and_finds_the_owner_of_a_key() -> None:
    network = ring(MEMBERS, Settings("ed25519"))
    ids = identifiers(network, MEMBERS)
    order = sorted(MEMBERS, key=lambda member: ids[member])
    for place, member in enumerate(order):
        assert network.rows(member, "succ")[0][1] == order[(place + 1) % len(order)]
        assert network.rows(member, "pred")[0][1] == order[place - 1]
    for key in (0, 2**31, 2**32 - 1, ids["r"], ids["bob"] + 1):
        network.nodes["n3"].insert("find", key)
        network.run()
        owner = next((m for m in order if ids[m] >= key), order[0])
        assert {row[2] for row in network.said("n3", "found") if row[1] == key} == {owner}
    assert network.rejected() == {}


def test_a_node_that_leaves_chord_is_forgotten() -> None:
    network = ring(MEMBERS[:5], OPEN)
    gone = network.nodes.pop("n2")
    for time in range(7, 40):
        network.tick(10.0 * time)
    left = [member for member in MEMBERS[:5] if member != "n2"]
    ids = identifiers(network, left)
    order = sorted(left, key=lambda member: ids[member])
    assert [network.rows(m, "succ")[0][1] for m in order] == [*order[1:], order[0]]
    assert gone.principal not in [row[0] for m in left for row in network.rows(m, "peer")]


def test_pier_joins_over_chord_with_both_layers_signed() -> None:
    network = ring(MEMBERS, Settings("ed25519"))
    a = [(f"x{i}", i % 4) for i in range(8)]
    b = [(i, f"z{i}") for i in range(3)]
    network.insert({"alice": [("tableA", row) for row in a], "bob": [("tableB", row) for row in b]})
    network.run()
    joined = sorted([(x, y, z) for x, y in a for k, z in b if y == k])
    assert network.rows("r", "results") == joined
    stored = {member: len(network.said(member, "storeA")) for member in MEMBERS}
    assert sum(stored.values()) == len(a) and max(stored.values()) < len(a), "the table is spread over the ring"
    network.delete({"alice": [("tableA", a[0])]})
    network.run()
    assert network.rows("r", "results") == [row for row in joined if row[0] != "x0"]
    assert network.rejected() == {}


def test_packets_can_be_traced_back_to_their_source() -> None:
    names, facts = topology(8, 3, seed=6)
    network = Network(text("best_path", "forwarding"), names, Settings("ed25519", provenance="local"))
    network.insert(facts)
    network.run()
    source, target = names[0], names[4]
    ((_, _, _, path),) = [row for row in network.rows(source, "best") if row[1] == target]
    network.nodes[source].insert("send", 7, target, "payload")
    network.run()
    ((_, via, _),) = network.rows(target, "delivered")
    assert isinstance(path, tuple) and via == path[-2]
    tree = network.why(target, "delivered", (7, via, "payload"))
    assert set(path) <= tree.expression().principals() | {target}
    carried = [node.at for node in tree.nodes() if node.name == "packet"]
    assert carried[0] == path[-2] and set(carried) == set(path[:-1])


def test_access_is_granted_delegated_voted_and_revoked() -> None:
    network = Network(text("access"), ["here", "there", "lab", "ann", "bea"])
    network.insert(
        {"here": [("object", ("o",)), ("object", ("vault",)), ("guarded", ("vault",)), ("authority", ("there",))]}
    )
    network.insert({"here": [("board", ("ann",)), ("board", ("bea",)), ("good", ("joe",))]})
    network.insert({"there": [("tell", ("here", "tim", "o", "write")), ("tell", ("here", "tim", "vault", "read"))]})
    network.insert(
        {"there": [("lend", ("here", "may-access", "lab", 0))], "lab": [("tell", ("here", "lou", "o", "read"))]}
    )
    network.insert({"ann": [("approve", ("here", "sue", "vault"))]})
    network.run()

    def granted() -> set[tuple[object, ...]]:
        return {row for row in network.rows("here", "may-access") if row[0] != "joe"}

    assert granted() == {("tim", "o", "write"), ("lou", "o", "read")}
    network.insert({"bea": [("approve", ("here", "sue", "vault"))]})
    network.run()
    assert ("sue", "vault", "read") in granted()
    network.insert({"there": [("unlend", ("here", "may-access", "lab"))]})
    network.run()
    assert granted() == {("tim", "o", "write"), ("sue", "vault", "read")}
    network.delete({"there": [("tell", ("here", "tim", "o", "write"))]})
    network.run()
    assert granted() == {("sue", "vault", "read")}


def test_a_name_is_believed_only_from_the_server_of_its_zone() -> None:
    network = Network(text("names"), ["c", "root", "org", "evil"])
    network.insert({"c": [("want", ("www.x.org",)), ("root", ("root",))], "root": [("zone", (".org", "org"))]})
    network.insert({"root": [("address", ("www.x.org", "6.6.6.6"))], "org": [("address", ("www.x.org", "10.0.0.1"))]})
    network.run()
    assert network.rows("c", "serves") == [("", "root"), (".org", "org")]
    assert network.rows("c", "answer") == [("www.x.org", "10.0.0.1")]
    lies = "At evil,\nl1 record(N,A)@c :- lie(N,A).\nl2 referral(Z,S)@c :- take(Z,S).\n"
    network = Network(text("names") + lies, ["c", "root", "org", "evil"])
    network.insert({"c": [("want", ("www.x.org",)), ("root", ("root",))], "root": [("zone", (".org", "org"))]})
    network.insert(
        {
            "org": [("address", ("www.x.org", "10.0.0.1"))],
            "evil": [("lie", ("www.x.org", "6.6.6.6")), ("take", (".org", "evil"))],
        }
    )
    network.run()
    assert network.rows("c", "answer") == [("www.x.org", "10.0.0.1")]
