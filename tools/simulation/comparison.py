"""The same random requests to the simulated ensemble and to real servers; every answer must be the same.

`python -m` of this module prints the answers of the simulated one for the seeds, a line for each: a test
has threads in its process, from which nothing may be taken.
"""

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import NoNodeError, ZookeeperError
from kazoo.protocol.states import ZnodeStat

from pipeline.settings import Settings
from tools.simulation.client import Network, SimulatedClient
from tools.simulation.patches import patched, world
from tools.simulation.world import World
from zkstate.connection.client import make_client
from zkstate.direct import Client, requests
from zkstate.direct.client import whole_path

SESSIONS = 3

PATHS = ("/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/f", "/e/f/g")

WAIT = 10.0
"""Seconds for an answer."""


@dataclass(frozen=True)
class Request:
    """One request of a session; `what` says its kind."""

    session: int
    what: str
    path: str = "/"
    data: bytes = b""
    version: int = -1
    flags: int = 0
    parts: tuple["Request", ...] = ()


def sequence_of(seed: int, length: int) -> list[Request]:
    """The requests of a seed; versions are small, so that some fit."""
    chance = random.Random(f"requests {seed}")
    return [_request(chance) for _ in range(length)]


def _request(chance: random.Random) -> Request:
    session = chance.randrange(SESSIONS)
    kind = chance.choices(
        ("change", "multi", "get", "exists", "children", "follow", "sync", "reopen"),
        (40, 20, 12, 12, 12, 2, 1, 2),
    )[0]
    if kind == "change":
        return _change(chance, session)
    if kind == "multi":
        parts = tuple(_change(chance, session, in_multi=True) for _ in range(chance.randint(1, 4)))
        return Request(session, "multi", parts=parts)
    return Request(session, kind, chance.choice(PATHS))


def _change(chance: random.Random, session: int, *, in_multi: bool = False) -> Request:
    path = chance.choice(PATHS)
    data = chance.randbytes(chance.randrange(4))
    version = chance.choice((-1, -1, 0, 0, 1, 2))
    kinds = ("create", "create", "put", "delete", *(("check",) if in_multi else ()))
    kind = chance.choice(kinds)
    flags = chance.choice((0, 0, 0, 1, 2, 3)) if kind == "create" else 0
    return Request(session, kind, path, data, version, flags)


class Recorder:
    """The answers and events of one side, each in the order of its session."""

    def __init__(self, open_client: Callable[[], Client], root: str) -> None:
        self._open, self._root = open_client, root
        self.clients: list[Client] = []
        self.lines: list[list[Any]] = [[] for _ in range(SESSIONS)]
        self._owners: dict[int, str] = {0: ""}

    def start(self) -> None:
        self.clients = [self._opened(number) for number in range(SESSIONS)]
        self.clients[0].ensure_path_async(self._root).get(timeout=WAIT)
        for client in self.clients:
            client.chroot = self._root

    def _opened(self, number: int) -> Client:
        client = self._open()
        client.start_within(WAIT)
        identity = client.client_id
        assert identity is not None
        self._owners[identity[0]] = f"session {number}"
        client.add_event_listener(lambda kind, path: self.lines[number].append(("event", kind, path)))
        return client

    def run(self, requests_: Sequence[Request]) -> None:
        for position, request in enumerate(requests_):
            before = [len(lines) for lines in self.lines]
            answer = self._answer(request)
            if request.what != "reopen":
                self.lines[request.session].append((position, answer))
            for client in self.clients:  # what was pushed to a session before has then arrived
                client.exists_async("/").get(timeout=WAIT)
            if request.what == "reopen":  # the servers delete ephemeral nodes in the order of a hash set
                for lines, number in zip(self.lines, before, strict=True):
                    lines[number:] = sorted(lines[number:])

    def _answer(self, request: Request) -> Any:
        client = self.clients[request.session]
        if request.what == "reopen":
            client.stop_within(WAIT)
            self.clients[request.session] = self._opened(request.session)
            self.clients[request.session].chroot = self._root
            return "reopened"
        try:
            return self._plain(self._ask(client, request).get(timeout=WAIT))
        except ZookeeperError as error:
            return type(error).__name__

    def _ask(self, client: Client, request: Request) -> Any:
        path, watch = request.path, _ignored
        match request.what:
            case "create":
                flags = request.flags
                return client.create_async(
                    path, request.data, ephemeral=bool(flags & 1), sequence=bool(flags & 2)
                )
            case "put":
                return client.set_async(path, request.data, version=request.version)
            case "delete":
                return client.delete_async(path, version=request.version)
            case "get":
                return client.get_async(path, watch=watch)
            case "exists":
                return client.exists_async(path, watch=watch)
            case "children":
                return client.get_children_async(path, watch=watch, include_data=True)
            case "follow":
                return client.add_watch_async(path)
            case "sync":
                return client.sync_async(path)
            case _:
                return client.request(
                    requests.MultiRequest([_encoded(client, part) for part in request.parts])
                )

    def _plain(self, answer: Any) -> Any:
        """The answer without what differs between two servers: times, and the ids of sessions."""
        match answer:
            case ZnodeStat():
                return (
                    *answer[:2],
                    *answer[4:7],
                    self._owners[answer.ephemeralOwner],
                    *answer[8:],
                )
            case ZookeeperError():
                return type(answer).__name__
            case list():
                return [self._plain(one) for one in answer]
            case tuple():
                first, stat = answer
                return (sorted(first) if isinstance(first, list) else first, self._plain(stat))
            case _:
                return answer

    def close(self) -> None:
        for client in self.clients:
            client.stop_within(WAIT)


def _ignored(_: object) -> None:
    """A watch; the listeners of events record what is pushed."""


def _encoded(client: Client, part: Request) -> bytes:
    path = whole_path(client.chroot, part.path)
    match part.what:
        case "create":
            return requests.create(path, part.data, client.access, part.flags)
        case "put":
            return requests.put(path, part.data, part.version)
        case "delete":
            return requests.delete(path)
        case _:
            return requests.check(path, max(part.version, 0))


def simulated(requests_: Sequence[Request], root: str, servers: int = 1) -> list[list[Any]]:
    """The answers and events of the sessions, by the simulated ensemble; call it in `patches.patched`."""
    own = world()
    network, process = Network(own, servers), own.process("sessions")
    recorder = Recorder(lambda: SimulatedClient(network, process, "127.0.0.1:1", 10.0), root)
    done: list[list[list[Any]]] = []

    def work() -> None:
        recorder.start()
        recorder.run(requests_)
        done.append([list(lines) for lines in recorder.lines])

    own.spawn(process, "main", work)
    assert own.run(lambda: bool(done), own.now + 10_000)
    return done[0]


@contextmanager
def recorded(settings: Settings, root: str) -> Iterator[Recorder]:
    """A recorder on real servers; the root is removed at the end."""
    recorder = Recorder(lambda: make_client(settings), root)
    try:
        recorder.start()
        yield recorder
    finally:
        for client in recorder.clients[:1]:
            client.chroot = ""
            with suppress(NoNodeError):
                client.delete(root, recursive=True)
        recorder.close()


def in_ranks(lines: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The lines with the rank of each transaction number in place of the number."""
    numbers = sorted({number for line in lines for one in line for number in _numbers(one)})
    rank = {number: position for position, number in enumerate(numbers)}
    return [[_ranked(one, rank) for one in line] for line in lines]


def _is_stat(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 9 and isinstance(value[0], int)


def _numbers(value: Any) -> Iterator[int]:
    if _is_stat(value):
        yield from (value[0], value[1], value[8])
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _numbers(one)


def _ranked(value: Any, rank: dict[int, int]) -> Any:
    if _is_stat(value):
        return (rank[value[0]], rank[value[1]], *value[2:8], rank[value[8]])
    if isinstance(value, tuple | list):
        return [_ranked(one, rank) for one in value]
    return value


def text_of(lines: Sequence[Sequence[Any]]) -> str:
    """The lines, ranked, as one line of JSON."""
    return json.dumps(in_ranks(lines), default=repr)


def main(length: int, root: str, seeds: Sequence[int]) -> None:
    for seed in seeds:
        world = World(seed)
        with patched(world):
            lines = simulated(sequence_of(seed, length), f"{root}-{seed}")
            world.close()
        print(text_of(lines), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], [int(seed) for seed in sys.argv[3:]])
