"""The database's schema: its revision, and bringing it up to this release's."""

from sqlalchemy import Connection, Engine, inspect, text

from pipeline.inventory.engines import WRITING
from pipeline.outcome import system

HEAD = "0002"
"""The newest revision in `migrations/versions`; here, so that comparing does not load Alembic."""

_UPGRADE_LOCK = 0x61726B6C696E65
"""PostgreSQL's advisory locks are numbers shared by a whole database; this one spells `arkline`."""


def revision(connection: Connection) -> str | None:
    """The revision that the database has; None if it is empty."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return None if found is None else str(found)


def bring_up_to_date(engine: Engine, name: str) -> None:
    """Upgrade the schema unless it is current; of many that start at once one upgrades and the others wait.

    The upgrade is one transaction on both databases, so that a crash in it leaves the old schema.
    """
    with engine.connect() as connection:
        if revision(connection) == HEAD:
            return
    if engine.dialect.name == "sqlite":
        _let_readers_read(engine)
    with engine.connect().execution_options(**{WRITING: True}) as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        if revision(connection) != HEAD:
            _upgrade(connection, name)


def _let_readers_read(engine: Engine) -> None:
    """Write-ahead logging, a property of the file: readers do not wait for the writer, nor it for them."""
    connection = engine.raw_connection()
    try:
        connection.cursor().execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


def _upgrade(connection: Connection, name: str) -> None:
    # loaded here only: it costs every worker's start more than all else in this package
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", "pipeline.inventory:migrations")
    config.attributes["connection"] = connection
    before = revision(connection)
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise system(
            f"the inventory {name} has schema {before}, which this release does not know "
            f"(its own is {HEAD}): run a release of arkline that is at least as new as the database"
        ) from error
