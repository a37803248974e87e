"""Derivation trees: local and distributed, online and offline, verified; and what trust policies make of them."""

from __future__ import annotations

import pytest

from headgate.errors import HeadgateError
from headgate.sendlog.network import Network
from headgate.sendlog.programs import text
from headgate.sendlog.provenance import Expression, Tree
from headgate.sendlog.settings import Settings

CHAIN = {"a": [("link", ("a", "b"))], "b": [("link", ("b", "c"))], "c": [("link", ("c", "d"))]}


def reach(settings: Settings) -> Network:
    network = Network(text("reachability"), ["a", "b", "c", "d"], settings)
    network.insert(CHAIN)
    network.run()
    return network


@pytest.mark.parametrize("kind", ["local", "distributed"])
def test_a_tree_leads_to_the_base_facts_of_all_who_took_part(kind: str) -> None:
    network = reach(Settings("ed25519", provenance=kind))
    tree = network.why("a", "reachable", ("a", "d"))
    leaves = {(node.at, node.name, node.row) for node in tree.nodes() if not node.uses}
    assert leaves >= {("a", "link", ("a", "b")), ("b", "link", ("b", "c")), ("c", "link", ("c", "d"))}
    assert str(tree.expression().minimal()) == "a*b*c"


def test_local_provenance_travels_and_distributed_provenance_does_not() -> None:
    sizes = {
        kind: sum(node.traffic.bytes for node in reach(Settings("none", provenance=kind)).nodes.values())
        for kind in ("none", "distributed", "local")
    }
    assert sizes["none"] == sizes["distributed"] < sizes["local"]


def test_local_provenance_needs_nobody_else() -> None:
    network = reach(Settings("ed25519", provenance="local"))
    alone = {name: node for name, node in network.nodes.items() if name == "a"}
    network.nodes = alone
    assert str(network.why("a", "reachable", ("a", "d")).expression().minimal()) == "a*b*c"


def test_a_statement_in_a_tree_is_verified_by_its_signature() -> None:
    network = reach(Settings("ed25519", provenance="distributed"))
    said = [node for node in network.why("a", "reachable", ("a", "d")).nodes() if node.speaker]
    assert said and all(node.verified for node in said)
    network.nodes["a"].held.proof("reachable", ("b", "a", "d"))[2][3][1] = "z"
    said = [node for node in network.why("a", "reachable", ("a", "d")).nodes() if node.speaker == "b"]
    assert not all(node.verified for node in said)


def test_without_signatures_nothing_is_verified() -> None:
    network = reach(Settings("none", provenance="distributed"))
    assert {node.verified for node in network.why("a", "reachable", ("a", "d")).nodes()} == {None}


def test_what_is_not_there_has_no_tree() -> None:
    with pytest.raises(HeadgateError, match="cannot explain `reachable\\(a, z\\)`: `a` does not hold it"):
        reach(Settings(provenance="distributed")).why("a", "reachable", ("a", "z"))


def test_offline_provenance_outlives_its_tuples() -> None:
    network = reach(Settings("ed25519", provenance="local", offline=True))
    network.nodes["a"].now = 5.0
    network.delete({"c": [("link", ("c", "d"))]})
    network.run()
    assert network.rows("a", "reachable") == [("a", "b"), ("a", "c")]
    (bygone,) = [x for x in network.nodes["a"].tracing.archive if x.tree.row == ("a", "d")]
    assert str(bygone.tree.expression().minimal()) == "a*b*c" and bygone.until == 5.0
    online = reach(Settings("ed25519", provenance="local"))
    online.delete({"c": [("link", ("c", "d"))]})
    online.run()
    assert online.nodes["a"].tracing.archive == []


def test_a_trust_policy_refuses_what_cannot_do_without_a_principal() -> None:
    trusting = Settings("ed25519", provenance="local")
    wary = Settings("ed25519", provenance="local", distrust=frozenset({"c"}))
    network = Network(text("reachability"), ["a", "b", "c", "d"], trusting)
    network.nodes["a"].settings = wary
    network.insert(CHAIN)
    network.run()
    assert network.rows("a", "reachable") == [("a", "b"), ("a", "c")]
    assert network.rejected() == {"distrusted": 1}
    assert ("b", "d") in network.rows("b", "reachable")


def test_derivations_are_dropped_with_what_they_used() -> None:
    program = "p(X) :- q(X), not r(X).\np(X) :- s(X).\n"
    network = Network(program, ["a"], Settings(provenance="distributed"))
    network.insert({"a": [("q", (1,)), ("s", (1,))]})
    assert len(network.why("a", "p", (1,)).uses) == 2
    network.insert({"a": [("r", (1,))]})
    assert [use.rule for use in network.why("a", "p", (1,)).uses] == ["rule2"]
    network.delete({"a": [("r", (1,)), ("s", (1,))]})
    assert [use.rule for use in network.why("a", "p", (1,)).uses] == ["rule1"]


def test_a_tuple_that_supports_itself_is_explained_without_a_circle() -> None:
    program = "reach(X,Y) :- link(X,Y).\nreach(X,Y) :- reach(X,Z), reach(Z,Y).\n"
    network = Network(program, ["a"], Settings(provenance="distributed"))
    network.insert({"a": [("link", (1, 2)), ("link", (2, 1))]})
    tree = network.why("a", "reach", (1, 1))
    assert all(not node.uses for node in tree.nodes() if node.name == "link")
    assert len(list(tree.nodes())) < 100


def test_an_aggregate_is_explained_by_the_tuples_behind_it() -> None:
    network = Network(
        "n(X,count<Y>) :- link(X,Y).\nm(min<Y>) :- link(X,Y).\n", ["a"], Settings(provenance="distributed")
    )
    network.insert({"a": [("link", (1, 2)), ("link", (1, 3))]})
    (use,) = network.why("a", "n", (1, 2)).uses
    assert [tree.row for tree in use.body] == [(1, 2), (1, 3)]
    (use,) = network.why("a", "m", (2,)).uses
    assert [tree.row for tree in use.body] == [(1, 2)]


def test_expressions_are_sums_of_products() -> None:
    a, b, c = (Expression.of(x) for x in "abc")
    assert str(a.plus(a.times(b)).times(c)) == "a*b*c + a*c"
    assert a.plus(b).without("a") and not a.times(b).without("a")
    assert Tree("a", "p", (1,)).expression() == a
