"""What the whole fleet shares beside jobs: holds, outages, limits of hosts, counters, the leader."""
