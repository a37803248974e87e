"""A Chord ring of a few nodes, stabilised."""

from __future__ import annotations

from headgate.sendlog.network import Network
from headgate.sendlog.programs import text
from headgate.sendlog.settings import Settings
from headgate.sendlog.values import Row

BITS = (0, 28, 29, 30, 31)


def ring(members: list[str], settings: Settings, *, others: tuple[str, ...] = (), rounds: int = 6) -> Network:
    """All members have joined through the first; `others` are principals that do not take part."""
    network = Network(text("chord", "pier"), ["ca", *members, *others], settings)
    network.insert({"ca": [("secret", ("ca", member, f"secret of {member}")) for member in members]})
    for member in members:
        facts: list[tuple[str, Row]] = [
            ("startNetwork", (member,)),
            ("publicKey", (member, f"key of {member}")),
            ("myCA", (member, "ca")),
        ]
        facts += [("landmark", (member, members[0])), *(("bit", (bit,)) for bit in BITS)]
        network.insert({member: facts})
    network.insert({members[0]: [("lead", (members[0],))]})
    network.run()
    for time in range(1, rounds + 1):
        network.tick(10.0 * time)
    return network


def identifiers(network: Network, members: list[str]) -> dict[str, int]:
    return {member: int(str(network.rows(member, "nodeID")[0][1])) for member in members}
