"""Redis: version, policy, persistence, room, encryption, and the clocks of it and of the workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import redis

from operations.doctor import certificates
from operations.doctor.line import Line, clock, line, unknown
from operations.fleet.fleet import broker_address
from pipeline.allowed_networks import is_loopback
from pipeline.errors import Action, Remedy, ServiceUnreachable
from pipeline.working_storage.capacity import in_units
from tasks import redis_facts

if TYPE_CHECKING:
    from pipeline.settings import Settings

TESTED = range(7, 10)
"""Major releases of Redis and Valkey; the oldest is Debian 12's."""

SERVERS, TRUST = "(install.md#servers)", "trust.md#redis"


def server(settings: Settings) -> Iterator[Line]:
    try:
        facts, ahead = redis_facts.info(settings), redis_facts.clock_difference(settings)
    except redis.RedisError as error:
        message = f"Redis at {broker_address(settings)} does not answer: {error}"
        raise ServiceUnreachable(message).with_remedies(Remedy(Action.START_BROKER)) from error
    version = str(facts.get("valkey_version") or facts["redis_version"])
    tested = int(version.partition(".")[0]) in TESTED
    step = f"use Redis or Valkey {TESTED[0]} to {TESTED[-1]} {SERVERS}"
    yield line("version", f"{facts.get('server_name', 'redis')} {version}", step, warn=not tested)
    policy, most, used = facts["maxmemory_policy"], int(facts["maxmemory"]), int(facts["used_memory"])
    evicts = policy != "noeviction"
    step = f"set maxmemory-policy noeviction: it deletes messages when it is full {SERVERS}"
    yield line("maxmemory-policy", policy, step, warn=evicts, wrong=evicts and most > 0)
    fact = f"{in_units(used)} of {in_units(most) if most else 'no maxmemory'}"
    yield line("memory", fact, f"raise maxmemory {SERVERS}", warn=used > 0.8 * most > 0)
    failed = {facts.get("rdb_last_bgsave_status", "ok"), facts.get("aof_last_write_status", "ok")} != {"ok"}
    fact = "its last write to disk failed" if failed else f"append-only file: {facts.get('aof_enabled', 0)}"
    yield line("persistence", fact, Remedy(Action.FIX_BROKER), wrong=failed)
    role = str(facts["role"])
    yield line("role", role, Remedy(Action.FIX_BROKER), wrong=role != "master")
    clients, limit = int(facts["connected_clients"]), int(facts.get("maxclients", 0))
    step = f"raise maxclients {SERVERS}"
    yield line("clients", f"{clients:,} of {limit:,}", step, warn=clients > 0.7 * limit > 0)
    yield clock("clock", *ahead)
    yield from _access(settings)


def _access(settings: Settings) -> Iterator[Line]:
    parts = urlsplit(settings.broker_url)
    local = parts.scheme == "unix" or is_loopback(parts.hostname or "")
    fact = f"user {parts.username or 'default'}" if parts.password else "none"
    yield line("password", fact, f"give arkline a user ({TRUST})", wrong=not parts.password and not local)
    if parts.scheme != "rediss":
        fact = "not used: it is on this machine" if local else "password and messages are in clear text"
        yield line("tls", fact, f"use rediss: ({TRUST})", warn=not local)
        return
    yield certificates.of_server(*redis_facts.tls(settings), TRUST)
    given = parse_qs(parts.query)
    yield from certificates.of_files(
        TRUST, *(given.get(name, [None])[0] for name in ("ssl_ca_certs", "ssl_certfile"))
    )


def workers(settings: Settings) -> Iterator[Line]:
    """The clocks of the hosts of the fleet, by a heartbeat of one worker of each."""
    try:
        clocks = redis_facts.workers_clocks(settings)
    except redis.RedisError as error:
        yield unknown("hosts", f"Redis does not answer: {error}", Remedy(Action.START_BROKER))
        return
    if not clocks:
        yield unknown("hosts", "no worker answered", Remedy(Action.START_WORKER, "control"))
    for host, ahead in {worker.rpartition("@")[2]: row for worker, row in sorted(clocks.items())}.items():
        yield clock(f"host {host}", *ahead)
