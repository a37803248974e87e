"""Every rule printed in paper 003 (sections 2 to 4 and 6.2) parses and runs, and gives what the paper says.

Rules are as printed but for what cannot be meant: the full stop missing after ni2, `fl` for the label f1, and r1a,
whose head
renames what alice signed: `carry` says that this renaming is allowed.
"""

from __future__ import annotations

from headgate.sendlog.check import load
from headgate.sendlog.network import Network
from headgate.sendlog.programs import text
from headgate.sendlog.settings import Settings

BINDER = """
b1 may-access(P,O,read) :- good(P), object(O).
b2 may-access(P,O,read) :-
    bob says may-access(P,O,read).
"""
NDLOG = """
r1 reachable(@S,D) :- link(@S,D).
r2 reachable(@S,D) :- link(@S,Z), reachable(@Z,D).
"""
CONTEXTS = """
At N,
  r1 p :- p1,p2,pn.
  r2 p1 :- p2,p3,pn.
"""
CONDITIONS = """
At N, c1,c2,cn
  r1 p :- p1,p2,pn.
  r2 p1 :- p2,p3,pn.
"""
SECTION_3 = """
At N,
e1 p(X,Y) :- p1(X), p2(Y).
e2 q(X,Y,W) :- Y says p1(X), Z says p2(W), Z!=N.
e3 p(Y,Z)@X :- p1(X), Y says p2(Z).
e4 Z says v(Y)@X :- Z says v(Y), p1(X).
"""
CHORD = """
At NI,
  ni1 requestCert(NI,K)@CA :- startNetwork(NI),
    publicKey(NI,K), MyCA(NI,CA).
  ni2 nodeID(NI,N) :- CA says nodeIDCert(NI,N,K).
  ni3 CA says nodeIDCert(NI,N,K)@LI :-
    CA says nodeIDCert(NI,N,K),
    landmark(NI,LI).

At CA,
  ca1 nodeIDCert(NI,N,K)@NI :-
    NI says requestCert(NI,K),
    S=secret(CA,NI), N=f_generateID(K,S).

At LI,
  li1 acceptJoinRequest(NI) :-
    CA says nodeIDCert(NI,N,K).
"""
PIER = """
carry rehashA of storeA.
At alice,
  a1 storeA(X,Y)@NI :- tableA(X,Y), K=f_sha(X),
    NI=Chord::K.

At bob,
  b1 storeB(X,Y)@NI :- tableB(X,Y), K=f_sha(X),
    NI=Chord::K.

At NI,
  r1 results(X,Y)@r :- alice says storeA(X,Y),
    bob says storeB(Y,Z).

At NI,
r1a alice says rehashA(X,Y)@RI :-
    alice says storeA(X,Y),
    K=f_sha(Y), RI=Chord::K.
At RI:
r1b result(X,Y)@r :- alice says rehashA(X,Y),
    bob says storeB(Y,Z).
"""
FORWARDING = """
materialize(packet, 0).
materialize(start, 0).
At Router,
f1 packet(Pid, Dest, Data)@NextHop :-
    forwarding(Dest, NextHop), Router != Dest,
    P says packet(Pid, Dest, Data).
f2 packet(Pid, Dest, Data)@Router :- start(Pid, Dest, Data).
f3 log(Pid, P) :- P says packet(Pid, Dest, Data).
materialize(log, infinity).
"""


def test_binder_lets_the_good_and_those_whom_bob_names() -> None:
    network = Network(BINDER + "At bob,\nt may-access(P,O,read)@alice :- friend(P,O).", ["alice", "bob"])
    network.insert({"alice": [("good", ("carol",)), ("object", ("o",))], "bob": [("friend", ("dave", "o"))]})
    network.run()
    assert network.rows("alice", "may-access") == [("carol", "o", "read"), ("dave", "o", "read")]


def test_ndlog_computes_all_pairs_of_the_example_network() -> None:
    network = Network(NDLOG, ["a", "b", "c"])
    network.insert({"a": [("link", ("a", "b")), ("link", ("a", "c"))], "b": [("link", ("b", "c"))]})
    network.run()
    assert network.rows("a", "reachable") == [("a", "b"), ("a", "c")]
    assert network.rows("b", "reachable") == [("b", "c")]


def test_rules_run_in_the_context_of_whoever_meets_its_conditions() -> None:
    for program, names, expected in (
        (CONTEXTS, "p2 p3 pn", [()]),
        (CONDITIONS, "p2 p3 pn", []),
        (CONDITIONS, "p2 p3 pn c1 c2 cn", [()]),
    ):
        network = Network(program, ["n"])
        network.insert({"n": [(name, ()) for name in names.split()]})
        network.run()
        assert network.rows("n", "p") == expected


def test_the_rules_of_section_3_import_and_export() -> None:
    tells = "t1 p1(X)@T :- tell1(T,X).\nt2 p2(X)@T :- tell2(T,X).\nt3 v(X)@T :- tell3(T,X).\n"
    network = Network(SECTION_3 + tells, ["n", "y", "z", "x"])
    network.insert({"n": [("p1", ("x",)), ("p2", (1,)), ("tell2", ("n", 9))]})
    network.insert({"y": [("tell1", ("n", "left"))], "z": [("tell2", ("n", 7)), ("tell3", ("n", 8))]})
    network.run()
    assert network.rows("n", "p") == [("x", 1)]
    assert network.rows("n", "q") == [("left", "y", 7)], "9 was said by n itself"
    assert network.said("x", "p") == [("n", "n", 9), ("n", "z", 7)]
    assert network.said("x", "v") == [("z", 8)], "n forwarded it; z says it"


def test_the_path_vector_protocol_obeys_the_policies_of_both_sides() -> None:
    network = Network(text("path_vector"), ["a", "b", "c"])
    network.insert({"b": [("neighbor", ("b", "a")), ("neighbor", ("b", "c"))]})
    network.insert({"b": [("carryTraffic", ("b", "a", "c"))], "a": [("acceptRoute", ("a", "b", "c"))]})
    network.run()
    assert network.rows("b", "route") == [("b", "a", ("b", "a")), ("b", "c", ("b", "c"))]
    assert network.rows("a", "route") == [("a", "c", ("a", "b", "c"))], "z3 puts the neighbour in front"
    network.delete({"a": [("acceptRoute", ("a", "b", "c"))]})
    assert network.rows("a", "route") == []


def test_chord_gives_certified_identifiers_and_the_landmark_accepts() -> None:
    network = Network(CHORD, ["ca", "n", "l"])
    network.insert({"ca": [("secret", ("ca", "n", "s"))]})
    network.insert(
        {"n": [("startNetwork", ("n",)), ("publicKey", ("n", "k")), ("MyCA", ("n", "ca")), ("landmark", ("n", "l"))]}
    )
    network.run()
    ((_, identifier),) = network.rows("n", "nodeID")
    assert isinstance(identifier, int)
    assert network.said("l", "nodeIDCert") == [("ca", "n", identifier, "k")]
    assert network.rows("l", "acceptJoinRequest") == [("n",)]


def test_pier_joins_where_the_key_belongs() -> None:
    """An overlay of one rule: everything belongs to n."""
    overlay = """
    materialize(overlaySend, 0). materialize(overlayRecv, 0). materialize(put, 0).
    At N, o1 put(X)@n :- overlaySend("Chord",K,X). o2 overlayRecv("Chord",X) :- S says put(X).
    At r, got(X,Y) :- S says result(X,Y). got1(X,Y) :- S says results(X,Y).
    """
    network = Network(PIER + overlay, ["alice", "bob", "n", "r"])
    network.insert({"alice": [("tableA", (1, 2)), ("tableA", (3, 4))], "bob": [("tableB", (2, 5))]})
    network.run()
    assert network.rows("r", "got") == network.rows("r", "got1") == [(1, 2)]
    assert network.rejected() == {}


def test_packets_are_forwarded_hop_by_hop() -> None:
    network = Network(FORWARDING, ["a", "b", "c"])
    network.insert({"a": [("forwarding", ("c", "b"))], "b": [("forwarding", ("c", "c"))]})
    network.nodes["a"].insert("start", 1, "c", "data")
    network.run()
    assert {who: network.rows(who, "log") for who in "abc"} == {"a": [(1, "a")], "b": [(1, "a")], "c": [(1, "b")]}


def test_the_provenance_of_figure_4_is_a_plus_a_times_b() -> None:
    network = Network(text("reachability"), ["a", "b", "c"], Settings(provenance="distributed"))
    network.insert({"a": [("link", ("a", "b")), ("link", ("a", "c"))], "b": [("link", ("b", "c"))]})
    network.run()
    tree = network.why("a", "reachable", ("a", "c"))
    assert {use.rule for use in tree.uses} == {"s1", "s4"}
    assert str(tree.expression()) == "a + a*b"
    assert str(tree.expression().minimal()) == "a"
    assert {node.verified for node in tree.nodes() if node.speaker} == {True}


def test_the_rules_of_the_paper_are_all_checked() -> None:
    for program in (BINDER, NDLOG, CONTEXTS, CONDITIONS, SECTION_3, CHORD, PIER, FORWARDING):
        assert load(program).rules
