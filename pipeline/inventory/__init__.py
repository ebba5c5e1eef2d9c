"""The inventory and the archive of ended work in an SQL database: SQLite or PostgreSQL."""
