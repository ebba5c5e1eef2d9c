"""The fleet with a ZooKeeper that speaks TLS, and whose znodes belong to arkline's user alone."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE
from pydantic import SecretStr

from pipeline.settings import Settings
from pipeline.states import BatchState
from tests.e2e.collection import put_collection, submit
from tests.servers.http_source import HttpSource
from tests.servers.zookeeper import running_tls
from tests.support import cli
from tests.support.certificates import authority
from tests.support.fleet import assert_completed, batch_ended
from tests.support.fleet import fleet as running_fleet
from tests.support.planting import tree
from tests.support.records import a_submission
from zkstate.connection.client import make_client
from zkstate.connection.session import Session, connect
from zkstate.record import batches


@pytest.fixture
def trusted(settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    """Settings of a deployment whose ZooKeeper has a certificate and asks for one."""
    ours = authority(tmp_path / "tls")
    client = ours.issue("client")
    folder = tmp_path / "zookeeper"
    with running_tls(folder, ours.issue("server"), ours.certificate, ask_for_certificates=True) as hosts:
        given = {"zk_user": "arkline", "zk_password": SecretStr("a password")}
        files = {"zk_tls_certificate": client.certificate, "zk_tls_key": client.key}
        tls = {"zk_hosts": hosts, "zk_tls_ca": ours.certificate, **files}
        yield settings.model_copy(update={**given, **tls})


def owners(session: Session) -> dict[str, set[tuple[str, int]]]:
    """Who may do what with each znode, the root included."""
    found = {path: session.zk.get_acls(path)[0] for path in ("/", *tree(session))}
    return {path: {(each.id.id.split(":")[0], each.perms) for each in acls} for path, acls in found.items()}


def test_a_collection_is_ingested_and_every_znode_belongs_to_the_user_alone(
    trusted: Settings, source: HttpSource
) -> None:
    with connect(trusted) as session, running_fleet(trusted) as fleet:
        fleet.worker(concurrency=2)
        fleet.beat()
        bid = submit(session, trusted, put_collection(source, objects=3))
        assert_completed(batch_ended(session, bid))
        assert cli.run(trusted, "why", bid).code == 0
        found = owners(session)

    assert {path: who for path, who in found.items() if who != {("arkline", 31)}} == {}


@pytest.mark.parametrize(
    "who",
    [
        {"zk_user": "", "zk_password": SecretStr(""), "zk_open": True},
        {"zk_password": SecretStr("another password")},
    ],
)
def test_a_stranger_reads_writes_and_removes_nothing(
    trusted: Settings, who: dict[str, object], settings: Settings
) -> None:
    with connect(trusted):
        stranger = make_client(trusted.model_copy(update=who))
        stranger.start()
        try:
            for path in (f"{trusted.zk_root}{below}" for below in ("", "/jobs", "/batches")):
                attempts: list[Callable[[], object]] = [
                    partial(stranger.get, path),
                    partial(stranger.set, path, b"x"),
                    partial(stranger.create, f"{path}/x"),
                    partial(stranger.delete, f"{trusted.zk_root}/batches"),
                    partial(stranger.set_acls, path, OPEN_ACL_UNSAFE),
                ]
                for attempt in attempts:
                    with pytest.raises(NoAuthError):
                        attempt()
        finally:
            stranger.stop()
            stranger.close()

    refused = cli.run(trusted.model_copy(update=who), "jobs")
    assert refused.code == 3
    assert "refuses this user: check ARKLINE_ZK_USER" in refused.err


def test_an_open_record_gets_an_owner_by_backup_and_restore(settings: Settings) -> None:
    with connect(settings) as session:
        assert cli.run(settings, "init").code == 0
        bid = batches.submit(session, a_submission())
    open_backup = settings.home / "backup"
    assert cli.run(settings, "backup", str(open_backup)).code == 0

    owned = settings.model_copy(
        update={
            "zk_root": f"{settings.zk_root}-owned",
            "zk_user": "arkline",
            "zk_password": SecretStr("a password"),
        }
    )
    restored = cli.run(owned, "restore", str(open_backup))

    assert restored.code == 0, restored.err
    with connect(owned) as session:
        assert batches.load(session, bid).status.status is BatchState.PENDING
        assert {path: who for path, who in owners(session).items() if who != {("arkline", 31)}} == {}
