"""The services outside of a site: EZID, the mail server, and the receiver of callbacks, as values in memory.

A request may be lost before it has an effect, or its answer after that, or the service may refuse.
"""

import smtplib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import EmailMessage
from types import SimpleNamespace
from typing import Any, Self

import requests

from pipeline.description import anvl
from pipeline.http.transfer import Dropped, Headers, Response
from tools.simulation.world import World

LOST, UNANSWERED, REFUSED = "request lost", "answer lost", "request refused"
SERVICE_FAULTS = (LOST, UNANSWERED, REFUSED)

SERVICE_PLACES = ("ezid PUT", "ezid GET", "ezid POST", "mail DATA", "callback POST")

DOUBT = 120.0
"""Seconds for which a fault of the sender excuses a second delivery: a process is frozen for less."""


@dataclass(frozen=True)
class Delivery:
    """A report or a callback that its receiver accepted."""

    name: str
    """Its Message-ID or its webhook-id."""
    sender: str
    at: float
    answered: bool


@dataclass
class Outside:
    """What the services have, and which of their faults come next.

    Also the connection to the mail server (as `smtplib.SMTP`) and to a receiver (as `ContentSession`).
    """

    world: World
    fault_at: Callable[[str], str] = lambda _: ""
    """Place -> the fault of the request there; empty for none."""
    names: dict[str, dict[str, str]] = field(default_factory=dict)
    """ARK -> its elements at EZID."""
    deliveries: list[Delivery] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    """Message-IDs that were refused for good: a batch then ends without its mail, as its report says."""
    problems: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def _ask(self, place: str, detail: str, effect: Callable[[bool], Any], refusal: Callable[[], Any]) -> Any:
        """The answer of a service. `effect` gets whether its answer arrives; OSError if none does."""
        world = self.world
        kind, _, what = place.partition(" ")
        world.pass_place(kind, f"{what} {detail}")
        world.park(world.chance.random() * 0.05)
        fault = self.fault_at(place)
        if fault == LOST:
            raise ConnectionError("the connection broke")
        if fault == REFUSED:
            return refusal()
        answer = effect(fault != UNANSWERED)
        world.park(world.chance.random() * 0.05)
        if fault == UNANSWERED:
            raise ConnectionError("the connection broke")
        return answer

    # --- EZID

    def register(self, method: str, url: str, *, data: bytes | None = None, **_: object) -> Any:
        """EZID's API, as `pipeline.http.service.request`."""
        ark = url.partition("/id/")[2]

        def effect(_: bool) -> Any:
            known, given = self.names.get(ark), dict(anvl.parse(data, "the request")) if data else {}
            if method == "PUT" and known is not None:
                return _answer(400, "error: bad request - identifier already exists")
            if method != "PUT" and known is None:
                return _answer(400, "error: bad request - no such identifier")
            if known is not None and given.get("arkline.job", known["arkline.job"]) != known["arkline.job"]:
                self.problems.append(f"ezid: {ark} of {known['arkline.job']} is given to another job at EZID")
            entry = self.names.setdefault(ark, {}) if method != "GET" else known or {}
            entry.update(given)
            lines = "".join(f"\n{name}: {anvl.escape(value)}" for name, value in entry.items())
            return _answer(200, f"success: {ark}{lines if method == 'GET' else ''}")

        try:
            return self._ask(f"ezid {method}", ark, effect, self._refuse)
        except ConnectionError as error:
            raise requests.ConnectionError(str(error)) from error

    def _refuse(self) -> Any:
        """Not for now, or for good."""
        status, text = self.world.chance.choice(((500, "internal error"), (400, "bad request - not this")))
        return _answer(status, f"error: {text}")

    # --- mail

    def send_message(self, message: EmailMessage) -> dict[str, Any]:
        name = str(message["Message-ID"])

        def refuse() -> None:
            code = self.world.chance.choice((451, 550))
            if code == 550:  # mailbox unavailable (RFC 5321, 4.2.3)
                self.refused.add(name)
            raise smtplib.SMTPDataError(code, b"not now")

        self._ask("mail DATA", name, lambda answered: self._deliver(name, answered), refuse)
        return {}

    # --- callbacks

    def request(self, url: str, headers: Mapping[str, str], _: bytes, check: Callable[[], None]) -> Response:
        check()
        name = headers["webhook-id"]
        self.world.note("callback", "asked", name)

        def effect(answered: bool) -> Response:
            self._deliver(name, answered)
            return Response(200, Headers([]), url)

        choice = self.world.chance.choice
        try:
            answer: Response = self._ask(
                "callback POST", name, effect, lambda: Response(choice((410, 503)), Headers([]), url)
            )
        except ConnectionError as error:
            raise Dropped("the connection was closed") from error
        return answer

    def _deliver(self, name: str, answered: bool) -> None:
        task = self.world.current
        sender = f"{task.process.name} {task.process.pid}" if task else ""
        self.deliveries.append(Delivery(name, sender, self.world.now, answered))

    # --- the judgement

    def delivered(self, part: str) -> bool:
        """Whether it was accepted, or refused for good."""
        names = (*(delivery.name for delivery in self.deliveries), *self.refused)
        return any(part in name for name in names)

    def judge(self, faults_of: Mapping[str, list[float]]) -> list[str]:
        """What went wrong. `faults_of`: sender -> when it had a fault, which excuses a second delivery."""
        problems, last = [*self.problems], dict[str, Delivery]()
        for one in self.deliveries:
            before = last.get(one.name)
            last[one.name] = one
            if before is None or not before.answered or one.sender.startswith("operator"):
                continue
            doubts = [at for who in (before.sender, one.sender, "") for at in faults_of.get(who, ())]
            if not any(before.at - DOUBT < at <= one.at for at in doubts):
                problems.append(f"delivery: {one.name} was delivered twice, and its first answer arrived")
        return problems


def _answer(status: int, text: str) -> Any:
    return SimpleNamespace(status_code=status, headers={}, content=f"{text}\n".encode())
