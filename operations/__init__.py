"""The verbs, once: what the command line and the API do, each in one function.

A function here opens nothing: it is given the session, and the clients that it needs. Modules that take
long to load (Celery, SQLAlchemy) are imported inside the functions that need them, so that a command
that only reads ZooKeeper starts fast.
"""
