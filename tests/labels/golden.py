"""The golden cases of `cases.json` (SPEC.md, section 2.5): labels, clearances, outcomes, errors, combinations."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headgate.labels import Clearance, Level, LevelOrder, Rules, Semantics, parse_level

TABLE: dict[str, Any] = json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))
ORDER = LevelOrder({name: frozenset(lower) for name, lower in TABLE["levels"].items()})
EVERYTHING = Clearance(
    roles={"a", "b", "c", "doctor", "nurse"},
    level=Level("T", frozenset({"NATO", "CRYPTO"})),
    sources={"in1", "in2"},
    aggregate_sources={"in1", "in2"},
)


def written(text: str | list[str | dict[str, Any]]) -> str:
    """The text of a case, its repetitions written out."""
    if isinstance(text, str):
        return text
    return "".join(part if isinstance(part, str) else _repeated(**part) for part in text)


def _repeated(**part: Any) -> str:
    first: int = part.get("from", 0)
    join: str = part.get("join", "")
    return join.join(part["repeat"].replace("{i}", str(i)) for i in range(first, first + part["times"]))


@dataclass(frozen=True)
class Decision:
    name: str
    text: str
    canonical: str
    clearance: Clearance
    rules: Rules
    aggregated: bool
    permitted: bool


@dataclass(frozen=True)
class Fault:
    name: str
    text: str
    message: str
    hint: str
    offset: int


@dataclass(frozen=True)
class Combination:
    name: str
    left: str
    right: str
    combined: str


def _decision(case: dict[str, Any]) -> Decision:
    shown = case["clearance"]
    clearance = Clearance(
        roles=frozenset(shown.get("roles", ())),
        level=parse_level(shown.get("level", "U")),
        sources=frozenset(shown.get("sources", ())),
        aggregate_sources=frozenset(shown.get("aggregate_sources", ())),
    )
    rules = Rules(ORDER, {source: Semantics(chosen) for source, chosen in case.get("semantics", {}).items()})
    return Decision(
        name=case["name"],
        text=written(case["text"]),
        canonical=written(case["canonical"]),
        clearance=clearance,
        rules=rules,
        aggregated=case.get("aggregated", False),
        permitted={"permitted": True, "denied": False}[case["outcome"]],
    )


DECISIONS = [_decision(case) for case in TABLE["decisions"]]
FAULTS = [Fault(**{**case, "text": written(case["text"])}) for case in TABLE["errors"]]
COMBINATIONS = [Combination(**case) for case in TABLE["combinations"]]


def named(cases: Iterable[Decision | Fault | Combination]) -> list[Any]:
    return [pytest.param(case, id=case.name) for case in cases]
