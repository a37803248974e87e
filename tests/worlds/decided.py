"""The way of one tuple whose label is a golden case (`tests/labels/cases.json`), by the product's own functions.

Every place that decides is one function here: ingress, visibility, egress and publishing. No Spark, no operators: each
place is given what the place before it made, and decides by itself.

A tuple cannot name its sources. So the stream of a case is the first source of its label, the policy of the stream has
the other sources, and the tuple brings the rest. A label without sources gets the stream `s`, which everybody may read.
The query runs at the level of the reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from headgate.cql.queries import parse_query
from headgate.egress.delivery import Handover
from headgate.egress.filter import ResultFilter, combined
from headgate.egress.sinks import Address, Sink
from headgate.ingress.validation import Ingress
from headgate.labels import Clearance, Label, Rules, parse_label
from headgate.model.query import ContinuousQuery
from headgate.model.rejected import RejectedRows
from headgate.model.results import BlockResults, ResultBatch
from headgate.model.snapshot import CatalogSnapshot, Subscriber
from headgate.model.stream import StreamDescriptor
from headgate.model.tuples import TupleBatch
from headgate.model.view import View
from headgate.plan.expressions import Type
from headgate.plan.queries import Stream, bind_query
from headgate.visibility.dictionary import Dictionary
from headgate.visibility.index import VisibilityIndex
from headgate.visibility.watermarks import Moments

READER = "reader"
MANY = 64
"""With this many labels beside it, a text is read by the compiled column reader."""


@dataclass(frozen=True)
class Taken:
    """What ingress made of a column of texts: the label of each tuple, as the dictionary has it, and rejected rows."""

    batch: TupleBatch
    rejected: Sequence[RejectedRows]
    dictionary: Dictionary

    @property
    def labels(self) -> list[Label]:
        return [self.dictionary.labels[number] for number in self.batch.labels.tolist()]


def ingested(
    texts: Sequence[str | None], rules: Rules, *, stream: str = "s", policy: Label | None = None, kind: str = "LABEL"
) -> Taken:
    """Tuples that bring these texts, through ingress; `a` is the place of each."""
    dictionary = Dictionary()
    descriptor = StreamDescriptor(stream, (("a", Type.INT),), None, {kind: "policy"}, policy or Label())
    rows = pa.table({"a": pa.array(range(len(texts)), pa.int32()), "policy": pa.array(texts, pa.string())})
    batch, rejected = Ingress(descriptor, rules, dictionary.number).take(rows, 0)
    return Taken(batch, rejected, dictionary)


def beside(text: str) -> list[str]:
    """A text last among so many others that the compiled reader reads the column."""
    return [*(f"other{n}" for n in range(MANY)), text]


@dataclass(frozen=True)
class Way:
    """One label and one reader, with the rules of the moment."""

    text: str
    clearance: Clearance
    rules: Rules
    aggregated: bool = False

    @cached_property
    def _sources(self) -> list[str]:
        return sorted(parse_label(self.text).sources)

    @property
    def stream(self) -> str:
        return self._sources[0] if self._sources else "s"

    @property
    def reader(self) -> Clearance:
        """The clearance; it may also read `s`, if that is the stream."""
        own = self.clearance.sources
        return replace(self.clearance, sources=frozenset(own if self._sources else {*own, "s"}))

    @cached_property
    def taken(self) -> Taken:
        """The tuple as ingress labels it."""
        return ingested([self.brought], self.rules, stream=self.stream, policy=self.policy)

    @property
    def brought(self) -> str:
        """The text that the tuple brings."""
        return str(replace(parse_label(self.text), sources=frozenset())) if self._sources else self.text

    @property
    def policy(self) -> Label:
        """The policy of the stream."""
        return Label(sources=frozenset(self._sources[1:]))

    @property
    def query(self) -> ContinuousQuery:
        text = "SELECT COUNT(*) FROM s [ROWS 1]" if self.aggregated else "SELECT a FROM s"
        bound = bind_query(parse_query(text), lambda _: Stream(self.stream, (("a", Type.INT),)))
        return ContinuousQuery("q", bound, self.clearance.level)

    # The places that decide -------------------------------------------------------------------------------------------

    def visible(self) -> bool:
        """Whether the visibility index shows the tuple to the view of the reader; always hidden without a clearance."""
        index = VisibilityIndex(self.rules)
        index.add_view(self.query, {READER: self.reader})
        index.add_view(self.query, {"nobody": None})
        index.add_labels(self.taken.dictionary.labels)
        (rows,) = index.arrive([self.taken.batch], Moments(len(self.taken.batch.times)))
        seen = index.batch().table[rows][0]
        assert not seen[1], "a view without a clearance sees the tuple"
        table = index.of_table(self.stream, self.taken.batch.labels)
        assert bool(index.table[table][0][0]) == bool(seen[0]), "a tuple of a table is decided otherwise"
        return bool(seen[0])

    def filtered(self, numbers: Sequence[int] = (0,)) -> list[ResultBatch]:
        """The result that combines these labels, as the filter lets it out; the view computed it, permitted or not."""
        view = View(self.query, {READER: self.reader, "nobody": None}, (0,))
        found = BlockResults(
            "q", 0, (0,), np.array([7]), (pa.array([1]),), np.array([0]), (frozenset(numbers),), (np.array([0]),)
        )
        return ResultFilter(self.rules, self.taken.dictionary.labels).result_batches([view], [found])

    @property
    def snapshot(self) -> CatalogSnapshot:
        subscribers = (Subscriber(READER, "q", self.reader), Subscriber("nobody", "q", None))
        return CatalogSnapshot(self.rules, queries=(self.query,), subscribers=subscribers)

    def staged(self) -> ResultBatch:
        """The result as it waits to be published: for the reader, who may no longer be permitted to have it."""
        label = combined(self.rules, self.clearance.level, self.taken.labels)
        kinds = (label.as_aggregate() if self.aggregated else label,)
        one = np.array([0])
        return ResultBatch((READER, "nobody"), "q", one, np.array([7]), (pa.array([1]),), one, kinds)

    def publish(self, sink: Sink) -> None:
        """Delivers the staged result under the rights of the reader, as after a restart."""
        sink.claim("q")
        results = [self.staged()]
        sink.stage(1, results)
        Handover(Opened(self.snapshot), sink, None, results, ()).run()


@dataclass(frozen=True)
class Opened:
    """A catalog of which nothing changes."""

    now: CatalogSnapshot

    def snapshot(self) -> CatalogSnapshot:
        return self.now

    @contextmanager
    def open(self) -> Iterator[CatalogSnapshot]:
        yield self.now

    def verify(self) -> None:
        pass


class Places:
    """Where files of results go."""

    def of(self, subscriber: str, query: str) -> Address:
        return Address((subscriber, query), ("a",))

    def of_rejected(self, stream: str) -> tuple[str, ...]:
        return ("owner", f"{stream}.refused")
