"""A real PostgreSQL server for the tests, as a child process on a free port."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg

from entrypoints.stack.child import free_ports
from tests.support.certificates import Certificate
from tools.chaos.actors import children, send

DEBIAN = Path("/usr/lib/postgresql")
READY_WITHIN = 30.0


class PostgresqlMissing(Exception):
    """This machine has no server that the tests can start."""


def binaries() -> Path:
    """The newest release that Debian's packages installed, or the one on PATH."""
    releases = sorted(
        (folder for folder in DEBIAN.glob("*/bin") if (folder / "initdb").exists()),
        key=lambda folder: float(folder.parent.name),
    )
    if releases:
        return releases[-1]
    on_path = shutil.which("initdb")
    if on_path is None:
        raise PostgresqlMissing("PostgreSQL is not installed: apt-get install postgresql")
    return Path(on_path).resolve().parent


def _owner() -> str | None:
    """The user to run as: the server refuses to be root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        raise PostgresqlMissing(
            "the tests run as root, and there is no user postgres to run a server as"
        ) from None


def _still_used(said: str) -> bool:
    """Children of a postmaster that was killed hold its shared memory for a moment."""
    return "shared memory block" in said and "still in use" in said


class Server:
    """A server whose data is in the folder; it goes on with data that is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self._binaries = binaries()
        self._owner = _owner()
        self._process: subprocess.Popen[bytes] | None = None
        if self._owner:
            shutil.chown(folder, self._owner)
        self._log = (folder / "log").open("wb")
        if not (folder / "data").exists():
            options = "-D data -U arkline -A trust -E UTF8 --locale=C --no-sync"
            self._run("initdb", *options.split())

    def use_tls(self, own: Certificate) -> None:
        """Accept connections with TLS from the next start or reload on; those without stay possible."""
        kept = self.folder / "server.pem"
        draft = self.folder / "server.new"
        draft.touch(0o600)
        draft.write_bytes(own.key.read_bytes() + own.certificate.read_bytes())
        if self._owner:
            shutil.chown(draft, self._owner)
        draft.replace(kept)
        self.configure({"ssl": "on", "ssl_cert_file": f"{kept}", "ssl_key_file": f"{kept}"})

    def configure(self, settings: Mapping[str, str]) -> None:
        """Settings that count from the next start on."""
        with (self.folder / "data" / "postgresql.conf").open("a") as configuration:
            configuration.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _popen(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self._binaries / name, *options],
            cwd=self.folder,
            user=self._owner,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={"PATH": os.defpath, "LC_ALL": "C"},
        )

    def _run(self, name: str, *options: str) -> None:
        if self._popen(name, *options).wait(60):
            raise PostgresqlMissing(f"{name} failed: {(self.folder / 'log').read_text()[-500:]}")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        deadline = time.monotonic() + READY_WITHIN
        self._spawn()
        while True:
            try:
                psycopg.connect(self.dsn("postgres"), connect_timeout=2).close()
            except psycopg.OperationalError:
                ended = not self.running
                said = (self.folder / "log").read_text()[-500:]
                if time.monotonic() > deadline or (ended and not _still_used(said)):
                    raise PostgresqlMissing(said) from None
                if ended:
                    self._spawn()
                time.sleep(0.05)
            else:
                return

    def _spawn(self) -> None:
        self._process = self._popen(
            "postgres", "-D", "data", "-h", "127.0.0.1", "-p", str(self.port), "-k", "", "-F",
            "-c", "max_connections=200",
        )  # fmt: skip

    def kill(self) -> None:
        """SIGKILL to the postmaster; its children notice and exit."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """No process of the server runs during the block; the kernel still confirms what is sent to them."""
        processes = [self.pid, *children(self.pid)]
        for process in processes:
            send(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                send(process, signal.SIGCONT)

    def stop(self) -> None:
        """Stop at once, as a crash would; committed data survives the next start."""
        if self._process is not None:
            self._process.send_signal(3)  # SIGQUIT: PostgreSQL's immediate shutdown
            self._process.wait(30)
            self._process = None

    def close(self) -> None:
        self.stop()
        self._log.close()

    def dsn(self, database: str) -> str:
        return f"postgresql://arkline@127.0.0.1:{self.port}/{database}"

    def new_schema(self) -> str:
        """The SQLAlchemy URL of a new, empty schema: a database would add a thousand files."""
        return new_schema(self.dsn("postgres"))

    def new_database(self, encoding: str = "UTF8") -> str:
        """The SQLAlchemy URL of a new, empty database, for programs that read a whole database."""
        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")
        return self.dsn(name)


def new_schema(dsn: str) -> str:
    """The SQLAlchemy URL of a new, empty schema in this database."""
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{dsn}?options=-csearch_path%3D{name}"


@contextlib.contextmanager
def running() -> Iterator[Server]:
    # not pytest's folder: that is closed to the server's user
    folder = Path(tempfile.mkdtemp(prefix="arkline-postgresql-"))
    try:
        with serving(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """A server on the data in this folder, which stays."""
    server = Server(folder)
    try:
        server.start()
        yield server
    finally:
        server.close()
