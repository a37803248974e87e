"""Text to program: the grammar of docs/sendlog.md, one function per production (those of terms are in `terms`).

Every refusal is a TextError with its position. The tokens are SeNDlog's own; reading them is the common Cursor's.
"""

from __future__ import annotations

from typing import cast

from headgate.errors import TextError
from headgate.lexing import fail
from headgate.sendlog.syntax import (
    Aggregate,
    AggregateName,
    AtLeast,
    Atom,
    Call,
    Carry,
    Compare,
    Const,
    Context,
    Head,
    Literal,
    Negated,
    Program,
    Rule,
    Table,
    Term,
    Var,
)
from headgate.sendlog.terms import RESERVED, SAYS, TermReader
from headgate.sendlog.values import Value

MAX_PROGRAM = 1_000_000
ANYWHERE = Context(Var("Self_"))
"""Rules outside every `At` belong to whoever runs them (Binder, paper 003 section 2.1)."""

_COMPARISONS = ("==", "!=", "<=", ">=", "=", "<", ">")
_AGGREGATES = ("min", "max", "count", "sum")


def parse(text: str) -> Program:
    """The program that a text is."""
    if len(text) > MAX_PROGRAM:
        raise fail(text, MAX_PROGRAM, f"a program has at most {MAX_PROGRAM:,} characters")
    return _Parser(text).program()


def parse_fact(text: str) -> tuple[str, tuple[Value, ...]]:
    """`link(a, b)`: one fact, for a command line."""
    reader = _Parser(text)
    atom = reader.atom()
    reader.take_symbol(".")
    if not reader.ended:
        raise reader.expected("the end of the fact")
    if not all(isinstance(arg, Const) for arg in atom.args):
        raise fail(text, atom.at, f"`{atom.name}` is no fact: its arguments are not all constants")
    return atom.name, tuple([arg.value for arg in atom.args if isinstance(arg, Const)])


class _Parser(TermReader):
    # Programs

    def program(self) -> Program:
        rules: list[Rule] = []
        tables: list[Table] = []
        carries: list[Carry] = []
        context = ANYWHERE
        while not self.ended:
            if self.at_name("At"):
                context = self._context()
            elif self.at_name("materialize") and self.ahead(1, "("):
                tables.append(self._table())
            elif self.at_name("carry") and self.kind(1) == "name" and self.is_name(2, "of"):
                carries.append(self._carry())
            else:
                rules.append(self._rule(context, len(rules) + 1))
        return Program(self.text, tuple(rules), tuple(tables), tuple(carries))

    def _context(self) -> Context:
        self.next()
        principal = self.principal()
        if not (self.take_symbol(",") or self.take_symbol(":")) and not self._rule_begins():
            raise self.expected("`,` or `:` after the principal")
        conditions: list[Literal] = []
        while not (self._rule_begins() or self.ended or self.at_name("At")):
            conditions.append(self._literal())
            if not self.take_symbol(","):
                break
        return Context(principal, tuple(conditions))

    def _rule_begins(self) -> bool:
        """Whether a rule stands here and not one more condition: a label, or a head that `:-`, `.` or `@` follows."""
        if self._labelled() or self.at_name("materialize") or self.at_name("carry"):
            return True
        start = self.index
        try:
            self._head()
            return self.at_symbol(":-") or self.at_symbol(".")
        except TextError:
            return False
        finally:
            self.index = start

    def _labelled(self) -> bool:
        """`r1 p(`, `r1 p :-`, `r1 X says`: two names, and what follows is no third but `says`."""
        if self.kind(0) != "name" or self.token.text in RESERVED or self.kind(1) not in ("name", "text"):
            return False
        if self.kind(1) == "text":
            return self.kind(2) == "name" and self.tokens[self.index + 2].text in SAYS
        if self.tokens[self.index + 1].text in RESERVED:
            return False
        return self.kind(2) != "name" or self.tokens[self.index + 2].text in SAYS

    def _rule(self, context: Context, number: int) -> Rule:
        at = self.token.offset
        label = self.next().text if self._labelled() else f"rule{number}"
        head = self._head()
        body: list[Literal] = []
        if self.take_symbol(":-"):
            body.append(self._literal())
            while self.take_symbol(","):
                body.append(self._literal())
        if not self.take_symbol("."):
            raise self.expected("`,`", "`.`") if body else self.expected("`:-`", "`.`")
        return Rule(label, head, tuple(body), context, at)

    def _table(self) -> Table:
        at = self.next().offset
        self.expect_symbol("(")
        name = self.name("a predicate")
        self.expect_symbol(",")
        lifetime: float | None = None
        if not self.take_name("infinity"):
            lifetime = float(self.expect_kind("number", "seconds or `infinity`").text)
        keys: list[int] = []
        if self.take_symbol(","):
            if not self.take_name("keys"):
                raise self.expected("`keys(...)`")
            self.expect_symbol("(")
            keys.append(self.whole("a column, counted from 1"))
            while self.take_symbol(","):
                keys.append(self.whole("a column, counted from 1"))
            self.expect_symbol(")")
        self.expect_symbol(")")
        self.expect_symbol(".")
        return Table(name, lifetime, tuple(keys), at)

    def _carry(self) -> Carry:
        at = self.next().offset
        name = self.name("a predicate")
        self.next()
        of = self.name("a predicate")
        self.expect_symbol(".")
        return Carry(name, of, at)

    # Heads and literals

    def _head(self) -> Head:
        speaker, level = self._speaker()
        at = self.token.offset
        name = self.name("a predicate")
        args: list[Term] = []
        aggregate: Aggregate | None = None
        if self.take_symbol("("):
            while not self.take_symbol(")"):
                if args:
                    self.expect_symbol(",")
                if self.token.kind == "name" and self.token.text in _AGGREGATES and self.ahead(1, "<"):
                    if aggregate is not None:
                        raise fail(self.text, self.token.offset, "a head has one aggregate")
                    aggregate = self._aggregate(len(args))
                    args.extend(aggregate.over if aggregate.name in ("min", "max") else aggregate.over[:1])
                else:
                    args.append(self._argument())
        to = self.principal() if self.take_symbol("@") else None
        return Head(Atom(name, tuple(args), at, speaker, level), to, aggregate)

    def _aggregate(self, column: int) -> Aggregate:
        token = self.next()
        self.next()
        over: list[Var] = []
        if token.text == "count" and self.take_symbol("*"):
            over.append(self.anonymous())
        while not over or self.take_symbol(","):
            found = self.primary()
            if not isinstance(found, Var):
                raise fail(self.text, found.at, "an aggregate is over variables", hint="assign the value first")
            over.append(found)
        self.expect_symbol(">")
        if token.text in ("count", "sum") and len(over) > 1:
            raise fail(self.text, token.offset, f"`{token.text}` is over one variable")
        return Aggregate(cast(AggregateName, token.text), tuple(over), column, token.offset)

    def _argument(self) -> Term:
        """`@S` is NDlog's place of a tuple (paper 003, section 2.2)."""
        if self.at_symbol("@"):
            at = self.next().offset
            return Call("@", (self.primary(),), at)
        return self.term()

    def _literal(self) -> Literal:
        start = self.token
        if self.take_name("not"):
            return Negated(self.atom())
        if start.kind == "number" and self.is_name(1, "of"):
            return self._at_least()
        if self._atom_begins():
            return self.atom()
        left = self.term()
        if self.token.kind == "symbol" and self.token.text in _COMPARISONS:
            op = self.next().text
            return Compare(op, left, self._right(), start.offset)
        if isinstance(left, Const) and isinstance(left.value, str) and start.kind == "name":
            return Atom(left.value, (), start.offset)
        raise self.expected("a comparison")

    def _right(self) -> Term:
        """What is compared with; `S = secret(A, B)` looks the last column of a table up."""
        if self.token.kind == "name" and self.ahead(1, "(") and not self.token.text.startswith("f_"):
            at = self.token.offset
            looked_up = self.atom()
            return Call(f"table {looked_up.name}", looked_up.args, at)
        return self.term()

    def _atom_begins(self) -> bool:
        token = self.token
        if token.kind == "name" and self.ahead(1, "(") and not token.text.startswith("f_"):
            return True
        return self.kind(1) == "name" and self.tokens[self.index + 1].text in SAYS

    def _at_least(self) -> AtLeast:
        at = self.token.offset
        count = self.whole("how many")
        self.next()
        group: tuple[Term, ...] | str
        if self.at_symbol("["):
            listed = self.primary()
            group = listed.args if isinstance(listed, Call) else cast(tuple[Term, ...], ())
            if isinstance(listed, Const) and isinstance(listed.value, tuple):
                group = tuple([Const(value, listed.at) for value in listed.value])
        else:
            group = self.name("a list of principals or a predicate")
        token = self.token
        if token.kind != "name" or token.text not in SAYS:
            raise self.expected("`says`")
        self.next()
        atom = self.atom()
        if atom.speaker is not None:
            raise fail(self.text, atom.at, "`says` stands once in a literal")
        return AtLeast(count, group, Atom(atom.name, atom.args, atom.at, None, SAYS[token.text], atom.delegated), at)

    def atom(self) -> Atom:
        speaker, level = self._speaker()
        at = self.token.offset
        name = self.name("a predicate")
        args: list[Term] = []
        if self.take_symbol("("):
            while not self.take_symbol(")"):
                if args:
                    self.expect_symbol(",")
                args.append(self._argument())
        delegated = speaker is not None and self.at_name("by") and self.is_name(1, "delegation")
        if delegated:
            self.index += 2
        return Atom(name, tuple(args), at, speaker, level, delegated)

    def _speaker(self) -> tuple[Term | None, int | None]:
        if self.kind(1) == "name" and self.tokens[self.index + 1].text in SAYS:
            speaker = self.principal()
            return speaker, SAYS[self.next().text]
        return None, None
