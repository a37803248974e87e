"""The index of audit records by object omits actions of owners on their own objects: those are found by user."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_BY_OTHERS = sa.text(
    """substr(ltrim("object", 'abcdefghijklmnopqrstuvwxyz'), 2, length("user") + 1) <> "user" || '.'"""
)


def upgrade() -> None:
    op.drop_index("audit_by_object", "audit")
    op.create_index("audit_by_object", "audit", ["object"], sqlite_where=_BY_OTHERS, postgresql_where=_BY_OTHERS)
