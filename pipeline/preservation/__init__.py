"""Objects after their ingest: the proof of their custody, the fixity schedule, and their export."""
