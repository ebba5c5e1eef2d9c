"""Notifications: what the caller is notified of, and where."""

from typing import Annotated

from fastapi import Path, Request, Response
from pydantic import Field

from entrypoints.web.api_router import api_router
from entrypoints.web.authentication import Caller
from entrypoints.web.context import site_of
from entrypoints.web.limits import slow
from operations import notifications
from operations.notifications import Confirmed, Ended, NewSubscription, Subscriptions, SubscriptionView
from pipeline.records import SentRecord

router = api_router("/v1/notifications", "notifications")

SubscriptionId = Annotated[str, Path(max_length=40, examples=["3f9c21ab8d0e4f75"])]


class Confirmation(SentRecord):
    code: str = Field(max_length=100, description="The code in the mail that asks to confirm.")


@router.get("", summary="The caller's subscriptions")
@slow("record_work")
def list_subscriptions(request: Request, caller: Caller) -> Subscriptions:
    """Those of everybody for an operator of all collections."""
    return notifications.listed(site_of(request), caller)


@router.post("", status_code=201, summary="Subscribe to events")
@slow("record_work")
def subscribe(
    request: Request, response: Response, caller: Caller, body: NewSubscription
) -> SubscriptionView:
    """A mail address gets one mail, to confirm it. The answer has the key by which a webhook is signed."""
    view = notifications.add(site_of(request), caller, body)
    response.headers["Location"] = f"{router.prefix}/{view.id}"
    return view


@router.get("/{subscription}", summary="A subscription, and how its deliveries went")
@slow("record_work")
def show(request: Request, caller: Caller, subscription: SubscriptionId) -> SubscriptionView:
    return notifications.show(site_of(request), caller, subscription)


@router.post("/{subscription}/confirm", summary="Confirm a mail address")
@slow("record_work")
def confirm(request: Request, caller: Caller, subscription: SubscriptionId, body: Confirmation) -> Confirmed:
    """Whoever has the code has got the mail. To confirm again changes nothing."""
    notifications.confirm(site_of(request), subscription, body.code)
    return Confirmed(id=subscription)


@router.post("/{subscription}/test", status_code=202, summary="Send a test")
@slow("record_work")
def send_test(request: Request, caller: Caller, subscription: SubscriptionId) -> SubscriptionView:
    """A worker sends it within seconds; a suspended subscription begins again."""
    return notifications.send_test(site_of(request), caller, subscription)


@router.delete("/{subscription}", summary="End a subscription")
@slow("record_work")
def remove(request: Request, caller: Caller, subscription: SubscriptionId) -> Ended:
    """What waits for it is not sent."""
    notifications.remove(site_of(request), caller, subscription)
    return Ended(id=subscription)
