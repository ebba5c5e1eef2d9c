"""Merritt's inventory service, beside our inventory: queried for local ids, and given every version.

Every request can be repeated. Our inventory has what Merritt's has no column for: arrivals, proofs, events.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from pipeline.http import service
from pipeline.http.service import FIRST_PAUSE, raise_if_transient, retry_request, translated
from pipeline.http.urls import redact_url
from pipeline.inventory.base import Recording
from pipeline.outcome import Service, content, fault_of, system
from pipeline.settings import Settings, read_settings
from plugins.merritt.settings import MerrittSettings

_SEPARATOR = ";"
"""Separates the local ids in one request, by the service's protocol."""

_QUOTED = 300
"""Maximum characters of the service's response quoted in a message."""

_ADDRESS = "check ARKLINE_INVENTORY_SERVICE_URL"


def open_inventory(settings: Settings) -> "MerrittInventory":
    return MerrittInventory(settings, read_settings(MerrittSettings))


class MerrittInventory:
    """The `InventoryService` that the settings name."""

    def __init__(self, settings: Settings, own: MerrittSettings, pause: float = FIRST_PAUSE) -> None:
        self._settings = settings
        self._base = own.inventory_service_url.rstrip("/")
        self._pause = pause
        self.name = f"the inventory service {redact_url(self._base)}"

    def add_version(self, recording: Recording) -> None:
        """Have the service read the version from the storage service, if it lacks it."""
        version = recording.version
        self._post({"url": version.url, "checkVersion": "true", "responseForm": "json"}, "add")
        current = self._state("invv:versionsState", "current", version.ark).get("currentVersion", 0)
        if not str(current).isdigit() or int(current) < version.number:
            raise system(
                f"{self.name} accepted version {version.number} of {version.ark}, but its current version is "
                f"{current}: see the log of that service"
            )

    def arks_of(self, owner: str, local_id: Sequence[str]) -> dict[str, str]:
        arks = {}
        for name in dict.fromkeys(local_id):
            if _SEPARATOR in name:
                raise content(f"the local id '{name}' has a semicolon, which separates ids in {self.name}")
            state = self._state("invloc:localContainerState", "primary", owner, name)
            if _is_true(state.get("exists")) and state.get("primaryIdentifier"):
                arks[name] = str(state["primaryIdentifier"])
        return arks

    def local_ids_of(self, ark: str) -> tuple[str, ...]:
        state = self._state("invloc:localContainerState", "local", ark)
        return tuple(dict.fromkeys(_values(state, "localID")))

    def reserve_local_ids(self, owner: str, ark: str, local_id: Sequence[str]) -> None:
        """The service adds none of a list if it has one of them."""
        form = {"objectid": ark, "ownerid": owner, "localids": _SEPARATOR.join(local_id)}
        self._post({**form, "response-form": "json"}, "primary")

    @fault_of(Service.INVENTORY)
    def _state(self, kind: str, *parts: str) -> dict[str, Any]:
        """The fields of the service's answer, without their prefix."""
        body = retry_request(lambda: self._request("GET", parts, params={"t": "json"}), self._pause)
        try:
            state = json.loads(body)[kind]
            return {str(name).rpartition(":")[2]: value for name, value in state.items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise system(f"{self.name} gave a response that is not {kind}: {_ADDRESS}") from error

    @fault_of(Service.INVENTORY)
    def _post(self, form: Mapping[str, str], *parts: str) -> None:
        # without a file name: fields of a multipart form, the only format that the service reads
        fields = {name: (None, value, "text/plain; charset=UTF-8") for name, value in form.items()}
        retry_request(lambda: self._request("POST", parts, files=fields), self._pause)

    def _request(self, method: str, parts: Sequence[str], **given: Any) -> bytes:
        url = "/".join((self._base, *(quote(part, safe="") for part in parts)))
        timeouts = (self._settings.connect_timeout, self._settings.read_timeout)
        with (
            translated(self.name, _ADDRESS),
            service.request(method, url, timeout=timeouts, **given) as response,
        ):
            raise_if_transient(response.status_code, response.headers, self.name)
            if response.status_code >= 300:
                words = " ".join(response.text.split())[:_QUOTED] or response.reason
                raise system(f"{self.name} answered {response.status_code} ({words}): {_ADDRESS}")
            return response.content


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"


def _values(value: object, name: str) -> list[str]:
    """All values of this field at any depth: the service's lists are one object, a list of them, or text."""
    if isinstance(value, list):
        return [inner for item in value for inner in _values(item, name)]
    if not isinstance(value, dict):
        return []
    own = [str(item) for key, item in value.items() if key.rpartition(":")[2] == name]
    return own + [inner for item in value.values() for inner in _values(item, name)]
