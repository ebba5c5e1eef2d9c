"""Collection profiles, their snapshots and their quotas."""
