"""Containers: unpacked within limits, and checked against what they declare of themselves."""
