"""Principals in one process, with a network between them that may lose, delay, repeat and reorder.

Deterministic: what happens to a message is drawn from a seeded generator. `run` delivers until nobody has anything to
say,
which is the distributed fixpoint. `tap` sees every message on its way and may change, drop or add some: the attacker.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random

from headgate.errors import HeadgateError
from headgate.sendlog.check import load
from headgate.sendlog.compiled import Compiled, compile_program
from headgate.sendlog.core import Rel
from headgate.sendlog.keys import Authority
from headgate.sendlog.node import Node
from headgate.sendlog.packets import proven
from headgate.sendlog.provenance import Tree, Use
from headgate.sendlog.settings import Settings
from headgate.sendlog.values import Row, shown_fact

Message = tuple[str, str, bytes]
"""Sender as the network knows it, receiver, bytes."""
Tap = Callable[[Message], list[Message]]
MAX_DELIVERIES = 50_000_000


@dataclass(frozen=True)
class Weather:
    """What the network does: probabilities of loss and repetition, and how long a message takes."""

    loss: float = 0.0
    repeat: float = 0.0
    delay: tuple[float, float] = (0.0, 0.0)
    seed: int = 1


class Network:
    """All principals of a program. Facts come by principal: `{"a": [("link", ("a", "b"))]}`."""

    def __init__(
        self,
        program: str | Compiled,
        principals: Iterable[str],
        settings: Settings | Mapping[str, Settings] | None = None,
        *,
        weather: Weather | None = None,
    ) -> None:
        self.settings = settings or Settings()
        tracing = isinstance(self.settings, Settings) and self.settings.provenance != "none"
        self.compiled = program if isinstance(program, Compiled) else compile_program(load(program), tracing=tracing)
        self.authority = Authority()
        self.nodes: dict[str, Node] = {}
        self.tap: Tap | None = None
        self.now = 0.0
        self.delivered = 0
        self._weather = weather or Weather()
        self._random = Random(self._weather.seed)  # noqa: S311 - weather is not secret
        self._on_the_way: list[tuple[float, int, Message]] = []
        self._order = 0
        for principal in principals:
            self.join(principal)

    def join(self, principal: str) -> Node:
        settings = self._settings(principal)
        keys = self.authority.enrol(principal, settings.scheme)
        self.nodes[principal] = Node(self.compiled, keys, settings)
        return self.nodes[principal]

    def restart(self, principal: str) -> Node:
        """The principal loses everything but its key, and begins its next epoch; its base facts must be given again."""
        old = self.nodes[principal]
        self.nodes[principal] = Node(self.compiled, old.keys, old.settings, epoch=old.channels.epoch + 1)
        return self.nodes[principal]

    def _settings(self, principal: str) -> Settings:
        return self.settings if isinstance(self.settings, Settings) else self.settings[principal]

    def insert(self, facts: Mapping[str, Iterable[tuple[str, Row]]]) -> None:
        for principal, rows in facts.items():
            self.nodes[principal].change(insert=rows)

    def delete(self, facts: Mapping[str, Iterable[tuple[str, Row]]]) -> None:
        for principal, rows in facts.items():
            self.nodes[principal].change(delete=rows)

    def run(self, until: float = float("inf")) -> None:
        """Delivers messages, and repeats unacknowledged ones, until there is none or the time has come."""
        while True:
            self._collect()
            if not self._on_the_way:
                again = [(p, to, data) for p, node in self.nodes.items() for to, data in node.channels.resend()]
                if not again or self.now >= until:
                    break
                for message in again:
                    self._post(message)
                continue
            if self._on_the_way[0][0] > until:
                break
            self.now = self._on_the_way[0][0]
            while self._on_the_way and self._on_the_way[0][0] <= self.now:  # what is due together is answered together
                self._deliver(heapq.heappop(self._on_the_way)[2])
        if until != float("inf"):
            self.now = until

    def tick(self, now: float) -> None:
        """Time passes for everyone, and what follows from it is delivered."""
        self.run(until=now)
        self.now = now
        for node in self.nodes.values():
            node.tick(now)
        self.run(until=now)

    def _collect(self) -> None:
        for principal, node in self.nodes.items():
            for to, data in node.outgoing():
                for message in self.tap((principal, to, data)) if self.tap else [(principal, to, data)]:
                    self._post(message)

    def _post(self, message: Message) -> None:
        weather, draw = self._weather, self._random
        for _ in range(1 + (draw.random() < weather.repeat)):
            if draw.random() >= weather.loss:
                self._order += 1
                heapq.heappush(self._on_the_way, (self.now + draw.uniform(*weather.delay), self._order, message))

    def _deliver(self, message: Message) -> None:
        self.delivered += 1
        if self.delivered > MAX_DELIVERIES:
            raise HeadgateError(f"cannot reach a fixpoint: more than {MAX_DELIVERIES:,} messages")
        node = self.nodes.get(message[1])
        if node is not None:
            node.receive(message[2])

    # Reading

    def rows(self, principal: str, name: str) -> list[Row]:
        return sorted(self.nodes[principal].rows(name), key=repr)

    def said(self, principal: str, name: str) -> list[Row]:
        return sorted(self.nodes[principal].said(name), key=repr)

    def rejected(self) -> dict[str, int]:
        """All refusals, by reason."""
        found: dict[str, int] = {}
        for node in self.nodes.values():
            for reason, count in node.traffic.rejected.items():
                found[reason] = found.get(reason, 0) + count
        return dict(sorted(found.items()))

    # Provenance

    def why(self, principal: str, name: str, row: Row) -> Tree:
        """The whole derivation tree of a tuple; what others said is asked of them, and signatures are verified."""
        node = self.nodes.get(principal)
        if node is None or row not in node.rows(name):
            raise HeadgateError(f"cannot explain `{shown_fact(name, row)}`: `{principal}` does not hold it")
        return self._verified(principal, node.tracing.tree(Rel(name), row, self._remote(principal, frozenset())))

    def _remote(self, asking: str, above: frozenset[tuple[str, str, Row]]) -> Callable[[str, Tree], Tree]:
        def ask(via: str, known: Tree) -> Tree:
            node, here = self.nodes.get(known.speaker), (asking, known.name, known.row)
            if node is None or here in above:
                return known
            for rel in node.engine.tables:
                fact = (asking, known.speaker, *known.row)
                if rel.kind == "out" and rel.name == known.name and fact in node.engine.rows(rel):
                    return node.tracing.tree(rel, fact, self._remote(known.speaker, above | {here}))
            if via not in (known.speaker, asking) and via in self.nodes:
                return self._remote(via, above | {here})(known.speaker, known)
            return known

        return ask

    def _verified(self, principal: str, tree: Tree) -> Tree:
        """Marks every statement by its signature, as the principal that imported it holds it."""
        uses = tuple([Use(use.rule, tuple([self._verified(tree.at, one) for one in use.body])) for use in tree.uses])
        verified = None
        if tree.speaker and tree.speaker != principal and principal in self.nodes:
            node = self.nodes[principal]
            proof = node.held.proof(tree.name, (tree.speaker, *tree.row))
            if proof is not None:
                found = proven(node.keys, proof)
                verified = found is not None and (found.speaker, found.row) == (tree.speaker, tree.row)
        return Tree(tree.at, tree.name, tree.row, tree.speaker, uses, verified)
