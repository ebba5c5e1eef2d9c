"""ZooKeeper's tree and its sessions, as the servers of one ensemble keep them.

A transaction is applied by the leader at once, and by a follower when that follower's turn comes: its reads
may be old, and its watches late. Errors, versions, access and the order of watches are those of ZooKeeper 3.8
and 3.9; `tests/integration/test_simulated_zookeeper.py` compares them with real servers.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeAlias

from kazoo import exceptions
from kazoo.exceptions import RolledBackError, RuntimeInconsistency, ZookeeperError
from kazoo.protocol import serialization
from kazoo.protocol.connection import CHANGED_EVENT, CHILD_EVENT, CREATED_EVENT, DELETED_EVENT
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, Permissions

EPHEMERAL, SEQUENCE = 1, 2
"""Flags of a request to create a node."""


Access: TypeAlias = tuple[ACL, ...]

OPEN: Access = tuple(OPEN_ACL_UNSAFE)


@dataclass(frozen=True)
class CloseSession:
    """The end of a session, by its client or because it expired."""


Change: TypeAlias = Create | SetData | Delete | CheckVersion | CloseSession
Result: TypeAlias = str | ZnodeStat | bool | ZookeeperError


@dataclass
class Node:
    data: bytes
    stat: ZnodeStat
    access: Access = OPEN
    children: dict[str, None] = field(default_factory=dict)

    @property
    def owner(self) -> int:
        """The session of an ephemeral node; 0 for others."""
        return int(self.stat.ephemeralOwner)

    @property
    def creations(self) -> int:
        """How many children were ever created: the server shows the sum of creations and deletions."""
        return int(self.stat.cversion + self.stat.numChildren) // 2

    def count(self, zxid: int, more: int) -> None:
        """A child was created, or deleted (`more` is -1)."""
        stat = self.stat
        self.stat = stat._replace(
            cversion=stat.cversion + 1, numChildren=stat.numChildren + more, pzxid=max(stat.pzxid, zxid)
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


def grants(access: Access, permission: int, users: frozenset[Id]) -> bool:
    """Whether the list grants the permission to one of the users, or to anyone."""
    return access is OPEN or any(
        one.perms & permission and (one.id.scheme == "world" or one.id in users) for one in access
    )


def require(access: Access, permission: int, users: frozenset[Id]) -> None:
    """NoAuthError unless the list grants the permission."""
    if not grants(access, permission, users):
        raise exceptions.NoAuthError


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Tree:
    """The nodes as one server has them, and the watches of its sessions."""

    def __init__(self, allowed: Callable[[int, Access], bool], release: tuple[int, int]) -> None:
        self.nodes: dict[str, Node] = {}
        self.watches = Watches(allowed, exclusive=release < (3, 9))
        self._undo: list[tuple[str, Node | None]] = []
        """The nodes that the transaction changes, as they were before."""
        self._events: list[tuple[Event, Access]] = []
        """Those of the transaction."""
        self.hides_existence = release >= (3, 9)
        """Whether `exists` needs the permission to read (ZOOKEEPER-2590)."""
        first = {"/": ("zookeeper",), "/zookeeper": ("config", "quota")}
        for path, children in (first | dict.fromkeys(("/zookeeper/config", "/zookeeper/quota"), ())).items():
            stat = ZnodeStat(0, 0, 0, 0, 0, -len(children), 0, 0, 0, len(children), 0)
            self.nodes[path] = Node(b"", stat, children=dict.fromkeys(children))

    def node(self, path: str) -> Node:
        if (node := self.nodes.get(path)) is None:
            raise exceptions.NoNodeError
        return node

    def apply(self, transaction: Transaction) -> tuple[list[Result], list[tuple[int, Event]]]:
        """The results of the changes, and the events for sessions of this server, in their order."""
        self._undo, self._events = [], []
        if transaction.changes == (CloseSession(),):
            owned = [path for path, node in self.nodes.items() if node.owner == transaction.session]
            for path in owned:
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
        return results, self.watches.fire(self._events)

    def _apply(self, transaction: Transaction, change: Change) -> Result:
        users = transaction.users
        match change:
            case Create():
                return self._create(transaction, change)
            case SetData(path, data, version):
                require(self.node(path).access, Permissions.WRITE, users)
                node = self._versioned(path, version)
                self._undo.append((path, _copy(node)))
                new = {"mzxid": transaction.zxid, "mtime": transaction.at, "version": node.stat.version + 1}
                node.data, node.stat = data, node.stat._replace(**new, dataLength=len(data))
                self._events.append(((CHANGED_EVENT, path), node.access))
                return node.stat
            case Delete(path, version):
                # of a node that is absent, the server says so only to who may delete it
                require(self.node(_parent(path)).access, Permissions.DELETE, users)
                if self._versioned(path, version).children:
                    raise exceptions.NotEmptyError
                parent = _parent(path)
                self._undo += [(path, self.nodes[path]), (parent, _copy(self.nodes[parent]))]
                self._remove(transaction, path)
                return True
            case CheckVersion(path, version):
                require(self.node(path).access, Permissions.READ, users)
                self._versioned(path, version)
                return True
            case _:
                raise TypeError("the end of a session is a transaction of its own")

    def _versioned(self, path: str, version: int) -> Node:
        node = self.node(path)
        if version not in (-1, node.stat.version):
            raise exceptions.BadVersionError
        return node

    def _create(self, transaction: Transaction, change: Create) -> str:
        path, flags, access = str(change.path), change.flags, tuple(change.acl)
        access = OPEN if access == OPEN else access  # whose permissions are not read one by one
        folder = _parent(path)
        parent = self.node(folder)
        require(parent.access, Permissions.CREATE, transaction.users)
        if flags & SEQUENCE:
            path = f"{path}{parent.creations:010d}"
        if path in self.nodes:
            raise exceptions.NodeExistsError
        if parent.owner:
            raise exceptions.NoChildrenForEphemeralsError
        self._undo += [(path, None), (folder, _copy(parent))]
        owner = transaction.session if flags & EPHEMERAL else 0
        zxid, at, data = transaction.zxid, transaction.at, change.data or b""
        stat = ZnodeStat(zxid, zxid, at, at, 0, 0, 0, owner, len(data), 0, zxid)
        self.nodes[path] = Node(data, stat, access)
        parent.children[path.rpartition("/")[2]] = None
        parent.count(zxid, 1)
        self._events += [((CREATED_EVENT, path), access), ((CHILD_EVENT, folder), parent.access)]
        return path

    def _remove(self, transaction: Transaction, path: str) -> None:
        access = self.nodes.pop(path).access
        folder = _parent(path)
        parent = self.nodes[folder]
        del parent.children[path.rpartition("/")[2]]
        parent.count(transaction.zxid, -1)
        self._events += [((DELETED_EVENT, path), access), ((CHILD_EVENT, folder), parent.access)]

    def take_out(self, path: str) -> Node:
        """Remove an ephemeral node without a transaction."""
        node = self.nodes.pop(path)
        del self.nodes[_parent(path)].children[path.rpartition("/")[2]]
        return node

    def put_back(self, path: str, node: Node) -> None:
        self.nodes[path] = node
        self.nodes[_parent(path)].children[path.rpartition("/")[2]] = None

    def read(self, session: int, request: Any, users: frozenset[Id]) -> Any:
        """The answer to a read; None for a node that is absent when its existence is asked for.

        NoNodeError and NoAuthError for the others, which then set no watch.
        """
        asks, both = (
            request.type == serialization.Exists.type,
            request.type == serialization.GetChildren2.type,
        )
        of_children = both or request.type == serialization.GetChildren.type
        node = self.nodes.get(request.path) if asks else self.node(request.path)
        if node is not None and (not asks or self.hides_existence):
            require(node.access, Permissions.READ, users)
        if request.watcher:
            self.watches.watch(session, request.path, CHILDREN if of_children else DATA)
        if node is None or asks:
            return node and node.stat
        if not of_children:
            return node.data, node.stat
        children = sorted(node.children)
        return (children, node.stat) if both else children


def _copy(node: Node) -> Node:
    return replace(node, children=dict(node.children))


DATA, CHILDREN = "data", "children"
"""What of a node a session watches."""


class Watches:
    """The watches that sessions have set at one server; a session gets an event once.

    `allowed`: whether a session may read what has this access list.
    `exclusive`: as in releases before 3.9, a session has one watch of a node's data and one of its children:
    a later one replaces a persistent one of the same path (ZOOKEEPER-4466).
    """

    def __init__(self, allowed: Callable[[int, Access], bool], *, exclusive: bool) -> None:
        self._allowed, self._exclusive = allowed, exclusive
        self._once = defaultdict[tuple[str, str], dict[int, None]](dict)
        """(Kind of watch, path) -> the sessions that watch."""
        self._below = defaultdict[tuple[str, str], dict[int, None]](dict)
        """The persistent ones, of a node and of all below; those of children tell of deletions alone."""

    def watch(self, session: int, path: str, what: str) -> None:
        if self._exclusive and (what, path) in self._below:
            self._below[what, path].pop(session, None)
        self._once[what, path][session] = None

    def watch_below(self, session: int, path: str) -> None:
        """A persistent watch of the node and of all nodes below it."""
        for what in (DATA, CHILDREN):
            if self._exclusive:
                self._once[what, path].pop(session, None)
            self._below[what, path][session] = None

    def forget(self, session: int) -> None:
        """Remove the watches of a session whose connection has ended."""
        for sessions in (*self._once.values(), *self._below.values()):
            sessions.pop(session, None)

    def fire(self, events: Sequence[tuple[Event, Access]]) -> list[tuple[int, Event]]:
        pushed: list[tuple[int, Event]] = []
        for (kind, path), access in events:
            sessions = self._once.pop((CHILDREN if kind == CHILD_EVENT else DATA, path), {})
            if kind != CHILD_EVENT:
                sessions |= self._followers(DATA, path)
            if kind == DELETED_EVENT:
                sessions |= self._once.pop((CHILDREN, path), {}) | self._followers(CHILDREN, path)
            pushed += [(session, (kind, path)) for session in sessions if self._allowed(session, access)]
        return pushed

    def _followers(self, what: str, path: str) -> dict[int, None]:
        below = [key for key in self._below if key[0] == what and _is_below(path, key[1])]
        return {session: None for key in below for session in self._below[key]}


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")


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

    def __init__(self, servers: int, release: tuple[int, int], push: Callable[[int, Event], None]) -> None:
        """`push`: called with each event and its session."""
        self._push = push
        self.servers = [Tree(self._allowed, release) for _ in range(servers)]
        self.serves = True
        """Whether a majority of the servers is there: else no client is connected, and no session expires."""
        self.sessions: dict[int, Session] = {}
        self._log: list[Transaction] = []
        self._applied = [0] * servers
        self.zxid = 0
        self._ids = count(0x1000_0000_0001)

    @property
    def leader(self) -> Tree:
        return self.servers[0]

    def open(self, timeout: float, server: int = 0, users: frozenset[Id] = frozenset()) -> int:
        """The id of a new session."""
        self.zxid += 1
        session = next(self._ids)
        self.sessions[session] = Session(timeout, server, float("inf"), users)
        return session

    def _allowed(self, session: int, access: Access) -> bool:
        known = self.sessions.get(session)
        return grants(access, Permissions.READ, known.users if known is not None else frozenset())

    def change(self, session: int, changes: tuple[Change, ...], now: float) -> list[Result]:
        """Apply on the leader, and on the session's own server, which answers when it has applied it."""
        self.zxid += 1
        users = self.sessions[session].users
        transaction = Transaction(self.zxid, int(now * 1000), session, changes, users)
        self._log.append(transaction)
        results = self.catch_up(0)
        if (own := self.sessions[session].server) != 0:
            results = self.catch_up(own)
        if changes == (CloseSession(),):
            self.sessions.pop(session, None)
        return results

    def catch_up(self, server: int) -> list[Result]:
        """Have a server apply what the leader was asked for; the results of the last transaction."""
        results: list[Result] = []
        for transaction in self._log[self._applied[server] :]:
            results, pushed = self.servers[server].apply(transaction)
            for session, event in pushed:
                self._push(session, event)
        self._applied[server] = len(self._log)
        return results


def first_error(results: Sequence[Result]) -> ZookeeperError | None:
    errors = (one for one in results if isinstance(one, ZookeeperError))
    return next((one for one in errors if not isinstance(one, RolledBackError | RuntimeInconsistency)), None)
