"""CREATE and DROP POLICY, and ACCEPT STATEMENT: what others have signed for a policy."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

from headgate.access import rows as r
from headgate.access.evidence import digest, statement_digest
from headgate.access.permissions import Permission
from headgate.access.request import Handler, Request, Result
from headgate.cql import statements as s
from headgate.errors import AccessDenied, Conflict, HeadgateError, NotFound, Position, TextError
from headgate.labels import LEAST
from headgate.lexing import quote
from headgate.sendlog.values import ValueFault, shown_fact

if TYPE_CHECKING:
    from headgate.sendlog.packets import Packet, Statement

MOST_POLICIES = 100
MOST_STATEMENTS = 10_000
"""Of one speaker to one policy."""
MOST_AT_ONCE = 100
MOST_RIGHTS = 10_000
"""Of one policy: each that it gives leaves a record, with its proof."""


def _create(q: Request, x: s.CreatePolicy) -> Result:
    """Rules run in everybody's decisions, so writing them needs CHANGE SYSTEM; what they give, what GRANT needs."""
    from headgate.sendlog.policy import read_rules

    q.about(f"policy {quote(x.name.text)}")
    q.need_system(Permission.CHANGE_SYSTEM)
    if q.state.policies.get(x.name.text):
        raise Conflict(f"there is already a policy `{x.name.text}`", position=x.name.position)
    if len(q.state.policies) >= MOST_POLICIES:
        raise Conflict(f"there must not be more than {MOST_POLICIES} policies")
    try:
        read_rules(x.rules)
    except TextError as error:
        raise _placed(error, x.rules_at, len("$$")) from None
    policy = r.Policy(x.name.text, q.user, secrets.token_hex(16), tuple(sorted(q.principal.roles)), x.rules)
    q.state.policies.put(policy)
    q.work.keep_proof(digest(policy.rules), policy.rules)
    _check_works(q, policy)
    derived, counted = q.policies.derived(policy.name), q.policies.counted()[policy.name]
    text = f"policy {quote(policy.name)} created; statements to it are addressed to {policy.address}"
    if counted < derived:
        text += f"; {derived - counted} of the {derived} rights it derives do not count: you could not grant them"
    return Result(text)


def _placed(error: HeadgateError, start: Position, after: int) -> HeadgateError:
    """An error inside the rules, at its place in the script."""
    at = error.position
    if at is None:
        return error
    column = at.column + start.column - 1 + after if at.line == 1 else at.column
    place = Position(start.offset + after + at.offset, start.line + at.line - 1, column)
    return TextError(error.message, position=place, hint=error.hint)


def _check_works(q: Request, policy: r.Policy) -> None:
    if fault := q.policies.fault(policy.name):
        raise Conflict(f"policy {quote(policy.name)} would give nothing: {fault}")
    if q.policies.counted()[policy.name] > MOST_RIGHTS:
        raise Conflict(f"policy {quote(policy.name)} would give more than {MOST_RIGHTS:,} rights")


def _drop(q: Request, x: s.DropPolicy) -> Result:
    q.about(f"policy {quote(x.name.text)}")
    found = q.state.policies.get(x.name.text)
    if found is None or found.owner != q.user:
        q.need_system(Permission.CHANGE_SYSTEM)
    elif q.principal.level != LEAST:
        raise AccessDenied("policies have level U", hint="log in at level U to change them")
    if found is None:
        raise NotFound(f"there is no policy `{x.name.text}`", position=x.name.position)
    drop_policy(q, found)
    return Result(f"policy {quote(found.name)} dropped")


def drop_policy(q: Request, policy: r.Policy) -> None:
    """Drops a policy and what was said to it. One of the same name gets another address: nothing can be used again."""
    for statement in q.state.policy_statements.find("policy", policy.name):
        q.state.policy_statements.remove(statement)
    for number in q.state.policy_numbers.find("policy", policy.name):
        q.state.policy_numbers.remove(number)
    q.state.policies.remove(policy)


def _accept(q: Request, x: s.AcceptStatement) -> Result:
    """Anyone may hand a statement in: who signed it counts, not who brings it. It changes what has level U, so at level
    U only."""
    from headgate.sendlog.packets import DELETE
    from headgate.sendlog.signing import read

    q.about("policy")
    if q.principal.level != LEAST:
        raise AccessDenied("policies have level U", hint="log in at level U to hand statements in")
    try:
        packet = read(x.message)
    except ValueFault as error:
        raise Conflict(error.message, hint=error.hint) from None
    policy = next(iter(q.state.policies.peek("address", packet.header.receiver)), None)
    if policy is None:
        raise NotFound("no policy has the address that this statement is signed for", hint="SHOW POLICIES shows it")
    q.about(f"policy {quote(policy.name)}")
    key = _signer(q, packet)
    _check_new(q, policy, packet, key)
    for place, statement in enumerate(packet.statements):
        _check_wanted(q, policy, packet, statement)
        _take(q, policy, packet, place, key)
    _check_number(q, policy, packet.header.sender)
    if any(statement.op != DELETE for statement in packet.statements):  # taking back is never refused
        _check_works(q, policy)
    said = ", ".join(
        f"{packet.header.sender} {'takes back' if one.op == DELETE else 'says'} {shown_fact(one.name, one.row)}"
        for one in packet.statements
    )
    q.reasons[said] = None
    return Result(f"policy {quote(policy.name)}: {said}")


def _signer(q: Request, packet: Packet) -> str:
    """The speaker's key that signed; the same answer for an unknown speaker, one without keys, a forged signature."""
    from headgate.sendlog.signing import signer

    user = q.state.users.get(packet.header.sender)
    key = signer(packet, user.keys) if user is not None and not user.locked else None
    if key is None:
        raise AccessDenied(f"no key of `{packet.header.sender}` signed this statement")
    return key


def _check_new(q: Request, policy: r.Policy, packet: Packet, key: str) -> None:
    header, last = packet.header, q.state.policy_numbers.get(policy.name, key)
    if last is not None and (header.sender_epoch, header.number) <= (last.epoch, last.number):
        raise Conflict(
            "this statement was handed in before, or one that was signed after it",
            hint="sign it again, with a larger number",
        )
    q.state.policy_numbers.put(r.PolicyNumber(policy.name, key, header.sender_epoch, header.number))


def _check_wanted(q: Request, policy: r.Policy, packet: Packet, one: Statement) -> None:
    from headgate.sendlog.packets import DELETE, INSERT

    if len(packet.statements) > MOST_AT_ONCE:
        raise Conflict(f"at most {MOST_AT_ONCE} statements may be signed together")
    if one.speaker != packet.header.sender:
        raise AccessDenied(f"`{packet.header.sender}` signed this, and cannot speak for `{one.speaker}`")
    if one.op not in (INSERT, DELETE):
        raise Conflict("a policy takes statements and their retractions only")
    wanted = q.policies.predicates(policy.name).get(one.name)
    speaks = wanted is not None and (wanted.speakers is None or one.speaker in wanted.speakers)
    if wanted is None or not speaks or len(one.row) != wanted.arity:
        hint = "its rules say which they read"
        raise Conflict(f"policy {quote(policy.name)} reads no such statement of `{one.speaker}`", hint=hint)


def _take(q: Request, policy: r.Policy, packet: Packet, place: int, key: str) -> None:
    from headgate.sendlog.packets import DELETE

    one = packet.statements[place]
    identity = statement_digest(one.speaker, one.name, one.row)
    known = q.state.policy_statements.get(policy.name, identity)
    if one.op == DELETE:
        if known is not None:
            q.state.policy_statements.remove(known)
        return
    arguments, proof = json.dumps(one.row), json.dumps(packet.proof(place))
    row = r.PolicyStatement(policy.name, identity, one.speaker, one.name, arguments, key, proof, q.now)
    q.state.policy_statements.put(row)


def _check_number(q: Request, policy: r.Policy, speaker: str) -> None:
    """Statements whose lifetime has passed make room."""
    held = [x for x in q.state.policy_statements.find("speaker", speaker) if x.policy == policy.name]
    for x in held:
        if q.policies.until(x) <= q.now:
            q.state.policy_statements.remove(x)
    if len(held) > MOST_STATEMENTS:
        raise Conflict(f"`{speaker}` may not say more than {MOST_STATEMENTS:,} things to a policy")


def forget_speaker(q: Request, user: str, key: str | None = None) -> None:
    """What a user said is gone: all of it, or what one of its keys signed."""
    for x in q.state.policy_statements.find("speaker", user):
        if key is None or x.signer == key:
            q.state.policy_statements.remove(x)


HANDLERS: dict[type[s.Statement], Handler] = {
    s.CreatePolicy: _create,
    s.DropPolicy: _drop,
    s.AcceptStatement: _accept,
}
