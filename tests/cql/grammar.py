"""The grammar of SPEC.md, section 3, ready to run; levels are those of section 2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from labels.ebnf import Grammar, Node, Symbol, read_grammar

SPEC = (Path(__file__).parents[2] / "SPEC.md").read_text(encoding="utf-8")


def block(section: str) -> Grammar:
    """The first EBNF block of a section."""
    match = re.search(rf"^## {re.escape(section)}\. .*?```ebnf\n(.*?)```", SPEC, re.MULTILINE | re.DOTALL)
    assert match is not None, f"SPEC.md has no grammar in section {section}"
    return read_grammar(match[1])


STATEMENTS = block("3")
LABELS = block("2")
GRAMMAR: Grammar = {**STATEMENTS, "level": LABELS["level"]}
# What section 1 describes in words.
OPEN = {"name", "string", "number"}


def substituted(node: Node, values: Mapping[str, Node]) -> Node:
    """The same piece of grammar, with pieces in place of some symbols."""
    if isinstance(node, Symbol):
        return values.get(node.name, node)
    return replace(node, parts=tuple(substituted(part, values) for part in node.parts))
