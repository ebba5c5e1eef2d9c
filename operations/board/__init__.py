"""The read model: all jobs, batches and stops in one process's memory, for lists, counts and streams.

It answers without ZooKeeper and can be discarded at any time. Verbs, and the page of one job or one batch,
read ZooKeeper itself.
"""
