"""Describe operators as people read them: columns with their streams, durations with their units."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.labels import source_shown
from headgate.plan import nodes as n
from headgate.plan.expressions import Column, Expr, written
from headgate.plan.normal import moved

_UNITS = ((86_400_000, "DAY"), (3_600_000, "HOUR"), (60_000, "MINUTE"), (1000, "SECOND"), (1, "MILLISECOND"))


@dataclass(frozen=True)
class _Named(Column):
    """A column that is shown as the given text."""

    shown: str

    def __str__(self) -> str:
        return self.shown


def operator(node: n.Node) -> str:
    match node:
        case n.ToStream():
            return node.operator
        case n.Arrivals():
            return "SOURCE"
        case _:
            return type(node).__name__.upper()


def describe(node: n.Node) -> str:
    """What an operator does, without its name."""
    match node:
        case n.Source():
            return source_shown(node.stream)
        case n.Select():
            return " AND ".join(sorted(expression(c, node.input) for c in node.conditions))
        case n.Window():
            return _window(node)
        case n.Join():
            return " AND ".join(sorted(expression(c, node) for c in node.conditions)) or "everything with everything"
        case n.Aggregate():
            groups = ", ".join(sorted(expression(g, node.input) for g in node.groups))
            calls = ", ".join(sorted(expression(c, node.input) for c in node.calls)) or "groups"
            return f"{calls} BY {groups}" if groups else calls
        case n.Project():
            return ", ".join(_item(name, expr, node) for name, expr in node.items)
        case _:
            return ""


def expression(expr: Expr, below: n.Node) -> str:
    """An expression over the results of this node; above a join, columns are written with their stream."""
    streams = _streams(below)
    if len(streams) == 1:
        return _printable(str(expr))
    named = moved(expr, lambda c: _Named(c.input, c.name, c.type, f"{streams[c.input]}.{written(c.name)}"))
    return _printable(str(named))


def _printable(text: str) -> str:
    """Escape unprintable characters: the texts in a query are its author's, and must not print line breaks or terminal
    escapes to a reader of its plan."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _streams(node: n.Node) -> list[str]:
    """The names of the nearest join's inputs; streams that occur twice get a number."""
    while not isinstance(node, n.Join):
        if not node.inputs:
            return [source_shown(node.parameters)]
        node = node.inputs[0]
    names = [
        source_shown(next(below.stream for below in side.walk() if isinstance(below, n.Source))) for side in node.sides
    ]
    return [
        name if names.count(name) == 1 else f"{name}#{names[: number + 1].count(name)}"
        for number, name in enumerate(names)
    ]


def _item(name: str, expr: Expr, node: n.Project) -> str:
    text = expression(expr, node.input)
    return text if text == written(name) else f"{text} AS {written(name)}"


def _window(node: n.Window) -> str:
    match node.kind:
        case "ROWS":
            return f"ROWS {node.rows}"
        case "RANGE":
            return f"RANGE {duration(node.range)}" + (f" SLIDE {duration(node.slide)}" if node.slide else "")
        case "PARTITIONED":
            return f"PARTITIONED BY {', '.join(map(str, node.partition))} ROWS {node.rows}"
        case _:
            return node.kind


def duration(milliseconds: int) -> str:
    size, unit = next((size, unit) for size, unit in _UNITS if milliseconds % size == 0)
    number = milliseconds // size
    return f"{number} {unit}{'' if number == 1 else 'S'}"
