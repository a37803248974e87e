"""A principal: its engine, its keys, and the operators at its edges (paper 003, Figure 1).

A node does no input or output and has no clock: bytes go in by `receive`, bytes come out by `outgoing`, time comes by
`tick`. The simulated network, Spark's tasks and real processes all drive the same node. SigGenerator is `_export`,
SigChecker is `_import`, LocSpecDemux and the overlay operators are `_route` and `_unwrap`.
"""

from __future__ import annotations

import base64
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from headgate.errors import HeadgateError
from headgate.sendlog.channels import Channels
from headgate.sendlog.compiled import Compiled
from headgate.sendlog.core import Rel
from headgate.sendlog.derivations import Fact
from headgate.sendlog.engine import Changes, Diverged, Engine
from headgate.sendlog.held import Held, row_of
from headgate.sendlog.keys import LEVELS, KeyRing
from headgate.sendlog.packets import DELETE, EVENT, HELLO, INSERT, Header, Packet, Statement, pack, proven, unpack
from headgate.sendlog.provenance import Tree
from headgate.sendlog.settings import Settings, Traffic
from headgate.sendlog.tracing import Tracing
from headgate.sendlog.values import Row, Value, canonical, decoded, encoded

OVERLAY_SEND, OVERLAY_RECEIVE = "overlaySend", "overlayRecv"


class Node:
    def __init__(self, compiled: Compiled, keys: KeyRing, settings: Settings | None = None, *, epoch: int = 1) -> None:
        self.settings = settings or Settings()
        self.keys, self.principal = keys, keys.principal
        self.core = compiled.core
        self.traffic = Traffic()
        self.now = 0.0
        self.channels = Channels(self.principal, epoch, keep=self.settings.keep)
        self.engine = Engine(compiled, self.principal, limit=self.settings.limit)
        self.tracing = Tracing(self.principal, self.engine, offline=self.settings.offline)
        self.held = Held()
        self._refreshed: dict[str, float] = {}
        self._seen: set[tuple[str, int, int]] = set()
        self._overlay_number = 0
        self._own: deque[tuple[list[Fact], list[Fact]]] = deque()
        self._busy = False
        self._waiting: list[tuple[str, str, Statement]] = []
        self._ready: list[tuple[str, bytes]] = []
        self._stored = {rel for rel in compiled.rels if rel.kind == "said"}
        self._arities = {rel.name: n for rel, n in _arities(compiled)}
        self.tracing.remember(self.engine.initial.inserted)
        self._export(self.engine.initial)

    # Facts

    def change(self, insert: Iterable[tuple[str, Row]] = (), delete: Iterable[tuple[str, Row]] = ()) -> None:
        """Base facts of this principal come and go."""
        new = [(Rel(name), row) for name, row in insert]
        for fact in new:
            self._live(fact)
        self._apply(new, [(Rel(name), row) for name, row in delete])

    def insert(self, name: str, *row: Value) -> None:
        self.change(insert=[(name, row)])

    def delete(self, name: str, *row: Value) -> None:
        self.change(delete=[(name, row)])

    def rows(self, name: str) -> set[Row]:
        return self.engine.rows(Rel(name))

    def said(self, name: str) -> set[Row]:
        """What was said to this principal: the speaker, then the arguments."""
        return self.engine.rows(Rel(name, "said"))

    def tick(self, now: float) -> None:
        """Time passes: soft state ends, exported soft state is said again, and `tick(Now)` events fire."""
        self.now = now
        gone = self.held.expired(now)
        event = Rel("tick")
        fired: list[Fact] = [(event, (canonical(now),))] if self.core.is_event("tick") else []
        self._apply(fired, gone)
        for name, table in self.core.tables.items():
            if table.lifetime and now - self._refreshed.get(name, 0.0) >= table.lifetime / 2:
                self._refreshed[name] = now
                self._say(name, INSERT, None)

    def revoke(self, principal: str) -> None:
        """A principal's key is no longer trusted: what it said is gone at once, and its cached key too."""
        self.keys.forget(principal)
        gone = self.held.said_by(principal)
        self.held.forget(gone)
        self._apply([], gone)

    # Sending

    def outgoing(self) -> list[tuple[str, bytes]]:
        """Messages to be delivered, each with its receiver; the same scheme and receiver share a batch."""
        groups: dict[tuple[str, str], list[Statement]] = {}
        for receiver, scheme, statement in self._waiting:
            groups.setdefault((receiver, scheme), []).append(statement)
        self._waiting = []
        for (receiver, scheme), statements in groups.items():
            size = self.settings.batch or len(statements)
            for start in range(0, len(statements), size):
                header = self.channels.header(receiver, scheme)
                data = pack(self.keys, scheme, header, statements[start : start + size])
                self.channels.sent(header, scheme, data)
                self._ready.append((receiver, data))
        ready, self._ready = self._ready, []
        self.traffic.messages += len(ready)
        self.traffic.bytes += sum(len(data) for _, data in ready)
        return ready

    def _apply(self, insert: list[Fact], delete: list[Fact]) -> None:
        """Changes the tables, and exports. What is for this node itself follows when all exports are made, in order."""
        self._own.append((insert, delete))
        if self._busy:
            return
        self._busy = True
        try:
            while self._own:
                changes = self.engine.apply(*self._own.popleft())
                self.tracing.went(changes.deleted, self.now)
                self.tracing.remember(changes.inserted)
                self._export(changes)
        finally:
            self._busy = False
            self._own.clear()

    def _export(self, changes: Changes) -> None:
        """Retractions first, so that a better tuple replaces the one it beats."""
        for op, found in ((DELETE, changes.deleted), (INSERT, changes.inserted)):
            for rel, rows in found.items():
                if rel.kind == "out":
                    for row in sorted(rows, key=repr):
                        self._send(rel, row, op)
        for rel, row in changes.sent:
            self._send(rel, row, EVENT if self.core.is_event(rel.name) else INSERT)
        for packet in changes.received:
            self._unwrap(packet)

    def _send(self, rel: Rel, row: Row, op: str) -> None:
        to, speaker, values = row[0], row[1], row[2:]
        if not isinstance(to, str) or not isinstance(speaker, str):
            self.traffic.rejected["no address"] += 1
            return
        proof = None
        if speaker != self.principal:
            sources = (rel.name, *sorted(self.core.carries.get(rel.name, ())))
            proof = next((p for s in sources if (p := self.held.proof(s, (speaker, *values)))), None)
        tree = None
        if self.settings.provenance in ("local", "statements") and op != DELETE:
            found = self.tracing.tree(rel, row, statements=self.settings.provenance == "statements")
            tree = found.listed(Tree(speaker, rel.name, values, speaker))
        self.traffic.statements += 1
        self._route(to, rel, Statement(op, rel.name, speaker, values, tree, proof))

    def _route(self, to: str, rel: Rel, statement: Statement) -> None:
        """LocSpecDemux: this node itself, a node of the network, or a key of an overlay."""
        scheme = self._scheme(rel.level)
        overlay, found, key = to.partition("::")
        if to == self.principal:
            holds: dict[Fact, bool] = {}
            self._take(self.principal, statement, self.settings.level, None, holds)
            self._change(holds)
        elif found:
            self._overlay_number += 1
            header = Header(self.principal, self.channels.epoch, to, 0, self._overlay_number)
            text, _, tag = pack(self.keys, scheme, header, [statement]).partition(b"\n")
            wrapped = text.decode() + "\n" + base64.b64encode(tag).decode()
            target: Value = int(key) if key.isdigit() else key
            self._apply([(Rel(OVERLAY_SEND), (overlay, target, wrapped))], [])
        else:
            self._waiting.append((to, scheme, statement))

    def _scheme(self, level: int | None) -> str:
        if level is None or level == self.settings.level:
            return self.settings.scheme
        return ("none", "hmac", self.keys.signature_scheme)[level]

    def _say(self, name: str, op: str, receiver: str | None) -> None:
        """Everything exported now, again: to one receiver, or of one predicate."""
        for rel in self.engine.tables:
            if rel.kind == "out" and (receiver is not None or rel.name == name):
                for row in sorted(self.engine.rows(rel), key=repr):
                    if receiver in (None, row[0]):
                        self._send(rel, row, op)

    # Receiving

    def receive(self, data: bytes) -> None:
        """A message from anyone. What is not right is counted and has no other effect."""
        if self.channels.acknowledged(data):
            return
        try:
            packet = unpack(data)
            wrong = "" if packet.authentic(self.keys) else "forged"
        except HeadgateError:
            self.traffic.rejected["malformed"] += 1
            return
        header = packet.header
        if header.receiver != self.principal or header.sender == self.principal:
            wrong = "misaddressed"
        if wrong:
            self.traffic.rejected[wrong] += 1
        else:
            self._accept(packet)

    def _accept(self, packet: Packet) -> None:
        header, scheme = packet.header, packet.scheme
        if LEVELS[scheme] >= self.settings.level:
            if self.channels.restarted(header.sender, header.sender_epoch):
                self._forget(header.sender)
            if packet.statements[0].op == HELLO:
                if self.channels.new_epoch(header.sender, header.sender_epoch):
                    self._say("", INSERT, header.sender)
                return
        ready, refused = self.channels.admit(packet)
        if refused:
            self.traffic.rejected[refused] += 1
        if refused == "stale":
            self._hello(header.sender, scheme)
        for one in ready:
            self._import_all(one)
        if self.settings.keep:
            self._ready.append((header.sender, self.channels.acknowledgement(header.sender, scheme)))

    def _hello(self, peer: str, scheme: str) -> None:
        header = Header(self.principal, self.channels.epoch, peer, 0, 0)
        hello = Statement(HELLO, "", self.principal, ())
        self._ready.append((peer, pack(self.keys, scheme, header, [hello])))

    def _import_all(self, packet: Packet) -> None:
        """All statements of a message change the tables at once; of two about one tuple the later one counts."""
        holds: dict[Fact, bool] = {}
        for place, statement in enumerate(packet.statements):
            self._import(packet, place, statement, holds)
        self._change(holds)

    def _change(self, holds: dict[Fact, bool]) -> None:
        new = [fact for fact, does in holds.items() if does]
        try:
            self._apply(new, [fact for fact, does in holds.items() if not does])
        except Diverged:  # the engine has undone it; what set it off is not held either
            self.traffic.rejected["without end"] += 1
            self.held.forget(new)

    def _import(self, packet: Packet, place: int, statement: Statement, holds: dict[Fact, bool]) -> None:
        """SigChecker for one statement: who says it, with what proof, at which level."""
        level, proof = LEVELS[packet.scheme], None
        if statement.speaker != packet.header.sender:
            if level and statement.op != DELETE:
                if not self._is_proven(statement):
                    self.traffic.rejected["misattributed"] += 1
                    return
                proof = statement.proof
        elif level == 2:
            proof = (packet, place)
        self._take(packet.header.sender, statement, level, proof, holds)

    def _is_proven(self, statement: Statement) -> bool:
        found = proven(self.keys, statement.proof)
        if found is None or (found.speaker, found.row) != (statement.speaker, statement.row):
            return False
        return found.name == statement.name or found.name in self.core.carries.get(statement.name, ())

    def _take(self, via: str, statement: Statement, level: int, proof: Any, holds: dict[Fact, bool]) -> None:
        name, row = statement.name, (statement.speaker, *statement.row)
        rels = [rel for rel in self._stored if rel.name == name and level >= self._least(rel)]
        if not rels or self._arities.get(name) != len(statement.row):
            self.traffic.rejected["too weak" if any(r.name == name for r in self._stored) else "not wanted"] += 1
            return
        tree = self._tree(statement)
        if tree is None or (self.settings.distrust and not tree.expression().without(self.settings.distrust)):
            self.traffic.rejected["malformed" if tree is None else "distrusted"] += 1
            return
        facts = [(rel, row) for rel in rels]
        if statement.op == DELETE:
            holds |= dict.fromkeys(self.held.unsupported(via, facts), False)
            return
        self.tracing.came((name, row), tree, via)
        if isinstance(proof, tuple):
            self.held.prove(name, row, *proof)
        elif proof is not None:
            self.held.proven_by(name, row, proof)
        for fact in facts if statement.op == INSERT else ():
            self.held.hold(fact, via)
            self._live(fact)
        holds |= dict.fromkeys(facts, True)

    def _least(self, rel: Rel) -> int:
        return self.settings.level if rel.level is None else rel.level

    def _tree(self, statement: Statement) -> Tree | None:
        """The derivation that came along, or a leaf; None for one that is not about this statement."""
        leaf = Tree(statement.speaker, statement.name, statement.row, statement.speaker)
        if statement.provenance is None:
            return leaf
        try:
            found = Tree.of(statement.provenance, leaf)
        except HeadgateError:
            return None
        return found if (found.name, found.row) == (statement.name, statement.row) else None

    def _forget(self, peer: str) -> None:
        """A peer lives anew: nothing that came by it holds until it says it again."""
        self._apply([], self.held.unsupported(peer, self.held.came_by(peer)))

    def _live(self, fact: Fact) -> None:
        table = self.core.tables.get(fact[0].name)
        if table is not None and table.lifetime:
            self.held.live(fact, self.now + table.lifetime)

    def _unwrap(self, wrapped: Value) -> None:
        """OverlayRecvUnwrap: what an overlay delivered here is checked end to end, whoever carried it."""
        try:
            text, _, tag = str(wrapped).partition("\n")
            packet = unpack(text.encode() + b"\n" + base64.b64decode(tag))
            authentic = packet.authentic(self.keys)
        except (HeadgateError, ValueError):
            self.traffic.rejected["malformed"] += 1
            return
        header = packet.header
        identity = (header.sender, header.sender_epoch, header.number)
        if "::" not in header.receiver or not authentic:
            self.traffic.rejected["forged"] += 1
        elif identity in self._seen and packet.scheme != "none":
            self.traffic.rejected["replayed"] += 1
        else:
            self._seen.add(identity)
            self._import_all(packet)

    # Moving

    def snapshot(self) -> bytes:
        """All that this node cannot compute again: base facts, statements with their proofs, numbers, soft state."""
        rels = {rel: [rel.name, rel.kind, rel.level] for rel in self.engine.tables}
        state = {
            "base": [[rels[rel], list(rows)] for rel, rows in self.engine.base.items() if rows],
            **self.held.listed(),
            "seen": sorted(self._seen),
            "came": self.tracing.listed(),
            "channels": self.channels.listed(),
            "numbers": [self.now, self._overlay_number, self._refreshed],
            "traffic": [self.traffic.messages, self.traffic.bytes, self.traffic.statements, self.traffic.rejected],
        }
        return encoded(state)

    def restore(self, data: bytes) -> None:
        """Becomes the node that a snapshot was taken of; what that one had sent is not sent again."""
        state = decoded(data)
        base = {(rel, row) for rel, rows in self.engine.base.items() for row in rows}
        kept = {(Rel(*rel), row_of(row)) for rel, rows in state["base"] for row in rows}
        self.engine.apply(insert=kept - base, delete=base - kept)
        self.held.restore(state)
        self._seen = {tuple(one) for one in state["seen"]}
        self.tracing.restore(state["came"])
        self.channels.restore(state["channels"])
        self.now, self._overlay_number, self._refreshed = state["numbers"]
        messages, size, statements, rejected = state["traffic"]
        self.traffic = Traffic(messages, size, statements, Counter(rejected))
        self._waiting, self._ready = [], []


def _arities(compiled: Compiled) -> Iterable[tuple[Rel, int]]:
    for rule in (*compiled.core.rules, *compiled.core.facts):
        for rel, width in ((rule.rel, len(rule.args)), *((a.rel, len(a.args)) for a in rule.atoms())):
            yield rel, width - {"out": 2, "said": 1}.get(rel.kind, 0)
