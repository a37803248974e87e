"""Programs become core rules: everything that is only a way of writing ends here.

Conditions of contexts join the bodies; `k of` becomes k speakers in order; `by delegation` becomes a relation of its
own with its rules; `S = secret(A, B)` becomes an atom; terms inside atoms become assignments; NDlog's rules over two
places become rules of one place each and a message between them (paper 003, sections 2.2, 3.1 and 3.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headgate.lexing import fail
from headgate.sendlog.core import Arg, Core, CoreRule, Lit, Rel, Step
from headgate.sendlog.ndlog import localised
from headgate.sendlog.syntax import (
    AtLeast,
    Atom,
    Call,
    Compare,
    Const,
    Context,
    Literal,
    Negated,
    Program,
    Rule,
    Term,
    Var,
)

MAX_OF = 8
DELEGATES, REVOKES, SPEAKS_FOR = "delegates", "revokes", "speaksfor"
_FURTHEST = 64


def core(program: Program) -> Core:
    """The program as it runs; not yet checked."""
    return _Desugaring(program).run()


class _Desugaring:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.rules: list[CoreRule] = []
        self.facts: list[CoreRule] = []
        self._fresh = 0
        self._delegations: set[tuple[Context, str, int, int | None]] = set()

    def run(self) -> Core:
        for rule in self.program.rules:
            for one in localised(rule, self.program.text):
                self._rule(one)
        carries: dict[str, frozenset[str]] = {}
        for carry in self.program.carries:
            carries[carry.name] = carries.get(carry.name, frozenset()) | {carry.of}
        tables = {table.name: table for table in self.program.tables}
        return Core(self.program.text, tuple(self.rules), tuple(self.facts), tables, carries)

    def _rule(self, rule: Rule) -> None:
        steps: list[Step] = []
        for literal in (*rule.context.conditions, *rule.body):
            steps += self._literal(literal, rule.context)
        head = rule.head
        args = [self._flat(arg, steps) for arg in head.atom.args]
        rel = Rel(head.atom.name)
        if head.to is not None:
            speaker = self._flat(head.atom.speaker or rule.context.principal, steps)
            args = [self._flat(head.to, steps), speaker, *args]
            rel = Rel(head.atom.name, "out", head.atom.level)
        owner, self_name = _owner(rule.context)
        aggregate = head.aggregate
        if aggregate is not None and head.to is not None:
            aggregate = replace(aggregate, column=aggregate.column + 2)
        made = CoreRule(rule.label, owner, self_name, rel, tuple(args), tuple(steps), aggregate, rule.at)
        (self.rules if rule.body or rule.context.conditions else self.facts).append(made)

    def _literal(self, literal: Literal, context: Context) -> Iterator[Step]:
        before: list[Step] = []
        match literal:
            case Compare(left=left, right=Call(function=function, args=args)) if function.startswith("table "):
                yield from self._literal(Atom(function[len("table ") :], (*args, left), literal.at), context)
            case Compare():
                yield literal
            case AtLeast():
                yield from self._at_least(literal, context)
            case Negated(atom=atom):
                found = replace(self._atom(atom, context, before), negated=True)
                yield from (*before, found)
            case Atom():
                found = self._atom(literal, context, before)
                yield from (found, *before)

    def _atom(self, atom: Atom, context: Context, before: list[Step]) -> Lit:
        if atom.speaker is None:
            return Lit(Rel(atom.name), tuple([self._flat(arg, before) for arg in atom.args]), at=atom.at)
        rel = Rel(atom.name, "said", atom.level)
        if atom.delegated:
            rel = self._delegated(atom, context)
        args = tuple([self._flat(arg, before) for arg in (atom.speaker, *atom.args)])
        return Lit(rel, args, at=atom.at)

    def _flat(self, term: Term, steps: list[Step]) -> Arg:
        """A term inside an atom; what has to be computed is assigned beside it."""
        if not isinstance(term, Call):
            return term
        variable = self._variable(term.at)
        steps.append(Compare("=", variable, term, term.at))
        return variable

    def _variable(self, at: int = 0) -> Var:
        self._fresh += 1
        return Var(f"_+{self._fresh}", at)

    def _at_least(self, literal: AtLeast, context: Context) -> Iterator[Step]:
        """k speakers in ascending order, so that nobody counts twice; each derivation names exactly k of them."""
        if not 1 <= literal.count <= MAX_OF:
            raise fail(self.program.text, literal.at, f"`of` counts from 1 to {MAX_OF} principals")
        speakers = [self._variable(literal.at) for _ in range(literal.count)]
        for place, speaker in enumerate(speakers):
            if isinstance(literal.group, str):
                yield Lit(Rel(literal.group), (speaker,), at=literal.at)
                yield from self._literal(replace(literal.atom, speaker=speaker), context)
            else:
                yield from self._literal(replace(literal.atom, speaker=speaker), context)
                member = Call("f_member", (Call("[]", literal.group, literal.at), speaker), literal.at)
                yield Compare("==", member, Const(1), literal.at)
            if place:
                yield Compare("<", speakers[place - 1], speaker, literal.at)

    def _delegated(self, atom: Atom, context: Context) -> Rel:
        """The relation of what a principal said itself or through those it let speak for it."""
        name, arity, level = atom.name, len(atom.args), atom.level
        suffix = "" if level is None else f"_{level}"
        rel, speaks = Rel(f"{name}$said{suffix}"), Rel(f"{name}$speaks{suffix}")
        if (context, name, arity, level) in self._delegations:
            return rel
        self._delegations.add((context, name, arity, level))
        said, delegates = Rel(name, "said", level), Rel(DELEGATES, "said", level)
        revokes, speaks_for = Rel(REVOKES, "said", level), Rel(SPEAKS_FOR, "said", level)
        a, b, c, d, e, f = (Var(x) for x in "ABCDEF")
        values = tuple([Var(f"V{i}") for i in range(arity)])
        about, zero = Const(name), Const(0)
        further = Compare("=", f, Call("f_least", (Call("-", (d, Const(1))), e)))
        left = Compare(">", d, zero)
        self._helper(context, rel, (a, *values), [Lit(said, (a, *values), at=atom.at)])
        self._helper(context, rel, (a, *values), [Lit(speaks, (a, b, d)), Lit(said, (b, *values), at=atom.at)])
        for source, bounds, revoked in (
            (delegates, Lit(delegates, (a, about, b, d), at=atom.at), about),
            (speaks_for, Lit(speaks_for, (a, b), at=atom.at), Const("all")),
        ):
            unbounded = [] if source is delegates else [Compare("=", d, Const(_FURTHEST))]
            not_revoked = Lit(revokes, (a, revoked, b), negated=True, at=atom.at)
            enough = [Compare(">=", d, zero)] if source is delegates else []
            self._helper(context, speaks, (a, b, d), [bounds, *unbounded, *enough, not_revoked])
            on = Lit(source, (b, about, c, e) if source is delegates else (b, c), at=atom.at)
            unbounded = [] if source is delegates else [Compare("=", e, Const(_FURTHEST))]
            not_revoked = Lit(revokes, (b, revoked, c), negated=True, at=atom.at)
            enough = [Compare(">=", e, zero)] if source is delegates else []
            chain: list[Step] = [Lit(speaks, (a, b, d)), left, on, *unbounded, *enough, not_revoked, further]
            self._helper(context, speaks, (a, c, f), chain)
        return rel

    def _helper(self, context: Context, rel: Rel, args: tuple[Var, ...], body: list[Step]) -> None:
        owner, self_name = _owner(context)
        self.rules.append(CoreRule(f"{rel.name}{len(self.rules)}", owner, f"${self_name}", rel, args, tuple(body)))


def _owner(context: Context) -> tuple[str | None, str]:
    """The constant principal of a context, or None, and the name that stands for it."""
    if isinstance(context.principal, Const):
        return str(context.principal.value), "$self"
    return None, context.principal.name if isinstance(context.principal, Var) else "$self"
