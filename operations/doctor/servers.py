"""The servers that the settings name: releases, limits, memory, clocks, encryption, certificates."""

from __future__ import annotations

import dataclasses
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import redis
from cryptography import x509
from sqlalchemy import URL, make_url
from sqlalchemy.exc import DBAPIError

from operations.certificates import expiry
from operations.doctor.line import Line, clock, encryption, line, part, release, unknown
from operations.fleet import health
from operations.fleet.fleet import broker_address
from pipeline import peers
from pipeline.allowed_networks import is_loopback
from pipeline.errors import Action, ArklineError, Remedy, ServiceUnreachable
from pipeline.inventory.engine import first_line, new_engine
from pipeline.notify.mail import SmtpMailer, open_mailer
from pipeline.working_storage.capacity import in_units
from tasks import redis_facts
from tasks.broker import REFUSALS
from zkstate.connection import server_facts, transaction
from zkstate.connection.session import START

if TYPE_CHECKING:
    from operations.site import Site
    from pipeline.principal import Principal
    from pipeline.settings import Settings
    from zkstate.connection.server_facts import ServerFacts

CONNECTIONS = 60
"""ZooKeeper's own default of maxClientCnxns; each process of a worker has a connection."""

SLOW_MS = 100.0
"""Milliseconds of a request, on the average since the server started."""

NETWORK = ("nfs", "cifs", "smb", "fuse.sshfs", "ceph", "gluster", "lustre", "9p")
"""The beginning of the names of file systems that several hosts share: SQLite's locks do not hold there."""

LOCAL = ("ext", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay", "apfs")
"""The beginning of the names of file systems that only one machine uses at a time."""

MAIL_SECONDS = 5.0
"""For each answer of the mail server."""

SERVERS, MAIL = "(install.md#servers)", "(services.md#mail)"
RECORD_TRUST, BROKER_TRUST = "(trust.md#zookeeper)", "(trust.md#redis)"
ON_THIS_MACHINE = "it is on this machine"


def zookeeper(settings: Settings) -> Iterator[Line]:
    every = server_facts.servers(settings)
    local = all(is_loopback(one.host) for one in every)
    modes = [f"{one.host}:{one.port} {one.srvr.get('Mode') or one.problem or 'starts'}" for one in every]
    away = any("Mode" not in one.srvr for one in every)
    step = START if away else f"run three or five: jobs stop with one of these {SERVERS}"
    yield line("servers", ", ".join(modes), step, warn=len(every) < 3 and not local, wrong=away)
    for one in every:
        if not one.problem:
            yield from _zookeeper(one, f"of {one.host}:{one.port}", settings.zk_session_timeout)
    step = f"use secure client ports {RECORD_TRUST}"
    yield encryption(settings.zk_tls_ca, step, unless=ON_THIS_MACHINE if local else "")


def _zookeeper(one: ServerFacts, server: str, session_seconds: float) -> Iterator[Line]:
    version = one.srvr.get("Zookeeper version", "").partition("-")[0]
    yield release(f"version {server}", "ZooKeeper", version, SERVERS)
    if "maxClientCnxns" in one.conf:
        most = int(one.conf["maxClientCnxns"])
        step = f"set maxClientCnxns=0, or above the number of worker processes on a host {SERVERS}"
        fact = f"{most or 'any number'} from one address"
        yield line(f"maxClientCnxns {server}", fact, step, warn=0 < most < CONNECTIONS)
        least, longest = (int(one.conf[f"{name}SessionTimeout"]) / 1000 for name in ("min", "max"))
        fact = f"{session_seconds:g} s, and the server allows {least:g} to {longest:g} s"
        step = f"change ARKLINE_ZK_SESSION_TIMEOUT, or tickTime {SERVERS}"
        yield line(f"session timeout {server}", fact, step, warn=not least <= session_seconds <= longest)
    else:
        step = f"add conf to its 4lw.commands.whitelist {SERVERS}"
        yield unknown(f"maxClientCnxns and session timeout {server}", "no answer to `conf`", step)
    if not one.mntr:
        step = f"add mntr to its 4lw.commands.whitelist {SERVERS}"
        yield unknown(f"load {server}", "no answer to `mntr`", step)
        return
    waiting, connections = (
        one.mntr.get(f"zk_{name}") for name in ("outstanding_requests", "num_alive_connections")
    )
    delay = float(one.mntr.get("zk_avg_latency", "nan"))
    fact = f"{delay:g} ms a request, {waiting} wait, {connections} connections"
    step = f"give its transaction log a disk of its own {SERVERS}"
    yield line(f"load {server}", fact, step, warn=delay > SLOW_MS)
    files, limit = (int(one.mntr.get(f"zk_{name}_file_descriptor_count", "0")) for name in ("open", "max"))
    yield part(f"open files {server}", files, limit, f"let it open more files {SERVERS}")


def session(site: Site, _: Principal) -> Iterator[Line]:
    """What needs a session: the clock, the size of requests, the access lists and the memory."""
    yield clock("clock", *server_facts.clock_difference(site.session))
    takes = transaction.takes_largest(site.session)
    fact = f"a request of {transaction.TRANSACTION_LIMIT:,} bytes {'is accepted' if takes else 'is refused'}"
    yield line("jute.maxbuffer", fact, Remedy(Action.RAISE_LIMIT), wrong=not takes)
    number, others = server_facts.open_nodes(site.session, site.settings)
    user = site.settings.zk_user
    local = all(is_loopback(host) for host, _ in site.settings.zk_servers)
    such = f", such as {others[0]}" if others else ""
    fact = f"{number} znodes were read; others can use {len(others)}{such}"
    step = f"close the record {RECORD_TRUST}" if user else f"set ARKLINE_ZK_USER {RECORD_TRUST}"
    yield line("access", fact, step, warn=bool(others) and not local, wrong=bool(others and user))
    memory = health.record_memory(site)
    heap = "an unknown heap" if memory.heap_bytes is None else f"a heap of {in_units(memory.heap_bytes)}"
    fact = f"{memory.jobs:,} of {memory.accepted_jobs or 'any number of'} jobs in {heap}"
    step = "clean up, or give it a larger heap (install.md#capacity)"
    yield part("memory", memory.jobs, memory.accepted_jobs, step, fact)


def broker(settings: Settings) -> Iterator[Line]:
    try:
        facts, ahead = redis_facts.info(settings), redis_facts.clock_difference(settings)
    except redis.RedisError as error:
        refused = isinstance(error, REFUSALS)
        what = "refuses" if refused else "does not answer"
        message = f"Redis at {broker_address(settings)} {what}: {error}"
        action = Action.FIX_BROKER if refused else Action.START_BROKER
        raise ServiceUnreachable(message).with_remedies(Remedy(action)) from error
    version = str(facts.get("valkey_version") or facts["redis_version"])
    shown = f"{facts.get('server_name', 'redis')} {version}"
    yield release("version", "Redis or Valkey", version, SERVERS, shown)
    policy, most, used = facts["maxmemory_policy"], int(facts["maxmemory"]), int(facts["used_memory"])
    evicts = policy != "noeviction"
    step = f"set maxmemory-policy noeviction: it deletes messages when it is full {SERVERS}"
    yield line("maxmemory-policy", policy, step, warn=evicts, wrong=evicts and most > 0)
    fact = f"{in_units(used)} of {in_units(most) if most else 'no maxmemory'}"
    yield part("memory", used, most, f"raise maxmemory {SERVERS}", fact)
    failed = {facts.get("rdb_last_bgsave_status", "ok"), facts.get("aof_last_write_status", "ok")} != {"ok"}
    file = "an append-only file" if facts.get("aof_enabled") else "none, and none is needed"
    fact = "its last write to disk failed" if failed else file
    yield line("persistence", fact, Remedy(Action.FIX_BROKER), wrong=failed)
    yield line("role", facts["role"], Remedy(Action.FIX_BROKER), wrong=facts["role"] != "master")
    step = f"raise maxclients {SERVERS}"
    yield part("clients", int(facts["connected_clients"]), int(facts.get("maxclients", 0)), step)
    yield clock("clock", *ahead)
    address = urlsplit(settings.broker_url)
    local = address.scheme == "unix" or is_loopback(address.hostname or "")
    fact = f"user {address.username or 'default'}" if address.password else "none"
    step = f"give arkline a user {BROKER_TRUST}"
    yield line("password", fact, step, wrong=not address.password and not local)
    step = f"use rediss: {BROKER_TRUST}"
    yield encryption(address.scheme == "rediss", step, unless=ON_THIS_MACHINE if local else "")


def workers(settings: Settings) -> Iterator[Line]:
    """The clocks of the hosts of the fleet, by a heartbeat of one worker of each."""
    try:
        clocks = redis_facts.workers_clocks(settings)
    except redis.RedisError as error:
        yield unknown("hosts", f"Redis does not answer: {error}", Remedy(Action.START_BROKER))
        return
    hosts = {worker.rpartition("@")[2]: row for worker, row in sorted(clocks.items())}
    if not hosts:
        yield unknown("hosts", "no worker answered", Remedy(Action.START_WORKER, "control"))
    elif len(hosts) > 1 and _may_be_shared(make_url(settings.inventory)):
        yield line("hosts", ", ".join(hosts), f"use PostgreSQL: SQLite serves one host {SERVERS}", wrong=True)
    for host, ahead in hosts.items():
        yield clock(f"host {host}", *ahead)


def _may_be_shared(inventory: URL) -> bool:
    """Whether several machines can open this SQLite file; several host names may be those of containers."""
    if inventory.get_backend_name() != "sqlite":
        return False
    return not _file_system_of(Path(inventory.database or "")).startswith(LOCAL)


_POSTGRESQL = """
SELECT current_setting('server_version') AS version, extract(epoch FROM clock_timestamp())::float8 AS clock,
       current_setting('server_encoding') AS encoding,
       (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()) AS encrypted,
       (SELECT count(*) FROM pg_stat_activity) AS connections, current_setting('max_connections')::int AS most
"""


def inventory(settings: Settings) -> Iterator[Line]:
    """ServiceUnreachable if the database does not answer."""
    url = make_url(settings.inventory)
    if url.get_backend_name() == "sqlite":
        yield line("version", f"SQLite {sqlite3.sqlite_version}")
        kind = _file_system_of(Path(url.database or ""))
        step = f"use PostgreSQL: the locks of SQLite do not hold there {SERVERS}"
        place = f"{url.database}{f' on {kind}' if kind else ''}"
        yield line("place", place, step, wrong=kind.startswith(NETWORK))
        return
    place = url.render_as_string(hide_password=True)
    engine = new_engine(url.set(drivername="postgresql+psycopg"))
    try:
        with engine.connect() as connection:
            began = time.time()
            facts: dict[str, Any] = dict(connection.exec_driver_sql(_POSTGRESQL).mappings().one())
            ended = time.time()
    except DBAPIError as error:
        raise ServiceUnreachable(f"{place} does not answer: {first_line(error)}") from error
    finally:
        engine.dispose()
    yield release(
        "version", "PostgreSQL", facts["version"].split()[0], SERVERS, f"PostgreSQL {facts['version']}"
    )
    yield line("place", place)
    step = f"move the inventory by pg_dump and pg_restore to a database with ENCODING 'UTF8' {SERVERS}"
    yield line("encoding", facts["encoding"], step, wrong=facts["encoding"] != "UTF8")
    yield clock("clock", facts["clock"] - (began + ended) / 2, (ended - began) / 2)
    step = "add ?sslmode=verify-full&sslrootcert=FILE to ARKLINE_INVENTORY_URL (production.md#certificates)"
    yield encryption(facts["encrypted"], step)
    yield part("connections", facts["connections"], facts["most"], f"raise max_connections {SERVERS}")


def _file_system_of(path: Path) -> str:
    """The type of the file system that has the path, such as `nfs4`; empty if the system does not say."""
    try:
        mounts = [row.split() for row in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    above = {str(parent) for parent in (path, *path.parents)}
    return max(((len(place), kind) for _, place, kind, *_ in mounts if place in above), default=(0, ""))[1]


def mail(settings: Settings) -> Iterator[Line]:
    mailer, place = open_mailer(settings), f"{settings.smtp_host}:{settings.smtp_port}"
    if isinstance(mailer, SmtpMailer):
        user = settings.smtp_user
        fact = f"{place} {f'accepts the login of {user}' if user else 'answers, without login'}"
        problem = ""
        try:
            dataclasses.replace(mailer, timeout=MAIL_SECONDS).check()
        except ArklineError as error:
            problem = str(error)
        fact = problem or f"{fact}; whether it delivers, a mail shows"
        yield line("server", fact, f"correct ARKLINE_SMTP_HOST and the login {MAIL}", wrong=bool(problem))
        used, step = settings.smtp_tls or settings.smtp_starttls, f"set ARKLINE_SMTP_STARTTLS=1 {MAIL}"
        yield encryption(used, step, unless="" if user else "there is no password")
    else:
        fact = f"none: mail is written to {settings.outbox_folder}"
        yield line("server", fact, f"set ARKLINE_SMTP_HOST {MAIL}", warn=True)
    known = bool(settings.operator_mail)
    fact = f"is{'' if known else ' not'} notified of damage in storage and of outages"
    yield line("operator", fact, "set ARKLINE_OPERATOR_MAIL (settings.md)", warn=not known)
    url = settings.public_url
    if urlsplit(url).path:
        fact = f"lead to {url}, where no page is: pages are at the root of a host"
        yield line("links", fact, "set ARKLINE_PUBLIC_URL to a host without a path (settings.md)", wrong=True)
    else:
        yield line("links", url or "mails have none", "set ARKLINE_PUBLIC_URL (settings.md)", warn=not url)


def certificates(settings: Settings) -> Iterator[Line]:
    """Until when certificates are valid: those that servers show, and those in our files."""
    mail_server = ("mail", peers.context(None), settings.smtp_host, settings.smtp_port)
    for _, trusting, host, port in (
        *expiry.servers(settings),
        *([mail_server] if settings.smtp_host and settings.smtp_tls else ()),
    ):
        name = f"certificate of {host}:{port}"
        try:
            yield _until(name, peers.valid_until(trusting, host, port))
        except OSError as error:  # of ssl, too
            fact = str(getattr(error, "verify_message", "") or error)
            yield line(name, fact, RENEW, wrong=True)
    files = expiry.broker_files(settings)
    of_broker = (files.get(name) for name in ("ssl_ca_certs", "ssl_certfile"))
    paths = (settings.zk_tls_ca, settings.zk_tls_certificate, *of_broker)
    for path in sorted({*map(str, filter(None, paths))}):
        try:
            for number, one in enumerate(x509.load_pem_x509_certificates(Path(path).read_bytes()), 1):
                yield _until(f"certificate {number} in {path}", one.not_valid_after_utc)
        except (OSError, ValueError) as error:
            yield line(f"certificate in {path}", f"cannot be read: {error}", RENEW, wrong=True)


RENEW = "renew it (trust.md#certificates)"


def _until(name: str, end: datetime) -> Line:
    left, fact = end - datetime.now(UTC), f"valid until {end:%Y-%m-%d %H:%M} UTC"
    return line(name, fact, RENEW, warn=left < peers.RENEW_BEFORE, wrong=left < timedelta())
