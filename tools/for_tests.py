"""Programs that only the tests need, from Debian's packages; `./dev test` installs missing ones.

Standard library only, like tools/bootstrap.py, which calls it. Tests that need a missing program are skipped,
or fail if CI=true. Programs are installed without asking, but only by root or in CI.
"""

import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tools import servers
from tools.servers import Machine, Say

NO_CLUSTER = Path("/etc/postgresql-common/createcluster.d/arkline-tests.conf")
"""Debian's package reads this on first installation to decide whether to create and start a database."""


@dataclass(frozen=True)
class Program:
    package: str
    what: str
    is_there: Callable[[], bool]


def _on_path(name: str) -> Callable[[], bool]:
    # a plain user's PATH lacks the folders of programs for root
    return lambda: (
        shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin") is not None
    )


def _below(folder: str, pattern: str) -> Callable[[], bool]:
    return lambda: any(Path(folder).glob(pattern))


def _postgresql() -> bool:
    # Debian keeps the server's programs off the PATH
    return _below("/usr/lib/postgresql", "*/bin/initdb")() or _on_path("initdb")()


PROGRAMS = (
    Program("postgresql", "PostgreSQL", _postgresql),
    Program("clamav-daemon", "clamd", _below("/usr/sbin", "clamd")),
    Program("libfaketime", "libfaketime", _below("/usr/lib", "*/faketime/libfaketime.so.1")),
    Program("iproute2", "ip", _on_path("ip")),
    Program("iptables", "iptables", _on_path("iptables")),
    Program("libfuse3-3", "libfuse", _below("/usr/lib", "*/libfuse3.so.3")),
    Program("openssl", "openssl", _on_path("openssl")),
    Program("apache2", "Apache", _on_path("apache2")),
    Program("nginx-light", "nginx", _on_path("nginx")),
    Program("pgbouncer", "PgBouncer", _on_path("pgbouncer")),
    Program("prometheus", "promtool", _on_path("promtool")),
    Program("chromium", "Chromium", _on_path("chromium")),
    Program("webkit2gtk-driver", "WebKit", _on_path("WebKitWebDriver")),
    Program("xvfb", "Xvfb", _on_path("Xvfb")),
    Program("unzip", "unzip", _on_path("unzip")),
    Program("libarchive-tools", "bsdtar", _on_path("bsdtar")),
    Program("p7zip-full", "7-Zip", _on_path("7z")),
)

PODMAN = (
    Program("podman", "podman", _on_path("podman")),
    Program("runc", "runc", _on_path("runc")),
    Program("netavark", "netavark", _below("/usr/lib/podman", "netavark")),
    Program("aardvark-dns", "aardvark-dns", _below("/usr/lib/podman", "aardvark-dns")),
    Program("iptables", "iptables", _on_path("iptables")),
    Program("catatonit", "catatonit", _on_path("catatonit")),
    Program("debootstrap", "debootstrap", _on_path("debootstrap")),
)
"""What `./dev containers` needs; installed on its own, because some releases of Debian lack a part."""


def missing(programs: Iterable[Program] = PROGRAMS) -> tuple[Program, ...]:
    return tuple(program for program in programs if not program.is_there())


def may_install(machine: Machine) -> bool:
    return machine.apt and (machine.root or (machine.sudo and machine.ci))


def ensure(machine: Machine, say: Say, programs: Iterable[Program] = PROGRAMS) -> None:
    """Install missing programs, or print which tests cannot run without them."""
    absent = missing(programs)
    if not absent or not machine.apt:
        return
    packages = tuple(program.package for program in absent)
    names = ", ".join(program.what for program in absent)
    remedy = shlex.join(("apt-get", "install", *packages))
    if not may_install(machine):
        say(f"some tests need {names}, which is not installed: {remedy}")
        return
    say(f"the tests need {names}; trying apt-get")
    if reason := install(machine, say, packages):
        say(f"{reason}\nthe tests that need {names} cannot run: {remedy}")


def install(machine: Machine, say: Say, packages: tuple[str, ...]) -> str:
    """Install; returns the problem, or an empty text. PostgreSQL gets no permanently running database."""
    if "postgresql" not in packages or NO_CLUSTER.exists():
        return servers.apt(machine, say, *packages)
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write("create_main_cluster = false\n")
        file.flush()
        reason = servers.as_root(machine, say, ["install", "-D", "-m", "644", file.name, str(NO_CLUSTER)])
    try:
        return reason or servers.apt(machine, say, *packages)
    finally:
        servers.as_root(machine, say, ["rm", "-f", str(NO_CLUSTER)])
