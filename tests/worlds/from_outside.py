"""Queries at scale, compared with what nobody here wrote: DuckDB over the tuples that a reader may see.

Files go through the pipeline without Spark, as a batch each; results and expectations stay in columns, so that millions
can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from headgate.egress.mailbox import Mailbox
from headgate.model.limits import Limits
from headgate.plan.queries import Stream
from worlds.harness import Bench, Row

_MUCH = 1 << 40


@dataclass(frozen=True)
class Readers:
    """Who reads, with which roles, and the policies that permit each."""

    roles: Mapping[str, str]
    policies: Mapping[str, tuple[str, ...]]

    def seen(self, who: str, whole: pa.Table) -> pa.Table:
        return whole.filter(pa.compute.is_in(whole.column("policy"), pa.array(self.policies[who])))


@dataclass(frozen=True)
class Asked:
    """Queries by name, of which readers receive the last, and its meaning as SQL over the same streams and tables."""

    queries: Mapping[str, str]
    meaning: str
    tables: Mapping[str, list[Row]] = field(default_factory=dict)

    @property
    def last(self) -> str:
        return [*self.queries][-1]


def received(
    home: Path,
    asked: Asked,
    streams: Sequence[Stream],
    files: Iterable[Mapping[str, pa.Table]],
    readers: Readers,
    limits: Limits | None = None,
) -> dict[str, pa.Table]:
    """What each reader receives of the last query, each result with its time in milliseconds; files of streams come
    one after the other. It fails if the query ends for any of them."""
    bench = Bench(home, *streams)
    bench.mailbox, bench.limits = Mailbox(_MUCH), limits
    for name, text in asked.queries.items():
        bench.query(name, text)
    bench.content = dict(asked.tables)
    bench.subscribed(**{who: (asked.last, roles) for who, roles in readers.roles.items()})
    pipeline = bench.begin()
    bench.clock.advance(1e8)
    read = {name for query in bench.queries.values() for name in query.streams}
    for number, part in enumerate(files):
        for stream, rows in part.items():
            if stream in read:
                pipeline.take(stream, number, rows)
    pipeline.end()
    names = [name for name, _ in bench.queries[asked.last].query.columns]
    found = {}
    for who in readers.roles:
        batches = bench.mailbox.fetch(who, asked.last, bench.now)
        words = [batch.word for batch in batches if batch.word]
        assert not words, f"{who} receives no more: {words}"
        columns = zip(*((*batch.values, pa.array(batch.times)) for batch in batches), strict=True)
        found[who] = pa.table([pa.chunked_array(x) for x in columns], names=[*names, "time"])
    pipeline.close()
    return found


def expected(asked: Asked, seen: Mapping[str, pa.Table | ds.Dataset]) -> pa.Table:
    """The meaning over these streams and tables."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, content in seen.items():
            connection.register(name, content)
        return connection.sql(asked.meaning).to_arrow_table()


def differences(found: pa.Table, wanted: pa.Table) -> list[str]:
    """How two tables differ, column by column; doubles may differ in the last digits."""
    if found.num_rows != wanted.num_rows:
        return [f"{found.num_rows:,} results instead of {wanted.num_rows:,}"]
    differ = []
    for name, a, b in zip(found.column_names, found.columns, wanted.columns, strict=True):
        if pa.types.is_floating(a.type):
            same = np.isclose(a.to_numpy(), b.cast(a.type).to_numpy(), rtol=1e-12, atol=0, equal_nan=True)
            unequal = np.flatnonzero(~same)
        else:
            both = pa.compute.equal(a, b.cast(a.type)).fill_null(False).combine_chunks()
            nulls = pa.compute.and_(a.is_null(), b.is_null()).combine_chunks()
            unequal = np.flatnonzero(~pa.compute.or_(both, nulls).to_numpy(zero_copy_only=False))
        if len(unequal):
            at = int(unequal[0])
            differ.append(f"{name}: {len(unequal):,} differ; row {at:,} is {a[at]} instead of {b[at]}")
    return differ
