"""The same random requests to the simulated ensemble and to real servers; every answer must be the same.

`python -m` of this module prints the answers of the simulated one for the seeds, a line for each: a test
has threads in its process, from which nothing may be taken.
"""

import json
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kazoo.exceptions import ZookeeperError
from kazoo.protocol.states import KazooState, ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from tools.simulation.client import Network, SimulatedClient
from tools.simulation.patches import patched
from tools.simulation.world import Process, World
from zkstate.direct import Client, requests
from zkstate.direct.client import whole_path

SESSIONS = 3

PATHS = ("/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/f", "/e/f/g")

WAIT = 30.0
"""Seconds for an answer, or for a connection."""

TIMEOUT = 4.0
"""Seconds of a session."""

USERS = ("ann", "ben", "")
"""Who has opened each session; its password is its name."""

KEEPER = make_digest_acl("keeper", "keeper", all=True)
"""May remove what the sessions leave."""

_ANN = make_digest_acl("ann", "ann", all=True)
ACCESS = (
    OPEN_ACL_UNSAFE,
    [KEEPER, _ANN],
    [KEEPER, _ANN, make_acl("world", "anyone", read=True)],
    [KEEPER, make_digest_acl("ben", "ben", read=True, create=True)],
)
"""The access lists of new nodes."""

LARGEST = 0xFFFFF
"""Bytes of the largest request."""

_ZXID = re.compile(r"zxid \d+")


@dataclass(frozen=True)
class Request:
    """One request of a session; `what` is the name of kazoo's method, or `multi`, or a fault."""

    session: int
    what: str
    path: str = "/"
    arguments: dict[str, Any] = field(default_factory=dict)
    parts: tuple["Request", ...] = ()


def sequence_of(seed: int, length: int) -> list[Request]:
    """The requests of a seed; versions are small, so that some fit."""
    chance = random.Random(f"requests {seed}")
    return [_request(chance) for _ in range(length)]


FAULTS = ("break", "lose requests", "lose answers", "expire", "be away", "large")
"""Kinds of requests: the connection breaks, perhaps with a request or its answer lost; the session
expires while one waits to be sent; it is away while another has its turn; about LARGEST bytes are sent."""


_OF_CHANGE = {"create": ("value", "acl", "ephemeral", "sequence"), "set": ("value", "version")}
"""Kind of change -> its arguments; the other kinds have only a version."""


def _ignored(_: object) -> None:
    """A watch; the listeners of events record what is pushed."""


_READS: dict[str, dict[str, Any]] = {
    "get": {"watch": _ignored},
    "exists": {"watch": _ignored},
    "get_children": {"watch": _ignored, "include_data": True},
}


def _request(chance: random.Random) -> Request:
    session = chance.randrange(SESSIONS)
    kind = chance.choices(
        ("change", "multi", *_READS, "add_watch", "sync", "reopen", *FAULTS),
        (40, 20, 12, 12, 12, 2, 1, 2, *(0.7 for _ in FAULTS)),
    )[0]
    if kind == "change":
        return _change(chance, session)
    if kind == "multi":
        parts = tuple(_change(chance, session, in_multi=True) for _ in range(chance.randint(1, 4)))
        return Request(session, "multi", parts=parts)
    if kind in FAULTS:
        other = (session + 1) % SESSIONS if kind == "be away" else session
        part = chance.choice((_change(chance, other), _read(other, "get", chance)))
        path, length = chance.choice(PATHS), chance.randint(-1, 1)
        return Request(session, kind, path, {"longer": length}, parts=(part,))
    return _read(session, kind, chance)


def _read(session: int, kind: str, chance: random.Random) -> Request:
    return Request(session, kind, chance.choice(PATHS), _READS.get(kind, {}))


def _change(chance: random.Random, session: int, *, in_multi: bool = False) -> Request:
    path = chance.choice(PATHS)
    data = chance.randbytes(chance.randrange(4))
    version = chance.choice((-1, -1, 0, 0, 1, 2))
    kind = chance.choice(("create", "create", "set", "delete", *(("check",) if in_multi else ())))
    given: dict[str, Any] = {"value": data, "version": version}
    if kind == "create":
        flags = chance.choice((0, 0, 0, 1, 2, 3))
        given |= {"ephemeral": bool(flags & 1), "sequence": bool(flags & 2)}
        given["acl"] = ACCESS[chance.choice((0, 0, 0, 0, 0, 1, 2, 3))]
    return Request(session, kind, path, {name: given[name] for name in _OF_CHANGE.get(kind, ("version",))})


class Links:
    """The simulated connections of the sessions to their servers, by the number of the session."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network, self._process = network, process
        self._clients: dict[int, SimulatedClient] = {}

    def open(self, number: int) -> Client:
        """A client that is not connected yet."""
        user = USERS[number]
        auth = [("digest", f"{user}:{user}")] if user else []
        client = SimulatedClient(self._network, self._process, "127.0.0.1:1", TIMEOUT, auth_data=auth)
        self._clients[number] = client
        return client

    def lose(self, number: int, what: str) -> None:
        """Lose `requests` or `answers` until the connection is cut."""
        self._clients[number].fall_silent(what)

    def await_loss(self, _: int) -> None:
        """Wait until an answer was lost."""
        time.sleep(1)

    def cut(self, number: int) -> None:
        """End the connection; a new one works."""
        self._clients[number].break_off("cut")

    def leave(self, number: int) -> None:
        """End the connection, and let none begin until `come_back`."""
        self._clients[number].reachable = False
        self.cut(number)

    def come_back(self, number: int) -> None:
        self._clients[number].reachable = True

    def end(self, number: int) -> None:
        """The servers end the session."""
        self._network.end(self._clients[number].session)


class Recorder:
    """The answers and events of one side, each in the order of its session."""

    def __init__(self, links: Links, root: str) -> None:
        self.links, self._root = links, root
        self.clients: list[Client] = []
        self.lines: list[list[Any]] = [[] for _ in range(SESSIONS)]
        self._connections = [0] * SESSIONS
        self._owners: dict[int, str] = {0: ""}

    def start(self) -> None:
        self.clients = [self._opened(number) for number in range(SESSIONS)]
        self.clients[0].ensure_path_async(self._root).get(timeout=WAIT)
        for client in self.clients:
            client.chroot = self._root

    def _opened(self, number: int) -> Client:
        client = self.links.open(number)

        def count(state: str) -> None:
            self._connections[number] += state == KazooState.CONNECTED

        client.add_listener(count)
        client.start_within(WAIT)
        self._enter(client, number)
        client.add_event_listener(lambda kind, path: self.lines[number].append(("event", kind, path)))
        return client

    def _enter(self, client: Client, number: int) -> None:
        identity = client.client_id
        assert identity is not None
        self._owners[identity[0]] = f"session {number}"

    def run(self, requests_: Sequence[Request]) -> None:
        for position, request in enumerate(requests_):
            before = [len(lines) for lines in self.lines]
            answer = self._answer(request)
            if request.what != "reopen":
                self.lines[request.session].append((position, answer))
            for client in self.clients:  # what was pushed to a session before has then arrived
                client.exists_async("/").get(timeout=WAIT)
            if request.what in (
                "reopen",
                "expire",
            ):  # whose ephemerals are deleted in the order of a hash set
                for lines, number in zip(self.lines, before, strict=True):
                    lines[number:] = sorted(lines[number:], key=repr)

    def _answer(self, request: Request) -> Any:
        client = self.clients[request.session]
        if request.what == "reopen":
            client.stop_within(WAIT)
            self.clients[request.session] = self._opened(request.session)
            self.clients[request.session].chroot = self._root
            return "reopened"
        if request.what in FAULTS:
            return self._disturbed(client, request)
        return self._result(self._ask(client, request))

    def _result(self, answer: Any) -> Any:
        try:
            return self._plain(answer.get(timeout=WAIT))
        except ZookeeperError as error:
            return type(error).__name__

    def _disturbed(self, client: Client, request: Request) -> Any:
        number, before = request.session, self._connections[request.session]
        links, (part,) = self.links, request.parts
        if request.what == "large":
            answer = self._result(self._ask(client, request))
            if request.arguments["longer"] <= 0:
                return answer
        elif request.what == "break":
            links.cut(number)
            answer = "broken"
        elif request.what in ("lose requests", "lose answers"):
            links.lose(number, request.what.removeprefix("lose "))
            asked = self._ask(client, part)
            if request.what == "lose answers":
                links.await_loss(number)
            links.cut(number)
            answer = self._result(asked)
        else:
            links.leave(number)
            self.wait(lambda: not client.connected)
            asked = self._ask(self.clients[part.session], part)
            if request.what == "expire":
                links.end(number)
            else:
                answer = self._result(asked)
            links.come_back(number)
            if request.what == "expire":
                answer = self._result(asked)
        self.wait(lambda: self._connections[number] > before and client.connected)
        self._enter(client, number)
        return answer

    def wait(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT
        while not reached():
            assert time.monotonic() < deadline, "a connection does not change"
            time.sleep(0.005)

    def _ask(self, client: Client, request: Request) -> Any:
        if request.what == "multi":
            parts = [_encoded(client, part) for part in request.parts]
            return client.request(requests.MultiRequest(parts))
        if request.what == "large":  # without the lengths of packet, path and data, version, number and type
            room = LARGEST - 20 - len(whole_path(client.chroot, request.path))
            return client.set_async(request.path, bytes(room + request.arguments["longer"]))
        return getattr(client, f"{request.what}_async")(request.path, **request.arguments)

    def _plain(self, answer: Any) -> Any:
        """The answer without what differs between two servers: times, and the ids of sessions."""
        match answer:
            case ZnodeStat(czxid, mzxid, _, _, version, cversion, aversion, owner, size, children, pzxid):
                numbers = [f"zxid {number:020}" for number in (czxid, mzxid, pzxid)]
                return (*numbers, version, cversion, aversion, self._owners[owner], size, children)
            case ZookeeperError():
                return type(answer).__name__
            case list():
                return [self._plain(one) for one in answer]
            case tuple():
                first, stat = answer
                return (sorted(first) if isinstance(first, list) else self._plain(first), self._plain(stat))
            case bytes() if len(answer) > 100:
                return f"{len(answer)} bytes"
            case _:
                return answer

    def close(self) -> None:
        for client in self.clients:
            client.stop_within(WAIT)


def _encoded(client: Client, part: Request) -> bytes:
    path, given = whole_path(client.chroot, part.path), part.arguments
    match part.what:
        case "create":
            return requests.create(
                path, given["value"], given["acl"], given["ephemeral"] + 2 * given["sequence"]
            )
        case "set":
            return requests.put(path, given["value"], given["version"])
        case "delete":
            return requests.delete(path)
        case _:
            return requests.check(path, max(given["version"], 0))


def without_majority(
    recorder: Recorder, lose: Callable[[], None], regain: Callable[[], None]
) -> dict[str, Any]:
    """What three sessions see while too few servers are there for longer than a session, and afterwards.

    The last session stays away when the servers are back.
    """
    first, second, last = recorder.clients
    for client, path in ((first, "/first"), (last, "/last")):
        client.create_async(path, b"", ephemeral=True).get(timeout=WAIT)
    before = [client.client_id for client in recorder.clients]
    lose()
    recorder.wait(lambda: not any(client.connected for client in recorder.clients))
    recorder.links.leave(2)
    waiting = first.set_async("/first", b"1")
    time.sleep(2 * TIMEOUT)
    facts: dict[str, Any] = {"answered without a majority": waiting.ready()}
    regain()
    recorder.wait(lambda: first.connected and second.connected)
    facts["answer"] = waiting.get(timeout=WAIT).version
    facts["same sessions"] = [first.client_id == before[0], second.client_id == before[1]]
    facts["its node"] = second.exists_async("/first").get(timeout=WAIT) is not None
    recorder.wait(lambda: second.exists_async("/last").get(timeout=WAIT) is None)
    recorder.links.come_back(2)
    recorder.wait(lambda: last.connected)
    facts["the last session is new"] = last.client_id != before[2]
    return facts


def behind(recorder: Recorder) -> tuple[int, list[str]]:
    """How many reads were old, and what no server may show: an older state than it has shown the session.

    One session changes two nodes at once, again and again; one that another server answers reads them.
    """
    writer, reader = recorder.clients[1], recorder.clients[0]
    for path in ("/x", "/y"):
        writer.create_async(path, b"").get(timeout=WAIT)
    reader.sync_async("/").get(timeout=WAIT)
    old, wrong, latest = 0, list[str](), 0
    for number in range(1, 101):
        both = [requests.put(whole_path(writer.chroot, path), b"", -1) for path in ("/x", "/y")]
        writer.request(requests.MultiRequest(both)).get(timeout=WAIT)
        if number % 10 == 0:
            reader.sync_async("/").get(timeout=WAIT)
            latest = number
        if number % 25 == 0:
            own = reader.set_async("/z", b"").get(timeout=WAIT) if number > 25 else None
            reader.create_async("/z", b"").get(timeout=WAIT) if own is None else None
            latest = number
        for path in ("/x", "/y", "/x"):
            version = reader.get_async(path).get(timeout=WAIT)[1].version
            if not latest <= version <= number:
                wrong.append(f"{path} has version {version} after {latest}, and {number} was written")
            latest, old = max(latest, version), old + (version < number)
    return old, wrong


def text_of(recorder: Recorder) -> str:
    """The answers and events as JSON, with the rank of each transaction number in place of the number."""
    text = json.dumps(recorder.lines, default=repr)
    rank = {number: str(position) for position, number in enumerate(sorted(set(_ZXID.findall(text))))}
    return _ZXID.sub(lambda match: rank[match[0]], text)


def simulated(
    what: str, seed: int, length: int, release: tuple[int, int], own: World, ended: Callable[[str], None]
) -> None:
    """Begin the requests of a seed, an outage, or reads of old states; `ended` gets the result as JSON."""
    servers = 1 if what == "answers" else 3
    network, process = Network(own, servers, release), own.process("sessions")
    recorder = Recorder(Links(network, process), f"/compared-{seed}")

    def tick() -> None:
        network.expire()
        for server in range(1, servers):
            network.catch_up(server)
        own.after(0.5, tick)

    def run() -> None:
        recorder.start()
        if what == "answers":
            recorder.run(sequence_of(seed, length))
            ended(text_of(recorder))
        elif what == "outage":
            ended(json.dumps(without_majority(recorder, network.lose_majority, network.regain_majority)))
        else:
            ended(json.dumps(behind(recorder)))

    tick()
    own.spawn(process, run)


def main(what: str, release: tuple[int, int], length: int, seeds: Sequence[int]) -> None:
    for seed in seeds:
        own, results = World(seed), list[str]()
        with patched(own):
            simulated(what, seed, length, release, own, results.append)
            assert own.run(lambda results=results: bool(results), own.now + 10_000)  # type: ignore[misc]
            own.close()
        print(*results, flush=True)


if __name__ == "__main__":
    major, _, minor = sys.argv[2].partition(".")
    main(sys.argv[1], (int(major), int(minor)), int(sys.argv[3]), [int(seed) for seed in sys.argv[4:]])
