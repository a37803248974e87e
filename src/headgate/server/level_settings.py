"""What each level may use, if levels have processors of their own: the tables `[levels.S]` of `server.toml`.

It is declared for a level alone, and nothing that other levels do changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import log

from headgate.errors import Conflict, HeadgateError
from headgate.labels import LEAST, Level, LevelOrder, parse_level
from headgate.levels.child import Resources

LEVELS = "levels"
_LOWEST, _STEP = 19, 1.25
"""The lowest priority, as a value of `nice`, and how much less of a processor each step gets beside the one before."""


@dataclass(frozen=True)
class LevelUse:
    """What a level may use; None: what every level may.

    share: of a processor, in percent of what a process of the usual priority gets beside it when both are busy
    memory: bytes; 0: no limit
    backlog: bytes of tuples that may wait for it; 0: any number
    """

    share: int | None = None
    memory: int | None = None
    backlog: int | None = None


def level_uses(found: object) -> dict[str, LevelUse]:
    """By level, as text."""
    if not isinstance(found, Mapping):
        raise Conflict(f"cannot use the setting `{LEVELS}`: write a table for each level", hint="[levels.S]")
    return {str(_level(name)): _use(name, facts) for name, facts in found.items()}


def _level(name: str) -> Level:
    try:
        return parse_level(name)
    except HeadgateError:
        raise Conflict(
            f"cannot use the setting `{LEVELS}`: `{name}` is not a level", hint='for example [levels."TS{A, B}"]'
        ) from None


def _use(name: str, facts: object) -> LevelUse:
    if not isinstance(facts, Mapping):
        raise Conflict(f"cannot use the setting `{LEVELS}.{name}`: it must be a table", hint=f"[{LEVELS}.{name}]")
    known = [field.name for field in fields(LevelUse)]
    for key, value in facts.items():
        if key not in known:
            raise Conflict(f"there is no setting `{LEVELS}.{name}.{key}`", hint=f"there are {', '.join(known)}")
        if type(value) is not int or value < 0 or (key == "share" and not 1 <= value <= 100):
            kind = "a whole number from 1 to 100" if key == "share" else "a whole number"
            raise Conflict(f"cannot use the setting `{LEVELS}.{name}.{key}`: it must be {kind}")
    return replace(LevelUse(), **facts)


def resources(level: Level, order: LevelOrder, usual: Resources, uses: Mapping[str, LevelUse]) -> Resources:
    """`usual`: what levels may use for which nothing else is declared."""
    own = uses.get(str(level), LevelUse())
    return Resources(
        priority(level, order, uses),
        usual.memory if own.memory is None else own.memory,
        usual.backlog if own.backlog is None else own.backlog,
    )


def priority(level: Level, order: LevelOrder, uses: Mapping[str, LevelUse]) -> int:
    """As a value of `nice`, where more is a lower priority. INVARIANT: a level has none above that of a level that it
    dominates, whatever is declared."""
    known = {LEAST, *map(Level, order.above), *map(parse_level, uses)}
    return max(_declared(x, order, uses) for x in {level, *known} if x == level or order.dominates(level, x))


def _declared(level: Level, order: LevelOrder, uses: Mapping[str, LevelUse]) -> int:
    """Without a declaration, levels divide the range between them, from the lowest to the highest."""
    share = uses.get(str(level), LevelUse()).share
    if share is not None:
        return min(_LOWEST, round(log(100 / share) / log(_STEP)))
    highest = max((order.height(Level(name)) for name in order.above), default=1)
    return min(_LOWEST, round(_LOWEST * order.height(level) / max(1, highest)))
