"""The oracle: what CQL means, as SPEC.md section 4 defines it, computed slowly and plainly.

Engines are tested against it. It evaluates the query as it was bound, not as it was lowered, and knows nothing of
sharing. A query over a few dozen tuples takes milliseconds, and there is no attempt at more.

    query = bind_query(parse_query("SELECT COUNT(*) AS n FROM V [ROWS 10]"), find)
    events = [
        Tuple("V", 1000, {"bp": 120}, parse_label("nurse")),
        Change("ann", Clearance(roles={"doctor"})),
        Tuple("V", 2000, {"bp": 130}, parse_label("doctor")),
    ]
    exact(query, events, {"ann": Clearance(roles={"nurse"})})
    # {"ann": [OracleResult(2000, (1,), parse_label("doctor"))]}

`meaning` is section 4.2, the meaning over given tuples; `exact` and `cumulative` are section 4.3, what subscribers
receive; `cascade` is what they receive of queries over the results of other queries.
`value_of` and `aggregate` are section 4.1. Times are in milliseconds since 1970, a column left out is NULL.
"""

from headgate.testing.oracle.aggregates import aggregate
from headgate.testing.oracle.arrival import cumulative, exact
from headgate.testing.oracle.cascade import CascadedQuery, CascadeSetting, cascade
from headgate.testing.oracle.meaning import meaning
from headgate.testing.oracle.tuples import Arrival, Change, ClockEvent, Event, Limit, OracleResult, Tuple
from headgate.testing.oracle.values import value_of

__all__ = [
    "Arrival",
    "CascadeSetting",
    "CascadedQuery",
    "Change",
    "ClockEvent",
    "Event",
    "Limit",
    "OracleResult",
    "Tuple",
    "aggregate",
    "cascade",
    "cumulative",
    "exact",
    "meaning",
    "value_of",
]
