"""The order of work: the queue, fairness, recovery after a lost worker, lists."""
