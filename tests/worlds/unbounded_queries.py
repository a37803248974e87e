"""Random queries over windows that lose nothing by themselves: only rights take their tuples away."""

from __future__ import annotations

from random import Random

_CALLS = (
    "COUNT(*)",
    "COUNT(v.x)",
    "SUM(v.b)",
    "SUM(v.x)",
    "AVG(v.x)",
    "AVG(v.b)",
    "STDDEV(v.x)",
    "MIN(v.a)",
    "MAX(v.w)",
    "COUNT(DISTINCT v.w)",
    "SUM(DISTINCT v.b)",
)
_BEFORE = ("", "", "", " WHERE v.a < 4", " WHERE v.b <> 2", " WHERE v.x IS NULL OR v.x < 1.0")
_AFTER = ("", "", "", " WHERE v.w <> 'b'", " WHERE v.b IS NOT NULL", " WHERE v.LEVEL <> 'C'")
_GROUPS = ((), ("v.a",), ("v.a",), ("v.w",), ("v.b",), ("v.a", "v.w"), ("v.LEVEL",))


def unbounded_query(rng: Random) -> str:
    """Aggregates and DISTINCT over all that came; sometimes beside a join, whose sides are needed tuple by tuple."""
    before, after, groups = rng.choice(_BEFORE), rng.choice(_AFTER), rng.choice(_GROUPS)
    if rng.random() < 0.2:
        kind = rng.choice(("", "RSTREAM "))
        items = ", ".join(f"{name} AS r{n}" for n, name in enumerate(groups or ("v.a",)))
        return f"SELECT {kind}DISTINCT {items}{before} FROM s [UNBOUNDED] v{after}"
    source = "s [UNBOUNDED] v"
    if rng.random() < 0.2:
        source, after = f"s [UNBOUNDED] v, t {rng.choice(('[UNBOUNDED]', '[ROWS 2]'))} u", " WHERE v.a = u.a"
    calls = rng.sample(_CALLS, rng.randint(1, 3))
    items = ", ".join([*(f"{x} AS c{n}" for n, x in enumerate(calls)), *(f"{x} AS g{n}" for n, x in enumerate(groups))])
    by = f" GROUP BY {', '.join(groups)}" if groups else ""
    having = rng.choice(("", "", "", " HAVING COUNT(*) > 1"))
    return f"SELECT {rng.choice(('', '', 'RSTREAM '))}{items}{before} FROM {source}{after}{by}{having}"
