"""Pushdown into Spark: Spark decodes event times and known labels to numbers, and drops tuples that no view needs.

The decoded batch then has few columns, with label numbers instead of label texts. A negative label number marks a
tuple to be rejected; a sample of these is fetched separately. A batch with more labels than can be listed is read
whole, and `validation` checks each of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from headgate.columns.sorting import Ints
from headgate.expressions.sql import spark_name, spark_sql, spark_utc
from headgate.expressions.sql.forms import FIRST_MICROSECOND, LAST_MICROSECOND
from headgate.expressions.sql.types import ARROW
from headgate.expressions.sql.writing import is_plain
from headgate.ingress.pushdown import MOST_LISTED, Pushdown, RegisterLabels
from headgate.ingress.time_budget import TimeBudget
from headgate.ingress.validation import AHEAD, MOST_KEPT, NO_LABEL, NO_TIME, TOO_LONG, fitting, rejected_rows
from headgate.model.rejected import RejectedRows
from headgate.model.stream import StreamDescriptor
from headgate.model.tuples import TupleBatch
from headgate.plan import normal
from headgate.plan.expressions import AggregateCall, And, Column, Compare, Expr, Like, Literal, Type

MODIFIED, FILE, BLOCK = "headgate_modified", "headgate_file", "headgate_block"
"""Columns for the position of a row: modification time, file, block. Spark packs files into tasks by size."""

_TIME, _LABEL = "headgate_time", "headgate_label"
FIRST = 10_000
_NO_LABEL, _TOO_LONG, _NO_TIME = -1, -2, -3
_REASONS = {_NO_LABEL: NO_LABEL, _TOO_LONG: TOO_LONG, _NO_TIME: NO_TIME}
"""Negative numbers in place of a label number: why a tuple is rejected."""

Alternatives = Sequence[tuple[tuple[int, ...], Expr | None]]
"""For each block the label numbers that it sees and its condition (`Pushdown.keep`)."""


@dataclass(frozen=True)
class DecodedBatch:
    """A batch after pushdown.

    arrivals: the tuples that are left
    tuples: how many tuples the batch had
    pushdown: the pushdown that it was read with
    unseen: how many tuples were dropped because no view sees them
    rejected: the rejected rows
    """

    arrivals: TupleBatch
    tuples: int
    pushdown: Pushdown
    unseen: int = 0
    rejected: Sequence[RejectedRows] = ()


def decoded(
    frame: DataFrame,
    descriptor: StreamDescriptor,
    pushdown: Pushdown,
    now: int,
    register: RegisterLabels,
    patience: TimeBudget | None = None,
) -> DecodedBatch | None:
    """Decodes a batch; None: it must be validated row by row. New labels are registered first."""
    patience = patience or TimeBudget()
    if pushdown.labels:
        found = _tried(frame, descriptor, pushdown, now, patience)
        if found is not True:
            return found or None
    texts = frame.select(*(F.col(_quoted(name)) for name in descriptor.labels.values()))
    for some in (texts.limit(FIRST), texts):  # the first tuples nearly always have all labels
        kinds = _kinds(some)
        if len(pushdown.labels) > MOST_LISTED or len(kinds) > MOST_LISTED:
            return None
        again = register(kinds)
        found = again is not None and bool(again.labels) and _tried(frame, descriptor, again, now, patience)
        if found is not True:
            return found or None
    return None


def _kinds(texts: DataFrame) -> list[tuple[str | None, ...]]:
    """The distinct label texts, at most `MOST_LISTED` + 1 of them."""
    found = texts.distinct().coalesce(1).limit(MOST_LISTED + 1).toArrow()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def _tried(
    frame: DataFrame,
    descriptor: StreamDescriptor,
    pushdown: Pushdown,
    now: int,
    patience: TimeBudget,
    *,
    ahead_too: bool = False,
) -> DecodedBatch | bool:
    """The decoded batch; True: it has unregistered labels; False: it cannot be decoded here. `ahead_too` also fetches
    tuples with event times too far ahead, to reject them."""
    listed = len(pushdown.labels) + len(pushdown.unreadable)
    if listed > MOST_LISTED or (pushdown.keep is not None and not any(x for x, _ in pushdown.keep)):
        return False
    if pushdown.keep in patience.given_up:
        pushdown = _unconditional(pushdown)
    place = _place(frame)
    columns = [F.col(_quoted(name)) for name in pushdown.columns]
    shaped = frame.select(
        *place.values(), _time(descriptor).alias(_TIME), _number(descriptor, pushdown).alias(_LABEL), *columns
    )
    latest = now + descriptor.skew if descriptor.event_time and descriptor.skew is not None else None
    seen = None
    if pushdown.keep is not None:
        somebodys = ", ".join(map(str, sorted({x for some, _ in pushdown.keep for x in some})))
        ahead = f"{_TIME} > {latest}L" if ahead_too else "FALSE"
        nobodys = F.expr(f"count_if({_LABEL} >= 0 AND {_LABEL} NOT IN ({somebodys}) AND NOT {ahead})")
        counted = F.count(F.lit(1)).alias("tuples"), F.max(_TIME).alias("latest"), nobodys.alias("nobodys")
        shaped = shaped.observe(seen := Observation(), *counted)
        shaped = shaped.where(f"{ahead} OR {_LABEL} < 0 OR {_LABEL} IS NULL OR {_kept(weakest(pushdown.keep))}")
    if pushdown.keep is not None and any(condition is not None for _, condition in pushdown.keep):
        table = patience.collected(shaped)
        if table is None:
            patience.given_up.add(pushdown.keep)
            return _tried(frame, descriptor, pushdown, now, patience)
    else:
        table = shaped.toArrow()
    if table.column(_LABEL).null_count:
        return True
    if seen is not None and latest is not None and not ahead_too and (seen.get["latest"] or 0) > latest:
        return _tried(frame, descriptor, pushdown, now, patience, ahead_too=True)
    if place and (table := _ordered(table, list(place))) is None:
        return False
    times, labels = (table.column(name).to_numpy().astype(np.int64, copy=False) for name in (_TIME, _LABEL))
    tuples = int(seen.get["tuples"]) if seen is not None else table.num_rows
    unseen = int(seen.get["nobodys"]) if seen is not None else 0
    good = labels >= 0
    if latest is not None:
        good &= times <= latest
    rejected: list[RejectedRows] = []
    if not good.all():
        rejected = _rejected(frame, descriptor, pushdown, times, labels, latest)
        table, times, labels = table.filter(pa.array(good)), times[good], labels[good]
    types = dict(descriptor.columns)
    arrays = {name: fitting(table.column(name), ARROW[types[name]]) for name in pushdown.columns}
    if descriptor.event_time is None:
        times = np.full(len(times), now)
    return DecodedBatch(TupleBatch(descriptor.name, times, labels, arrays), tuples, pushdown, unseen, rejected)


def _unconditional(pushdown: Pushdown) -> Pushdown:
    """The pushdown without conditions: all tuples that any view sees."""
    return replace(pushdown, keep=tuple((some, None) for some, _ in pushdown.keep or ()))


def _rejected(
    frame: DataFrame, descriptor: StreamDescriptor, pushdown: Pushdown, times: Ints, labels: Ints, latest: int | None
) -> list[RejectedRows]:
    """The rejected rows of a batch. They are counted in the fetched columns, and a sample of rows for each reason is
    fetched separately: one invalid tuple must not cause every row to be validated."""
    time, number = _time(descriptor), _number(descriptor, pushdown)
    ahead = (times > latest) & (labels >= _NO_LABEL) if latest is not None else np.zeros(len(times), np.bool_)
    kinds = [(reason, (labels == code) & ~ahead, number == code) for code, reason in _REASONS.items()]
    if latest is not None:
        kinds.append((AHEAD, ahead, (time > latest) & (number >= _NO_LABEL)))
        kinds[0] = (kinds[0][0], kinds[0][1], kinds[0][2] & (time <= latest))
    found = []
    for reason, which, condition in kinds:
        if total := int(np.count_nonzero(which)):
            some = frame.where(condition).select(*(F.col(_quoted(name)) for name, _ in descriptor.columns))
            found.append(rejected_rows(descriptor.name, reason, some.limit(MOST_KEPT).toArrow(), total))
    return found


def _time(descriptor: StreamDescriptor) -> SparkColumn:
    """The event time in milliseconds. It is 0 where a tuple has none (`_number` marks it) and where the stream has none
    (the time of arrival replaces it)."""
    if descriptor.event_time is None:
        return F.lit(0).cast("bigint")
    return F.coalesce(F.expr(f"unix_millis({spark_name(descriptor.event_time)})"), F.lit(0).cast("bigint"))


def _number(descriptor: StreamDescriptor, pushdown: Pushdown) -> SparkColumn:
    """The label number of a tuple; below 0 if it is rejected for a reason other than the clock; NULL if its label is
    not registered."""
    long = " OR ".join(
        f"COALESCE(octet_length({spark_name(name)}), 0) > {pushdown.longest}"
        for name, type_ in descriptor.columns
        if type_ in (Type.STRING, Type.BINARY)
    )
    timeless = "FALSE"
    if descriptor.event_time is not None:
        time = f"unix_millis({spark_name(descriptor.event_time)})"
        timeless = f"COALESCE({time} NOT BETWEEN {FIRST_MICROSECOND // 1000}L AND {LAST_MICROSECOND // 1000}L, TRUE)"
    return F.expr(
        f"CASE WHEN {long or 'FALSE'} THEN {_TOO_LONG} WHEN {timeless} THEN {_NO_TIME} "
        f"ELSE {_numbered(descriptor, pushdown)} END"
    )


def _numbered(descriptor: StreamDescriptor, pushdown: Pushdown) -> str:
    """SQL for the label number of the label texts; NULL if they are not registered."""
    names = [spark_name(name) for name in descriptor.labels.values()]
    if not names:
        return f"{next(iter(pushdown.labels.values()))}"
    known = [*pushdown.labels.items(), *((texts, _NO_LABEL) for texts in sorted(pushdown.unreadable, key=str))]
    cases = [f"WHEN {' AND '.join(map(_equals, names, texts))} THEN {number}" for texts, number in known]
    return f"CASE {' '.join(cases)} END" if cases else "CAST(NULL AS INT)"


def _equals(name: str, text: str | None) -> str:
    return f"{name} IS NULL" if text is None else f"{name} = CAST(X'{text.encode().hex()}' AS STRING)"


def _kept(alternatives: Alternatives) -> str:
    """SQL for the tuples that any block needs, by label and condition."""

    def name(part: Column | AggregateCall) -> str:
        quoted = spark_name(_name(part))
        return spark_utc(quoted) if part.type == Type.TIMESTAMP else quoted

    texts = [
        f"({_LABEL} IN ({', '.join(map(str, numbers))}) AND {spark_sql(pushed(condition), name)})"
        for numbers, condition in alternatives
        if numbers
    ]
    return " OR ".join(texts) or "FALSE"


def pushed(condition: Expr | None) -> Expr:
    """The part of a condition that is pushed down to Spark; the condition implies it. Spark matches patterns by
    backtracking, so that a few tuples could occupy it without end: only patterns for a fixed text at the beginning, at
    the end or anywhere are pushed down."""
    if condition is None:
        return normal.TRUE
    parts = condition.parts if isinstance(condition, And) else (condition,)
    plain = (x for x in parts if all(is_plain(y) for y in x.walk() if isinstance(y, Like)))
    return normal.conjunction(plain)


def weakest(alternatives: Alternatives) -> Alternatives:
    """Shortens the filter: of the blocks that see the same labels and compare one column with different bounds, only
    the one with the weakest bound is kept."""
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
    """The columns for the position of a row; none if the source is not files."""
    if MODIFIED not in frame.columns:
        return {}
    parts = {MODIFIED: f"unix_micros({MODIFIED})", FILE: f"xxhash64({FILE})", BLOCK: BLOCK}
    return {name: F.expr(text).alias(name) for name, text in parts.items()}


def _ordered(table: pa.Table, names: Sequence[str]) -> pa.Table | None:
    """The rows in order of arrival: files by modification time, then their blocks. None if two files have the same
    time: then their paths decide, of which only hashes are fetched."""
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
