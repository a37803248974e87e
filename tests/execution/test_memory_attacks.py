"""Attacks on memory: the memory of a view is bounded over everything it computes, before it is allocated."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from worlds.attacked import begin
from worlds.harness import Bench, Row, stream

from headgate.labels import parse_label
from headgate.model.budget import Budget, LimitExceeded, Meter, Metered, Remembered, charge
from headgate.model.limits import Limits

FEW = Limits(text=1000, bytes=100_000)
TOLD = (
    "what is computed for it at once may have more than 100,000 bytes; use smaller windows or shorter texts, or have "
    "the setting view_bytes raised"
)
LONG = 100
JOINED = f"CONCAT({', '.join(['w'] * 9)})"
"""900 bytes of each tuple: 27,000 of thirty."""
MANY = [f"LENGTH({JOINED[:-1]}, '{n}'))" for n in range(5)]
NESTED = f"LENGTH({'CONCAT(' * 5}w{', w)' * 5})"
"""The outermost has 600 bytes, all of them together 2,000."""

GREEDY = {
    "columns": f"SELECT {', '.join(f'{JOINED} AS x{n}' for n in range(5))} FROM s",
    "one column many times": f"SELECT {', '.join(f'w AS x{n}' for n in range(40))} FROM s",
    "blocks": " UNION ALL ".join([f"SELECT {JOINED} AS x FROM s"] * 5),
    "blocks with windows": " UNION ALL ".join(f"SELECT {JOINED} AS x FROM s [ROWS {n}]" for n in range(1, 6)),
    "blocks of both kinds": " UNION ALL ".join(
        [f"SELECT {JOINED} AS x FROM s", f"SELECT {JOINED} AS x FROM s [ROWS 1]"] * 3
    ),
    "within an expression": f"SELECT {' + '.join(MANY)} AS x FROM s",
    "in conditions": f"SELECT a FROM s WHERE {' OR '.join(f'{x} > 1' for x in MANY)}",
    "in conditions below a window": (
        f"SELECT COUNT(*) AS n WHERE {' OR '.join(f'{x} > 1' for x in MANY)} FROM s [ROWS 5]"
    ),
    "one inside the other": f"SELECT {NESTED} + {NESTED} AS x FROM s",
    "rows of a join": "SELECT v.w AS x, u.w AS y FROM s [ROWS 30] v, s [ROWS 30] u",
    "rows at instants": "SELECT RSTREAM w FROM s [ROWS 60]",
    "groups at instants": "SELECT RSTREAM w, COUNT(*) AS n FROM s [ROWS 60] GROUP BY w, a",
    "the greatest at instants": "SELECT RSTREAM MAX(w) AS x, a, MIN(w) AS y FROM s [ROWS 60] GROUP BY a",
    "distinct": f"SELECT DISTINCT {', '.join(f'{JOINED} AS x{n}' for n in range(5))} FROM s [ROWS 5]",
}


def rows(label: str = "nurse") -> list[Row]:
    return [(label, n, f"{n:02}" + "x" * (LONG - 2)) for n in range(30)]


def bench(home: Path, **queries: str) -> Bench:
    found = Bench(home, stream("s", "a INT, w STRING"))
    for name, text in queries.items():
        found.query(name, text)
    begin(found, FEW)
    return found


def told(found: Bench, who: str, query: str) -> list[str]:
    return [x.ended for x in found.mailbox.fetch(who, query, found.now) if x.ended]


@pytest.mark.parametrize("kind", GREEDY)
def test_the_memory_of_a_view_is_bounded_over_everything_it_computes(kind: str, tmp_path: Path) -> None:
    """Each column, block and text is within every limit of its own."""
    found = bench(tmp_path, greedy=GREEDY[kind], other=f"SELECT {JOINED} AS x FROM s")
    found.subscribed(eve=("greedy", "nurse"), amy=("greedy", ""), dora=("other", "nurse"))
    found.take("s", *rows(), ("TRUE", 1, "abc"))
    found.take("s", *rows(), ("TRUE", 1, "abc"))
    found.end()
    assert told(found, "eve", "greedy") == [TOLD]
    assert told(found, "amy", "greedy") == []  # who sees two tuples of it
    assert len(found.fetched("dora", "other")) == 62


@pytest.mark.parametrize("kind", GREEDY)
def test_with_more_memory_the_same_queries_have_their_results(kind: str, tmp_path: Path) -> None:
    found = Bench(tmp_path, stream("s", "a INT, w STRING"))
    found.query("greedy", GREEDY[kind])
    begin(found, Limits())
    found.subscribed(eve=("greedy", "nurse"))
    found.take("s", *rows())
    found.take("s", *rows())
    found.end()
    result_batches = found.mailbox.fetch("eve", "greedy", found.now)
    assert [x.ended for x in result_batches if x.ended] == []
    assert sum(map(len, result_batches)) > 0


def test_shared_work_counts_for_each_view_that_uses_it(tmp_path: Path) -> None:
    two = f"SELECT a, w, {JOINED} AS x, {JOINED} AS y FROM"  # 54,000 bytes
    found = bench(tmp_path, first=f"{two} s", second=f'SELECT a, {JOINED} AS x, {JOINED} AS y FROM "out.first"')
    found.subscribed(eve=("second", "nurse"), dora=("first", "nurse"))
    found.take("s", *rows())
    found.end()
    assert told(found, "eve", "second") == [TOLD]
    assert len(found.fetched("dora", "first")) == 30


def test_each_batch_begins_anew(tmp_path: Path) -> None:
    found = bench(tmp_path, q=f"SELECT {JOINED} AS x, {JOINED} AS y FROM s")
    found.subscribed(eve=("q", "nurse"))
    for _ in range(5):
        found.take("s", *rows())
    assert len(found.fetched("eve", "q")) == 150


def test_whether_a_view_ends_does_not_depend_on_other_views(tmp_path: Path) -> None:
    """What equal blocks of others have computed already is charged like what is computed."""
    condition, greatest = f"{MANY[0]} > 1", f"SELECT COUNT(*) AS n, MAX({JOINED}) AS x"
    texts = {
        "a": f"SELECT COUNT(*) AS n WHERE {condition} FROM s [ROWS 5]",
        "b": f"{greatest} WHERE {condition} FROM s [ROWS 5]",  # 27,000 bytes each: condition, argument and results
        "c": f"{greatest} WHERE {condition} FROM s [ROWS 5]"
        f" UNION ALL SELECT COUNT(*) AS n, 'x' AS x WHERE {condition} FROM s [ROWS 5]",
    }
    for others in (), ("a",), ("b",), ("a", "b"):
        found = bench(tmp_path / "".join(("with", *others)), **texts)
        found.subscribed(eve=("c", "nurse"), **{f"of_{x}": (x, "nurse") for x in others})
        found.take("s", *rows())
        found.end()
        assert told(found, "eve", "c") == [TOLD]
        assert all(len(found.fetched(f"of_{x}", x)) == 30 for x in others)


def test_hidden_texts_count_for_no_view(tmp_path: Path) -> None:
    found = bench(tmp_path, q="SELECT v.w AS x, u.w AS y FROM s [ROWS 30] v, s [ROWS 30] u")
    found.subscribed(amy=("q", ""), eve=("q", "nurse"))
    many = [(label, n, w) for _, n, w in rows() for label in ("nurse", "nurse", "doctor")]
    for _ in range(3):
        found.take("s", *many, ("TRUE", 1, "abc"))
    found.end()
    result_batches = found.mailbox.fetch("amy", "q", found.now)
    assert [x.ended for x in result_batches if x.ended] == [] and sum(map(len, result_batches)) == 9
    assert told(found, "eve", "q") == [TOLD]


def test_hidden_columns_count_for_no_view(tmp_path: Path) -> None:
    found = Bench(tmp_path, stream("s", "a INT, w STRING", {"w": parse_label("doctor")}))
    found.query("q", "SELECT v.w AS x, u.w AS y FROM s [ROWS 12] v, s [ROWS 12] u")
    begin(found, FEW)
    found.subscribed(amy=("q", ""), dora=("q", "doctor"))
    found.take("s", *[("TRUE", n, "x" * 1000) for n in range(30)])
    found.end()
    result_batches = found.mailbox.fetch("amy", "q", found.now)
    assert [x.ended for x in result_batches if x.ended] == [] and sum(map(len, result_batches)) == 12 * 12 + 18 * 23
    assert told(found, "dora", "q") == [TOLD]


def test_two_hundred_columns_do_not_grow_the_process(tmp_path: Path) -> None:
    """10,000 tuples of 1,000 bytes, 20 of them joined in each of 200 columns: 37 GB."""
    found = Bench(tmp_path, stream("s", "a INT, w STRING"))
    found.limits = Limits(bytes=1 << 30)
    joined = f"CONCAT({', '.join(['w'] * 20)})"
    found.query("greedy", f"SELECT {', '.join(f'{joined} AS x{n}' for n in range(200))} FROM s")
    found.query("other", "SELECT COUNT(*) AS n FROM s [ROWS 5]")
    found.subscribed(eve=("greedy", ""), dora=("other", ""))
    table = found.table("s", [("TRUE", n, "x" * 1000) for n in range(10_000)])
    found.begin()
    before = _resident()
    most, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            most[0] = max(most[0], _resident())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        assert found.pipeline is not None
        found.pipeline.take("s", 0, table)
        found.end()
    finally:
        ended.set()
        watching.join()
    assert told(found, "eve", "greedy") == [found.limits.exceeded("bytes")]
    assert len(found.fetched("dora", "other")) == 10_000
    assert most[0] - before < 1 << 30


def _resident() -> int:
    """The bytes that the process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_previous_instant_is_charged_once_to_each_block_with_all_its_parts() -> None:
    remembered = Remembered()

    def part() -> str:
        charge(10)
        return "part"

    def whole() -> str:
        charge(5)
        return f"whole of {remembered.once('part', part)}"

    for keys in (("whole", "part"), ("part", "whole"), ("whole", "whole")):
        budget = Budget(Limits(bytes=1000))
        with Metered(Meter({0: budget})):
            found = [remembered.once(key, whole if key == "whole" else part) for key in keys]
        assert budget.spent == 15
        assert found == ["whole of part" if key == "whole" else "part" for key in keys]


def test_a_block_goes_on_for_those_who_can_pay() -> None:
    poor, rich = Budget(Limits(bytes=10), spent=8), Budget(Limits(bytes=10))
    meter = Meter({0: poor, 1: rich})
    meter.charge(5)
    assert list(meter.exceeded) == [0]
    with pytest.raises(LimitExceeded):
        meter.charge(6)
