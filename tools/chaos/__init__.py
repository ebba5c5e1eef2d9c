"""Faults on schedule against a whole repository, and an independent look at what became of every object."""
