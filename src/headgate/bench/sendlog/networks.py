"""The networks of paper 003, section 7, in one process: what is sent, and how long all nodes together compute.

Best paths (Figures 5 and 6), Chord (7, 8, 11, 12), the PIER join (9, 10, 13) and packet tracing (14, 15), with and
without authentication and provenance. Bytes are those of the messages; seconds are processor time, for neighbours on
the machine and a real network's waiting are not what is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import median

from headgate.sendlog.check import load
from headgate.sendlog.compiled import Compiled, compile_program
from headgate.sendlog.functions import ID_BITS
from headgate.sendlog.network import Network, Weather
from headgate.sendlog.programs import text
from headgate.sendlog.settings import Settings
from headgate.sendlog.values import Row

Facts = dict[str, list[tuple[str, Row]]]
BITS = (0, 26, 27, 28, 29, 30, 31)
PADDING = 640
PACKET = 800
SELECTIVITY = 16


@dataclass(frozen=True)
class Measured:
    """One network under one way of authentication: per node messages and bytes; `answer` is compared between ways."""

    nodes: int
    seconds: float
    messages: float
    bytes: float
    answer: object
    latency: float = 0.0


def topology(nodes: int, degree: int = 3, seed: int = 1) -> tuple[list[str], Facts]:
    """A ring, then random links up to the degree, as in section 7.2.1; links go both ways at one cost."""
    random = Random(seed)
    names = [f"n{i}" for i in range(nodes)]
    links = {(i, (i + 1) % nodes) for i in range(nodes)}
    while len(links) < nodes * degree // 2:
        i, j = random.sample(range(nodes), 2)
        if (j, i) not in links:
            links.add((i, j))
    facts: Facts = {name: [] for name in names}
    for i, j in sorted(links):
        cost = random.randint(1, 9)
        facts[names[i]].append(("neighbor", (names[i], names[j], cost)))
        facts[names[j]].append(("neighbor", (names[j], names[i], cost)))
    return names, facts


def best_path(nodes: int, settings: Settings) -> Measured:
    names, facts = topology(nodes)
    network = Network(_program(settings, "best_path"), names, settings)

    def work() -> object:
        network.insert(facts)
        network.run()
        return sorted((name, row[1], row[2]) for name in names for row in network.nodes[name].rows("best"))

    return _measure(network, work)


def chord(nodes: int, settings: Settings, *, lookups: int = 50) -> Measured:
    """A ring that has stabilised; then four rounds of maintenance, and lookups over links of 10 to 100 ms."""
    members = [f"n{i}" for i in range(nodes)]
    network = _ring(members, settings)
    before = _sent(network)
    start = time.process_time()
    for _ in range(4):
        network.tick(network.now + 10.0)
    taken = time.process_time() - start
    messages, size = (a - b for a, b in zip(_sent(network), before, strict=True))
    random, delays = Random(2), []
    for _ in range(lookups):
        asked, begun = network.nodes[random.choice(members)], network.now
        key = random.randrange(1 << ID_BITS)
        asked.insert("find", key)
        network.run()
        if not any(row[1] == key for row in asked.said("found")):
            raise RuntimeError("a lookup was not answered")
        delays.append(network.now - begun)
    return Measured(nodes, taken, messages / nodes, size / nodes, len(delays), median(delays))


def pier(rows: int, settings: Settings, *, nodes: int = 16) -> Measured:
    """Two tables of so many padded tuples, joined over a ring of 16 nodes."""
    members = ["alice", "bob", "r", *(f"n{i}" for i in range(nodes - 3))]
    network = _ring(members, settings, "pier")
    a: list[tuple[str, Row]] = [("tableA", (f"{i}".ljust(PADDING, "a"), i % SELECTIVITY)) for i in range(rows)]
    b: list[tuple[str, Row]] = [("tableB", (i % SELECTIVITY, f"{i}".ljust(PADDING, "b"))) for i in range(rows)]

    def work() -> object:
        network.insert({"alice": a, "bob": b})
        network.run()
        return len(network.nodes["r"].rows("results"))

    found = _measure(network, work)
    if found.answer != sum(1 for x in a for y in b if x[1][1] == y[1][0]):
        raise RuntimeError("the join is not complete")
    return found


def tracing(nodes: int, settings: Settings, *, packets: int = 200) -> Measured:
    """Packets of 800 bytes between random nodes, over best paths that have converged."""
    names, facts = topology(nodes)
    network = Network(_program(settings, "best_path", "forwarding"), names, settings)
    network.insert(facts)
    network.run()
    random, delivered = Random(3), []

    def work() -> object:
        for i in range(packets):
            source, target = random.sample(names, 2)
            start = time.process_time()
            network.nodes[source].insert("send", i, target, "d" * PACKET)
            network.run()
            delivered.append(time.process_time() - start)
        return sum(len(network.nodes[name].rows("delivered")) for name in names)

    found = _measure(network, work)
    if found.answer != packets:
        raise RuntimeError("packets were lost")
    return Measured(nodes, found.seconds, found.messages, found.bytes, found.answer, median(delivered))


def _ring(members: list[str], settings: Settings, *more: str) -> Network:
    """A Chord ring whose members know their neighbours; all of them have joined through the first."""
    weather = Weather(delay=(0.01, 0.1))
    network = Network(_program(settings, "chord", *more), ["ca", *members], settings, weather=weather)
    network.insert({"ca": [("secret", ("ca", member, f"secret of {member}")) for member in members]})
    for member in members:
        facts: list[tuple[str, Row]] = [("startNetwork", (member,)), ("publicKey", (member, f"key of {member}"))]
        facts += [("myCA", (member, "ca")), ("landmark", (member, members[0]))]
        network.insert({member: facts + [("bit", (bit,)) for bit in BITS]})
    network.insert({members[0]: [("lead", (members[0],))]})
    network.run()
    for _ in range(6):
        network.tick(network.now + 10.0)
    ids = sorted((network.rows(m, "nodeID")[0][1], m) for m in members)
    for place, (_, member) in enumerate(ids):
        after, before = ids[(place + 1) % len(ids)][1], ids[place - 1][1]
        if (network.rows(member, "succ")[0][1], network.rows(member, "pred")[0][1]) != (after, before):
            raise RuntimeError("the ring did not stabilise")
    return network


def _program(settings: Settings, *names: str) -> Compiled:
    return compile_program(load(text(*names)), tracing=settings.provenance != "none")


def _sent(network: Network) -> tuple[int, int]:
    nodes = network.nodes.values()
    return sum(n.traffic.messages for n in nodes), sum(n.traffic.bytes for n in nodes)


def _measure(network: Network, work: Callable[[], object]) -> Measured:
    before, start = _sent(network), time.process_time()
    answer = work()
    taken = time.process_time() - start
    messages, size = (a - b for a, b in zip(_sent(network), before, strict=True))
    if network.rejected():
        raise RuntimeError(f"messages were refused: {network.rejected()}")
    nodes = len(network.nodes)
    return Measured(nodes, taken, messages / nodes, size / nodes, answer)
