"""kazoo's client on the simulated ensemble: its own methods, watches and states, without a socket.

Each direction of a connection keeps its order, and each message its own delay. If the connection breaks, the
first requests that were on their way may still arrive; what was on its way back is lost.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from struct import Struct
from typing import Any

from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, SessionExpiredError, ZookeeperError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import serialization
from kazoo.protocol.connection import CHILD_EVENT, DELETED_EVENT, EVENT_TYPE_MAP
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData
from kazoo.protocol.states import Callback, KeeperState, WatchedEvent, ZnodeStat
from kazoo.security import ACL, Id, make_digest_acl_credential

from tools.simulation.ensemble import Change, CloseSession, Ensemble, Event, Result, first_error
from tools.simulation.story import answered, changed
from tools.simulation.world import Process, World
from zkstate.direct import Client
from zkstate.direct.client import FAULTS
from zkstate.direct.requests import HEADER, AddWatch

LARGEST = 0xFFFFF - 8
"""Bytes of the largest request (`jute.maxbuffer`) without its number and type; a server ends the connection
on a larger one."""

DELAY = 0.002
"""Most seconds that a message is usually on its way."""


class Handler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """Calls callbacks in a task of their own, in their order.

    It is never started: kazoo then calls the callbacks of an answer as the answer arrives.
    """

    def __init__(self, world: World, process: Process) -> None:
        super().__init__()
        self.sleep_func = world.park
        self._world, self._process = world, process
        self._waiting: list[Any] = []
        """The first one is being called."""

    def dispatch_callback(self, callback: Callback) -> None:
        self._waiting.append(callback)
        if len(self._waiting) == 1:
            self._world.spawn(self._process, self._call_back)

    def _call_back(self) -> None:
        while self._waiting:
            callback = self._waiting[0]
            callback.func(*callback.args)
            del self._waiting[0]


class Network:
    """The ensemble, its clients, and the messages between them."""

    def __init__(self, world: World, servers: int = 1, release: tuple[int, int] = (3, 8)) -> None:
        self.world, self.ensemble = world, Ensemble(servers, release, self._push)
        self.clients: dict[int, SimulatedClient] = {}
        """Session -> its client while it is connected."""
        self.processes: dict[int, Process] = {}
        """Session -> its process, also while it is not connected."""
        self.on_change: Callable[[int, tuple[Change, ...]], None] = lambda *_: None
        """Called with the session after each of its requests that has changed the record."""

    def delay(self) -> float:
        return self.world.chance.random() * DELAY

    def _push(self, session: int, event: Event) -> None:
        if (client := self.clients.get(session)) is not None:
            client.deliver(partial(client.on_event, event))

    def catch_up(self, *servers: int) -> None:
        """Have these followers, or all, apply what the leader has."""
        for server in servers or range(1, len(self.ensemble.servers)):
            self.ensemble.catch_up(server)

    def expire(self) -> None:
        """End the sessions whose clients are away for too long."""
        known = self.ensemble.sessions if self.ensemble.serves else {}
        for one in [one for one, its in known.items() if self.world.now - its.heard > its.timeout]:
            self.end(one)

    def lose_majority(self) -> None:
        """Too few servers are left: all connections end, none begins, and no session expires."""
        self.world.note("zookeeper", "no majority", "")
        self.ensemble.serves = False
        for client in list(self.clients.values()):
            client.break_off("no majority")

    def regain_majority(self) -> None:
        """The new leader gives each session its whole timeout."""
        self.ensemble.serves = True
        for session in self.ensemble.sessions.values():
            session.heard = self.world.now

    def close(self, session: int) -> None:
        """Have the servers end a session."""
        self.ensemble.change(session, (CloseSession(),), self.world.now)
        self.on_change(session, (CloseSession(),))

    def end(self, session: int) -> None:
        """The servers end the session; a client that is connected loses its connection."""
        if session not in self.ensemble.sessions:
            return
        self.world.note("zookeeper", "expired", f"{session:x}")
        client = self.clients.get(session)
        self.close(session)
        if client is not None:
            client.break_off("its session expired")


class SimulatedClient(Client):
    """One client of a process. Made by `zkstate.connection.client.make_client` in a history."""

    def __init__(
        self, network: Network, process: Process, hosts: str, timeout: float, **options: Any
    ) -> None:
        super().__init__(hosts=hosts, handler=Handler(network.world, process), timeout=timeout, **options)
        self._users = frozenset(
            Id(scheme, make_digest_acl_credential(*credential.split(":", 1)))
            for scheme, credential in self.auth_data
        )
        self._network, self._world, self.process = network, network.world, process
        self._wait = timeout
        self._session_id: int = 0
        self.last_zxid: int = 0
        self._link = 0
        """The number of the connection; what belongs to an earlier one is not delivered."""
        self._arrives, self._returns = 0.0, 0.0
        self._flights: dict[int, Any] = {}
        self._queued: list[tuple[Any, Any]] = []
        """Requests that are sent once the client is connected."""
        self._sent = self._arrived = 0
        """The numbers of the last request that was sent, and of the last one that arrived or still may."""
        self.loses_requests = self.loses_answers = False
        """What the network loses silently, until the connection breaks."""
        self.reachable = True
        """Whether a server can be connected to."""
        process.at_end.append(self._leave_server)

    @property
    def session(self) -> int:
        """The id of its session; 0 if it has none."""
        return self._session_id

    # --- connection

    def start_async(self) -> Any:
        self._stopped.clear()
        self._writer_stopped.clear()
        self._session_callback(KeeperState.CONNECTING)
        self._world.after(self._network.delay(), self._connect)
        return self._live

    def _connect(self) -> None:
        if self._stopped.is_set() or not self.process.runs or self._live.is_set():
            return
        network, world = self._network, self._world
        if self.process.frozen_until > world.now or not (network.ensemble.serves and self.reachable):
            world.after(0.2 + world.chance.random(), self._connect)
            return
        ensemble = network.ensemble
        if self._session_id and self._session_id not in ensemble.sessions:
            self._session_callback(KeeperState.EXPIRED_SESSION)
            queued, self._queued = self._queued, []
            _refuse([answer for _, answer in queued], SessionExpiredError())
            self._session_callback(KeeperState.CONNECTING)
            self._session_id = 0
        server = world.chance.randrange(len(ensemble.servers))
        if self._session_id:
            session = ensemble.sessions[self._session_id]
            session.server, session.heard = server, float("inf")
            network.catch_up(server)
        else:
            self._session_id = ensemble.open(self._wait, server, self._users)
            network.processes[self._session_id] = self.process
        self._link += 1
        self.loses_requests = self.loses_answers = False
        self._arrives = self._returns = world.now
        network.clients[self._session_id] = self
        self._session_callback(KeeperState.CONNECTED)
        queued, self._queued = self._queued, []
        for request, answer in queued:
            self._send(request, answer)

    def break_off(self, why: str) -> None:
        """The connection breaks; the client tries to connect again."""
        if not self._live.is_set():
            return
        self._world.note(self.process.name, "connection broken", why)
        self._leave_server()
        flights, self._flights = self._flights, {}
        self._session_callback(KeeperState.CONNECTING)
        _refuse(flights.values(), ConnectionLoss())
        self._world.after(0.05 + self._world.chance.random() * 0.5, self._connect)

    def fall_silent(self, what: str) -> None:
        """Lose `requests` or `answers` until the client notices that, as by a ping without an answer."""
        setattr(self, f"loses_{what}", True)
        link = self._link
        self._world.after(
            self._wait * 2 / 3, lambda: self.break_off("silent") if link == self._link else None
        )

    def _leave_server(self) -> None:
        if not self._session_id:
            return
        session = self._network.ensemble.sessions.get(self._session_id)
        self._network.clients.pop(self._session_id, None)
        if session is not None:
            session.heard = self._world.now
            self._network.ensemble.servers[session.server].watches.forget(self._session_id)
        self._arrived = self._world.chance.randint(min(self._arrived, self._sent), self._sent)
        self._link += 1

    def stop(self) -> None:
        if self._stopped.is_set():
            return
        self._stopped.set()
        if self._live.is_set() and self._session_id in self._network.ensemble.sessions:
            self._network.close(self._session_id)
            self._network.clients.pop(self._session_id, None)
        else:
            self._leave_server()
        self._link += 1
        answers = (*self._flights.values(), *(answer for _, answer in self._queued))
        self._flights, self._queued = {}, []
        self._session_callback(KeeperState.CLOSED)
        _refuse(answers, ConnectionClosedError("Connection has been closed"))

    def stop_within(self, seconds: float) -> bool:
        self._world.pass_place("record", "close the session")
        self.stop()
        return True

    def command(self, _: bytes = b"ruok") -> str:
        return ""  # as of a server that allows no commands

    # --- requests

    def _call(self, request: Any, async_object: Any) -> bool:
        self._world.pass_place("record", f"{type(request).__name__} {getattr(request, 'path', '')}")
        if (fault := FAULTS.get(self._state)) is not None:
            async_object.set_exception(fault())
            return False
        if not self._live.is_set():
            self._queued.append((request, async_object))
        else:
            self._send(request, async_object)
        return True

    def _send(self, request: Any, async_object: Any) -> None:
        self._sent += 1
        number, link = self._sent, self._link
        self._flights[number] = async_object
        self._arrives = max(self._arrives, self._world.now) + self._network.delay()
        if not self.loses_requests:
            session, server = self._session_id, self._network.ensemble.sessions.get(self._session_id)
            at = None if server is None else server.server
            self._world.at(self._arrives, lambda: self._arrive(request, number, link, session, at))

    def _arrive(self, request: Any, number: int, link: int, session: int, server: int | None) -> None:
        """A server gets the request, perhaps even if its connection broke meanwhile."""
        network = self._network
        current = network.ensemble.sessions.get(session)
        if link == self._link:
            self._arrived = max(self._arrived, number)
        elif number > self._arrived or current is None or current.server != server:
            return None  # lost, or from where the session no longer is
        if current is None:
            return self.break_off("no server answers") if link == self._link else None
        if len(getattr(request, "serialize", bytes)()) > LARGEST:
            return self.break_off("the request is too large")
        try:
            answer: Any = self._answer_of(request, session)
        except ZookeeperError as error:
            answer = error
        if link == self._link:
            self.deliver(partial(self._receive, request, number, answer, network.ensemble.zxid))
        return None

    def _answer_of(self, request: Any, session: int) -> Any:
        network, ensemble = self._network, self._network.ensemble
        server = ensemble.sessions[session].server
        tree = ensemble.servers[server]
        if hasattr(request, "watcher"):
            return tree.read(session, request, self._users)
        if isinstance(request, serialization.Sync):
            network.catch_up(server)
            return request.path
        if isinstance(request, AddWatch):
            tree.watches.watch_below(session, request.path)
            return None
        changes = _changes_of(request)
        self._world.explain(self.process.name, "changes", lambda: changed(changes))
        results = ensemble.change(session, changes, self._world.now)
        if first_error(results) is None:
            network.on_change(session, changes)
        if request.type == serialization.Transaction.type:
            answers = request.deserialize(_encoded(changes, results), 0)
            return serialization.Transaction.unchroot(self, answers)
        if error := first_error(results):
            raise error
        return results[0]

    def deliver(self, act: Callable[[], None]) -> None:
        """Have the client get an answer or an event, after what was sent to it before."""
        if self._stopped.is_set():
            return act()  # the server pushes events before it answers
        if self.loses_answers:
            return None
        link = self._link
        self._returns = max(self._returns, self._world.now) + self._network.delay()

        def arrive() -> None:
            if link != self._link or not self.process.runs:
                return
            if self.process.frozen_until > self._world.now:
                self._world.at(self.process.frozen_until, arrive)
            else:
                act()

        return self._world.at(self._returns, arrive)

    def _receive(self, request: Any, number: int, answer: Any, zxid: int) -> None:
        self.last_zxid = max(self.last_zxid, zxid)
        self._world.explain(self.process.name, "answer", lambda: answered(request, answer))
        waiting = self._flights.pop(number, None)
        watcher = getattr(request, "watcher", None)
        if watcher and not isinstance(answer, ZookeeperError):
            of_children = isinstance(request, serialization.GetChildren | serialization.GetChildren2)
            watchers = self._child_watchers if of_children else self._data_watchers
            watchers[request.path].add(watcher)
        if waiting is None:
            return
        if isinstance(answer, ZookeeperError):
            waiting.set_exception(answer)
        else:
            waiting.set(answer)

    def on_event(self, event: Event) -> None:
        """As kazoo's connection does with an event that it reads."""
        kind, path = event
        for listener in self._event_listeners:
            listener(*event)
        if self._stopped.is_set():
            return
        watchers: list[Any] = []
        if kind != CHILD_EVENT:
            watchers += _in_order(self._data_watchers.pop(path, ()))
        if kind in (DELETED_EVENT, CHILD_EVENT):
            watchers += _in_order(self._child_watchers.pop(path, ()))
        watched = WatchedEvent(EVENT_TYPE_MAP[kind], self._state, self.unchroot(path))
        for watcher in watchers:
            self.handler.dispatch_callback(Callback("watch", watcher, (watched,)))


def _refuse(answers: Iterable[Any], fault: Exception) -> None:
    for answer in answers:
        answer.set_exception(fault)


def _in_order(watchers: Any) -> list[Any]:
    """kazoo keeps a set of functions, whose order differs from process to process."""
    return sorted(watchers, key=lambda one: getattr(one, "__qualname__", ""))


# --- the bytes of transactions and of their results, as kazoo and ZooKeeper encode them

_INT = Struct("!i")


def _changes_of(request: Any) -> tuple[Change, ...]:
    """What the request changes; a transaction is read from its bytes."""
    if isinstance(request, Create | SetData | Delete):
        return (request,)
    if request.type == serialization.Transaction.type:
        return tuple(_changes(bytes(request.serialize())))
    raise TypeError(f"a request of the type {type(request).__name__} is not simulated")


def _changes(content: bytes) -> Iterator[Change]:
    offset = 0
    while True:
        kind, ends, _ = HEADER.unpack_from(content, offset)
        if ends:
            return
        path, offset = serialization.read_string(content, offset + HEADER.size)
        given = [path]
        if kind in (Create.type, SetData.type):
            data, offset = serialization.read_buffer(content, offset)
            given.append(data or b"")
        if kind == Create.type:
            access, offset = _read_access(content, offset)
            given.append(access)
        (number,) = _INT.unpack_from(content, offset)
        offset += _INT.size
        yield _KINDS[kind](*given, number)


_KINDS = {kind.type: kind for kind in (Create, SetData, Delete, CheckVersion)}


def _read_access(content: bytes, offset: int) -> tuple[Sequence[ACL], int]:
    (number,) = _INT.unpack_from(content, offset)
    offset, entries = offset + _INT.size, []
    for _ in range(number):
        entry, offset = serialization.read_acl(content, offset)
        entries.append(entry)
    return entries, offset


def _encoded(changes: Sequence[Any], results: Sequence[Result]) -> bytes:
    """The answer to a transaction, as ZooKeeper encodes it."""
    parts, refused = [], first_error(results) is not None
    for change, result in zip(changes, results, strict=True):
        if refused:
            code = getattr(result, "code", 0)
            parts += [HEADER.pack(-1, False, code), _INT.pack(code)]
            continue
        parts.append(HEADER.pack(change.type, False, 0))
        if isinstance(result, ZnodeStat):
            parts.append(serialization.stat_struct.pack(*result))
        elif isinstance(result, str):
            parts.append(serialization.write_string(result))
    return b"".join((*parts, HEADER.pack(-1, True, -1)))
