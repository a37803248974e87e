"""The difference between the two runs of a pair: tuples, bad rows, batches and values that the observer may not see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from worlds.noninterference_values import LABELS, SKEW, Batch, Row, Step, Visible, World, random_values


class Noise:
    """What the observer may not see, for one run."""

    def __init__(self, rng: Random, world: World) -> None:
        self._rng = rng
        self._streams = {stream.name: stream for stream in world.streams}
        self._table = world.table
        self._visible = Visible(world)
        self._much = rng.choice((0.0, 0.3, 1.0, 3.0))
        self._longest = Random(f"longest {rng.getstate()}").choice((1, 2, 3, 5, 1000))
        self.rows = 0

    def steps(self, steps: Sequence[Step]) -> Iterator[Step]:
        clock = 0
        for step in steps:
            if self._rng.random() < 0.15 * self._much:
                stream = self._rng.choice(list(self._streams))
                rows = tuple(x for _ in range(3) if (x := self._hidden(stream)))
                yield Batch(stream, rows, clock + 500 * len(rows))
            clock = step.clock if isinstance(step, Batch) else clock
            yield self._noisy(step) if isinstance(step, Batch) else step

    def batches(self, step: Batch) -> Iterator[Batch]:
        """A trigger takes a bounded number of tuples, whoever may see them: hidden tuples move the ends of batches."""
        for begin in range(0, max(len(step.rows), 1), self._longest):
            yield replace(step, rows=step.rows[begin : begin + self._longest])

    def content(self, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        """What the table holds in this run."""
        rng, found = Random(repr(self._rng.getstate())), list[Row]()
        hidden = [x for x in LABELS if not self._visible.row(self._table.name, x)]
        for row in (*rows, None):
            while rng.random() < self._much / (1 + self._much):
                label = rng.choice([*hidden, None, "doctor &", "TRUE AT NOWHERE"])
                found.append(Row(self._table.name, None, label, random_values(rng, self._table)))
                self.rows += 1
            if row is not None:
                other = random_values(rng, self._table)
                seen = {k: v for k, v in row.values.items() if self._visible.column(row.stream, k)}
                found.append(replace(row, values=other | seen))
        return tuple(found)

    def _noisy(self, batch: Batch) -> Batch:
        rows: list[Row] = []
        for row in (*batch.rows, None):
            while self._rng.random() < self._much / (1 + self._much):
                rows += [x for x in [self._hidden(batch.stream)] if x]
            if row is not None:
                hidden = {x for x in row.values if not self._visible.column(batch.stream, x)}
                other = random_values(self._rng, self._streams[batch.stream])
                rows.append(replace(row, values={k: other[k] if k in hidden else v for k, v in row.values.items()}))
        return replace(batch, rows=tuple(rows))

    def _hidden(self, stream: str) -> Row | None:
        rng, self.rows = self._rng, self.rows + 1
        values = random_values(rng, self._streams[stream])
        if rng.random() < 0.2:  # no tuple at all
            label = rng.choice(LABELS)
            bad = (
                Row(stream, 0, label, values, malformed=rng.choice(("{", "\x00", "x" * 500))),
                Row(stream, None, label, values),
                Row(stream, SKEW + SKEW // 10 + rng.choice((1, 10**12)), label, values),
                Row(
                    stream, 0, rng.choice((None, "doctor &", "TRUE AT NOWHERE", "no such thing (", "x" * 9999)), values
                ),
            )
            return rng.choice(bad)
        labels = [x for x in LABELS if not self._visible.row(stream, x)]
        far = rng.choice((SKEW, SKEW - 1, 1_000_000, -(10**12), -1))
        time = far if rng.random() < 0.3 else rng.randrange(20) * 500
        return Row(stream, time, rng.choice(labels), values) if labels else None
