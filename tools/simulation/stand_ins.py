"""What stands for Redis, for the sources of content, and for the decoding process."""

import heapq
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha512
from itertools import count
from types import SimpleNamespace
from typing import Any

import redis
from kombu.exceptions import OperationalError

from pipeline.attempt import Attempt
from pipeline.checking.process import Opening
from pipeline.checks import Access, CheckedFile, CheckFinding, CheckRule, CheckVerdict
from pipeline.decoding import server
from pipeline.decoding.decoder import Request
from pipeline.http.transfer import ConnectionFault, Headers, Response
from pipeline.settings import Settings
from tasks.broker import Queued
from tools.simulation.plan import Plan
from tools.simulation.script import BROKEN, CHANGED, LOST, REPEATED, Script
from tools.simulation.world import World

LATE = 20.0
"""Most seconds after which a message comes a second time, as from a worker that did not confirm it."""


@dataclass(order=True)
class Message:
    priority: int
    number: int
    task: str = field(compare=False)
    arguments: tuple[Any, ...] = field(compare=False)
    expires: float = field(compare=False, default=float("inf"))
    """In the world's time."""


class Broker:
    """The messages that wait for a worker, and the client of Redis. May lose, repeat and forget."""

    def __init__(self, world: World, script: Script, plan: Plan) -> None:
        self._world, self._script, self._plan = world, script, plan
        self._messages: list[Message] = []
        self._numbers = count()
        self.answers = True
        self._keys: dict[str, float] = {}
        """Key -> when it expires."""

    def send(
        self, task: str, arguments: tuple[Any, ...], priority: int = 0, expires: float | None = None
    ) -> None:
        """Send one message; OperationalError while Redis does not answer."""
        world = self._world
        world.pass_place("broker", f"send {task} {_short(arguments)}")
        if not self.answers:
            raise OperationalError("Redis does not answer")
        longest = [0.005]
        if self._script.strikes(LOST, self._plan.lost):
            world.note("broker", "lost", f"{task} {_short(arguments)}")
            longest = []
        elif self._script.strikes(REPEATED, self._plan.repeated):
            world.note("broker", "repeated", f"{task} {_short(arguments)}")
            longest.append(LATE)
        until = float("inf") if expires is None else world.now + expires
        for seconds in longest:
            message = Message(priority, next(self._numbers), task, arguments, until)
            world.after(world.chance.random() * seconds, partial(heapq.heappush, self._messages, message))

    def take(self) -> Message | None:
        """The most urgent message."""
        while self.answers and self._messages:
            message = heapq.heappop(self._messages)
            if message.expires > self._world.now:
                return message
        return None

    def wipe(self) -> None:
        self._world.note("broker", "wiped", f"{len(self._messages)} messages")
        self._messages.clear()
        self._keys.clear()

    def queued(self, _: Settings) -> Queued:
        """As tasks.broker.read_queues."""
        if not self.answers:
            raise OperationalError("Redis does not answer")
        arguments = [message.arguments for message in self._messages if message.arguments]
        tickets = {(hint["id"], hint["epoch"]) for hint, *_ in arguments if isinstance(hint, dict)}
        callbacks = {(jid, epochs[0]) for jid, *epochs in arguments if epochs}
        return Queued(frozenset(tickets), callbacks=frozenset(callbacks))

    # --- the commands and scripts that production code uses of Redis

    def _live(self, key: str) -> bool:
        if not self.answers:
            raise redis.ConnectionError("Redis does not answer")
        return self._keys.get(key, 0.0) > self._world.now

    def set(self, key: str, _: object, ex: float | None = None, px: float | None = None) -> bool:
        self._live(key)
        self._keys[key] = self._world.now + (ex if ex is not None else (px or 1e12) / 1000)
        return True

    def get(self, key: str) -> bytes | None:
        return b"" if self._live(key) else None

    def delete(self, key: str) -> int:
        was = self._live(key)
        self._keys.pop(key, None)
        return int(was)

    def zadd(self, key: str, *_: object, **__: object) -> int:
        self._live(key)
        return 1

    def eval(self, script: str, keys: int, *values: Any) -> int:
        """The request of a feed, or the number of messages that wait."""
        if "'NX'" in script:
            complete, requested = values[:2]
            if self._live(complete) or self._live(requested) or len(self._messages) >= int(values[keys]):
                return 0
            self._keys[requested] = self._world.now + float(values[keys + 1])
            return 1
        self._live("")
        return len(self._messages)


def _short(arguments: tuple[Any, ...]) -> str:
    return " ".join(
        f"{one['id']} {one['state']} {one['epoch']}" if isinstance(one, dict) else str(one)
        for one in arguments
    )


class Publisher:
    """What production code asks of a Celery application."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.tasks: dict[str, Callable[..., Any]] = {}

    def send_task(self, name: str, args: tuple[Any, ...] = (), **options: Any) -> None:
        self._broker.send(name, tuple(args), options.get("priority") or 0, options.get("expires"))

    def producer_or_acquire(self) -> AbstractContextManager[Any]:
        return nullcontext(SimpleNamespace(batch=nullcontext))

    def task(self, name: str, **_: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def register(work: Callable[..., Any]) -> Callable[..., Any]:
            self.tasks[name] = work
            return work

        return register


class Decoder:
    """Calls the decoding functions in the process, with arguments and results as JSON carries them."""

    def decode(self, request: Request, attempt: Attempt) -> Iterator[Any]:
        arguments = json.loads(json.dumps(request.arguments))
        for result in server.FUNCTIONS[request.function](arguments, request.body, attempt):
            yield json.loads(json.dumps(result))


class OddNames:
    """A check that finds something in files with `odd` in their names."""

    name = "odd-names"
    access = Access()
    settings = None


class Checker:
    """Does the check in the process."""

    def opening(self, rule: CheckRule) -> Opening:
        return Opening(rule.name, OddNames)  # type: ignore[arg-type]

    def version(self, _: Opening, attempt: Attempt) -> str:
        attempt.check()
        return "1"

    def run(self, opening: Opening, files: Sequence[CheckedFile], attempt: Attempt, **on: Any) -> None:
        on["on_version"](self.version(opening, attempt))
        for file in files:
            attempt.check()
            verdict, code = (CheckVerdict.FOUND, "odd") if "odd" in file.path else (CheckVerdict.FINE, "")
            on["on_finding"](file, CheckFinding(path=file.path, verdict=verdict, code=code))


class Sources:
    """The content that depositors offer, and the faults of its hosts. Stands for a ContentSession."""

    def __init__(self, world: World, script: Script, plan: Plan) -> None:
        self._world, self._script, self._plan = world, script, plan
        self.content: dict[str, bytes] = {}
        self.digests: dict[str, str] = {}
        """sha512 of each content that a file has had -> its name."""

    def put_file(self, name: str, body: bytes) -> None:
        self.digests[sha512(body).hexdigest()] = name
        self.content[self.url(name)] = body

    @staticmethod
    def url(name: str) -> str:
        return f"http://source.example/{name}"

    def request(self, url: str, _: object, *, check: Callable[[], None], redirected: object) -> Response:
        world = self._world
        world.pass_place("source", f"GET {url}")
        check()
        world.park(world.chance.random() * 0.05)
        if self._script.strikes(BROKEN, self._plan.broken):
            raise ConnectionFault("the connection was closed before the answer")
        body_of_source = self.content.get(url)
        if body_of_source is None:
            return Response(404, Headers([("Content-Length", "0")]), url)
        name = url.rpartition("/")[2]
        if name in self.digests.values() and self._script.strikes(CHANGED, self._plan.changed):
            world.note("source", "changed", name)
            self.put_file(name, body_of_source + b" changed")  # for the next request
        breaks = self._script.strikes(BROKEN, self._plan.broken)
        return _Answer(world, url, body_of_source, check, breaks=breaks)


class _Answer(Response):
    def __init__(
        self, world: World, url: str, body: bytes, check: Callable[[], None], *, breaks: bool
    ) -> None:
        super().__init__(200, Headers([("Content-Length", str(len(body)))]), url)
        self._world, self._left, self._check, self._breaks = world, body, check, breaks

    def read1(self) -> bytes:
        self._check()
        self._world.park(self._world.chance.random() * 0.02)
        if self._breaks:
            raise ConnectionFault("the connection was closed")
        piece, self._left = self._left[:4096], self._left[4096:]
        return piece
