"""The ingest itself: states, records, formats and steps, with no ZooKeeper, Celery or web in it."""
