"""Batches as numbers: Spark itself reads times, gives known labels their numbers, and drops what nobody will want.

What travels to the kernels is then a few columns of numbers, without texts. It is right only for a batch in which every
tuple is in order and every label was read before; a batch that has anything else, which Spark counts on the way, is
read as a whole, and ingress looks at each of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from headgate.engine.ingress import SPOILT, Entrance
from headgate.engine.kernels.rows import Ints
from headgate.engine.processor import Arrivals
from headgate.engine.sql import spark_name, spark_sql, spark_utc
from headgate.engine.wanted import MOST_LISTED, Learn, Wanted
from headgate.plan.expressions import AggregateCall, Column, Type

MODIFIED, FILE, BLOCK = "headgate_modified", "headgate_file", "headgate_block"
"""Where a row of a file comes from; Spark packs files into tasks by their size."""

_TIME, _LABEL = "headgate_time", "headgate_label"
_HASHED = (MODIFIED, FILE, BLOCK)


@dataclass(frozen=True)
class Compact:
    """A batch without what nobody wants, and how many tuples it had."""

    arrivals: Arrivals
    tuples: int


def compacted(frame: DataFrame, entrance: Entrance, wanted: Wanted, now: int, learn: Learn) -> Compact | None:
    """None: this batch has to be looked at row by row. Labels that were never read before are, first."""
    if wanted.labels is not None and wanted.labels:
        found = _tried(frame, entrance, wanted, now)
        if found is not True:
            return found or None
    names = [F.col(_quoted(name)) for name in entrance.labels.values()]
    texts = frame.select(*names).distinct().limit(MOST_LISTED + 1).toArrow()
    if wanted.labels is None or texts.num_rows > MOST_LISTED:
        return None
    again = learn(list(zip(*(column.to_pylist() for column in texts.columns), strict=True)))
    found = again is not None and bool(again.labels) and _tried(frame, entrance, again, now)
    return found if isinstance(found, Compact) else None


def _tried(frame: DataFrame, entrance: Entrance, wanted: Wanted, now: int) -> Compact | bool:
    """Otherwise whether it is for labels alone that are not known."""
    if wanted.labels is None or (wanted.keep is not None and not any(numbers for numbers, _ in wanted.keep)):
        return False
    files = MODIFIED in frame.columns
    place = (
        [
            F.expr(f"unix_micros({MODIFIED})").alias(MODIFIED),
            F.expr(f"xxhash64({FILE})").alias(FILE),
            F.col(BLOCK).alias(BLOCK),
        ]
        if files
        else []
    )
    time = F.expr(f"unix_millis({spark_name(entrance.event_time)})") if entrance.event_time else F.lit(now)
    label = F.expr(_numbered(entrance, wanted.labels))
    columns = [F.col(_quoted(name)) for name in wanted.columns]
    seen = Observation()
    late = now + entrance.skew if entrance.skew is not None and entrance.event_time else 1 << 62
    spoilt = F.col(SPOILT).isNotNull() if SPOILT in frame.columns else F.lit(False)
    fine = time.isNotNull() & (time <= late) & ~spoilt
    shaped = frame.select(*place, time.alias(_TIME), label.alias(_LABEL), *columns, (~fine).alias(SPOILT)).observe(
        seen,
        F.count(F.lit(1)).alias("tuples"),
        F.count_if(F.col(SPOILT)).alias("bad"),
        F.count_if(F.col(_LABEL).isNull()).alias("unknown"),
    )
    if wanted.keep is not None:
        shaped = shaped.where(_kept(wanted))
    table = shaped.drop(SPOILT).toArrow()
    counted = seen.get
    if counted["bad"] or counted["unknown"]:
        return not counted["bad"]
    if files and (table := _ordered(table)) is None:
        return False
    arrays = {name: table.column(name).combine_chunks() for name in wanted.columns}
    times, labels = (table.column(name).to_numpy() for name in (_TIME, _LABEL))
    return Compact(Arrivals(entrance.name, times, labels, arrays), int(counted["tuples"]))


def _numbered(entrance: Entrance, labels: Mapping[tuple[str | None, ...], int]) -> str:
    """The number of a label by the texts it is made of; NULL where they were never read before."""
    names = [spark_name(name) for name in entrance.labels.values()]
    cases = [f"WHEN {' AND '.join(map(_equals, names, texts))} THEN {number}L" for texts, number in labels.items()]
    if not names:
        return f"{next(iter(labels.values()))}L"
    return f"CASE {' '.join(cases)} END" if cases else "CAST(NULL AS BIGINT)"


def _equals(name: str, text: str | None) -> str:
    return f"{name} IS NULL" if text is None else f"{name} = CAST(X'{text.encode().hex()}' AS STRING)"


def _kept(wanted: Wanted) -> str:
    """What any block may want, by its label and its conditions."""

    def name(part: Column | AggregateCall) -> str:
        quoted = spark_name(_name(part))
        return spark_utc(quoted) if part.type == Type.TIMESTAMP else quoted

    alternatives = [
        f"({_LABEL} IN ({', '.join(map(str, numbers))}) AND {spark_sql(condition, name) if condition else 'TRUE'})"
        for numbers, condition in wanted.keep or ()
        if numbers
    ]
    return " OR ".join(alternatives) or "FALSE"


def _name(part: Column | AggregateCall) -> str:
    if not isinstance(part, Column):
        raise ValueError(f"{part} is no column")
    return part.name


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _ordered(table: pa.Table) -> pa.Table | None:
    """The rows in the order of their arrival: files by time of modification, then their parts. None if two files are of
    the same time: then their names decide, which are not here."""
    place = [table.column(name).to_numpy() for name in _HASHED]
    if not table.num_rows:
        return table
    changes = np.flatnonzero(np.logical_or.reduce([x[1:] != x[:-1] for x in place])) + 1
    begins: Ints = np.concatenate([[0], changes])
    ends = np.concatenate([changes, [table.num_rows]])
    modified, file, block = (x[begins] for x in place)
    if len(set(zip(modified.tolist(), file.tolist(), strict=True))) > len(set(modified.tolist())):
        return None
    order = np.lexsort((block, modified))
    if (np.diff(order) > 0).all():
        return table
    return pa.concat_tables([table.slice(begins[x], ends[x] - begins[x]) for x in order])
