"""Checkm manifests, and the split of a payload into jobs."""
