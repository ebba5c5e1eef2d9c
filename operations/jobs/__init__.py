"""Jobs and batches as people see them."""
