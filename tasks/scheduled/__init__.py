"""What beat has done at intervals: held jobs, checks, fixity, the inventory, notifications."""
