"""The folders of `authority.renew` as Secrets of a Kubernetes namespace, by the API of the cluster.

NAME-certificates-FOLDER has the files of FOLDER. What was read is written only if it has not
changed since.
"""

import base64
import tempfile
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import requests

from operations.certificates import authority
from pipeline.errors import ServiceUnreachable

POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""What the cluster gives to a pod that may use its API."""

API = "https://kubernetes.default.svc"

TIMEOUT = 30
"""Seconds for an answer of the cluster."""


def renew(
    name: str,
    servers: Mapping[str, Sequence[str]],
    lifetimes: authority.Lifetimes,
    *,
    at_once: bool = False,
    api: str = API,
    pod: Path = POD,
) -> list[str]:
    """As `authority.renew`. ServiceUnreachable if the cluster refuses or does not answer.

    The authority is written first, then what clients trust, then the servers: a renewal may end between.
    """
    with requests.Session() as session, tempfile.TemporaryDirectory() as below:
        session.headers["Authorization"] = f"Bearer {(pod / 'token').read_text()}"
        session.verify = str(pod / "ca.crt")
        url = f"{api}/api/v1/namespaces/{(pod / 'namespace').read_text()}/secrets"
        places = (authority.AUTHORITY, authority.TRUST, *servers)
        before = {place: _read(session, f"{url}/{name}-certificates-{place}") for place in places}
        for place, secret in before.items():
            (Path(below) / place).mkdir()
            for file, content in secret.get("data", {}).items():
                (Path(below) / place / file).write_bytes(base64.b64decode(content))
        replaced = authority.renew(Path(below), servers, lifetimes, at_once=at_once)
        for place in places:
            if any(file.startswith(f"{place}/") for file in replaced):
                _write(session, url, f"{name}-certificates-{place}", before[place], Path(below) / place)
    return replaced


def _read(session: requests.Session, url: str) -> dict[str, Any]:
    """The Secret; empty if there is none."""
    return _answer(session, "GET", url, None)


def _write(session: requests.Session, url: str, name: str, before: Mapping[str, Any], folder: Path) -> None:
    data = {file.name: base64.b64encode(file.read_bytes()).decode() for file in folder.glob("*.pem")}
    if before:
        _answer(session, "PUT", f"{url}/{name}", {**before, "data": data})
    else:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
        _answer(session, "POST", url, secret)


def _answer(
    session: requests.Session, method: str, url: str, body: Mapping[str, Any] | None
) -> dict[str, Any]:
    try:
        answer = session.request(method, url, json=body, timeout=TIMEOUT)
        if method == "GET" and answer.status_code == HTTPStatus.NOT_FOUND:
            return {}
        answer.raise_for_status()
        read: dict[str, Any] = answer.json()
    except requests.RequestException as error:
        raise ServiceUnreachable(f"the cluster's API refuses {method} {url}: {error}") from error
    return read
