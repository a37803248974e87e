"""Validation alone: which rows become tuples, with which time and label, and which are rejected for which reason."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from headgate.ingress.validation import AHEAD, COLUMN_READERS, NO_LABEL, NO_TIME, READERS, Ingress
from headgate.labels import Label, LevelOrder, Rules, parse_label
from headgate.model.rejected import RejectedRows
from headgate.model.stream import StreamDescriptor
from headgate.model.tuples import TupleBatch
from headgate.plan.expressions import Type
from headgate.visibility.dictionary import Dictionary

RULES = Rules(LevelOrder.total("U", "C", "S", "TS"))
COLUMNS = (("n", Type.INT), ("x", Type.DOUBLE), ("at", Type.TIMESTAMP), ("p", Type.STRING), ("q", Type.STRING))
SCHEMA = pa.schema(
    {"n": pa.int32(), "x": pa.float64(), "at": pa.timestamp("us", "UTC"), "p": pa.string(), "q": pa.string()}
)
NOW = 1_000_000


def moment(microseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)


def taken(
    rows: Sequence[Mapping[str, object]], descriptor: StreamDescriptor
) -> tuple[TupleBatch, list[Label], dict[str, list[object]]]:
    """What arrived, the labels of these, and the numbers `n` of what was refused, by reason."""
    numbers = Dictionary()
    table = pa.Table.from_pylist([dict(row) for row in rows], SCHEMA)
    arrivals, rejected = Ingress(descriptor, RULES, numbers.number).take(table, NOW)
    labels = [numbers.labels[number] for number in arrivals.labels.tolist()]
    return arrivals, labels, {part.reason: [row["n"] for row in part.rows] for part in rejected}


def descriptor(**changes: object) -> StreamDescriptor:
    return StreamDescriptor("s", COLUMNS, **{"event_time": "at", **changes})  # type: ignore[arg-type]


def ns(arrivals: TupleBatch) -> list[object]:
    return list(arrivals.columns["n"].to_pylist())


def test_event_times_are_rounded_down_to_milliseconds_also_before_1970() -> None:
    times = (0, 999, 1000, -1, -999, -1000, -1001, -86_400_000_000, 1_700_000_000_123_456)
    arrivals, _, rejected = taken([{"n": n, "at": moment(time)} for n, time in enumerate(times)], descriptor())
    assert arrivals.times.tolist() == [time // 1000 for time in times] and not rejected


def test_without_an_event_time_the_time_of_arrival_counts() -> None:
    arrivals, _, rejected = taken([{"n": 1, "at": None}, {"n": 2, "at": moment(5)}], descriptor(event_time=None))
    assert arrivals.times.tolist() == [NOW, NOW] and not rejected


def test_a_row_without_an_event_time_is_rejected() -> None:
    arrivals, _, rejected = taken([{"n": 1, "at": None}, {"n": 2, "at": moment(0)}], descriptor())
    assert ns(arrivals) == [2] and rejected == {NO_TIME: [1]}


def test_a_row_too_far_ahead_of_the_clock_is_rejected_and_one_just_within_is_not() -> None:
    rows = [{"n": more, "at": moment((NOW + 500 + more) * 1000)} for more in (-1, 0, 1)]
    arrivals, _, rejected = taken(rows, descriptor(skew=500))
    assert ns(arrivals) == [-1, 0] and rejected == {AHEAD: [1]}
    assert ns(taken(rows, descriptor())[0]) == [-1, 0, 1]


@pytest.mark.parametrize("rows", [[], [{"n": 1, "at": None}]])
@pytest.mark.parametrize("labels", [{}, {"LABEL": "p"}, {"ROLES": "p", "LEVEL": "q"}])
def test_a_batch_of_nothing_is_fine(rows: list[dict[str, object]], labels: dict[str, str]) -> None:
    arrivals, found, _ = taken(rows, descriptor(labels=labels, skew=0))
    assert len(arrivals.times) == len(arrivals.labels) == len(found) == 0
    assert all(len(column) == 0 for column in arrivals.columns.values())


def test_a_number_that_is_not_finite_is_null_and_there_is_one_zero() -> None:
    values = (math.nan, math.inf, -math.inf, -0.0, 1.5, None)
    arrivals, _, rejected = taken([{"n": 0, "x": x, "at": moment(0)} for x in values], descriptor())
    found = arrivals.columns["x"].to_pylist()
    assert found == [None, None, None, 0.0, 1.5, None] and math.copysign(1, found[3]) == 1 and not rejected


def test_a_label_combines_the_policy_what_the_tuple_brings_and_its_stream() -> None:
    rows = [{"n": 1, "at": moment(0), "p": "doctor | nurse", "q": "S"}, {"n": 2, "at": moment(0), "p": "a", "q": "U"}]
    given = descriptor(labels={"ROLES": "p", "LEVEL": "q"}, policy=parse_label("nurse AT C FROM lab"))
    _, labels, rejected = taken(rows, given)
    assert labels == [parse_label("nurse AT S FROM lab, s"), parse_label("a & nurse AT C FROM lab, s")] and not rejected
    _, labels, _ = taken([{"n": 1, "at": moment(0), "p": "doctor AT S"}], descriptor(labels={"LABEL": "p"}))
    assert labels == [parse_label("doctor AT S FROM s")]


@pytest.mark.parametrize("kind", ["LABEL", "ROLES", "LEVEL"])
@pytest.mark.parametrize(
    "text", [None, "", " ", "doctor &", "(doctor", "TRUE AT X", "X{", "a AT", "doctor FROM", "U U"]
)
def test_a_label_that_is_missing_or_cannot_be_read_protects_from_everyone(kind: str, text: str | None) -> None:
    rows = [{"n": 1, "at": moment(0), "p": text}, {"n": 2, "at": moment(0), "p": "U"}]
    arrivals, _, rejected = taken(rows, descriptor(labels={kind: "p"}))
    assert ns(arrivals) == [2] and rejected == {NO_LABEL: [1]}


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("ROLES", None, "`p` has no text"),
        ("ROLES", "doctor &", "`p`: expected a role, `(`, `TRUE` or `FALSE`, found the end of the text"),
        ("LEVEL", "X", "`p`: there is no level X"),
        ("LABEL", "doctor AT X", "`p`: there is no level X"),
        ("LABEL", "doctor FROM lab", "`p` names sources, which a tuple cannot choose"),
    ],
)
def test_the_owner_is_told_why_a_label_cannot_be_read(kind: str, text: str | None, why: str) -> None:
    table = pa.Table.from_pylist([{"n": 1, "at": moment(0), "p": text}] * 2, SCHEMA)
    _, refused = Ingress(descriptor(labels={kind: "p"}), RULES, Dictionary().number).take(table, NOW)
    assert [(x.reason, x.details) for x in refused] == [(NO_LABEL, [why] * 2)]


def test_one_of_two_texts_that_cannot_be_read_is_enough() -> None:
    rows = [
        {"n": n, "at": moment(0), "p": p, "q": q} for n, (p, q) in enumerate((("a", None), (None, "S"), ("a", "S")))
    ]
    arrivals, _, rejected = taken(rows, descriptor(labels={"ROLES": "p", "LEVEL": "q"}))
    assert ns(arrivals) == [2] and rejected == {NO_LABEL: [0, 1]}


def test_a_row_is_rejected_once_for_the_first_reason() -> None:
    far = moment((NOW + 9) * 1000)
    rows = [{"n": n, "at": at, "p": "&"} for n, at in enumerate((None, far, moment(0)))]
    arrivals, _, rejected = taken(rows, descriptor(labels={"LABEL": "p"}, skew=0))
    assert not len(arrivals.times)
    assert rejected == {NO_TIME: [0], AHEAD: [1], NO_LABEL: [2]}


def test_order_and_values_stay_with_their_labels_when_rows_between_are_rejected() -> None:
    texts = ("a", "&", "b", None, "a", "c")
    rows = [{"n": n, "x": n / 2, "at": moment(-n * 1000), "p": text} for n, text in enumerate(texts)]
    arrivals, labels, _ = taken(rows, descriptor(labels={"ROLES": "p"}))
    assert ns(arrivals) == [0, 2, 4, 5] and arrivals.times.tolist() == [0, -2, -4, -5]
    assert [str(label.roles) for label in labels] == ["a", "b", "a", "c"]


def test_rejected_rows_are_kept_unchanged() -> None:
    numbers = Dictionary()
    table = pa.Table.from_pylist([{"n": 7, "x": 0.5, "at": None, "p": "a", "q": None}], SCHEMA)
    _, rejected = Ingress(descriptor(), RULES, numbers.number).take(table, NOW)
    assert rejected == [RejectedRows("s", NO_TIME, [{"n": 7, "x": 0.5, "at": None, "p": "a", "q": None}])]


@pytest.mark.parametrize("kind", ["LABEL", "ROLES", "LEVEL"])
def test_many_texts_are_read_as_few_are(kind: str) -> None:
    """A column at a time or one by one: the same labels, and the same texts are refused."""
    texts = [
        "a & (b | c)",
        "a | b AT S",
        "TRUE FROM s",
        "",
        "a &",
        "S",
        "S{X, Y}",
        "(a",
        '"head nurse" | x',
        "FALSE",
        "U",
    ]
    assert COLUMN_READERS[kind](texts) == READERS[kind](texts)
