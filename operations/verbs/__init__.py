"""What an operator does to jobs, batches and the fleet."""
