"""Notifications of events, with a mail server, a receiver, and the scheduled work that delivers them."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope
from aiosmtpd.smtp import Session as SmtpSession
from pydantic import SecretStr
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from entrypoints.stack.child import free_ports
from operations import notifications
from operations.notifications import NewSubscription, NoSuchSubscription, SubscriptionView
from operations.site import Site
from operations.tokens import create_token, revoke
from pipeline.errors import UsageRefused
from pipeline.inventory.sql import open_inventory
from pipeline.notify.notification import code_of
from pipeline.notify.subscription import DigestMode, EventKind, NotableEvent
from pipeline.outcome import Service, ServiceDown
from pipeline.principal import Forbidden, Interface, Principal, Role
from pipeline.records import now
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, FailureKind, JobState
from tasks import outages as of_tasks
from tasks.app import make_context
from tasks.batch import REPORT
from tasks.scheduled import notifications as work
from tasks.worker_context import WorkerContext
from tests.servers.receiver import Receiver
from tests.support import cli, planting
from tests.support.attempts import work_on
from tests.support.operators import ANN
from tests.support.polling import eventually
from tests.support.web import OWN_FORM, Caller, serving
from zkstate import codec, paths
from zkstate.connection.session import Session, connect
from zkstate.fleet import outages
from zkstate.record import batches, jobs, record, subscriptions

MAIL = "ann@harbour.example"
EVENTS = (EventKind.DONE, EventKind.FAILED)


class MailServer:
    """Keeps what it accepts; `refusal` is its answer to a mail."""

    def __init__(self) -> None:
        self.received: list[EmailMessage] = []
        self.refusal = ""

    @property
    def accepted(self) -> list[EmailMessage]:
        """The mails to the subscriber: reports without recipients are not sent."""
        return [mail for mail in self.received if mail["To"] == MAIL]

    async def handle_DATA(  # noqa: N802 - aiosmtpd calls it by SMTP's verb
        self, server: SMTP, session: SmtpSession, envelope: Envelope
    ) -> str:
        if self.refusal:
            return self.refusal
        assert isinstance(envelope.content, bytes)
        message = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.received.append(message)
        return "250 OK"


@pytest.fixture
def mail() -> Iterator[tuple[MailServer, int]]:
    server = MailServer()
    controller = Controller(server, hostname="127.0.0.1", port=free_ports(1)[0])
    controller.start()
    yield server, controller.port
    controller.stop()


@pytest.fixture
def mails(mail: tuple[MailServer, int]) -> MailServer:
    return mail[0]


@pytest.fixture
def settings(settings: Settings, mail: tuple[MailServer, int]) -> Settings:
    return settings.model_copy(
        update={
            "smtp_host": "127.0.0.1",
            "smtp_port": mail[1],
            "callback_secret": SecretStr("a secret of the harbour"),
            "public_url": "https://deposit.example.org",
        }
    )


@pytest.fixture
def context(settings: Settings) -> Iterator[WorkerContext]:
    made = make_context(settings)
    made.session()  # gives the stores their deployment id
    yield made
    made.drop_session()


def token(settings: Settings, name: str, role: Role, collections: frozenset[str] | None = None) -> Principal:
    create_token(open_inventory(settings.inventory), ANN, name, role, collections)
    return Principal(name=name, role=role, collections=collections, interface=Interface.API)


def deliver(context: WorkerContext) -> None:
    context.app.tasks[f"beat.{work.WORK}"]()


def subscribe(site: Site, who: Principal, **asked: Any) -> SubscriptionView:
    return notifications.add(site, who, NewSubscription(**{"events": EVENTS, **asked}))


def confirmed(site: Site, context: WorkerContext, who: Principal, **asked: Any) -> SubscriptionView:
    view = subscribe(site, who, mail=MAIL, **asked)
    deliver(context)
    confirm(site, context, view.id, code_of(site.settings, view.id, "confirm"))
    return view


def confirm(site: Site, context: WorkerContext, subscription_id: str, code: str) -> None:
    """Confirm the address, and wait until the worker, which caches the subscriptions, has the news of it."""
    notifications.confirm(site, subscription_id, code)
    session = context.session()
    eventually(
        lambda: any(one.confirmed for one in subscriptions.known(session) if one.id == subscription_id)
    )


def shown(site: Site, subscription_id: str) -> SubscriptionView:
    return notifications.show(site, ANN, subscription_id)


def ended_deposit(context: WorkerContext, session: Session, *, fails: bool = False) -> str:
    """A deposit of two objects that has ended and was reported."""
    bid, jids = planting.split_batch(session, 2)
    for number, jid in enumerate(jids):
        job = jobs.load(session, jid)
        if fails and number == 0:
            planting.apply_event(session, job, Event.FAIL)
        else:
            jobs.clean_up(session, planting.complete(session, job))
    reporting = batches.finish_if_ended(session, bid, "test")
    assert reporting is not None
    work_on(context, record.ticket(reporting), REPORT)
    return bid


def about(bid: str, number: int = 1, **changes: Any) -> NotableEvent:
    facts = {"kind": EventKind.DONE, "collection": "demo", "title": f"demo: 2 objects stored ({bid})"}
    return NotableEvent(**{**facts, "about": bid, "number": number, "at": now(), **changes})


def text_of(message: EmailMessage) -> str:
    body = message.get_body(("plain",))
    assert body is not None
    return str(body.get_content())


def events_of(receiver: Receiver) -> list[list[dict[str, Any]]]:
    """The events of each request."""
    return [json.loads(request.raw)["events"] for request in receiver.received]


def later(monkeypatch: pytest.MonkeyPatch, passed: timedelta) -> None:
    moment = now() + passed
    monkeypatch.setattr(work, "now", lambda: moment)


def test_nothing_but_the_question_is_mailed_before_the_address_is_confirmed(
    site: Site, session: Session, context: WorkerContext, mails: MailServer
) -> None:
    view = subscribe(site, ANN, mail=MAIL)
    deliver(context)
    ended_deposit(context, session)
    deliver(context)

    (asked,) = mails.accepted
    found = re.search(rf"/notifications/{view.id}/confirm\?code=(\w+)", text_of(asked))
    assert found is not None
    assert f"arkline notify confirm {view.id} {found[1]}" in text_of(asked)
    assert not shown(site, view.id).confirmed

    confirm(site, context, view.id, found[1])
    bid = ended_deposit(context, session)
    deliver(context)

    _, mail = mails.accepted
    assert "2 objects stored" in mail["Subject"]
    assert f"https://deposit.example.org/batches/{bid}" in text_of(mail)
    assert f"/notifications/{view.id}/end?code=" in mail["List-Unsubscribe"]
    assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"


def test_a_mail_of_a_failed_deposit_says_what_happened_and_what_to_do(
    site: Site, session: Session, context: WorkerContext, mails: MailServer
) -> None:
    confirmed(site, context, ANN)
    ended_deposit(context, session, fails=True)
    deliver(context)

    mail = mails.accepted[-1]
    assert "1 of 2 objects not stored" in mail["Subject"]
    assert "what happened:" in text_of(mail)
    assert "what to do:" in text_of(mail)


def test_a_code_of_another_subscription_or_purpose_confirms_and_ends_nothing(
    site: Site, context: WorkerContext
) -> None:
    view, other = subscribe(site, ANN, mail=MAIL), subscribe(site, ANN, mail="bob@harbour.example")

    for code in (
        code_of(site.settings, other.id, "confirm"),
        code_of(site.settings, view.id, "end"),
        "",
        "é",
    ):
        with pytest.raises(NoSuchSubscription):
            notifications.confirm(site, view.id, code)
    with pytest.raises(NoSuchSubscription):
        notifications.end_by_code(site, view.id, code_of(site.settings, view.id, "confirm"))
    with pytest.raises(NoSuchSubscription):
        notifications.confirm(site, "../deployment", code_of(site.settings, "../deployment", "confirm"))

    assert not shown(site, view.id).confirmed


def test_a_webhook_gets_a_signed_request_with_the_events_and_an_id(
    site: Site, session: Session, context: WorkerContext, receiver: Receiver
) -> None:
    view = subscribe(site, ANN, webhook=receiver.url("/hook"))
    bid = ended_deposit(context, session)
    deliver(context)

    (request,) = receiver.received
    Webhook(view.signing_key).verify(request.raw, request.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(view.signing_key).verify(request.raw.replace(b"done", b"gone"), request.headers)
    document = json.loads(request.raw)
    assert re.fullmatch(rf"{view.id}\.[0-9a-f]{{16}}", document["id"])
    assert request.headers["webhook-id"] == document["id"]
    (event,) = document["events"]
    assert (event["id"], event["kind"], event["about"]) == (f"done.{bid}.1", "done", bid)
    assert view.signing_key.encode() not in b"".join(planting.tree(session).values())
    assert shown(site, view.id).signing_key == view.signing_key


def test_a_webhook_at_an_address_that_is_not_public_is_not_called(
    site: Site, settings: Settings, session: Session, receiver: Receiver
) -> None:
    view = subscribe(site, ANN, webhook=receiver.url())
    closed = make_context(settings.model_copy(update={"allow_networks": ()}))
    subscriptions.enter(session, about("bid0000000001"))
    deliver(closed)
    closed.drop_session()

    assert receiver.received == []
    assert "not public" in shown(site, view.id).error


def test_a_redirect_is_not_followed_and_its_error_is_shown(
    site: Site, session: Session, context: WorkerContext, receiver: Receiver
) -> None:
    view = subscribe(site, ANN, webhook=receiver.url())
    receiver.answers += [(302, {"Location": receiver.url("/elsewhere")})]
    subscriptions.enter(session, about("bid0000000001"))
    deliver(context)

    assert [request.path for request in receiver.received] == ["/callback"]
    assert "write the URL that it redirects to in the subscription" in shown(site, view.id).error


class Killed(BaseException):
    """The process ends here."""


def killed_in_run(context: WorkerContext, session: Session) -> None:
    with pytest.raises(Killed):
        work.run(context, session, None)  # type: ignore[arg-type]


def test_a_worker_that_is_killed_between_sending_and_noting_sends_the_same_again(
    site: Site, session: Session, context: WorkerContext, mails: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = confirmed(site, context, ANN)
    subscriptions.enter(session, about("bid0000000001"))
    send = work._deliver

    def killed(*arguments: Any) -> None:
        send(*arguments)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(work, "_deliver", killed)
        killed_in_run(context, session)
    subscriptions.enter(session, about("bid0000000002"))
    deliver(context)
    deliver(context)

    first, again, last = mails.accepted[1:]
    assert first["Message-ID"] == again["Message-ID"] != last["Message-ID"]
    assert text_of(first) == text_of(again)
    assert "bid0000000002" in last["Subject"]
    assert shown(site, view.id).delivered == 3  # with the question


@pytest.mark.parametrize("digest", DigestMode)
def test_a_pause_that_a_host_whose_clock_was_ahead_has_entered_keeps_nothing_back(
    site: Site, session: Session, context: WorkerContext, receiver: Receiver, digest: DigestMode
) -> None:
    view = subscribe(site, ANN, webhook=receiver.url(), digest=digest)
    (entry,) = subscriptions.read(session)
    ahead = now() + timedelta(days=400) + max(digest.pause, work.LONGEST_PAUSE)
    wrong = entry.delivery.model_copy(update={"next": ahead, "failing_since": ahead})
    subscriptions.take(session, entry, wrong)
    subscriptions.enter(session, about("bid0000000001"))
    deliver(context)

    assert len(receiver.received) == 1
    assert shown(site, view.id).delivered == 1


def test_a_worker_that_is_killed_while_it_takes_the_events_loses_none(
    site: Site, session: Session, context: WorkerContext, mails: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed(site, context, ANN)
    for number in range(work.LISTED + 1):
        subscriptions.enter(session, about(f"bid{number:010d}"))
    take, calls = subscriptions.take, list[None]()

    def killed(*arguments: Any) -> Any:
        calls.append(None)
        if len(calls) == 2:
            raise Killed
        return take(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(subscriptions, "take", killed)
        killed_in_run(context, session)
    deliver(context)
    deliver(context)

    first, rest = mails.accepted[1:]
    assert f"{work.LISTED} events" in first["Subject"]
    assert f"bid{work.LISTED:010d}" in rest["Subject"]


def test_a_digest_collects_what_waits_and_pauses_until_its_time(
    site: Site, session: Session, context: WorkerContext, mails: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed(site, context, ANN, digest=DigestMode.HOURLY)
    subscriptions.enter(session, about("bid0000000001"))
    deliver(context)
    for number in (2, 3):
        subscriptions.enter(session, about(f"bid{number:010d}"))
    deliver(context)
    assert len(mails.accepted) == 2

    later(monkeypatch, timedelta(hours=1, seconds=1))
    deliver(context)

    assert "2 events" in mails.accepted[-1]["Subject"]
    assert {"bid0000000002", "bid0000000003"} <= set(re.findall(r"bid\d{10}", text_of(mails.accepted[-1])))


def test_a_test_does_not_shorten_the_pause_of_a_digest(
    site: Site, session: Session, context: WorkerContext, mails: MailServer
) -> None:
    view = confirmed(site, context, ANN, digest=DigestMode.HOURLY)
    subscriptions.enter(session, about("bid0000000001"))
    deliver(context)
    notifications.send_test(site, ANN, view.id)
    deliver(context)
    subscriptions.enter(session, about("bid0000000002"))
    deliver(context)

    _, done, test = mails.accepted
    assert "bid0000000001" in done["Subject"]
    assert "a test" in test["Subject"]
    assert shown(site, view.id).waiting == 1


def test_another_delivery_of_a_restored_record_has_another_id(
    site: Site, session: Session, context: WorkerContext, receiver: Receiver
) -> None:
    view = subscribe(site, ANN, webhook=receiver.url())
    backup, _ = session.zk.get(paths.delivery(view.id))
    for bid in ("bid0000000001", "bid0000000002"):
        subscriptions.enter(session, about(bid))
        deliver(context)
        session.zk.set(paths.delivery(view.id), backup)

    first, other = (request.headers["webhook-id"] for request in receiver.received)
    assert first != other


def test_a_deposit_fails_although_as_many_as_may_be_are_told_why(
    site: Site, session: Session, context: WorkerContext, receiver: Receiver
) -> None:
    view = subscribe(site, ANN, webhook=receiver.url())
    (one,) = subscriptions.known(session)
    for number in range(1, subscriptions.MOST):
        copy = one.model_copy(update={"id": f"{number:016x}"})
        session.zk.create(paths.subscription(copy.id), codec.encode(copy))
    batch = planting.batch_in(session, BatchState.REPORTING)
    message = "the reason " * 100
    request = batches.BatchMove(Event.FAIL, "test", message, FailureKind.SYSTEM, lock=record.Lock.FREE)
    failed = batches.move(session, batch, request)

    assert failed.status.status == "failed"
    told = [subscriptions.waiting(session, name) for name in session.children(paths.SUBSCRIPTIONS)]
    assert told == [[f"failed.{batch.bid}.1"]] * subscriptions.MOST
    (event,) = subscriptions.read_events(session, view.id, told[0]).values()
    assert "the reason" in event.text


def test_ten_thousand_events_are_one_mail_that_lists_the_first_and_counts_all(
    site: Site, session: Session, context: WorkerContext, mails: MailServer
) -> None:
    view = confirmed(site, context, ANN, digest=DigestMode.DAILY)
    data = about("bid0000000001").model_dump_json().encode()
    keys = [about(f"bid{number:010d}").key for number in range(1, 10_001)]
    for answer in [session.zk.create_async(paths.waiting_event(view.id, key), data) for key in keys]:
        answer.get(60)
    deliver(context)

    _, mail = mails.accepted
    assert "10,000 events" in mail["Subject"]
    assert f"And {10_000 - work.LISTED:,} more" in text_of(mail)
    assert subscriptions.waiting(session, view.id) == []
    assert shown(site, view.id).delivered == 10_001


def test_a_revoked_token_ends_its_subscriptions_and_gets_nothing_that_waits(
    site: Site, settings: Settings, session: Session, context: WorkerContext, mails: MailServer
) -> None:
    bob = token(settings, "bob", Role.DEPOSITOR, frozenset({"demo"}))
    view = confirmed(site, context, bob)
    subscriptions.enter(session, about("bid0000000001", owner="token:bob"))
    assert len(subscriptions.waiting(session, view.id)) == 1
    revoke(open_inventory(settings.inventory), ANN, "bob")
    deliver(context)

    assert len(mails.accepted) == 1
    assert notifications.listed(site, ANN).subscriptions == ()
    # the worker ended it in its own session: this one learns of it by its watches
    assert eventually(lambda: all(known.ended for known in subscriptions.known(session)))
    subscriptions.enter(session, about("bid0000000002", owner="token:bob"))
    assert subscriptions.waiting(session, view.id) == []


@pytest.mark.parametrize(
    ("role", "collections", "sees"),
    [
        (Role.VIEWER, None, {"own", "others", "foreign", "foreign-own"}),
        (Role.VIEWER, frozenset({"demo"}), {"own", "others"}),
        (Role.DEPOSITOR, frozenset({"demo"}), {"own"}),
        (Role.OPERATOR, frozenset({"maps"}), {"foreign", "foreign-own"}),
    ],
)
def test_a_subscription_gets_only_what_its_owner_may_see(
    site: Site,
    settings: Settings,
    session: Session,
    context: WorkerContext,
    receiver: Receiver,
    role: Role,
    collections: frozenset[str] | None,
    sees: set[str],
) -> None:
    subscribe(site, token(settings, "eve", role, collections), webhook=receiver.url())
    for name, collection, owner in (
        ("own", "demo", "token:eve"),
        ("others", "demo", "token:bob"),
        ("foreign", "maps", "token:bob"),
        ("foreign-own", "maps", "token:eve"),
    ):
        subscriptions.enter(session, about(name, collection=collection, owner=owner))
    deliver(context)

    (events,) = events_of(receiver)
    assert {event["about"] for event in events} == sees


def test_events_of_the_fleet_are_for_those_who_see_it(site: Site, settings: Settings) -> None:
    demo = frozenset({"demo"})
    with pytest.raises(Forbidden, match="outages"):
        subscribe(site, token(settings, "a", Role.OPERATOR, demo), mail=MAIL, events=["outage"])
    with pytest.raises(Forbidden, match="fixity"):
        subscribe(site, token(settings, "b", Role.DEPOSITOR), mail=MAIL, events=["fixity"])
    with pytest.raises(Forbidden, match="maps"):
        subscribe(site, token(settings, "c", Role.VIEWER, demo), mail=MAIL, collections=["maps"])


def test_an_outage_of_the_inventory_is_announced_once_and_deposits_wait_for_it(
    site: Site, settings: Settings, session: Session, context: WorkerContext, receiver: Receiver
) -> None:
    olga = token(settings, "olga", Role.OPERATOR)
    view = subscribe(site, olga, webhook=receiver.url(), events=["outage", "done"])
    away = make_context(settings.model_copy(update={"inventory_url": "postgresql://nobody@127.0.0.1:1/none"}))
    outages.report(session, ServiceDown(Service.INVENTORY, "the database is away"), of_tasks.this_host())
    subscriptions.enter(session, about("bid0000000001"))
    (known,) = outages.known(session).values()
    of_tasks.tell_subscribers(context, session, known.outage)
    work.run(away, session, None)  # type: ignore[arg-type]

    ((event,),) = events_of(receiver)
    assert (event["kind"], event["about"]) == ("outage", "inventory")
    assert "the database is away" in event["text"]
    assert subscriptions.waiting(session, view.id) == ["done.bid0000000001.1"]

    of_tasks.tell_subscribers(context, session, known.outage)  # the work was killed before it noted this
    deliver(context)
    assert [[event["kind"] for event in events] for events in events_of(receiver)] == [["outage"], ["done"]]


def test_mails_that_a_server_refuses_wait_with_the_error_and_are_sent_once_it_works(
    site: Site, session: Session, context: WorkerContext, mails: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = confirmed(site, context, ANN)
    mails.refusal = "451 try again later"
    for number in range(3):
        subscriptions.enter(session, about(f"bid{number:010d}"))
        later(monkeypatch, timedelta(days=2 * number))
        deliver(context)

    waiting = shown(site, view.id)
    assert (waiting.waiting, waiting.suspended) == (3, None)
    assert "451" in waiting.error

    mails.refusal = ""
    for days in (5, 6):
        later(monkeypatch, timedelta(days=days))
        deliver(context)
    done = shown(site, view.id)
    assert (done.waiting, done.error, done.delivered) == (0, "", 4)


def test_a_webhook_that_fails_for_days_is_suspended_until_a_test(
    site: Site, session: Session, context: WorkerContext, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = subscribe(site, ANN, webhook=receiver.url())
    subscriptions.enter(session, about("bid0000000001"))
    receiver.answers += [(500, {}), (500, {})]
    deliver(context)
    assert shown(site, view.id).suspended is None
    with monkeypatch.context() as patch:
        later(patch, work.SUSPENDED_AFTER + timedelta(hours=1))
        deliver(context)
    assert shown(site, view.id).suspended is not None
    subscriptions.enter(session, about("bid0000000002"))
    deliver(context)
    assert len(receiver.received) == 2

    notifications.send_test(site, ANN, view.id)
    deliver(context)
    deliver(context)

    assert [events[0]["kind"] for events in events_of(receiver)[2:]] == ["done", "test"]
    assert shown(site, view.id).suspended is None


def test_an_address_is_not_flooded_with_questions(site: Site, settings: Settings) -> None:
    ids = [subscribe(site, token(settings, f"t{number}", Role.VIEWER), mail=MAIL).id for number in range(3)]
    for subscription_id in ids:
        notifications.remove(site, ANN, subscription_id)
    with pytest.raises(UsageRefused, match="was asked 3 times"):
        subscribe(site, token(settings, "t4", Role.VIEWER), mail=MAIL.upper())


def test_one_principal_has_a_limited_number_of_subscriptions(site: Site, receiver: Receiver) -> None:
    for number in range(notifications.OF_ONE):
        subscribe(site, ANN, webhook=receiver.url(f"/{number}"))
    with pytest.raises(UsageRefused, match="as many as one may"):
        subscribe(site, ANN, webhook=receiver.url("/more"))


def test_a_url_with_a_password_is_refused_because_it_would_be_kept(site: Site, receiver: Receiver) -> None:
    for url in (receiver.url(login="ann:pass@"), receiver.url("/hook?token=abc"), "ftp://x.example/hook"):
        with pytest.raises(UsageRefused):
            subscribe(site, ANN, webhook=url)


def test_a_site_without_a_secret_says_what_to_set(site: Site, settings: Settings) -> None:
    bare = Site(settings.model_copy(update={"callback_secret": SecretStr("")}), site.session)
    with pytest.raises(UsageRefused, match="ARKLINE_CALLBACK_SECRET"):
        subscribe(bare, ANN, mail=MAIL)


@contextmanager
def counting(session: Session) -> Iterator[list[str]]:
    """The requests that the session sends in the block."""
    sent: list[str] = []
    ask = session.ask

    def counted(call: Any, *arguments: Any, **named: Any) -> Any:
        sent.append(str(call))
        return ask(call, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "ask", counted)
        yield sent


def test_without_subscriptions_a_deposit_asks_zookeeper_for_nothing_more(settings: Settings) -> None:
    with connect(settings) as own:
        subscriptions.enter(own, about("bid0000000000"))
        with counting(own) as sent:
            for number in range(100):
                subscriptions.enter(own, about(f"bid{number:010d}"))
    assert sent == []


def test_a_subscription_that_is_removed_meanwhile_keeps_no_deposit_from_ending(
    site: Site, session: Session, context: WorkerContext, receiver: Receiver
) -> None:
    view = subscribe(site, ANN, webhook=receiver.url())
    assert [one.id for one in subscriptions.known(context.session())] == [view.id]
    subscriptions.remove(session, view.id)
    bid = ended_deposit(context, session)

    assert batches.load(session, bid).status.status == "completed"


def test_kinds_and_fields_that_only_another_release_knows_are_passed_over_and_kept(
    site: Site, session: Session, context: WorkerContext, receiver: Receiver
) -> None:
    view = subscribe(site, ANN, webhook=receiver.url())
    (kept,) = subscriptions.known(session)
    subscriptions.change(session, kept, events=("done", "comet"), colour="blue")
    subscriptions.enter(session, about("bid0000000001"))
    subscriptions.enter(session, about("comet-1", kind="comet"))
    deliver(context)

    (events,) = events_of(receiver)
    assert sorted(event["kind"] for event in events) == ["comet", "done"]
    notifications.send_test(site, ANN, view.id)
    raw = json.loads(planting.tree(session)[paths.subscription(view.id)])
    assert (raw["events"], raw["colour"]) == (["done", "comet"], "blue")


def test_a_damaged_subscription_spoils_no_other(
    site: Site, session: Session, context: WorkerContext, receiver: Receiver
) -> None:
    damaged = subscribe(site, ANN, webhook=receiver.url("/damaged"))
    subscribe(site, ANN, webhook=receiver.url("/good"))
    session.zk.set(paths.subscription(damaged.id), b"{")
    ended_deposit(context, session)
    deliver(context)

    assert [request.path for request in receiver.received] == ["/good"]
    assert len(notifications.listed(site, ANN).subscriptions) == 1


def test_objects_that_wait_for_a_review_are_one_event_of_their_deposit(
    site: Site, session: Session, context: WorkerContext, receiver: Receiver
) -> None:
    subscribe(site, ANN, webhook=receiver.url(), events=["needs-me"])
    bid, jids = planting.split_batch(session, 2)
    for jid in jids:
        job = jobs.load(session, jid)
        while job.status.status is not JobState.DOWNLOADING:
            acquires = job.status.status is JobState.PENDING
            job = planting.apply_event(session, job, Event.ACQUIRE if acquires else Event.SUCCEED)
        planting.apply_event(session, job, Event.REVIEW)
    deliver(context)

    ((event,),) = events_of(receiver)
    assert (event["kind"], event["about"]) == ("needs-me", bid)
    assert "waits for a review" in event["title"]


def test_a_subscription_that_is_not_confirmed_is_forgotten(
    site: Site, context: WorkerContext, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe(site, ANN, mail=MAIL)
    for days in (8, 10):
        later(monkeypatch, timedelta(days=days))
        deliver(context)

    assert session.children(paths.SUBSCRIPTIONS) == []
    assert session.children(paths.DELIVERIES) == []


def test_a_link_in_a_mail_acts_by_post_without_a_login_and_not_when_it_is_opened(
    settings: Settings, site: Site, context: WorkerContext, mails: MailServer
) -> None:
    view = subscribe(site, ANN, mail=MAIL)
    deliver(context)
    with serving(settings) as web:
        link = f"/notifications/{view.id}/confirm?code={code_of(settings, view.id, 'confirm')}"
        assert link in text_of(mails.accepted[0])
        assert "Confirm" in web.anybody.get(link).text
        assert not shown(site, view.id).confirmed
        assert web.anybody.request("POST", link.replace("code=", "code=x")).status_code == 404
        assert web.anybody.request("POST", link).status_code == 200
        assert shown(site, view.id).confirmed

        notifications.send_test(site, ANN, view.id)
        deliver(context)
        end = mails.accepted[-1]["List-Unsubscribe"].strip("<>").removeprefix(settings.public_url)
        assert web.anybody.get(end).status_code == 200
        assert len(notifications.listed(site, ANN).subscriptions) == 1
        one_click = {"List-Unsubscribe": "One-Click"}
        foreign = {"Sec-Fetch-Site": "cross-site"}
        assert web.anybody.request("POST", end, data=one_click, headers=foreign).status_code == 200
    assert notifications.listed(site, ANN).subscriptions == ()


def test_the_page_adds_tests_and_removes_and_each_sees_her_own_alone(
    settings: Settings, session: Session, context: WorkerContext, receiver: Receiver
) -> None:
    with serving(settings) as web:
        ada, bob, eve = (web.caller(Role.DEPOSITOR, name=name) for name in ("ada", "bob", "eve"))
        operator, viewer = web.caller(Role.OPERATOR), web.caller(Role.VIEWER, ["demo"])

        def send(who: Caller, **fields: Any) -> str:
            answer = who.request("POST", "/notifications", data=fields, headers=OWN_FORM)
            assert answer.status_code == 200
            return answer.text

        send(ada, act="add", event=["done", "failed"], to=receiver.url(), digest="daily")
        (mine,) = ada.get("/v1/notifications").json()["subscriptions"]
        assert receiver.url() in ada.get("/notifications").text
        assert (mine["events"], mine["digest"]) == (["done", "failed"], "daily")
        for other in (bob, eve, viewer):
            assert other.get("/v1/notifications").json()["subscriptions"] == []
            path = f"/v1/notifications/{mine['id']}"
            assert other.get(path).status_code == other.request("DELETE", path).status_code == 404
        assert [one["owner"] for one in operator.get("/v1/notifications").json()["subscriptions"]] == ["ada"]
        assert operator.get(f"/v1/notifications/{mine['id']}").json()["signing_key"] == ""
        assert "Choose at least one event" in send(ada, act="add", to=receiver.url())

        send(ada, act="test", subscription=mine["id"])
        deliver(context)
        assert [events[0]["kind"] for events in events_of(receiver)] == ["test"]
        send(ada, act="remove", subscription=mine["id"])
        assert ada.get("/v1/notifications").json()["subscriptions"] == []


def test_the_command_subscribes_confirms_tests_and_ends_beside_the_stack(
    settings: Settings, session: Session, context: WorkerContext, mails: MailServer
) -> None:
    added = cli.run(settings, "notify", "add", "--mail", MAIL, "-e", "done", "--json").json()
    deliver(context)
    found = re.search(r"arkline (notify confirm \w+ \w+)", text_of(mails.accepted[0]))
    assert found is not None
    assert cli.run(settings, *found[1].split()).code == 0
    assert cli.run(settings, "notify", "test", added["id"]).code == 0
    deliver(context)
    (listed,) = cli.run(settings, "notify", "list", "--json").json()["subscriptions"]
    assert (listed["id"], listed["confirmed"], listed["delivered"]) == (added["id"], True, 2)
    assert cli.run(settings, "notify", "remove", added["id"]).code == 0
    assert cli.run(settings, "notify", "list", "--json").json()["subscriptions"] == []


def test_a_delivery_that_failed_is_not_sent_again_while_nobody_can_judge_the_rights(
    site: Site,
    settings: Settings,
    session: Session,
    context: WorkerContext,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subscribe(site, token(settings, "vera", Role.VIEWER), webhook=receiver.url())
    receiver.answers += [(500, {})]
    subscriptions.enter(session, about("bid0000000001"))
    deliver(context)
    away = make_context(settings.model_copy(update={"inventory_url": "postgresql://nobody@127.0.0.1:1/none"}))
    later(monkeypatch, timedelta(hours=1))
    work.run(away, session, None)  # type: ignore[arg-type]
    assert len(receiver.received) == 1

    deliver(context)
    first, again = receiver.received
    assert first.raw == again.raw
    assert first.headers["webhook-id"] == again.headers["webhook-id"]


def test_a_fixity_alarm_is_for_those_who_see_the_whole_object(
    site: Site, settings: Settings, session: Session, context: WorkerContext, receiver: Receiver
) -> None:
    for name, collections in (("all", None), ("maps", frozenset({"maps"})), ("none", frozenset[str]())):
        who = token(settings, name, Role.VIEWER, collections)
        subscribe(site, who, webhook=receiver.url(f"/{name}"), events=["fixity"])
    subscriptions.enter(session, about("ark:/99999/fk4unknown", kind=EventKind.FIXITY, collection=""))
    deliver(context)

    assert [request.path for request in receiver.received] == ["/all"]
