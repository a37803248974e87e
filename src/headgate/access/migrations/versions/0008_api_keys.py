"""API keys: sessions that have a name and do not become idle."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("name", sa.Text, nullable=False, server_default=sa.text("''")))
