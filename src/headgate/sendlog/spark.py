"""Principals as partitions of one Spark application.

A principal is a cell. In every superstep Spark brings each cell its state and its messages, a task lets the node run
to its
local fixpoint, and returns the new state and the signed messages it wants delivered; when no message is left, the
distributed fixpoint is reached. The driver holds no tuples: it counts messages. Each superstep is checkpointed, so the
lineage never grows. All of it is one trust domain: keys of all principals are with the application.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headgate.errors import HeadgateError
from headgate.sendlog.check import load
from headgate.sendlog.compiled import Compiled, compile_program
from headgate.sendlog.core import Rel
from headgate.sendlog.keys import Authority, new_key, private_bytes, private_key
from headgate.sendlog.node import Node
from headgate.sendlog.settings import Settings
from headgate.sendlog.values import Row, canonical, decoded, encoded

_SCHEMA = "universe string, cell string, kind string, place long, payload binary"
_ARROW = pa.schema(
    [
        ("universe", pa.string()),
        ("cell", pa.string()),
        ("kind", pa.string()),
        ("place", pa.int64()),
        ("payload", pa.binary()),
    ]
)
MAX_STEPS = 10_000
Facts = Mapping[str, Iterable[tuple[str, Row]]]


@dataclass(frozen=True)
class Universe:
    """One program with its principals; several run side by side and do not know of each other.

    `watch`: tables, each with a column to be added up, whose sizes every principal tells after each change."""

    name: str
    program: str
    principals: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)
    watch: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class _Given:
    """What every task needs, by universe: the program, the settings, the authority's key and all private keys."""

    run: str
    universes: dict[str, tuple[str, Settings, bytes, dict[str, bytes]]]
    watch: dict[str, tuple[tuple[str, int], ...]]


_compiled: dict[tuple[str, bool], Compiled] = {}
_nodes: dict[tuple[str, str, str], tuple[int, Node]] = {}
_CACHED = 20_000


class SparkNetwork:
    """The same principals and programs as `Network`, in Spark's tasks. Changes are incremental: `insert`, `delete`."""

    def __init__(self, spark: SparkSession, universes: Iterable[Universe], *, partitions: int = 2) -> None:
        self._spark, self._partitions = spark, partitions
        self.universes = {universe.name: universe for universe in universes}
        given = {u.name: _keys(u) for u in self.universes.values()}
        self._given = _Given(uuid4().hex, given, {u.name: u.watch for u in self.universes.values()})
        self.steps = 0
        cells = [(u.name, p, "fact", 0, encoded(["+", []])) for u in self.universes.values() for p in u.principals]
        self._state = self._frame(cells)
        self._settle()

    def insert(self, facts: Facts, universe: str = "") -> None:
        self._change("+", facts, universe)

    def delete(self, facts: Facts, universe: str = "") -> None:
        self._change("-", facts, universe)

    def rows(self, *tables: str) -> dict[tuple[str, str, str], list[Row]]:
        """Tables (`says p` for what was said) by universe, principal and table; for answers that fit the driver."""
        given, step = self._given, self.steps

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for (universe, cell), rows in _cells(batches):
                node = _node(given, universe, cell, step, rows["state"][0])
                made = [(universe, cell, table, 0, encoded(sorted(_rows(node, table), key=repr))) for table in tables]
                yield _batch(made)

        found = self._state.mapInArrow(read, _SCHEMA).collect()
        return {(r.universe, r.cell, r.kind): [_row(x) for x in decoded(bytes(r.payload))] for r in found}

    def summary(self, table: str) -> list[tuple[str, str, int, float]]:
        """For each universe and principal the rows of a watched table, and the sum of its column: from the tasks."""
        found = self._state.filter(f.col("kind") == f"watch {table}").collect()
        return [(r.universe, r.cell, r.place, float(decoded(bytes(r.payload)))) for r in found]

    def _change(self, op: str, facts: Facts, universe: str) -> None:
        name = universe or next(iter(self.universes))
        cells = [(name, cell, "fact", 0, encoded([op, [list(x) for x in rows]])) for cell, rows in facts.items()]
        self._state = self._state.union(self._frame(cells))
        self._settle()

    def _settle(self) -> None:
        """Supersteps until nobody has anything to say."""
        for _ in range(MAX_STEPS):
            given, step = self._given, self.steps

            def advance(
                batches: Iterable[pa.RecordBatch], given: _Given = given, step: int = step
            ) -> Iterator[pa.RecordBatch]:
                for (universe, cell), rows in _cells(batches):
                    yield _batch(_advanced(given, universe, cell, step, rows))

            shuffled = self._state.repartition(self._partitions, "universe", "cell")
            self._state = shuffled.mapInArrow(advance, _SCHEMA).localCheckpoint()
            self.steps += 1
            if self._state.filter(f.col("kind") == "message").isEmpty():
                return
        raise HeadgateError(f"cannot reach a fixpoint: more than {MAX_STEPS:,} supersteps")

    def _frame(self, cells: list[tuple[str, str, str, int, bytes]]) -> DataFrame:
        return self._spark.createDataFrame([(*c[:4], bytearray(c[4])) for c in cells], _SCHEMA)


def _keys(universe: Universe) -> tuple[str, Settings, bytes, dict[str, bytes]]:
    keys = {p: private_bytes(new_key(universe.settings.scheme)) for p in universe.principals}
    return universe.program, replace(universe.settings, keep=False), Authority().secret, keys


# In tasks


def _cells(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[tuple[str, str], dict[str, list[bytes]]]]:
    """The rows of a partition by cell and kind, messages in the order in which their senders made them."""
    tables = list(batches)
    found: dict[tuple[str, str], dict[str, list[bytes]]] = {}
    if tables:
        table = pa.Table.from_batches(tables)
        for universe, cell, kind, _, payload in sorted(
            zip(*[c.to_pylist() for c in table.columns], strict=True), key=_order
        ):
            found.setdefault((universe, cell), {}).setdefault(kind, []).append(payload)
    yield from found.items()


def _order(row: tuple[str, str, str, int, bytes]) -> tuple[Any, ...]:
    return row[3], row[4]


def _batch(rows: list[tuple[str, str, str, int, bytes]]) -> pa.RecordBatch:
    columns = [[row[i] for row in rows] for i in range(len(_ARROW))]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, t.type) for c, t in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )


def _advanced(
    given: _Given, universe: str, cell: str, step: int, rows: dict[str, list[bytes]]
) -> list[tuple[str, str, str, int, bytes]]:
    """One cell's superstep: state, facts and messages in; state and messages out."""
    if cell not in given.universes[universe][3]:
        return []  # addressed to nobody
    state = rows.get("state", [b""])[0]
    idle = not rows.get("fact") and not rows.get("message")
    if idle and state and not given.watch[universe]:
        kept = _nodes.get((given.run, universe, cell))
        if kept is not None and kept[0] == step:
            _nodes[given.run, universe, cell] = (step + 1, kept[1])
        return [(universe, cell, "state", 0, state)]
    node = _node(given, universe, cell, step, state)
    for payload in rows.get("fact", ()):
        op, facts = decoded(payload)
        listed = [(name, _row(row)) for name, row in facts]
        node.change(insert=listed if op == "+" else (), delete=listed if op == "-" else ())
    for payload in rows.get("message", ()):
        node.receive(payload)
    sent = node.outgoing()
    if len(_nodes) >= _CACHED:
        _nodes.clear()
    _nodes[given.run, universe, cell] = (step + 1, node)
    messages = [(universe, to, "message", i, data) for i, (to, data) in enumerate(sent)]
    return [(universe, cell, "state", 0, node.snapshot()), *messages, *_watched(given, universe, node)]


def _watched(given: _Given, universe: str, node: Node) -> Iterator[tuple[str, str, str, int, bytes]]:
    for table, column in given.watch[universe]:
        rows = _rows(node, table)
        total = sum(float(str(row[column])) for row in rows)
        yield universe, node.principal, f"watch {table}", len(rows), encoded(total)


def _node(given: _Given, universe: str, cell: str, step: int, state: bytes) -> Node:
    """The node of this step: kept by this worker since the last one, or made again from its snapshot."""
    kept = _nodes.get((given.run, universe, cell))
    if kept is not None and kept[0] == step:
        return kept[1]
    program, settings, secret, keys = given.universes[universe]
    authority = Authority(secret)
    rings = {p: authority.enrol(p, key=private_key(data)) for p, data in keys.items()}
    traced = (program, settings.provenance != "none")
    if traced not in _compiled:
        _compiled[traced] = compile_program(load(program), tracing=traced[1])
    node = Node(_compiled[traced], rings[cell], settings)
    if state:
        node.restore(state)
    return node


def _rows(node: Node, table: str) -> set[Row]:
    said = table.startswith("says ")
    return node.engine.rows(Rel(table.removeprefix("says "), "said" if said else "local"))


def _row(data: Any) -> Row:
    row = canonical(data)
    return row if isinstance(row, tuple) else ()
