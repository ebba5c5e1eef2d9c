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
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import ZookeeperError
from kazoo.protocol import serialization
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData
from kazoo.protocol.states import KazooState, ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from tools.simulation.client import LARGEST, Network, SimulatedClient
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

_ZXID = re.compile(r"zxid \d+")


@dataclass(frozen=True)
class Step:
    """What a session does: `ask` for something, `reopen`, or one of FAULTS with what is asked meanwhile."""

    session: int
    what: str
    request: Any
    """kazoo's, with whole paths."""


FAULTS = ("break", "lose requests", "lose answers", "expire", "be away", "large")
"""Kinds of steps: the connection breaks, perhaps with a request or its answer lost; the session expires while
one waits to be sent; it is away while another has its turn; a byte more than LARGEST is sent."""


def root_of(seed: int) -> str:
    return f"/compared-{seed}"


def sequence_of(seed: int, length: int) -> list[Step]:
    """The steps of a seed. Expected versions are small, so that some requests are accepted."""
    chance = random.Random(f"requests {seed}")
    return [_step(chance, root_of(seed)) for _ in range(length)]


def _ignored(_: object) -> None:
    """A watch; the listeners of events record what is pushed."""


_READS: dict[str, Callable[[str], Any]] = {
    "get": lambda path: serialization.GetData(path, _ignored),
    "exists": lambda path: serialization.Exists(path, _ignored),
    "get_children": lambda path: serialization.GetChildren2(path, _ignored),
    "add_watch": requests.AddWatch,
    "sync": serialization.Sync,
    "reopen": lambda _: None,
}


def _step(chance: random.Random, root: str) -> Step:
    session = chance.randrange(SESSIONS)
    kind = chance.choices(
        ("change", "multi", *_READS, *FAULTS), (40, 20, 12, 12, 12, 2, 1, 2, *(0.7 for _ in FAULTS))
    )[0]
    if kind == "change":
        return Step(session, "ask", _change(chance, root))
    if kind == "multi":
        parts = [_change(chance, root, in_multi=True) for _ in range(chance.randint(1, 4))]
        encoded = [requests.HEADER.pack(part.type, False, -1) + part.serialize() for part in parts]
        return Step(session, "ask", requests.MultiRequest(encoded))
    if kind in FAULTS:
        asked = chance.choice((_change(chance, root), _READS["get"](root + chance.choice(PATHS))))
        path, longer = root + chance.choice(PATHS), chance.randint(-1, 1)
        if kind != "large":
            return Step(session, kind, asked)
        body = bytes(LARGEST - 12 - len(path) + longer)  # without the version and both lengths
        return Step(session, "large" if longer > 0 else "ask", SetData(path, body, -1))
    return Step(session, "reopen" if kind == "reopen" else "ask", _READS[kind](root + chance.choice(PATHS)))


def _change(chance: random.Random, root: str, *, in_multi: bool = False) -> Any:
    path = root + chance.choice(PATHS)
    data = chance.randbytes(chance.randrange(4))
    version = chance.choice((-1, -1, 0, 0, 1, 2))
    kind = chance.choice((Create, Create, SetData, Delete, *((CheckVersion,) if in_multi else ())))
    if kind is Create:
        flags = chance.choice((0, 0, 0, 1, 2, 3))
        return Create(path, data, ACCESS[chance.choice((0, 0, 0, 0, 0, 1, 2, 3))], flags)
    if kind is SetData:
        return SetData(path, data, version)
    if kind is CheckVersion:
        return CheckVersion(path, max(version, 0))
    return Delete(path, -1 if in_multi else version)


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
        self.clients[0].request(Create(self._root, b"", OPEN_ACL_UNSAFE, 0)).get(timeout=WAIT)

    def _opened(self, number: int) -> Client:
        client = self.links.open(number)

        def count(state: str) -> None:
            self._connections[number] += state == KazooState.CONNECTED

        client.add_listener(count)
        client.start_within(WAIT)
        client.chroot = self._root
        self._enter(client, number)
        client.add_event_listener(lambda kind, path: self.lines[number].append(("event", kind, path)))
        return client

    def _enter(self, client: Client, number: int) -> None:
        identity = client.client_id
        assert identity is not None
        self._owners[identity[0]] = f"session {number}"

    def run(self, steps: Sequence[Step]) -> None:
        for position, step in enumerate(steps):
            before = [len(lines) for lines in self.lines]
            answer = self._answer(step)
            if step.what != "reopen":
                self.lines[step.session].append((position, answer))
            for client in self.clients:  # what was pushed to a session before has then arrived
                client.exists_async("/").get(timeout=WAIT)
            if step.what in ("reopen", "expire"):  # whose ephemerals are deleted in the order of a hash set
                for lines, number in zip(self.lines, before, strict=True):
                    lines[number:] = sorted(lines[number:], key=repr)

    def _answer(self, step: Step) -> Any:
        number, client, links = step.session, self.clients[step.session], self.links
        connections = self._connections[number]
        match step.what:
            case "ask":
                return self._result(client.request(step.request))
            case "reopen":
                client.stop_within(WAIT)
                self.clients[number] = self._opened(number)
                return "reopened"
            case "large":
                answer = self._result(client.request(step.request))
            case "break":
                links.cut(number)
                answer = "broken"
            case "lose requests" | "lose answers":
                links.lose(number, step.what.removeprefix("lose "))
                asked = client.request(step.request)
                if step.what == "lose answers":
                    links.await_loss(number)
                links.cut(number)
                answer = self._result(asked)
            case "be away":
                self._leave(number)
                answer = self._result(self.clients[(number + 1) % SESSIONS].request(step.request))
                links.come_back(number)
            case _:  # the session expires
                self._leave(number)
                asked = client.request(step.request)
                links.end(number)
                links.come_back(number)
                answer = self._result(asked)
        self.wait(lambda: self._connections[number] > connections and client.connected)
        self._enter(client, number)
        return answer

    def _leave(self, number: int) -> None:
        self.links.leave(number)
        self.wait(lambda: not self.clients[number].connected)

    def _result(self, answer: Any) -> Any:
        try:
            return self._plain(answer.get(timeout=WAIT))
        except ZookeeperError as error:
            return type(error).__name__

    def wait(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT
        while not reached():
            assert time.monotonic() < deadline, "a connection does not change"
            time.sleep(0.005)

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


def without_majority(
    recorder: Recorder, lose: Callable[[], None], regain: Callable[[], None], session: float = TIMEOUT
) -> dict[str, Any]:
    """What three sessions see while too few servers are there for longer than a session, and afterwards.

    `session`: its seconds. The last session stays away when the servers are back.
    """
    first, second, last = recorder.clients
    for client, path in ((first, "/first"), (last, "/last")):
        client.create_async(path, b"", ephemeral=True).get(timeout=WAIT)
    before = [client.client_id for client in recorder.clients]
    lose()
    recorder.wait(lambda: not any(client.connected for client in recorder.clients))
    recorder.links.leave(2)
    waiting = first.set_async("/first", b"1")
    time.sleep(2 * session)
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
    for path in ("/x", "/y", "/z"):
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
            reader.set_async("/z", b"").get(timeout=WAIT)
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


def simulated(what: str, release: tuple[int, int], length: int, seed: int) -> str:
    """The answers to the steps of a seed, an outage, or reads of old states, as JSON."""
    own, servers, results = World(seed), 1 if what == "answers" else 3, list[str]()
    network, process = Network(own, servers, release), own.process("sessions")
    recorder = Recorder(Links(network, process), root_of(seed))

    def tick() -> None:
        network.expire()
        network.catch_up()
        own.after(0.5, tick)

    def run() -> None:
        recorder.start()
        if what == "answers":
            recorder.run(sequence_of(seed, length))
            results.append(text_of(recorder))
        elif what == "outage":
            facts = without_majority(recorder, network.lose_majority, network.regain_majority)
            results.append(json.dumps(facts))
        else:
            results.append(json.dumps(behind(recorder)))

    with patched(own):
        tick()
        own.spawn(process, run)
        assert own.run(lambda: bool(results), own.now + 10_000)
        own.close()
    return results[0]


if __name__ == "__main__":
    major, _, minor = sys.argv[2].partition(".")
    for argument in sys.argv[4:]:
        print(simulated(sys.argv[1], (int(major), int(minor)), int(sys.argv[3]), int(argument)), flush=True)
