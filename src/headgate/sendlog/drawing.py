"""Derivation trees for people and programs: text, JSON, SVG (paper 003, Figures 3 and 4)."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from headgate.sendlog.provenance import Tree

_WIDTH, _HEIGHT, _GAP = 7.2, 46.0, 14.0


def as_text(tree: Tree) -> str:
    """The tree by indentation: a tuple, below it each derivation with its rule and place, below that its tuples."""
    lines = [f"{tree.at}: {_fact(tree)}  <{tree.expression()}>"]
    lines += _below(tree, "")
    return "\n".join(lines)


def _below(tree: Tree, indent: str) -> list[str]:
    lines = []
    for i, use in enumerate(tree.uses):
        last = i == len(tree.uses) - 1
        lines.append(f"{indent}{'└─' if last else '├─'} {use.rule} at {tree.at}")
        inner = indent + ("   " if last else "│  ")
        for j, one in enumerate(use.body):
            end = j == len(use.body) - 1
            lines.append(f"{inner}{'└─' if end else '├─'} {_fact(one)}")
            lines += _below(one, inner + ("   " if end else "│  "))
    return lines


def _fact(tree: Tree) -> str:
    mark = {True: " [signature verified]", False: " [SIGNATURE INVALID]", None: ""}[tree.verified]
    return tree.fact() + mark


def as_json(tree: Tree) -> str:
    return json.dumps(_object(tree) | {"expression": str(tree.expression())}, indent=2, ensure_ascii=False)


def _object(tree: Tree) -> dict[str, Any]:
    found: dict[str, Any] = {"at": tree.at, "fact": tree.fact()}
    if tree.verified is not None:
        found["verified"] = tree.verified
    if tree.uses:
        found["derivations"] = [{"rule": u.rule, "from": [_object(one) for one in u.body]} for u in tree.uses]
    return found


def as_svg(tree: Tree) -> str:
    """Boxes for tuples, ovals for rules; what a derivation needs is below it."""
    parts: list[str] = []
    width, height, _ = _place(tree, 0.0, 0, parts)
    style = "font: 12px sans-serif"
    view = f'width="{width + _GAP:.0f}" height="{height + _GAP:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {view} style="{style}">\n' + "\n".join(parts) + "\n</svg>\n"


def _place(tree: Tree, left: float, depth: int, parts: list[str]) -> tuple[float, float, float]:
    """Draws a tree from `left` on; its width, its height, and where its middle is."""
    label = f"{tree.at}: {_fact(tree)}"
    own = len(label) * _WIDTH + 2 * _GAP
    y = _GAP + 2 * depth * _HEIGHT
    middles: list[tuple[float, float]] = []
    at, height = left, y + _HEIGHT
    for use in tree.uses:
        start, centres = at, []
        for one in use.body:
            width, below, centre = _place(one, at, depth + 1, parts)
            at += width + _GAP
            height = max(height, below)
            centres.append(centre)
        at = max(at, start + len(use.rule) * _WIDTH + 4 * _GAP)
        middle = (start + at - _GAP) / 2
        oval = y + _HEIGHT
        parts += [_line(middle, oval, centre, y + 2 * _HEIGHT) for centre in centres]
        parts.append(_oval(middle, oval, use.rule))
        middles.append((middle, oval))
    width = max(own, at - left - _GAP)
    centre = left + width / 2
    parts += [_line(centre, y + 12, middle, oval) for middle, oval in middles]
    colour = "#c00" if tree.verified is False else "#070" if tree.verified else "#333"
    box = f'x="{centre - own / 2:.0f}" y="{y - 12:.0f}" width="{own:.0f}" height="24" rx="3"'
    parts.append(f'<rect {box} fill="#fff" stroke="{colour}"/>')
    parts.append(f'<text x="{centre:.0f}" y="{y + 4:.0f}" text-anchor="middle">{escape(label)}</text>')
    return width, height, centre


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" stroke="#999"/>'


def _oval(x: float, y: float, rule: str) -> str:
    radius = len(rule) * _WIDTH / 2 + _GAP
    shape = f'<ellipse cx="{x:.0f}" cy="{y:.0f}" rx="{radius:.0f}" ry="12" fill="#eef" stroke="#66a"/>'
    return f'{shape}<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle">{escape(rule)}</text>'
