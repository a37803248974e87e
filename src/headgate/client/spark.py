"""A source and a sink of Spark: `spark.dataSource.register(headgate.DataSource)`, then `format("headgate")`.

Reading goes by positions: a batch is the results between two of them, and is read again by the same two after a
failure. Writing publishes each micro-batch in one request, numbered by the batch, under the id of the streaming query:
a batch that Spark writes again is not taken twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headgate.client.client import Client, connect
from headgate.errors import AuthenticationFailed, Conflict

if TYPE_CHECKING:
    from pyspark.sql.datasource import WriterCommitMessage

POSITION = "headgate_position"
_QUERY = "sql.streaming.queryId"
"""Spark's own name for the id of a streaming query, which its checkpoint keeps."""


class DataSource(datasource.DataSource):
    """Options: `url` (the address of a server, or a home folder), `stream`, `user` and `password`, or `token`;
    `certificate`, `level`, and `begin` (`oldest` or `now`) for reading."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._session = SessionOptions(dict(options))

    @classmethod
    def name(cls) -> str:
        return "headgate"

    def schema(self) -> StructType:
        with self._session.client() as client:
            return from_arrow_schema(client.arrow(self._session.stream, begin="now").schema)

    def reader(self, schema: StructType) -> datasource.DataSourceReader:  # noqa: ARG002
        return ResultsReader(self._session)

    def simpleStreamReader(self, schema: StructType) -> datasource.SimpleDataSourceStreamReader:  # noqa: ARG002, N802
        return StreamReader(self._session)

    def writer(self, schema: StructType, overwrite: bool) -> datasource.DataSourceWriter:  # noqa: ARG002
        if overwrite:
            raise Conflict("cannot replace what was published", hint='write with mode("append")')
        return TupleWriter(self._session)

    def streamWriter(self, schema: StructType, overwrite: bool) -> datasource.DataSourceStreamWriter:  # noqa: ARG002, N802
        return StreamWriter(self._session)


@dataclass(frozen=True)
class SessionOptions:
    """The options, and how to open a session with them, here or in a task."""

    options: Mapping[str, str]

    def __post_init__(self) -> None:
        for name in ("url", "stream"):
            if not self._option(name):
                raise Conflict(f"cannot use Headgate as a data source: the option `{name}` is missing")

    def _option(self, name: str) -> str:
        return next((value for given, value in self.options.items() if given.lower() == name), "")

    @property
    def stream(self) -> str:
        return self._option("stream")

    @property
    def begin(self) -> str:
        return self._option("begin") or "oldest"

    def client(self, token: str = "") -> Client:
        """With the token of a session that is open, or with a new one."""
        return connect(
            self._option("url"),
            "" if token else self._option("user"),
            self._option("password"),
            token=token or self._option("token"),
            level=self._option("level") or None,
            certificate=self._option("certificate") or None,
        )


# Reading --------------------------------------------------------------------------------------------------------------


class ResultsReader(datasource.DataSourceReader):
    """All results that there are now."""

    def __init__(self, session: SessionOptions) -> None:
        self._session = session

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        with self._session.client() as client:
            table = client.arrow(self._session.stream, begin=self._session.begin)
            yield from table.cast(_as_spark_has_it(table.schema)).to_batches()


def _as_spark_has_it(schema: pa.Schema) -> pa.Schema:
    """Spark's times have microseconds."""
    moment = pa.timestamp("us", "UTC")
    return pa.schema([x.with_type(moment) if pa.types.is_timestamp(x.type) else x for x in schema])


class StreamReader(datasource.SimpleDataSourceStreamReader):
    """Offsets are positions. It reads in the driver; a server limits what it keeps, and so what one read brings."""

    def __init__(self, session: SessionOptions) -> None:
        self._session = session
        self._token = ""

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        return {"position": ""}

    def read(self, start: dict[str, str]) -> tuple[Iterator[tuple[Any, ...]], dict[str, str]]:
        table = self._results(start["position"])
        end = table.column(POSITION)[-1].as_py() if table.num_rows else start["position"]
        return _tuples(table), {"position": end}

    def readBetweenOffsets(self, start: dict[str, str], end: dict[str, str]) -> Iterator[tuple[Any, ...]]:  # noqa: N802
        """The same results again, or none at all: what is not there any more is not replaced by anything else."""
        table = self._results(start["position"])
        positions = table.column(POSITION).to_pylist()
        if end["position"] == start["position"]:
            return iter(())
        if end["position"] not in positions:
            raise Conflict(
                "cannot read a batch again: some of its results are not kept any more, or may not be read any more",
                hint="begin with a new checkpoint",
            )
        return _tuples(table.slice(0, positions.index(end["position"]) + 1))

    def _results(self, after: str) -> pa.Table:
        """A session that has ended is opened again; between two reads no connection is held."""
        begin = self._session.begin if not after else "oldest"
        try:
            return self._read(after, begin, self._token)
        except AuthenticationFailed:
            if not self._token:
                raise
            return self._read(after, begin, "")

    def _read(self, after: str, begin: str, token: str) -> pa.Table:
        with self._session.client(token) as client:
            self._token = client.token
            return client.arrow(self._session.stream, after=after, begin=begin)


def _tuples(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


# Writing --------------------------------------------------------------------------------------------------------------


@dataclass
class Rows(datasource.WriterCommitMessage):
    """The rows of a task, as an Arrow stream, and the streaming query they belong to. Nothing is published before all
    tasks have ended well."""

    content: bytes
    query: str


def _rows(batches: Iterator[pa.RecordBatch]) -> Rows:
    held = list(batches)
    sink = pa.BufferOutputStream()
    if held:
        with pa.ipc.new_stream(sink, held[0].schema) as writer:
            for batch in held:
                writer.write_batch(batch)
    context = TaskContext.get()
    query = context.getLocalProperty(_QUERY) if context is not None else None
    return Rows(bytes(sink.getvalue()), query or "")


def _table(messages: list[WriterCommitMessage | None]) -> pa.Table | None:
    parts = [x.content for x in messages if isinstance(x, Rows) and x.content]
    if not parts:
        return None
    return pa.concat_tables([pa.ipc.open_stream(x).read_all() for x in parts])


class TupleWriter(datasource.DataSourceArrowWriter):
    """Publishes a data frame, all of it or nothing."""

    def __init__(self, session: SessionOptions) -> None:
        self._session = session

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rows:
        return _rows(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        table = _table(messages)
        if table is not None:
            with self._session.client() as client:
                client.publish(self._session.stream, table)


class StreamWriter(datasource.DataSourceStreamArrowWriter):
    """Publishes each micro-batch once."""

    def __init__(self, session: SessionOptions) -> None:
        self._session = session

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rows:
        return _rows(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        query = next((x.query for x in messages if isinstance(x, Rows) and x.query), "")
        if not query:
            raise Conflict("cannot publish a batch once: Spark does not say of which streaming query it is")
        with self._session.client() as client:
            sender = client.publisher(self._session.stream, producer=f"spark-{query}", begin=batchId + 1)
            sender.send(_table(messages) or [])
