"""What an ingest is: states, records, formats and steps, with no ZooKeeper, Celery or web in it."""
