"""The work: which streams, which queries, who reads.

W1        one selection: SELECT patient, hr FROM hr WHERE hr > 120
W2        sixty people, each with a threshold and a role of their own, each with results of their own
W3, W3r   hr joined with bp on patient, at most a second apart; r: for three readers, by roles
W4, W4r   the average of the last 20 heart rates of a level, at every tuple; r: the same, where a reader's window
          holds only what that reader may see

The peers know no role expressions. They are given the strongest form of what their users would do: there are only
eight expressions, so each reader's query lists those that permit it. No peer parses a text while it is timed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WORKLOADS = ("W1", "W2", "W3", "W3r", "W4", "W4r")
ALARM = 120
NEAR_MICROS = 1_000_000
LAST = 20
LEVELS = 4
PEOPLE = 60

POLICIES: Mapping[str, Sequence[frozenset[str]]] = {
    text: tuple(frozenset(term.split("&")) for term in terms.split())
    for text, terms in {
        "R1": "R1",
        "R2": "R2",
        "R1 | R2": "R1 R2",
        "R1 & R3": "R1&R3",
        "R3 | R4": "R3 R4",
        "R2 & R4": "R2&R4",
        "R1 | R3 | R4": "R1 R3 R4",
        "(R1 & R2) | R4": "R1&R2 R4",
    }.items()
}
"""Text of the expression -> the sets of roles, of which one must be held completely."""


@dataclass(frozen=True)
class Reader:
    """A person who receives results: all of them where `roles` is None; of heart rates above `above`, where that is
    given."""

    name: str
    roles: frozenset[str] | None = None
    above: int | None = None

    @property
    def permitted(self) -> list[str]:
        """The expressions that permit this reader."""
        return [text for text, terms in POLICIES.items() if self.roles is None or any(t <= self.roles for t in terms)]


EVERYONE = Reader("all")
THREE = (
    Reader("r1", frozenset({"R1"})),
    Reader("r2", frozenset({"R2"})),
    Reader("r13", frozenset({"R1", "R3"})),
)
SIXTY = tuple(Reader(f"p{i:02}", frozenset({f"R{i % 4 + 1}"}), above=60 + i) for i in range(PEOPLE))


def readers_of(workload: str) -> Sequence[Reader]:
    if workload == "W1":
        return (Reader("all", above=ALARM),)
    if workload == "W2":
        return SIXTY
    return THREE if workload.endswith("r") else (EVERYONE,)


def streams_of(workload: str) -> Sequence[str]:
    return ("hr", "bp") if workload.startswith("W3") else ("hr",)


def columns_of(workload: str) -> Sequence[str]:
    """The columns of a result row, in this order; `average` is a double, all others are integers."""
    if workload.startswith("W3"):
        return ("patient", "hr", "bp")
    return ("lvl", "average") if workload.startswith("W4") else ("patient", "hr")


def known(workload: str) -> str:
    """The workload itself, or an error that names the existing ones."""
    if workload not in WORKLOADS:
        raise ValueError(f"`{workload}` is no workload; there are {', '.join(WORKLOADS)}")
    return workload
