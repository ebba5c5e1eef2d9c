"""The page of the caller's notifications, and the pages behind the links in mails, which need no login.

Such a link shows a page with a button, because programs that check links open them: only a POST acts.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Query, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import ValidationError

from entrypoints.web.context import context_of, site_of
from entrypoints.web.limits import slow
from entrypoints.web.pages import acts
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.templating import Notice, page, redirect
from operations import notifications
from operations.notifications import NewSubscription, NoSuchSubscription, SubscriptionView
from pipeline.errors import ArklineError
from pipeline.notify.notification import Purpose
from pipeline.notify.subscription import DigestMode, EventKind

router = page_router()

HERE = "/notifications"

LABELS = {
    EventKind.DONE: "a deposit is stored",
    EventKind.FAILED: "a deposit is not stored, or not wholly",
    EventKind.NEEDS_ME: "a deposit waits for somebody: a consent, a review, a hold",
    EventKind.OUTAGE: "a service does not work, or works again",
    EventKind.FIXITY: "stored files are damaged, or repaired",
}
DIGESTS = {
    DigestMode.AT_ONCE: "at once",
    DigestMode.HOURLY: "together, at most once an hour",
    DigestMode.DAILY: "together, at most once a day",
}

Code = Annotated[str, Query(max_length=100)]


@router.get(HERE)
@slow("record_work")
def show(request: Request, caller: PageCaller) -> HTMLResponse:
    return page(
        request,
        "notifications.html",
        listed=notifications.listed(site_of(request), caller).subscriptions,
        kinds={str(kind): label for kind, label in LABELS.items() if notifications.may_have(caller, kind)},
        labels=LABELS,
        digests=DIGESTS,
        acts_spelled=acts.subscription_acts(),
        add_spelled=acts.notify(),
    )


@router.post(HERE)
@slow("record_work")
def act(  # noqa: PLR0913 - the fields of a form
    request: Request,
    caller: PageCaller,
    act: Annotated[str, Form()],
    subscription: Annotated[str, Form(max_length=40)] = "",
    event: Annotated[tuple[str, ...], Form(max_length=20)] = (),
    to: Annotated[str, Form(max_length=2000)] = "",
    digest: Annotated[DigestMode, Form()] = DigestMode.AT_ONCE,
) -> Response:
    site = site_of(request)
    try:
        if act == "test":
            notifications.send_test(site, caller, subscription)
            notice = Notice("A test is sent within seconds; reload this page to see how it went.")
        elif act == "remove":
            notifications.remove(site, caller, subscription)
            notice = Notice("The notifications were ended.")
        else:
            place = "webhook" if "://" in to else "mail"
            asked = NewSubscription.model_validate({"events": event, place: to, "digest": digest})
            notice = Notice(_added(notifications.add(site, caller, asked)))
    except ValidationError:
        notice = Notice("Choose at least one event, and give an address.", "bad")
    except ArklineError as refused:
        notice = Notice(str(refused), "bad")
    return redirect(request, HERE, notice)


def _added(view: SubscriptionView) -> str:
    if view.webhook:
        return f"Added. Requests are signed with this key, as in Standard Webhooks: {view.signing_key}"
    return f"{view.mail} gets a mail to confirm the address. Nothing else is sent before."


@router.get(f"{HERE}/{{subscription}}/{{purpose}}")
def ask(request: Request, subscription: str, purpose: Purpose, code: Code) -> HTMLResponse:
    return page(request, "notification_link.html", purpose=purpose, done=False)


@router.post(f"{HERE}/{{subscription}}/{{purpose}}")
def follow_link(request: Request, subscription: str, purpose: Purpose, code: Code) -> HTMLResponse:
    """The button, or the mail program's own (RFC 8058), which has no login and comes from no site."""
    wrong, address = context_of(request).wrong_tokens, request.client.host if request.client else ""
    wrong.check(address)
    carry_out = notifications.confirm if purpose == "confirm" else notifications.end_by_code
    try:
        carry_out(site_of(request), subscription, code)
    except NoSuchSubscription:
        wrong.count(address)
        raise
    return page(request, "notification_link.html", purpose=purpose, done=True)
