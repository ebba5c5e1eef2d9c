"""The time at which a version was entered, and events of one version."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("inv_ingests", sa.Column("recorded", sa.DateTime(timezone=True), nullable=True))
    op.add_column("inv_events", sa.Column("version", sa.Integer(), nullable=True))
    op.add_column("inv_events", sa.Column("note", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    raise NotImplementedError("going back would lose what the inventory holds: restore a copy instead")
