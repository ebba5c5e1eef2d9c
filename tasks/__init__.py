"""Celery tasks: the work of each state, and the scheduled work that completes what was interrupted."""
