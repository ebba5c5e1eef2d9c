"""`./dev demo`: ingest a sample collection through the real stack, by the commands that people type."""
