"""Batches as numbers: Spark itself reads times, gives known labels their numbers, and drops what nobody will want.

What travels to the kernels is then a few columns of numbers, without texts. It is right only for a batch in which every
tuple is in order and every label was read before; a batch that has anything else, which Spark counts on the way, is
read as a whole, and ingress looks at each of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from headgate.engine.ingress import SPOILT, Entrance, fitting
from headgate.engine.kernels.rows import Ints
from headgate.engine.processor import Arrivals
from headgate.engine.sql import spark_name, spark_sql, spark_utc
from headgate.engine.sql.forms import FIRST_MICROSECOND, LAST_MICROSECOND
from headgate.engine.sql.types import ARROW
from headgate.engine.wanted import MOST_LISTED, Learn, Wanted
from headgate.plan.expressions import AggregateCall, Column, Compare, Expr, Literal, Type

MODIFIED, FILE, BLOCK = "headgate_modified", "headgate_file", "headgate_block"
"""Where a row of a file comes from; Spark packs files into tasks by their size."""

_TIME, _LABEL = "headgate_time", "headgate_label"
FIRST = 10_000

Alternatives = Sequence[tuple[tuple[int, ...], Expr | None]]
"""Labels that somebody sees, and the condition under which a tuple yields anything there."""


@dataclass(frozen=True)
class Compact:
    """A batch without what nobody wants, how many tuples it had, and how many were dropped that nobody sees."""

    arrivals: Arrivals
    tuples: int
    wanted: Wanted
    unseen: int = 0


def compacted(frame: DataFrame, entrance: Entrance, wanted: Wanted, now: int, learn: Learn) -> Compact | None:
    """None: this batch has to be looked at row by row. Labels that were never read before are, first."""
    if wanted.labels:
        found = _tried(frame, entrance, wanted, now)
        if found is not True:
            return found or None
    texts = frame.select(*(F.col(_quoted(name)) for name in entrance.labels.values()))
    for some in (texts.limit(FIRST), texts):  # the first tuples nearly always show all labels there are
        kinds = _kinds(some)
        if len(wanted.labels) > MOST_LISTED or len(kinds) > MOST_LISTED:
            return None
        again = learn(kinds)
        found = again is not None and bool(again.labels) and _tried(frame, entrance, again, now)
        if found is not True:
            return found or None
    return None


def _kinds(texts: DataFrame) -> list[tuple[str | None, ...]]:
    """Those that differ, or more than `MOST_LISTED` of them."""
    found = texts.distinct().coalesce(1).limit(MOST_LISTED + 1).toArrow()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def _tried(frame: DataFrame, entrance: Entrance, wanted: Wanted, now: int) -> Compact | bool:
    """Otherwise whether it is for labels alone that are not known."""
    if len(wanted.labels) > MOST_LISTED or (wanted.keep is not None and not any(x for x, _ in wanted.keep)):
        return False
    place = _place(frame)
    label = F.expr(_numbered(entrance, wanted.labels))
    columns = [F.col(_quoted(name)) for name in wanted.columns]
    shaped = frame.select(
        *place.values(), _time(frame, entrance, wanted.longest).alias(_TIME), label.alias(_LABEL), *columns
    )
    latest = now + entrance.skew if entrance.event_time and entrance.skew is not None else None
    seen = None
    if wanted.keep is not None:
        counted = F.count(F.lit(1)).alias("tuples"), F.max(_TIME).alias("latest")
        shaped = shaped.observe(seen := Observation(), *counted)
        shaped = shaped.where(f"{_TIME} IS NULL OR {_LABEL} IS NULL OR {_kept(weakest(wanted.keep))}")
    table = shaped.toArrow()
    times, labels = (table.column(name) for name in (_TIME, _LABEL))
    greatest = seen.get["latest"] if seen is not None else pc.max(times).as_py() if table.num_rows else None
    bad = times.null_count or (latest is not None and greatest is not None and greatest > latest)
    if bad or labels.null_count:
        return not bad
    if place and (table := _ordered(table, list(place))) is None:
        return False
    types = dict(entrance.columns)
    arrays = {name: fitting(table.column(name), ARROW[types[name]]) for name in wanted.columns}
    times, labels = (table.column(name).to_numpy().astype(np.int64, copy=False) for name in (_TIME, _LABEL))
    if entrance.event_time is None:
        times = np.full(len(times), now)
    tuples = int(seen.get["tuples"]) if seen is not None else table.num_rows
    unseen = tuples - len(times) if wanted.by_labels else 0
    return Compact(Arrivals(entrance.name, times, labels, arrays), tuples, wanted, unseen)


def _time(frame: DataFrame, entrance: Entrance, longest: int) -> SparkColumn:
    """The event time in milliseconds; NULL where a tuple has none, or is one that ingress would refuse whenever it
    comes. Without event time any number does."""
    fine = F.col(SPOILT).isNull() if SPOILT in frame.columns else F.lit(True)
    for name, type_ in entrance.columns:
        if type_ == Type.STRING:
            fine &= F.expr(f"COALESCE(octet_length({spark_name(name)}), 0) <= {longest}")
    if entrance.event_time is None:
        return F.when(fine, F.lit(0).cast("bigint"))
    time = F.expr(f"unix_millis({spark_name(entrance.event_time)})")
    return F.when(fine & time.between(FIRST_MICROSECOND // 1000, LAST_MICROSECOND // 1000), time)


def _numbered(entrance: Entrance, labels: Mapping[tuple[str | None, ...], int]) -> str:
    """The number of a label by the texts it is made of; NULL where they were never read before."""
    names = [spark_name(name) for name in entrance.labels.values()]
    cases = [f"WHEN {' AND '.join(map(_equals, names, texts))} THEN {number}" for texts, number in labels.items()]
    if not names:
        return f"{next(iter(labels.values()))}"
    return f"CASE {' '.join(cases)} END" if cases else "CAST(NULL AS INT)"


def _equals(name: str, text: str | None) -> str:
    return f"{name} IS NULL" if text is None else f"{name} = CAST(X'{text.encode().hex()}' AS STRING)"


def _kept(alternatives: Alternatives) -> str:
    """What any block may want, by its label and its conditions."""

    def name(part: Column | AggregateCall) -> str:
        quoted = spark_name(_name(part))
        return spark_utc(quoted) if part.type == Type.TIMESTAMP else quoted

    texts = [
        f"({_LABEL} IN ({', '.join(map(str, numbers))}) AND {spark_sql(condition, name) if condition else 'TRUE'})"
        for numbers, condition in alternatives
        if numbers
    ]
    return " OR ".join(texts) or "FALSE"


def weakest(alternatives: Alternatives) -> Alternatives:
    """The same with fewer words: of those who see the same labels and compare one column with different bounds, whoever
    wants most."""
    found: dict[tuple[object, ...], tuple[tuple[int, ...], Expr | None]] = {}
    for numbers, condition in alternatives:
        match condition:
            case Compare(">" | ">=" | "<" | "<=" as operator, Column() as column, Literal(int() as bound)):
                key: tuple[object, ...] = numbers, operator, column
                other = found.get(key)
                if other and isinstance(other[1], Compare) and isinstance(other[1].right, Literal):
                    known = other[1].right.value
                    wider = isinstance(known, int) and (bound < known if operator[0] == ">" else bound > known)
                    if not wider:
                        continue
            case _:
                key = numbers, condition
        found[key] = numbers, condition
    return tuple(found.values())


def _name(part: Column | AggregateCall) -> str:
    if not isinstance(part, Column):
        raise ValueError(f"{part} is no column")
    return part.name


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _place(frame: DataFrame) -> dict[str, SparkColumn]:
    """What says where a row was."""
    if MODIFIED not in frame.columns:
        return {}
    parts = {MODIFIED: f"unix_micros({MODIFIED})", FILE: f"xxhash64({FILE})", BLOCK: BLOCK}
    return {name: F.expr(text).alias(name) for name, text in parts.items()}


def _ordered(table: pa.Table, names: Sequence[str]) -> pa.Table | None:
    """The rows in the order of their arrival: files by time of modification, then their parts. None if two files are of
    the same time: then their names decide, which are not here."""
    place = [table.column(name).to_numpy() for name in names]
    if not table.num_rows:
        return table
    changes = np.flatnonzero(np.logical_or.reduce([x[1:] != x[:-1] for x in place])) + 1
    begins: Ints = np.concatenate([[0], changes])
    ends = np.concatenate([changes, [table.num_rows]])
    at = {name: x[begins] for name, x in zip(names, place, strict=True)}
    if FILE in at and len({*zip(at[MODIFIED].tolist(), at[FILE].tolist(), strict=True)}) > len(
        set(at[MODIFIED].tolist())
    ):
        return None
    order = np.lexsort([at[name] for name in reversed(names) if name != FILE])
    if (np.diff(order) > 0).all():
        return table
    return pa.concat_tables([table.slice(begins[x], ends[x] - begins[x]) for x in order])
