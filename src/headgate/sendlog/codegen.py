"""Strands become Python loops.

The generated text contains only names made here: constants and functions are handed over as values, so no text of a
program's ever becomes code. A function appends what it derives to a list: rows, or for provenance triples of the row,
the rule
and the body's rows. What a function of the language cannot compute is counted, and derives nothing.

Charged code pays for every row that a join looks at and for the size of every value that a function reads or makes: for
programs that others wrote, a join that finds nothing may take as long as one that derives much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from headgate.sendlog.core import Arg, Lit, Rel
from headgate.sendlog.functions import FAILURES, FUNCTIONS
from headgate.sendlog.plan import Assign, Join, Operator, Select, Strand
from headgate.sendlog.syntax import Call, Const, Term, Var
from headgate.sendlog.tables import Table
from headgate.sendlog.values import Row, Value

Loop = Callable[[Row | None, list[Any]], None]
_OPERATIONS = {"==": "==", "!=": "!=", "=": "==", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


@dataclass
class Generated:
    """A strand's code, and what its names stand for: tables and indexes are put in for each engine."""

    code: CodeType
    constants: Mapping[str, Any]
    rows: Mapping[str, Rel]
    indexes: Mapping[str, tuple[Rel, tuple[int, ...]]]
    functions: Mapping[str, Callable[..., Value]]
    source: str = field(repr=False)
    charged: bool = False

    def bind(
        self,
        principal: str,
        tables: Mapping[Rel, Table],
        failed: Callable[[], None],
        charge: Callable[[int], None],
    ) -> Loop:
        names: dict[str, Any] = {"SELF": principal, "FAILURES": FAILURES, "failed": failed, "ONE": (0,), "NONE": ()}
        names |= self.constants
        names["charge"] = charge
        names |= {name: _paid(f, charge) if self.charged else f for name, f in self.functions.items()}
        names |= {name: tables[rel].rows for name, rel in self.rows.items()}
        names |= {name: tables[rel].index(columns) for name, (rel, columns) in self.indexes.items()}
        exec(self.code, names)  # noqa: S102 - the text is generated here, from a checked program
        loop: Loop = names["loop"]
        return loop


def _paid(function: Callable[..., Value], charge: Callable[[int], None]) -> Callable[..., Value]:
    """The function, charged by the size of its arguments before and of its value after."""

    def paid(*args: Value) -> Value:
        charge(sum(map(_size, args)))
        value = function(*args)
        charge(_size(value))
        return value

    return paid


def _size(value: Value) -> int:
    if isinstance(value, str):
        return len(value) // 64
    return 1 + sum(map(_size, value)) if isinstance(value, tuple) else 0


def generate(strand: Strand, *, marking: bool = False, tracing: bool = False, charged: bool = False) -> Generated:
    """`marking` leaves negation out, to find all that may have depended on a change; `tracing` adds the body's rows;
    `charged` code pays for what it looks at."""
    return _Writer(strand, marking, tracing, charged).write()


class _Writer:
    def __init__(self, strand: Strand, marking: bool, tracing: bool, charged: bool) -> None:
        self.strand, self.marking, self.tracing, self.charged = strand, marking, tracing, charged
        self.lines: list[str] = ["def loop(row, out):", "  for _ in ONE:"]
        self.depth = 2
        self.names: dict[str, str] = {strand.rule.self_name: "SELF"}
        self.constants: dict[str, Any] = {}
        self.functions: dict[str, Callable[..., Value]] = {}
        self.rows: dict[str, Rel] = {}
        self.indexes: dict[str, tuple[Rel, tuple[int, ...]]] = {}
        self.used: dict[int, str] = {}

    def write(self) -> Generated:
        changed = self.strand.changed
        if changed is not None:
            self._take(changed.args, "row", (), skip_anonymous=changed.negated)
            if not changed.negated:
                self.used[id(changed)] = "row"
        elif self.strand.from_head:
            self._take(self.strand.rule.args, "row", ())
        for operator in self.strand.operators:
            self._operator(operator)
        self._emit()
        source = "\n".join(self.lines) + "\n"
        code = compile(source, "<sendlog strand>", "exec")
        return Generated(code, self.constants, self.rows, self.indexes, self.functions, source, self.charged)

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def _operator(self, operator: Operator) -> None:
        match operator:
            case Join(lit=lit, columns=columns, absent=False):
                self._join(lit, columns)
            case Join(lit=lit, columns=columns):
                if not self.marking:
                    self._line(f"if {self._found(lit, columns)}: continue")
            case Assign(variable=variable, term=term):
                name = self._fresh(variable)
                self._guarded(f"{name} = {self._term(term)}", simple=not isinstance(term, Call))
            case Select(compare=compare):
                left, right = self._term(compare.left), self._term(compare.right)
                op = _OPERATIONS[compare.op]
                calls = isinstance(compare.left, Call) or isinstance(compare.right, Call)
                if op in ("==", "!=") and not calls:
                    self._line(f"if not ({left} {op} {right}): continue")
                else:
                    self._guarded(f"if not ({left} {op} {right}): continue", simple=False)

    def _guarded(self, text: str, *, simple: bool) -> None:
        if simple:
            self._line(text)
            return
        self._line("try:")
        self._line(f"  {text}")
        self._line("except FAILURES:")
        self._line("  failed(); continue")

    def _join(self, lit: Lit, columns: tuple[int, ...]) -> None:
        if len(columns) == len(lit.args):
            self._line(f"{self._row_of(lit)} = {self._tuple(lit.args)}")
            self._line(f"if {self.used[id(lit)]} not in {self._rows(lit.rel)}: continue")
            return
        name = self._row_of(lit)
        if columns:
            index = self._index(lit.rel, columns)
            self._line(f"for {name} in {index}.get({self._key(lit, columns)}, NONE):")
        else:
            self._line(f"for {name} in {self._rows(lit.rel)}:")
        self.depth += 1
        if self.charged:
            self._line("charge(1)")
        self._take(lit.args, name, columns)

    def _row_of(self, lit: Lit) -> str:
        self.used[id(lit)] = f"t{len(self.used)}"
        return self.used[id(lit)]

    def _take(
        self,
        args: tuple[Arg, ...],
        row: str,
        known: tuple[int, ...],
        *,
        skip_anonymous: bool = False,
    ) -> None:
        for i, arg in enumerate(args):
            if i in known:
                continue
            if isinstance(arg, Const):
                self._line(f"if {row}[{i}] != {self._constant(arg.value)}: continue")
            elif skip_anonymous and arg.name.startswith("_."):
                continue
            elif arg.name in self.names:
                self._line(f"if {row}[{i}] != {self.names[arg.name]}: continue")
            else:
                self._line(f"{self._fresh(arg.name)} = {row}[{i}]")

    def _found(self, lit: Lit, columns: tuple[int, ...]) -> str:
        if len(columns) == len(lit.args):
            return f"{self._tuple(lit.args)} in {self._rows(lit.rel)}"
        if not columns:
            return self._rows(lit.rel)
        return f"{self._key(lit, columns)} in {self._index(lit.rel, columns)}"

    def _emit(self) -> None:
        rule = self.strand.rule
        made = self._tuple(rule.args)
        if self.tracing:
            atoms = [atom for atom in rule.atoms() if not atom.negated]
            body = "".join(f"({self._constant(atom.rel)}, {self.used[id(atom)]}), " for atom in atoms)
            made = f"({made}, {self._constant(rule.label)}, ({body}))"
        self._line(f"out.append({made})")

    def _fresh(self, variable: str) -> str:
        self.names[variable] = f"v{len(self.names)}"
        return self.names[variable]

    def _constant(self, value: Value | Rel) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _rows(self, rel: Rel) -> str:
        name = next((n for n, known in self.rows.items() if known == rel), f"r{len(self.rows)}")
        self.rows[name] = rel
        return name

    def _index(self, rel: Rel, columns: tuple[int, ...]) -> str:
        name = f"i{len(self.indexes)}"
        self.indexes[name] = (rel, columns)
        return name

    def _key(self, lit: Lit, columns: tuple[int, ...]) -> str:
        if len(columns) == 1:
            return self._term(lit.args[columns[0]])
        return self._tuple(tuple([lit.args[i] for i in columns]))

    def _tuple(self, args: tuple[Arg, ...]) -> str:
        return "(" + "".join(f"{self._term(arg)}, " for arg in args) + ")"

    def _term(self, term: Term) -> str:
        match term:
            case Var(name=name):
                return self.names[name]
            case Const(value=value):
                return self._constant(value)
            case Call(function=function, args=args):
                name = f"f{len(self.functions)}"
                self.functions[name] = FUNCTIONS[function].python
                return f"{name}({', '.join(map(self._term, args))})"
