"""The deployment id, the key of each job, and the job of each minted ARK; earlier entries have no key."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "deployment",
        sa.Column("row", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("created", TIME, nullable=False),
        sa.Column("mark", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("row", name=op.f("pk_deployment")),
    )
    op.create_table(
        "minted_arks",
        sa.Column("ark", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("job_key", sa.String(length=32), nullable=False),
        sa.Column("created", TIME, nullable=False),
        sa.PrimaryKeyConstraint("ark", name=op.f("pk_minted_arks")),
    )
    op.create_index(op.f("ix_minted_arks_job_id"), "minted_arks", ["job_id"])
    op.add_column("inv_ingests", sa.Column("job_key", sa.String(length=32), nullable=True))


def downgrade() -> None:
    raise NotImplementedError("going back would lose what the inventory holds: restore a copy instead")
