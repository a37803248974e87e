"""Continuous queries: who subscribed to what."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def _reference(column: str) -> sa.ForeignKey:
    return sa.ForeignKey(column, deferrable=True, initially="DEFERRED")


def upgrade() -> None:
    op.create_table(
        "subscriptions",
        sa.Column("session", sa.Text, _reference("sessions.token_hash"), primary_key=True),
        sa.Column("stream", sa.Integer, _reference("objects.id"), primary_key=True),
    )
