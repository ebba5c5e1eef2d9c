"""Stored objects: custody, fixity, export."""
