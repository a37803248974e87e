"""Policies: their rules, what was said to them, and the proofs that audit records name."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def _reference(column: str) -> sa.ForeignKey:
    return sa.ForeignKey(column, deferrable=True, initially="DEFERRED")


def upgrade() -> None:
    op.create_table(
        "policies",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, _reference("users.name"), nullable=False),
        sa.Column("address", sa.Text, nullable=False, unique=True),
        sa.Column("roles", sa.Text, nullable=False),
        sa.Column("rules", sa.Text, nullable=False),
    )
    op.create_table(
        "policy_statements",
        sa.Column("policy", sa.Text, _reference("policies.name"), primary_key=True),
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("speaker", sa.Text, _reference("users.name"), nullable=False),
        sa.Column("predicate", sa.Text, nullable=False),
        sa.Column("arguments", sa.Text, nullable=False),
        sa.Column("signer", sa.Text, nullable=False),
        sa.Column("proof", sa.Text, nullable=False),
        sa.Column("accepted", sa.Double, nullable=False),
    )
    op.create_table(
        "policy_numbers",
        sa.Column("policy", sa.Text, _reference("policies.name"), primary_key=True),
        sa.Column("signer", sa.Text, primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "proofs", sa.Column("digest", sa.Text, primary_key=True), sa.Column("text", sa.Text, nullable=False)
    )
