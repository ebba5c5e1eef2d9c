"""The fleet: health, workers, hosts, working storage."""
