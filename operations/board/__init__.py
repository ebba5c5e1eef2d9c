"""The read model: all jobs, batches and stops in the memory of one process, for lists, counts and streams.

It answers without ZooKeeper and can be thrown away at any time. Verbs, and the page of one job or one batch,
read ZooKeeper itself.
"""
