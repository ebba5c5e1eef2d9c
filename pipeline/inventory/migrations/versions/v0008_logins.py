"""Logins of people at the pages."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "logins",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("credential", sa.Text(), nullable=False),
        sa.Column("ends", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_logins")),
    )
    op.create_index(op.f("ix_logins_name"), "logins", ["name"])


def downgrade() -> None:
    raise NotImplementedError("going back would lose what the inventory holds: restore a copy instead")
