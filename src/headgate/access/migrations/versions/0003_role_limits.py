"""Roles limit the state and the results of their holders' queries."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("roles", sa.Column("max_state", sa.Integer))
    op.add_column("roles", sa.Column("max_results", sa.Integer))
