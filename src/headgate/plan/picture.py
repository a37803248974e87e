"""Draw shared plans as a picture (SVG), laid out by Graphviz: sources below, queries on top, shared operators marked.

Each sharing class is a frame of its own, with its level. A dotted line joins a query to a query that reads its output.
Above a query stand its views: the subscribers who share windows and results.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any, Protocol

from headgate.errors import Conflict
from headgate.plan import nodes as n
from headgate.plan.steps import Operator, blocks_of, different, of_block, operators, reading
from headgate.plan.words import describe, operator
from headgate.standard_error import errors_to

MOST_DRAWN = 500
MOST_VIEWS = 8
"""Views drawn for each query; a box counts the others."""
_WRAP, _MOST_LINES = 40, 4
_COLOURS = {"source": "#e8eef4", "own": "#ffffff", "shared": "#ffe3a3", "query": "#d5ecd4", "view": "#e6dff3"}
_MEANINGS = {
    "source": "a stream",
    "own": "for one query",
    "shared": "shared",
    "query": "results of a query",
    "view": "subscribers who share them",
}
_FONT = "DejaVu Sans"
_INK = "#57606a"


class Plan(Protocol):
    """The plan to draw: queries by the names that are shown, and the node from which a node is computed."""

    @property
    def queries(self) -> Mapping[str, n.Node]: ...

    def base(self, select: n.Node) -> n.Node | None: ...


@dataclass(frozen=True)
class Beside:
    """What a picture shows beside operators. A query is named by the title of its frame and its shown name, which is
    unique in a frame only.

    outputs: the streams of the results of queries
    views: the views of queries, a line for each
    levels: the levels of streams, by their names as sources
    """

    outputs: Mapping[tuple[str, str], str] = field(default_factory=dict)
    views: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    levels: Mapping[str, str] = field(default_factory=dict)


def picture(plans: Mapping[str, Plan], beside: Beside | None = None) -> str:
    """Draw merged plans in frames with these titles; operators are shared only within a plan."""
    beside = beside or Beside()
    operators = sum(len(different(plan.queries.values())) for plan in plans.values())
    if operators > MOST_DRAWN:
        raise Conflict(
            f"cannot draw {operators:,} operators: a picture has at most {MOST_DRAWN}", hint="explain one query"
        )
    import pygraphviz  # imported here: commands that draw nothing start faster without it

    graph = pygraphviz.AGraph(directed=True, rankdir="BT", newrank=True, nodesep=0.25, ranksep=0.4, fontname=_FONT)
    graph.graph_attr.update(label=_legend(), labelloc="b", pad=0.2, tooltip=" ")
    graph.node_attr.update(shape="plain", fontname=_FONT, tooltip=" ")
    graph.edge_attr.update(color=_INK, arrowsize=0.6, tooltip=" ")
    for number, (title, plan) in enumerate(plans.items()):
        frame = graph.add_subgraph(name=f"cluster_{number}", label=title, color="#c6ccd2", style="rounded", fontsize=11)
        _draw(frame, number, plan, beside.levels)
        for name in plan.queries:
            _draw_views(frame, f"{number} query {name}", beside.views.get((title, name), ()))
    _join(graph, plans, beside.outputs)
    with errors_to(Path(os.devnull)):  # Graphviz warns of fonts that a machine has configured differently
        drawn: bytes = graph.draw(format="svg", prog="dot")
    text = drawn.decode()
    return text[text.index("<svg") :]


def _draw(frame: Any, number: int, plan: Plan, levels: Mapping[str, str]) -> None:
    readers: dict[str, list[str]] = {}
    drawn = _Drawn(number)
    for name, root in sorted(plan.queries.items()):
        for key in dict.fromkeys(drawn.id_of(x) for x in operators(root)):
            readers.setdefault(key, []).append(name)
    for x in different(plan.queries.values()).values():
        node, key = x.node, drawn.id_of(x)
        kind = "source" if isinstance(node, n.Source) else "shared" if len(readers[key]) > 1 else "own"
        note = f"shared by {', '.join(readers[key])}" if kind == "shared" else ""
        if isinstance(node, n.Source) and node.stream in levels:
            note = f"level {levels[node.stream]}"
        frame.add_node(key, label=_box(kind, operator(node), describe(node), note))
    for name, root in sorted(plan.queries.items()):
        query = f"{number} query {name}"
        frame.add_node(query, label=_box("query", "QUERY", name))
        for top in blocks_of(root):
            own = {x.node.key: drawn.id_of(x) for x in of_block(top)}
            for node in top.walk():
                base = plan.base(node)
                for below in node.inputs if base is None else ():
                    frame.add_edge(own[below.key], own[node.key], style="solid")
                if base is not None:
                    frame.add_edge(drawn.id_of(Operator(base, (reading(base),))), own[node.key], style="dashed")
            frame.add_edge(own[top.key], query)


class _Drawn:
    """The names of operators in a picture."""

    def __init__(self, frame: int) -> None:
        self._frame = frame
        self._numbers: dict[tuple[str, tuple[str, ...]], int] = {}

    def id_of(self, x: Operator) -> str:
        return f"{self._frame} {self._numbers.setdefault((x.node.key, x.steps), len(self._numbers))}"


def _draw_views(frame: Any, query: str, views: Sequence[str]) -> None:
    more = len(views) - MOST_VIEWS
    shown = [*views[:MOST_VIEWS], *([f"and {more:,} more"] if more > 0 else [])]
    for number, subscribers in enumerate(shown):
        frame.add_node(f"{query} view {number}", label=_box("view", "VIEW", subscribers))
        frame.add_edge(query, f"{query} view {number}")


def _join(graph: Any, plans: Mapping[str, Plan], outputs: Mapping[tuple[str, str], str]) -> None:
    """Join queries over queries: from the results of one to the stream that another reads."""
    producers = {
        outputs[title, name]: f"{number} query {name}"
        for number, (title, plan) in enumerate(plans.items())
        for name in plan.queries
        if (title, name) in outputs
    }
    for number, plan in enumerate(plans.values()):
        drawn = _Drawn(number)
        for x in (x for _, root in sorted(plan.queries.items()) for x in operators(root)):
            key = drawn.id_of(x)
            if isinstance(x.node, n.Source) and x.node.stream in producers:
                graph.add_edge(producers[x.node.stream], key, style="dotted", penwidth=1.6)


def _box(kind: str, title: str, text: str, note: str = "") -> str:
    rows = [f'<font point-size="11"><b>{escape(title)}</b></font>']
    rows += [f'<font point-size="11">{escape(line)}</font>' for line in _wrapped(text)]
    rows += [f'<font point-size="10" color="#6b4e00">{escape(line)}</font>' for line in _wrapped(note)]
    cells = "".join(f'<tr><td align="left">{row}&nbsp;&nbsp;</td></tr>' for row in rows)  # other fonts may be wider
    look = f'border="1" cellborder="0" cellspacing="0" style="rounded" color="{_INK}" bgcolor="{_COLOURS[kind]}"'
    return f"<<table {look}>{cells}</table>>"


def _legend() -> str:
    kinds = "".join(
        f'<td border="1" bgcolor="{_COLOURS[kind]}" width="14"> </td><td><font point-size="11">{text}</font>&nbsp;</td>'
        for kind, text in _MEANINGS.items()
    )
    lines = "dashed: computed from a weaker selection; dotted: reads the results"
    return (
        f'<<table border="0" cellborder="0"><tr>{kinds}</tr><tr><td colspan="{2 * len(_MEANINGS)}">'
        f'<font point-size="10">{lines}</font></td></tr></table>>'
    )


def _wrapped(text: str) -> list[str]:
    lines = wrap(text, _WRAP, break_long_words=True)
    if len(lines) <= _MOST_LINES:
        return lines
    return [*lines[: _MOST_LINES - 1], lines[_MOST_LINES - 1][: _WRAP - 1] + "…"]
