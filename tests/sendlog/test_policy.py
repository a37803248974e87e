"""A policy's engine, its proofs, and signed texts: apart from the platform that asks them."""

from __future__ import annotations

import base64
from random import Random

import pytest

from headgate.errors import TextError
from headgate.sendlog import policy, signing
from headgate.sendlog.drawing import as_text
from headgate.sendlog.policy import Diverged, PolicyEngine, Said, read_rules
from headgate.sendlog.proofs import AS_ABOVE, Step, as_tree
from headgate.sendlog.signing import PrivateKey
from headgate.sendlog.values import ValueFault
from sendlog.test_fuzz import damaged

RULES = """
trusted(a).
t1 trusted(B) :- trusted(A), A says vouches(B).
p1 plays(U, staff) :- trusted(A), A says employee(U), not barred(U).
p2 plays(U, chief) :- 2 of trusted says leads(U).
b1 barred(U) :- a says bars(U).
c1 votes(U, count<A>) :- trusted(A), A says employee(U).
c2 cleared(U, "S") :- votes(U, N), N >= 2.
m1 may_access(staff, P, "STREAM s") :- a says opens(P).
"""
PEOPLE = ("a", "b", "c", "d")


def drawn(random: Random) -> Said:
    name = random.choice(["vouches", "employee", "leads", "bars", "opens"])
    return Said(random.choice(PEOPLE), name, (random.choice([*PEOPLE, "x", "y"]),))


@pytest.mark.parametrize("seed", range(3))
def test_what_changes_step_by_step_is_what_is_derived_at_once(seed: int) -> None:
    random, rules = Random(seed), read_rules(RULES)
    grown, held = PolicyEngine("p", rules), dict[str, Said]()
    for _ in range(40):
        said = drawn(random)
        if repr(said) in held:
            del held[repr(said)]
        else:
            held[repr(said)] = said
        grown.hold(held)
        anew = PolicyEngine("p", rules)
        anew.hold(held)
        assert grown.rights() == anew.rights()
        for name, row in grown.rights():
            check_proof(grown.proof(name, row), held, (name, row))


def check_proof(steps: list[Step], held: dict[str, Said], right: tuple[str, tuple[object, ...]]) -> None:
    """Each step uses earlier ones only; what was said is in force; the statements alone derive the right again."""
    assert (steps[-1].name, steps[-1].row) == right
    said = {Said(str(step.row[0]), step.name, step.row[1:]) for step in steps if step.said}
    assert said <= set(held.values())
    assert all(i < place for place, step in enumerate(steps) for i in step.body)
    again = PolicyEngine("p", read_rules(RULES))
    again.hold({repr(one): one for one in said})
    assert right in again.rights()


def test_a_proof_is_never_circular() -> None:
    """a and b vouch for each other; b is trusted because of a, not because of itself."""
    engine = PolicyEngine("p", read_rules(RULES))
    said = [Said("b", "vouches", ("a",)), Said("a", "vouches", ("b",)), Said("b", "employee", ("x",))]
    engine.hold({repr(one): one for one in said})
    steps = engine.proof("plays", ("x", "staff"))
    assert as_text(as_tree(steps, "p", dict.fromkeys(range(len(steps)), True))).split("\n") == [
        "p: plays(x, staff)  <a*b*p>",
        "└─ p1 at p",
        "   ├─ trusted(b)",
        "   │  └─ t1 at p",
        "   │     ├─ trusted(a)",
        "   │     └─ a says vouches(b) [signature verified]",
        "   └─ b says employee(x) [signature verified]",
    ]


def test_a_proof_that_shares_much_stays_small() -> None:
    """The tree of the derivation has 2 to the power of 40 leaves."""
    chain = "".join(f"q{i + 1}(X) :- q{i}(X), r{i}(X). r{i + 1}(X) :- r{i}(X), q{i}(X)." for i in range(40))
    engine = PolicyEngine(
        "p", read_rules("q0(X) :- a says q(X). r0(X) :- a says q(X)." + chain + "plays(X, X) :- q40(X).")
    )
    engine.hold({"1": Said("a", "q", ("x",))})
    steps = engine.proof("plays", ("x", "x"))
    assert len(steps) < 100
    assert AS_ABOVE in as_text(as_tree(steps, "p", {}))


def test_many_small_changes_do_not_use_the_budget_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "BUDGET", 300)
    engine = PolicyEngine("p", read_rules(RULES))
    for i in range(200):
        engine.hold({str(i): Said("a", "employee", (f"u{i}",))})
    assert engine.rights() == {("plays", ("u199", "staff"))}


def test_beyond_the_budget_nothing_is_derived_until_it_fits_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "BUDGET", 300)
    engine = PolicyEngine("p", read_rules(RULES))
    much = {str(i): Said("a", "employee", (f"u{i}",)) for i in range(200)}
    with pytest.raises(Diverged):
        engine.hold(much)
    assert engine.rights() == set() and engine.proof("plays", ("u1", "staff")) == []
    engine.hold({"1": much["1"]})
    assert engine.rights() == {("plays", ("u1", "staff"))}


def test_damaged_rules_are_read_or_refused_with_a_position() -> None:
    random, refused = Random(3), 0
    for _ in range(400):
        text = damaged(random, RULES)
        error = refusal(text)
        if error is not None:
            assert error.position is not None and 0 <= error.position.offset <= len(text)
            refused += 1
    assert refused > 200


def refusal(text: str) -> TextError | None:
    try:
        read_rules(text)
    except TextError as error:
        return error
    return None


def test_damaged_messages_are_refused() -> None:
    random, key = Random(4), PrivateKey.new()
    facts = [("employee", ("bob",)), ("employee", ("zoe",))]
    data = base64.urlsafe_b64decode(signing.signed(key, "a", "address", 7, facts))
    for _ in range(2000):
        place = random.randrange(len(data))
        noise = random.randbytes(random.randint(0, 3))
        changed = data[:place] + noise + data[place + random.randint(0, 3) :]
        if changed == data:
            continue
        try:
            packet = signing.read(base64.urlsafe_b64encode(changed).decode())
        except ValueFault:
            continue
        header = packet.header
        same = (header.sender, header.receiver, header.number, [(x.name, x.row) for x in packet.statements])
        signer = signing.signer(packet, [key.public_text()])
        assert signer is None or same == ("a", "address", 7, facts), "only what was signed is accepted"


def test_a_proof_of_one_statement_proves_no_other() -> None:
    key, other = PrivateKey.new(), PrivateKey.new()
    packet = signing.read(signing.signed(key, "a", "here", 1, [("p", ("x",)), ("p", ("y",))]))
    proof, public = packet.proof(0), key.public_text()
    assert signing.verified(proof, public, "here", "a", ("p", ("x",)))
    assert not signing.verified(proof, public, "here", "a", ("p", ("y",)))
    assert not signing.verified(proof, public, "there", "a", ("p", ("x",)))
    assert not signing.verified(proof, public, "here", "b", ("p", ("x",)))
    assert not signing.verified(proof, other.public_text(), "here", "a", ("p", ("x",)))
    for damage in (None, [], [1, 2, 3, 4, 5], proof[:4], [*proof[:3], [[1]], proof[4]]):
        assert not signing.verified(damage, public, "here", "a", ("p", ("x",)))
    assert not signing.verified(proof, "no key", "here", "a", ("p", ("x",)))
    retraction = signing.read(signing.signed(key, "a", "here", 2, [("p", ("x",))], retract=True))
    assert not signing.verified(retraction.proof(0), public, "here", "a", ("p", ("x",))), "a retraction proves nothing"
