"""Containers: unpacked within limits, and checked against their own declarations."""
