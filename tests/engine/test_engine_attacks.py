"""Attacks on the engine by those who may write queries or send tuples: to learn of what they may not see, or to end the
work of others. Each is seen to succeed where its defence is switched off.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from engine.harness import NOW, RULES, Bench, Row, stream
from headgate.engine import ingress, sights
from headgate.engine.demand import Demand
from headgate.engine.egress import Egress
from headgate.engine.ingress import NO_LABEL, NO_TIME, SPOILT, TOO_LONG, Ingress
from headgate.engine.kernels import limits
from headgate.engine.kernels.limits import Limits
from headgate.engine.pipeline import Pipeline
from headgate.engine.sights import Sightings
from headgate.engine.sinks import file_name
from headgate.errors import StoreError
from headgate.labels import Clearance, Label, Level, Rules, Semantics, parse_label
from headgate.plan.secure import Mode

COLUMNS = "a INT, w STRING"
FEW = Limits(rows=1000, tuples=100, text=1000, texts=100_000)


def bench(home: Path, **queries: str) -> Bench:
    found = Bench(home, stream("s", COLUMNS))
    for name, text in queries.items():
        found.query(name, text)
    return found


def small(rows: int, label: str = "TRUE") -> list[Row]:
    return [(label, n % 5, "abc") for n in range(rows)]


def begin(found: Bench, few: Limits = FEW) -> Pipeline:
    make = found.begin()
    make.close()
    found.pipeline = Pipeline(found.home, found, make._chain._make, [found.mailbox, found.files()], found.clock, few)
    return found.pipeline


# Errors that tell -----------------------------------------------------------------------------------------------------

FAILING = [
    "SELECT CAST(w AS INT) AS x FROM s",
    "SELECT CAST(w AS TIMESTAMP) AS x FROM s",
    "SELECT 1 / (a - 3) AS x FROM s",
    "SELECT a % (a - 3) AS x FROM s",
    "SELECT 999999999999999999 * (a * 99) AS x FROM s",
    "SELECT SUM(999999999999999999 * a) * 9 AS x FROM s [UNBOUNDED]",
    "SELECT SQRT(0 - a) AS x FROM s",
    "SELECT SUBSTRING(w, a, 0 - a) AS x FROM s",
    "SELECT a FROM s WHERE CAST(w AS INT) / (a - 3) > 1",
    "SELECT COUNT(*) AS n FROM s [ROWS 3] GROUP BY w HAVING CAST(MIN(w) AS INT) / (MIN(a) - 3) > 0",
    f"SELECT {'(' * 30}a{')' * 30} + 1 AS x FROM s",
    f"SELECT {'+'.join(['a'] * 30)} AS x FROM s",
    "SELECT a FROM s WHERE w LIKE '" + "%a_" * 200 + "%b'",
]


@pytest.mark.parametrize("text", FAILING)
def test_no_expression_fails_on_somebody_elses_tuple(text: str, tmp_path: Path) -> None:
    """Neither with a secret that would make it fail, nor on one's own tuples: what has no value is NULL."""
    told = []
    for number, secret in enumerate(("4711", "no number", "a" * 5000)):
        found = bench(tmp_path / str(number), q=text, other="SELECT a FROM s")
        found.subscribed(spy=("q", "nurse"), dora=("other", "doctor"))
        found.take("s", ("nurse", 3, "x"), ("doctor", 3, secret), ("nurse", 1, "12"), ("doctor", -3, secret))
        found.end()
        told.append(found.fetched("spy", "q"))
        assert found.fetched("dora", "other") == [(3,), (-3,)]
    assert told[0] == told[1] == told[2]


# Queries that eat everything ------------------------------------------------------------------------------------------

ROWS = "it has more than 1,000 rows at once"
GREEDY = {
    "SELECT v.a FROM s [UNBOUNDED] v, s [UNBOUNDED] u": ROWS,
    "SELECT v.a FROM s [ROWS 90] v, s [RANGE 1 SECOND] u WHERE v.w = u.w": ROWS,
    "SELECT RSTREAM a FROM s [ROWS 90]": ROWS,
    "SELECT RSTREAM DISTINCT w, a FROM s [ROWS 90]": ROWS,
    "SELECT RSTREAM COUNT(*) AS n FROM s [ROWS 90] GROUP BY a, w": ROWS,
    "SELECT COUNT(DISTINCT a) AS n FROM s [ROWS 90]": ROWS,
    "SELECT COUNT(*) AS n FROM s [RANGE 1000 DAYS SLIDE 1 MILLISECOND]": ROWS,
    "SELECT COUNT(*) AS n FROM s [UNBOUNDED]": "its windows hold more than 100 tuples",
    f"SELECT CONCAT({', '.join(['w'] * 199)}, {', '.join(['w'] * 199)}) AS x FROM s": (
        "a text of it may have more than 1,000 bytes"
    ),
    f"SELECT LENGTH(CONCAT({', '.join(['w'] * 350)})) AS x FROM s": "a text of it may have more than 1,000 bytes",
    f"SELECT a FROM s [ROWS 3] WHERE CONCAT({', '.join(['w'] * 350)}) = 'x'": (
        "a text of it may have more than 1,000 bytes"
    ),
}


@pytest.mark.parametrize("text", GREEDY)
def test_a_query_that_goes_too_far_ends_for_those_who_look_at_it_and_no_others(text: str, tmp_path: Path) -> None:
    found = bench(tmp_path, greedy=text, other="SELECT COUNT(*) AS n FROM s [ROWS 5]")
    found.subscribed(eve=("greedy", "nurse"), amy=("greedy", ""), dora=("other", "nurse"))
    begin(found)
    for _ in range(4):
        found.take("s", *small(30, "nurse"), ("TRUE", 7, "abc"))
    found.end()
    parcels = found.mailbox.fetch("eve", "greedy", found.now)
    assert [parcel.ended for parcel in parcels if parcel.ended] == [GREEDY[text]]
    assert parcels[-1].ended  # nothing comes afterwards
    ends = [json.loads(line).get("ended") for line in (tmp_path / "out/eve/greedy.jsonl").read_text().splitlines()]
    assert ends[-1] == GREEDY[text] and not any(ends[:-1])
    assert len(found.fetched("dora", "other")) == 124
    if "MILLISECOND" not in text and "CONCAT" not in text:  # amy sees four tuples, of which the same query is modest
        assert [parcel.ended for parcel in found.mailbox.fetch("amy", "greedy", found.now) if parcel.ended] == []


def test_without_limits_a_join_of_everything_has_all_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("few_rows",):
        for module in ("rows", "instants"):
            monkeypatch.setattr(f"headgate.engine.kernels.{module}.{name}", lambda _: None)
    found = bench(tmp_path, greedy="SELECT v.a FROM s [ROWS 90] v, s [ROWS 90] u")
    found.subscribed(eve=("greedy", ""))
    begin(found)
    found.take("s", *small(90))
    found.end()
    assert len(found.fetched("eve", "greedy")) == 8100


@pytest.mark.parametrize("hidden", [0, 2000])
def test_tuples_that_one_may_not_see_bring_nobody_nearer_to_a_limit(hidden: int, tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT v.a FROM s [UNBOUNDED] v, s [UNBOUNDED] u", all="SELECT a FROM s")
    found.subscribed(eve=("q", "nurse"), dora=("all", "doctor"))
    begin(found)
    found.take("s", *small(30, "nurse"), *small(hidden, "doctor"))
    found.end()
    parcels = found.mailbox.fetch("eve", "q", found.now)
    assert sum(map(len, parcels)) == 900 and not any(x.ended for x in parcels)


def test_tuples_that_wait_for_a_stream_that_never_comes_do_not_pile_up(tmp_path: Path) -> None:
    found = Bench(tmp_path, stream("s", COLUMNS), stream("t", COLUMNS))
    found.query("q", "SELECT s.a FROM s [NOW], t [NOW] WHERE s.a = t.a")
    found.subscribed(eve=("q", ""))
    begin(found)
    for _ in range(6):
        found.take("s", *small(30))
    assert [x.ended for x in found.mailbox.fetch("eve", "q", found.now)] == ["its windows hold more than 100 tuples"]
    found.take("s", *small(1))
    assert sum(cell.table.num_rows for cell in found.pipeline._chain.save()[0].values()) == 0  # type: ignore[union-attr]


def test_texts_do_not_double_from_query_to_query(tmp_path: Path) -> None:
    """Each stage makes its texts some hundred times longer: a reader of the last is told, one of the first goes on."""
    found = bench(tmp_path, q0=f"SELECT CONCAT({', '.join(['w'] * 190)}) AS w FROM s")
    for number in (1, 2):
        found.query(f"q{number}", f"SELECT CONCAT({', '.join(['w'] * 190)}) AS w FROM out.q{number - 1}")
    found.subscribed(eve=("q2", ""), dora=("q0", ""))
    begin(found)
    for _ in range(2):
        found.take("s", ("TRUE", 1, "abc"))
    parcels = found.mailbox.fetch("eve", "q2", found.now)
    assert [x.ended for x in parcels] == ["a text of it may have more than 1,000 bytes"]
    assert len(found.fetched("dora", "q0")) == 2


def test_who_has_ended_stays_so_after_a_restart_and_can_begin_anew(tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT COUNT(*) AS n FROM s [UNBOUNDED]")
    found.subscribed(eve=("q", ""))
    begin(found)
    for _ in range(5):
        found.take("s", *small(30))
    assert found.mailbox.fetch("eve", "q", found.now)[-1].ended
    found.pipeline.close()  # type: ignore[union-attr]
    begin(found)
    found.take("s", *small(5))
    found.take("s", *small(5))
    assert found.mailbox.fetch("eve", "q", found.now) == []
    found.subscribed()
    found.take("s", *small(1))
    found.subscribed(eve=("q", ""))
    found.take("s", *small(5))
    found.take("s", *small(1))
    assert found.fetched("eve", "q") == [(n,) for n in range(1, 6)]


def test_what_the_kernels_database_cannot_compute_ends_one_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(_: object) -> None:
        raise MemoryError("secret")

    found = bench(tmp_path, q="SELECT RSTREAM a FROM s [ROWS 9]", other="SELECT a FROM s")
    found.subscribed(eve=("q", ""), dora=("other", ""))
    monkeypatch.setattr("headgate.engine.kernels.instants.few_rows", no_memory)
    begin(found)
    found.take("s", *small(3))
    found.end()
    assert [x.ended for x in found.mailbox.fetch("eve", "q", found.now)] == [limits.CANNOT]
    assert len(found.fetched("dora", "other")) == 3


# Labels ---------------------------------------------------------------------------------------------------------------


def labelled(home: Path, mode: Mode) -> Bench:
    found = Bench(home, stream("s", COLUMNS, {"w": parse_label("doctor")}))
    found.query("q", "SELECT a, w FROM s", mode=mode)
    found.subscribed(eve=("q", "nurse"), dora=("q", "doctor"))
    found.take("s", ("TRUE", 1, "secret"))
    return found


def test_a_cumulative_query_does_not_show_columns_that_one_may_not_see(tmp_path: Path) -> None:
    """It reads all columns for everyone: their labels must be part of its results'."""
    found = labelled(tmp_path, Mode.CUMULATIVE)
    assert found.fetched("eve", "q") == []
    assert found.fetched("dora", "q") == [(1, "secret")]


def test_without_labels_of_columns_a_cumulative_query_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Egress, "_read", lambda *_: frozenset())
    assert labelled(tmp_path, Mode.CUMULATIVE).fetched("eve", "q") == [(1, "secret")]


def test_a_column_that_was_lost_is_not_in_results_that_wait(tmp_path: Path) -> None:
    found = labelled(tmp_path, Mode.EXACT)
    assert found.fetched("eve", "q") == [(1, None)]
    found.subscribed(dora=("q", "nurse"))
    assert found.fetched("dora", "q") == []


def test_an_owners_stricter_policy_protects_the_tuples_that_came_before(tmp_path: Path) -> None:
    """In windows, and in results that wait."""
    found = bench(tmp_path, q="SELECT COUNT(*) AS n FROM s [UNBOUNDED]", p="SELECT a FROM s")
    found.subscribed(eve=("q", ""), amy=("p", ""), dora=("q", "doctor"))
    found.take("s", ("TRUE", 1, "x"))
    found.take("s", ("TRUE", 2, "x"))
    found.entrances = {"s": replace(found.entrances["s"], policy=parse_label("doctor"))}
    found.subscribed(eve=("q", ""), amy=("p", ""), dora=("q", "doctor"))
    found.take("s", ("TRUE", 3, "x"))
    found.end()
    assert found.fetched("eve", "q") == found.fetched("amy", "p") == []
    assert found.fetched("dora", "q") == [(1,), (2,), (3,)]


def test_with_the_policies_of_arrival_only_old_tuples_would_go_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Demand, "protected", lambda _, label: label)
    with pytest.raises(AssertionError):
        test_an_owners_stricter_policy_protects_the_tuples_that_came_before(tmp_path)


FORGED = [
    "TRUE FROM s",
    'TRUE FROM "joe.open"',
    "TRUE AT NOWHERE",
    "doctor &",
    "",
    None,
    "TRUE) OR (TRUE",
    "x" * 99_999,
]


@pytest.mark.parametrize("text", FORGED, ids=lambda text: str(text)[:20])
def test_a_forged_label_opens_nothing(text: str | None, tmp_path: Path) -> None:
    """A source of weak semantics opens to whoever reads another source of the same result: a tuple that names one
    itself would open its stream to all who read that."""
    found = bench(tmp_path, q="SELECT a FROM s")
    found.subscribed(eve=("q", "nurse"))
    weak = Rules(RULES.order, {"s": Semantics.WEAK})
    clearance = Clearance(frozenset(), Level("TS"), frozenset({"joe.open"}))
    (eve,) = found.now.subscribers
    found.now = replace(found.now, rules=weak, subscribers=(replace(eve, clearance=clearance),))
    found.begin(found.files())
    found.take("s", (text, 1, "x"))
    assert found.fetched("eve", "q") == []
    assert NO_LABEL in (tmp_path / "out/owner/s.refused.jsonl").read_text()


def test_a_forged_source_would_open_a_weak_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ingress.READERS, "LABEL", parse_label)
    with pytest.raises((AssertionError, FileNotFoundError)):
        test_a_forged_label_opens_nothing('TRUE FROM "joe.open"', tmp_path)


def test_a_role_expression_in_the_level_column_is_no_level(tmp_path: Path) -> None:
    entrance = replace(bench(tmp_path).entrances["s"], labels={"LEVEL": "policy"})
    numbers: list[Label] = []
    taken = Ingress(entrance, RULES, lambda label: numbers.append(label) or 0)  # type: ignore[func-returns-value]
    rows = bench(tmp_path).table("s", [("U, S", 1, "x"), ("doctor | TRUE", 1, "x"), ("U AT", 1, "x"), ("S", 1, "x")])
    arrivals, refused = taken.take(rows, int(NOW.timestamp() * 1000))
    assert len(arrivals.times) == 1 and [(x.reason, len(x.rows)) for x in refused] == [(NO_LABEL, 3)]


# Rows that break things -----------------------------------------------------------------------------------------------

FAR = (400_000_000_000_000_000, -400_000_000_000_000_000, (1 << 63) - 1, -(1 << 63) + 1)


@pytest.mark.parametrize("number", FAR)
@pytest.mark.parametrize("column", ["at", "z"])
def test_a_time_that_no_calendar_has_ends_nobodys_work(number: int, column: str, tmp_path: Path) -> None:
    found = Bench(tmp_path, stream("s", "a INT, z TIMESTAMP"), skew=None)
    found.query("q", "SELECT a, z FROM s")
    found.subscribed(eve=("q", ""))
    found.begin(found.files())
    table = found.table("s", [("TRUE", 1, NOW), ("TRUE", 2, NOW)])
    far = pa.array([number, int(NOW.timestamp()) * 1_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    table = table.set_column(table.schema.get_field_index(column), column, far)
    found.pipeline.take("s", 0, table)  # type: ignore[union-attr]
    wanted: list[Row] = [(2, NOW)] if column == "at" else [(1, None), (2, NOW)]
    assert found.fetched("eve", "q") == wanted
    if column == "at":
        assert NO_TIME in (tmp_path / "out/owner/s.refused.jsonl").read_text()


def test_numbers_that_are_not_finite_are_null_and_dead_letters_stay_json(tmp_path: Path) -> None:
    found = Bench(tmp_path, stream("s", "x DOUBLE"))
    found.query("q", "SELECT x, x IS NULL AS missing FROM s")
    found.subscribed(eve=("q", ""))
    found.begin(found.files())
    found.take("s", *((label, float(x)) for label in ("TRUE", "bad (") for x in ("nan", "inf", "-inf", "-0.0")))
    assert found.fetched("eve", "q") == [(None, True)] * 3 + [(0.0, False)]
    lines = (tmp_path / "out/owner/s.refused.jsonl").read_text().splitlines()
    strict = [json.loads(line, parse_constant=lambda text: pytest.fail(text)) for line in lines]
    assert [x["values"]["x"] for x in strict] == ["nan", "inf", "-inf", -0.0]


def test_a_text_that_is_too_long_is_refused_at_the_entrance(tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT a FROM s")
    found.subscribed(eve=("q", ""))
    begin(found)
    found.take("s", ("TRUE", 1, "x" * 1001), ("TRUE", 2, "é" * 501), ("TRUE", 3, "x" * 1000))
    assert found.fetched("eve", "q") == [(3,)]
    assert (tmp_path / "out/owner/s.refused.jsonl").read_text().count(TOO_LONG) == 2


def test_one_far_future_tuple_makes_nobody_late(tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT COUNT(*) AS n FROM s [UNBOUNDED]")
    found.subscribed(eve=("q", ""))
    future = NOW + dt.timedelta(days=3000)
    found.take("s", ("TRUE", 1, "x"), ("TRUE", 2, "x"), times=[NOW, future])
    found.take("s", ("TRUE", 3, "x"), times=[NOW + dt.timedelta(seconds=1)])
    found.end()
    assert found.fetched("eve", "q") == [(1,), (2,)]


def test_a_stream_that_nobody_wants_any_more_ends_nobodys_work(tmp_path: Path) -> None:
    """Its last reader logs out while a batch of it is on its way."""
    found = Bench(tmp_path, stream("s", COLUMNS), stream("t", COLUMNS))
    found.query("q", "SELECT a FROM s")
    found.query("r", "SELECT a FROM t")
    found.subscribed(eve=("q", ""), dora=("r", ""))
    found.take("s", *small(1))
    found.now = Demand(RULES, {"t": found.entrances["t"]}, (found.queries["r"],), found.now.subscribers[1:])
    found.take("s", *small(1))
    found.take("t", *small(1))
    assert found.fetched("dora", "r") == [(0,)]


def test_results_reach_only_the_reader_they_were_made_for_at_whatever_stage(tmp_path: Path) -> None:
    """Two queries at different stages read the same results: what was meant for a reader of one was taken for that of
    whoever stood in the same place of the other, or broke it for everyone."""
    found = bench(tmp_path, q="SELECT a FROM s")
    found.query("one", "SELECT a FROM out.q")
    found.query("two", "SELECT x.a FROM out.q [ROWS 1] x, out.one [ROWS 1] y")
    found.subscribed(amy=("one", "nurse"), ben=("one", "nurse"), dora=("two", "nurse"), eve=("one", ""))
    for _ in range(3):
        found.take("s", ("nurse", 1, "x"), ("TRUE", 2, "x"))
    found.end()
    assert found.fetched("amy", "one") == found.fetched("ben", "one") == [(1,), (2,)] * 3
    assert found.fetched("eve", "one") == [(2,)] * 3
    assert len(found.fetched("dora", "two")) > 3


def test_it_would_be_told_elsewhere_without_looking_whose_views_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def for_some(self: Sightings, number: int, views: tuple[sights.View, ...]) -> int:
        row, wanted = self._rows[number] * 0, [column for view in views for column in view.columns]
        row[wanted] = self._rows[number][wanted]
        return self._sight(self._label_of[number], row)

    monkeypatch.setattr(Sightings, "_for_some", for_some)
    with pytest.raises((AssertionError, IndexError)):
        test_results_reach_only_the_reader_they_were_made_for_at_whatever_stage(tmp_path)


def test_spoilt_rows_of_any_form_are_kept_for_the_owner(tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT a FROM s")
    found.subscribed(eve=("q", ""))
    found.begin(found.files())
    bad = ["{" * 100_000, "\x00", "[" * 50_000 + "]" * 50_000, "\ud7ff", '{"a": 1e999}']
    table = found.table("s", [("TRUE", 1, "x")] * len(bad)).append_column(SPOILT, pa.array(bad))
    found.pipeline.take("s", 0, table)  # type: ignore[union-attr]
    assert found.fetched("eve", "q") == []
    assert len((tmp_path / "out/owner/s.refused.jsonl").read_text().splitlines()) == len(bad)


# Files ----------------------------------------------------------------------------------------------------------------

NAMES = [
    "..",
    ".",
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "a\x00b",
    "~root",
    ".hidden",
    "é" * 128,
    "x" * 128,
    "%2E%2E",
]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_leaves_its_folder(name: str, tmp_path: Path) -> None:
    path = file_name((name, name))
    assert len(path.split("/")) == 2 and not path.startswith((".", "/")) and "\x00" not in path
    assert all(part not in ("", ".", "..") and len(part) <= 255 for part in path.split("/"))
    assert len({file_name((other, other)) for other in NAMES}) == len(NAMES)
    file = tmp_path / path
    file.parent.mkdir()
    file.touch()
    assert file.resolve().is_relative_to(tmp_path.resolve())


def linked(found: Bench, link: Callable[[Path, Path], None]) -> None:
    found.subscribed(eve=("q", ""))
    (found.home / "out").mkdir(parents=True)
    (found.home / "elsewhere").mkdir()
    (found.home / "elsewhere/q.jsonl").touch()
    link(found.home / "out/eve", found.home / "elsewhere")
    found.begin(found.files())
    found.take("s", *small(1))


def folder_link(place: Path, elsewhere: Path) -> None:
    place.symlink_to(elsewhere)


def file_link(place: Path, elsewhere: Path) -> None:
    place.mkdir()
    (place / "q.jsonl").symlink_to(elsewhere / "q.jsonl")


def second_name(place: Path, elsewhere: Path) -> None:
    place.mkdir()
    os.link(elsewhere / "q.jsonl", place / "q.jsonl")


def pipe(place: Path, _: Path) -> None:
    place.mkdir()
    os.mkfifo(place / "q.jsonl")


@pytest.mark.parametrize("link", [folder_link, file_link, second_name, pipe])
def test_results_do_not_follow_links(link: Callable[[Path, Path], None], tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT a FROM s")
    with pytest.raises(StoreError):
        linked(found, link)
    assert (tmp_path / "elsewhere/q.jsonl").read_bytes() == b""


def test_neither_state_nor_results_can_be_read_by_others(tmp_path: Path) -> None:
    found = bench(tmp_path / "home", q="SELECT COUNT(*) AS n FROM s [ROWS 9]")
    found.subscribed(eve=("q", ""))
    (tmp_path / "home/out/eve").mkdir(parents=True)
    (tmp_path / "home/out/eve/q.jsonl").touch(0o644)
    found.begin(found.files())
    found.take("s", *small(3))
    found.end()
    assert oct((tmp_path / "home/out/eve/q.jsonl").stat().st_mode)[-3:] == "600"
    assert oct((tmp_path / "home/state").stat().st_mode)[-3:] == "700"


# Results that wait ----------------------------------------------------------------------------------------------------


def test_a_reader_whose_level_does_not_dominate_the_querys_receives_nothing(tmp_path: Path) -> None:
    for mode in Mode:
        found = Bench(tmp_path / mode, stream("s", COLUMNS))
        found.query("q", "SELECT COUNT(*) AS n FROM s [UNBOUNDED]", level="S", mode=mode)
        found.subscribed(eve=("q", "doctor", "C"), dora=("q", "doctor", "TS"))
        found.take("s", ("TRUE", 1, "x"), ("TRUE AT TS", 2, "x"), ("TRUE AT S", 3, "x"))
        found.end()
        assert found.fetched("eve", "q") == []
        assert found.fetched("dora", "q") == [(1,), (2,)]  # as at the query's level, not at its own
