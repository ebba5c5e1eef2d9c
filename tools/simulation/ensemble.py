"""ZooKeeper's tree and its sessions, as the servers of one ensemble keep them.

A transaction is applied by the leader at once, and by a follower when that follower's turn comes: its reads
may be old, and its watches late. Errors, versions, access and the order of watches are those of ZooKeeper 3.8
and 3.9; `tests/integration/test_simulated_zookeeper.py` compares them with real servers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    ZookeeperError,
)
from kazoo.protocol.connection import CHANGED_EVENT, CHILD_EVENT, CREATED_EVENT, DELETED_EVENT
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, Permissions

EPHEMERAL, SEQUENCE = 1, 2
"""Flags of a request to create a node."""


Access: TypeAlias = tuple[ACL, ...]

OPEN: Access = tuple(OPEN_ACL_UNSAFE)


@dataclass(frozen=True)
class Create:
    path: str
    data: bytes
    flags: int = 0
    access: Access = OPEN


@dataclass(frozen=True)
class Put:
    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True)
class Delete:
    path: str
    version: int = -1


@dataclass(frozen=True)
class Check:
    path: str
    version: int


@dataclass(frozen=True)
class CloseSession:
    """The end of a session, by its client or because it expired."""


Change: TypeAlias = Create | Put | Delete | Check | CloseSession
Result: TypeAlias = str | ZnodeStat | bool | ZookeeperError


@dataclass
class Node:
    data: bytes
    created: int
    """The zxid of the creation."""
    created_at: int
    owner: int = 0
    """The session of an ephemeral node."""
    changed: int = 0
    changed_at: int = 0
    version: int = 0
    creations: int = 0
    """How many children were ever created."""
    children_changed: int = 0
    children: dict[str, None] = field(default_factory=dict)
    access: Access = OPEN

    def stat(self) -> ZnodeStat:
        return ZnodeStat(
            self.created,
            self.changed,
            self.created_at,
            self.changed_at,
            self.version,
            # the server keeps creations, and shows creations and deletions
            self.creations * 2 - len(self.children),
            0,
            self.owner,
            len(self.data),
            len(self.children),
            self.children_changed,
        )


@dataclass(frozen=True)
class Transaction:
    """A request that changes the tree; equal on every server that applies it."""

    zxid: int
    at: int
    """Milliseconds since 1970."""
    session: int
    changes: tuple[Change, ...]
    users: frozenset[Id] = frozenset()
    """As whom the client has identified itself."""


Event = tuple[int, str]
"""The type of an event, as in kazoo.protocol.connection, and the path."""

Allowed = Callable[[int, Access], bool]
"""Whether a session may read what has this access list."""


def grants(access: Access, permission: int, users: frozenset[Id]) -> bool:
    """Whether the list grants the permission to one of the users, or to anyone."""
    return access is OPEN or any(
        one.perms & permission and (one.id.scheme == "world" or one.id in users) for one in access
    )


def require(access: Access, permission: int, users: frozenset[Id]) -> None:
    """NoAuthError unless the list grants the permission."""
    if not grants(access, permission, users):
        raise NoAuthError


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Tree:
    """The nodes as one server has them, and the watches of its sessions."""

    def __init__(self, allowed: Allowed, release: tuple[int, int]) -> None:
        self.nodes: dict[str, Node] = {}
        self.ephemerals: dict[int, dict[str, None]] = {}
        """Session -> its ephemeral nodes."""
        self.watches = Watches(allowed, exclusive=release < (3, 9))
        self._undo: list[tuple[str, Node | None]] = []
        """The nodes that the transaction changes, as they were before."""
        self._events: list[tuple[Event, Access]] = []
        """Those of the transaction."""
        self.hides_existence = release >= (3, 9)
        """Whether `exists` needs the permission to read (ZOOKEEPER-2590)."""
        for path in ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"):
            self.nodes[path] = Node(b"", 0, 0)
            if path != "/":
                self.nodes[_parent(path)].children[path.rpartition("/")[2]] = None

    def node(self, path: str) -> Node:
        if (node := self.nodes.get(path)) is None:
            raise NoNodeError
        return node

    def apply(self, transaction: Transaction) -> tuple[list[Result], list[tuple[int, Event]]]:
        """The results of the changes, and the events for sessions of this server, in their order."""
        self._undo, self._events = [], []
        if transaction.changes == (CloseSession(),):
            for path in self.ephemerals.pop(transaction.session, {}):
                self._remove(transaction, path)
            pushed = self.watches.fire(self._events)
            self.watches.forget(transaction.session)
            return [True], pushed
        results: list[Result] = []
        for position, change in enumerate(transaction.changes):
            try:
                results.append(self._apply(transaction, change))
            except ZookeeperError as error:
                for path, before in reversed(self._undo):
                    if before is None:
                        del self.nodes[path]
                    else:
                        self.nodes[path] = before
                behind = len(transaction.changes) - position - 1
                rolled_back = [RolledBackError() for _ in range(position)]
                return [*rolled_back, error, *(RuntimeInconsistency() for _ in range(behind))], []
        self._index_ephemerals()
        return results, self.watches.fire(self._events)

    def _apply(self, transaction: Transaction, change: Change) -> Result:
        users = transaction.users
        match change:
            case Create():
                return self._create(transaction, change)
            case Put(path, data, version):
                node = self._versioned(path, version, Permissions.WRITE, users)
                self._undo.append((path, _copy(node)))
                node.data, node.version = data, node.version + 1
                node.changed, node.changed_at = transaction.zxid, transaction.at
                self._events.append(((CHANGED_EVENT, path), node.access))
                return node.stat()
            case Delete(path, version):
                # of a node that is absent, the server says so only to who may delete it
                require(self.node(_parent(path)).access, Permissions.DELETE, users)
                if self._versioned(path, version).children:
                    raise NotEmptyError
                parent = _parent(path)
                self._undo += [(path, self.nodes[path]), (parent, _copy(self.nodes[parent]))]
                self._remove(transaction, path)
                return True
            case Check(path, version):
                self._versioned(path, version, Permissions.READ, users)
                return True
            case CloseSession():
                raise TypeError("the end of a session is a transaction of its own")

    def _versioned(
        self, path: str, version: int, permission: int = 0, users: frozenset[Id] = frozenset()
    ) -> Node:
        node = self.node(path)
        if permission:
            require(node.access, permission, users)
        if version not in (-1, node.version):
            raise BadVersionError
        return node

    def _create(self, transaction: Transaction, change: Create) -> str:
        path, flags, access = change.path, change.flags, change.access
        folder = _parent(path)
        parent = self.node(folder)
        require(parent.access, Permissions.CREATE, transaction.users)
        if flags & SEQUENCE:
            path = f"{path}{parent.creations:010d}"
        if path in self.nodes:
            raise NodeExistsError
        if parent.owner:
            raise NoChildrenForEphemeralsError
        self._undo += [(path, None), (folder, _copy(parent))]
        owner = transaction.session if flags & EPHEMERAL else 0
        zxid, at = transaction.zxid, transaction.at
        self.nodes[path] = Node(change.data, zxid, at, owner, zxid, at, children_changed=zxid, access=access)
        parent.children[path.rpartition("/")[2]] = None
        parent.creations += 1
        parent.children_changed = zxid
        self._events += [((CREATED_EVENT, path), access), ((CHILD_EVENT, folder), parent.access)]
        return path

    def _remove(self, transaction: Transaction, path: str) -> None:
        access = self.nodes.pop(path).access
        folder = _parent(path)
        parent = self.nodes[folder]
        del parent.children[path.rpartition("/")[2]]
        parent.children_changed = max(parent.children_changed, transaction.zxid)
        self._events += [((DELETED_EVENT, path), access), ((CHILD_EVENT, folder), parent.access)]

    def take_out(self, path: str) -> Node:
        """Remove an ephemeral node without a transaction."""
        node = self.nodes.pop(path)
        del self.nodes[_parent(path)].children[path.rpartition("/")[2]]
        self.ephemerals.get(node.owner, {}).pop(path, None)
        return node

    def put_back(self, path: str, node: Node) -> None:
        self.nodes[path] = node
        self.nodes[_parent(path)].children[path.rpartition("/")[2]] = None
        self.ephemerals.setdefault(node.owner, {})[path] = None

    def _index_ephemerals(self) -> None:
        for path, before in self._undo:
            node = self.nodes.get(path)
            if before is not None and before.owner and node is None:
                self.ephemerals.get(before.owner, {}).pop(path, None)
            if node is not None and node.owner:
                self.ephemerals.setdefault(node.owner, {})[path] = None


def _copy(node: Node) -> Node:
    return replace(node, children=dict(node.children))


class Watches:
    """The watches that sessions have set at one server; a session gets an event once.

    `exclusive`: as in releases before 3.9, a session has one watch of a node's data and one of its children:
    a later one replaces a persistent one of the same path (ZOOKEEPER-4466).
    """

    def __init__(self, allowed: Allowed, *, exclusive: bool) -> None:
        self._allowed, self._exclusive = allowed, exclusive
        self._data: dict[str, dict[int, None]] = {}
        self._children: dict[str, dict[int, None]] = {}
        self._below: dict[int, dict[str, None]] = {}
        """Session -> the paths that it watches with all below."""
        self._deleted_below: dict[int, dict[str, None]] = {}
        """The same among the watches of children, which tell of deletions."""

    def watch_data(self, session: int, path: str) -> None:
        if self._exclusive:
            self._below.get(session, {}).pop(path, None)
        self._data.setdefault(path, {})[session] = None

    def watch_children(self, session: int, path: str) -> None:
        if self._exclusive:
            self._deleted_below.get(session, {}).pop(path, None)
        self._children.setdefault(path, {})[session] = None

    def watch_below(self, session: int, path: str) -> None:
        """A persistent watch of the node and of all nodes below it."""
        for watched, one_shot in ((self._below, self._data), (self._deleted_below, self._children)):
            if self._exclusive:
                one_shot.get(path, {}).pop(session, None)
            watched.setdefault(session, {})[path] = None

    def forget(self, session: int) -> None:
        """Remove the watches of a session whose connection has ended."""
        for watched in (self._data, self._children):
            for sessions in watched.values():
                sessions.pop(session, None)
        self._below.pop(session, None)
        self._deleted_below.pop(session, None)

    def fire(self, events: Sequence[tuple[Event, Access]]) -> list[tuple[int, Event]]:
        pushed: list[tuple[int, Event]] = []
        for (kind, path), access in events:
            if kind == CHILD_EVENT:
                sessions = self._children.pop(path, {})
            else:
                sessions = self._data.pop(path, {}) | _followers(self._below, path)
            if kind == DELETED_EVENT:
                sessions = sessions | self._children.pop(path, {}) | _followers(self._deleted_below, path)
            pushed += [(session, (kind, path)) for session in sessions if self._allowed(session, access)]
        return pushed


def _followers(watched: dict[int, dict[str, None]], path: str) -> dict[int, None]:
    return {
        session: None
        for session, roots in watched.items()
        if any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in roots)
    }


@dataclass
class Session:
    timeout: float
    """Seconds."""
    server: int
    """The number of the server that it is, or was last, connected to."""
    heard: float
    """When a server last heard of the client; infinite while it is connected."""
    users: frozenset[Id] = frozenset()
    """As whom the client has identified itself."""


class Ensemble:
    """The servers. `now`: the current time in seconds since 1970."""

    def __init__(self, servers: int = 1, release: tuple[int, int] = (3, 8)) -> None:
        self.servers = [Tree(self._allowed, release) for _ in range(servers)]
        self.serves = True
        """Whether a majority of the servers is there: else no client is connected, and no session expires."""
        self.sessions: dict[int, Session] = {}
        self._log: list[Transaction] = []
        self._applied = [0] * servers
        self.zxid = 0
        self._ids = 0x1000_0000_0000

    @property
    def leader(self) -> Tree:
        return self.servers[0]

    def open(self, timeout: float, server: int = 0, users: frozenset[Id] = frozenset()) -> int:
        """The id of a new session."""
        self._ids += 1
        self.zxid += 1
        self.sessions[self._ids] = Session(timeout, server, float("inf"), users)
        return self._ids

    def _allowed(self, session: int, access: Access) -> bool:
        known = self.sessions.get(session)
        return grants(access, Permissions.READ, known.users if known is not None else frozenset())

    def change(
        self, session: int, changes: tuple[Change, ...], now: float
    ) -> tuple[list[Result], list[tuple[int, Event]]]:
        """Apply on the leader, and on the session's own server, which answers when it has applied it."""
        self.zxid += 1
        users = self.sessions[session].users
        transaction = Transaction(self.zxid, int(now * 1000), session, changes, users)
        self._log.append(transaction)
        results, events = self._advance(0)
        if (own := self.sessions[session].server) != 0:
            results, more = self._advance(own)
            events += more
        if changes == (CloseSession(),):
            self.sessions.pop(session, None)
        return results, events

    def catch_up(self, server: int) -> list[tuple[int, Event]]:
        """Have a follower apply what the leader has; the events for its sessions."""
        return self._advance(server)[1]

    def _advance(self, server: int) -> tuple[list[Result], list[tuple[int, Event]]]:
        results: list[Result] = []
        events: list[tuple[int, Event]] = []
        for transaction in self._log[self._applied[server] :]:
            results, pushed = self.servers[server].apply(transaction)
            events += pushed
        self._applied[server] = len(self._log)
        return results, events

    def tree_of(self, session: int) -> Tree:
        return self.servers[self.sessions[session].server]

    def resume(self, now: float) -> None:
        """A majority is there again: its new leader gives each session its whole timeout."""
        self.serves = True
        for session in self.sessions.values():
            session.heard = now

    def expired(self, now: float) -> list[int]:
        """The sessions whose clients have been away for longer than their timeout."""
        if not self.serves:
            return []
        return [one for one, session in self.sessions.items() if now - session.heard > session.timeout]


def first_error(results: Sequence[Result]) -> ZookeeperError | None:
    errors = [result for result in results if isinstance(result, ZookeeperError)]
    causes = [one for one in errors if not isinstance(one, RolledBackError | RuntimeInconsistency)]
    return next(iter(causes), None)


def read(tree: Tree, session: int, kind: str, path: str, users: frozenset[Id], *, watch: bool) -> Any:
    """The answer to a read of one of the kinds `exists`, `get`, `children`; None for a node that is absent
    when its existence is asked for. NoNodeError and NoAuthError for the others, which then set no watch."""
    node = tree.nodes.get(path) if kind == "exists" else tree.node(path)
    if node is not None and (kind != "exists" or tree.hides_existence):
        require(node.access, Permissions.READ, users)
    if watch and kind == "children":
        tree.watches.watch_children(session, path)
    elif watch:
        tree.watches.watch_data(session, path)
    if node is None or kind == "exists":
        return node and node.stat()
    return list(node.children) if kind == "children" else (node.data, node.stat())
