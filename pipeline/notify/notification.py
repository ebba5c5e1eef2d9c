"""What is sent for a subscription: a mail, or the body of a webhook. The same delivery gives the same bytes.

What a link or a signature proves is derived from the site's secret and the id of the subscription: it ends
when that secret is replaced.
"""

import base64
import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from email.message import EmailMessage
from typing import Literal
from urllib.parse import quote

from pipeline.errors import UsageRefused
from pipeline.humanize import counted
from pipeline.notify.callback import BASE64_SECRET, MIN_SECRET_BYTES
from pipeline.notify.mail import notice
from pipeline.notify.report_mail import on_one_line
from pipeline.notify.subscription import CONFIRM, Delivery, EventKind, NotableEvent, Subscription
from pipeline.settings import Settings

Purpose = Literal["confirm", "end"]
"""What a link in a mail is for, and the end of its path."""

WORDS: Mapping[str, str] = {
    EventKind.DONE: "deposits stored",
    EventKind.FAILED: "deposits not stored or not wholly",
    EventKind.NEEDS_ME: "waiting for somebody",
    EventKind.OUTAGE: "of outages",
    EventKind.FIXITY: "of fixity",
}


def _derived(settings: Settings, subscription_id: str, purpose: str) -> bytes:
    secret = settings.callback_secret.get_secret_value().encode()
    if len(secret) < MIN_SECRET_BYTES:
        raise UsageRefused(
            "this site sends no notifications: set ARKLINE_CALLBACK_SECRET to at least "
            f"{MIN_SECRET_BYTES} random bytes for workers and web processes, which sign their links by it"
        )
    return hmac.new(secret, f"notifications {purpose} {subscription_id}".encode(), hashlib.sha256).digest()


def code_of(settings: Settings, subscription_id: str, purpose: Purpose) -> str:
    """What proves that its bearer has got a mail of the subscription."""
    return base64.b32encode(_derived(settings, subscription_id, purpose)[:15]).decode().lower()


def signing_key(settings: Settings, subscription_id: str) -> bytes:
    """The key of a webhook, in the form of Standard Webhooks."""
    return BASE64_SECRET + base64.b64encode(_derived(settings, subscription_id, "webhook"))


def event_of(mail: EmailMessage, kind: str, about: str, number: int, at: datetime) -> NotableEvent:
    """The event that tells subscribers what the notice tells the operator."""
    return NotableEvent(
        kind=kind, about=about, number=number, at=at, title=str(mail["Subject"]), text=mail.get_content()
    )


def delivery_id(subscription: Subscription, delivery: Delivery) -> str:
    return f"{subscription.id}.{delivery.digest}"


def notification_mail(
    settings: Settings, subscription: Subscription, delivery: Delivery, report: str = ""
) -> EmailMessage:
    """`report`: the text of the deposit's report, if the delivery is of one deposit."""
    first = delivery.sending[0]
    subject, text = first.title, report or f"{first.text}\n\n{page_of(settings, first)}"
    if first.kind == CONFIRM:
        text = _confirmation(settings, subscription)
    elif delivery.count > 1:
        subject = f"arkline: {counted(delivery.count, 'event')}: {_summary(delivery)}"
        text = "\n".join(_listed(settings, delivery))
    return _with_end(settings, subscription, delivery, on_one_line(subject), text.strip("\n"), first.at)


def _confirmation(settings: Settings, subscription: Subscription) -> str:
    code, page = (make(settings, subscription.id, "confirm") for make in (code_of, _link))
    ways = f"Open this page and press the button:\n\n  {page}\n\nOr use" if page else "Use"
    return (
        f"{subscription.name} wants notifications from this repository to be mailed to this address.\n"
        "Nothing more is sent before you confirm it.\n\n"
        f"{ways} the command line:\n\n  arkline notify confirm {subscription.id} {code}\n\n"
        "If you do not know of this, do nothing: the request is forgotten after a week."
    )


def _summary(delivery: Delivery) -> str:
    counts = Counter(delivery.more) + Counter(event.kind for event in delivery.sending)
    return ", ".join(f"{number:,} {WORDS.get(kind, kind)}" for kind, number in counts.items())


def _listed(settings: Settings, delivery: Delivery) -> list[str]:
    lines = []
    for event in delivery.sending:
        lines += [f"* {on_one_line(event.title)}", f"  {event.at:%Y-%m-%d %H:%M} UTC"]
        lines += [f"  {line}" for line in event.text.splitlines()[:3] if line]
        lines += [f"  {page}", ""] if (page := page_of(settings, event)) else [""]
    if more := sum(delivery.more.values()):
        lines.append(f"And {more:,} more, which the pages of the repository show.")
    return lines


def page_of(settings: Settings, event: NotableEvent) -> str:
    """The page about the event; empty without a public address, or if there is none."""
    if event.kind == EventKind.FIXITY:
        return _page(settings, f"objects/{quote(event.about, safe='/:')}")
    return _page(settings, f"batches/{event.about}") if event.about.startswith("bid") else ""


def _page(settings: Settings, path: str) -> str:
    return f"{settings.public_url}/{path}" if settings.public_url else ""


def _link(settings: Settings, subscription_id: str, purpose: Purpose) -> str:
    code = code_of(settings, subscription_id, purpose)
    return _page(settings, f"notifications/{subscription_id}/{purpose}?code={code}")


def _with_end(
    settings: Settings, subscription: Subscription, delivery: Delivery, subject: str, text: str, at: datetime
) -> EmailMessage:
    end = _link(settings, subscription.id, "end")
    how = end or f"arkline notify remove {subscription.id}"
    key = f"notification {delivery_id(subscription, delivery)}"
    text = f"{text}\n\n-- \nTo end these mails: {how}\n"
    message = notice(settings, subject, text, key, at, to=subscription.mail)
    if end:  # RFC 8058
        message["List-Unsubscribe"] = f"<{end}>"
        message["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    return message


def webhook_body(settings: Settings, subscription: Subscription, delivery: Delivery) -> bytes:
    reported = {"kind", "title", "text", "collection", "about"}
    events = [
        {
            "id": event.key,
            "at": event.at.isoformat(),
            **event.model_dump(include=reported),
            "page": page_of(settings, event),
        }
        for event in delivery.sending
    ]
    document = {"id": delivery_id(subscription, delivery), "events": events, "more": delivery.more}
    return json.dumps(document, ensure_ascii=False).encode()
