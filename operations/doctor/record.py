"""ZooKeeper: its servers, limits, clock, encryption and access lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from operations.doctor import certificates
from operations.doctor.line import Line, clock, line, unknown
from operations.fleet import health
from pipeline.allowed_networks import is_loopback
from pipeline.errors import Action, Remedy
from pipeline.working_storage.capacity import in_units
from zkstate.connection import client, server_facts, transaction
from zkstate.connection.session import START

if TYPE_CHECKING:
    from operations.site import Site
    from pipeline.settings import Settings
    from zkstate.connection.server_facts import ServerFacts

TESTED = ("3.8", "3.9")
CONNECTIONS = 60
"""ZooKeeper's own default of maxClientCnxns; each process of a worker has a connection."""

SLOW_MS = 100.0
"""Milliseconds of a request, on the average since the server started."""

SERVERS, TRUST = "(install.md#servers)", "(trust.md#zookeeper)"


def servers(settings: Settings) -> Iterator[Line]:
    every = server_facts.servers(settings)
    local = all(is_loopback(one.host) for one in every)
    modes = ", ".join(
        f"{one.host}:{one.port} {one.srvr.get('Mode') or one.problem or 'starts'}" for one in every
    )
    away = any("Mode" not in one.srvr for one in every)
    step = f"run three or five: jobs stop with one of these {SERVERS}"
    yield line("servers", modes, START if away else step, warn=len(every) < 3 and not local, wrong=away)
    for one in every:
        if not one.problem:
            yield from _server(one, settings)
    if settings.zk_tls_ca:
        context = client.tls_context(settings)
        yield from (
            certificates.of_server(context, one.host, one.port, "trust.md#zookeeper") for one in every
        )
        yield from certificates.of_files(
            "trust.md#zookeeper", settings.zk_tls_ca, settings.zk_tls_certificate
        )
    else:
        fact = (
            "not used: the servers are on this machine" if local else "jobs and passwords are in clear text"
        )
        yield line("tls", fact, f"use secure client ports {TRUST}", warn=not local)


def _server(one: ServerFacts, settings: Settings) -> Iterator[Line]:
    version, end = one.srvr.get("Zookeeper version", "").partition("-")[0], f"of {one.host}:{one.port}"
    tested = version.startswith(TESTED)
    yield line(f"version {end}", version, f"use ZooKeeper {' or '.join(TESTED)} {SERVERS}", warn=not tested)
    if "maxClientCnxns" in one.conf:
        most = int(one.conf["maxClientCnxns"])
        step = f"set maxClientCnxns=0, or above the number of worker processes on a host {SERVERS}"
        fact = f"{most} from one address" if most else "any number from one address"
        yield line(f"maxClientCnxns {end}", fact, step, warn=0 < most < CONNECTIONS)
        least, longest = (int(one.conf[f"{name}SessionTimeout"]) / 1000 for name in ("min", "max"))
        seconds = settings.zk_session_timeout
        fact = f"{seconds:g} s, and the server allows {least:g} to {longest:g} s"
        step = f"change ARKLINE_ZK_SESSION_TIMEOUT, or tickTime {SERVERS}"
        yield line(f"session timeout {end}", fact, step, warn=not least <= seconds <= longest)
    else:
        step = f"add conf to its 4lw.commands.whitelist {SERVERS}"
        yield unknown(f"maxClientCnxns and session timeout {end}", "the server does not answer `conf`", step)
    if not one.mntr:
        step = f"add mntr to its 4lw.commands.whitelist {SERVERS}"
        yield unknown(f"load {end}", "the server does not answer `mntr`", step)
        return
    delay = float(one.mntr.get("zk_avg_latency", "nan"))
    used, files = (int(one.mntr.get(f"zk_{name}_file_descriptor_count", "0")) for name in ("open", "max"))
    waiting, connections = (
        one.mntr.get(f"zk_{name}") for name in ("outstanding_requests", "num_alive_connections")
    )
    fact = (
        f"{delay:g} ms a request, {waiting} wait, {connections} connections, {used:,} of {files:,} open files"
    )
    step = f"give its transaction log a disk of its own, and the server more open files {SERVERS}"
    yield line(f"load {end}", fact, step, warn=delay > SLOW_MS or used > 0.7 * files > 0)


def session(site: Site) -> Iterator[Line]:
    """What needs a session: the clock, the size of requests, the access lists and the memory."""
    yield clock("clock", *server_facts.clock_difference(site.session))
    takes = transaction.takes_largest(site.session)
    outcome = "is accepted" if takes else "ends the connection"
    fact = f"a request of {transaction.TRANSACTION_LIMIT:,} bytes {outcome}"
    yield line("jute.maxbuffer", fact, Remedy(Action.RAISE_LIMIT), wrong=not takes)
    yield _access(site)
    memory = health.record_memory(site)
    fact = f"{memory.jobs:,} of {memory.accepted_jobs or 'any number of'} jobs"
    if memory.heap_bytes is None:
        step = f"add envi to its 4lw.commands.whitelist {SERVERS}"
        yield unknown("memory", f"{fact}; the server does not answer `envi`", step)
        return
    full = 0 < 0.8 * memory.accepted_jobs < memory.jobs
    step = "give it a larger heap (install.md#capacity)"
    yield line(
        "memory", f"{fact}, heap {in_units(memory.heap_bytes)}", Remedy(Action.CLEAN_UP), step, warn=full
    )


def _access(site: Site) -> Line:
    number, others = server_facts.open_nodes(site.session, site.settings)
    user = site.settings.zk_user
    local = all(map(is_loopback, re.findall(r"(\S+?):\d+", site.settings.zk_hosts.replace(",", " "))))
    fact = (
        f"{number} znodes were read; others can use {len(others)}{f', such as {others[0]}' if others else ''}"
    )
    step = f"close the record {TRUST}" if user else f"set ARKLINE_ZK_USER {TRUST}"
    return line("access", fact, step, warn=bool(others) and not local, wrong=bool(others and user))
