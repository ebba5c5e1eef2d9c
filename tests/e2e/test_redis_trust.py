"""The fleet with a Redis that speaks TLS, and a user that has only the rights of docs/operators/trust.md."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from kombu.exceptions import OperationalError

from pipeline.settings import Settings
from tasks import redis_keys
from tasks.broker import read_queues
from tasks.redis_keys import Outcome
from tests.e2e.collection import put_collection, submit
from tests.servers.http_source import HttpSource
from tests.servers.redis import running_with_users
from tests.support import cli
from tests.support.certificates import authority
from tests.support.fleet import assert_completed, batch_ended
from tests.support.fleet import fleet as running_fleet
from zkstate.connection.session import Session

PAGE = Path(__file__).parents[2] / "docs" / "operators" / "trust.md"
PASSWORD = "the password of a test"


@dataclass(frozen=True)
class Site:
    settings: Settings
    secure_port: int
    authority: Path
    admin: "redis.Redis"

    def url(self, scheme: str = "rediss", password: str = PASSWORD, trusted: Path | None = None) -> str:
        address = f"{scheme}://arkline:{password.replace(' ', '%20')}@127.0.0.1:{self.secure_port}/0"
        if scheme == "redis":
            return address
        return f"{address}?ssl_cert_reqs=required&ssl_ca_certs={trusted or self.authority}"

    def having(self, url: str) -> Settings:
        return self.settings.model_copy(update={"broker_url": url})


@pytest.fixture
def site(settings: Settings, tmp_path: Path) -> Iterator[Site]:
    found = re.search(r"^```text\n(user default off\nuser arkline .*?)\n```", PAGE.read_text(), re.M | re.S)
    assert found is not None
    users = found[1].replace(">PASSWORD", f"#{_digest(PASSWORD)}")
    users = users.replace("~arkline:*", f"~{settings.broker_prefix}*")
    admin = f"user admin on #{_digest('admin')} ~* &* +@all"
    ours = authority(tmp_path / "tls")
    with (
        running_with_users(tmp_path / "redis", f"{users}\n{admin}\n", ours.issue("redis")) as (port, secure),
        redis.Redis(port=port, username="admin", password="admin") as client,
    ):
        yield Site(settings, secure, ours.certificate, client)


def _digest(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


@pytest.mark.timeout(400)
def test_a_fleet_works_over_tls_with_the_rights_of_the_documentation(
    site: Site, session: Session, source: HttpSource
) -> None:
    settings = site.having(site.url())
    with running_fleet(settings) as fleet:
        fleet.worker(concurrency=2)
        fleet.beat()
        bid = submit(session, settings, put_collection(source, objects=1))
        assert_completed(batch_ended(session, bid, timeout=180))
        workers, jobs = cli.run_all(settings, (["drain", "--json"], ["jobs", "--json"]))

    assert (workers.code, len(workers.json()), jobs.code) == (0, 1, 0)
    assert [(entry["object"], entry["reason"]) for entry in site.admin.acl_log()] == []


def test_counts_of_callbacks_need_no_further_right(site: Site) -> None:
    settings = site.having(site.url())
    redis_keys.count(settings, redis_keys.Counted.CALLBACKS, Outcome.DELIVERED)
    redis_keys.count(settings, redis_keys.Counted.CALLBACKS, Outcome.DELIVERED)

    assert redis_keys.delivered(settings, redis_keys.Counted.CALLBACKS) == {
        Outcome.DELIVERED: 2,
        Outcome.FAILED: 0,
    }
    assert site.admin.acl_log() == []


def test_the_user_may_do_nothing_else(site: Site) -> None:
    with redis.Redis.from_url(site.url()) as client:
        for command in (("FLUSHALL",), ("CONFIG", "GET", "*"), ("KEYS", "*"), ("SHUTDOWN",), ("ACL", "LIST")):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.get("a key of another application")


def test_a_server_of_another_authority_a_wrong_password_and_plain_text_are_refused(
    site: Site, tmp_path: Path
) -> None:
    other = authority(tmp_path / "other")
    urls = (site.url(trusted=other.certificate), site.url(password="a wrong one"), site.url("redis"))

    for url in urls:
        with pytest.raises(OperationalError):
            read_queues(site.having(url))
    assert read_queues(site.having(site.url())).foreign == 0
