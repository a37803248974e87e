"""Live results on a terminal: a table that changes in place, with the newest results at its end."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli.streams import notice_text, value_text, write_text
from headgate.client import Client, Received
from headgate.plain import counted, visible

_OFTEN = 8
"""How often the table is drawn, in a second."""


def show_live(client: Client, stream: str) -> None:
    """Until Ctrl-C, or until nothing more comes. Where there is no terminal, each result is a line."""
    received = client.subscribe(stream)
    if sys.stdout.isatty():
        draw(stream, received, Console())
        return
    for each in received:
        write_text(each)


def draw(stream: str, received: Iterable[Received], console: Console) -> None:
    newest: deque[Received] = deque(maxlen=max(3, console.height - 6))
    count, notice = 0, ""
    with Live(_table(stream, newest, count, notice), console=console, refresh_per_second=_OFTEN) as live:
        for each in received:
            if each.values is None:
                notice = notice_text(each)
            else:
                newest.append(each)
                count += 1
                notice = ""
            live.update(_table(stream, newest, count, notice))


def _table(stream: str, newest: Iterable[Received], count: int, notice: str) -> Table:
    rows = list(newest)
    caption = notice or f"{counted(count, 'result')}; Ctrl-C ends"
    table = Table(title=Text(visible(stream)), caption=Text(visible(caption)), box=None, pad_edge=False)
    columns = list(rows[-1].values or {}) if rows else []
    table.add_column("time")
    for name in columns:
        table.add_column(Text(visible(name)))
    for row in rows:
        values = row.values or {}
        table.add_row(row.time_text, *(Text(visible(value_text(values.get(name)))) for name in columns))
    return table
