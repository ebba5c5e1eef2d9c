"""The reports of each batch, exactly as they were sent."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "arc_reports",
        sa.Column("bid", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("bid", "number", name=op.f("pk_arc_reports")),
    )


def downgrade() -> None:
    raise NotImplementedError("going back would lose what the inventory holds: restore a copy instead")
