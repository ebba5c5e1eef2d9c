"""Logins of programs that wait for a person's answer (RFC 8628): `/device-logins/KEY`.

The id is the SHA-256 of the device code, which only the program has. An answer is final, and is kept until
the login is removed, so that the program may ask for it again.
"""

from datetime import datetime
from functools import partial

from kazoo.exceptions import NoNodeError

from pipeline import codes
from pipeline.errors import ArklineError
from pipeline.records import RewrittenRecord
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.connection.transaction import Create, Put, Role, commit
from zkstate.record.node import Node, read_each, uncontended

SECONDS = 600
"""Seconds within which a login has to be answered."""

KEPT_MS = 2 * SECONDS * 1000
"""Milliseconds after which a login is removed: longer than SECONDS, as the clocks of hosts may differ."""

MOST = 500
OF_ADDRESS = 50
"""Maximum logins that are kept, of the site and of one client address."""


class DeviceLogin(RewrittenRecord):
    user_code: str
    """The SHA-256 of the code that the person enters."""
    token: str
    """The SHA-256 of the token that the program will have."""
    host: str
    """The name of its machine, as the program says."""
    address: str
    expires: datetime
    allowed: bool | None = None
    """The person's answer; None: there is none yet."""
    by: str = ""


def _node(name: str) -> Node[DeviceLogin]:
    return Node(paths.device_login(name), DeviceLogin)


def begin(session: Session, name: str, login: DeviceLogin) -> None:
    """Enter the login; `too-many-logins` at a limit."""

    def entered() -> None:
        _, folder = session.get(paths.DEVICE_LOGINS)
        of_address = sum(known.address == login.address for known in _all(session).values())
        if folder.numChildren >= MOST or of_address >= OF_ADDRESS:
            raise ArklineError(
                "too many logins wait for an answer, or were answered just now: try again in some minutes",
                code=codes.TOO_MANY_LOGINS,
            )
        counted = Put(paths.DEVICE_LOGINS, b"", folder.version, Role.SHARED)
        commit(session, [counted, Create(paths.device_login(name), codec.encode(login))])

    session.ensure_node(paths.DEVICE_LOGINS)
    uncontended(entered)


def _all(session: Session) -> dict[str, DeviceLogin]:
    names = session.children(paths.DEVICE_LOGINS)
    nodes = read_each(session, names, paths.device_login, partial(codec.decode, DeviceLogin))
    return {name: login for name, login, _ in nodes}


def find(session: Session, name: str) -> DeviceLogin | None:
    return _node(name).readable(session)


def with_code(session: Session, user_code: str) -> tuple[str, DeviceLogin] | None:
    return next((one for one in _all(session).items() if one[1].user_code == user_code), None)


def answer(session: Session, name: str, by: str, *, allowed: bool) -> DeviceLogin:
    """Enter the answer; returns the login with the first answer that was given."""
    return _node(name).change(
        session,
        lambda login: (
            login if login.allowed is not None else login.model_copy(update={"allowed": allowed, "by": by})
        ),
    )


def remove_old(session: Session, now_ms: float) -> None:
    """Remove what nobody can answer or ask for any more; `now_ms`: by ZooKeeper's clock."""
    names = session.children(paths.DEVICE_LOGINS)
    stats = session.exists_many([paths.device_login(name) for name in names])
    for name, stat in zip(names, stats, strict=True):
        if stat is not None and now_ms - stat.ctime > KEPT_MS:
            try:
                session.ask(session.zk.delete_async, paths.device_login(name))
            except NoNodeError:
                continue  # removed by another process
