"""NDlog's rules (`reachable(@S,D) :- link(@S,Z), reachable(@Z,D).`) as rules within contexts.

NDlog trusts its network, so what arrives is taken as the node's own. A body over two places is split: the atoms of the
first place are sent to the second, whose name they must contain, and the head goes where it belongs (paper 003,
section 2.2; the rewriting is that of declarative networking).
"""

from __future__ import annotations

from dataclasses import replace

from headgate.lexing import fail
from headgate.sendlog.syntax import Atom, Call, Context, Head, Literal, Rule, Term, Var, variables


def localised(rule: Rule, text: str) -> list[Rule]:
    """The rule itself, or the rules of one place each that an NDlog rule stands for."""
    if not any(_place(atom) for atom in (rule.head.atom, *_atoms(rule))):
        return [rule]
    home = _variable(rule.head.atom, text)
    places = list(dict.fromkeys(_variable(atom, text) for atom in _atoms(rule)))
    if len(places) > 2:
        raise fail(text, rule.at, f"rule `{rule.label}` joins tuples of more than two places", hint="split the rule")
    bare = replace(rule, head=replace(rule.head, atom=_bare(rule.head.atom)), body=tuple(map(_bare_literal, rule.body)))
    if len(places) == 2:
        return _split(rule, bare, home, places, text)
    here = places[0] if places else home
    return _at(bare, here, home)


def _split(rule: Rule, bare: Rule, home: Var, places: list[Var], text: str) -> list[Rule]:
    first, second = places
    groups = {place: [a for a in _atoms(rule) if _variable(a, text) == place] for place in places}
    if second not in [v for atom in groups[first] for arg in _bare(atom).args for v in variables(arg)]:
        first, second = second, first
    sent_vars = list(dict.fromkeys(v for atom in groups[first] for arg in _bare(atom).args for v in variables(arg)))
    if second not in sent_vars:
        hint = "the tuples of one place must name the other"
        raise fail(text, rule.at, f"rule `{rule.label}` joins two places that no tuple links", hint=hint)
    sent = Atom(f"{rule.label}$sent", tuple(sent_vars), rule.at)
    moved = tuple([_bare(atom) for atom in groups[first]])
    sender = Rule(f"{rule.label}a", Head(sent, to=second), moved, Context(first), rule.at)
    rest = tuple([x for x in bare.body if x not in moved])
    joined = replace(bare, body=(replace(sent, speaker=Var("$sender")), *rest))
    return [sender, *_at(joined, second, home)]


def _at(rule: Rule, here: Var, home: Var) -> list[Rule]:
    """A rule whose body is at one place; if its head is at another, a rule there takes what arrives."""
    if here == home:
        return [replace(rule, context=Context(here))]
    head = replace(rule.head.atom, name=f"{rule.head.atom.name}${rule.label}")
    sender = replace(rule, head=replace(rule.head, atom=head, to=home), context=Context(here))
    said = replace(head, speaker=Var("$sender"))
    accepted = Rule(f"{rule.label}c", Head(rule.head.atom), (said,), Context(home), rule.at)
    return [sender, accepted]


def _atoms(rule: Rule) -> list[Atom]:
    return [literal for literal in rule.body if isinstance(literal, Atom)]


def _place(atom: Atom) -> Call | None:
    return next((arg for arg in atom.args if isinstance(arg, Call) and arg.function == "@"), None)


def _variable(atom: Atom, text: str) -> Var:
    place = _place(atom)
    if place is None or not isinstance(place.args[0], Var) or atom.speaker is not None:
        hint = "in NDlog every predicate has one `@` before a variable, and none has `says`"
        raise fail(text, atom.at, f"`{atom.name}` has no place", hint=hint)
    return place.args[0]


def _bare(atom: Atom) -> Atom:
    args: list[Term] = [a.args[0] if isinstance(a, Call) and a.function == "@" else a for a in atom.args]
    return replace(atom, args=tuple(args))


def _bare_literal(literal: Literal) -> Literal:
    return _bare(literal) if isinstance(literal, Atom) else literal
