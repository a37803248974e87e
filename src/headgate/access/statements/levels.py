"""Levels and compartments. Labels keep only their maximal levels, so a level may rise but never sink: a level that once
covered another always covers it, even if its name is dropped and used again."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.access import rows as r
from headgate.access.permissions import Permission
from headgate.access.request import Handler, Request, Result
from headgate.cql import statements as s
from headgate.cql.names import Name
from headgate.errors import Conflict, NotFound
from headgate.labels import parse_level
from headgate.labels.levels import UNCLASSIFIED
from headgate.lexing import quote


def _check_known(q: Request, names: Iterable[Name]) -> None:
    for name in names:
        if name.text not in q.authorizer.order:
            raise NotFound(f"there is no level `{name.text}`", position=name.position)


def _find(q: Request, name: Name) -> r.LevelRow:
    q.about(f"level {quote(name.text)}")
    q.need_system(Permission.CHANGE_SYSTEM)
    if name.text == UNCLASSIFIED:
        raise Conflict(f"level {UNCLASSIFIED} is below every other and cannot be changed", position=name.position)
    found = q.state.levels.get(name.text)
    if found is None or found.retired:
        raise NotFound(f"there is no level `{name.text}`", position=name.position)
    return found


def _create(q: Request, x: s.CreateLevel) -> Result:
    q.about(f"level {quote(x.name.text)}")
    q.need_system(Permission.CHANGE_SYSTEM)
    if x.name.text in q.authorizer.order:
        raise Conflict(f"there is already a level `{x.name.text}`", position=x.name.position)
    _check_known(q, x.above)
    retired = q.state.levels.get(x.name.text)
    q.state.levels.put(r.LevelRow(x.name.text, _below(name.text for name in x.above)))
    if retired and not set(retired.above) <= q.authorizer.order.below(x.name.text):
        raise Conflict(
            f"level {quote(x.name.text)} existed before and stood above {', '.join(map(quote, retired.above))}",
            hint="labels may still carry it: let it stand above these again, or choose another name",
        )
    return Result(f"level {quote(x.name.text)} created")


def _below(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names) - {UNCLASSIFIED}))


def _alter(q: Request, x: s.AlterLevel) -> Result:
    level = _find(q, x.name)
    _check_known(q, x.above)
    raised = r.LevelRow(level.name, _below({*level.above, *(name.text for name in x.above)}))
    q.state.levels.put(raised)
    _ = q.authorizer.order  # refuses a cycle
    return Result(f"level {quote(level.name)} altered")


def _in_use(q: Request) -> Iterable[str]:
    yield from (user.clearance for user in q.state.users)
    yield from (thing.level for thing in q.state.objects)


def _drop(q: Request, x: s.DropLevel) -> Result:
    level = _find(q, x.name)
    if any(level.name in row.above for row in q.state.levels if not row.retired):
        raise Conflict(f"other levels stand above {quote(level.name)}", hint="drop or alter them first")
    if any(parse_level(text).name == level.name for text in _in_use(q)):
        raise Conflict(f"level {quote(level.name)} is in use")
    q.state.levels.put(r.LevelRow(level.name, _below(q.authorizer.order.below(level.name)), retired=True))
    return Result(f"level {quote(level.name)} dropped")


def _create_compartment(q: Request, x: s.CreateCompartment) -> Result:
    q.about(f"compartment {quote(x.name.text)}")
    q.need_system(Permission.CHANGE_SYSTEM)
    if q.state.compartments.get(x.name.text):
        raise Conflict(f"there is already a compartment `{x.name.text}`", position=x.name.position)
    q.state.compartments.put(r.Compartment(x.name.text))
    return Result(f"compartment {quote(x.name.text)} created")


def _drop_compartment(q: Request, x: s.DropCompartment) -> Result:
    q.about(f"compartment {quote(x.name.text)}")
    q.need_system(Permission.CHANGE_SYSTEM)
    found = q.state.compartments.get(x.name.text)
    if found is None:
        raise NotFound(f"there is no compartment `{x.name.text}`", position=x.name.position)
    if any(found.name in parse_level(text).compartments for text in _in_use(q)):
        raise Conflict(f"compartment {quote(found.name)} is in use")
    q.state.compartments.remove(found)
    return Result(f"compartment {quote(found.name)} dropped")


HANDLERS: dict[type[s.Statement], Handler] = {
    s.CreateLevel: _create,
    s.AlterLevel: _alter,
    s.DropLevel: _drop,
    s.CreateCompartment: _create_compartment,
    s.DropCompartment: _drop_compartment,
}
