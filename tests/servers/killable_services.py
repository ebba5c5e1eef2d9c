"""Outside services as separate processes, with their data on disk, that can be killed within a request.

A service is started with the number of the request that kills it: a kill in the middle does not depend
on timing: the request is done, or not yet (`undone`), and no response is sent.
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

from entrypoints.stack.child import HOST, Process, free_ports
from tests.servers.ezid import Elements, Ezid, ezid
from tests.servers.merritt import Change, Merritt, merritt
from tests.servers.receiver import CallbackRequest, Receiver, receiving
from tests.support.fleet import Fleet

T = TypeVar("T")


@dataclass
class KillableService:
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
        """Start the service, also after it was killed; request number `dies_in` kills it."""
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
class DurableState:
    """The service's side: its data on disk, and the request in which its process is killed."""

    file: Path
    dies_in: int
    undone: bool
    requests: int = 0

    def load(self, default: T) -> T:
        """The data of the process before this one."""
        with suppress(FileNotFoundError):
            data: T = pickle.loads(self.file.read_bytes())
            return data
        return default

    def change(self, work: Callable[[], T], data: Callable[[], object]) -> T:
        """Serve one request and save the data, unless the process is to be killed before or after it."""
        self.requests += 1
        last = self.requests == self.dies_in
        if last and self.undone:
            os.kill(os.getpid(), signal.SIGKILL)
        result = work()
        draft = self.file.with_suffix(".draft")
        draft.write_bytes(pickle.dumps(data()))
        draft.replace(self.file)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


@dataclass
class DurableEzid(Ezid):
    state: DurableState = field(kw_only=True)

    def answer(self, method: str, identifier: str, given: Elements) -> tuple[int, str]:
        return self.state.change(
            lambda: super(DurableEzid, self).answer(method, identifier, given), lambda: self.identifiers
        )


@dataclass
class DurableMerritt(Merritt):
    state: DurableState = field(kw_only=True)

    def change(self, change: Change) -> bytes:
        return self.state.change(lambda: super(DurableMerritt, self).change(change), lambda: self.objects)


@dataclass
class DurableReceiver(Receiver):
    state: DurableState = field(kw_only=True)

    def record(self, request: CallbackRequest) -> None:
        self.state.change(lambda: super(DurableReceiver, self).record(request), lambda: self.received)


@dataclass
class DurablePostbox:
    state: DurableState
    letters: list[bytes]

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        letter = envelope.original_content or b""
        self.state.change(lambda: self.letters.append(letter), lambda: self.letters)
        return "250 OK"


def serve(kind: str, port: int, state: DurableState, opened: ExitStack) -> None:
    match kind:
        case "ezid":
            opened.enter_context(ezid(DurableEzid(port, state.load({}), state=state)))
        case "storage":
            opened.enter_context(merritt(DurableMerritt(port, state.load({}), state=state)))
        case "callback":
            opened.enter_context(receiving(DurableReceiver(port, state.load([]), state=state)))
        case "mail":
            logging.getLogger("mail.log").setLevel(logging.ERROR)  # aiosmtpd logs every command
            postbox = Controller(DurablePostbox(state, state.load([])), hostname=HOST, port=port)
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
        serve(kind, port, DurableState(file, dies_in, undone), opened)
        Path(os.environ["ARKLINE_READY_FILE"]).touch()
        signal.sigwait(signals)


if __name__ == "__main__":
    typer.run(main)
