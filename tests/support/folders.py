"""What the folder of a test says: its markers, and the servers that its tests may start."""

from collections.abc import Collection

MARKERS = {"integration": ("integration",), "e2e": ("e2e", "integration")}
"""Folder below tests/ -> the markers of its tests."""

SERVERS = frozenset({"zookeeper", "redis_server"})
"""The fixtures that start ZooKeeper and Redis."""


def refusal(folder: str, fixtures: Collection[str]) -> str:
    """Why a test with these fixtures must not be in this folder; empty if it may."""
    started = sorted(SERVERS.intersection(fixtures))
    if folder in MARKERS or not started:
        return ""
    return f"uses the fixture {' and '.join(started)}: move it to tests/integration"
