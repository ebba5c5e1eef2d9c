"""The note in the record that the folder of uploads was marked: without its mark it is not mounted."""

from zkstate import paths
from zkstate.session import Session


def was_marked(session: Session) -> bool:
    return session.exists(paths.UPLOADS_MARKED) is not None


def note_marked(session: Session) -> None:
    session.ensure_node(paths.UPLOADS_MARKED, b"")
