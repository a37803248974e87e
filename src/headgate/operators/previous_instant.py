"""What windows that count held when a block that slides was last looked at.

Tuples come into `ROWS` and `PARTITIONED` windows between two instants of a block that slides, and others leave for
them, unseen. DSTREAM and DISTINCT compare with the instant before, so what was there then is kept until the next one,
whatever batches end in between. It is kept apart from what the window holds: if a tuple that displaced it is lost, it
does not return. All other windows know by time alone what was there.
"""

from __future__ import annotations

import numpy as np

from headgate.columns.sorting import Ints
from headgate.operators.rows import BEFORE, NEVER, Rows
from headgate.plan import nodes as n


def previous_rows(block: n.Node) -> tuple[n.Window, ...]:
    """The windows of a block (a ToStream node) of which more must be known than what they hold."""
    if not isinstance(block, n.ToStream) or not (block.operator == "DSTREAM" or isinstance(block.input, n.Distinct)):
        return ()
    windows = [node for node in block.walk() if isinstance(node, n.Window)]
    if not any(window.slide for window in windows):
        return ()
    return tuple(window for window in windows if window.rows)


def name_of(block: n.Node, window: n.Window) -> str:
    """By which it is kept, beside what windows hold, which have their keys as names."""
    return f"{window.key} {block.key}"


def with_gone(rows: Rows, before: Ints) -> Rows:
    """The rows of a window, with those of its tuples that were there `before` and have left since: these are at no
    instant to come."""
    gone = np.setdiff1d(before, rows.sides[0])
    if not len(gone):
        return rows
    places = np.concatenate([gone, rows.sides[0]])
    start = np.concatenate([np.full(len(gone), BEFORE), rows.start])
    end = np.concatenate([np.zeros(len(gone), np.int64), rows.end])
    until = np.concatenate([np.full(len(gone), NEVER), rows.until])
    return Rows((places,), start, end, until).at(np.argsort(places, kind="stable"))


def there_at(rows: Rows, passed: int) -> Ints:
    """What a window that counts holds after so many tuples."""
    return rows.sides[0][np.flatnonzero((rows.start < passed) & (passed <= rows.end))]
