"""What the pages say of servers that are away and of jobs that do not move, from their first second on."""

import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from html import unescape

import pytest

from operations.board.values import EVERYTHING
from pipeline import causes
from pipeline.causes import FailureCause
from pipeline.deployment import Deployment
from pipeline.outcome import Service, ServiceDown, WaitKind, WaitsFor
from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind, JobState
from tasks.redis_keys import client
from tasks.stores import claim_key
from tests.servers.proxy import Proxy
from tests.support import cli, planting
from tests.support.boards import until
from tests.support.polling import eventually
from tests.support.remedy_world import write_profiles
from tests.support.web import Caller, Web, browser, new_token, serving, serving_board
from zkstate.care.deployment import RecordDeployment
from zkstate.connection.session import Session
from zkstate.fleet import holds, hosts, outages
from zkstate.fleet.holds import Hold
from zkstate.record import jobs, record
from zkstate.record.jobs import JobMove

MOST_SECONDS = 3.0
"""Seconds after which a request that needs ZooKeeper is refused."""


@pytest.fixture
def shaky_web(settings: Settings, zookeeper_proxy: Proxy) -> Iterator[Web]:
    with serving_board(settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts})) as running:
        yield running
        zookeeper_proxy.accept()
        assert running.context.session.wait_connected(time.monotonic() + 30)


def test_while_zookeeper_is_away_lists_are_read_and_the_rest_is_503_within_seconds(
    shaky_web: Web, zookeeper_proxy: Proxy
) -> None:
    viewer = shaky_web.caller(Role.VIEWER)
    zookeeper_proxy.refuse()
    zookeeper_proxy.cut()

    answer = viewer.get("/v1/jobs/jid0000000001")

    assert shaky_web.context.session.answer_timeout <= MOST_SECONDS
    assert (answer.status_code, answer.json()["code"]) == (503, "service-unreachable")
    assert int(answer.headers["Retry-After"]) > 0
    assert viewer.get("/v1/board").json()["freshness"]["stale"]
    assert viewer.get("/health/ready").status_code == 503
    assert viewer.get("/health/live").status_code == 200


def test_while_zookeeper_is_away_every_list_from_memory_says_of_when_it_is(
    shaky_web: Web, zookeeper_proxy: Proxy, session: Session, alone: Settings
) -> None:
    job, board = planting.one_job(session), shaky_web.context.board
    until(board, lambda: board.counts(EVERYTHING)[JobState.PENDING] == 1)
    viewer = shaky_web.caller(Role.VIEWER)
    over_api = {"ARKLINE_URL": viewer.url, "ARKLINE_TOKEN": viewer.token}
    lists = "/v1/jobs", "/v1/batches"
    for path in lists:
        assert not viewer.get(path).json()["freshness"]["stale"]
    assert "Arkline-Stale" not in viewer.get("/v1/failures").headers
    assert cli.run(alone, "jobs", **over_api).code == 0

    zookeeper_proxy.refuse()
    zookeeper_proxy.cut()
    until(board, lambda: board.freshness().stale)

    as_of = board.freshness().as_of
    for path in lists:
        freshness = viewer.get(path).json()["freshness"]
        assert (freshness["stale"], datetime.fromisoformat(freshness["as_of"])) == (True, as_of), path
    for path in (*lists, "/v1/failures", "/v1/collections", "/v1/collections/demo", "/v1/stops"):
        answer = viewer.get(path)
        assert (answer.status_code, datetime.fromisoformat(answer.headers["Arkline-Stale"])) == (200, as_of)
    for path in ("/jobs", "/batches", "/failures", "/collections", "/stops"):
        assert "Not current: this is the state of" in viewer.get(path).text, path
    for command in (("jobs",), ("top", "--once")):
        shown = cli.run(alone, *command, "--json", **over_api)
        assert (shown.code, shown.json()["freshness"]["stale"]) == (3, True)
        assert "not current: as of " in shown.err
    names = cli.run(alone, "jobs", "-o", "name", **over_api)
    assert (names.code, names.out) == (3, f"{job.jid}\n")
    assert "ZooKeeper is away" in names.err


def test_a_list_that_is_watched_says_that_zookeeper_is_away_and_that_it_is_back(
    shaky_web: Web, zookeeper_proxy: Proxy, alone: Settings
) -> None:
    viewer = shaky_web.caller(Role.VIEWER)
    over_api = {"ARKLINE_URL": viewer.url, "ARKLINE_TOKEN": viewer.token}
    zookeeper_proxy.refuse()
    zookeeper_proxy.cut()
    until(shaky_web.context.board, lambda: shaky_web.context.board.freshness().stale)

    with cli.start(alone, "jobs", "--watch", **over_api) as watching:
        assert watching.stderr is not None
        assert watching.stderr.readline() == "ZooKeeper is away; still trying\n"
        zookeeper_proxy.accept()
        assert "again" in watching.stderr.readline()


def test_the_front_page_names_zookeeper_what_stands_still_what_is_safe_and_what_helps(
    shaky_web: Web, zookeeper_proxy: Proxy
) -> None:
    viewer = shaky_web.caller(Role.VIEWER)
    assert "All systems work" not in viewer.get("/").text
    zookeeper_proxy.refuse()
    zookeeper_proxy.cut()
    assert viewer.get("/v1/jobs/jid0000000001").status_code == 503

    page = viewer.get("/").text

    assert f"ZooKeeper at {zookeeper_proxy.hosts} does not answer" in page
    for part in ("What stands still:", "What is safe:", "start ZooKeeper"):
        assert part in page
    assert 'aria-labelledby="health"' not in page
    assert "Nothing is recorded" not in viewer.get("/stops").text


AWAY = "127.0.0.1:1"
"""A port where nobody listens."""

Trouble = Callable[[Session, Settings], Settings | None]
"""Causes a trouble; the settings of the web process, if they are others."""


def _paused(session: Session, _: Settings) -> None:
    holds.place(session, Hold(by="ann", reason="the database is moved"))


def _held(session: Session, _: Settings) -> None:
    holds.place(session, Hold(by="ann", reason="wrong rights"), "demo")


def _no_space(session: Session, settings: Settings) -> None:
    settings.working.mkdir(parents=True, exist_ok=True)
    judged = planting.acquire(session, planting.job_in(session, JobState.PROVISIONING))
    record.hand_back(session, judged, "test", message="2.0 GB do not fit into working storage")


def _too_large(session: Session, _: Settings) -> None:
    message = "the object needs 4.0 MB, and working storage holds 950 kB at most"
    _fail(session, FailureKind.SYSTEM, message, causes.SPACE_EXCEEDED())


def _busy_host(session: Session, _: Settings) -> None:
    host = "slow.example:8080"
    hosts.begin_pause(session, host, 900, "503 Service Unavailable, Retry-After 900 s")
    job = planting.acquire(session, planting.job_in(session, JobState.DOWNLOADING))
    record.hand_back(session, job, "worker", delay=900, waits_for=WaitsFor(kind=WaitKind.HOST, name=host))


def _quota(session: Session, settings: Settings) -> Settings:
    profiles = settings.home / "own-profiles"
    write_profiles(profiles)
    _, (working, _) = planting.split_batch_of(session, {"profile_name": "small"}, 2)
    planting.acquire(session, planting.apply_event(session, jobs.load(session, working), Event.ACQUIRE))
    return settings.model_copy(update={"profiles": profiles})


def _missing(session: Session, _: Settings) -> None:
    for number in range(3):
        _fail(
            session,
            FailureKind.CONTENT,
            f"https://x.edu/{number}.svg: the source answered 404 Not Found; check the URL",
            causes.SOURCE_ANSWERED(host="x.edu", status=404),
        )


def _digest(session: Session, _: Settings) -> None:
    message = "b.txt: the md5 digest is e26c, but d41d was declared"
    _fail(session, FailureKind.CONTENT, message, causes.DIGEST_DIFFERS())


def _redis_away(session: Session, settings: Settings) -> Settings:
    planting.one_job(session)
    return settings.model_copy(update={"broker_url": f"redis://{AWAY}/0"})


def _zookeeper_away(_: Session, settings: Settings) -> Settings:
    return settings.model_copy(update={"zk_hosts": AWAY})


def _read_only(session: Session, settings: Settings) -> None:
    fault = ServiceDown(Service.STORAGE, f"{settings.storage}: Read-only file system")
    outages.report(session, fault, "vm1")


def _other_deployment(session: Session, settings: Settings) -> None:
    RecordDeployment(session).write_deployment(Deployment(id="a" * 32))
    client(settings).set(claim_key(settings), "c" * 32)


def _nothing(session: Session, _: Settings) -> None:
    planting.one_job(session)


def _fail(session: Session, kind: FailureKind, message: str, cause: FailureCause) -> None:
    held = planting.acquire(session, planting.job_in(session, JobState.DOWNLOADING))
    jobs.move(session, held, JobMove(Event.FAIL, "worker", message=message, kind=kind, cause=cause))


TROUBLES: dict[str, tuple[Trouble, tuple[str, ...]]] = {
    "a paused queue": (
        _paused,
        ("the queue is paused", "by ann", "the database is moved", "Start new jobs again"),
    ),
    "a collection on hold": (
        _held,
        ("collection demo is on hold", "by ann", "wrong rights", "End the hold on the collection"),
    ),
    "no worker for a queue": (
        _nothing,
        ("no worker consumes queue 'download'", "Start a worker", "arkline worker --queues download"),
    ),
    "no beat": (_nothing, ("no beat is running", "Start the scheduler", "arkline beat")),
    "no room in working storage": (
        _no_space,
        ("1 job waits for working storage", "reserved of", "enlarge working storage"),
    ),
    "an object larger than working storage": (
        _too_large,
        ("1 object: more bytes than working storage can hold", "Enlarge working storage and resume"),
    ),
    "a host that asks to wait": (
        _busy_host,
        (
            "slow.example:8080 asked clients to slow down (503 Service Unavailable, Retry-After 900 s)",
            "1 job or batch waits for it and continues without an action",
        ),
    ),
    "a collection at its quota": (
        _quota,
        ("1 job waits: small: the collection's limit of 1 job at a time is reached", "limits.jobs_at_work"),
    ),
    "many failures of one cause": (
        _missing,
        ("3 objects: the source x.edu answered 404", "Check the URL, and that it may be read"),
    ),
    "a digest that differs": (
        _digest,
        ("1 object: the digest of a file differs from the declared one", "and deposit again"),
    ),
    "Redis away": (_redis_away, (f"Redis at {AWAY} does not answer", "Start Redis")),
    "ZooKeeper away": (
        _zookeeper_away,
        (f"ZooKeeper at {AWAY} does not answer", "What stands still:", "What is safe:", "start ZooKeeper"),
    ),
    "a read-only storage root": (
        _read_only,
        ("storage is unavailable", "Read-only file system", "mounted, writable and not full"),
    ),
    "another deployment's prefix": (
        _other_deployment,
        (
            "The prefix in Redis is another deployment's",
            f"belongs to deployment {'c' * 32}",
            "Set ARKLINE_BROKER_PREFIX",
        ),
    ),
}


def _banner(page: str) -> str:
    """What the first box of the front page says."""
    main = page.partition('<section class="panel note')[2].partition("</section>")[0]
    text = unescape(re.sub(r"<[^>]*>", " ", main.partition(">")[2]))
    return " ".join(text.split())


def _banner_of_answers(operator: Caller) -> str:
    """Empty while the page says that ZooKeeper, Redis or the workers have not answered yet."""
    page = operator.get("/").text
    banner = _banner(page)
    unread = AWAY not in banner and "was not read since this web server started" in page
    asking = any(part in banner.lower() for part in ("asking zookeeper, redis", "asking the workers"))
    return "" if unread or asking else banner


@pytest.mark.parametrize("trouble", TROUBLES)
def test_the_first_page_of_a_web_process_names_the_trouble_with_cause_and_remedy(
    session: Session, settings: Settings, trouble: str
) -> None:
    cause, parts = TROUBLES[trouble]
    changed = cause(session, settings) or settings
    operator = new_token(settings, "olga", Role.OPERATOR)

    with serving(changed) as cold:
        banner = eventually(lambda: _banner_of_answers(Caller(cold.url, operator)))

    missing = [part for part in parts if part.lower() not in banner.lower()]
    assert not missing, banner
    assert "All systems work" not in banner


def test_a_web_process_that_starts_without_zookeeper_claims_nothing_and_follows_it_once_it_answers(
    session: Session, settings: Settings, zookeeper_proxy: Proxy
) -> None:
    planting.one_job(session)
    zookeeper_proxy.refuse()
    with serving(settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts})) as web:
        viewer = web.caller(Role.VIEWER)

        fleet = viewer.get("/fleet").text
        deposits = web.caller(Role.DEPOSITOR).get("/deposits").text
        first = viewer.get("/").text
        listed = viewer.get("/v1/jobs")
        counted = viewer.get("/metrics").text

        for claim in ("Nothing is stopped", "No failed job", "No batch", "Below is the state", "As of"):
            assert claim not in first
        assert "start ZooKeeper" in first
        assert "Start ZooKeeper" in fleet
        assert "ZooKeeper" not in deposits
        assert "What you deposited before is safe" in deposits
        assert (listed.status_code, listed.json()["code"]) == (503, "service-unreachable")
        assert "arkline_zookeeper_up 0.0" in counted
        assert not re.search(r"^arkline_(jobs|queue_paused|batches)\b", counted, re.MULTILINE)
        assert viewer.get("/health/live").status_code == 200

        zookeeper_proxy.accept()
        assert web.context.board.wait_filled(30)
        assert viewer.get("/v1/jobs").json()["total"] == 1
        assert "does not answer" not in _banner(viewer.get("/").text)


def test_a_web_process_that_starts_before_the_record_exists_prepares_it(
    settings: Settings, zookeeper_proxy: Proxy
) -> None:
    zookeeper_proxy.refuse()
    new = settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts, "zk_root": f"{settings.zk_root}new"})
    with serving(new) as web:
        zookeeper_proxy.accept()
        assert web.context.board.wait_filled(30)
        operator, deadline = web.caller(Role.OPERATOR), time.monotonic() + 30
        deposit = {"profile": "demo", "payload_url": "https://example.org/a.txt"}

        while (status := operator.post("/v1/batches", deposit).status_code) != 201:
            assert time.monotonic() < deadline, status


def test_a_form_that_is_sent_while_zookeeper_is_away_keeps_what_was_entered(
    settings: Settings, zookeeper_proxy: Proxy
) -> None:
    with serving(settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts})) as web:
        dana = browser(web, Role.DEPOSITOR, "dana", ["demo"])
        zookeeper_proxy.refuse()

        address = "http://example.org/mole.tif"
        answer = dana.send("/deposits", collection="demo", url=address, title="South Mole")

        assert (answer.status_code, 'value="South Mole"' in answer.text) == (422, True)
        zookeeper_proxy.accept()


def test_a_file_that_a_form_brought_is_kept_while_zookeeper_is_away(
    settings: Settings, zookeeper_proxy: Proxy
) -> None:
    with serving(settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts})) as web:
        dana = browser(web, Role.DEPOSITOR, "dana", ["demo"])
        answer = dana.send_file("/deposits", "mole.tif", b"light", collection="demo", digest="wrong")
        (received,) = re.findall('name="received" value="([^"]+)"', answer.text)
        zookeeper_proxy.refuse()

        answer = dana.send("/deposits", collection="demo", received=received)

        assert (answer.status_code, f'value="{received}"' in answer.text) == (422, True)
        zookeeper_proxy.accept()
        form = {"collection": "demo", "received": received}
        eventually(lambda: "The repository has your deposit" in dana.send("/deposits", **form).text)
