"""Subscriptions belong to users, not to sessions; wrong passwords are counted by the place they come from.

Users take over the subscriptions of their sessions, at the same level. Where several sessions of a user at one level
had subscribed to the same stream, one subscription remains, with the roles of the session used last.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_OLD = sa.text(
    'SELECT s."user", s.level, s.roles, x.stream FROM subscriptions x JOIN sessions s ON s.token_hash = x.session '
    "ORDER BY s.last_used, s.token_hash, x.stream"
)


def _reference(column: str) -> sa.ForeignKey:
    return sa.ForeignKey(column, deferrable=True, initially="DEFERRED")


def upgrade() -> None:
    connection = op.get_bind()
    kept = {(row.user, row.level, row.stream): row.roles for row in connection.execute(_OLD)}
    op.drop_table("subscriptions")
    subscriptions = op.create_table(
        "subscriptions",
        sa.Column("user", sa.Text, _reference("users.name"), primary_key=True),
        sa.Column("level", sa.Text, primary_key=True),
        sa.Column("stream", sa.Integer, _reference("objects.id"), primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("roles", sa.Text, nullable=False),
    )
    if kept:
        first = connection.execute(sa.text("SELECT next_object FROM head")).scalar_one()
        rows = [
            {"user": user, "level": level, "stream": stream, "number": first + number, "roles": roles}
            for number, ((user, level, stream), roles) in enumerate(sorted(kept.items()))
        ]
        op.bulk_insert(subscriptions, rows)
        connection.execute(sa.text("UPDATE head SET next_object = :next"), {"next": first + len(rows)})
    op.create_table(
        "login_sources",
        sa.Column("user", sa.Text, _reference("users.name"), primary_key=True),
        sa.Column("source", sa.Text, primary_key=True),
        sa.Column("last_used", sa.Double, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("locked_until", sa.Double, nullable=False),
    )
