"""Storage of objects: one Protocol, and a package per kind of storage."""
