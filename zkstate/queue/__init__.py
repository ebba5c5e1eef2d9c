"""The order of work: the queue, fairness, recovery of what lost its worker, lists."""
