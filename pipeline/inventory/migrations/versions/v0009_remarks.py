"""What the depositor of an archived job should check."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("arc_jobs", sa.Column("remark", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    raise NotImplementedError("going back would lose what the inventory holds: restore a copy instead")
