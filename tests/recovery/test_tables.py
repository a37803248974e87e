"""Tables beside streams: each reader sees its own part, and the content stays the same while any query reads it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from worlds.harness import Bench, Row, stream, table

from headgate.errors import StoreError
from headgate.ingress.validation import NO_LABEL
from headgate.labels import parse_label
from headgate.model.limits import Limits
from headgate.plan.secure import Mode
from headgate.recovery.state import KEPT
from headgate.visibility.policy import VisibilityPolicy

WARDS: list[Row] = [("TRUE", 1, "east"), ("TRUE", 2, "west"), ("doctor", 3, "closed")]
BY_WARD = "SELECT w.ward, v.bp FROM vitals v, wards w WHERE v.pat = w.pat"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    found = Bench(tmp_path, stream("vitals", "pat INT, bp INT"), table("wards", "pat INT, ward STRING"))
    found.content["wards"] = WARDS
    return found


def again(bench: Bench) -> None:
    """The process ends, and another goes on."""
    assert bench.pipeline is not None
    bench.pipeline.close()
    bench.begin()


def refused(bench: Bench, name: str) -> list[object]:
    return [json.loads(line) for line in (bench.home / "out/owner" / f"{name}.rejected.jsonl").read_text().splitlines()]


# What they mean -------------------------------------------------------------------------------------------------------


def test_each_reader_sees_of_a_table_what_it_may_see(bench: Bench) -> None:
    bench.query("q", BY_WARD)
    bench.subscribed(doc=("q", "doctor"), ann=("q", "nurse"))
    bench.take("vitals", ("TRUE", 1, 120), ("TRUE", 3, 130), ("TRUE", 9, 140))
    bench.end()
    assert bench.fetched("doc", "q") == [("east", 120), ("closed", 130)]
    assert bench.fetched("ann", "q") == [("east", 120)]


def test_a_subscriber_who_comes_later_sees_all_of_the_same_content(bench: Bench) -> None:
    bench.query("q", BY_WARD)
    bench.subscribed(doc=("q", "doctor"))
    bench.take("vitals", ("TRUE", 1, 120))
    bench.content["wards"] = [("TRUE", 1, "moved")]
    bench.subscribed(doc=("q", "doctor"), ann=("q", "nurse"))
    bench.take("vitals", ("TRUE", 2, 121))
    bench.end()
    assert bench.fetched("ann", "q") == [("west", 121)]


def test_another_query_over_the_same_table_shares_its_content_and_may_read_other_columns(bench: Bench) -> None:
    bench.query("q", "SELECT v.bp FROM vitals v, wards w WHERE v.pat = w.pat")
    bench.subscribed(doc=("q", "doctor"))
    bench.take("vitals", ("TRUE", 1, 120))
    bench.content["wards"] = [("TRUE", 1, "moved")]
    bench.query("more", BY_WARD)
    bench.subscribed(doc=("q", "doctor"), ann=("more", "nurse"))
    bench.take("vitals", ("TRUE", 2, 121))
    bench.end()
    assert bench.fetched("doc", "q") == [(120,), (121,)]
    assert bench.fetched("ann", "more") == [("west", 121)]


def test_a_table_that_nobody_reads_any_more_is_read_anew_for_the_next(bench: Bench) -> None:
    first = bench.query("q", BY_WARD)
    bench.subscribed(doc=("q", "doctor"))
    bench.take("vitals", ("TRUE", 1, 120))
    del bench.queries["q"]
    bench.subscribed()
    for _ in range(KEPT):
        bench.take("vitals", ("TRUE", 1, 121))
    assert not list((bench.home / "state").glob("table-*"))
    bench.content["wards"] = [("TRUE", 1, "moved")]
    bench.queries["q"] = first
    bench.subscribed(doc=("q", "doctor"))
    bench.take("vitals", ("TRUE", 1, 122))
    bench.end()
    assert bench.fetched("doc", "q") == [("moved", 122)]


def test_tables_with_nothing_in_common_are_never_combined_with_each_other(tmp_path: Path) -> None:
    """Both are joined with the few tuples of the stream, whatever their names say about their order."""
    many: list[Row] = [("TRUE", n, "x") for n in range(2_000)]
    beds = stream("vitals", "pat INT, bed INT")
    bench = Bench(tmp_path, beds, table("a", "pat INT, ward STRING"), table("b", "bed INT, room STRING"))
    bench.limits = Limits(rows=100_000)
    bench.content = {"a": many, "b": many}
    bench.query("q", "SELECT v.pat, v.bed FROM a, b, vitals v WHERE v.pat = a.pat AND v.bed = b.bed")
    bench.subscribed(ann=("q", ""))
    bench.take("vitals", ("TRUE", 7, 8), ("TRUE", 7, 9_999))
    bench.end()
    assert bench.fetched("ann", "q") == [(7, 8)]


def test_labels_of_a_table_combine_with_those_of_streams_in_cumulative_queries(bench: Bench) -> None:
    bench.query("q", BY_WARD, mode=Mode.CUMULATIVE)
    bench.subscribed(doc=("q", "doctor"), ann=("q", "nurse"), both=("q", "doctor,nurse"))
    bench.take("vitals", ("nurse", 3, 120), ("TRUE", 3, 121), ("nurse", 1, 122))
    bench.end()
    assert bench.fetched("doc", "q") == [("closed", 121)]
    assert bench.fetched("ann", "q") == [("east", 122)]
    assert bench.fetched("both", "q") == [("closed", 120), ("closed", 121), ("east", 122)]


# Rights that change ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", ["", "[UNBOUNDED]"])
def test_changed_rights_to_a_table_show_in_the_next_results_and_emit_none(bench: Bench, window: str) -> None:
    bench.query("q", f"SELECT w.ward, v.bp FROM vitals {window} v, wards w WHERE v.pat = w.pat")
    for roles, first in (("nurse", 120), ("doctor", 122), ("nurse", 124), ("doctor", 126)):
        bench.subscribed(ann=("q", roles))
        bench.take("vitals", ("TRUE", 3, first), ("TRUE", 1, first + 1))
        bench.take("vitals", ("TRUE", 9, 0))  # makes those before it final
    got = bench.fetched("ann", "q")
    assert [bp for ward, bp in got if ward == "closed"] == [122, 126]
    assert [bp for ward, bp in got if ward == "east"] == [121, 123, 125, 127]


def test_a_column_that_may_be_read_again_is_there_again(tmp_path: Path) -> None:
    labels = {"ward": parse_label("doctor")}
    bench = Bench(tmp_path, stream("vitals", "pat INT, bp INT"), table("wards", "pat INT, ward STRING", labels))
    bench.content["wards"] = WARDS
    bench.query("q", BY_WARD)
    bench.subscribed(ann=("q", "doctor"))
    assert _seen(bench, 120) == [("east", 120)]
    bench.subscribed(ann=("q", "nurse"))
    assert _seen(bench, 121) == [(None, 121)]
    bench.subscribed(ann=("q", "doctor"))
    assert _seen(bench, 122) == [("east", 122)]


def _seen(bench: Bench, bp: int) -> list[Row]:
    bench.take("vitals", ("TRUE", 1, bp))
    bench.take("vitals", ("TRUE", 9, 0))
    return bench.fetched("ann", "q")


def test_a_stricter_policy_of_the_owner_protects_what_was_read_before(bench: Bench) -> None:
    bench.query("q", BY_WARD)
    bench.subscribed(ann=("q", "nurse"))
    assert _seen(bench, 120) == [("east", 120)]
    stricter = replace(bench.descriptors["wards"], policy=parse_label("doctor"))
    bench.descriptors = {**bench.descriptors, "wards": stricter}
    bench.subscribed(ann=("q", "nurse"))
    assert _seen(bench, 121) == []


# What cannot be seen --------------------------------------------------------------------------------------------------


def counting(bench: Bench, wards: list[Row]) -> list[Row]:
    """What a nurse is told by a query that looks for traces of every tuple of the table."""
    bench.content["wards"] = wards
    bench.query("q", "SELECT COUNT(*) AS n, MAX(w.ward) AS most FROM vitals [ROWS 5] v, wards w WHERE v.pat >= w.pat")
    bench.subscribed(ann=("q", "nurse"), doc=("q", "doctor"))
    bench.take("vitals", ("TRUE", 5, 120), ("TRUE", 1, 130))
    bench.end()
    return bench.fetched("ann", "q")


HIDDEN: list[Row] = [("doctor", 0, "zzz"), ("doctor AT TS", 1, "zz"), ("nonsense (", 2, "z")]


def test_hidden_tuples_of_a_table_change_nothing(bench: Bench, tmp_path: Path) -> None:
    other = Bench(tmp_path / "other", *bench.streams)
    assert counting(bench, WARDS[:2]) == counting(other, [*HIDDEN, *WARDS]) == [(2, "west"), (3, "west")]


def test_without_the_filter_the_same_attack_reveals_hidden_tuples(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Egress alone still withholds results with the labels of hidden tuples, and that is what tells of them."""
    monkeypatch.setattr(VisibilityPolicy, "sees", lambda _, view, *__: [1] * len(view.columns))
    other = Bench(tmp_path / "other", *bench.streams)
    assert counting(bench, WARDS[:2]) != counting(other, [*HIDDEN, *WARDS])


def test_a_table_with_no_visible_tuples_gives_no_results(bench: Bench) -> None:
    bench.content["wards"] = [("doctor", 1, "east")]
    bench.query("q", BY_WARD)
    bench.subscribed(ann=("q", "nurse"))
    assert _seen(bench, 120) == []


# Going on, and what goes wrong ----------------------------------------------------------------------------------------


def test_a_restart_goes_on_with_the_same_snapshot(bench: Bench) -> None:
    bench.query("q", BY_WARD)
    bench.subscribed(ann=("q", "nurse"))
    bench.take("vitals", ("TRUE", 1, 120), ("TRUE", 2, 121))
    bench.content["wards"] = None
    again(bench)
    bench.take("vitals", ("TRUE", 1, 122), ("TRUE", 3, 123))
    bench.end()
    assert bench.fetched("ann", "q") == [("east", 120), ("west", 121), ("east", 122)]


def test_a_snapshot_of_a_table_is_written_once_and_readable_by_nobody_else(bench: Bench) -> None:
    bench.query("q", BY_WARD)
    bench.subscribed(ann=("q", "nurse"))
    bench.take("vitals", ("TRUE", 1, 120))
    (file,) = (bench.home / "state").glob("table-*")
    before = file.stat().st_mtime_ns
    bench.take("vitals", ("TRUE", 1, 121))
    assert file.stat().st_mtime_ns == before
    assert (bench.home / "state").stat().st_mode & 0o077 == file.stat().st_mode & 0o077 == 0


def test_a_damaged_snapshot_is_reported(bench: Bench) -> None:
    bench.query("q", BY_WARD)
    bench.subscribed(ann=("q", "nurse"))
    bench.take("vitals", ("TRUE", 1, 120))
    (file,) = (bench.home / "state").glob("table-*")
    file.write_bytes(b"nothing")
    with pytest.raises(StoreError) as caught:
        again(bench)
    assert caught.value.message == f"cannot read the state in `{file}`: it is damaged"


def test_a_table_that_cannot_be_read_ends_its_queries_and_no_others(bench: Bench) -> None:
    bench.content["wards"] = None
    bench.query("q", BY_WARD)
    bench.query("plain", "SELECT bp FROM vitals")
    bench.query("over", "SELECT bp FROM out.q [ROWS 1]")
    who = {"ann": ("q", "nurse"), "bob": ("plain", "nurse"), "cid": ("over", "nurse")}
    bench.subscribed(**who)
    bench.begin(bench.files())
    bench.take("vitals", ("TRUE", 1, 120))
    bench.subscribed(**who, late=("q", "doctor"))
    bench.take("vitals", ("TRUE", 1, 121))
    told = [x for name in ("ann", "late") for x in bench.mailbox.fetch(name, "q", bench.now)]
    told += bench.mailbox.fetch("cid", "over", bench.now)
    assert [x.ended for x in told] == ["a table that the query reads is unavailable"] * 3
    assert bench.fetched("bob", "plain") == [(120,), (121,)]
    assert refused(bench, "wards") == [{"reason": "cannot read table wards as `csv`: PATH_NOT_FOUND", "values": {}}]


def test_after_a_restart_a_table_is_tried_again_for_those_who_subscribe_again(bench: Bench) -> None:
    bench.content["wards"] = None
    bench.query("q", BY_WARD)
    bench.subscribed(ann=("q", "nurse"))
    bench.take("vitals", ("TRUE", 1, 120))
    bench.content["wards"] = WARDS
    again(bench)
    bench.subscribed(ann=("q", "nurse"), anew=("q", "nurse"))
    bench.take("vitals", ("TRUE", 1, 122))
    bench.end()
    assert bench.fetched("ann", "q") == []
    assert bench.fetched("anew", "q") == [("east", 122)]


def test_bad_rows_of_a_table_are_for_its_owner(bench: Bench) -> None:
    bench.content["wards"] = [*WARDS, ("doctor &", 4, "north"), (None, 5, "south")]
    bench.query("q", BY_WARD)
    bench.subscribed(doc=("q", "doctor"))
    bench.begin(bench.files())
    bench.take("vitals", ("TRUE", 4, 120), ("TRUE", 5, 121))
    bench.end()
    assert bench.fetched("doc", "q") == []
    unfinished = "`policy`: expected a role, `(`, `TRUE` or `FALSE`, found the end of the text"
    assert refused(bench, "wards") == [
        {"reason": f"{NO_LABEL}: {unfinished}", "values": {"pat": 4, "ward": "north", "policy": "doctor &"}},
        {"reason": f"{NO_LABEL}: `policy` has no text", "values": {"pat": 5, "ward": "south", "policy": None}},
    ]


def test_only_the_visible_tuples_of_a_table_count_for_the_limit_of_a_view(bench: Bench) -> None:
    """The doctor sees more than four tuples; what the nurse cannot see does not end the nurse's view."""
    bench.limits = Limits(tuples=4)
    bench.content["wards"] = [*WARDS, ("doctor", 4, "north"), ("doctor", 5, "south")]
    bench.query("q", BY_WARD)
    bench.subscribed(doc=("q", "doctor"), ann=("q", "nurse"))
    bench.take("vitals", ("TRUE", 1, 120))
    bench.take("vitals", ("TRUE", 1, 121))
    bench.end()
    ended = [x.ended for x in bench.mailbox.fetch("doc", "q", bench.now) if x.ended]
    assert ended == ["its windows hold more than 4 tuples; use smaller windows, or have the setting view_tuples raised"]
    assert bench.fetched("ann", "q") == [("east", 120), ("east", 121)]


def test_a_user_without_rights_to_a_table_cannot_tell_whether_it_is_available(bench: Bench, tmp_path: Path) -> None:
    """The second block reads no table: it goes on for those to whom the table is hidden, as if it could be read."""
    other = Bench(tmp_path / "other", *bench.streams)
    bench.content["wards"], other.content["wards"] = None, WARDS
    seen = []
    for each in (bench, other):
        each.query("q", f"{BY_WARD} UNION ALL SELECT 'any' AS ward, bp FROM vitals [ROWS 1]")
        each.subscribed(ann=("q", "doctor"))
        hidden = replace(each.now.subscribers[0].clearance or each.clearance(""), sources=frozenset({"vitals"}))
        each.now = replace(each.now, subscribers=(replace(each.now.subscribers[0], clearance=hidden),))
        each.take("vitals", ("TRUE", 1, 120))
        each.end()
        seen.append([(x.ended, x.word) for x in each.mailbox.fetch("ann", "q", each.now)])
    assert seen[0] == seen[1]
