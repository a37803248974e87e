"""NEXMark's queries that need computed keys, distinct counts, chains and windows without end, for two readers with
different rights. What they are to receive is computed by DuckDB over the tuples that each may see."""

from __future__ import annotations

from pathlib import Path

import pytest
from worlds.from_outside import Asked, differences, expected, received
from worlds.nexmark import READERS, STREAMS, AuctionSite

PRICES = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")


def statistics(over: str = "") -> str:
    """Bids, bidders and auctions of a day, in all and by price, as q15 and q16 count them. NEXMark writes FILTER where
    this language has CASE."""
    counts = ["COUNT(*)", *(f"COUNT(CASE WHEN {price} THEN 1 END)" for price in PRICES)]
    for column in ("bidder", "auction"):
        counts.append(f"COUNT(DISTINCT {column})")
        counts += [f"COUNT(DISTINCT CASE WHEN {price} THEN {column} END)" for price in PRICES]
    return ", ".join(f"{count}{over}" for count in counts)


QUERIES = {
    "q4": Asked(
        {
            "closing": "SELECT id, category, MAX(price) AS final FROM auction [UNBOUNDED], bid [UNBOUNDED] "
            "WHERE id = bid.auction AND bid.at BETWEEN auction.at AND expires GROUP BY id, category",
            "q4": "SELECT category, AVG(final) AS mean FROM out.closing [PARTITIONED BY id ROWS 1] GROUP BY category",
        },
        """WITH closing AS (
             SELECT id, category, bid."at" AS moment, max(price) OVER (PARTITION BY id ORDER BY bid."at") AS final
             FROM auction JOIN bid ON id = auction AND bid."at" BETWEEN auction."at" AND expires
           ), changes AS (
             SELECT category, moment, final - coalesce(lag(final) OVER w, 0) AS more,
                    CASE WHEN lag(final) OVER w IS NULL THEN 1 ELSE 0 END AS first
             FROM closing WINDOW w AS (PARTITION BY id ORDER BY moment)
           )
           SELECT category, sum(more) OVER w / sum(first) OVER w, epoch_ms(moment) FROM changes
           WINDOW w AS (PARTITION BY category ORDER BY moment) ORDER BY moment""",
    ),
    "q13": Asked(
        {"q13": "SELECT auction, bidder, price, value FROM bid [NOW], side WHERE auction % 100 = side.key"},
        "SELECT auction, bidder, price, value, epoch_ms(bid.at) FROM bid JOIN side ON auction % 100 = key "
        "ORDER BY bid.at",
        {"side": AuctionSite(0).side},
    ),
    "q15": Asked(
        {
            "days": "SELECT CAST(at AS DATE) AS day, auction, bidder, price FROM bid",
            "q15": f"SELECT day, {statistics()} FROM out.days [UNBOUNDED] GROUP BY day",
        },
        f"SELECT day, {statistics(' OVER (PARTITION BY day ORDER BY bid.at)')}, epoch_ms(bid.at) "
        "FROM (SELECT *, CAST(bid.at AS DATE) AS day FROM bid) AS bid ORDER BY bid.at",
    ),
    "q16": Asked(
        {
            "channels": "SELECT channel, CAST(at AS DATE) AS day, SUBSTRING(CAST(at AS STRING), 12, 5) AS minute, "
            "auction, bidder, price FROM bid",
            "q16": f"SELECT channel, day, MAX(minute) AS minute, {statistics()} FROM out.channels [UNBOUNDED] "
            "GROUP BY channel, day",
        },
        "SELECT channel, day, strftime(bid.at, '%H:%M'), "
        f"{statistics(' OVER (PARTITION BY channel, day ORDER BY bid.at)')}, epoch_ms(bid.at) "
        "FROM (SELECT *, CAST(bid.at AS DATE) AS day FROM bid) AS bid ORDER BY bid.at",
    ),
}


def check(home: Path, name: str, site: AuctionSite, files: int) -> int:
    """How many results all readers received together; all of them are right."""
    asked = QUERIES[name]
    found = received(home, asked, STREAMS, site.files(files), READERS)
    for who, results in found.items():
        assert differences(results, expected(asked, site.seen(who))) == []
    return sum(results.num_rows for results in found.values())


@pytest.mark.parametrize("files", [1, 7])
@pytest.mark.parametrize("name", QUERIES)
def test_nexmark_gives_each_reader_the_query_over_the_tuples_they_may_see(
    name: str, files: int, tmp_path: Path
) -> None:
    assert check(tmp_path, name, AuctionSite(3_000, spread=60_000), files) > 500


@pytest.mark.long
@pytest.mark.parametrize("files", [1, 50])
@pytest.mark.parametrize("name", QUERIES)
def test_nexmark_with_400000_events_gives_each_reader_the_query_over_the_tuples_they_may_see(
    name: str, files: int, tmp_path: Path
) -> None:
    assert check(tmp_path, name, AuctionSite(400_000, spread=500), files) > 100_000
