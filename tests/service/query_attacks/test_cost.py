"""What queries cost: none that may be written holds everybody up while it is read, planned or explained."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from contextlib import suppress

import pytest
from conftest import System

from headgate.cql.queries import MAX_QUERY
from headgate.errors import Conflict, TextError

from .wards import explained, refused

WIDE = "CREATE STREAM wide (" + ", ".join(f"c{n} INT" for n in range(999)) + ", zz INT)"


def listed(text: str, times: int) -> str:
    return ",".join([text] * times)


def sizes(number: int) -> str:
    """16 blocks of 16 sources, no two operators alike."""
    blocks = []
    for block in range(16):
        first = number * 256 + block * 16
        sources = ", ".join(f"vitals [ROWS {1 + first + n}] s{n}" for n in range(16))
        chosen = " AND ".join(f"s{n}.bp > {first + n}" for n in range(16))
        blocks.append(f"SELECT s0.bp WHERE {chosen} FROM {sources}")
    return " UNION ALL ".join(blocks)


HEAVY: dict[str, str] = {
    "a chain of ANDs as a result": "SELECT " + " AND ".join(["awake"] * 900) + " AS x FROM vitals",
    "many names of a wide stream": (
        "SELECT " + ", ".join(f"COALESCE({listed('zz', 990)}) AS x{n}" for n in range(16)) + " FROM wide"
    ),
    "many names of many groups": (
        "SELECT "
        + ", ".join(f"COALESCE({listed('zz', 990)}) AS x{n}" for n in range(14))
        + f" FROM wide GROUP BY {', '.join(f'c{n}' for n in range(990))}, zz"
    ),
    "every column two hundred times": f"SELECT {listed('wide.*', 200)} FROM wide",
    "many equal columns": (
        "SELECT a.zz FROM wide a, wide b WHERE " + " AND ".join(f"a.c{n} = b.c{n}" for n in range(480))
    ),
    "very many alternatives": "SELECT bp FROM vitals WHERE "
    + " OR ".join(f"(bp > {n} AND sid < {n} AND (bp < {n} OR sid > {n} AND bp <> {n}))" for n in range(80)),
    "long lists": "SELECT bp FROM vitals WHERE "
    + " AND ".join(f"bp IN ({', '.join(map(str, range(n, n + 60)))})" for n in range(30)),
    "long lists denied": "SELECT bp FROM vitals WHERE NOT ("
    + " OR ".join(f"bp + {n} IN ({', '.join(map(str, range(60)))})" for n in range(28))
    + ")",
    "as many operators as there can be": sizes(0),
    **{
        f"{written} inside itself": f"SELECT bp FROM vitals WHERE {'(' * 28}awake{f' {written})' * 28}"
        for written in (
            "BETWEEN awake AND TRUE",
            "NOT BETWEEN awake AND TRUE",
            "IN (awake, TRUE)",
            "NOT IN (TRUE, FALSE)",
            "NOT IN (TRUE, NULL) IS NULL",
        )
    },
    "a long condition said again for each of its parts": " UNION ALL ".join(
        "SELECT sid FROM vitals WHERE "
        + " AND ".join(f"bp <> {block * 64 + n}" for n in range(64))
        + " OR "
        + " OR ".join(f"sid<>{n}" for n in range(390))
        for block in range(9)
    ),
    "a long text in a list": f"SELECT bp FROM vitals WHERE '{'x' * 30_000}' IN ("
    + ", ".join(f"CONCAT(name, '{n}')" for n in range(300))
    + ")",
}


def seconds(act: Callable[[], object]) -> float:
    """Of this process, whatever else the machine is doing."""
    before = time.process_time()
    act()
    return time.process_time() - before


@pytest.mark.parametrize("what", HEAVY)
def test_no_query_holds_everybody_up(ward: System, what: str) -> None:
    assert len(HEAVY[what]) < MAX_QUERY
    ward.run(WIDE)

    def asked() -> None:
        with suppress(TextError):
            explained(ward, HEAVY[what])

    assert seconds(asked) < 3


def test_a_wrong_name_among_very_many_similar_ones_is_refused_quickly(ward: System) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz" * 4
    for number in range(16):
        columns = (f"{letters[n % 26 :]}{letters[: n % 26]}_{number}_{n}" for n in range(1000))
        ward.run(f"CREATE STREAM w{number} ({', '.join(f'{name} INT' for name in columns)})")
    sources = ", ".join(f"w{number}" for number in range(16))
    assert seconds(lambda: refused(ward, f"EXPLAIN SELECT {letters[13:]}{letters[:13]} FROM {sources}")) < 1


def test_large_queries_beside_each_other_are_explained_quickly(ward: System) -> None:
    for number in range(3):
        ward.run(f"CREATE QUERY big{number} AS {sizes(number)}; START QUERY big{number}")
    assert seconds(lambda: explained(ward, sizes(3))) < 3
    assert seconds(lambda: explained(ward, "QUERIES")) < 3


def test_a_long_line_of_queries_computed_from_each_other_can_be_drawn_or_is_refused(ward: System) -> None:
    """Names are sorted, so that the one with the most below it comes first."""

    def start(first: int, end: int) -> None:
        ward.run(
            "; ".join(
                f"CREATE QUERY q{n:04} AS SELECT sid FROM vitals WHERE bp > {1000 - n}; START QUERY q{n:04}"
                for n in range(first, end)
            )
        )

    start(0, 200)
    ElementTree.fromstring(explained(ward, "QUERIES").picture)  # noqa: S314
    start(200, 600)
    with pytest.raises(Conflict, match="cannot draw 1,201 operators"):
        _ = explained(ward, "QUERIES").picture


def test_an_explanation_does_not_grow_with_the_square_of_the_queries(ward: System) -> None:
    def size(many: int) -> int:
        ward.run(
            "; ".join(
                f"CREATE QUERY q{n} AS SELECT sid, {n} AS n FROM vitals [ROWS 5] WHERE bp > 3; START QUERY q{n}"
                for n in range(many)
            )
        )
        found = explained(ward, "QUERIES")
        ward.run("; ".join(f"DROP QUERY q{n}" for n in range(many)))
        return len(found.text) + len(found.picture)

    assert size(200) < 5 * size(50)


def test_a_small_script_does_not_explain_for_hours(ward: System) -> None:
    error = refused(ward, "; ".join(["EXPLAIN QUERIES"] * 1000))
    assert isinstance(error, Conflict)
