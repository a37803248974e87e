"""Sources of streams and tables: any format that Spark reads, restricted to the columns of the stream.

Spark only lists the files of CSV and JSON lines; `text_files` reads them. Files are read in order of modification time,
then path, whatever order Spark returns them in. Spark fetches messages of Kafka as bytes; `kafka_messages` reads them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t
from pyspark.sql.streaming.readwriter import DataStreamReader

from headgate.cql.source_options import FILES, LISTING
from headgate.errors import SourceError
from headgate.ingress.kafka_jars import check_connector
from headgate.ingress.kafka_messages import fetched, message_columns, read_messages
from headgate.ingress.kafka_options import KAFKA, STREAMING, Topic, topic_of
from headgate.ingress.read_files import local_path
from headgate.ingress.records import ByteSource
from headgate.ingress.spark_reader import BLOCK, FILE, MODIFIED
from headgate.ingress.text_files import TextFile, local_file, read_files, unpacked
from headgate.ingress.text_formats import FORMATS, Text, text_of
from headgate.ingress.validation import RawBatch
from headgate.model.stream import StreamDescriptor
from headgate.plan.expressions import Type
from headgate.protocol import PUBLISH

SPARK: dict[Type, t.DataType] = {
    Type.BOOLEAN: t.BooleanType(),
    Type.INT: t.IntegerType(),
    Type.BIGINT: t.LongType(),
    Type.FLOAT: t.FloatType(),
    Type.DOUBLE: t.DoubleType(),
    Type.STRING: t.StringType(),
    Type.TIMESTAMP: t.TimestampType(),
    Type.DATE: t.DateType(),
    Type.BINARY: t.BinaryType(),
}
"""The Spark type with which columns of each type are read."""

_OWN_COLUMNS = frozenset({"rate", "rate-micro-batch", "socket"})
"""Formats that define their columns themselves."""
_ENDLESS = frozenset({"rate", "rate-micro-batch", "socket"})
"""Formats without an end; a finite replay cannot read them."""
_PLACE = (MODIFIED, FILE, BLOCK)
_LISTED = "path string, modificationTime timestamp, length bigint, content binary"
_AT_MOST = str(256 << 20)
"""Bytes of text files in one batch, unless a single file is larger. Results do not depend on this number."""
_PACKED = ("parquet", "orc")
PACKED_AT_MOST = 16 << 20
"""The same for formats that are compressed, of which as many bytes hold more tuples: some two million small ones."""


Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)


@dataclass(frozen=True)
class StreamSource:
    """A stream and its source. `repr` leaves the options out: one may be a password. `packed_at_most`: how many bytes
    of compressed files a batch has, unless the options say so or a single file is larger."""

    descriptor: StreamDescriptor
    format: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    packed_at_most: int = PACKED_AT_MOST

    @property
    def name(self) -> str:
        return self.descriptor.name

    @property
    def endless(self) -> bool:
        return self.format in _ENDLESS

    @property
    def schema(self) -> t.StructType:
        return t.StructType([t.StructField(name, SPARK[type_]) for name, type_ in self.descriptor.columns])

    @property
    def text(self) -> Text | None:
        """How Headgate reads its files; None if Spark reads them."""
        if self.format not in FORMATS:
            return None
        return text_of(self.descriptor, self.format, self.options)

    @property
    def topic(self) -> Topic | None:
        """The topic of Kafka that it reads; None if it is another source."""
        return topic_of(self.descriptor, self.options) if self.format == KAFKA else None

    @property
    def path(self) -> str | None:
        """The path of its files; None if the source is not files."""
        paths = [value for name, value in self.options.items() if name.lower() == "path"]
        return paths[0] if paths and self.format in FILES else None


def read_stream(spark: SparkSession, source: StreamSource) -> DataFrame:
    """Opens a stream. An unknown format, a missing folder and similar errors are reported in one line."""
    with _short_errors(source, "stream"):
        if source.format == PUBLISH:
            raise SourceError("its tuples are published", hint="only `headgate serve` processes them")
        source = _in_folder(source)
        if source.text is not None:
            return _listing(spark.readStream, source).load().select("path", "modificationTime")
        if (topic := source.topic) is not None:
            check_connector()
            return message_columns(spark.readStream.format(KAFKA).options(**topic.spark_options()).load(), topic)
        frame = _reader(spark.readStream, source).load()
        if source.format in _OWN_COLUMNS:
            _check_columns(frame, source)
        return _shaped(frame, source)


def read_table(spark: SparkSession, source: StreamSource) -> RawBatch:
    """Reads all rows that a table holds now, in order of files and rows."""
    with _short_errors(source, "table"):
        if source.text is not None:
            return read_texts(source.text, _listing(spark.read, source).load().select("path", "modificationTime"))
        if (topic := source.topic) is not None:
            check_connector()
            options = {name: value for name, value in topic.spark_options().items() if name not in STREAMING}
            frame = message_columns(spark.read.format(KAFKA).options(**options).load(), topic)
            return read_messages(topic, fetched(frame))
        return RawBatch(in_order(_shaped(_reader(spark.read, source).load(), source).toArrow()))


def read_texts(text: Text, listed: DataFrame) -> RawBatch:
    """Reads the text files that Spark lists."""
    found = listed.toArrow().to_pylist()
    found.sort(key=lambda x: (x["modificationTime"], x["path"]))
    return read_files(text, [_file(listed.sparkSession, x["path"]) for x in found])


def _file(spark: SparkSession, path: str) -> TextFile:
    """A file by its path; a file on another machine is fetched as a whole, undecoded."""
    if path.startswith("file:"):
        return local_file("/" + path.removeprefix("file:").lstrip("/"))

    @contextmanager
    def fetched() -> Iterator[ByteSource]:
        content = spark.read.format("binaryFile").load(path).select("content").toArrow().column("content")
        with unpacked(pa.BufferReader(content[0].as_buffer()), path) as stream:
            yield stream

    return TextFile(path, fetched)


def _listing(reader: Reader, source: StreamSource) -> Reader:
    """A reader that lists the files without their contents."""
    options = {name: value for name, value in source.options.items() if name.lower() in LISTING}
    if isinstance(reader, DataStreamReader) and not _bounded(options):
        options["maxBytesPerTrigger"] = _AT_MOST
    return reader.format("binaryFile").schema(_LISTED).options(**options)


def takes_all(source: StreamSource, sizes: Sequence[int]) -> bool:
    """Whether a batch of files of these sizes is far below the bound of a batch. Files are taken in their order, the
    first one always. So if this batch and the one before it are, the one before left nothing over that it had found:
    a small file is left over by a batch that is nearly full only, and a large one would be in this batch."""
    given = {name.lower(): value for name, value in source.options.items()}
    usual = source.packed_at_most if source.format in _PACKED else _AT_MOST
    most = None if "maxfilespertrigger" in given else int(given.get("maxbytespertrigger", usual))
    if most is None:
        return len(sizes) < int(given["maxfilespertrigger"])
    return sum(sizes) < most // 2 and max(sizes, default=0) < most // 8


def _bounded(options: Mapping[str, str]) -> bool:
    return not {"maxfilespertrigger", "maxbytespertrigger"}.isdisjoint(map(str.lower, options))


def _in_folder(source: StreamSource) -> StreamSource:
    """Spark streams from folders only: a single file becomes its folder with a filter for its name."""
    path = source.path
    here = local_path(path) if path is not None else None
    if here is None or not os.path.isfile(here):
        return source
    folder, name = os.path.split(here)
    options = {key: value for key, value in source.options.items() if key.lower() not in ("path", "pathglobfilter")}
    plain = re.sub(r"([\\*?\[\]{},^])", r"\\\1", name)
    return replace(source, options={**options, "path": folder or ".", "pathGlobFilter": plain})


def _reader(reader: Reader, source: StreamSource) -> Reader:
    reader = reader.format(source.format).options(**dict(source.options))
    if isinstance(reader, DataStreamReader) and source.format in _PACKED and not _bounded(source.options):
        reader = reader.option("maxBytesPerTrigger", str(source.packed_at_most))
    return reader if source.format in _OWN_COLUMNS else reader.schema(source.schema)


@contextmanager
def _short_errors(source: StreamSource, what: str) -> Iterator[None]:
    """Turns errors into one line. Spark's own text may be pages long, and name files and folders of the machine."""
    try:
        yield
    except SourceError as error:
        if source.name in error.message:
            raise
        raise SourceError(
            f"cannot read {what} {source.name} as `{source.format}`: {error.message}", hint=error.hint
        ) from None
    except Exception as error:
        kind, path = kind_of(error), source.path
        hint = ""
        if kind.startswith("PATH_NOT_FOUND") and path is not None and local_path(path) == path and path[0] != "/":
            hint = f"relative paths start in {os.getcwd()}, where this process was started"
        raise SourceError(f"cannot read {what} {source.name} as `{source.format}`: {kind}", hint=hint) from None


def kind_of(error: Exception) -> str:
    """Spark's name for an error, of the innermost cause that has one; with the file and the mismatched column types if
    known, which the name alone does not tell. Spark's own text is left out: it may be pages long, and hold values of
    tuples or name files and folders of the machine."""
    name, words, file = type(error).__name__, "", ""
    for cause in _causes(error):
        name = _name_in_kafka(cause) or name
        with suppress(Exception):  # the cause has no such name, or the JVM is gone
            found, more = cause.getCondition(), cause.getMessageParameters()
            if found and not found.startswith("_LEGACY"):
                name = str(found)
            file = file or _plain_path(more.get("path", ""))
            if {"column", "expectedType", "actualType"} <= set(more):
                column = more["column"].strip("[]")
                words = f"column {column} is {more['actualType']} there, {more['expectedType']} in the stream"
    return ": ".join(x for x in (name, f"`{file}`" if file else "", words) if x)


def _name_in_kafka(cause: Any) -> str:
    """Errors of Kafka have classes and no names of Spark's."""
    with suppress(Exception):
        found = str(cause.getClass().getName())
        return found.rpartition(".")[2] if found.startswith("org.apache.kafka.") else ""
    return ""


def _plain_path(path: str) -> str:
    """A path as people write it: Spark gives a path for some files and an address for others."""
    address = urlsplit(path)
    return unquote(address.path) if path.startswith("file:///") else re.sub("^file:", "", path)


def _causes(error: Exception) -> Iterator[Any]:
    """An error, its Java exception, and the causes of that."""
    yield error
    # PySpark keeps it in one place or the other, by how it came to know of the error
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with suppress(Exception):
        while cause is not None:
            yield cause
            cause = cause.getCause()


def _check_columns(frame: DataFrame, source: StreamSource) -> None:
    """Raises an error unless the source has every column of the stream, with its type; the source may have more."""
    found = {field.name: field.dataType for field in frame.schema.fields}
    words = {type_: word for word, type_ in SPARK.items()}
    for name, type_ in source.descriptor.columns:
        if found.get(name) != SPARK[type_]:
            has = ", ".join(f"{own} {words.get(kind, kind.simpleString())}" for own, kind in found.items())
            raise SourceError(
                f"cannot read stream {source.name} as `{source.format}`: there is no column `{name}` {type_}",
                hint=f"such a source has the columns {has}",
            )


def _shaped(frame: DataFrame, source: StreamSource) -> DataFrame:
    """The columns of the stream; for files also the position of each row: modification time, path, block."""
    columns = [_column(name, type_) for name, type_ in source.descriptor.columns]
    if source.format in FILES:
        found = ("file_modification_time", "file_path", "file_block_start")
        columns += [F.col(f"_metadata.{part}").alias(name) for part, name in zip(found, _PLACE, strict=True)]
    return frame.select(*columns)


def _column(name: str, type_: Type) -> SparkColumn:
    """A column of the stream. Spark passes on the bytes of texts as they are in the file; invalid UTF-8 becomes U+FFFD
    here, as in validation."""
    column = F.col(f"`{name.replace('`', '``')}`")
    return F.make_valid_utf8(column).alias(name) if type_ == Type.STRING else column


def in_order(batch: pa.Table) -> pa.Table:
    """The rows of a batch in order of arrival. Spark packs files into tasks by size, which mixes their order."""
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
