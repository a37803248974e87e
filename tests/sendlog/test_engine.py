"""The embedded engine: what a change reports, and what it does with changes that do not end or cannot be computed."""

from __future__ import annotations

import pytest

from headgate.sendlog.check import load
from headgate.sendlog.compiled import compile_program
from headgate.sendlog.core import Rel
from headgate.sendlog.engine import Diverged, Engine
from headgate.sendlog.network import Network
from headgate.sendlog.settings import Settings

P, Q = Rel("p"), Rel("q")


def engine(text: str, *, tracing: bool = False, limit: int = 1000) -> Engine:
    return Engine(compile_program(load(text), tracing=tracing), "a", limit=limit)


@pytest.mark.parametrize("tracing", [False, True])
def test_a_change_that_does_not_end_is_undone(tracing: bool) -> None:
    made = engine("p(X) :- q(X), X < 10.\np(Y) :- p(X), go(1), Y = X + 1.\n", tracing=tracing)
    made.apply([(Q, (1,))])
    with pytest.raises(Diverged, match="cannot reach a fixpoint: more than 1,000 derivations in one change"):
        made.apply([(Rel("go"), (1,)), (Q, (2,))], delete=[(Q, (1,))])
    assert (made.rows(P), made.rows(Q), made.rows(Rel("go"))) == ({(1,)}, {(1,)}, set())
    made.apply([(Q, (3,))])
    assert made.rows(P) == {(1,), (3,)}


def test_a_statement_that_sets_off_an_endless_change_is_counted_and_not_held() -> None:
    text = "At N,\ns(X)@b :- tell(X).\nAt b,\np(X) :- S says s(X).\np(Y) :- p(X), X > 5, Y = X + 1.\n"
    network = Network(text, ["a", "b"], Settings("ed25519", limit=1000))
    network.insert({"a": [("tell", (1,))]})
    network.run()
    network.insert({"a": [("tell", (9,))]})
    network.run()
    assert network.rows("b", "p") == [(1,)] and network.rejected() == {"without end": 1}


def test_a_change_reports_what_came_and_went() -> None:
    made = engine("p(X) :- q(X), not r(X).\n")
    changes = made.apply([(Q, (1,)), (Q, (2,)), (Rel("r"), (2,))])
    assert changes.inserted[P] == {(1,)} and not changes.deleted.get(P)
    changes = made.apply([(Rel("r"), (1,))], delete=[(Rel("r"), (2,))])
    assert (changes.inserted[P], changes.deleted[P]) == ({(2,)}, {(1,)})


def test_what_cannot_be_computed_is_counted() -> None:
    made = engine("p(Y) :- q(X), Y = 10 / X.\n")
    made.apply([(Q, (0,)), (Q, (5,)), (Q, ("text",))])
    assert made.rows(P) == {(2,)} and made.failures == 2


def test_a_base_fact_that_is_also_derived_stays_when_its_derivation_goes() -> None:
    made = engine("p(X) :- q(X).\n")
    made.apply([(P, (1,)), (Q, (1,))])
    made.apply(delete=[(Q, (1,))])
    assert made.rows(P) == {(1,)}
    made.apply(delete=[(P, (1,))])
    assert made.rows(P) == set()


def test_two_rules_with_one_label_are_two_rules() -> None:
    made = engine("r n(count<X>) :- p(X).\nr n(count<X>) :- q(X).\n")
    made.apply([(P, (1,)), (Q, (1,))])
    assert made.rows(Rel("n")) == {(2,)}
