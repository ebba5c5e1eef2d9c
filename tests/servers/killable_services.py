"""Outside services as processes of their own: what they hold is on disk, and they can die in a request.

A service is told in which request it is to be killed, so that a kill in the middle is no matter of luck: the
request is done, or not yet (`undone`), and its answer never leaves.
"""

import logging
import os
import pickle
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from entrypoints.stack.child import Process
from entrypoints.stack.ports import HOST, free_ports
from tests.servers.ezid import Elements, Ezid, ezid
from tests.servers.merritt import Change, Merritt, merritt
from tests.servers.receiver import CallbackRequest, Receiver, receiving
from tests.support.fleet import Fleet

T = TypeVar("T")


@dataclass
class Killable:
    """The test's side of a service."""

    fleet: Fleet
    kind: str
    port: int = field(default_factory=lambda: free_ports(1)[0])
    process: Process | None = None

    @property
    def file(self) -> Path:
        return self.fleet.folder / f"{self.kind}.held"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self, dies_in: int = 0, *, undone: bool = False, wait: bool = True) -> None:
        """Start it, or start it again; killed in the request of that number, if one is given."""
        arguments = [self.kind, str(self.port), str(self.file), f"--dies-in={dies_in}"]
        if undone:
            arguments.append("--undone")
        self.process = self.fleet.start(
            self.kind, "-m", "tests.servers.killable_services", *arguments, wait=wait
        )

    def wait_ready(self) -> None:
        assert self.process is not None
        self.fleet.wait_ready(self.process)

    def await_death(self, timeout: float = 60) -> None:
        assert self.process is not None
        assert self.process.wait(timeout) == -signal.SIGKILL, self.process.log_tail()

    def held(self) -> Any:
        return pickle.loads(self.file.read_bytes())


@dataclass
class Life:
    """The service's side: how many requests it had, and which is the last."""

    file: Path
    dies_in: int
    undone: bool
    requests: int = 0

    def held(self, nothing: T) -> T:
        """What an earlier process held."""
        with suppress(FileNotFoundError):
            found: T = pickle.loads(self.file.read_bytes())
            return found
        return nothing

    def through(self, work: Callable[[], T], holding: Callable[[], object]) -> T:
        """One request: do it and keep what is held then, unless this is the moment."""
        self.requests += 1
        last = self.requests == self.dies_in
        if last and self.undone:
            os.kill(os.getpid(), signal.SIGKILL)
        done = work()
        draft = self.file.with_suffix(".draft")
        draft.write_bytes(pickle.dumps(holding()))
        draft.replace(self.file)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return done


@dataclass
class KeptEzid(Ezid):
    life: Life = field(kw_only=True)

    def answer(self, method: str, identifier: str, given: Elements) -> tuple[int, str]:
        return self.life.through(
            lambda: super(KeptEzid, self).answer(method, identifier, given), lambda: self.identifiers
        )


@dataclass
class KeptMerritt(Merritt):
    """Counts the changes that it was asked for."""

    life: Life = field(kw_only=True)

    def change(self, change: Change) -> bytes:
        return self.life.through(lambda: super(KeptMerritt, self).change(change), lambda: self.objects)


@dataclass
class KeptReceiver(Receiver):
    life: Life = field(kw_only=True)

    def record(self, request: CallbackRequest) -> None:
        self.life.through(lambda: super(KeptReceiver, self).record(request), lambda: self.received)


@dataclass
class KeptPostbox:
    life: Life
    letters: list[bytes]

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        letter = envelope.original_content or b""
        self.life.through(lambda: self.letters.append(letter), lambda: self.letters)
        return "250 OK"


def serve(kind: str, port: int, life: Life, opened: ExitStack) -> None:
    match kind:
        case "ezid":
            opened.enter_context(ezid(KeptEzid(port, life.held({}), life=life)))
        case "storage":
            opened.enter_context(merritt(KeptMerritt(port, life.held({}), life=life)))
        case "callback":
            opened.enter_context(receiving(KeptReceiver(port, life.held([]), life=life)))
        case "mail":
            logging.getLogger("mail.log").setLevel(logging.ERROR)  # aiosmtpd tells of every word
            postbox = Controller(KeptPostbox(life, life.held([])), hostname=HOST, port=port)
            postbox.start()
            opened.callback(postbox.stop)
        case _:
            raise ValueError(f"there is no service {kind!r}")


def main(
    kind: str, port: int, file: Path, dies_in: Annotated[int, typer.Option()] = 0, undone: bool = False
) -> None:
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    with ExitStack() as opened:
        serve(kind, port, Life(file, dies_in, undone), opened)
        Path(os.environ["ARKLINE_READY_FILE"]).touch()
        signal.sigwait(signals)


if __name__ == "__main__":
    typer.run(main)
