"""The inventory of objects, versions and files, and the archive of ended batches and jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "arc_batches",
        sa.Column("bid", sa.String(length=64), nullable=False),
        sa.Column("profile", sa.String(length=255), nullable=False),
        sa.Column("submitter", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("submission", sa.JSON(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("bid", name=op.f("pk_arc_batches")),
    )
    op.create_table(
        "arc_jobs",
        sa.Column("jid", sa.String(length=64), nullable=False),
        sa.Column("bid", sa.String(length=64), nullable=False),
        sa.Column("profile", sa.String(length=255), nullable=False),
        sa.Column("submitter", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("ark", sa.String(length=255), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=True),
        sa.Column("identifiers", sa.JSON(), nullable=False),
        sa.Column("configuration", sa.JSON(), nullable=False),
        sa.Column("history", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("jid", name=op.f("pk_arc_jobs")),
    )
    op.create_index(op.f("ix_arc_jobs_ark"), "arc_jobs", ["ark"])
    op.create_index(op.f("ix_arc_jobs_bid"), "arc_jobs", ["bid"])
    op.create_table(
        "inv_collections",
        sa.Column("id", KEY, nullable=False),
        sa.Column("ark", sa.String(length=255), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("mnemonic", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inv_collections")),
        sa.UniqueConstraint("ark", name=op.f("uq_inv_collections_ark")),
    )
    op.create_table(
        "inv_localids",
        sa.Column("id", KEY, nullable=False),
        sa.Column("inv_object_ark", sa.String(length=255), nullable=False),
        sa.Column("inv_owner_ark", sa.String(length=255), nullable=False),
        sa.Column("local_id", sa.String(length=255), nullable=False),
        sa.Column("created", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inv_localids")),
        sa.UniqueConstraint("inv_owner_ark", "local_id", name=op.f("uq_inv_localids_inv_owner_ark_local_id")),
    )
    op.create_index(op.f("ix_inv_localids_inv_object_ark"), "inv_localids", ["inv_object_ark"])
    op.create_table(
        "inv_owners",
        sa.Column("id", KEY, nullable=False),
        sa.Column("ark", sa.String(length=255), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inv_owners")),
        sa.UniqueConstraint("ark", name=op.f("uq_inv_owners_ark")),
    )
    op.create_table(
        "inv_objects",
        sa.Column("id", KEY, nullable=False),
        sa.Column("inv_owner_id", KEY, nullable=False),
        sa.Column("ark", sa.String(length=255), nullable=False),
        sa.Column("object_type", sa.String(length=32), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("aggregate_role", sa.String(length=64), nullable=False),
        sa.Column("version_number", sa.Integer(), nullable=False),
        sa.Column("erc_who", sa.Text(), nullable=False),
        sa.Column("erc_what", sa.Text(), nullable=False),
        sa.Column("erc_when", sa.Text(), nullable=False),
        sa.Column("erc_where", sa.Text(), nullable=False),
        sa.Column("created", TIME, nullable=False),
        sa.Column("modified", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["inv_owner_id"], ["inv_owners.id"], name=op.f("fk_inv_objects_inv_owner_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inv_objects")),
        sa.UniqueConstraint("ark", name=op.f("uq_inv_objects_ark")),
    )
    op.create_index(op.f("ix_inv_objects_inv_owner_id"), "inv_objects", ["inv_owner_id"])
    op.create_table(
        "inv_collections_inv_objects",
        sa.Column("inv_collection_id", KEY, nullable=False),
        sa.Column("inv_object_id", KEY, nullable=False),
        sa.ForeignKeyConstraint(
            ["inv_collection_id"],
            ["inv_collections.id"],
            name=op.f("fk_inv_collections_inv_objects_inv_collection_id"),
        ),
        sa.ForeignKeyConstraint(
            ["inv_object_id"], ["inv_objects.id"], name=op.f("fk_inv_collections_inv_objects_inv_object_id")
        ),
        sa.PrimaryKeyConstraint(
            "inv_collection_id", "inv_object_id", name=op.f("pk_inv_collections_inv_objects")
        ),
    )
    op.create_index(
        op.f("ix_inv_collections_inv_objects_inv_object_id"), "inv_collections_inv_objects", ["inv_object_id"]
    )
    op.create_table(
        "inv_versions",
        sa.Column("id", KEY, nullable=False),
        sa.Column("inv_object_id", KEY, nullable=False),
        sa.Column("ark", sa.String(length=255), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["inv_object_id"], ["inv_objects.id"], name=op.f("fk_inv_versions_inv_object_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inv_versions")),
        sa.UniqueConstraint("inv_object_id", "number", name=op.f("uq_inv_versions_inv_object_id_number")),
    )
    op.create_table(
        "inv_dublinkernels",
        sa.Column("id", KEY, nullable=False),
        sa.Column("inv_object_id", KEY, nullable=False),
        sa.Column("inv_version_id", KEY, nullable=False),
        sa.Column("seq_num", sa.Integer(), nullable=False),
        sa.Column("element", sa.String(length=32), nullable=False),
        sa.Column("qualifier", sa.String(length=32), nullable=True),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["inv_object_id"], ["inv_objects.id"], name=op.f("fk_inv_dublinkernels_inv_object_id")
        ),
        sa.ForeignKeyConstraint(
            ["inv_version_id"], ["inv_versions.id"], name=op.f("fk_inv_dublinkernels_inv_version_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inv_dublinkernels")),
    )
    op.create_index(op.f("ix_inv_dublinkernels_inv_version_id"), "inv_dublinkernels", ["inv_version_id"])
    op.create_table(
        "inv_files",
        sa.Column("id", KEY, nullable=False),
        sa.Column("inv_object_id", KEY, nullable=False),
        sa.Column("inv_version_id", KEY, nullable=False),
        sa.Column("pathname", sa.Text(), nullable=False),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("full_size", sa.BigInteger(), nullable=False),
        sa.Column("billable_size", sa.BigInteger(), nullable=False),
        sa.Column("mime_type", sa.Text(), nullable=False),
        sa.Column("digest_type", sa.String(length=16), nullable=False),
        sa.Column("digest_value", sa.String(length=128), nullable=False),
        sa.Column("created", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["inv_object_id"], ["inv_objects.id"], name=op.f("fk_inv_files_inv_object_id")
        ),
        sa.ForeignKeyConstraint(
            ["inv_version_id"], ["inv_versions.id"], name=op.f("fk_inv_files_inv_version_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inv_files")),
    )
    op.create_index(op.f("ix_inv_files_inv_version_id"), "inv_files", ["inv_version_id"])
    op.create_table(
        "inv_ingests",
        sa.Column("id", KEY, nullable=False),
        sa.Column("inv_object_id", KEY, nullable=False),
        sa.Column("inv_version_id", KEY, nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("ingest_type", sa.String(length=64), nullable=False),
        sa.Column("profile", sa.String(length=255), nullable=False),
        sa.Column("batch_id", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=64), nullable=False),
        sa.Column("user_agent", sa.Text(), nullable=False),
        sa.Column("submitted", TIME, nullable=False),
        sa.Column("storage_url", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["inv_object_id"], ["inv_objects.id"], name=op.f("fk_inv_ingests_inv_object_id")
        ),
        sa.ForeignKeyConstraint(
            ["inv_version_id"], ["inv_versions.id"], name=op.f("fk_inv_ingests_inv_version_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inv_ingests")),
        sa.UniqueConstraint("inv_version_id", name=op.f("uq_inv_ingests_inv_version_id")),
        sa.UniqueConstraint("job_id", name=op.f("uq_inv_ingests_job_id")),
    )
    op.create_index(op.f("ix_inv_ingests_batch_id"), "inv_ingests", ["batch_id"])
    op.create_index(op.f("ix_inv_ingests_inv_object_id"), "inv_ingests", ["inv_object_id"])


def downgrade() -> None:
    raise NotImplementedError("going back would lose what the inventory holds: restore a copy instead")
