"""An auction site after NEXMark: persons, auctions and bids in the usual proportions, each event with a policy.

Of fifty events, one is a person, three are auctions and the rest are bids on recent auctions. Three policies take turns
at random: for buyers, for sellers, for both. Everything is drawn from one seed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from worlds.from_outside import Readers
from worlds.harness import NOW, Row, stream, table

POLICIES = ("buyer", "seller", "buyer | seller")
READERS = Readers(
    {"bea": "buyer", "sam": "seller"},
    {"bea": ("buyer", "buyer | seller"), "sam": ("seller", "buyer | seller")},
)
STREAMS = (
    stream("auction", "id BIGINT, category INT, expires TIMESTAMP"),
    stream("bid", "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING"),
    table("side", "key BIGINT, value STRING"),
)
CHANNELS = ("Google", "Facebook", "Baidu", "Apple", "channel-1", "channel-2")
_BEGIN = int(NOW.timestamp() * 1000)
_MOMENT = pa.timestamp("us", "UTC")


class AuctionSite:
    """`events` events. `auction` and `bid` are their tables, in order; `side` the rows of a table with a key for each
    remainder of 100. `spread` is how many milliseconds pass from one event to the next."""

    def __init__(self, events: int, *, spread: int = 1, seed: int = 1) -> None:
        drawn = np.random.default_rng(seed)
        number = np.arange(events)
        kind = number % 50
        at = _BEGIN + spread * number
        policies = pa.array(POLICIES).take(pa.array(drawn.integers(0, len(POLICIES), events)))
        auctions, bids = np.flatnonzero((kind > 0) & (kind < 4)), np.flatnonzero(kind >= 4)
        opened = np.arange(len(auctions))
        lasting = spread * drawn.integers(500, 20_000, len(auctions))
        self.auction = pa.table(
            {
                "id": opened,
                "category": pa.array(drawn.integers(0, 10, len(auctions)), pa.int32()),
                "expires": _moments(at[auctions] + lasting),
                "at": _moments(at[auctions]),
                "policy": policies.take(pa.array(auctions)),
            }
        )
        newest = np.searchsorted(auctions, bids) - 1
        on = np.maximum(newest - drawn.geometric(0.01, len(bids)) + 1, 0)
        bidders = np.minimum(drawn.geometric(0.0005, len(bids)), 10 + bids // 50)
        self.bid = pa.table(
            {
                "auction": on,
                "bidder": bidders,
                "price": np.exp(drawn.uniform(4, 16, len(bids))).astype(np.int64),
                "channel": pa.array(CHANNELS).take(pa.array(drawn.integers(0, len(CHANNELS), len(bids)))),
                "at": _moments(at[bids]),
                "policy": policies.take(pa.array(bids)),
            }
        )
        self.side: list[Row] = [(POLICIES[key % 3], key, f"value {key}") for key in range(100)]

    def files(self, count: int) -> Iterator[dict[str, pa.Table]]:
        """The events in so many files of each stream, in order of time."""
        for number in range(count):
            yield {name: _part(whole, number, count) for name, whole in (("auction", self.auction), ("bid", self.bid))}

    def seen(self, who: str) -> dict[str, pa.Table]:
        """What a reader may see of all streams and tables."""
        policy, key, value = zip(*self.side, strict=True)
        side = pa.table({"key": key, "value": value, "policy": policy})
        content = {"auction": self.auction, "bid": self.bid, "side": side}
        return {name: READERS.seen(who, whole) for name, whole in content.items()}


def _moments(milliseconds: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pa.array(milliseconds * 1000, pa.int64()).cast(_MOMENT)


def _part(whole: pa.Table, number: int, count: int) -> pa.Table:
    first, end = (whole.num_rows * n // count for n in (number, number + 1))
    return whole.slice(first, end - first)
