"""Checkm manifests, and the jobs that a payload means."""
