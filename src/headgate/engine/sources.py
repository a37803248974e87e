"""Streams as Spark reads them: any format by its options, with the stream's own columns and nothing else.

Rows that do not have the stream's form come along as the text they were (`SPOILT`), where the format allows that;
ingress refuses them. Files come in the order of their modification time and then their path, whatever Spark makes of
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t
from pyspark.sql.streaming.readwriter import DataStreamReader

from headgate.engine.compact import BLOCK, FILE, MODIFIED
from headgate.engine.ingress import SPOILT, Entrance
from headgate.errors import SourceError
from headgate.plan.expressions import Type

SPARK: dict[Type, t.DataType] = {
    Type.BOOLEAN: t.BooleanType(),
    Type.INT: t.IntegerType(),
    Type.BIGINT: t.LongType(),
    Type.FLOAT: t.FloatType(),
    Type.DOUBLE: t.DoubleType(),
    Type.STRING: t.StringType(),
    Type.TIMESTAMP: t.TimestampType(),
    Type.DATE: t.DateType(),
}
"""How columns of each type are read."""

FILES = frozenset({"json", "csv", "parquet", "orc", "text"})
_SPOILABLE = frozenset({"json", "csv"})
_OWN_COLUMNS = frozenset({"rate", "rate-micro-batch", "socket", "kafka"})
"""Formats that say themselves which columns there are."""
_ENDLESS = frozenset({"rate", "rate-micro-batch", "socket"})
"""Formats that have no end; what they hold cannot be read to it."""
_PLACE = (MODIFIED, FILE, BLOCK)


Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)


@dataclass(frozen=True)
class StreamSource:
    """A stream and where it comes from; options are not shown: one may be a password."""

    entrance: Entrance
    format: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.entrance.name

    @property
    def endless(self) -> bool:
        return self.format in _ENDLESS

    @property
    def schema(self) -> t.StructType:
        fields = [t.StructField(name, SPARK[type_]) for name, type_ in self.entrance.columns]
        if self.format in _SPOILABLE:
            fields.append(t.StructField(SPOILT, t.StringType()))
        return t.StructType(fields)


def read_stream(spark: SparkSession, source: StreamSource) -> DataFrame:
    """Unknown formats, missing folders and the like are said in one line."""
    with _said(source, "stream"):
        frame = _reader(spark.readStream, source).load()
        if source.format in _OWN_COLUMNS:
            _check_columns(frame, source)
        return _shaped(frame, source)


def read_table(spark: SparkSession, source: StreamSource) -> pa.Table:
    """All that a table holds now, in the order of files and their rows."""
    with _said(source, "table"):
        return in_order(_shaped(_reader(spark.read, source).load(), source).toArrow())


def _reader(reader: Reader, source: StreamSource) -> Reader:
    reader = reader.format(source.format)
    if source.format == "csv":  # or a header that has the columns in another order is not even looked at
        reader = reader.option("enforceSchema", "false")
    reader = reader.options(**dict(source.options))
    if source.format not in _OWN_COLUMNS:
        reader = reader.schema(source.schema)
    if source.format in _SPOILABLE:
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", SPOILT)
    return reader


@contextmanager
def _said(source: StreamSource, what: str) -> Iterator[None]:
    """Spark's own text may be pages long, and name what is on the machine."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"{what} {source.name} cannot be read as `{source.format}` ({kind_of(error)})") from None


def kind_of(error: Exception) -> str:
    """What Spark calls it, as near to its cause as that has a name: its own text may be pages long, and hold values of
    tuples or name what is on the machine. What nobody could guess from the name is said in words of ours."""
    name, words = type(error).__name__, ""
    for cause in _causes(error):
        with suppress(Exception):  # it has no such name, or Java is gone
            found, more = cause.getCondition(), cause.getMessageParameters()
            if found and not found.startswith("_LEGACY"):
                name = str(found)
            if {"column", "expectedType", "actualType"} <= set(more):
                column = more["column"].strip("[]")
                words = f": column {column} is {more['actualType']} in a file, {more['expectedType']} in the stream"
            elif "CSV header" in more.get("msg", "").partition("\n")[0]:
                words = ": a header has other columns than the stream, or in another order"
    return name + words


def _causes(error: Exception) -> Iterator[Any]:
    """An error, what it is in Java, and what that came from."""
    yield error
    cause: Any = getattr(error, "java_exception", None)
    with suppress(Exception):
        while cause is not None:
            yield cause
            cause = cause.getCause()


def _check_columns(frame: DataFrame, source: StreamSource) -> None:
    """The stream may have fewer columns than its source, but no others."""
    found = {field.name: field.dataType for field in frame.schema.fields}
    words = {type_: word for word, type_ in SPARK.items()}
    for name, type_ in source.entrance.columns:
        if found.get(name) != SPARK[type_]:
            has = ", ".join(f"{own} {words.get(kind, kind.simpleString())}" for own, kind in found.items())
            raise SourceError(
                f"stream {source.name} cannot be read as `{source.format}`: its column `{name}` {type_} is not there",
                hint=f"such a source has the columns {has}",
            )


def _shaped(frame: DataFrame, source: StreamSource) -> DataFrame:
    """The columns of the stream, and where in which file a row was."""
    names = [name for name, _ in source.entrance.columns] + ([SPOILT] if source.format in _SPOILABLE else [])
    types = dict(source.entrance.columns)
    columns = [_column(name, types.get(name, Type.STRING)) for name in names]
    if source.format in FILES:
        found = ("file_modification_time", "file_path", "file_block_start")
        columns += [F.col(f"_metadata.{part}").alias(name) for part, name in zip(found, _PLACE, strict=True)]
    return frame.select(*columns)


def _column(name: str, type_: Type) -> SparkColumn:
    """Spark hands on the bytes of texts as they are in a file; what is no UTF-8 is U+FFFD here, as in ingress."""
    column = F.col(f"`{name.replace('`', '``')}`")
    return F.make_valid_utf8(column).alias(name) if type_ == Type.STRING else column


def in_order(batch: pa.Table) -> pa.Table:
    """The rows of a batch in the order of their arrival. Spark packs files into tasks by their size."""
    if _PLACE[0] not in batch.schema.names:
        return batch
    place = batch.select(_PLACE)
    batch = batch.drop_columns(list(_PLACE))
    kinds = place.group_by(list(_PLACE), use_threads=False).aggregate([])
    if kinds.num_rows <= 1:
        return batch
    keys = [(name, "ascending") for name in _PLACE]
    place = place.append_column("row", pa.array(range(batch.num_rows), pa.int64()))
    return batch.take(place.sort_by([*keys, ("row", "ascending")]).column("row"))
