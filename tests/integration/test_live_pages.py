"""Open pages under faults: a part that is slow or broken, a silent worker, a client that comes later."""

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator

import pytest

from entrypoints.web.pages.streaming import LivePages, View
from entrypoints.web.pages.whole import WholeFleet
from entrypoints.web.recent import Recent
from operations.fleet.fleet import ANSWER_WAIT
from tasks.redis_keys import client
from tests.support.polling import eventually
from tests.support.web import Web

LIMIT = 30.0
"""Seconds; a test that holds needs a fraction of one."""

QUICK = 0.05


async def _open(pages: LivePages, view: View) -> AsyncIterator[bytes]:
    stream = pages.opening(view).events
    assert (await anext(stream)).startswith(b"retry:")
    return stream


async def _next_part(stream: AsyncIterator[bytes]) -> str:
    async with asyncio.timeout(LIMIT):
        return (await anext(stream)).decode()


def _counting(name: str, period: float = QUICK) -> View:
    """A view that differs at every rendering."""
    numbers = iter(range(1_000_000))
    return View((name,), lambda: f"{name} {next(numbers)}", lambda _: False, period)


async def _started(web: Web) -> LivePages:
    pages = LivePages(web.context)
    await pages.start(WholeFleet(web.context))
    return pages


def test_a_part_that_takes_long_delays_no_other_part(web: Web) -> None:
    blocked = threading.Event()

    def wait_long() -> str:
        assert blocked.wait(LIMIT)
        return "late"

    async def check() -> None:
        pages = await _started(web)
        slow = await _open(pages, View(("slow",), wait_long, lambda _: True, QUICK))
        quick = await _open(pages, _counting("quick"))
        for number in range(5):
            assert f"quick {number}" in await _next_part(quick)
        blocked.set()
        assert "late" in await _next_part(slow)
        await pages.stop()

    asyncio.run(check())


def test_a_part_that_cannot_be_rendered_ends_no_stream(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    tries = iter(["broken", "broken", "sound"])

    def render() -> str:
        if (text := next(tries, "sound")) == "broken":
            raise LookupError("a fault of the template")
        return text

    async def check() -> None:
        pages = await _started(web)
        broken = await _open(pages, View(("broken",), render, lambda _: True, QUICK))
        other = await _open(pages, _counting("other"))
        assert "sound" in await _next_part(broken)
        assert "other" in await _next_part(other)
        await pages.stop()

    asyncio.run(check())

    assert "the part broken of a page cannot be rendered" in caplog.text


def test_a_client_that_comes_later_gets_the_part_that_others_have(web: Web) -> None:
    """Its page may have been rendered before the change that the others got."""
    view = View(("same",), lambda: "unchanged", lambda _: False, LIMIT)

    async def check() -> None:
        pages = await _started(web)
        first = await _open(pages, view)
        assert "unchanged" in await _next_part(first)
        second = await _open(pages, view)
        assert "unchanged" in await _next_part(second)
        await pages.stop()

    asyncio.run(check())


def test_a_slow_client_gets_the_newest_part_and_keeps_none_from_others(web: Web) -> None:
    view = _counting("board")

    async def check() -> None:
        pages = await _started(web)
        slow = await _open(pages, view)
        await _next_part(slow)
        quick = await _open(pages, view)
        numbers = [_number(await _next_part(quick)) for _ in range(20)]
        assert numbers == sorted(set(numbers))
        assert _number(await _next_part(slow)) >= numbers[-1]
        await slow.aclose()  # type: ignore[attr-defined]
        assert _number(await _next_part(quick)) > numbers[-1]
        await pages.stop()

    asyncio.run(check())


def _number(part: str) -> int:
    found = re.search(r"board (\d+)", part)
    assert found
    return int(found[1])


def test_a_page_shows_the_last_answer_while_a_new_one_does_not_come() -> None:
    answers = iter(["first"])
    asked, released, shown = threading.Event(), threading.Event(), threading.Event()

    def ask() -> str:
        if (answer := next(answers, "")) == "":
            asked.set()
            assert released.wait(LIMIT)
        return answer or "second"

    recent = Recent(ask, "a test")
    assert recent.get() == "first"
    recent.renew()
    assert asked.wait(LIMIT)
    assert [recent.get() for _ in range(100)] == ["first"] * 100

    recent.subscribe(shown.set)
    released.set()
    assert shown.wait(LIMIT)
    assert recent.get() == "second"


def test_a_worker_that_does_not_answer_delays_no_page(web: Web) -> None:
    whole, renewed = WholeFleet(web.context), threading.Event()
    before = eventually(whole.get)  # a page waits only so long for the first answer
    whole.subscribe(renewed.set)
    redis = client(web.context.settings)
    with redis.pubsub() as silent:  # type: ignore[no-untyped-call]
        silent.psubscribe("*pidbox*")
        assert silent.get_message(timeout=LIMIT)
        longest, started = 0.0, time.monotonic()
        while (now := whole.get()) is None or now.asked == before.asked:
            assert time.monotonic() - started < LIMIT
            asked = time.monotonic()
            whole.get()
            longest = max(longest, time.monotonic() - asked)
            renewed.wait(QUICK)
    whole.close()

    assert time.monotonic() - started >= ANSWER_WAIT, "the worker was waited for, by no page"
    assert longest < ANSWER_WAIT


def test_an_answer_that_failed_by_a_fault_is_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = iter([LookupError("a fault of a library")])

    def ask() -> str:
        if (fault := next(outcomes, None)) is not None:
            raise fault
        return "sound"

    recent = Recent(ask, "a test")
    assert recent.get() is None
    assert "the pages cannot renew: a test" in caplog.text
    recent.renew()
    assert recent.get() == "sound"
