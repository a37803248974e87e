"""Random programs mean what the naive evaluator says, at once and after every insertion and deletion."""

from __future__ import annotations

from random import Random

import pytest

from headgate.sendlog.compiled import compile_program
from headgate.sendlog.core import Core, Rel
from headgate.sendlog.network import Network
from headgate.sendlog.settings import Settings
from headgate.sendlog.values import Row
from sendlog import naive
from sendlog.drawn import PEOPLE, Facts, draw_fact, draw_program

OPEN = Settings("none")


def tables(network: Network) -> naive.State:
    """What the principals hold and were told."""
    found = {}
    for who, node in network.nodes.items():
        for rel, table in node.engine.tables.items():
            if rel.kind in ("local", "said") and table.rows:
                found[who, rel] = set(table.rows)
    return found


def meaning(core: Core, facts: Facts) -> naive.State:
    found = naive.evaluate(core, PEOPLE, facts)
    return {(who, rel): rows for (who, rel), rows in found.items() if rel.kind in ("local", "said") and who in PEOPLE}


def by_principal(facts: Facts) -> dict[str, list[tuple[str, Row]]]:
    return {who: [(rel.name, row) for w, rel, row in facts if w == who] for who in PEOPLE}


def check_program(seed: int, changes: int, *, tracing: bool) -> None:
    random = Random(seed)
    text, core = draw_program(random)
    known = {atom.rel for rule in core.rules for atom in rule.atoms()}
    facts = {fact for fact in (draw_fact(random) for _ in range(14)) if fact[1] in known}
    network = Network(compile_program(core, tracing=tracing), PEOPLE, OPEN)
    network.insert(by_principal(facts))
    network.run()
    assert tables(network) == meaning(core, facts), (seed, text, facts)
    for _ in range(changes):
        who, rel, row = random.choice(sorted(facts, key=repr)) if facts and random.random() < 0.5 else draw_fact(random)
        if rel not in known:
            continue
        if (who, rel, row) in facts:
            facts.discard((who, rel, row))
            network.delete({who: [(rel.name, row)]})
        else:
            facts.add((who, rel, row))
            network.insert({who: [(rel.name, row)]})
        network.run()
        assert tables(network) == meaning(core, facts), (seed, text, facts, (who, rel, row))


@pytest.mark.parametrize("seed", range(40))
def test_a_random_program_is_maintained_as_the_naive_evaluator_computes_it(seed: int) -> None:
    check_program(seed, changes=4, tracing=seed % 2 == 0)


@pytest.mark.long
@pytest.mark.parametrize("block", range(12))
def test_a_thousand_random_programs_are_maintained_as_the_naive_evaluator_computes_them(block: int) -> None:
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        check_program(seed, changes=6, tracing=seed % 2 == 0)


def test_the_naive_evaluator_itself_computes_reachability() -> None:
    from headgate.sendlog.check import load

    core = load("reach(X,Y) :- link(X,Y). reach(X,Y) :- link(X,Z), reach(Z,Y).")
    facts = [("a", Rel("link"), (1, 2)), ("a", Rel("link"), (2, 3))]
    assert naive.evaluate(core, ["a"], facts)["a", Rel("reach")] == {(1, 2), (2, 3), (1, 3)}
