"""State that the whole fleet shares besides jobs: holds, outages, host limits, counters, the leader."""
