"""ZooKeeper as the record: the only package that speaks to it, and the only place a state changes."""
