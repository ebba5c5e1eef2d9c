"""The ingest itself: states, records, formats and steps, without ZooKeeper, Celery or web code."""
