"""Leases: who publishes results at this moment."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("holder", sa.Text, primary_key=True),
        sa.Column("expires", sa.Double, nullable=False),
    )
