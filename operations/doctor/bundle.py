"""The archive for an engineer who judges a fault from afar: what doctor says, and the facts behind it.

Rule: every text passes the redaction, and nothing is read from storage, uploads or the outbox. A part that
cannot be collected says why, and the others are complete.
"""

from __future__ import annotations

import io
import os
import platform
import socket
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from operations.doctor import examination
from operations.doctor.redaction import Redaction
from operations.fleet import fleet, health
from operations.site import Site
from operations.why import why
from pipeline import records
from pipeline.errors import ArklineError, UsageRefused
from pipeline.records import Record
from tasks import redis_facts
from zkstate.connection import server_facts
from zkstate.queue import listings

if TYPE_CHECKING:
    from pipeline.principal import Principal
    from pipeline.settings import Settings

MEMBER, LOGS, LOG = 2_000_000, 20, 500_000
"""Bytes of a file in the archive; log files, the newest; bytes of a log, of which the end is kept."""

EXPLAINED, FAILED = 50, 200
"""Jobs whose waiting is explained, and failed jobs that are listed, the newest."""

SECONDS = 30.0
"""For one part."""

README = f"""Facts about a deployment of arkline, made by its command support-bundle.

doctor.json      every line of the examination by doctor
versions.json    Python, the system, packages
settings.json    the settings
fleet.json       health, outages, queues, counts by state, space, workers
why.json         what jobs wait for, at most {EXPLAINED}
failed.json      at most {FAILED} failed jobs with their messages
zookeeper.json   srvr, mntr and conf of each server
redis.json       INFO
log/             the end of the newest log files

Secrets are replaced by [removed], mail addresses by [mail address]. Read all before you send it: messages
name hosts, collections, and files of deposits.
"""


class BundleView(Record):
    file: Path
    bytes: int
    members: tuple[str, ...]
    shortened: tuple[str, ...]
    """Members that are not complete."""


def write(
    settings: Settings,
    principal: Principal,
    site: Site | ArklineError,
    folder: Path,
    logs: Path | None = None,
) -> BundleView:
    """Write the archive into the folder; UsageRefused if it cannot be written."""
    name = f"arkline-support-{socket.gethostname()}-{records.now():%Y%m%dT%H%M%SZ}"
    workers = _workers(settings)
    texts = {"README.txt": README}
    texts |= {one: _collected(part) for one, part in _parts(settings, principal, site, workers).items()}
    ends = dict(_ends(logs or settings.data / "log"))
    texts |= {f"log/{one}": text for one, (text, _) in ends.items()}
    redacted = Redaction(settings, (worker.name for worker in workers))
    data = {one: redacted(text).encode(errors="replace") for one, text in texts.items()}
    cut = [f"log/{one}" for one, (_, complete) in ends.items() if not complete]
    cut += [one for one, content in data.items() if len(content) > MEMBER]
    file = folder / f"{name}.tar.gz"
    try:
        _pack(file, {f"{name}/{one}": content[:MEMBER] for one, content in data.items()})
    except OSError as error:
        raise UsageRefused(f"{file} cannot be written: {error.strerror}; name a folder by --to") from error
    return BundleView(file=file, bytes=file.stat().st_size, members=tuple(data), shortened=tuple(cut))


def _parts(
    settings: Settings, principal: Principal, site: Site | ArklineError, workers: tuple[fleet.Worker, ...]
) -> dict[str, Callable[[], Any]]:
    needing: dict[str, Callable[[Site, Principal], Any]] = {
        "fleet.json": partial(_fleet, workers),
        "why.json": _waiting,
        "failed.json": _failed,
    }
    return {
        "doctor.json": partial(examination.examine, settings, principal, site),
        "versions.json": _versions,
        "settings.json": lambda: settings,
        "zookeeper.json": lambda: [asdict(one) for one in server_facts.servers(settings)],
        "redis.json": lambda: dict(redis_facts.info(settings)),
        **{
            name: partial(part, site, principal) if isinstance(site, Site) else partial(str, site)
            for name, part in needing.items()
        },
    }


def _collected(part: Callable[[], Any]) -> str:
    try:
        value = examination.started(part).result(SECONDS)
    except Exception as error:  # noqa: BLE001 - a part that fails is a fact, and the others are needed
        value = f"{type(error).__name__}: {error}"
    return to_json(value, indent=1, fallback=str).decode()


def _workers(settings: Settings) -> tuple[fleet.Worker, ...]:
    try:
        return fleet.workers(settings)
    except ArklineError:
        return ()  # redis.json says why


def _versions() -> dict[str, Any]:
    packages = {one.name: one.version for one in metadata.distributions()}
    return {"python": platform.python_version(), "system": platform.platform(), "packages": packages}


def _fleet(workers: tuple[fleet.Worker, ...], site: Site, principal: Principal) -> dict[str, Any]:
    view = health.overview(site, principal)
    return {"overview": view.model_dump(mode="json", exclude={"batches"}), "workers": workers}


def _waiting(site: Site, principal: Principal) -> list[Any]:
    counts = health.overview(site, principal).jobs
    active = (*listings.active_jobs(site.session, counts), *listings.active_batches(site.session))
    return [why.why(site, principal, one.id) for one in active if not one.locked][:EXPLAINED]


def _failed(site: Site, _: Principal) -> list[Any]:
    jids = listings.failed_jobs(site.session)[-FAILED:]
    named = {"deposit_name", "name", "local_id"}
    return [row.model_dump(exclude=named) for row in listings.readable(listings.job_rows(site.session, jids))]


def _ends(folder: Path) -> Iterator[tuple[str, tuple[str, bool]]]:
    """The newest logs: name, last lines, and whether these are all; none where the supervisor keeps them."""
    files = [path for path in folder.glob("*.log*") if path.is_file() and not path.is_symlink()]
    for path in sorted(files, key=_written)[-LOGS:]:
        try:
            yield path.name, _end(path)
        except OSError as error:  # another user's, or rotated away
            yield path.name, (f"cannot be read: {error.strerror}", False)


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _end(path: Path) -> tuple[str, bool]:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOG))
        data = file.read(LOG)
    whole = size <= LOG  # a line that is cut may have the end of a secret, which no form betrays
    return (data if whole else data.partition(b"\n")[2]).decode(errors="replace"), whole


def _pack(file: Path, members: Mapping[str, bytes]) -> None:
    """Write the archive, readable by its owner alone; it has its name once it is complete."""
    unfinished = file.with_name(f"{file.name}.partial")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(data), int(time.time()), 0o600
            archive.addfile(member, io.BytesIO(data))
    unfinished.rename(file)
