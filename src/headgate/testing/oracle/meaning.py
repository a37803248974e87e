"""The meaning of a query over given tuples (SPEC.md, 4.2): no arrival, no rights, every tuple read as a whole.

At each instant the contents of windows are selected from all tuples that have entered, as the text says; the only state
is the rows of the previous instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from headgate.labels import LEAST, Level, Rules
from headgate.plan.queries import Query, QueryBlock
from headgate.testing.oracle.blocks import BlockOver, Row, Yield
from headgate.testing.oracle.tuples import BEGINNING, OracleResult, Seen, Tuple, TupleKey
from headgate.testing.oracle.windows import Instant, held, slide_of, slides_over


def meaning(
    query: Query,
    tuples: Iterable[Tuple],
    *,
    tables: Iterable[Tuple] = (),
    rules: Rules | None = None,
    level: Level = LEAST,
) -> list[OracleResult]:
    """The results, in their order. The tuples are given in the order of their arrival, those of tables in theirs;
    `level` is that of the query."""
    given = {TupleKey.in_table(x, number): Seen.whole(x) for number, x in enumerate(tables)}
    given |= {TupleKey(x.time, x.stream, number): Seen.whole(x) for number, x in enumerate(tuples)}
    found: list[tuple[Instant, int, Yield]] = []
    for number, block in enumerate(query.blocks):
        over = BlockOver(block, _read_by(block, given), rules or Rules(), level)
        found += ((instant, number, yielded) for instant, yielded in _of_block(over))
    found.sort(key=lambda x: x[:2])
    return [OracleResult(instant.time, *yielded, block=number) for instant, number, yielded in found]


def _read_by(block: QueryBlock, tuples: Mapping[TupleKey, Seen]) -> dict[TupleKey, Seen]:
    streams = {reading.stream.name for reading in block.readings}
    return {position: seen for position, seen in tuples.items() if position.stream in streams}


def _of_block(over: BlockOver) -> Iterator[tuple[Instant, Yield]]:
    before: list[Row] = []
    for instant in _instants(over):
        now = over.rows(_contents(over, instant))
        for yielded in over.yields(now, before, sliding=instant.slides):
            yield instant, yielded
        before = now


def _instants(over: BlockOver) -> list[Instant]:
    entering = [position for position in over.tuples if position.time > BEGINNING and over.enters_any(position)]
    if not slide_of(over.block):
        return sorted(map(Instant.of, entering))
    sliding = {
        instant
        for position in entering
        for source, reading in enumerate(over.block.readings)
        if reading.window and reading.window.slide and over.enters(source, position)
        for instant in slides_over(reading.window, position)
    }
    return sorted(sliding)


def _contents(over: BlockOver, instant: Instant) -> list[list[TupleKey]]:
    """The content of each window; where there is no window, the one tuple that passes through."""
    contents = []
    for source, reading in enumerate(over.block.readings):
        entered = sorted(p for p in over.tuples if over.enters(source, p) and Instant.of(p) <= instant)
        if reading.window is None:
            contents.append(entered[-1:])
        else:
            contents.append(held(reading.window, entered, instant.time, over.partition(source)))
    return contents
