"""Every verb of an operator by page, by API, and by the command line beside the stack and over the API.

The same verb has the same effect and leaves the same record, whichever way it came.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import requests

from entrypoints.web.routes.verbs import BATCH_EVENTS, JOB_EVENTS
from pipeline.errors import Action
from pipeline.inventory.archive import find_batch, find_job
from pipeline.inventory.sql import open_inventory
from pipeline.principal import Interface, Role
from pipeline.settings import Settings
from pipeline.states import BATCH, JOB, BatchState, Event, FailureKind, JobState, Raiser
from tests.support import cli, planting
from tests.support.web import Caller, Web
from zkstate.connection.session import Session
from zkstate.errors import Missing
from zkstate.record import batches, jobs

REASON = "asked by Ben"


@dataclass(frozen=True)
class Verb:
    """An event on a job or a batch, and the state in which the table allows it."""

    event: Event
    state: JobState | BatchState

    @property
    def kind(self) -> str:
        return "jobs" if isinstance(self.state, JobState) else "batches"


VERBS = (
    *(
        Verb(event, next(row.source for row in JOB.table if row.event is event and Raiser.OPERATOR in row.by))
        for event in JOB_EVENTS
    ),
    *(
        Verb(
            event, next(row.source for row in BATCH.table if row.event is event and Raiser.OPERATOR in row.by)
        )
        for event in BATCH_EVENTS
    ),
)

Raise = Callable[[Sequence[tuple[Verb, str]]], None]
"""Raises all verbs, each on its job or batch."""


@pytest.fixture(scope="module")
def session(web: Web) -> Session:
    return web.context.session


@pytest.fixture(scope="module")
def ann(web: Web) -> Caller:
    return web.caller(Role.OPERATOR, name="ann")


def planted(session: Session, verb: Verb) -> str:
    if isinstance(verb.state, JobState):
        return planting.job_in(session, verb.state).jid
    return planting.batch_in(session, verb.state).bid


def recorded(session: Session, settings: Settings, name: str) -> tuple[str, str, str, str, str]:
    """State, event, person, interface and reason, as the record or the archive has them."""
    try:
        if name.startswith("jid"):
            job = jobs.load(session, name)
            step = job.history[-1]
            return job.status.status, str(step.event), step.by, str(step.via), step.message
        batch = batches.load(session, name)
        entry = batch.history[-1]
        return batch.status.status, str(entry.event), entry.by, str(entry.via), entry.message
    except Missing:
        inventory = open_inventory(settings.inventory)
        gone = find_job(inventory, name) if name.startswith("jid") else find_batch(inventory, name)
        assert gone is not None
        return str(gone.state), "", gone.disposition.who, "", gone.disposition.why


def page_act(verb: Verb) -> str:
    """The act of the page's button: that of a batch resumes its failed jobs."""
    of_batch = verb.event is Event.RESUME and isinstance(verb.state, BatchState)
    return str(Action.RESUME_BATCH if of_batch else verb.event)


def commands(verbs: Sequence[tuple[Verb, str]], *more: str) -> list[list[str]]:
    sure = {Event.DELETE: ["--yes"]}
    return [
        [str(verb.event), name, "--reason", REASON, *sure.get(verb.event, []), *more] for verb, name in verbs
    ]


@pytest.fixture(scope="module")
def ways(
    web: Web, module_settings: Settings, ann: Caller, tmp_path_factory: pytest.TempPathFactory
) -> tuple[tuple[Raise, Interface], ...]:
    """Every way to raise verbs, and the interface that is recorded with them."""
    alone = module_settings.model_copy(
        update={
            "zk_hosts": "127.0.0.1:1",
            "broker_url": "redis://127.0.0.1:1/0",
            "home": tmp_path_factory.mktemp("alone"),
        }
    )

    def by_page(verbs: Sequence[tuple[Verb, str]]) -> None:
        browser = requests.Session()
        own = {"Sec-Fetch-Site": "same-origin"}
        browser.post(f"{web.url}/login", data={"token": ann.token, "next": "/"}, headers=own, timeout=30)
        for verb, name in verbs:
            form = {"act": page_act(verb), "target": name, "reason": REASON}
            assert browser.post(f"{web.url}/act", data=form, headers=own, timeout=30).ok

    def by_api(verbs: Sequence[tuple[Verb, str]]) -> None:
        for verb, name in verbs:
            answer = ann.post(f"/v1/{verb.kind}/{name}/{verb.event}", {"reason": REASON})
            assert answer.status_code == 200, answer.text

    def beside_the_stack(verbs: Sequence[tuple[Verb, str]]) -> None:
        done = cli.run_all(module_settings, commands(verbs, "--by", "ann"))
        assert [one.code for one in done] == [0] * len(verbs), done

    def over_the_api(verbs: Sequence[tuple[Verb, str]]) -> None:
        site = {"ARKLINE_URL": ann.url, "ARKLINE_TOKEN": ann.token}
        done = cli.run_all(alone, commands(verbs), **site)
        assert [one.code for one in done] == [0] * len(verbs), done

    return (
        (by_page, Interface.WEB),
        (by_api, Interface.API),
        (beside_the_stack, Interface.CLI),
        (over_the_api, Interface.API),
    )


def test_every_verb_has_the_same_effect_and_record_by_every_interface(
    session: Session, module_settings: Settings, ways: tuple[tuple[Raise, Interface], ...]
) -> None:
    records: dict[Verb, list[tuple[str, ...]]] = {verb: [] for verb in VERBS}
    for way, interface in ways:
        verbs = [(verb, planted(session, verb)) for verb in VERBS]
        way(verbs)
        for verb, name in verbs:
            state, event, by, via, message = recorded(session, module_settings, name)
            assert via in {"", interface}, (verb, way)
            records[verb].append((state, event, by, message.replace(name, "ID")))

    for verb, rows in records.items():
        assert len(set(rows)) == 1, (verb, rows)
        _, event, by, message = rows[0]
        assert (event in {"", verb.event}, by, REASON in message) == (True, "ann", True), (verb, rows[0])


def test_a_batch_is_resumed_alike_by_every_interface(
    session: Session, module_settings: Settings, ways: tuple[tuple[Raise, Interface], ...]
) -> None:
    records = set()
    for way, interface in ways:
        bid, (first, second) = planting.split_batch(session, 2)
        planting.apply_event(session, jobs.load(session, first), Event.FAIL, FailureKind.SYSTEM)
        way([(Verb(Event.RESUME, BatchState.PROCESSING), bid)])

        state, event, by, via, message = recorded(session, module_settings, first)
        assert via == interface
        assert jobs.load(session, second).history[-1].event is not Event.RESUME
        records.add((state, event, by, message))

    assert len(records) == 1, records
    assert REASON in records.pop()[3]
