"""Alembic's entry: migrates the connection that `pipeline.inventory.database` hands over."""

from alembic import context

from pipeline.inventory.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
