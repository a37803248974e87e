"""The security core: catalog, sessions, audit trail, numbering."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _reference(column: str) -> sa.ForeignKey:
    return sa.ForeignKey(column, deferrable=True, initially="DEFERRED")


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("password", sa.Text, nullable=False),
        sa.Column("clearance", sa.Text, nullable=False),
        sa.Column("since", sa.Integer, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("refused", sa.Integer, nullable=False),
        sa.Column("locked_until", sa.Double, nullable=False),
        sa.Column("locked", sa.Boolean, nullable=False),
        sa.Column("keys", sa.Text, nullable=False),
    )
    op.create_table(
        "roles",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("max_queries", sa.Integer),
    )
    op.create_table(
        "memberships",
        sa.Column("user", sa.Text, _reference("users.name"), primary_key=True),
        sa.Column("role", sa.Text, _reference("roles.name"), primary_key=True),
    )
    op.create_table(
        "inheritances",
        sa.Column("senior", sa.Text, _reference("roles.name"), primary_key=True),
        sa.Column("junior", sa.Text, _reference("roles.name"), primary_key=True),
    )
    op.create_table(
        "separations",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("dynamic", sa.Boolean, nullable=False),
        sa.Column("roles", sa.Text, nullable=False),
        sa.Column("at_most", sa.Integer, nullable=False),
    )
    op.create_table(
        "levels",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("above", sa.Text, nullable=False),
        sa.Column("retired", sa.Boolean, nullable=False),
    )
    op.create_table(
        "source_names", sa.Column("name", sa.Text, primary_key=True), sa.Column("used", sa.Integer, nullable=False)
    )
    op.create_table("compartments", sa.Column("name", sa.Text, primary_key=True))
    op.create_table(
        "objects",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.UniqueConstraint("kind", "owner", "level", "name"),
    )
    op.create_table(
        "grants",
        sa.Column("object", sa.Integer, _reference("objects.id"), primary_key=True),
        sa.Column("permission", sa.Text, primary_key=True),
        sa.Column("role", sa.Text, _reference("roles.name"), primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("limits", sa.Text, nullable=False),
        sa.Column("grantor", sa.Text, nullable=False),
    )
    op.create_index("grants_by_role", "grants", ["role"])
    op.create_table(
        "sessions",
        sa.Column("token_hash", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("user", sa.Text, _reference("users.name"), nullable=False),
        sa.Column("roles", sa.Text, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("last_used", sa.Double, nullable=False),
        sa.Column("expires", sa.Double, nullable=False),
    )
    op.create_table(
        "parameters", sa.Column("name", sa.Text, primary_key=True), sa.Column("value", sa.Text, nullable=False)
    )
    op.create_table(
        "head",
        sa.Column("one", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("next_object", sa.Integer, nullable=False),
        sa.Column("audit_count", sa.Integer, nullable=False),
        sa.Column("audit_mac", sa.Text, nullable=False),
        sa.Column("audit_seal", sa.Text, nullable=False),
    )
    op.create_table(
        "change_log",
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("item", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("table", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("row", sa.Text),
    )
    op.create_table(
        "audit",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("session", sa.Text, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("object", sa.Text, nullable=False),
        sa.Column("granted", sa.Boolean().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("mac", sa.Text, nullable=False),
    )
    op.create_index("audit_by_level", "audit", ["level"])
    op.create_index("audit_by_user", "audit", ["user"])
    op.create_index("audit_by_object", "audit", ["object"])
    op.create_table(
        "numbering",
        sa.Column("space", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.UniqueConstraint("space", "digest"),
    )
    _make_append_only("audit")


def _make_append_only(table: str) -> None:
    """The database itself refuses changes and removals of written rows."""
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
        op.execute(  # REPLACE does not count as DELETE
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} "  # noqa: S608
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE number = NEW.number) "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )
        return
    op.execute(
        f"CREATE FUNCTION {table}_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{table} is append-only'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_is_append_only()"
    )


def downgrade() -> None:
    raise RuntimeError("the first version has nothing before it")
