"""Each state's work as a Celery task, and the timed work that keeps the promise."""
