"""Random short queries for whole pipelines: over results of other queries, and sensitive to lost rights."""

from __future__ import annotations

from random import Random

from headgate.plan.expressions import Type
from headgate.plan.queries import Query, Stream


def usable(query: Query) -> bool:
    """Whether its results can be a stream: every column has a type, and a name of its own."""
    names = [name.casefold() for name, _ in query.columns]
    return len(set(names)) == len(names) and all(type_ != Type.NULL for _, type_ in query.columns)


def over(rng: Random, streams: tuple[Stream, ...]) -> str:
    """One over these streams, the first of which are results, of which something comes out."""
    (one, first), (other, second) = ((x, _names(rng, x)) for x in (rng.choice(streams[:2]), streams[-1]))
    columns = ", ".join(f"x.{name} AS r{n}" for n, name in enumerate(first))
    source = f"FROM {one.name} {_window(rng, first)} x"
    beside = "" if other.table else _window(rng, second)
    match rng.randrange(6):
        case 0:
            return f"SELECT * FROM {one.name}"
        case 1 | 2:
            kind = rng.choice(("", "DSTREAM ", "RSTREAM ", "DISTINCT "))
            return f"SELECT {kind}{columns} {source}"
        case 3:
            return f"SELECT COUNT(*) AS n, MAX(x.{first[0]}) AS m {source}"
        case 4:
            return f"SELECT COUNT(*) AS n, x.{first[0]} AS g {source} GROUP BY x.{first[0]}"
        case _:
            return f"SELECT {columns}, y.{second[0]} AS s {source}, {other.name} {beside} y"


def _names(rng: Random, stream: Stream) -> list[str]:
    names = rng.sample([name for name, _ in stream.columns], min(2, len(stream.columns)))
    return [f"`{name}`" for name in names]


def _window(rng: Random, columns: list[str]) -> str:
    """ROWS and UNBOUNDED more often: a join over them has rows."""
    kinds = ("[ROWS 1]", "[ROWS 3]", "[UNBOUNDED]", "[RANGE 2 SECONDS]", f"[PARTITIONED BY {columns[0]} ROWS 1]")
    return rng.choice(kinds)


def tabled(rng: Random, tables: tuple[Stream, ...]) -> str:
    """Streams beside tables, on columns that they have in common or on none."""
    used = [table.name for table in tables if rng.random() < 0.8] or [tables[0].name]
    if rng.random() < 0.15:
        used.append(used[0])
    sources = [f"s {rng.choice(_BESIDE)} x", *(f"{name} {_TABLES[n]}" for n, name in enumerate(used))]
    joins = [
        rng.choice((f"x.b = {_TABLES[n]}.b", f"x.b = {_TABLES[n]}.b", f"x.a < {_TABLES[n]}.b", "x.a > 0"))
        for n in range(len(used))
    ]
    if rng.random() < 0.3:
        sources.append(f"t {rng.choice(_BESIDE)} y")
        joins.append("x.a = y.a")
    one = _TABLES[0]
    own = ("{}.b > 1", "{}.b IS NULL", "{}.LEVEL <> 'S'", "x.a > 1", "{}.b IN (1, 2)")
    before, after = ([rng.choice(own).format(one)] if rng.random() < 0.3 else [] for _ in range(2))
    (joins if rng.random() < 0.5 else before).extend(after)
    rng.shuffle(sources)
    first = f" WHERE {' AND '.join(before)}" if before else ""
    rest = f"{first} FROM {', '.join(sources)} WHERE {' AND '.join(joins)}"
    if rng.random() < 0.35:
        by = rng.choice(("x.a", f"{one}.b"))
        return f"SELECT {rng.choice(('', 'RSTREAM '))}COUNT(*) AS n, MAX({one}.b) AS m, {by} AS g{rest} GROUP BY {by}"
    kind = rng.choice(("", "", "", "DSTREAM ", "RSTREAM ", "DISTINCT "))
    return f"SELECT {kind}x.a AS r0, {one}.b AS r1{rest}"


_TABLES = ("k", "l", "m")
_BESIDE = ("", "", "[ROWS 1]", "[ROWS 3]", "[UNBOUNDED]", "[RANGE 2 SECONDS]", "[NOW]", "[PARTITIONED BY a ROWS 1]")


def restless(rng: Random) -> str:
    """Conditions on what windows hold: a column that is lost changes rows that were there."""
    window = ("[UNBOUNDED]", "[ROWS 2]", "[RANGE 2 SECONDS]", "[PARTITIONED BY a ROWS 1]")
    x, y = rng.choice(window), rng.choice(window)
    if rng.random() < 0.2:
        x = "[RANGE 3 SECONDS SLIDE 1 SECOND]"
        y = rng.choice((x, y))
    conditions = [
        f"x.{rng.choice('ab')} {rng.choice(('IS NULL', 'IS NOT NULL', '> 1', '< 3'))}"
        for _ in range(rng.choice((0, 1, 1, 2)))
    ]
    source = f"FROM s {x} x"
    if rng.random() < 0.4:
        source += f", t {y} y"
        conditions.append(rng.choice(("x.a = y.a", "x.b = y.a", "y.w IS NULL", "x.a <> y.a")))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    if rng.random() < 0.3:
        return f"SELECT COUNT(*) AS n, x.a AS g {source}{where} GROUP BY x.a"
    kind = rng.choice(("", "DSTREAM ", "DSTREAM ", "RSTREAM ")) + rng.choice(("", "", "DISTINCT "))
    return f"SELECT {kind}x.{rng.choice('ab')} AS r0, x.x AS r1 {source}{where}"
