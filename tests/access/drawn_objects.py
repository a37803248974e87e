"""Statements of owners, drawn: about schemas, streams, queries and the rights to them."""

from __future__ import annotations

from collections.abc import Sequence

from .drawing import COLUMNS, KINDS, LABELS, LIMITED, NAMES, SEMANTICS, Words, limits_text
from .model import Action
from .model_values import APPLIES, OPERATORS, SYSTEM, Label, Target


class Ownership(Words):
    """Each with what the model does for it."""

    # Schemas, streams, queries --------------------------------------------------------------------------------------

    def create_schema(self) -> tuple[str, Action]:
        name, columns = self.pick.one(NAMES), self.columns()
        return f"CREATE SCHEMA {name} ({_typed(columns)})", lambda m, me: m.create_schema(me, name, columns)

    def alter_schema(self) -> tuple[str, Action]:
        target, column = self.an_object("SCHEMA"), self.pick.one(COLUMNS)
        if self.pick.chance(60):
            return f"ALTER SCHEMA {target} ADD COLUMN {column} INT", lambda m, me: m.add_column(me, target, column)
        return f"ALTER SCHEMA {target} DROP COLUMN {column}", lambda m, me: m.drop_column(me, target, column)

    def create_stream(self) -> tuple[str, Action]:
        name, semantics = self.pick.one(NAMES), self.pick.one(SEMANTICS)
        label = self.pick.one(LABELS) if self.pick.chance(30) else None
        columns = self.an_object("SCHEMA") if self.pick.chance(30) else self.columns()
        shape = f"SCHEMA {columns}" if isinstance(columns, Target) else f"({_typed(columns)})"
        shape += f" LABEL '{label.text}'" if label else ""
        text = f"CREATE STREAM {name} {shape} SEMANTICS {semantics}"
        return text, lambda m, me: m.create_stream(me, name, columns, label, semantics)

    def alter_stream(self) -> tuple[str, Action]:
        target, label, semantics = self.an_object("STREAM"), self.pick.one(LABELS), self.pick.one(SEMANTICS)
        if self.pick.chance(50):
            return f"ALTER STREAM {target} LABEL '{label.text}'", lambda m, me: m.label_stream(me, target, label)
        if self.pick.chance(30):
            return f"ALTER STREAM {target} DROP LABEL", lambda m, me: m.label_stream(me, target, Label("TRUE"))
        return f"ALTER STREAM {target} SEMANTICS {semantics}", lambda m, me: m.set_semantics(me, target, semantics)

    def create_query(self) -> tuple[str, Action]:
        name, output = self.pick.one(NAMES), self.pick.one((*NAMES, "out1", "out2"))
        inputs = self.pick.some(lambda: self.an_object("STREAM"))
        used = self.pick.some(lambda: self.pick.name(LIMITED, list(OPERATORS))) if self.pick.chance(70) else []
        operators = [(operator, self.limits(operator)) for operator in used]
        using = f" USING {', '.join(f'{o} {limits_text(limits)}' for o, limits in operators)}" if operators else ""
        text = f"CREATE QUERY {name} READING {', '.join(map(str, inputs))}{using} OUTPUT {output}"
        return text, lambda m, me: m.create_query(me, name, inputs, operators, output)

    def start_query(self) -> tuple[str, Action]:
        target = self.an_object("QUERY")
        return f"START QUERY {target}", lambda m, me: m.set_status(me, target, running=True)

    def stop_query(self) -> tuple[str, Action]:
        target = self.an_object("QUERY")
        return f"STOP QUERY {target}", lambda m, me: m.set_status(me, target, running=False)

    def drop_object(self) -> tuple[str, Action]:
        target = self.an_object(*KINDS)
        read = sorted({i for thing in self.model.things.values() for i in thing.inputs})
        if read and self.pick.chance(40):  # what a query reads
            thing = self.model.things[self.pick.one(read)]
            target = Target(thing.kind, thing.name, thing.owner)
        return f"DROP {target.kind} {target}", lambda m, me: m.drop_object(me, target)

    # Rights ---------------------------------------------------------------------------------------------------------

    def _rights(self) -> tuple[list[str], Target, list[str]]:
        target = Target("SYSTEM", "SYSTEM") if self.pick.chance(20) else self.an_object(*KINDS)
        kind = target.kind if self.pick.chance(95) else self.pick.one(sorted(APPLIES))
        return self.pick.some(lambda: self.pick.one(APPLIES[kind])), target, self.pick.some(self.a_role)

    def grant(self) -> tuple[str, Action]:
        permissions, target, roles = self._rights()
        text = f"GRANT {', '.join(permissions)} ON {_target(target)} TO {', '.join(roles)}"
        return text, lambda m, me: m.grant(me, permissions, target, roles, {})

    def revoke(self) -> tuple[str, Action]:
        permissions, target, roles = self._rights()
        held = sorted(key for key in self.model.grants if self.model.things[key[0]].kind != "OPERATOR")
        if held and self.pick.chance(80):
            i, permission, role = self.pick.one(held)
            thing = self.model.things[i]
            permissions, target, roles = [permission], Target(thing.kind, thing.name, thing.owner or None), [role]
        text = f"REVOKE {', '.join(permissions)} ON {_target(target)} FROM {', '.join(roles)}"
        return text, lambda m, me: m.revoke(me, permissions, target, roles)

    def grant_operator(self) -> tuple[str, Action]:
        target, roles = Target("OPERATOR", self.pick.name(LIMITED, list(OPERATORS))), self.pick.some(self.a_role)
        limits = self.limits(target.name)
        text = f"GRANT USE ON OPERATOR {target} TO {', '.join(roles)}"
        text += f" WITH {limits_text(limits)}" if limits else ""
        return text, lambda m, me: m.grant(me, ["USE"], target, roles, limits)

    def revoke_operator(self) -> tuple[str, Action]:
        held = sorted(
            (self.model.things[i].name, role) for i, right, role in self.model.grants if right == "USE" and i != SYSTEM
        )
        name, role = self.pick.one(held) if held and self.pick.chance(80) else ("join", self.a_role())
        target = Target("OPERATOR", name)
        text = f"REVOKE USE ON OPERATOR {name} FROM {role}"
        return text, lambda m, me: m.revoke(me, ["USE"], target, [role])


def _typed(columns: Sequence[str]) -> str:
    return ", ".join(f"{column} INT" for column in columns)


def _target(target: Target) -> str:
    return "SYSTEM" if target.kind == "SYSTEM" else f"{target.kind} {target}"
