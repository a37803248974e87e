"""A shared plan as a picture (SVG): sources below, queries on top, what several queries share marked.

Layers are the longest way from a source; within a layer nodes stand near what they are connected to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Protocol
from xml.sax.saxutils import escape

from headgate.plan import nodes as n
from headgate.plan.words import describe, operator

WIDTH, GAP_X, GAP_Y, LINE, PAD = 230, 28, 46, 15, 9
_WRAP, _MOST_LINES, _SWEEPS = 34, 4, 8
_COLOURS = {"source": "#e8eef4", "own": "#ffffff", "shared": "#ffe3a3", "query": "#d5ecd4"}
_STYLE = (
    "text{font:12px 'DejaVu Sans',Verdana,sans-serif;fill:#1b1f24}.op{font-weight:bold}"
    ".note{fill:#6b4e00;font-size:11px}"
    "rect{stroke:#57606a;stroke-width:1.2}path{stroke:#57606a;stroke-width:1.4;fill:none}.derived{stroke-dasharray:5 4}"
)


class Plan(Protocol):
    """What is drawn: queries by the names they are shown with, and what a node is computed from."""

    @property
    def queries(self) -> Mapping[str, n.Node]: ...

    def base(self, node: n.Node) -> n.Node | None: ...


@dataclass
class _Box:
    """One operator, or one query at the top."""

    kind: str
    title: str
    lines: list[str]
    note: list[str]
    below: list[str]
    derived: bool = False
    layer: int = -1
    x: float = 0.0
    y: float = 0.0

    @property
    def height(self) -> int:
        return 2 * PAD + LINE * (1 + len(self.lines) + len(self.note))


def picture(*plans: Plan) -> str:
    """Merged plans side by side: operators are shared within a plan only."""
    boxes = {f"{number} {key}": box for number, plan in enumerate(plans) for key, box in _boxes(number, plan).items()}
    title = "The shared plan of " + ", ".join(name for plan in plans for name in plan.queries)
    width, height = _place(boxes)
    body = [*(_edge(boxes, box) for box in boxes.values()), *map(_draw, boxes.values())]
    legend = _legend(height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:.0f} {height + 34:.0f}" '
        f'width="{width:.0f}" height="{height + 34:.0f}"><title>{escape(title)}</title>'
        f'<style>{_STYLE}</style><rect width="100%" height="100%" style="stroke:none" fill="#fff"/>'
        f"{''.join(body)}{legend}</svg>\n"
    )


def _boxes(number: int, plan: Plan) -> dict[str, _Box]:
    found: dict[str, n.Node] = {}
    readers: dict[str, list[str]] = {}
    for name, root in sorted(plan.queries.items()):
        for node in root.walk():
            found[node.key] = node
            readers.setdefault(node.key, []).append(name)
    boxes = {}
    for key, node in found.items():
        kind = "source" if isinstance(node, n.Source) else "shared" if len(readers[key]) > 1 else "own"
        note = _wrapped(f"shared by {', '.join(readers[key])}") if kind == "shared" else []
        base = plan.base(node)
        below = [f"{number} {under.key}" for under in (node.inputs if base is None else (base,))]
        boxes[key] = _Box(kind, operator(node), _wrapped(describe(node)), note, below, derived=base is not None)
    for name, root in sorted(plan.queries.items()):
        boxes[f"query {name}"] = _Box("query", "QUERY", _wrapped(name), [], [f"{number} {root.key}"])
    return boxes


def _wrapped(text: str) -> list[str]:
    lines = wrap(text, _WRAP, break_long_words=True)
    return (
        lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 1], lines[_MOST_LINES - 1][: _WRAP - 1] + "…"]
    )


def _place(boxes: dict[str, _Box]) -> tuple[float, float]:
    """Gives every box its place; returns the size of the whole."""
    for box in boxes.values():
        _settle(boxes, box)
    layers: list[list[_Box]] = [[] for _ in range(1 + max((box.layer for box in boxes.values()), default=0))]
    for box in boxes.values():
        layers[box.layer].append(box)
    _order(boxes, layers)
    width = max(3, *(len(layer) for layer in layers)) * (WIDTH + GAP_X) + GAP_X
    y = float(GAP_X)
    for layer in reversed(layers):
        start = (width - len(layer) * (WIDTH + GAP_X) + GAP_X) / 2
        for place, box in enumerate(layer):
            box.x, box.y = start + place * (WIDTH + GAP_X), y
        y += max((box.height for box in layer), default=0) + GAP_Y
    return width, y


def _settle(boxes: dict[str, _Box], box: _Box) -> None:
    """Finds the layer of a box: above everything that it reads, which can be a long line of selections."""
    waiting = [box]
    while waiting:
        below = [boxes[key] for key in waiting[-1].below]
        if unsettled := [under for under in below if under.layer < 0]:
            waiting += unsettled
        else:
            waiting.pop().layer = 1 + max((under.layer for under in below), default=-1)


def _order(boxes: dict[str, _Box], layers: list[list[_Box]]) -> None:
    """Moves each box towards the middle of its neighbours, up and down, a few times."""
    above: dict[int, list[_Box]] = {}
    for box in boxes.values():
        for key in box.below:
            above.setdefault(id(boxes[key]), []).append(box)
    below = {id(box): [boxes[key] for key in box.below] for box in boxes.values()}
    for layer in layers:
        _line_up(layer)
    for sweep in range(_SWEEPS):
        near = below if sweep % 2 == 0 else above
        for layer in layers if near is below else reversed(layers):
            middles = {id(box): _middle(box, near.get(id(box), [])) for box in layer}
            layer.sort(key=lambda box, middles=middles: middles[id(box)])  # type: ignore[misc]
            _line_up(layer)


def _line_up(layer: list[_Box]) -> None:
    for place, box in enumerate(layer):
        box.x = place - len(layer) / 2


def _middle(box: _Box, near: list[_Box]) -> float:
    return sum(other.x for other in near) / len(near) if near else box.x


def _edge(boxes: dict[str, _Box], box: _Box) -> str:
    """From what a box reads up to the box; dashed from what it is computed from."""
    paths = []
    style = ' class="derived"' if box.derived else ""
    for under in (boxes[key] for key in box.below):
        x1, y1 = under.x + WIDTH / 2, under.y
        x2, y2 = box.x + WIDTH / 2, box.y + box.height
        bend = (y1 - y2) / 2
        paths.append(
            f'<path{style} d="M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 - bend:.0f} {x2:.0f} {y2 + bend:.0f} {x2:.0f} {y2:.0f}"/>'
        )
    return "".join(paths)


def _draw(box: _Box) -> str:
    rows = [(box.title, "op"), *((line, "") for line in box.lines), *((line, "note") for line in box.note)]
    texts = "".join(
        f'<text class="{style}" x="{box.x + PAD:.0f}" y="{box.y + PAD + LINE * (i + 0.8):.0f}">{escape(text)}</text>'
        for i, (text, style) in enumerate(rows)
    )
    return (
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{WIDTH}" height="{box.height}" rx="6" '
        f'fill="{_COLOURS[box.kind]}"/>{texts}'
    )


def _legend(y: float) -> str:
    named = (("source", "a stream"), ("own", "one query's"), ("shared", "shared"), ("query", "a query's results"))
    last = GAP_X + 150 * len(named)
    dashed = (
        f'<path class="derived" d="M{last} {y + 7:.0f}h30"/><text x="{last + 36}" y="{y + 12:.0f}">computed from</text>'
    )
    return dashed + "".join(
        f'<rect x="{GAP_X + 150 * i}" y="{y:.0f}" width="14" height="14" fill="{_COLOURS[kind]}"/>'
        f'<text x="{GAP_X + 20 + 150 * i}" y="{y + 12:.0f}">{text}</text>'
        for i, (kind, text) in enumerate(named)
    )
