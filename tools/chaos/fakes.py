"""Servers that replace the outside systems, each behind a proxy that can refuse, hang or lose answers."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from entrypoints.stack.child import HOST, free_ports
from tests import servers
from tests.servers.ezid import Ezid
from tests.servers.hostile_source import VARIANTS, HostileSource
from tests.servers.http_source import HttpSource, Page
from tests.servers.proxy import Proxy
from tests.servers.receiver import Receiver, receiving

FAR = "/far"
"""Paths with this prefix are served under another address, by a host that can be dead or slow by itself."""

FAR_HOST = "127.0.0.2"

MAIL_SECONDS = 0.7
"""Seconds that the mail server takes for a mail: long enough to interrupt a report midway."""

DRIP_SECONDS = 1.0
"""Seconds between two pieces of an answer that never ends."""

logging.getLogger("mail.log").setLevel(logging.ERROR)  # aiosmtpd logs every command


@dataclass
class Postbox:
    """A mail server that keeps what it accepts; while `busy`, it answers that it cannot take mail."""

    taken: list[bytes] = field(default_factory=list)
    busy: bool = False

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.busy:
            return "451 try again later"
        await asyncio.sleep(MAIL_SECONDS)
        content = envelope.content or b""
        self.taken.append(content.encode() if isinstance(content, str) else content)
        return "250 OK"

    def letters(self) -> list[EmailMessage]:
        return [message_from_bytes(data, policy=policy.default) for data in self.taken]


class ProxiedSource(HttpSource):
    """A content source with two addresses, each behind a proxy; each address can be busy."""

    front: Proxy
    far: Proxy

    def __init__(self) -> None:
        super().__init__()
        self._clear: dict[str, Page] = {}
        """Path of a busy page -> the page as it was."""

    def url(self, path: str) -> str:
        return f"http://{(self.far if path.startswith(FAR) else self.front).hosts}{path}"

    def busy(self, status: int, retry_after: str, *, far: bool) -> None:
        """Answer `status` on every page of one of the two hosts until `calm`."""
        self.calm(far=far)
        for path in [path for path in self._site.pages if path.startswith(FAR) is far]:
            self._clear[path] = self._site.pages[path]
            self.change(path, status=status, status_times=None, retry_after=retry_after)

    def calm(self, *, far: bool) -> None:
        for path in [path for path in self._clear if path.startswith(FAR) is far]:
            page = self._clear.pop(path)
            self.change(
                path, status=page.status, status_times=page.status_times, retry_after=page.retry_after
            )


@dataclass(frozen=True)
class Fakes:
    source: ProxiedSource
    source_proxy: Proxy
    far_proxy: Proxy
    ezid: Ezid
    ezid_proxy: Proxy
    postbox: Postbox
    mail_proxy: Proxy
    receiver: Receiver
    callback_proxy: Proxy
    hostile: dict[str, str]
    """Form of never-ending answer -> its URL."""

    def heal(self) -> None:
        self.postbox.busy = False
        self.source.calm(far=False)
        self.source.calm(far=True)
        self.far_proxy.hurry()
        for proxy in (
            *(self.source_proxy, self.far_proxy),
            *(self.ezid_proxy, self.mail_proxy, self.callback_proxy),
        ):
            proxy.accept()
            proxy.cut()


@contextmanager
def hostile_sources() -> Iterator[dict[str, str]]:
    """Form of never-ending answer -> its URL, each on its own host."""
    with ExitStack() as held:
        yield {
            variant: held.enter_context(HostileSource(variant, DRIP_SECONDS, host=f"127.0.0.{number}")).url
            for number, variant in enumerate(VARIANTS, 10)
        }


@contextmanager
def run_fakes() -> Iterator[Fakes]:
    postbox = Postbox()
    controller = Controller(postbox, hostname=HOST, port=free_ports(1)[0])
    controller.start()
    source = ProxiedSource()
    try:
        with (
            receiving() as receiver,
            source,
            servers.ezid.ezid() as ezid,
            Proxy(ezid.port) as ezid_proxy,
            Proxy(source.port) as source_proxy,
            Proxy(source.port, FAR_HOST) as far_proxy,
            Proxy(controller.port) as mail_proxy,
            Proxy(receiver.port) as callback_proxy,
            hostile_sources() as hostile,
        ):
            source.front, source.far = source_proxy, far_proxy
            yield Fakes(
                source,
                source_proxy,
                far_proxy,
                ezid,
                ezid_proxy,
                postbox,
                mail_proxy,
                receiver,
                callback_proxy,
                hostile,
            )
    finally:
        controller.stop()
