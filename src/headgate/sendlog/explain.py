"""Rule strands for people, as in Figures 1 and 2 of paper 003: one line for each operator of each delta rule.

What is printed is what the embedded engine generates its loops from, between the operators at the edges of the node.
"""

from __future__ import annotations

from headgate.sendlog.core import Core, CoreRule, Lit, Rel
from headgate.sendlog.plan import Assign, Join, Operator, Select, Strand, strands
from headgate.sendlog.syntax import Call, Compare, Const, Term, Var
from headgate.sendlog.values import shown

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_INFIX = {"+", "-", "*", "/", "%", "::"}


def explain(core: Core) -> str:
    """All strands of all rules, in the order of the program."""
    return "\n\n".join(block for rule in core.rules for block in _rule(core, rule))


def _rule(core: Core, rule: CoreRule) -> list[str]:
    made = [s for s in strands(rule) if s.changed is not None]
    if core.triggered(rule):
        made = [s for s in made if s.changed is not None and core.is_event(s.changed.rel.name)]
    return [_strand(core, s, _LETTERS[i % 26] if len(made) > 1 else "") for i, s in enumerate(made)]


def _strand(core: Core, strand: Strand, letter: str) -> str:
    rule, changed = strand.rule, strand.changed
    where = rule.owner or ("" if rule.self_name.startswith(("$", "Self_")) else rule.self_name)
    lines = [f"strand {rule.label}{letter}" + (f"@{where}" if where else "")]
    if changed is not None:
        lines += _source(core, changed)
    lines += [_operator(operator) for operator in strand.operators]
    if rule.aggregate is not None:
        over = ", ".join(v.name for v in rule.aggregate.over if not v.name.startswith("_.")) or "*"
        lines.append(f"Aggregate {rule.aggregate.name}<{over}>")
    lines += _sink(core, rule)
    return "\n".join([lines[0], *(f"  {line}" for line in lines[1:])])


def _source(core: Core, changed: Lit) -> list[str]:
    lines = []
    if changed.rel.kind == "said":
        level = "the node's level" if changed.rel.level is None else f"level {changed.rel.level}"
        lines += ["Network-In", f"SigChecker {level}"]
    kind = "Event" if core.is_event(changed.rel.name) else "Delta"
    how = " (negated: derives when it goes, takes away when it comes)" if changed.negated else ""
    lines.append(f"{kind} {_lit(changed)}{how}")
    return lines


def _sink(core: Core, rule: CoreRule) -> list[str]:
    if rule.rel.kind != "out":
        head = f"{rule.rel.name}({', '.join(_term(arg) for arg in rule.args)})"
        kept = "Event" if core.is_event(rule.rel.name) else "Insert"
        return [f"Project {head}", f"{kept} {rule.rel.name}"]
    to, speaker, *values = rule.args
    level = "the node's level" if rule.rel.level is None else f"level {rule.rel.level}"
    own = isinstance(speaker, Const) and speaker.value == rule.owner
    own = own or (isinstance(speaker, Var) and speaker.name == rule.self_name)
    sign = f"SigGenerator {level}" if own else f"Forward the signature of {_term(speaker)}"
    head = f"{_term(speaker)} says {rule.rel.name}({', '.join(_term(value) for value in values)})"
    return [f"Project {head}", sign, f"LocSpecDemux {_term(to)}", "Network-Out"]


def _operator(operator: Operator) -> str:
    match operator:
        case Join(lit=lit, columns=columns, absent=absent):
            keys = ", ".join(dict.fromkeys(_term(lit.args[i]) for i in columns))
            on = f" on {keys}" if keys else ""
            return f"{'AntiJoin' if absent else 'Join'} {_lit(lit)}{on}"
        case Assign(variable=variable, term=term):
            return f"Assign {_name(variable)} = {_term(term)}"
        case Select(compare=compare):
            return f"Select {_compare(compare)}"


def _compare(compare: Compare) -> str:
    return f"{_term(compare.left)} {compare.op} {_term(compare.right)}"


def _lit(lit: Lit) -> str:
    args = [_term(arg) for arg in lit.args]
    if lit.rel.kind == "said":
        return f"{args[0]} {_says(lit.rel)} {lit.rel.name}({', '.join(args[1:])})"
    return f"{lit.rel.name}({', '.join(args)})"


def _says(rel: Rel) -> str:
    return "says" if rel.level is None else f"says_{rel.level}"


def _name(name: str) -> str:
    return "_" if name.startswith("_.") else name.replace("_+", "V")


def _term(term: Term) -> str:
    match term:
        case Var(name=name):
            return _name(name)
        case Const(value=value):
            return shown(value)
        case Call(function="[]", args=args):
            return f"[{', '.join(map(_term, args))}]"
        case Call(function=function, args=(left, right)) if function in _INFIX:
            between = "::" if function == "::" else f" {function} "
            return f"{_term(left)}{between}{_term(right)}"
        case Call(function=function, args=args):
            return f"{function}({', '.join(map(_term, args))})"
