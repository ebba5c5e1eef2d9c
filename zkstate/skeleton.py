"""The folders that the record has from its first moment on."""

from kazoo.client import KazooClient

from zkstate import paths


def create_skeleton(client: KazooClient, root: str, seconds: float) -> None:
    """Create what is missing below `root`, which the client works below from now on."""
    root = root.rstrip("/")
    if root:
        client.ensure_path_async(root).get(timeout=seconds)
        client.chroot = root
    there = [client.exists_async(path) for path in paths.SKELETON]
    for path, flight in zip(paths.SKELETON, there, strict=True):
        if flight.get(timeout=seconds) is None:
            client.ensure_path_async(path).get(timeout=seconds)
