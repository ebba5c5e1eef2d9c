"""Alembic's revisions of the schema; `pipeline.inventory.database` applies them."""
