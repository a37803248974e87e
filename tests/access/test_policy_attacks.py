"""Attacks on policies. Each is shown to work where the one mechanism it is aimed at is missing (SPEC 3.7)."""

from __future__ import annotations

import base64
import json
import time

import pytest
from conftest import System

from headgate.access import evidence, policy_rights
from headgate.access.permissions import Kind, Permission
from headgate.access.statements import policies as handlers
from headgate.errors import AccessDenied, Conflict, HeadgateError, NotFound
from headgate.sendlog import policy as sendlog_policy
from headgate.sendlog import signing
from headgate.sendlog.packets import Header, Statement, pack
from headgate.sendlog.signing import PrivateKey, signed

from .policy_world import RULES, Hospital


@pytest.fixture
def hospital(sqlite_system: System) -> Hospital:
    return Hospital(sqlite_system)


def altered(message: str, old: bytes, new: bytes) -> str:
    """The same message with other content under the same signature."""
    data = base64.urlsafe_b64decode(message)
    assert old in data
    return base64.urlsafe_b64encode(data.replace(old, new)).decode()


# Whose word it is ---------------------------------------------------------------------------------------------------


def test_a_statement_signed_by_another_key_is_refused(hospital: Hospital, monkeypatch: pytest.MonkeyPatch) -> None:
    address, mallory = hospital.create(), PrivateKey.new()
    with pytest.raises(AccessDenied, match="no key of `acme` signed this statement"):
        hospital.accept(hospital.message(address, ("employee", ("bob",)), key=mallory))
    hospital.system.run(f"ALTER USER bob ADD KEY '{mallory.public_text()}'", hospital.bob)
    with pytest.raises(AccessDenied, match="no key of `acme` signed this statement"):
        hospital.accept(hospital.message(address, ("employee", ("bob",)), key=mallory))
    assert not hospital.reads()
    monkeypatch.setattr(signing, "signer", lambda _, known: next(iter(known)))
    hospital.accept(hospital.message(address, ("employee", ("bob",)), key=mallory))
    assert hospital.reads(), "without the check of the signature the attack succeeds"


def test_a_registered_key_speaks_for_its_own_user_only(hospital: Hospital, monkeypatch: pytest.MonkeyPatch) -> None:
    """bob's statement in bob's own envelope, with acme as the speaker inside."""
    key, address = PrivateKey.new(), hospital.create()
    hospital.system.run(f"ALTER USER bob ADD KEY '{key.public_text()}'", hospital.bob)
    data = pack(key, "ed25519", Header("bob", 0, address, 0, 1), [Statement("+", "employee", "acme", ("bob",))])
    message = base64.urlsafe_b64encode(data).decode()
    with pytest.raises(AccessDenied, match="`bob` signed this, and cannot speak for `acme`"):
        hospital.accept(message)
    monkeypatch.setattr(handlers, "_check_wanted", lambda *_: None)
    hospital.accept(message)
    assert hospital.system.rows("SHOW STATEMENTS")[0][1] == "acme", "without the check the word is acme's"


def test_what_is_said_by_others_than_the_rules_trust_is_not_kept(hospital: Hospital) -> None:
    key, address = PrivateKey.new(), hospital.create()
    hospital.system.run(f"ALTER USER bob ADD KEY '{key.public_text()}'", hospital.bob)
    for fact in (("employee", ("bob",)), ("plays", ("bob", "partner"))):
        with pytest.raises(Conflict, match="policy hospitals reads no such statement of `bob`"):
            hospital.accept(hospital.message(address, fact, key=key, sender="bob"))
    with pytest.raises(Conflict, match="reads no such statement of `acme`"):
        hospital.says(address, "employee", "bob", "partner")
    assert hospital.system.rows("SHOW STATEMENTS") == ()


def test_an_altered_statement_is_refused(hospital: Hospital, monkeypatch: pytest.MonkeyPatch) -> None:
    address = hospital.create()
    message = altered(hospital.message(address, ("employee", ("zoe",))), b'"zoe"', b'"bob"')
    with pytest.raises(AccessDenied, match="no key of `acme` signed this statement"):
        hospital.accept(message)
    monkeypatch.setattr(signing, "signer", lambda _, known: next(iter(known)))
    hospital.accept(message)
    assert hospital.reads(), "without the check of the signature the attack succeeds"


def test_every_byte_of_a_message_counts(hospital: Hospital) -> None:
    address = hospital.create()
    data = base64.urlsafe_b64decode(hospital.message(address, ("employee", ("bob",))))
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises((AccessDenied, Conflict, NotFound)):
            hospital.accept(base64.urlsafe_b64encode(changed).decode())
    assert not hospital.reads()


@pytest.mark.parametrize("scheme", ["none", "hmac", "rsa"])
def test_only_signatures_count(hospital: Hospital, scheme: str) -> None:
    """A message that says it needs no signature, or one of another kind."""
    address = hospital.create()
    text = json.dumps([scheme, ["acme", 0, address, 0, 1], [["+", "employee", "acme", ["bob"]]]])
    with pytest.raises(Conflict, match="this is not a signed statement"):
        hospital.accept(base64.urlsafe_b64encode(text.encode() + b"\n").decode())


# Again, elsewhere, later ----------------------------------------------------------------------------------------------


def test_what_was_taken_back_cannot_be_handed_in_again(hospital: Hospital, monkeypatch: pytest.MonkeyPatch) -> None:
    address = hospital.create()
    message = hospital.says(address, "employee", "bob")
    hospital.takes_back(address, "employee", "bob")
    with pytest.raises(Conflict, match="handed in before, or one that was signed after it"):
        hospital.accept(message)
    assert not hospital.reads()
    monkeypatch.setattr(handlers, "_check_new", lambda *_: None)
    hospital.accept(message)
    assert hospital.reads(), "without numbers the attack succeeds"


def test_a_statement_that_waited_behind_its_retraction_is_refused(hospital: Hospital) -> None:
    """The courier hands the retraction in first, and the statement afterwards."""
    address = hospital.create()
    held_back = hospital.message(address, ("employee", ("bob",)))
    hospital.takes_back(address, "employee", "bob")
    with pytest.raises(Conflict, match="signed after it"):
        hospital.accept(held_back)
    assert not hospital.reads()


def test_a_refused_statement_uses_no_number_up(hospital: Hospital) -> None:
    address = hospital.create()
    message = hospital.message(address, ("employee", ("bob",)))
    with pytest.raises(HeadgateError):
        hospital.system.run(f"ACCEPT STATEMENT '{message}'; DROP ROLE nothing")
    hospital.accept(message)
    assert hospital.reads()


def test_a_statement_for_one_policy_counts_for_no_other(hospital: Hospital) -> None:
    first, second = hospital.create(), hospital.create("plays(U, inner) :- acme says employee(U).", "internal")
    hospital.system.run("CREATE ROLE inner")
    message = hospital.message(first, ("employee", ("bob",)))
    with pytest.raises(AccessDenied):
        hospital.accept(altered(message, first.encode(), second.encode()))
    hospital.accept(message)
    assert hospital.system.headgate.assigned_roles("bob") == {"partner"}


def test_a_policy_that_was_dropped_and_created_again_takes_no_old_statement(hospital: Hospital) -> None:
    old = hospital.says(hospital.create(), "employee", "bob")
    hospital.system.run("DROP POLICY hospitals")
    hospital.create()
    with pytest.raises(NotFound, match="no policy has the address"):
        hospital.accept(old)
    assert not hospital.reads()


def test_a_speaker_that_was_dropped_and_created_again_with_its_key_takes_up_no_old_statement(
    hospital: Hospital,
) -> None:
    address = hospital.create()
    old = hospital.says(address, "employee", "bob")
    hospital.system.run("DROP USER acme")
    hospital.system.run(f"CREATE USER acme; ALTER USER acme ADD KEY '{hospital.key.public_text()}'")
    assert not hospital.reads()
    with pytest.raises(Conflict, match="handed in before"):
        hospital.accept(old)


def test_a_key_that_was_dropped_and_added_again_revives_nothing(hospital: Hospital) -> None:
    hospital.says(hospital.create(), "employee", "bob")
    key = hospital.key.public_text()
    hospital.system.run(f"ALTER USER acme DROP KEY '{key}'")
    hospital.system.run(f"ALTER USER acme ADD KEY '{key}'")
    assert not hospital.reads()


def test_a_clock_that_is_turned_back_revives_no_soft_state(hospital: Hospital) -> None:
    address = hospital.create("materialize(employee, 60)." + RULES)
    hospital.says(address, "employee", "bob")
    hospital.system.clock.advance(-120)
    assert not hospital.reads(), "said in the future: nothing is known about it now"


# More than its owner has --------------------------------------------------------------------------------------------


def test_a_policy_gives_no_right_that_its_owner_could_not_grant(
    hospital: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator may not read joe's stream, nor let anybody read it; not by a policy either."""
    hospital.system.run("REVOKE CHANGE PERM ON STREAM vitals FROM ADMIN", hospital.joe)
    address = hospital.create()
    hospital.says(address, "employee", "bob")
    assert hospital.system.rows("SHOW POLICIES")[0][4:] == ("1 of 4", "its owner could not grant all it derives")
    assert not hospital.reads()
    monkeypatch.setattr(hospital.system.headgate.monitor.policies.stored, "allows", lambda *_: True)
    hospital.system.run("CREATE ROLE other")
    assert hospital.reads(), "without the check of the owner's rights the attack succeeds"


def test_a_policy_loses_what_its_owner_loses(hospital: Hospital) -> None:
    address = hospital.create()
    hospital.says(address, "employee", "bob")
    assert hospital.reads()
    hospital.system.run("REVOKE CHANGE PERM ON STREAM vitals FROM ADMIN", hospital.joe)
    assert not hospital.reads()


def test_an_owner_who_is_no_administrator_any_more_gives_no_roles_and_no_clearance(hospital: Hospital) -> None:
    hospital.system.run("CREATE USER ann PASSWORD 'correct horse'; GRANT ROLE ADMIN TO USER ann")
    address = hospital.create(
        'plays(U, partner) :- acme says employee(U). cleared(U, "S") :- acme says employee(U).',
        token=hospital.system.login("ann"),
    )
    hospital.says(address, "employee", "bob")
    assert hospital.system.headgate.assigned_roles("bob") == {"partner"}
    hospital.system.run("REVOKE ROLE ADMIN FROM USER ann")
    assert hospital.system.headgate.assigned_roles("bob") == frozenset()
    with pytest.raises(AccessDenied):
        hospital.system.login("bob", level="S")


def test_nobody_comes_to_govern_by_a_policy(hospital: Hospital, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever governs for a moment could give itself rights of the store, which no retraction takes away."""
    hospital.system.run("CREATE ROLE boss; GRANT ROLE ADMIN TO ROLE boss")
    address = hospital.create(
        'plays(U, "ADMIN") :- acme says employee(U). plays(U, boss) :- acme says employee(U).'
        'may_access(partner, "CHANGE PERM", "STREAM joe.vitals"). may_access("PUBLIC", "CHANGE SYSTEM", "SYSTEM").'
        'may_access("PUBLIC", "USE", "OPERATOR join"). may_access("PUBLIC", "VIEW AUDIT", "SYSTEM").'
    )
    hospital.says(address, "employee", "bob")
    assert hospital.system.rows("SHOW POLICIES")[0][4] == "0 of 6"
    assert hospital.system.headgate.assigned_roles("bob") == frozenset()
    monkeypatch.setattr(policy_rights, "_GOVERN", frozenset())
    hospital.system.run("CREATE ROLE other")
    token = hospital.system.login("bob")
    hospital.system.run("GRANT ROLE ADMIN TO USER bob", token)
    hospital.takes_back(address, "employee", "bob")
    assert "ADMIN" in hospital.system.headgate.assigned_roles("bob"), "without the rule the attack succeeds"


def test_a_role_by_which_others_could_be_given_rights_is_not_given(
    hospital: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What bob would grant as a keeper would outlive acme's word."""
    hospital.system.run("CREATE ROLE keeper")
    hospital.system.run("GRANT CHANGE PERM, VIEW OBJECT ON STREAM vitals TO keeper", hospital.joe)
    address = hospital.create("plays(U, keeper) :- acme says employee(U).")
    hospital.says(address, "employee", "bob")
    assert hospital.system.headgate.assigned_roles("bob") == frozenset()
    monkeypatch.setattr(policy_rights, "_GOVERN", frozenset())
    hospital.system.run("CREATE ROLE other")
    hospital.system.run("GRANT READ TUPLE ON STREAM joe.vitals TO PUBLIC", hospital.system.login("bob"))
    hospital.takes_back(address, "employee", "bob")
    assert "PUBLIC" in {row[2] for row in hospital.system.rows("SHOW GRANTS ON STREAM vitals", hospital.joe)}


def test_a_statement_is_not_handed_in_from_above(hospital: Hospital) -> None:
    """It would change what those at level U see: a write from S down to U."""
    hospital.system.run("ALTER USER bob CLEARANCE S")
    message = hospital.message(hospital.create(), ("employee", ("bob",)))
    with pytest.raises(AccessDenied, match="policies have level U"):
        hospital.accept(message, hospital.system.login("bob", level="S"))
    hospital.accept(message, hospital.system.login("bob", level="U"))
    assert hospital.system.headgate.assigned_roles("bob") == {"partner"}


def test_a_policy_gives_a_limited_number_of_rights(hospital: Hospital, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "MOST_RIGHTS", 3)
    with pytest.raises(Conflict, match="policy other would give more than 3 rights"):
        hospital.create(RULES + 'may_access(partner, "PUBLISH", "STREAM joe.vitals").', "other")
    hospital.create()


def test_a_policy_builds_on_no_other_policy(hospital: Hospital, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ann can grant by a right of the store counts; what she could grant by a right of a policy does not."""
    monkeypatch.setattr(policy_rights, "_GOVERN", frozenset())  # which alone would prevent it
    hospital.system.run("CREATE ROLE keeper; CREATE USER ann PASSWORD 'correct horse'; GRANT ROLE ADMIN TO USER ann")
    hospital.system.run("REVOKE CHANGE PERM ON STREAM vitals FROM ADMIN", hospital.joe)
    hospital.system.run("GRANT CHANGE PERM, VIEW OBJECT ON STREAM vitals TO keeper", hospital.joe)
    hospital.create("plays(ann, keeper).", "first")
    address = hospital.create(token=hospital.system.login("ann"))
    hospital.says(address, "employee", "bob")
    assert not hospital.reads()


def test_roles_that_are_kept_apart_are_not_given(hospital: Hospital) -> None:
    hospital.system.run(
        "CREATE ROLE payer; GRANT ROLE payer TO USER bob; CREATE SEPARATION two STATIC OF partner, payer"
    )
    hospital.says(hospital.create(), "employee", "bob")
    assert hospital.system.headgate.assigned_roles("bob") == {"payer"}
    hospital.system.run("REVOKE ROLE payer FROM USER bob")
    assert hospital.system.headgate.assigned_roles("bob") == {"partner"}
    hospital.system.run("GRANT ROLE payer TO USER bob")
    assert hospital.system.headgate.assigned_roles("bob") == {"payer"}, "what is granted here counts more"


def test_the_names_of_hidden_objects_do_not_show(hospital: Hospital) -> None:
    """A policy about a stream that its owner may not see counts as one about a stream that does not exist."""
    hospital.system.run("CREATE STREAM hidden (patient INT)", hospital.joe)
    seen = []
    for name in ("hidden", "nothing"):
        hospital.create(f'may_access(partner, "READ TUPLE", "STREAM joe.{name}").', "probe")
        (row,) = hospital.system.rows("SHOW POLICIES")
        seen.append((row[0], row[1], *row[3:]))
        hospital.system.run("DROP POLICY probe")
    assert seen[0] == seen[1]


def test_only_auditors_read_proofs(hospital: Hospital) -> None:
    hospital.says(hospital.create(), "employee", "bob")
    name = hospital.proofs()[-1]
    with pytest.raises(AccessDenied, match="VIEW AUDIT on system is denied"):
        hospital.system.headgate.proof(hospital.bob, name)


# Too much -----------------------------------------------------------------------------------------------------------

ENDLESS = [
    "n(0). n(Y) :- n(X), Y = X + 1. plays(U, partner) :- n(X), X < 0, acme says employee(U).",
    't(a). t(Y) :- t(X), Y = f_join(X, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"). plays(X, X) :- t(X).',
    "q(X) :- n(X). plays(a, b) :- q(A), q(B), q(C), q(D), A + B + C + D == 0."
    + "".join(f"n({i})." for i in range(1, 99)),
]


@pytest.mark.parametrize("rules", ENDLESS)
def test_rules_that_do_not_end_are_refused(hospital: Hospital, rules: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sendlog_policy, "BUDGET", 20_000)
    begun = time.process_time()
    with pytest.raises(Conflict, match="policy hospitals would give nothing: cannot reach a fixpoint"):
        hospital.create(rules)
    assert time.process_time() - begun < 20, "it is counted, not waited for"
    assert hospital.system.rows("SHOW POLICIES") == ()


SQUARE = "w(X) :- acme says word(X). big(A, B) :- w(A), w(B). plays(U, partner) :- acme says employee(U)."


def test_statements_that_make_a_policy_explode_are_refused_and_harm_nobody(
    hospital: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sendlog_policy, "BUDGET", 20_000)
    address = hospital.create(SQUARE)
    hospital.says(address, "employee", "bob")
    hospital.accept(hospital.message(address, *(("word", (f"w{i}",)) for i in range(60))))
    with pytest.raises(Conflict, match="policy hospitals would give nothing"):
        hospital.accept(hospital.message(address, *(("word", (f"x{i}",)) for i in range(100))))
    assert hospital.system.headgate.assigned_roles("bob") == {"partner"}
    assert hospital.system.rows("SHOW POLICIES")[0][3] == "61"


def test_a_retraction_is_never_refused(hospital: Hospital, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the policy cannot be evaluated any more: then it gives nothing at all."""
    address = hospital.create(SQUARE)
    hospital.says(address, "employee", "bob")
    hospital.accept(hospital.message(address, *(("word", (f"w{i}",)) for i in range(60))))
    monkeypatch.setattr(sendlog_policy, "BUDGET", 1_000)
    hospital.takes_back(address, "employee", "bob")
    assert hospital.system.headgate.assigned_roles("bob") == frozenset()
    assert "cannot reach a fixpoint" in hospital.system.rows("SHOW POLICIES")[0][5]


def test_a_policy_whose_stored_rules_cannot_be_read_gives_nothing(system: System) -> None:
    """Somebody with the database damages the rules; other policies, and the store, work on."""
    hospital = Hospital(system)
    hospital.says(hospital.create(), "employee", "bob")
    other = hospital.create("plays(U, second) :- acme says employee(U).", "second")
    system.run("CREATE ROLE second")
    hospital.says(other, "employee", "bob")
    system.sql("UPDATE policies SET rules = 'plays(' WHERE name = 'hospitals'")
    system.reopen()
    system.root = system.login("root")
    assert system.headgate.assigned_roles("bob") == {"second"}
    assert [row[5] for row in system.rows("SHOW POLICIES")] == ["its rules cannot be read (TextError)", ""]


def test_a_speaker_cannot_fill_the_store(hospital: Hospital, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "MOST_STATEMENTS", 3)
    address = hospital.create()
    hospital.accept(hospital.message(address, *(("employee", (f"u{i}",)) for i in range(3))))
    with pytest.raises(Conflict, match="`acme` may not say more than 3 things to a policy"):
        hospital.says(address, "employee", "u4")
    with pytest.raises(Conflict, match="at most 100 statements may be signed together"):
        hospital.accept(hospital.message(address, *(("employee", (f"v{i}",)) for i in range(101))))
    with pytest.raises(Conflict, match="must not be longer than 64,000 characters"):
        hospital.says(address, "employee", "x" * 64_000)


# The proof --------------------------------------------------------------------------------------------------------


def test_a_proof_that_was_altered_is_found_out(system: System) -> None:
    hospital = Hospital(system)
    hospital.says(hospital.create(), "employee", "bob")
    name = hospital.proofs()[-1]
    system.sql(
        "UPDATE proofs SET text = replace(text, 'bob', 'eve') WHERE text LIKE '%employee%says%' OR text LIKE '%bob%'"
    )
    with pytest.raises(Conflict, match="this proof was altered"):
        system.headgate.proof(system.root, name)


def test_a_proof_shows_a_signature_that_does_not_fit(hospital: Hospital) -> None:
    """A forger who could also choose the digest: the signature still gives it away."""
    hospital.says(hospital.create(), "employee", "bob")
    name = hospital.proofs()[-1]
    with hospital.system.headgate.monitor.transaction() as work:
        ((full, text),) = work.proof(name)
    forged = text.replace('"bob"', '"eve"')
    tree, _ = evidence.read_proof(evidence.digest(forged), forged)
    assert [node.verified for node in tree.nodes() if node.speaker] == [False]
    assert full.startswith(name)


def test_handing_in_needs_a_session(hospital: Hospital) -> None:
    message = hospital.message(hospital.create(), ("employee", ("bob",)))
    with pytest.raises(HeadgateError, match="no valid session"):
        hospital.system.headgate.execute("nonsense", f"ACCEPT STATEMENT '{message}'")


def test_unknown_speakers_and_speakers_without_keys_are_refused_alike(hospital: Hospital) -> None:
    address, texts = hospital.create(), []
    for sender in ("joe", "nobody-here"):
        with pytest.raises(AccessDenied) as caught:
            hospital.accept(signed(hospital.key, sender, address, 1, [("employee", ("bob",))]))
        texts.append(str(caught.value).replace(sender, "X"))
    assert texts[0] == texts[1]


def test_a_check_costs_nothing_more_where_there_are_no_policies(hospital: Hospital) -> None:
    """No rule is read and no engine is made for a store without policies."""
    assert hospital.system.headgate.monitor.policies._engines == {}
    assert not hospital.system.headgate.check(hospital.bob, Permission.READ_TUPLE, Kind.STREAM, "vitals", "joe")
