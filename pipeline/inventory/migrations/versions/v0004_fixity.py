"""The fixity schedule: the last proof of each object, unfinished readings, and events of preservation."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True)


def _of_objects(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["inv_object_id"], ["inv_objects.id"], name=op.f(f"fk_{table}_inv_object_id")
    )


def upgrade() -> None:
    op.create_table(
        "inv_fixities",
        sa.Column("inv_object_id", KEY, nullable=False, autoincrement=False),
        sa.Column("profile", sa.String(length=255), nullable=False),
        sa.Column("since", TIME, nullable=False),
        sa.Column("checked", TIME, nullable=True),
        sa.Column("proved", TIME, nullable=True),
        sa.Column("versions", sa.Integer(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("damaged", sa.Integer(), nullable=False),
        _of_objects("inv_fixities"),
        sa.PrimaryKeyConstraint("inv_object_id", name=op.f("pk_inv_fixities")),
    )
    op.create_index(op.f("ix_inv_fixities_profile_since"), "inv_fixities", ["profile", "since"])
    op.create_index(op.f("ix_inv_fixities_damaged"), "inv_fixities", ["damaged"])
    op.create_table(
        "inv_fixity_reads",
        sa.Column("id", KEY, nullable=False),
        sa.Column("inv_object_id", KEY, nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("sha512", sa.String(length=128), nullable=True),
        sa.Column("problem", sa.Text(), nullable=False),
        _of_objects("inv_fixity_reads"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inv_fixity_reads")),
    )
    op.create_index(op.f("ix_inv_fixity_reads_inv_object_id"), "inv_fixity_reads", ["inv_object_id"])
    op.create_table(
        "inv_events",
        sa.Column("id", KEY, nullable=False),
        sa.Column("inv_object_id", KEY, nullable=False),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("damaged", sa.Integer(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("reported", TIME, nullable=True),
        _of_objects("inv_events"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inv_events")),
    )
    op.create_index(op.f("ix_inv_events_inv_object_id"), "inv_events", ["inv_object_id"])
    op.create_index(op.f("ix_inv_events_reported"), "inv_events", ["reported"])


def downgrade() -> None:
    raise NotImplementedError("going back would lose what the inventory holds: restore a copy instead")
