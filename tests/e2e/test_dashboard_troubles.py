"""Ten troubles: at most two clicks from the front page lead to the cause and what helps; the job goes on.

One fleet, one web process and one browser for all of them; every trouble leaves the fleet as it was.
"""

import re
import shlex
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from operations.fleet.health import Health, overview
from operations.reasons import Reason
from operations.site import Site
from operations.verbs import holds
from pipeline.errors import Action
from pipeline.principal import Role
from pipeline.states import Event, FailureKind, JobState
from tasks.redis_keys import client
from tests.servers import redis as redis_servers
from tests.servers import zookeeper as zookeeper_servers
from tests.servers.http_source import HttpSource
from tests.support import planting
from tests.support.browser import Chromium, Visitor, chromium, visitor
from tests.support.fleet import fleet
from tests.support.operators import ANN
from tests.support.polling import eventually
from tests.support.remedy_world import World, quick_settings
from tests.support.web import Caller, Web, new_token, serving, serving_board
from zkstate.connection.session import connect
from zkstate.queue import queue
from zkstate.record import jobs, record

ALL_BUT_DOWNLOAD = "control,split,io,process"
MANY = 500
"""Jobs that fail by one cause."""


@pytest.fixture(scope="module")
def running(
    zookeeper: zookeeper_servers.Server,
    redis_server: redis_servers.Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    home = tmp_path_factory.mktemp("troubles")
    settings = quick_settings(zookeeper, redis_server, home, in_flight=4, backoff=1)
    with HttpSource() as source, connect(settings) as session, fleet(settings) as started:
        processes = [
            started.worker("w1", 3, queues=ALL_BUT_DOWNLOAD, wait=False),
            started.worker("w2", 3, queues="download", wait=False),
            started.beat(wait=False),
        ]
        for process in processes:
            started.wait_ready(process)
        yield World(session, settings, started, source, redis_server)


@pytest.fixture
def world(running: World) -> Iterator[World]:
    yield running
    running.end_case()
    for jid in queue.queued(running.session, JobState.FAILED):
        planting.apply_event(running.session, jobs.load(running.session, jid), Event.DELETE)


@pytest.fixture(scope="module")
def web(running: World) -> Iterator[Web]:
    with serving_board(running.settings) as served:
        yield served


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chromium]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def operator(chrome: Chromium, web: Web) -> Iterator[Visitor]:
    with visitor(chrome, web.url) as opened:
        opened.log_in(new_token(web.context.settings, "olga", Role.OPERATOR))
        yield opened


@pytest.fixture
def front(operator: Visitor) -> Iterator[Page]:
    """The front page; nothing that the browser complains about may happen from here on."""
    yield operator.open("/")
    assert operator.complaints == []


def why(page: Page) -> Locator:
    return page.locator("section[aria-labelledby=why]")


def waiting(page: Page, reason: Reason) -> Locator:
    """The first click: the list of the jobs that wait for this reason."""
    return page.locator("section[aria-labelledby=waiting]").get_by_role("link", name=reason.doc)


def open_listed(page: Page, jid: str) -> None:
    """The second click: a job of the list, which is read again until the board has the job in it."""
    listed = page.get_by_role("link", name=jid)
    for _ in range(40):
        if listed.count():
            break
        page.reload()
    listed.click()


def press(within: Locator | Page, label: str, reason: str = "") -> None:
    form = (
        within.locator("form").filter(has=within.page.get_by_role("button", name=label))
        if isinstance(within, Locator)
        else within.locator("form").filter(has=within.get_by_role("button", name=label))
    )
    if reason:
        form.first.get_by_placeholder("Reason").fill(reason)
    form.first.get_by_role("button", name=label).click()


def advised_command(page: Page, part: str) -> list[str]:
    """The words of the command that the page gives for what no button can do; `part`: of the advice."""
    line = page.locator(".advice", has_text=part).locator("code").first.inner_text()
    program, *words = shlex.split(line)
    assert program == "arkline"
    return words


def health_of(page: Page) -> Locator:
    return page.locator("section[aria-labelledby=health]")


def test_a_fleet_that_works_is_green_until_a_job_fails(world: World, front: Page) -> None:
    world.completed(world.submit())
    expect(health_of(front)).to_have_class(re.compile(r"\bgood\b"))
    expect(health_of(front).get_by_role("heading")).to_have_text("All systems work.")
    works = overview(Site(world.settings, world.session), ANN).health

    jid = world.job(world.submit(world.put(b"x", status=404)))
    expect(health_of(front).get_by_role("heading")).to_have_text("1 job failed")
    fails = overview(Site(world.settings, world.session), ANN).health
    delete = Event.DELETE
    planting.apply_event(world.session, jobs.load(world.session, jid), delete)

    assert (works.status, works.problems) == (Health.OK, ())
    assert fails.status is Health.DEGRADED
    assert [remedy.action for remedy in fails.remedies] == [Action.SHOW_FAILURES]
    expect(health_of(front)).to_have_class(re.compile(r"\bgood\b"))


def test_a_board_that_is_not_kept_current_leaves_the_banner_of_a_fleet_that_works_grey(
    world: World, chrome: Chromium
) -> None:
    with serving_board(world.settings) as cold, visitor(chrome, cold.url) as opened:
        opened.log_in(new_token(cold.context.settings, "rosa", Role.OPERATOR))
        page = opened.open("/")
        expect(health_of(page)).to_contain_text("All systems work", timeout=30_000)

        cold.context.board._follower.stop()
        page.reload()

        expect(health_of(page)).to_have_class(re.compile(r"\basking\b"))
        assert "All systems work" not in health_of(page).inner_text()


def test_a_paused_queue(world: World, front: Page) -> None:
    holds.pause(Site(world.settings, world.session), ANN)
    bid = world.submit()

    expect(front.get_by_text("The queue is paused").first).to_be_visible()
    press(front, "Start new jobs again")

    expect(front.get_by_text("The queue starts new jobs again.")).to_be_visible()
    world.completed(bid)


def test_a_collection_on_hold(world: World, front: Page) -> None:
    holds.hold_collection(Site(world.settings, world.session), ANN, "demo")
    bid = world.submit()

    banner = front.locator("section[aria-labelledby=health]")
    expect(banner).to_contain_text("Collection demo is on hold: its jobs do not start")
    expect(front.locator("section[aria-labelledby=stops]")).to_contain_text("It keeps back 1 batch")
    press(front, "Release demo")

    expect(front.get_by_text("Collection demo is not on hold any more")).to_be_visible()
    world.completed(bid)


def test_no_worker_for_a_queue(world: World, front: Page) -> None:
    (worker,) = [process for process in world.fleet.running if process.name == "w2"]
    worker.terminate()
    worker.stop(20)
    world.fleet.running.remove(worker)
    bid = world.submit()

    with serving(world.settings) as cold:
        operator = Caller(cold.url, new_token(world.settings, "nora", Role.OPERATOR))
        assert "All systems work" not in operator.get("/").text
        # a page waits for slow workers only so long
        assert eventually(lambda: "o worker consumes queue &#39;download&#39;" in operator.get("/").text)
    expect(front.get_by_text("no worker consumes queue 'download'")).to_be_visible()
    words = advised_command(front, "--queues download")
    assert words == ["worker", "--queues", "download"]
    world.fleet.start("w2", "-m", "arkline", *words, "--name", "w2", "--processes", "3", wait=False)

    world.completed(bid)
    expect(front.get_by_text("no worker consumes queue 'download'")).to_have_count(0)


def test_no_beat(world: World, front: Page) -> None:
    with world.without_beat(leader=False):
        job = world.planted()

        expect(front.get_by_text("no beat is running")).to_be_visible()
        words = advised_command(front, "Start the scheduler")
        assert words == ["beat"]
        expect(front.get_by_role("button", name="Copy the command").first).to_be_visible()
        world.fleet.start("beat", "-m", "arkline", *words, wait=False)

    world.completed(job.bid)


def test_no_space(world: World, front: Page) -> None:
    first = world.held(body=b"x" * 600_000)
    bid = world.submit(world.put(b"y" * 600_000))
    jid = world.job(bid)

    waiting(front, Reason.WAITING_FOR_SPACE).click()
    open_listed(front, jid)
    expect(why(front)).to_contain_text("of working storage are free")
    expect(why(front)).to_contain_text(re.compile(f"{first.jid} has 6\\d\\d kB"))
    press(why(front), "Stop the job", "it does not move")

    world.job_completes(jid)
    expect(why(front)).to_contain_text("The object is stored")


def test_a_host_that_asks_to_wait(world: World, front: Page) -> None:
    # long enough for a loaded machine, on which what a page shows of the fleet is many seconds old
    url = world.put(b"x", status=429, retry_after="30", status_times=1, head=False)
    jid = world.job(world.submit(url))

    expect(front.get_by_text("asked clients to slow down").first).to_be_visible()
    front.get_by_role("link", name="The jobs that wait for a source").click()
    open_listed(front, jid)
    expect(why(front)).to_contain_text("No action is needed.")

    world.job_completes(jid)
    expect(why(front)).to_contain_text("The object is stored")


def test_a_collection_at_its_quota(world: World, front: Page) -> None:
    first = world.held("small")
    jid = world.job(world.submit(profile="small"))

    limit = "small: the collection's limit of 1 job at a time is reached."
    front.locator("section[aria-labelledby=waiting]").get_by_role("link", name=limit).click()
    open_listed(front, jid)
    expect(why(front)).to_contain_text("and its profile allows 1")
    expect(why(front)).to_contain_text(f"{first.jid} has a place")
    press(why(front), "Stop the job", "it does not move")

    world.job_completes(jid)


def test_content_that_is_wrong(world: World, front: Page) -> None:
    url = world.put(b"x", status=404)
    jid = world.job(world.submit(url))

    front.locator("section[aria-labelledby=failures]").get_by_role("link", name="404").click()
    expect(front.get_by_text("Who has to act: the depositor")).to_be_visible()
    open_listed(front, jid)
    expect(why(front)).to_contain_text("(content: ")
    press(front, "Delete", "the depositor sends another one")

    expect(front.get_by_text(f"{jid} was failed and is now deleted")).to_be_visible()


def test_a_message_that_is_lost(world: World, front: Page) -> None:
    with world.without_beat(leader=True):
        job = world.planted()
        record.redispatch(world.session, job, lost=False)

        front.locator("section[aria-labelledby=jobs]").get_by_role("link", name="pending").click()
        open_listed(front, job.jid)
        expect(why(front)).to_contain_text("Its worker or its message was lost")
        expect(why(front)).to_contain_text("No action is needed.")

    world.completed(job.bid)
    expect(why(front)).to_contain_text("The object is stored")


def test_redis_that_is_away_is_named_at_first_sight_of_a_new_web_process(
    world: World, chrome: Chromium
) -> None:
    world.redis.process.kill()
    try:
        with serving_board(world.settings) as cold, visitor(chrome, cold.url) as opened:
            opened.log_in(new_token(cold.context.settings, "carl", Role.OPERATOR))
            first = opened.open("/").request.get(cold.url).text()
    finally:
        world.redis.process.start()

    assert f"Redis at 127.0.0.1:{world.redis.port} does not answer" in first
    assert "Start Redis." in first
    assert "All systems work" not in first
    assert "no beat is running" not in first


def test_workers_that_do_not_answer_leave_the_banner_grey(world: World, chrome: Chromium) -> None:
    redis = client(world.settings)
    with (
        redis.pubsub() as silent,  # type: ignore[no-untyped-call]
        serving_board(world.settings) as cold,
        visitor(chrome, cold.url) as opened,
    ):
        silent.psubscribe("*pidbox*")  # counts as a worker that was asked and is silent
        assert silent.get_message(timeout=20)
        page = opened.page
        with page.expect_response(lambda answer: urlsplit(answer.url).path == "/" and answer.ok) as first:
            opened.log_in(new_token(cold.context.settings, "gwen", Role.OPERATOR))
        banner = page.locator("section[aria-labelledby=health]")

        assert "Asking the workers" in first.value.text()
        assert "All systems work" not in first.value.text()
        expect(banner).to_contain_text("All systems work", timeout=30_000)


def test_many_failures_of_one_cause(world: World, front: Page) -> None:
    world.fleet.stop()  # what is resumed here is not to be processed
    _, jids = planting.split_batch(world.session, MANY)
    for jid in jids:
        planting.apply_event(world.session, jobs.load(world.session, jid), Event.FAIL, FailureKind.SYSTEM)

    front.locator("section[aria-labelledby=failures]").get_by_role("link", name=f"{MANY}").click()
    front.get_by_role("button", name="Resume these jobs: preview").click()
    front.get_by_role("button", name=f"Resume exactly these {MANY}").click()

    expect(front.get_by_text(f"{MANY} done, 0 refused")).to_be_visible()
    assert {jobs.load(world.session, jid).status.status for jid in jids} == {JobState.PENDING}
