"""A server on loopback that speaks the Merritt storage service's protocol, with faults for its changes."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen
from xml.sax.saxutils import escape, quoteattr

from tests.servers.base import Handler, Service, running

CREATED = "2026-09-01T12:00:00-07:00"


@dataclass(frozen=True)
class Held:
    """One file of a version."""

    data: bytes
    version: int
    digest_type: str = "SHA-512"

    def digest(self) -> str:
        return hashlib.new(self.digest_type.replace("-", "").lower(), self.data).hexdigest()


@dataclass(frozen=True)
class Fault:
    """A fault in the response to one change."""

    status: int = 200
    body: bytes | None = None
    """Sent instead of the service's response; nothing is done."""
    done: bool = False
    """The change is done although `body` is sent."""
    cut: bool = False
    """The change is done, and the connection ends without a response."""
    hold: bool = False
    """The change is done, and no response is sent before the server stops."""


@dataclass(frozen=True)
class Change:
    action: str
    node: str
    ark: str
    jid: str
    form: dict[str, str]


Versions = list[dict[str, Held]]


@dataclass
class Merritt(Service):
    objects: dict[tuple[str, str], Versions] = field(default_factory=dict)
    """(node, ark) -> its versions."""
    changes: list[Change] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    handed: dict[str, bytes] = field(default_factory=dict)
    """Path -> bytes served instead of the stored ones."""
    lost: set[str] = field(default_factory=set)
    """Paths that are listed in the manifest and answered with 404."""
    unread: int = 0
    """Reads that are answered with 503 from now on."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/store"

    def change(self, change: Change) -> bytes:
        """Store a version; raises ValueError with the problem of the request."""
        text = change.form.get("manifest") or _fetch(change.form["url"]).decode()
        number = len(self.objects.get((change.node, change.ark), ())) + 1
        versions = self.objects.get((change.node, change.ark), [])
        files = {} if change.action == "add" or not versions else dict(versions[-1])
        for path in change.form.get("delete", "").splitlines():
            del files[path]
        for path, data in _rows(text):
            held = (old for version in versions for old in version.values() if old.data == data)
            files[path] = next(held, Held(data, number))
        self.objects[change.node, change.ark] = [*versions, files]
        size = sum(len(file.data) for file in files.values())
        state = {"ver:identifier": number, "ver:objectID": change.ark, "ver:totalActualSize": size}
        return json.dumps({"ver:versionState": state}).encode()

    def manifest(self, node: str, ark: str) -> bytes | None:
        versions = self.objects.get((node, ark))
        if versions is None:
            return None
        told = "".join(
            f'<m:version id="{number}"><m:manifest count="{len(files)}" created="{CREATED}">'
            + "".join(_file(ark, path, file) for path, file in files.items())
            + "</m:manifest></m:version>"
            for number, files in enumerate(versions, 1)
        )
        return (
            '<?xml version="1.0"?><m:objectInfo xmlns:m="http://uc3.cdlib.org/ontology/mrt/manifest">'
            f"<m:object id={quoteattr(ark)}><m:current>{len(versions)}</m:current></m:object>"
            f"<m:versions>{told}</m:versions></m:objectInfo>"
        ).encode()


def _file(ark: str, path: str, file: Held) -> str:
    return (
        f"<m:file id={quoteattr(path)}><m:digestType>{file.digest_type}</m:digestType>"
        f"<m:digest>{file.digest()}</m:digest><m:size>{len(file.data)}</m:size>"
        f"<m:key>{escape(f'{ark}|{file.version}|{path}')}</m:key></m:file>"
    )


def _fetch(url: str) -> bytes:
    with urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


def _rows(text: str) -> Iterator[tuple[str, bytes]]:
    """The manifest's files, fetched and checked."""
    assert text.endswith("#%eof\n"), "truncated"
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        url, kind, value, size, _, name, _ = (cell.strip() for cell in line.split("|"))
        data = _fetch(url)
        if len(data) != int(size) or hashlib.new(kind, data).hexdigest() != value:
            raise ValueError(f"fixity of {name} differs")
        yield name.replace("%20", " ").replace("%7c", "|"), data


class _Answer(Handler):
    service: Merritt

    def _parts(self) -> list[str]:
        return [unquote(part) for part in urlsplit(self.path).path.split("/")[2:]]

    def do_GET(self) -> None:
        with self.service.turn:
            if self.service.unread:
                self.service.unread -= 1
                return self.respond(503, b"busy")
            match self._parts():
                case ["manifest", node, ark]:
                    body = self.service.manifest(node, ark)
                case ["content", node, ark, number, path]:
                    held = self.service.objects[node, ark][int(number) - 1].get(path)
                    there = held is not None and path not in self.service.lost
                    body = self.service.handed.get(path, held.data) if held and there else None
                case _:
                    body = None
            return self.respond(404, b"no such thing") if body is None else self.respond(200, body)

    def do_POST(self) -> None:
        raw = self.request_body().decode()
        form = {name: values[0] for name, values in parse_qs(raw, strict_parsing=True).items()}
        action, node, ark = self._parts()
        change = Change(action, node, ark, self.headers["JID"], form)
        with self.service.turn:
            self.service.changes.append(change)
            fault = self.service.faults.pop(0) if self.service.faults else Fault()
            status, body = (fault.status, fault.body or b"")
            if fault.body is None or fault.done:
                try:
                    said = self.service.change(change)
                    status, body = (status, body) if fault.done else (200, said)
                except ValueError as error:
                    status, body = 400, str(error).encode()
        if fault.hold:
            self.service.ended.wait(30)
        if not (fault.cut or fault.hold):
            self.respond(status, body)


@contextmanager
def merritt(previous: Merritt | None = None) -> Iterator[Merritt]:
    """The running service; `previous` was stopped, and restarts at the same address with its data."""
    with running(previous or Merritt(), _Answer) as service:
        yield service
