"""The record as a stream of changes: which folders show them, and what the folders contain now."""
