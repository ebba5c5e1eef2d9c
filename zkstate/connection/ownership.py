"""Which nodes are of the record: another application may have others at the same root, and in its folders.

Rule: a backup copies no node of another, and a restore deletes none.
"""

import re
from collections.abc import Iterable
from contextlib import suppress

from kazoo.exceptions import NoNodeError, NotEmptyError

from zkstate import paths
from zkstate.connection.session import Session

_NAMES = {
    paths.BATCHES: "bid[0-9]{10,}",
    paths.OPEN_BATCHES: "bid[0-9]{10,}",
    paths.JOBS: f"{paths.JID}|states",
    paths.WAITING: paths.JID,
    paths.CALLBACKS: f"{paths.JID}-[0-9]+",
    "/locks": "queue|collections|drains|hosts|leader|single-flight|localid|storage",
    "/locks/queue": "ingest",
    "/space": "working|marked",
    "/actions": "queue|collections",
    "/ids": r"batch|job|ark-\S+",
    "/submission-keys": "[0-9a-f]{64}",
}
"""Folder -> the names that the record gives there; all names are of the record in other folders."""


def owned(folder: str, names: Iterable[str]) -> list[str]:
    """Those of the names in a folder of the record that are the record's own, sorted."""
    pattern = re.compile(_NAMES.get(folder, ".*"))
    return sorted(name for name in names if pattern.fullmatch(name))


def children(session: Session, folder: str) -> list[str]:
    """The record's own nodes in a folder, sorted."""
    return owned(folder, session.children(folder))


def delete_record(session: Session) -> None:
    """Delete every node of the record; the deployment id first, so that no process works on the rest."""
    for path in (paths.DEPLOYMENT, *paths.TOP):
        for name in children(session, path):
            with suppress(NoNodeError):
                session.zk.delete(f"{path}/{name}", recursive=True)
        # a folder with nodes of others stays
        with suppress(NoNodeError, NotEmptyError):
            session.zk.delete(path)
