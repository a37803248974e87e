"""What a program must obey before it runs; every refusal has its position.

Honesty is checked on the rules as they are written (paper 003, Definition 3), everything else on the core rules:
arities, functions, safety (every variable gets a value), events, lifetimes, and in `recursion.py` the order of rules.
"""

from __future__ import annotations

from headgate.lexing import fail
from headgate.sendlog.core import Core, CoreRule, Lit
from headgate.sendlog.desugar import core
from headgate.sendlog.functions import FUNCTIONS
from headgate.sendlog.parser import parse
from headgate.sendlog.recursion import check_recursion
from headgate.sendlog.syntax import Atom, Call, Compare, Const, Program, Rule, Term, Var, variables


def load(text: str) -> Core:
    """Parse, desugar, check: the one way from a text to a program that may run."""
    program = parse(text)
    made = core(program)
    check_honesty(program)
    _check_arities(made)
    for rule in (*made.rules, *made.facts):
        _check_rule(made, rule)
    _check_tables(made)
    check_recursion(made)
    return made


def check_honesty(program: Program) -> None:
    """A head `X says p` needs X to be the context's principal, or `X says p` in the body."""
    carries = {(carry.name, carry.of) for carry in program.carries}
    for rule in program.rules:
        head = rule.head.atom
        if head.delegated:
            raise fail(program.text, head.at, "`by delegation` stands in bodies only")
        if head.speaker is None or head.speaker == rule.context.principal:
            continue
        if not any(_proves(literal, head, carries) for literal in _said(rule)):
            speaker = _shown(head.speaker)
            hint = f"`{speaker} says {head.name}(...)` with the same arguments must stand in the body"
            raise fail(program.text, head.at, f"rule `{rule.label}` is dishonest: it lets `{speaker}` speak", hint=hint)


def _said(rule: Rule) -> list[Atom]:
    found = (*rule.context.conditions, *rule.body)
    return [x for x in found if isinstance(x, Atom) and x.speaker is not None and not x.delegated]


def _proves(said: Atom, head: Atom, carries: set[tuple[str, str]]) -> bool:
    same = said.name == head.name or (head.name, said.name) in carries
    return same and said.speaker == head.speaker and said.args == head.args


def _shown(term: Term) -> str:
    return term.name if isinstance(term, Var) else str(term.value) if isinstance(term, Const) else term.function


def _check_arities(made: Core) -> None:
    arities: dict[str, int] = {}
    for rule in (*made.rules, *made.facts):
        uses = [(rule.rel, len(rule.args), rule.at), *((x.rel, len(x.args), x.at) for x in rule.atoms())]
        for rel, width, at in uses:
            arity = width - {"out": 2, "said": 1}.get(rel.kind, 0)
            if arities.setdefault(rel.name, arity) != arity:
                message = f"`{rel.name}` has {arity} arguments here and {arities[rel.name]} elsewhere"
                raise fail(made.text, at, message)
    for name, of in ((name, of) for name, sources in made.carries.items() for of in sources):
        if name in arities and of in arities and arities[name] != arities[of]:
            raise fail(made.text, 0, f"`{name}` cannot carry `{of}`: they differ in the number of arguments")


def _check_rule(made: Core, rule: CoreRule) -> None:
    for step in rule.body:
        if isinstance(step, Compare):
            for term in (step.left, step.right):
                _check_functions(made, term)
    bound = bound_variables(rule)
    for step in rule.body:
        used = step.args if isinstance(step, Lit) else (step.left, step.right)
        for variable in (v for term in used for v in variables(term)):
            anonymous = variable.name.startswith("_.") and isinstance(step, Lit)
            if variable.name not in bound and not (anonymous and isinstance(step, Lit) and step.negated):
                raise fail(made.text, variable.at or rule.at, _unsafe(rule, variable))
    over = rule.aggregate.over if rule.aggregate else ()
    counted = [v for v in over if v.name.startswith("_.")]
    for variable in (v for term in (*rule.args, *over) for v in variables(term)):
        if variable.name not in bound and variable not in counted:
            raise fail(made.text, variable.at or rule.at, _unsafe(rule, variable))
    if made.tables and made.triggered(rule):
        _check_trigger(made, rule)


def _unsafe(rule: CoreRule, variable: Var) -> str:
    name = "_" if variable.name.startswith("_.") else variable.name
    if variable.name.startswith("_+"):
        return f"rule `{rule.label}` is unsafe: this has no value"
    what = "facts have no variables" if not rule.body else "no predicate of the body gives it a value"
    return f"rule `{rule.label}` is unsafe: `{name}` has no value, for {what}"


def bound_variables(rule: CoreRule) -> set[str]:
    """The variables that get a value: from positive atoms, and from assignments whose right side has one."""
    bound = {rule.self_name}
    for atom in rule.atoms():
        if not atom.negated:
            bound |= {arg.name for arg in atom.args if isinstance(arg, Var)}
    assignments = [step for step in rule.body if isinstance(step, Compare) and step.op == "="]
    while True:
        new = set()
        for step in assignments:
            for target, source in ((step.left, step.right), (step.right, step.left)):
                known = all(v.name in bound for v in variables(source))
                if isinstance(target, Var) and target.name not in bound and known:
                    new.add(target.name)
        if not new:
            return bound
        bound |= new


def _check_functions(made: Core, term: Term) -> None:
    if not isinstance(term, Call):
        return
    if term.function.startswith("table ") or term.function == "@":
        raise fail(made.text, term.at, "a table is looked up with `X = table(...)`, alone")
    known = FUNCTIONS.get(term.function)
    if known is None:
        raise fail(made.text, term.at, f"there is no function `{term.function}`")
    if known.arity not in (-1, len(term.args)):
        raise fail(made.text, term.at, f"`{term.function}` takes {known.arity} arguments, not {len(term.args)}")
    for arg in term.args:
        _check_functions(made, arg)


def _check_trigger(made: Core, rule: CoreRule) -> None:
    events = [x for x in rule.atoms() if made.is_event(x.rel.name) and not x.negated]
    if len(events) > 1:
        hint = "events do not wait for each other; store one of them"
        raise fail(made.text, events[1].at, f"rule `{rule.label}` joins two events", hint=hint)


def _check_tables(made: Core) -> None:
    arities = {r.rel.name: len(r.args) - {"out": 2, "said": 1}.get(r.rel.kind, 0) for r in (*made.rules, *made.facts)}
    arities |= {
        x.rel.name: len(x.args) - {"out": 2, "said": 1}.get(x.rel.kind, 0) for r in made.rules for x in r.atoms()
    }
    derived = {r.rel.name for r in made.rules if r.rel.kind == "local" and not made.triggered(r)}
    for table in made.tables.values():
        if table.name not in arities:
            raise fail(made.text, table.at, f"there is no predicate `{table.name}`")
        if any(not 1 <= key <= arities[table.name] for key in table.keys):
            raise fail(made.text, table.at, f"a key of `{table.name}` is from 1 to {arities[table.name]}")
        if table.name in derived:
            hint = "its tuples live as long as what they are derived from; give that a lifetime"
            what = "a lifetime" if table.lifetime is not None else "keys"
            raise fail(made.text, table.at, f"`{table.name}` cannot have {what}: rules derive it", hint=hint)
