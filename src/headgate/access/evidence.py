"""Proofs for the audit trail: why a policy gave a right, kept under the digest that an audit record names.

The trail is sealed, so a proof that was altered afterwards no longer has its name. It holds the signatures of all
statements that it rests on, so it can be checked when the statements, the keys and the policy are gone.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.access.policies import Policies
from headgate.access.policy_rights import Basis
from headgate.access.state import State
from headgate.errors import Conflict
from headgate.lexing import quote
from headgate.sendlog.values import Row, ValueFault

if TYPE_CHECKING:
    from headgate.sendlog.provenance import Tree

NAMED = 32
"""How many digits of a digest an audit record names: 128 bits."""


@dataclass(frozen=True)
class Evidence:
    """A kept proof, read back: the tree with every signature checked, and the rules by which it was derived."""

    policy: str
    tree: Tree
    rules: str


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def statement_digest(speaker: str, predicate: str, row: Row) -> str:
    return digest(json.dumps([speaker, predicate, row]))


def proof_text(state: State, policies: Policies, basis: Basis) -> str | None:
    """The proof of what a right rests on, as it is kept; None if there is none."""
    policy, engine = state.policies.get(basis.policy), policies.engine(basis.policy)
    steps = engine.proof(basis.name, basis.row) if engine is not None else []
    if policy is None or not steps:
        return None
    said: dict[str, Any] = {}
    for place, step in enumerate(steps):
        if step.said:
            key = statement_digest(str(step.row[0]), step.name, step.row[1:])
            found = state.policy_statements.get(policy.name, key)
            if found is not None:
                said[str(place)] = [json.loads(found.proof), found.signer]
    content = {
        "policy": policy.name,
        "address": policy.address,
        "rules": digest(policy.rules),
        "steps": [step.listed() for step in steps],
        "said": said,
    }
    return json.dumps(content, sort_keys=True)


def read_proof(name: str, text: str) -> tuple[Tree, dict[str, Any]]:
    """A kept proof as a tree, each signature verified by the key that was registered then."""
    from headgate.sendlog.proofs import Step, as_tree
    from headgate.sendlog.signing import verified

    if digest(text) != name:
        raise Conflict("this proof was altered: it does not have the digest that names it")
    try:
        content = json.loads(text)
        steps = [Step.of(one) for one in content["steps"]]
        checked = {}
        for place, (proof, key) in content["said"].items():
            step = steps[int(place)]
            fact = (step.name, step.row[1:])
            checked[int(place)] = verified(proof, key, content["address"], str(step.row[0]), fact)
        return as_tree(steps, content["policy"], checked), content
    except (KeyError, ValueError, TypeError, IndexError, ValueFault):
        raise Conflict(
            "this is not a proof", hint="a proof is named in an audit record after the word `proof`"
        ) from None


def action_of(basis: Basis, *, given: bool) -> str:
    """What a policy gave or took, as the audit trail names it; what it is about stands beside it."""
    verb, preposition = ("GRANT", "TO") if given else ("REVOKE", "FROM")
    match basis.name, basis.row:
        case "plays", (user, _):
            what = f"ROLES {preposition} {quote(user)}"
        case "may_access", (role, permission, _):
            what = f"{permission} {preposition} {quote(role)}"
        case _:
            what = f"CLEARANCE {basis.row[-1]}"
    return f"{verb} {what} BY POLICY {quote(basis.policy)}"
