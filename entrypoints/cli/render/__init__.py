"""Text for people, rendered from the results of operations."""
