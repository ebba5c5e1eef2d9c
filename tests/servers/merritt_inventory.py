"""A server on loopback that speaks the protocol of Merritt's inventory service."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen
from xml.etree import ElementTree

from tests.servers.base import Handler, serving


@dataclass
class InventoryService:
    port: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    """ARK -> the current version that was entered."""
    local_ids: dict[tuple[str, str], str] = field(default_factory=dict)
    """(owner, local id) -> ARK."""
    requests: list[str] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    """Statuses that the next requests are answered with; nothing is done then."""
    forgets: bool = False
    """It answers that it entered a version, and does not."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mrtinv"

    def add(self, form: dict[str, str]) -> dict[str, object]:
        """Read the object's manifest from the storage service and enter its versions."""
        with urlopen(form["url"], timeout=10) as answer:
            manifest = ElementTree.fromstring(answer.read())
        ark = next(e.attrib["id"] for e in manifest.iter() if e.tag.endswith("}object"))
        numbers = [int(e.attrib["id"]) for e in manifest.iter() if e.tag.endswith("}version")]
        if not self.forgets:
            self.versions[ark] = max(numbers)
        return {"invp:invProcessState": {"invp:processUrl": form["url"]}}

    def add_primary(self, form: dict[str, str]) -> dict[str, object]:
        """ValueError, and nothing is added, if an id belongs to another object."""
        ark, owner = form["objectid"], form["ownerid"]
        names = [name.strip() for name in form["localids"].split(";")]
        known = {self.local_ids[owner, name] for name in names if (owner, name) in self.local_ids}
        if known - {ark}:
            raise ValueError("objectID already exists and does not match add objectID")
        if not known:
            self.local_ids |= {(owner, name): ark for name in names}
        return _container(ark, exists=bool(known), ownerID=owner, localIDs=form["localids"])

    def get(self, parts: list[str]) -> dict[str, object] | None:
        match parts:
            case ["primary", owner, name]:
                ark = self.local_ids.get((owner, name))
                return _container(ark, exists=ark is not None, ownerID=owner, localIDs=name)
            case ["local", ark]:
                names = [name for (_, name), named in self.local_ids.items() if named == ark]
                items: list[dict[str, str]] = [
                    {"invlp:localID": name, "invlp:objectArk": ark} for name in names
                ]
                # made from XML: nothing is a text, one item an object, several a list
                shaped: object = items if len(items) > 1 else items[0] if items else ""
                local = {"invlp:primaryLocalState": shaped} if items else ""
                return _container(ark, exists=bool(items), local=local)
            case ["current", ark]:
                state = {"invv:objectID": ark, "invv:currentVersion": self.versions.get(ark, 0)}
                return {"invv:versionsState": state}
            case _:
                return None


def _container(ark: str | None, *, exists: bool, **more: object) -> dict[str, object]:
    named = {"invloc:primaryIdentifier": ark} if ark else {}
    fields = {f"invloc:{name}": value for name, value in more.items()}
    return {"invloc:localContainerState": {**named, **fields, "invloc:exists": exists}}


class _Answer(Handler):
    service: InventoryService

    def _parts(self) -> list[str]:
        return [unquote(part) for part in urlsplit(self.path).path.split("/")[2:]]

    def do_GET(self) -> None:
        self._answer(lambda: self.service.get(self._parts()))

    def do_POST(self) -> None:
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        body = message_from_bytes(head + self.request_body(), policy=policy.default)
        form = {
            str(part.get_param("name", header="content-disposition")): str(part.get_content())
            for part in body.iter_parts()
        }
        calls = {"add": self.service.add, "primary": self.service.add_primary}
        self._answer(lambda: calls[self._parts()[0]](form))

    def _answer(self, work: Callable[[], dict[str, object] | None]) -> None:
        self.service.requests.append(f"{self.command} {'/'.join(self._parts())}")
        if self.service.faults:
            return self.respond(self.service.faults.pop(0), b"no service now")
        try:
            state = work()
        except ValueError as error:
            fault = {"exc:error": str(error), "exc:status": "REQUEST_INVALID"}
            return self.respond(400, json.dumps({"exc:exception": fault}).encode())
        return self.respond(404) if state is None else self.respond(200, json.dumps(state).encode())


@contextmanager
def inventory_service() -> Iterator[InventoryService]:
    running = InventoryService()

    class Answer(_Answer):
        service = running

    with serving(Answer) as running.port:
        yield running
