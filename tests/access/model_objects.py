"""Schemas, streams and queries of the model, and the rights to them: who makes, changes, runs and drops them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .model_decisions import Decisions
from .model_values import (
    APPLIES,
    OPERATORS,
    SYSTEM,
    Caller,
    Label,
    Level,
    Limits,
    Session,
    Target,
    Thing,
    once,
    refuse_if,
)


class Objects(Decisions):
    """What owners do, and those to whom they give rights."""

    # Schemas, streams, queries --------------------------------------------------------------------------------------

    def _new(self, thing: Thing) -> int:
        self.things[self.next_thing] = thing
        self.next_thing += 1
        return self.next_thing - 1

    def _check_free(self, thing: Thing) -> None:
        refuse_if(any(other.key == thing.key for other in self.things.values()), "Conflict")

    def _add(self, me: Caller, thing: Thing) -> int:
        self._check_free(thing)
        new = self._new(thing)
        if self.parameters["default_rights"] == "ROLE":
            rights = ("VIEW OBJECT", "SUBSCRIBE", "READ TUPLE") if thing.kind == "STREAM" else ("VIEW OBJECT",)
            self.grants.update({(new, right, role): {} for right in rights for role in self.active(me.session)})
        return new

    def create_schema(self, me: Caller, name: str, columns: Sequence[str]) -> None:
        self.need(me, "ADD")
        refuse_if(len(set(columns)) < len(columns), "Conflict")
        self._add(me, Thing("SCHEMA", me.user, me.session.level, name, tuple(columns)))

    def add_column(self, me: Caller, target: Target, column: str) -> None:
        i = self.find(me.session, target)
        self.need_owner(me, self.things[i])
        refuse_if(column in self.things[i].columns, "Conflict")
        self.things[i] = replace(self.things[i], columns=(*self.things[i].columns, column))

    def drop_column(self, me: Caller, target: Target, column: str) -> None:
        i = self.find(me.session, target)
        self.need_owner(me, self.things[i])
        refuse_if(column not in self.things[i].columns, "NotFound")
        refuse_if(len(self.things[i].columns) == 1, "Conflict")
        rest = tuple(name for name in self.things[i].columns if name != column)
        self.things[i] = replace(self.things[i], columns=rest)

    def create_stream(
        self, me: Caller, name: str, columns: Sequence[str] | Target, label: Label | None, semantics: str
    ) -> None:
        self.need(me, "ADD")
        if isinstance(columns, Target):
            columns = self.things[self.find(me.session, columns)].columns
        refuse_if(len(set(columns)) < len(columns), "Conflict")
        if label:
            self.known(label.level)
        text = label.text if label else "TRUE"
        self._add(me, Thing("STREAM", me.user, me.session.level, name, tuple(columns), text, semantics))

    def label_stream(self, me: Caller, target: Target, label: Label) -> None:
        i = self.find(me.session, target)
        self.need_owner(me, self.things[i])
        self.known(label.level)
        self.things[i] = replace(self.things[i], label=label.text)

    def set_semantics(self, me: Caller, target: Target, semantics: str) -> None:
        i = self.find(me.session, target)
        self.need_owner(me, self.things[i])
        self.things[i] = replace(self.things[i], semantics=semantics)

    def create_query(
        self, me: Caller, name: str, inputs: Sequence[Target], operators: Sequence[tuple[str, Limits]], output: str
    ) -> None:
        self.need(me, "ADD")
        found = []
        for target in inputs:
            found.append(self.find(me.session, target))
            refuse_if(not self.readable(me.session, found[-1]), "AccessDenied")
        for operator, parameters in operators:
            self.need(me, "USE", self.find(me.session, Target("OPERATOR", operator)), parameters)
        level = me.session.level
        filled = self._add(me, Thing("STREAM", me.user, level, output))
        query = Thing("QUERY", me.user, level, name, inputs=tuple(found), operators=tuple(operators), output=filled)
        self._add(me, replace(query, roles=self.active(me.session)))

    def readable(self, who: Session, stream: int) -> bool:
        return self.allowed(who, "VIEW OBJECT", stream) and any(
            self.allowed(who, right, stream) for right in ("READ TUPLE", "AGGREGATE READ")
        )

    def set_status(self, me: Caller, target: Target, running: bool) -> None:
        i = self.find(me.session, target)
        self.need(me, "SET QUERY STATUS", i)
        query = self.things[i]
        if running and not query.running:
            self._check_start(me.session.level, query)
        self.things[i] = replace(query, running=running)

    def _check_start(self, level: Level, query: Thing) -> None:
        """The owner may run one more, and with what is left of the roles the query was created with, run this one."""
        refuse_if(query.broken, "Conflict")
        owner = Session(query.owner, query.roles, query.level, 0, 0)
        for i in query.inputs:
            refuse_if(not self.readable(owner, i), "AccessDenied")
        for name, parameters in query.operators:
            operator = self.find(owner, Target("OPERATOR", name))
            refuse_if(not self.allowed(owner, "USE", operator, parameters), "AccessDenied")
        running = [t for t in self.things.values() if t.owner == query.owner and t.running]
        seen = [t for t in running if self.dominates(level, t.level)]
        roles = self.authorised(query.owner)
        limits = [limit for role in roles if (limit := self.roles[role].max_queries) is not None]
        refuse_if(bool(limits) and len(seen) >= max(limits), "AccessDenied")

    def drop_object(self, me: Caller, target: Target) -> None:
        """A query's output goes with the query and not before."""
        i = self.find(me.session, target)
        self.need_owner(me, self.things[i])
        refuse_if(any(thing.output == i for thing in self.things.values()), "Conflict")
        self._drop(i)

    def _drop(self, i: int) -> None:
        """With its grants and, for a query, its output; queries that read it stop for good."""
        dropped = self.things.pop(i, None)
        self.grants = {key: limits for key, limits in self.grants.items() if key[0] != i}
        for j, thing in self.things.items():
            if i in thing.inputs:
                rest = tuple(k for k in thing.inputs if k != i)
                self.things[j] = replace(thing, inputs=rest, running=False, broken=True)
        if dropped and dropped.kind == "QUERY":
            self._drop(dropped.output)

    # Rights ---------------------------------------------------------------------------------------------------------

    def _governed(self, me: Caller, permissions: Sequence[str], target: Target, roles: Sequence[str]) -> int:
        i = self.find(me.session, target)
        self.need(me, "CHANGE PERM", i if self.things[i].owner else SYSTEM)
        for role in roles:
            self.find_role(role)
        refuse_if(not {*permissions} <= {*APPLIES[target.kind]}, "Conflict")
        return i

    def grant(
        self, me: Caller, permissions: Sequence[str], target: Target, roles: Sequence[str], limits: Limits
    ) -> None:
        i = self._governed(me, permissions, target, roles)
        known = OPERATORS[target.name] if target.kind == "OPERATOR" else {}
        for name, limit in limits.items():
            refuse_if(known.get(name) != ("strings" if isinstance(limit, tuple) else "number"), "Conflict")
        self.grants.update({(i, permission, role): limits for role in roles for permission in permissions})

    def revoke(self, me: Caller, permissions: Sequence[str], target: Target, roles: Sequence[str]) -> None:
        i = self._governed(me, permissions, target, roles)
        for role in once(roles):
            for permission in once(permissions):
                refuse_if((i, permission, role) not in self.grants, "Conflict")
                del self.grants[i, permission, role]

    def show_catalog(self, me: Caller) -> None:
        self.need(me, "VIEW CATALOG")
