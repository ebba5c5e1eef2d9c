"""How each file arrived, and when it was read back: what earlier releases recorded stays without."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("inv_files", sa.Column("landed_digest", sa.String(length=128), nullable=True))
    op.add_column("inv_files", sa.Column("source_digest", sa.String(length=160), nullable=True))
    op.add_column("inv_files", sa.Column("source_declared_by", sa.Text(), nullable=True))
    op.add_column("inv_files", sa.Column("source_container", sa.Text(), nullable=True))
    op.add_column("inv_files", sa.Column("source_url", sa.Text(), nullable=True))
    op.add_column("inv_ingests", sa.Column("landed", TIME, nullable=True))
    op.add_column("inv_ingests", sa.Column("verified", TIME, nullable=True))


def downgrade() -> None:
    raise NotImplementedError("going back would lose what the inventory holds: restore a copy instead")
