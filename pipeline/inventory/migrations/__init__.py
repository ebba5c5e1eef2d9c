"""Alembic's revisions of the schema; `pipeline.inventory.schema` applies them."""
