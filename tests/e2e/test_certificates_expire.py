"""All certificates of a fleet expire in the middle of a batch; after the renewal the batch completes."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from operations.certificates import authority, expiry
from pipeline.settings import Settings
from tests.e2e.collection import put_collection, submit
from tests.servers import postgresql, redis, zookeeper
from tests.servers.http_source import HttpSource
from tests.servers.tls_proxy import encrypting
from tests.support import cli
from tests.support.certificates import Certificate
from tests.support.fleet import assert_completed, batch_ended
from tests.support.fleet import fleet as running_fleet
from zkstate.connection.session import connect

SERVERS = {name: ("127.0.0.1",) for name in authority.SERVERS}


class YearsAgo(datetime):
    """A clock at which certificates are made that have expired by now, with their authority."""

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        return datetime.now(UTC) - timedelta(days=4000)


class Site:
    """Servers with TLS that take the files below `folder`, as their supervisors have them do."""

    def __init__(self, folder: Path, opened: ExitStack, plain_broker: int) -> None:
        self.folder = folder
        self._broker, self.broker_port = plain_broker, 0
        self._proxy = opened.enter_context(ExitStack())
        authority.renew(folder, SERVERS)
        trusted = folder / "trust" / "authority.pem"
        both = zookeeper.running_with_both(
            folder / "server", self.own("zookeeper"), trusted, ask_for_certificates=False
        )
        self._zookeeper, self.zk_hosts = opened.enter_context(both)
        self.postgresql = opened.enter_context(postgresql.running())
        self.take()

    def own(self, server: str) -> Certificate:
        path = self.folder / server / "server.pem"
        return Certificate(path, path)

    def take(self) -> None:
        """Have every server use its files, and end its connections."""
        self._zookeeper.stop()  # 3.8.0 takes new files for clients only when it starts
        self._zookeeper.start()
        self._proxy.close()
        self.broker_port = self._proxy.enter_context(
            encrypting(self._broker, self.own("redis"), self.broker_port)
        )
        self.postgresql.use_tls(self.own("postgresql"))
        with psycopg.connect(f"{self.postgresql.dsn('postgres')}?sslmode=disable", autocommit=True) as own:
            own.execute("SELECT pg_reload_conf()")
            own.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'arkline' AND pid <> pg_backend_pid()"
            )

    def settings(self, settings: Settings) -> Settings:
        trusted = self.folder / "trust" / "authority.pem"
        verified = f"ssl_cert_reqs=required&ssl_ca_certs={trusted}"
        database = f"{self.postgresql.new_database()}?sslmode=verify-full&sslrootcert={trusted}"
        return settings.model_copy(
            update={
                "zk_hosts": self.zk_hosts,
                "zk_tls_ca": trusted,
                "broker_url": f"rediss://127.0.0.1:{self.broker_port}/0?{verified}",
                "inventory_url": database,
            }
        )


@pytest.fixture
def site(tmp_path: Path, redis_server: redis.Server) -> Iterator[Site]:
    with ExitStack() as opened:
        yield Site(tmp_path / "certificates", opened, redis_server.port)


def start_of(pid: int) -> int:
    """The time at which the process was started, in ticks since the start of the machine."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


@pytest.mark.timeout(600)
def test_a_batch_completes_after_all_certificates_expired_and_were_renewed(
    site: Site, settings: Settings, source: HttpSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure = site.settings(settings)
    with running_fleet(secure) as fleet:
        worker = fleet.worker(concurrency=2)
        beat = fleet.beat()
        with connect(secure) as session:
            bid = submit(session, secure, put_collection(source, objects=8))
        started = start_of(worker.pid)
        for path in (site.folder / "authority").glob("*.pem"):
            path.unlink()
        with monkeypatch.context() as long_ago:
            long_ago.setattr(authority, "datetime", YearsAgo)
            authority.renew(site.folder, SERVERS, at_once=True)
        site.take()
        refused = cli.run(secure, "why", bid)
        assert refused.code == 3
        assert f"the certificate of {site.zk_hosts} expired on " in refused.err
        assert "(docs/operators/trust.md#certificates)" in refused.err

        expired = expiry.expired_broker(secure)
        assert expired.startswith(f"the certificate of 127.0.0.1:{site.broker_port} expired on ")

        servers = [f"--server={name}=127.0.0.1" for name in SERVERS]
        assert cli.run(settings, "certificates", "renew", str(site.folder), *servers).code == 0
        site.take()
        if not beat.running:
            fleet.beat("beat-again")  # as its supervisor does
        with connect(secure, timeout=60) as session:
            assert_completed(batch_ended(session, bid, timeout=300))
        assert start_of(worker.pid) == started
